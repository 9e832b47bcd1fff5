//! Listing directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use parext4::{DirItem, Error, Node};

use crate::attr::{Entry, TTL, kind, lifetime};
use crate::failure::Outcome;
use crate::server::Server;

impl Server {
    pub fn read_dir(&self, ino: INodeNo, offset: u64, mut reply: ReplyDirectory) {
        let add = |_: &Node, item: &DirItem, next: u64| {
            let ino = INodeNo(item.ino.get().into());
            Ok(reply.add(ino, next, kind(item.file_type), OsStr::from_bytes(&item.name)))
        };
        match self.heed(self.list(ino, offset, add)) {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(failure.errno()),
        }
    }

    /// Also tells the kernel of each inode.
    pub fn read_dir_plus(&self, ino: INodeNo, offset: u64, mut reply: ReplyDirectoryPlus) {
        let add = |dir: &Node, item: &DirItem, next: u64| self.add_with_entry(dir, item, next, &mut reply);
        match self.heed(self.list(ino, offset, add)) {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(failure.errno()),
        }
    }

    /// Has `add` add the entries behind `offset`, each with the offset that goes on behind it, until it says that the
    /// reply is full.
    fn list(
        &self,
        ino: INodeNo,
        offset: u64,
        mut add: impl FnMut(&Node, &DirItem, u64) -> Outcome<bool>,
    ) -> Outcome<()> {
        let dir = self.node(ino)?;
        let mut after = cookie(offset);
        loop {
            let items = dir.read_dir(after)?;
            let Some(last) = items.last() else {
                self.note_access(&dir);
                return Ok(());
            };
            let end = last.cookie;
            for (nth, item) in items.iter().enumerate() {
                // Names that share a cookie can only be gone back before: rather one of them twice than none.
                if items.get(nth + 1).is_none_or(|next| next.cookie != item.cookie) {
                    after = item.cookie;
                }
                if add(&dir, item, position(after))? {
                    return Ok(());
                }
            }
            after = end;
        }
    }

    fn add_with_entry(
        &self,
        dir: &Node,
        item: &DirItem,
        next: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Outcome<bool> {
        let name = OsStr::from_bytes(&item.name);
        if matches!(&item.name[..], b"." | b"..") {
            let mut entry = Entry::negative();
            (entry.attr.ino, entry.attr.kind) = (INodeNo(item.ino.get().into()), kind(item.file_type));
            return Ok(reply.add(INodeNo(0), next, name, &TTL, &entry.attr, Generation(0)));
        }
        let node = match dir.lookup(&item.name) {
            Ok(node) => node,
            // Removed meanwhile.
            Err(Error::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let Entry { attr, generation } = self.entry(&node);
        let full = reply.add(attr.ino, next, name, &lifetime(&attr), &attr, Generation(generation));
        if !full {
            self.nodes.remember(&node);
        }
        Ok(full)
    }
}

/// A cookie as an offset that is not negative. Bit 32 of a cookie made of a hash is never set.
fn position(cookie: u64) -> u64 {
    cookie >> 33 << 32 | cookie & 0xffff_ffff
}

fn cookie(position: u64) -> u64 {
    position >> 32 << 33 | position & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::{cookie, position};

    #[test]
    fn offsets_are_cookies() {
        for at in [0, 1, 2, 4096, 0xffff_fffe_1234_5678, 0x2_0000_0001] {
            assert_eq!(cookie(position(at)), at);
            assert!(i64::try_from(position(at)).is_ok());
        }
    }
}

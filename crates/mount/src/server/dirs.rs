//! Lists directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use parext4::{DirBatch, DirItem, Error, Node};

use super::Server;
use super::names::has_spellings;
use crate::protocol::Outcome;
use crate::protocol::attr::{CACHE_FOREVER, Entry, kind};

/// The entry of a batch with index `nth`, and the offset that continues after it.
struct Listed<'a> {
    dir: &'a Node,
    batch: &'a DirBatch,
    nth: usize,
    next: u64,
}

impl Server {
    /// Replies with the entries of a directory after `offset`.
    pub fn read_dir(&self, ino: INodeNo, offset: u64, mut reply: ReplyDirectory) {
        let add = |Listed { batch, nth, next, .. }: Listed<'_>| {
            let item = &batch[nth];
            let ino = INodeNo(item.ino.get().into());
            Ok(reply.add(ino, next, kind(item.file_type), OsStr::from_bytes(&item.name)))
        };
        match self.handle_corruption(self.list(ino, offset, add)) {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(failure.errno()),
        }
    }

    /// Like [`read_dir`](Self::read_dir), with the attributes of each inode. Counts a look-up of each.
    pub fn read_dir_plus(&self, ino: INodeNo, offset: u64, mut reply: ReplyDirectoryPlus) {
        let add = |listed: Listed<'_>| self.add_with_entry(listed, &mut reply);
        match self.handle_corruption(self.list(ino, offset, add)) {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(failure.errno()),
        }
    }

    /// Calls `add` with each entry after `offset`, until it returns true because the reply is full.
    fn list(
        &self,
        ino: INodeNo,
        offset: u64,
        mut add: impl FnMut(Listed<'_>) -> Outcome<bool>,
    ) -> Outcome<()> {
        let dir = self.node(ino)?;
        let mut after = cookie(offset);
        let mut added = false;
        loop {
            let batch = match dir.read_dir(after) {
                // The kernel learns of the inodes that were counted. Its next request fails.
                Err(error) if added => return self.handle_corruption(Err(error.into())).or(Ok(())),
                batch => batch?,
            };
            let Some(last) = batch.last() else {
                self.update_atime(&dir);
                return Ok(());
            };
            let end = last.cookie;
            for (nth, item) in batch.iter().enumerate() {
                // A listing can continue only before or after all names that share a cookie. The offset of all but the last
                // is before them: a name may be listed twice, but none is left out.
                if batch.get(nth + 1).is_none_or(|next| next.cookie != item.cookie) {
                    after = item.cookie;
                }
                if add(Listed { dir: &dir, batch: &batch, nth, next: offset_of(after) })? {
                    return Ok(());
                }
                added = true;
            }
            after = end;
        }
    }

    fn add_with_entry(&self, listed: Listed<'_>, reply: &mut ReplyDirectoryPlus) -> Outcome<bool> {
        let Listed { dir, batch, nth, next } = listed;
        let item = &batch[nth];
        let name = OsStr::from_bytes(&item.name);
        if matches!(&item.name[..], b"." | b"..") {
            return Ok(add_without_entry(item, next, reply));
        }
        let node = match batch.node(nth) {
            Ok(node) => node,
            // Another request has removed the name since it was listed.
            Err(Error::NotFound(_)) => return Ok(false),
            // The name is listed all the same, as in the kernel. A look-up of it reports the error.
            Err(error) => {
                let _ = self.handle_corruption::<()>(Err(error.into()));
                return Ok(add_without_entry(item, next, reply));
            }
        };
        let entry = Entry { keeps_name: !has_spellings(dir), ..self.entry(&node) };
        let (attr, generation) = (&entry.attr, Generation(entry.generation));
        let full = reply.add(attr.ino, next, name, &entry.timeout(), attr, generation);
        if !full {
            self.lookup_counts.count_lookup(&node);
        }
        Ok(full)
    }
}

/// Adds a name that the kernel looks up when it is used. Returns true if the reply is full.
fn add_without_entry(item: &DirItem, next: u64, reply: &mut ReplyDirectoryPlus) -> bool {
    let mut entry = Entry::negative();
    (entry.attr.ino, entry.attr.kind) = (INodeNo(item.ino.get().into()), kind(item.file_type));
    let name = OsStr::from_bytes(&item.name);
    reply.add(INodeNo(0), next, name, &CACHE_FOREVER, &entry.attr, Generation(0))
}

/// Encodes a cookie as an offset, which must not be negative. Bit 32 of a cookie is never set.
fn offset_of(cookie: u64) -> u64 {
    cookie >> 33 << 32 | cookie & 0xffff_ffff
}

/// Decodes an offset.
fn cookie(offset: u64) -> u64 {
    offset >> 32 << 33 | offset & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::{cookie, offset_of};

    #[test]
    fn cookies_survive_a_round_trip() {
        for at in [0, 1, 2, 4096, 0xffff_fffe_1234_5678, 0x2_0000_0001, 0x2_0000_0010] {
            assert_eq!(cookie(offset_of(at)), at);
            assert!(i64::try_from(offset_of(at)).is_ok());
        }
    }
}

//! Lists directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use parext4::{DirEntry, Error, InodeRef};

use super::Server;
use super::names::has_spellings;
use crate::protocol::Outcome;
use crate::protocol::attr::{Entry, kind};

/// An entry of a directory, and the [offset](super::dir_offsets) that continues after it.
struct Listed<'a> {
    dir: &'a InodeRef,
    entry: &'a DirEntry,
    next: u64,
}

impl Server {
    /// Replies with the entries of a directory after `offset`.
    pub fn read_dir(&self, ino: INodeNo, offset: u64, mut reply: ReplyDirectory) {
        let add = |Listed { entry, next, .. }: Listed<'_>| {
            let ino = INodeNo(entry.ino().get().into());
            Ok(reply.add(ino, next, kind(entry.file_type()), OsStr::from_bytes(entry.name())))
        };
        match self.handle_corruption(self.list(ino, offset, add)) {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(failure.errno()),
        }
    }

    /// Like [`read_dir`](Self::read_dir), with the attributes of each inode that can be read.
    /// Counts a look-up of each.
    pub fn read_dir_plus(&self, ino: INodeNo, offset: u64, mut reply: ReplyDirectoryPlus) {
        let add = |listed: Listed<'_>| self.add_with_entry(listed, &mut reply);
        match self.handle_corruption(self.list(ino, offset, add)) {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(failure.errno()),
        }
    }

    /// Calls `add` with each entry after `offset`, until it returns true because the reply is full.
    /// Each entry that is added has a larger cookie than the request, so a listing ends.
    fn list(
        &self,
        ino: INodeNo,
        offset: u64,
        mut add: impl FnMut(Listed<'_>) -> Outcome<bool>,
    ) -> Outcome<()> {
        let dir = self.inode_ref(ino)?;
        let mut after = self.dir_offsets.decode(offset)?;
        let mut added = false;
        loop {
            let batch = match dir.read_dir_after(after) {
                // The kernel must learn of the inodes that were counted. Its next request then
                // fails.
                Err(error) if added => return self.handle_corruption(Err(error.into())).or(Ok(())),
                batch => batch?,
            };
            if batch.is_empty() {
                self.update_atime(&dir);
                return Ok(());
            }
            for group in batch.chunk_by(|one, next| one.cookie() == next.cookie()) {
                let end = group[0].cookie();
                for (nth, next) in left_in_group(after, end, group.len()) {
                    let next = self.dir_offsets.encode(next);
                    if add(Listed { dir: &dir, entry: &group[nth], next })? {
                        return Ok(());
                    }
                    added = true;
                }
                after = end;
            }
        }
    }

    fn add_with_entry(&self, listed: Listed<'_>, reply: &mut ReplyDirectoryPlus) -> Outcome<bool> {
        let Listed { dir, entry: listed, next } = listed;
        let name = OsStr::from_bytes(listed.name());
        if matches!(listed.name(), b"." | b"..") {
            return Ok(add_without_inode(listed, next, reply));
        }
        let node = match listed.inode_ref() {
            Ok(node) => node,
            // Another request has removed the name since it was listed.
            Err(Error::NotFound(_)) => return Ok(false),
            // The name is listed nevertheless, as in the kernel. A look-up of it reports the error.
            Err(error) => {
                let _ = self.handle_corruption::<()>(Err(error.into()));
                let full = add_without_inode(listed, next, reply);
                if !full {
                    self.lookup_counts.count_refused(listed.ino());
                }
                return Ok(full);
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

/// Adds a name without its inode: the kernel lists the name, and sends a look-up when a program
/// uses it. Returns true if the reply is full.
///
/// In the protocol, the node ID 0 means this. fuser 0.18 sends one number as the node ID and as the
/// number that programs get, and readdir(3) of glibc may skip an entry with the number 0. So the
/// attributes have a size that the kernel refuses: it lists the name, links no inode, and returns
/// the look-up (`FUSE_FORGET`). For `.` and `..` it ignores the attributes, and returns no look-up.
fn add_without_inode(listed: &DirEntry, next: u64, reply: &mut ReplyDirectoryPlus) -> bool {
    let (ino, kind) = (INodeNo(listed.ino().get().into()), kind(listed.file_type()));
    let attr = FileAttr { ino, kind, size: u64::MAX, ..Entry::negative().attr };
    reply.add(ino, next, OsStr::from_bytes(listed.name()), &Duration::ZERO, &attr, Generation(0))
}

/// Returns the index and the next cookie of each entry of a group that a listing after `after` has
/// yet to list. The group has `len` entries that share the cookie `end`.
///
/// Only a damaged directory has such groups, of equal names. The next cookie of an entry is `end`
/// less the number of entries of its group that follow it. So a listing also continues within a
/// group that does not fit one reply.
fn left_in_group(after: u64, end: u64, len: usize) -> impl Iterator<Item = (usize, u64)> {
    let left = usize::try_from(end.saturating_sub(after)).map_or(len, |left| left.min(len));
    (len - left..len).map(move |nth| (nth, end.saturating_sub((len - 1 - nth) as u64).max(after)))
}

#[cfg(test)]
mod tests {
    use super::left_in_group;

    /// Lists groups, each a cookie and a length, in replies of `most` entries.
    fn list(groups: &[(u64, usize)], most: usize) -> Vec<(u64, usize)> {
        let (mut after, mut listed) = (0, Vec::new());
        loop {
            let following = groups.iter().filter(|group| group.0 > after);
            let mut from = after;
            let reply = following.flat_map(|&(end, len)| {
                left_in_group(std::mem::replace(&mut from, end), end, len)
                    .map(move |(nth, next)| (end, nth, next))
            });
            let reply: Vec<_> = reply.take(most).collect();
            let Some(&(.., next)) = reply.last() else { return listed };
            assert!(next > after, "the next request is another one");
            listed.extend(reply.into_iter().map(|(end, nth, _)| (end, nth)));
            after = next;
        }
    }

    #[test]
    fn a_listing_continues_within_a_group_that_fits_no_reply() {
        let groups = [(1, 1), (2, 1), (1000, 15), (1015, 1), (1_000_000, 40), (1 << 40, 2)];
        let all: Vec<_> = groups.iter().flat_map(|&(end, len)| (0..len).map(move |nth| (end, nth))).collect();
        for most in 1..70 {
            assert_eq!(list(&groups, most), all, "{most} entries in a reply");
        }
    }

    #[test]
    fn a_listing_ends_if_groups_have_no_cookies_between_them() {
        for most in 1..20 {
            let listed = list(&[(1, 9), (2, 9), (3, 1), (5, 9)], most);
            assert!([1, 2, 3, 5].iter().all(|&end| listed.iter().any(|entry| entry.0 == end)), "{listed:?}");
        }
    }
}

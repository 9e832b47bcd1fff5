//! Listing a directory while other threads change it.
//!
//! A [cookie](super::cookie) is the position after an entry. If the volume has `dir_index`, hash
//! trees and directories of one block are listed in the order of the hashes of their names, and the
//! cookie is the hash. So it stays valid when a leaf splits, and when one block becomes a tree.
//! Linear directories are listed by offset, because their entries never move. So are hash trees
//! whose names can be hashed only with a key: they get no new entries.

use parext4_format::inode::FileType;
use parext4_format::{BlockRange, FileBlock, dir_entry, no_key_name};

use super::batch::Batch;
use super::cookie::{self, DOT, DOT_DOT};
use super::dir::Dir;
use super::entry::DirItem;
use super::htree::Walk;
use super::names::{NameHash, Names};
use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;

/// Maximum number of leaves with only names that were listed before that one batch skips. A valid
/// tree has one. A malicious tree could lead every batch through all leaves.
const MAX_LISTED_LEAVES: u32 = 64;
/// Number of names with one hash that one batch can have in any directory, but for names with one
/// cookie. A leaf has at most 5461; names with one hash, which continue from leaf to leaf, can be
/// more.
const MAX_BATCH: usize = 8192;
/// Number of names with one hash that one batch can have in the largest directory, about 6 MiB:
/// each request of a mount makes a batch.
const MAX_LARGE_BATCH: usize = 1 << 16;
/// Bytes of a directory for which a batch can have one more name with one hash. Each batch walks
/// all leaves of the hash, so batches of a fixed size would take a time that grows with the square
/// of the directory. A name has at least 12 bytes, so a directory of up to 64 MiB has at most 86
/// batches.
const BYTES_PER_ITEM: u64 = 1024;

impl InodeRef {
    /// Returns the entries of this directory after the one with the cookie `after`, as
    /// [`read_dir_after`](Self::read_dir_after) does.
    pub(super) fn batch_after(&self, after: u64) -> Result<Batch> {
        let dir = self.dir()?;
        let changes = self.inode.read_entries();
        Ok(Batch { changes: *changes, items: dir.list(after)? })
    }
}

/// How a batch was listed.
enum Listed {
    ByOffset,
    ByHash {
        /// The batch has all names with its last hash, after the cookie where it starts.
        is_complete: bool,
    },
}

/// Returns the cookie of a name in hash order, as long as other names with its hash may follow.
/// Names with equal cookies are in one batch.
fn position(hash: &NameHash, name: &[u8]) -> u64 {
    cookie::of_name(hash.hash(name).0, hash.order(name))
}

/// Gives the last name with each hash the cookie after all names with that hash: a mount can make a
/// short position of it. `items` are in order, and have all names with the last hash if
/// `is_complete`. Equal names keep the cookie that they share.
fn end_hashes(items: &mut [DirItem], is_complete: bool) {
    for nth in 0..items.len() {
        let cookie = items[nth].cookie;
        let is_last = match items.get(nth + 1) {
            Some(next) => !cookie::have_one_hash(cookie, next.cookie),
            None => is_complete,
        };
        let is_shared = nth > 0 && items[nth - 1].cookie == cookie;
        if is_last && !is_shared {
            items[nth].cookie = cookie::after_all(cookie).unwrap_or(cookie);
        }
    }
}

/// Returns true if a batch with `items` can end before the leaf that starts at `hash`. If bit 0
/// says that the leaf continues names of that hash, removes such names from a batch that has
/// earlier ones: the next batch begins with them. So only names of one hash are listed from more
/// than one leaf. `first` is the first cookie of `items`.
fn ends_batch(items: &mut Vec<DirItem>, first: u64, hash: u32) -> bool {
    let continued = cookie::before_names(hash);
    if hash & 1 == 1 && first < continued {
        items.retain(|item| item.cookie < continued);
        return true;
    }
    hash & 1 == 0
}

/// Returns the number of names with one hash that a batch of a directory of `size` bytes can have,
/// but for names with one cookie.
fn most_of_one_hash(size: u64) -> usize {
    usize::try_from(size / BYTES_PER_ITEM).unwrap_or(usize::MAX).clamp(MAX_BATCH, MAX_LARGE_BATCH)
}

/// Keeps the first `most` items in the order of their cookies, and the items with the last cookie
/// of these. Returns true if it removes some.
fn keep_first(items: &mut Vec<DirItem>, most: usize) -> bool {
    let had = items.len();
    if had > most {
        items.sort_by_key(|item| item.cookie);
        let last = items[most - 1].cookie;
        items.retain(|item| item.cookie <= last);
    }
    items.len() < had
}

impl Dir<'_> {
    fn list(&self, after: u64) -> Result<Vec<DirItem>> {
        let mut items = Vec::new();
        let listed = match self.list_into(&mut items, after) {
            // The next batch has this error, too. A read that failed may succeed then, and names of
            // its leaf that precede the last cookie would be left out.
            Err(Error::Corrupt(_)) if !items.is_empty() => None,
            listed => Some(listed?),
        };
        // Only the items of a leaf are not in this order.
        items.sort_by_key(|item| item.cookie);
        if let Some(Listed::ByHash { is_complete }) = listed {
            end_hashes(&mut items, is_complete);
        }
        debug_assert!(items.iter().all(|item| item.cookie > after), "the listing goes on");
        Ok(items)
    }

    /// Adds the items of a batch, in no order. If it fails, `items` has the ones before the error.
    fn list_into(&self, items: &mut Vec<DirItem>, after: u64) -> Result<Listed> {
        if self.is_removed() {
            return Ok(Listed::ByOffset);
        }
        if let Some(image) = self.inline_image()? {
            return self.list_inline(&image, after, items);
        }
        let hashed =
            self.is_searched_by_hash() || !self.is_indexed() && self.may_index() && self.blocks()?.len() == 1;
        if hashed { self.list_hashed(after, items) } else { self.list_linear(after, items) }
    }

    /// Returns an entry of a listing. `hash` is the hash of its name.
    fn item(
        &self,
        entry: &dir_entry::DirEntry<'_>,
        hash: impl FnOnce() -> (u32, u32),
        cookie: u64,
    ) -> Result<DirItem> {
        let stored = if self.has_types() { FileType::from_dirent_type(entry.file_type) } else { None };
        let file_type = match stored {
            Some(file_type) => file_type,
            None => match self.engine.inode(entry.ino) {
                Ok(inode) => inode.file_type(),
                // The name must be listed all the same. A look-up of it reports the error.
                Err(Error::Corrupt(_)) => FileType::Regular,
                Err(error) => return Err(error),
            },
        };
        Ok(DirItem { name: self.shown(entry.name, hash)?, ino: entry.ino, file_type, cookie })
    }

    fn list_linear(&self, after: u64, items: &mut Vec<DirItem>) -> Result<Listed> {
        let unit = self.engine.layout().block_size;
        if self.is_indexed() {
            self.dots(after, items)?;
        }
        if !items.is_empty() {
            return Ok(Listed::ByOffset);
        }
        let first = cookie::offset(after) >> unit.bits();
        for n in BlockRange::clamped(first, self.blocks()?.end()).blocks() {
            let start = unit.offset_of(n);
            let Some(block) = self.read_names(n)? else { continue };
            self.list_block((&block.snapshot(), self.has_tail()), (start, after), items)?;
            if !items.is_empty() {
                break;
            }
        }
        Ok(Listed::ByOffset)
    }

    /// Returns the name by which users see a name of an entry.
    fn shown(&self, stored: &[u8], hash: impl FnOnce() -> (u32, u32)) -> Result<Vec<u8>> {
        if !self.inode.is_encrypted() || matches!(stored, b"." | b"..") {
            return Ok(stored.to_vec());
        }
        if stored.len() < no_key_name::MIN_ENCRYPTED {
            return Err(self.corrupt(format_args!("an encrypted name has {} bytes", stored.len())));
        }
        Ok(no_key_name::encode(hash(), stored))
    }

    /// Adds the entries of a block at offset `start`, from the cookie `after` on.
    fn list_block(
        &self,
        (bytes, tail): (&[u8], bool),
        (start, after): (u64, u64),
        items: &mut Vec<DirItem>,
    ) -> Result<()> {
        let hash_in_entry = self.names()? == Names::Encrypted { hash_in_entry: true };
        // From the start of the block, because the entry at `after` may have been merged since.
        for entry in self.entries(bytes, tail) {
            let entry = self.checked(entry)?;
            let offset = start + entry.offset as u64;
            if entry.ino.get() != 0 && offset >= cookie::offset(after) {
                let hash = || match hash_in_entry {
                    true => dir_entry::hash_in_entry(bytes, &entry).unwrap_or_default(),
                    false => (0, 0),
                };
                items.push(self.item(&entry, hash, cookie::of_offset(offset + entry.rec_len as u64))?);
            }
        }
        Ok(())
    }

    /// Adds entries in the inode, of which `image` is the block, with the cookies that they keep
    /// when they move to a block.
    fn list_inline(&self, image: &[u8], after: u64, items: &mut Vec<DirItem>) -> Result<Listed> {
        if !self.may_index() {
            self.list_block((image, false), (0, after), items)?;
            return Ok(Listed::ByOffset);
        }
        self.dots(after, items)?;
        self.list_leaf(&self.default_hash()?, (image, false), after, items)?;
        Ok(Listed::ByHash { is_complete: true })
    }

    fn list_hashed(&self, after: u64, items: &mut Vec<DirItem>) -> Result<Listed> {
        self.dots(after, items)?;
        if self.is_indexed() {
            return self.list_tree(after, items);
        }
        let hash = self.default_hash()?;
        let bytes = self.read(FileBlock::ZERO)?.snapshot();
        self.list_leaf(&hash, (&bytes, self.has_tail()), after, items)?;
        Ok(Listed::ByHash { is_complete: true })
    }

    fn dots(&self, after: u64, items: &mut Vec<DirItem>) -> Result<()> {
        let dot = |name: &[u8], ino, cookie| DirItem {
            name: name.to_vec(),
            ino,
            file_type: FileType::Directory,
            cookie,
        };
        if after < DOT {
            items.push(dot(b".", self.inode.ino(), DOT));
        }
        if after < DOT_DOT {
            items.push(dot(b"..", self.parent()?, DOT_DOT));
        }
        Ok(())
    }

    /// Lists the first leaf that has names after `after`, and if all of these have one hash, the
    /// leaves that continue it. Holds at most twice the names of a batch, and the names of one more
    /// leaf.
    fn list_tree(&self, after: u64, items: &mut Vec<DirItem>) -> Result<Listed> {
        let major = cookie::major(after);
        let most = most_of_one_hash(self.inode.size());
        let mut walk = Walk::to(*self, |_| major)?;
        let had = items.len();
        let (mut skipped, mut start, mut is_complete) = (0, 0, true);
        // The first and the last cookie of the batch. Known without a pass over all items after
        // each leaf.
        let (mut first, mut last) = (items.first().map_or(u64::MAX, |item| item.cookie), 0);
        loop {
            let bytes = walk.leaf()?.snapshot();
            let before = items.len();
            let names = self.list_leaf(&walk.leaf_hash(), (&bytes, self.has_tail()), after, items)?;
            for item in &items[before..] {
                (first, last) = (first.min(item.cookie), last.max(item.cookie));
            }
            // A batch may end among names with one hash, and the next one skips the leaves that
            // have only names up to there.
            if names > 0 && items.len() == had && start != (major | 1) {
                skipped += 1;
            }
            if skipped > MAX_LISTED_LEAVES {
                return Err(self.corrupt("dx_entry: hash: leaves have names that belong before them"));
            }
            // A sort for each leaf would take a time that grows with the square of the batch.
            if items.len() > most.saturating_mul(2) {
                is_complete &= !keep_first(items, most);
            }
            let Some(hash) = walk.advance()? else { break };
            if items.len() > had && ends_batch(items, first, hash) {
                break;
            }
            if cookie::major(last) > hash & !1 {
                // The next batch must have this error, too.
                items.truncate(had);
                return Err(self.corrupt("dx_entry: hash: a leaf that another one continues has later names"));
            }
            start = hash;
        }
        is_complete &= !keep_first(items, most);
        Ok(Listed::ByHash { is_complete })
    }

    /// Adds the names of a leaf after the cookie `after`. Returns the number of all names in the
    /// leaf.
    fn list_leaf(
        &self,
        hash: &NameHash,
        (bytes, tail): (&[u8], bool),
        after: u64,
        items: &mut Vec<DirItem>,
    ) -> Result<u32> {
        let mut names = 0;
        for entry in self.entries(bytes, tail) {
            let entry = self.checked(entry)?;
            if entry.ino.get() == 0 || matches!(entry.name, b"." | b"..") {
                continue;
            }
            names += 1;
            let cookie = position(hash, entry.name);
            if cookie > after {
                let item = self
                    .item(&entry, || hash.hash(entry.name), cookie)
                    // The next batch must have the error, too.
                    .inspect_err(|_| items.retain(|item| item.cookie < cookie))?;
                items.push(item);
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cookies of names with these hashes and orders, which a batch lists.
    fn listed(names: &[(u32, u32)], is_complete: bool) -> Vec<u64> {
        let item = |&(major, order)| DirItem {
            name: b"name".to_vec(),
            ino: parext4_format::InodeNo(12),
            file_type: FileType::Regular,
            cookie: cookie::of_name(major, order),
        };
        let mut items: Vec<_> = names.iter().map(item).collect();
        end_hashes(&mut items, is_complete);
        items.into_iter().map(|item| item.cookie).collect()
    }

    #[test]
    fn the_last_name_with_a_hash_ends_it() {
        let all = |major| cookie::of_name(major, 0) | 0xffff_ffff;
        let own = cookie::of_name;
        assert_eq!(listed(&[(2, 5), (4, 1), (4, 7), (8, 0)], true), [all(2), own(4, 1), all(4), all(8)]);
        // More names with hash 8 may follow.
        assert_eq!(listed(&[(2, 5), (8, 3)], false), [all(2), own(8, 3)]);
        // A damaged directory has a name twice.
        assert_eq!(listed(&[(2, 5), (2, 5), (4, 1)], true), [own(2, 5), own(2, 5), all(4)]);
    }

    #[test]
    fn a_directory_of_names_with_one_hash_is_listed_in_few_batches() {
        assert_eq!(most_of_one_hash(1 << 40), MAX_LARGE_BATCH);
        for size in [4096_u64, 1 << 20, 64 << 20] {
            let names = size / 12;
            assert!(names.div_ceil(most_of_one_hash(size) as u64) <= 86, "{size} bytes");
        }
    }
}

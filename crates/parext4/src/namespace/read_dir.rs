//! Listing a directory while other threads change it.
//!
//! A cookie is the position after an entry. If the volume has `dir_index`, hash trees and directories of one block are listed in the
//! order of the hashes of their names, and the cookie is the hash. So it stays valid when a leaf splits, and when one block becomes a
//! tree. Linear directories are listed by offset, because their entries never move. So are hash trees whose names can be hashed only with
//! a key: they get no new entries.

use parext4_format::inode::FileType;
use parext4_format::{BlockRange, FileBlock, dir_entry, no_key_name};

use super::batch::{DirBatch, DirItem};
use super::dir::Dir;
use super::htree::Walk;
use super::names::{NameHash, Names};
use crate::convert::saturating_u32;
use crate::error::{Error, Result};
use crate::node::Node;

/// The cookies of `.` and `..` in hash order. The cookies of names are larger.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// Maximum number of leaves with only names that were listed before that one batch skips. A valid tree has one. A malicious tree could
/// lead every batch through all leaves.
const MAX_LISTED_LEAVES: u32 = 64;
/// Number of names with one hash that one batch can have in any directory, but for names with one cookie. A leaf has at most 5461; names
/// with one hash, which continue from leaf to leaf, can be more.
const MAX_BATCH: usize = 8192;
/// Number of names with one hash that one batch can have in the largest directory, about 6 MiB: each request of a mount makes a batch.
const MAX_LARGE_BATCH: usize = 1 << 16;
/// Bytes of a directory for which a batch can have one more name with one hash. Each batch walks all leaves of the hash, so batches of a
/// fixed size would take a time that grows with the square of the directory. A name has at least 12 bytes, so a directory of up to 64 MiB
/// has at most 86 batches.
const BYTES_PER_ITEM: u64 = 1024;

impl Node {
    /// Returns a batch of entries of a directory, including `.` and `..`: from the start (`after` 0), or after the entry with the
    /// cookie `after`. Returns an empty batch at the end, and for a removed directory.
    ///
    /// If the caller continues with the last cookie of each batch, it gets each entry that exists throughout exactly once, whatever else is
    /// added or removed meanwhile.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let root = volume.root()?;
    /// let (mut names, mut after) = (Vec::new(), 0);
    /// loop {
    ///     let batch = root.read_dir(after)?;
    ///     let Some(last) = batch.last() else { break };
    ///     after = last.cookie;
    ///     names.extend(batch.into_iter().map(|item| item.name));
    /// }
    /// names.sort();
    /// assert_eq!(names, [&b"."[..], b"..", b"lost+found"]);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotDirectory`](crate::Error::NotDirectory); failed reads; corruption. The entries before
    /// damage are a batch of their own, after which the next one has the error.
    pub fn read_dir(&self, after: u64) -> Result<DirBatch> {
        let dir = self.dir()?;
        let changes = self.inode.read_entries();
        Ok(DirBatch::new(self.clone(), *changes, dir.list(after)?))
    }
}

/// Returns the cookie of a name in hash order. Names with equal hashes have the same cookie, and are in one batch.
fn position(hash: &NameHash, name: &[u8]) -> u64 {
    let (major, _) = hash.hash(name);
    (u64::from(major) << 32 | u64::from(hash.order(name))).max(DOT_DOT + 1)
}

/// Returns the cookie of an offset in a linear directory. Bit 32 is never set, as in a cookie made of a hash: a mount has 63 bits for
/// a position.
fn cookie_of(offset: u64) -> u64 {
    offset >> 32 << 33 | offset & 0xffff_ffff
}

/// Returns the offset of a cookie.
fn offset_of(cookie: u64) -> u64 {
    cookie >> 33 << 32 | cookie & 0xffff_ffff
}

/// Returns true if a batch with `items` can end before the leaf that starts at `hash`. If bit 0 says that the leaf continues names of
/// that hash, removes such names from a batch that has earlier ones: the next batch begins with them. So only names of one hash are
/// listed from more than one leaf.
/// `first` is the first cookie of `items`.
fn ends_batch(items: &mut Vec<DirItem>, first: u64, hash: u32) -> bool {
    let continued = u64::from(hash & !1) << 32;
    if hash & 1 == 1 && first < continued {
        items.retain(|item| item.cookie < continued);
        return true;
    }
    hash & 1 == 0
}

/// Returns the number of names with one hash that a batch of a directory of `size` bytes can have, but for names with one cookie.
fn most_of_one_hash(size: u64) -> usize {
    usize::try_from(size / BYTES_PER_ITEM).unwrap_or(usize::MAX).clamp(MAX_BATCH, MAX_LARGE_BATCH)
}

/// Keeps the first `most` items in the order of their cookies, and the items with the last cookie of these.
fn keep_first(items: &mut Vec<DirItem>, most: usize) {
    if items.len() > most {
        items.sort_by_key(|item| item.cookie);
        let last = items[most - 1].cookie;
        items.retain(|item| item.cookie <= last);
    }
}

impl Dir<'_> {
    fn list(&self, after: u64) -> Result<Vec<DirItem>> {
        let mut items = Vec::new();
        match self.list_into(&mut items, after) {
            // The next batch has this error, too. A read that failed may succeed then, and names of its leaf that precede the last
            // cookie would be left out.
            Err(Error::Corrupt(_)) if !items.is_empty() => {}
            result => result?,
        }
        // Only the items of a leaf are not in this order.
        items.sort_by_key(|item| item.cookie);
        Ok(items)
    }

    /// Adds the items of a batch, in no order. If it fails, `items` has the ones before the error.
    fn list_into(&self, items: &mut Vec<DirItem>, after: u64) -> Result<()> {
        if self.is_removed() {
            return Ok(());
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

    fn list_linear(&self, after: u64, items: &mut Vec<DirItem>) -> Result<()> {
        let unit = self.engine.layout.block_size;
        if self.is_indexed() {
            self.dots(after, items)?;
        }
        if !items.is_empty() {
            return Ok(());
        }
        let first = offset_of(after) >> unit.bits();
        for n in BlockRange::clamped(first, self.blocks()?.end()).blocks() {
            let start = unit.offset_of(n);
            let Some(block) = self.read_names(n)? else { continue };
            self.list_block((&block.snapshot(), self.has_tail()), (start, after), items)?;
            if !items.is_empty() {
                return Ok(());
            }
        }
        Ok(())
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
            if entry.ino.get() != 0 && offset >= offset_of(after) {
                let hash = || match hash_in_entry {
                    true => dir_entry::hash_in_entry(bytes, &entry).unwrap_or_default(),
                    false => (0, 0),
                };
                items.push(self.item(&entry, hash, cookie_of(offset + entry.rec_len as u64))?);
            }
        }
        Ok(())
    }

    /// Adds entries in the inode, of which `image` is the block, with the cookies that they keep when they move to a block.
    fn list_inline(&self, image: &[u8], after: u64, items: &mut Vec<DirItem>) -> Result<()> {
        if !self.may_index() {
            return self.list_block((image, false), (0, after), items);
        }
        self.dots(after, items)?;
        self.list_leaf(&self.default_hash()?, (image, false), after, items)?;
        Ok(())
    }

    fn list_hashed(&self, after: u64, items: &mut Vec<DirItem>) -> Result<()> {
        self.dots(after, items)?;
        if self.is_indexed() {
            return self.list_tree(after, items);
        }
        let hash = self.default_hash()?;
        let bytes = self.read(FileBlock::ZERO)?.snapshot();
        self.list_leaf(&hash, (&bytes, self.has_tail()), after, items)?;
        Ok(())
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

    /// Lists the first leaf that has names after `after`, and if all of these have one hash, the leaves that continue it. Holds at most twice the
    /// names of a batch, and the names of one more leaf.
    fn list_tree(&self, after: u64, items: &mut Vec<DirItem>) -> Result<()> {
        let major = saturating_u32(after >> 32);
        let most = most_of_one_hash(self.inode.size());
        let mut walk = Walk::to(*self, |_| major)?;
        let had = items.len();
        let (mut skipped, mut start) = (0, 0);
        // The first and the last cookie of the batch. Known without a pass over all items after each leaf.
        let (mut first, mut last) = (items.first().map_or(u64::MAX, |item| item.cookie), 0);
        loop {
            let bytes = walk.leaf()?.snapshot();
            let before = items.len();
            let names = self.list_leaf(&walk.leaf_hash(), (&bytes, self.has_tail()), after, items)?;
            for item in &items[before..] {
                (first, last) = (first.min(item.cookie), last.max(item.cookie));
            }
            // A batch may end among names with one hash, and the next one skips the leaves that have only names up to there.
            if names > 0 && items.len() == had && start != (major | 1) {
                skipped += 1;
            }
            if skipped > MAX_LISTED_LEAVES {
                return Err(self.corrupt("dx_entry: hash: leaves have names that belong before them"));
            }
            // A sort for each leaf would take a time that grows with the square of the batch.
            if items.len() > most.saturating_mul(2) {
                keep_first(items, most);
            }
            let Some(hash) = walk.advance()? else { break };
            if items.len() > had && ends_batch(items, first, hash) {
                break;
            }
            if last >> 32 > u64::from(hash & !1) {
                // The next batch must have this error, too.
                items.truncate(had);
                return Err(self.corrupt("dx_entry: hash: a leaf that another one continues has later names"));
            }
            start = hash;
        }
        keep_first(items, most);
        Ok(())
    }

    /// Adds the names of a leaf after the cookie `after`. Returns the number of all names in the leaf.
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

    #[test]
    fn a_directory_of_names_with_one_hash_is_listed_in_few_batches() {
        assert_eq!(most_of_one_hash(1 << 40), MAX_LARGE_BATCH);
        for size in [4096_u64, 1 << 20, 64 << 20] {
            let names = size / 12;
            assert!(names.div_ceil(most_of_one_hash(size) as u64) <= 86, "{size} bytes");
        }
    }
}

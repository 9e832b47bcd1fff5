//! The tree of a quota file: four levels of references by the bytes of an id, from the root to the
//! block that has the entry.
//!
//! The module is responsible for finding, adding and listing entries in blocks that a caller
//! provides ([`QuotaBlocks`]). Any bytes may be in the blocks: they lead to errors, and a walk
//! reads each block of references once and each other block once for each of its entries.

use std::collections::HashSet;

use super::entry::QuotaEntry;
use super::{QUOTA_BLOCK, QuotaHeader, ROOT, STRUCTURE};
use crate::convert::index;
use crate::{FormatError, Result};

/// Levels of references.
const DEPTH: u32 = 4;
/// Size of the header of a block of entries (`qt_disk_dqdbheader`).
const LEAF_HEADER: usize = 16;
/// Number of entries in a block.
const ENTRIES: usize = (QUOTA_BLOCK - LEAF_HEADER) / QuotaEntry::SIZE;
/// The most blocks that one insertion adds to a file: three blocks of references, and one of
/// entries.
pub const MAX_ADDED: u32 = DEPTH;
/// The most blocks that one insertion changes: the header, a path, a block of entries and the next
/// one of its list.
pub const MAX_CHANGED: u32 = DEPTH + 3;

/// The quota blocks of a file.
pub trait QuotaBlocks {
    /// The error of a block that cannot be read.
    type Error: From<FormatError>;

    /// Calls `use_bytes` with the contents of a block.
    ///
    /// # Errors
    /// If the block cannot be read.
    fn read<R>(&mut self, block: u32, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R, Self::Error>;

    /// Changes the contents of a block with `change`.
    ///
    /// # Errors
    /// If the block cannot be read.
    fn change(&mut self, block: u32, change: impl FnOnce(&mut [u8])) -> Result<(), Self::Error>;
}

/// The place of an entry in a quota file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPlace {
    /// The quota block.
    pub block: u32,
    /// The offset in the block, in bytes.
    pub offset: usize,
}

fn wrong(field: &'static str, problem: String) -> FormatError {
    FormatError::new(STRUCTURE, field, problem)
}

/// Checks that `block`, one of `blocks`, may be part of the tree or of a list.
///
/// # Errors
/// If it may not.
pub(super) fn check_block(block: u32, blocks: u32) -> Result<()> {
    if block <= ROOT || block >= blocks {
        return Err(wrong("reference", format!("block {block} of {blocks}")));
    }
    Ok(())
}

/// Returns the offset of the reference for `id` in a block of `level`, in bytes.
fn slot(id: u32, level: u32) -> usize {
    index(id >> ((DEPTH - 1 - level) * 8) & 0xff) * 4
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

fn set_word(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn entry_offsets() -> impl Iterator<Item = usize> {
    (0..ENTRIES).map(|index| LEAF_HEADER + index * QuotaEntry::SIZE)
}

/// The header of a block of entries.
struct LeafHeader {
    next_free: u32,
    entries: u16,
}

impl LeafHeader {
    fn parse(bytes: &[u8]) -> Self {
        let [low, high, ..] = word(bytes, 8).to_le_bytes();
        Self { next_free: word(bytes, 0), entries: u16::from_le_bytes([low, high]) }
    }
}

/// Calls `visit` with the place and the contents of each entry of the tree, and checks the tree and
/// the lists of free blocks.
///
/// # Errors
/// Corruption; the errors of `blocks`.
pub fn walk<B: QuotaBlocks>(
    blocks: &mut B,
    header: &QuotaHeader,
    mut visit: impl FnMut(EntryPlace, &QuotaEntry),
) -> Result<(), B::Error> {
    let mut seen = HashSet::new();
    let mut leaves = HashSet::new();
    // Blocks to read, with their level and the upper bytes of the ids below them.
    let mut rest = vec![(ROOT, 0, 0)];
    while let Some((block, level, prefix)) = rest.pop() {
        if !seen.insert(block) {
            return Err(wrong("reference", format!("block {block} is met twice")).into());
        }
        let references = blocks.read(block, |bytes| {
            let used = (0..256).map(|nth| (nth, word(bytes, index(nth) * 4)));
            used.filter(|(_, reference)| *reference != 0).collect::<Vec<(u32, u32)>>()
        })?;
        for &(_, reference) in &references {
            check_block(reference, header.blocks)?;
        }
        if level + 1 < DEPTH {
            // The last one is popped first.
            let below = |(index, reference)| (reference, level + 1, prefix << 8 | index);
            rest.extend(references.into_iter().rev().map(below));
            continue;
        }
        for (index, reference) in references {
            let prefix = prefix << 8 | index;
            let (place, entry) = entry_in(blocks, reference, prefix)?;
            leaves.insert(reference);
            visit(place, &entry);
        }
    }
    if let Some(block) = leaves.iter().find(|leaf| seen.contains(leaf)) {
        return Err(wrong("reference", format!("block {block} has references and entries")).into());
    }
    check_lists(blocks, header, seen, &leaves)
}

/// Checks that the lists end, and that no block of the tree is free.
fn check_lists<B: QuotaBlocks>(
    blocks: &mut B,
    header: &QuotaHeader,
    mut seen: HashSet<u32>,
    leaves: &HashSet<u32>,
) -> Result<(), B::Error> {
    let mut listed = HashSet::new();
    let mut next = header.free_entry;
    while next != 0 {
        check_block(next, header.blocks)?;
        if seen.contains(&next) || !listed.insert(next) {
            return Err(wrong("dqdh_next_free", format!("block {next} is met twice")).into());
        }
        next = blocks.read(next, |bytes| LeafHeader::parse(bytes).next_free)?;
    }
    seen.extend(leaves);
    seen.extend(listed);
    let mut next = header.free_block;
    while next != 0 {
        check_block(next, header.blocks)?;
        if !seen.insert(next) {
            return Err(wrong("dqi_free_blk", format!("block {next} is in use or met twice")).into());
        }
        next = blocks.read(next, |bytes| LeafHeader::parse(bytes).next_free)?;
    }
    Ok(())
}

/// Returns the entry of `id` in a block of entries.
fn entry_in<B: QuotaBlocks>(
    blocks: &mut B,
    block: u32,
    id: u32,
) -> Result<(EntryPlace, QuotaEntry), B::Error> {
    let found = blocks.read(block, |bytes| {
        entry_offsets().find_map(|offset| {
            let entry = QuotaEntry::parse(&bytes[offset..])?;
            (entry.id == id).then_some((EntryPlace { block, offset }, entry))
        })
    })?;
    found.ok_or_else(|| wrong("dqb_id", format!("block {block} does not have the entry of id {id}")).into())
}

/// Adds an entry of a new id. `blocks` must have [`MAX_ADDED`] more blocks than the file uses.
/// Changes `header` in memory; the caller writes it.
///
/// # Errors
/// Corruption; the errors of `blocks`. The file may then have changed in part.
pub fn insert<B: QuotaBlocks>(
    blocks: &mut B,
    header: &mut QuotaHeader,
    entry: &QuotaEntry,
) -> Result<EntryPlace, B::Error> {
    let mut parent = ROOT;
    for level in 0..DEPTH - 1 {
        let at = slot(entry.id, level);
        let mut child = blocks.read(parent, |bytes| word(bytes, at))?;
        if child == 0 {
            child = new_block(blocks, header)?;
            blocks.change(parent, |bytes| set_word(bytes, at, child))?;
        }
        check_block(child, header.blocks)?;
        parent = child;
    }
    let at = slot(entry.id, DEPTH - 1);
    let present = blocks.read(parent, |bytes| word(bytes, at))?;
    if present != 0 {
        return Err(wrong("reference", format!("id {} is present", entry.id)).into());
    }
    let place = new_entry(blocks, header, entry)?;
    blocks.change(parent, |bytes| set_word(bytes, at, place.block))?;
    Ok(place)
}

/// Returns a zeroed block from the list of free blocks, or else the one after the last.
fn new_block<B: QuotaBlocks>(blocks: &mut B, header: &mut QuotaHeader) -> Result<u32, B::Error> {
    let block = match header.free_block {
        0 => {
            let block = header.blocks;
            header.blocks = block.checked_add(1).ok_or_else(|| wrong("dqi_blocks", "no more".to_owned()))?;
            block
        }
        free => {
            check_block(free, header.blocks)?;
            header.free_block = blocks.read(free, |bytes| LeafHeader::parse(bytes).next_free)?;
            free
        }
    };
    blocks.change(block, |bytes| bytes.fill(0))?;
    Ok(block)
}

/// Writes an entry into a block that has a free one.
fn new_entry<B: QuotaBlocks>(
    blocks: &mut B,
    header: &mut QuotaHeader,
    entry: &QuotaEntry,
) -> Result<EntryPlace, B::Error> {
    if header.free_entry == 0 {
        header.free_entry = new_block(blocks, header)?;
    }
    let block = header.free_entry;
    check_block(block, header.blocks)?;
    let (leaf, free) = blocks.read(block, |bytes| {
        let mut free = entry_offsets().filter(|&offset| QuotaEntry::parse(&bytes[offset..]).is_none());
        (LeafHeader::parse(bytes), (free.next(), free.next().is_some()))
    })?;
    let (Some(offset), has_more) = free else {
        return Err(wrong("dqdh_entries", format!("block {block} has no free entry")).into());
    };
    if !has_more {
        header.free_entry = leaf.next_free;
        if leaf.next_free != 0 {
            check_block(leaf.next_free, header.blocks)?;
            blocks.change(leaf.next_free, |bytes| set_word(bytes, 4, 0))?;
        }
    }
    blocks.change(block, |bytes| {
        if !has_more {
            bytes[..8].fill(0);
        }
        bytes[8..10].copy_from_slice(&leaf.entries.saturating_add(1).to_le_bytes());
        entry.encode(&mut bytes[offset..]);
    })?;
    Ok(EntryPlace { block, offset })
}

/// A quota file in memory.
#[derive(Clone, Debug)]
pub struct QuotaFile(Vec<u8>);

impl QuotaFile {
    /// Returns a file of `kind` with these entries, whose ids differ.
    ///
    /// # Errors
    /// If an id appears twice.
    pub fn new(kind: super::QuotaKind, entries: &[QuotaEntry]) -> Result<Self> {
        let mut header = QuotaHeader::empty();
        let mut file = Self(vec![0; index(header.blocks) * QUOTA_BLOCK]);
        for entry in entries {
            insert(&mut file, &mut header, entry)?;
        }
        header.encode(&mut file.0, kind);
        Ok(file)
    }

    /// Returns the contents of the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl QuotaBlocks for QuotaFile {
    type Error = FormatError;

    fn read<R>(&mut self, block: u32, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let start = index(block) * QUOTA_BLOCK;
        let bytes = self.0.get(start..start + QUOTA_BLOCK);
        bytes.map(use_bytes).ok_or_else(|| wrong("reference", format!("block {block} is missing")))
    }

    fn change(&mut self, block: u32, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let start = index(block) * QUOTA_BLOCK;
        if self.0.len() < start + QUOTA_BLOCK {
            self.0.resize(start + QUOTA_BLOCK, 0);
        }
        change(&mut self.0[start..start + QUOTA_BLOCK]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::QuotaKind;
    use super::*;

    fn of(id: u32) -> QuotaEntry {
        QuotaEntry { id, inodes: u64::from(id) + 1, ..QuotaEntry::default() }
    }

    fn ids(file: &mut QuotaFile) -> Result<Vec<u32>> {
        let size = file.0.len() as u64;
        let header = file.read(0, |bytes| QuotaHeader::parse(bytes, QuotaKind::User, size))??;
        let mut ids = Vec::new();
        walk(file, &header, |_, entry| ids.push(entry.id))?;
        Ok(ids)
    }

    #[test]
    fn entries_are_found_by_their_ids() {
        let all: Vec<u32> = (0..40).chain([255, 256, 70_000, 1 << 24, u32::MAX]).collect();
        let entries: Vec<_> = all.iter().map(|&id| of(id)).collect();
        let mut file = QuotaFile::new(QuotaKind::User, &entries).unwrap();
        assert_eq!(ids(&mut file).unwrap(), all);
        assert!(QuotaFile::new(QuotaKind::User, &[of(1), of(1)]).is_err());
    }

    /// An insertion would otherwise change the references of the tree as free entries.
    #[test]
    fn a_block_of_references_has_no_entries() {
        let mut file = QuotaFile::new(QuotaKind::User, &[of(4)]).unwrap();
        // The last block of references, as the block of the entry of id 5. Its reference for id 4,
        // to block 5, is the id of that entry.
        let (last, id) = (4, 5_usize);
        assert_eq!(word(&file.0, last * QUOTA_BLOCK + LEAF_HEADER), 5);
        set_word(&mut file.0, last * QUOTA_BLOCK + id * 4, 4);
        assert!(ids(&mut file).unwrap_err().to_string().contains("references and entries"));
    }

    /// Every byte of a small file in turn gets other values: no walk and no insertion panics or
    /// runs on.
    #[test]
    fn any_bytes_lead_to_errors() {
        let entries: Vec<_> = (0..30).map(of).collect();
        let good = QuotaFile::new(QuotaKind::User, &entries).unwrap();
        let mut refused = 0;
        for at in 0..good.0.len() {
            for value in [1, 2, 5, 0xff] {
                let mut bad = good.clone();
                bad.0[at] = value;
                refused += u32::from(ids(&mut bad).is_err());
                let size = bad.0.len() as u64;
                let header = QuotaHeader::parse(&bad.0, QuotaKind::User, size);
                if let Ok(mut header) = header {
                    for id in [3, 99, 1 << 20] {
                        let _ = insert(&mut bad, &mut header, &of(id));
                    }
                }
            }
        }
        assert!(refused > 1000, "{refused}");
    }
}

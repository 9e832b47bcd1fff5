//! Collects the structures of a volume.

use std::collections::{BTreeMap, BTreeSet};

use parext4_format::InodeNo;
use parext4_format::quota::QuotaKind;
use parext4_format::superblock::Superblock;

use super::holder::Holder;
use super::seal::Seal;
use super::structure::{Class, Structure};

/// The most structures of a class that are kept.
const MOST: usize = 400;

/// The structures of a volume that were found.
pub struct Finder<'a> {
    /// The bytes of the volume.
    pub image: &'a [u8],
    /// Its superblock.
    pub superblock: &'a Superblock,
    /// The numbers of the inodes of quota files.
    pub quotas: Vec<u32>,
    /// The blocks of the journal in the volume, once its inode was found.
    pub journal: Vec<u64>,
    /// The blocks of the map of the journal, once its inode was found.
    pub journal_map: BTreeSet<u64>,
    found: BTreeMap<Class, Vec<Structure>>,
}

impl<'a> Finder<'a> {
    /// Returns a finder that has found nothing yet.
    pub fn new(image: &'a [u8], superblock: &'a Superblock) -> Self {
        let quota = |kind| superblock.quota_inode(kind).ok().flatten().map(InodeNo::get);
        let quotas = QuotaKind::ALL.into_iter().filter_map(quota).collect();
        let (journal, journal_map) = (Vec::new(), BTreeSet::new());
        Self { image, superblock, quotas, journal, journal_map, found: BTreeMap::new() }
    }

    /// Returns the blocks of the maps that were found so far.
    pub fn map_blocks(&self) -> BTreeSet<u64> {
        let maps = [Class::Extents, Class::Pointers].into_iter().filter_map(|class| self.found.get(&class));
        maps.flatten().map(|structure| structure.at / self.block_size() as u64).collect()
    }

    /// Returns the structures by class.
    pub fn finish(self) -> Vec<Vec<Structure>> {
        self.found.into_values().filter(|class| !class.is_empty()).collect()
    }

    /// Adds a structure, if it has fields.
    pub fn add(&mut self, class: Class, at: usize, len: usize, fields: Vec<(usize, usize)>, seal: Seal) {
        self.push(Structure { class, at: at as u64, len, fields, seal, holder: None });
    }

    /// Adds a structure of which another one has a checksum, if it has fields.
    pub fn add_held(
        &mut self,
        class: Class,
        (at, bytes): (usize, &[u8]),
        fields: Vec<(usize, usize)>,
        holder: Holder,
    ) {
        let (at, len, holder) = (at as u64, bytes.len(), Some(holder));
        self.push(Structure { class, at, len, fields, seal: Seal::None, holder });
    }

    /// Adds the copies in the block at `copy` of the structures found in the block at `home`.
    pub fn add_copies(&mut self, home: usize, copy: usize, holder: &Holder) {
        let (home, copy, end) = (home as u64, copy as u64, (home + self.block_size()) as u64);
        let all = self.found.values().flatten();
        let here = all.filter(|found| home <= found.at && found.at + found.len as u64 <= end);
        let copies: Vec<_> = here
            .map(|found| Structure {
                class: Class::Logged,
                at: copy + (found.at - home),
                holder: Some(holder.clone()),
                ..found.clone()
            })
            .collect();
        copies.into_iter().for_each(|copy| self.push(copy));
    }

    fn push(&mut self, mut structure: Structure) {
        structure.fields.retain(|(at, width)| at + width <= structure.len);
        let found = self.found.entry(structure.class).or_default();
        if !structure.fields.is_empty() && found.len() < MOST {
            found.push(structure);
        }
    }

    /// Returns the number of bytes of a block.
    pub fn block_size(&self) -> usize {
        self.superblock.block_size() as usize
    }

    /// Returns a block and its offset, if it is in the image.
    pub fn block(&self, block: u64) -> Option<(usize, &'a [u8])> {
        let at = usize::try_from(block).ok()?.checked_mul(self.block_size())?;
        Some((at, self.image.get(at..at + self.block_size())?))
    }
}

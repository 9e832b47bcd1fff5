//! Collects the structures of a volume.

use std::collections::BTreeMap;

use parext4_format::superblock::Superblock;

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
    found: BTreeMap<Class, Vec<Structure>>,
}

impl<'a> Finder<'a> {
    /// Returns a finder that has found nothing yet.
    pub fn new(image: &'a [u8], superblock: &'a Superblock) -> Self {
        Self { image, superblock, found: BTreeMap::new() }
    }

    /// Returns the structures by class.
    pub fn finish(self) -> Vec<Vec<Structure>> {
        self.found.into_values().collect()
    }

    /// Adds a structure, if it has fields.
    pub fn add(&mut self, class: Class, at: usize, len: usize, fields: Vec<(usize, usize)>, seal: Seal) {
        let fields: Vec<_> = fields.into_iter().filter(|(at, width)| at + width <= len).collect();
        if fields.is_empty() {
            return;
        }
        let found = self.found.entry(class).or_default();
        if found.len() < MOST {
            found.push(Structure { class, at: at as u64, len, fields, seal });
        }
    }

    /// Returns the bytes of a block.
    pub fn block_size(&self) -> usize {
        self.superblock.block_size() as usize
    }

    /// Returns a block and its offset, if it is in the image.
    pub fn block(&self, block: u64) -> Option<(usize, &'a [u8])> {
        let at = usize::try_from(block).ok()?.checked_mul(self.block_size())?;
        Some((at, self.image.get(at..at + self.block_size())?))
    }
}

//! A disk with a volatile cache.

use std::collections::BTreeSet;

/// Unit of the cache, bytes.
const BLOCK: usize = 512;

/// A disk whose writes are lost when it loses power, unless a flush has made them durable.
#[derive(Debug)]
pub struct VolatileDisk {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Blocks that differ, or may.
    dirty: BTreeSet<usize>,
}

impl VolatileDisk {
    /// Makes a disk of zeros. The size is in bytes.
    pub fn new(size: u64) -> Self {
        let zeros = vec![0; index(size)];
        Self { durable: zeros.clone(), current: zeros, dirty: BTreeSet::new() }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.current.len() as u64
    }

    /// Returns the bytes that a read finds, or `None` past the end.
    pub fn read(&self, offset: u64, len: u32) -> Option<&[u8]> {
        self.current.get(index(offset)..index(offset).checked_add(len as usize)?)
    }

    /// Writes to the cache. Returns `None` past the end.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Option<()> {
        let start = index(offset);
        self.current.get_mut(start..start.checked_add(bytes.len())?)?.copy_from_slice(bytes);
        self.dirty.extend(start / BLOCK..(start + bytes.len()).div_ceil(BLOCK));
        Some(())
    }

    /// Makes all writes durable.
    pub fn flush(&mut self) {
        for block in std::mem::take(&mut self.dirty) {
            let range = block * BLOCK..((block + 1) * BLOCK).min(self.current.len());
            self.durable[range.clone()].copy_from_slice(&self.current[range]);
        }
    }

    /// Loses the writes that are not durable.
    pub fn lose_power(&mut self) {
        for block in std::mem::take(&mut self.dirty) {
            let range = block * BLOCK..((block + 1) * BLOCK).min(self.current.len());
            self.current[range.clone()].copy_from_slice(&self.durable[range]);
        }
    }

    /// Returns the durable bytes.
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }
}

/// Returns an offset as an index into memory.
fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("disks of tests fit in memory")
}

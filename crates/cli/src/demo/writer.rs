//! The writes of one thread.

use std::path::PathBuf;

use anyhow::{Context, Result};
use parext4::DirectFile;
use parext4::device::AlignedBuf;

use super::BLOCK;
use super::pattern::Stamp;
use crate::interrupt;

/// Writes the blocks of one thread in one file, in random order. Each pass writes every block once.
pub struct Writer {
    /// Path of the file in the volume.
    pub path: PathBuf,
    /// Number of the writer in its stamps.
    number: u32,
    /// Block numbers in the order of this pass.
    order: Vec<u32>,
    /// Index in `order` of the next block.
    next: usize,
    /// Writes so far.
    sequence: u32,
    /// By index of the block: the stamp that must be on the disk.
    written: Vec<Stamp>,
    random: Random,
    /// The first block.
    first: u32,
    /// The distance to the next block.
    stride: u32,
}

impl Writer {
    /// Returns a writer for `count` blocks of the file: `first`, `first + stride`, and so on.
    pub fn new(path: PathBuf, number: u32, first: u32, stride: u32, count: u32) -> Self {
        let order = (0..count).map(|index| first + index * stride).collect();
        let written = Vec::with_capacity(count as usize);
        let random = Random(u64::from(number) + 1);
        let mut writer = Self { path, number, order, next: 0, sequence: 0, written, random, first, stride };
        writer.written.extend(writer.order.iter().map(|&block| Stamp { writer: number, block, sequence: 0 }));
        writer.random.shuffle(&mut writer.order);
        writer
    }

    /// Writes the next `count` blocks.
    pub fn write(&mut self, file: &DirectFile, count: usize) -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(BLOCK);
        for _ in 0..count {
            interrupt::check()?;
            if self.next == self.order.len() {
                self.random.shuffle(&mut self.order);
                self.next = 0;
            }
            let block = self.order[self.next];
            self.next += 1;
            self.sequence += 1;
            let stamp = Stamp { writer: self.number, block, sequence: self.sequence };
            stamp.fill(&mut buffer);
            file.write_all_at(&buffer, u64::from(block) * BLOCK as u64)
                .with_context(|| format!("writing block {block} of {}", self.path.display()))?;
            self.written[((block - self.first) / self.stride) as usize] = stamp;
        }
        Ok(())
    }

    /// Returns the stamps that must be on the disk, of the blocks written so far.
    pub fn written(&self) -> impl Iterator<Item = Stamp> {
        self.written.iter().copied().filter(|stamp| stamp.sequence > 0)
    }
}

/// Random numbers by Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 16) % bound as u64).unwrap_or(0)
    }

    /// Shuffles by the algorithm of Fisher and Yates.
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_keeps_all_and_moves_most() {
        let mut items: Vec<u32> = (0..1000).collect();
        Random(7).shuffle(&mut items);
        assert!(items.iter().zip(0..).filter(|(item, place)| **item == *place).count() < 20);
        items.sort_unstable();
        assert!(items.into_iter().eq(0..1000));
    }
}

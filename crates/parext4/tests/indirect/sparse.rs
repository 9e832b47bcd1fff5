//! The expected contents of a sparse file, by block, and random changes around the places where the
//! levels of indirect blocks begin.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use parext4::{DirectFile, Error};
use testkit::rng::Rng;

/// Longest change in blocks.
const LONGEST: u64 = 40;

/// The file blocks that hold data, each full of one byte, and the size in blocks.
#[derive(Clone, Debug)]
pub struct Sparse {
    pub block: u64,
    pub written: BTreeMap<u64, u8>,
    pub blocks: u64,
}

/// Changes a file.
pub trait Target {
    fn write(&self, bytes: &[u8], offset: u64);
    fn punch(&self, offset: u64, len: u64);
    fn set_len(&self, size: u64);
}

impl Target for DirectFile {
    fn write(&self, bytes: &[u8], offset: u64) {
        self.write_all_at(bytes, offset).expect("write_at");
    }

    fn punch(&self, offset: u64, len: u64) {
        self.punch_hole(offset..offset + len).expect("punch_hole");
    }

    fn set_len(&self, size: u64) {
        DirectFile::set_len(self, size).expect("set_len");
    }
}

/// A file of the kernel.
pub struct KernelFile<'a>(pub &'a File, pub &'a std::path::Path);

impl Target for KernelFile<'_> {
    fn write(&self, bytes: &[u8], offset: u64) {
        self.0.write_all_at(bytes, offset).expect("write");
    }

    fn punch(&self, offset: u64, len: u64) {
        let mut command = std::process::Command::new("fallocate");
        let args = ["-p".to_owned(), "-o".to_owned(), offset.to_string(), "-l".to_owned(), len.to_string()];
        assert!(command.args(args).arg(self.1).status().expect("fallocate").success());
    }

    fn set_len(&self, size: u64) {
        self.0.set_len(size).expect("set_len");
    }
}

impl Sparse {
    pub fn new(block: u64) -> Self {
        Self { block, written: BTreeMap::new(), blocks: 0 }
    }

    /// Returns a block near the start of a level, or of a leaf.
    fn place(&self, rng: &mut Rng) -> u64 {
        let pointers = self.block / 4;
        let levels = [0, 12, 12 + pointers, 12 + pointers + pointers * pointers];
        let start = levels[usize::try_from(rng.below(4)).unwrap()];
        let leaf = if start > 12 { rng.below(3) * pointers } else { 0 };
        (start + leaf + rng.below(LONGEST)).saturating_sub(LONGEST / 2)
    }

    /// Makes a random change of the file and of the model.
    pub fn change(&mut self, rng: &mut Rng, file: &impl Target) {
        let (first, len) = (self.place(rng), 1 + rng.below(LONGEST));
        match rng.below(10) {
            0..6 => {
                let byte = 1 + u8::try_from(rng.below(255)).unwrap();
                file.write(&vec![byte; usize::try_from(len * self.block).unwrap()], first * self.block);
                self.written.extend((first..first + len).map(|block| (block, byte)));
                self.blocks = self.blocks.max(first + len);
            }
            6..9 => {
                let len = if rng.chance(20) { len * self.block } else { len };
                file.punch(first * self.block, len * self.block);
                self.written.retain(|block, _| !(first..first + len).contains(block));
            }
            _ => {
                file.set_len(first * self.block);
                self.blocks = first;
                self.written.retain(|&block, _| block < first);
            }
        }
    }

    /// Returns the blocks with data and their neighbours, in the file.
    fn interesting(&self) -> impl Iterator<Item = u64> + '_ {
        let near = |&block: &u64| [block.saturating_sub(1), block, block + 1];
        self.written.keys().flat_map(near).filter(|&block| block < self.blocks)
    }

    /// Checks the contents through `read`, which fills a buffer from an offset.
    pub fn check(&self, what: &str, mut read: impl FnMut(&mut [u8], u64)) {
        let mut bytes = vec![0xee; usize::try_from(self.block).unwrap()];
        for block in self.interesting() {
            read(&mut bytes, block * self.block);
            let wanted = self.written.get(&block).copied().unwrap_or(0);
            let differs = bytes.iter().find(|&&byte| byte != wanted);
            assert_eq!(differs, None, "{what}: block {block} is not full of {wanted}");
        }
    }

    /// Checks the size, the contents, and where data and holes are.
    pub fn check_file(&self, what: &str, file: &DirectFile) {
        assert_eq!(file.size(), self.blocks * self.block, "{what}: size");
        self.check(what, |bytes, offset| file.read_exact_at(bytes, offset).expect("read"));
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &block in self.written.keys() {
            match ranges.last_mut() {
                Some(last) if last.1 == block => last.1 = block + 1,
                _ => ranges.push((block, block + 1)),
            }
        }
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(data) = file.data_range(at).expect("data_range") {
            found.push((data.start / self.block, data.end / self.block));
            at = data.end;
        }
        assert_eq!(found, ranges, "{what}: data");
        let mapped: u64 = file.fiemap(0..u64::MAX).expect("fiemap").iter().map(|extent| extent.len).sum();
        assert_eq!(mapped, self.written.len() as u64 * self.block, "{what}: fiemap");
        let after = file.seek_data(self.blocks * self.block);
        assert!(matches!(after, Err(Error::NothingAfter(_))), "{what}: {after:?}");
    }
}

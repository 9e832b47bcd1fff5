//! A file mapped into memory.

#![allow(unsafe_code, reason = "the memory is mapped, and other processes change it")]

use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};

const PAGE: usize = 4096;

/// A shared mapping of the first bytes of a file.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to no thread, and is read and written by atomic operations only.
unsafe impl Send for Mapping {}

// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes, which must be more than 0. The file may be shorter.
    pub fn new(file: &File, len: usize, writable: bool) -> Result<Self, Errno> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0)? };
        Ok(Self { start: NonNull::new(start.cast()).expect("nothing is mapped at 0"), len })
    }

    /// Faults pages in as a read or a write would, but returns an error where an access would raise
    /// a signal: past the end of the file, or without space.
    fn populate(&self, offset: usize, len: usize, writes: bool) -> Result<(), Errno> {
        let first = offset / PAGE * PAGE;
        let end = (offset + len).min(self.len);
        let advice = if writes { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        // SAFETY: the range lies in the mapping, and the advice leaves its contents as they are.
        unsafe { madvise(self.start.as_ptr().add(first).cast(), end - first, advice) }
    }

    fn bytes(&self, offset: usize, len: usize) -> &[AtomicU8] {
        assert!(offset <= self.len && len <= self.len - offset, "past the end of the mapping");
        // SAFETY: the range lies in the mapping, which is aligned for bytes and lives as long as
        // `self`. All code of this process accesses it by atomic operations.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset).cast(), len) }
    }

    /// Returns the words of a mapping of a file that is not cut.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the range is the mapping, which is aligned for words, because it begins at a
        // page, and lives as long as `self`. All code accesses it by atomic operations.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len / size_of::<AtomicU64>()) }
    }

    /// Reads bytes. Returns `EFAULT` where a plain access would raise a signal: past the end of the
    /// file.
    pub fn read(&self, offset: usize, len: usize) -> Result<Vec<u8>, Errno> {
        self.populate(offset, len, false)?;
        Ok(self.bytes(offset, len).iter().map(|byte| byte.load(Ordering::Relaxed)).collect())
    }

    /// Writes bytes. Returns `EFAULT` where a plain access would raise a signal: past the end of
    /// the file, or without space.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Errno> {
        self.populate(offset, data.len(), true)?;
        for (to, &byte) in self.bytes(offset, data.len()).iter().zip(data) {
            to.store(byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes dirty pages back, and waits until that is done.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the range is the mapping, and msync(2) does not change its contents.
        unsafe { msync(self.start.as_ptr().cast(), self.len, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference to it is left.
        unsafe { munmap(self.start.as_ptr().cast(), self.len) }.expect("it is mapped");
    }
}

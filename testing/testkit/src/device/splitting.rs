//! Hooks for a device without atomicity: they split requests into pieces, in random order, with
//! other requests between them.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};

use parext4::Device;

use super::Hooks;
use crate::rng::Rng;

/// Splits each read and write at sectors. Tests then see every request that the engine's locks do
/// not make atomic.
#[derive(Debug)]
pub struct SplitRequests {
    seed: u64,
    calls: AtomicU64,
}

impl SplitRequests {
    /// Returns hooks that split requests by random choices from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { seed, calls: AtomicU64::new(0) }
    }

    /// Calls `part` for the pieces of `[0, len)` in random order, cut at multiples of `sector`, and
    /// yields between them.
    fn split(
        &self,
        sector: usize,
        len: usize,
        mut part: impl FnMut(usize, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut rng = Rng::new(self.seed, self.calls.fetch_add(1, Ordering::Relaxed));
        let mut pieces = Vec::new();
        let mut start = 0;
        let largest = (len / sector / 4).max(1) as u64;
        while start < len {
            let end = len.min(start + usize::try_from(rng.log_uniform(largest)).unwrap() * sector);
            pieces.push((start, end));
            start = end;
        }
        if rng.chance(50) {
            pieces.reverse();
        }
        for (start, end) in pieces {
            part(start, end)?;
            if rng.chance(30) {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

impl Hooks for SplitRequests {
    fn read_at(&self, inner: &dyn Device, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut bytes = vec![0; bufs.iter().map(|buf| buf.len()).sum()];
        self.split(inner.sector_size() as usize, bytes.len(), |start, end| {
            inner.read_at(offset + start as u64, &mut [IoSliceMut::new(&mut bytes[start..end])])
        })?;
        let mut rest = &bytes[..];
        for buf in bufs {
            let (head, tail) = rest.split_at(buf.len());
            buf.copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    fn write_at(&self, inner: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.split(inner.sector_size() as usize, bytes.len(), |start, end| {
            inner.write_at(offset + start as u64, &[IoSlice::new(&bytes[start..end])])
        })
    }
}

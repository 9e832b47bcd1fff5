//! [`MemDevice`]: a two-level table of chunks, and the calls on it.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

// once_cell's memory orders are visible to ThreadSanitizer, unlike those inside
// `std::sync::OnceLock`.
use once_cell::sync::OnceCell;
use parking_lot::RwLock;

use super::chunk::{CHUNK, ChunkRange, LEAF, LEAF_BYTES, Slot, chunk_ranges, writable};
use crate::aligned::zeros;
use crate::check;
use crate::device::Device;
use crate::inline_queue::InlineQueue;
use crate::iovec::{Gather, Scatter};
use crate::pool::BufferPool;
use crate::queue::Queue;

/// A device in memory. The first write to each 64 KiB chunk allocates it.
///
/// Reads and writes are atomic within each chunk, and so for each sector. The device has no cache:
/// `flush` does nothing. Its native queue is an [`InlineQueue`].
pub struct MemDevice {
    size: u64,
    sector_size: u32,
    leaves: Vec<OnceCell<Box<[Slot]>>>,
}

impl MemDevice {
    /// Makes a device of `size` zero bytes, rounded down to a multiple of 512, with sectors of 512
    /// bytes.
    pub fn new(size: u64) -> Self {
        let leaves = usize::try_from(size.div_ceil(LEAF_BYTES)).expect("a volume's table fits in memory");
        let leaves = std::iter::repeat_with(OnceCell::new).take(leaves).collect();
        Self { size: size - size % 512, sector_size: 512, leaves }
    }

    /// Sets the sector size to `bytes`, and rounds the size down to a multiple of it.
    ///
    /// # Panics
    /// If `bytes` is less than 512 or not a power of two.
    #[must_use]
    pub fn with_sector_size(mut self, bytes: u32) -> Self {
        assert!(bytes >= 512 && bytes.is_power_of_two(), "MemDevice: sector size {bytes}");
        self.sector_size = bytes;
        self.size -= self.size % u64::from(bytes);
        self
    }

    /// Makes a device with these contents. A tail shorter than a sector of 512 bytes is cut off.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let device = Self::new(bytes.len() as u64);
        for (index, chunk) in bytes[..device.size as usize].chunks(CHUNK).enumerate() {
            device.put_unless_zero((index * CHUNK) as u64, chunk);
        }
        device
    }

    /// Makes a copy of another device: contents, size and sector size.
    ///
    /// # Errors
    /// The error of a read of the other device.
    pub fn copy_of(device: &dyn Device) -> io::Result<Self> {
        let copy = Self::new(device.size()).with_sector_size(device.sector_size());
        let mut buf = BufferPool::global().take(CHUNK);
        for range in chunk_ranges(0, copy.size) {
            let offset = range.leaf as u64 * LEAF_BYTES + (range.slot * CHUNK) as u64;
            let chunk = &mut buf[..range.len];
            device.read_at(offset, &mut [IoSliceMut::new(chunk)])?;
            copy.put_unless_zero(offset, chunk);
        }
        Ok(copy)
    }

    /// Makes a device with the same contents, which shares each chunk until one of the two writes
    /// to it.
    ///
    /// For each chunk a concurrent write may be in the fork or not. The same holds for
    /// [`snapshot`](Self::snapshot) and [`save`](Self::save).
    #[must_use]
    pub fn fork(&self) -> Self {
        let leaves = self.leaves.iter().map(|leaf| match leaf.get() {
            Some(slots) => OnceCell::with_value(
                slots.iter().map(|slot| RwLock::new(slot.read().clone())).collect::<Box<[Slot]>>(),
            ),
            None => OnceCell::new(),
        });
        Self { size: self.size, sector_size: self.sector_size, leaves: leaves.collect() }
    }

    /// Returns a copy of the contents, `size` bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let size = usize::try_from(self.size).expect("a snapshot fits in memory");
        let mut out = vec![0; size];
        self.for_each_chunk(|offset, chunk| {
            let start = offset as usize; // Below `size`, which fits.
            out[start..start + chunk.len()].copy_from_slice(chunk);
            Ok(())
        })
        .expect("copying in memory cannot fail");
        out
    }

    /// Writes the contents to a new or truncated file, with a hole for each chunk that was never
    /// written.
    ///
    /// # Errors
    /// The errors of creating and of writing the file.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        self.for_each_chunk(|offset, chunk| file.write_all_at(chunk, offset))
    }

    /// Returns the number of bytes in allocated chunks, shared chunks included.
    pub fn allocated_bytes(&self) -> u64 {
        let slots = self.leaves.iter().filter_map(OnceCell::get).flat_map(|leaf| leaf.iter());
        slots.filter(|slot| slot.read().is_some()).count() as u64 * CHUNK as u64
    }

    /// Calls `visit` with the offset in bytes and the contents of each allocated chunk.
    fn for_each_chunk(&self, mut visit: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        for range in chunk_ranges(0, self.size) {
            let chunk = self.slot(&range).and_then(|slot| slot.read().clone());
            if let Some(chunk) = chunk {
                let offset = range.leaf as u64 * LEAF_BYTES + (range.slot * CHUNK) as u64;
                visit(offset, &chunk[..range.len])?;
            }
        }
        Ok(())
    }

    /// Copies `bytes` to the chunk at `offset`, which must be a hole. If they are zeros, the chunk
    /// stays a hole.
    fn put_unless_zero(&self, offset: u64, bytes: &[u8]) {
        if *bytes != zeros()[..bytes.len()] {
            let range = ChunkRange::at(offset, bytes.len() as u64);
            let mut slot = self.slot_or_new(&range).write();
            writable(&mut slot)[..bytes.len()].copy_from_slice(bytes);
        }
    }

    fn slot(&self, range: &ChunkRange) -> Option<&Slot> {
        Some(&self.leaves[range.leaf].get()?[range.slot])
    }

    fn slot_or_new(&self, range: &ChunkRange) -> &Slot {
        let leaf = self.leaves[range.leaf]
            .get_or_init(|| std::iter::repeat_with(|| RwLock::new(None)).take(LEAF).collect());
        &leaf[range.slot]
    }
}

impl Device for MemDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = check::read(self, offset, bufs)?;
        let mut out = Scatter::new(bufs);
        for range in chunk_ranges(offset, len) {
            let chunk = self.slot(&range).map(|slot| slot.read());
            match chunk.as_deref() {
                Some(Some(bytes)) => out.copy_from(&bytes[range.start..range.end()]),
                _ => out.copy_from(&zeros()[..range.len]),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = check::write(self, offset, bufs)?;
        let mut source = Gather::new(bufs);
        for range in chunk_ranges(offset, len) {
            let mut slot = self.slot_or_new(&range).write();
            source.copy_to(&mut writable(&mut slot)[range.start..range.end()]);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check::change_range(self, offset, len)?;
        for range in chunk_ranges(offset, len) {
            let Some(slot) = self.slot(&range) else { continue };
            let mut slot = slot.write();
            if range.len == CHUNK {
                *slot = None;
            } else if slot.is_some() {
                writable(&mut slot)[range.start..range.end()].fill(0);
            }
        }
        Ok(())
    }

    fn native_queue(self: Arc<Self>, _depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        Ok(Some(Box::new(InlineQueue::new(self))))
    }
}

impl fmt::Debug for MemDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemDevice")
            .field("size", &self.size)
            .field("sector_size", &self.sector_size)
            .finish_non_exhaustive()
    }
}

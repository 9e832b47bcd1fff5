//! A sparse volume in memory.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::aligned::zeros;
use crate::check;
use crate::device::Device;
use crate::inline_queue::InlineQueue;
use crate::iovec::{Gather, Scatter};
use crate::pool::BufferPool;
use crate::queue::Queue;

/// Bytes that are allocated, locked and copied on write together.
const CHUNK: usize = 64 << 10;
/// Chunks in one leaf of the table; leaves appear on first write, so a huge empty volume is cheap.
const LEAF: usize = 1024;
const LEAF_BYTES: u64 = (CHUNK * LEAF) as u64;

/// A chunk never written, or discarded, is a hole and reads as zeros. Forks share chunks until one writes.
type Slot = RwLock<Option<Arc<[u8]>>>;

/// A volume in memory; memory is taken 64 KiB at a time, at the first write.
///
/// Reads and writes are atomic within each 64 KiB chunk, so also for each sector. There is no cache: a write is
/// as durable when it returns as it will ever be.
pub struct MemDevice {
    size: u64,
    sector_size: u32,
    leaves: Vec<OnceLock<Box<[Slot]>>>,
}

/// The part of a request that lies in one chunk.
struct Piece {
    leaf: usize,
    slot: usize,
    start: usize,
    len: usize,
}

impl Piece {
    fn at(offset: u64, left: u64) -> Self {
        // The remainders are below LEAF_BYTES; the quotient indexes `leaves`.
        let in_leaf = (offset % LEAF_BYTES) as usize;
        let start = in_leaf % CHUNK;
        let len = (CHUNK - start).min(usize::try_from(left).unwrap_or(usize::MAX));
        Self { leaf: (offset / LEAF_BYTES) as usize, slot: in_leaf / CHUNK, start, len }
    }

    fn end(&self) -> usize {
        self.start + self.len
    }
}

fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let end = offset + len;
    let mut next = offset;
    std::iter::from_fn(move || {
        (next < end).then(|| {
            let piece = Piece::at(next, end - next);
            next += piece.len as u64;
            piece
        })
    })
}

impl MemDevice {
    /// An all-zero volume of `size` bytes, rounded down to 512, with 512-byte sectors.
    pub fn new(size: u64) -> Self {
        let leaves = usize::try_from(size.div_ceil(LEAF_BYTES)).expect("a volume's table fits in memory");
        let leaves = std::iter::repeat_with(OnceLock::new).take(leaves).collect();
        Self { size: size - size % 512, sector_size: 512, leaves }
    }

    /// The same volume with sectors of `bytes`, a power of two of 512 or more; rounds the size down to it.
    ///
    /// # Panics
    /// If `bytes` is not such a power.
    pub fn with_sector_size(mut self, bytes: u32) -> Self {
        assert!(bytes >= 512 && bytes.is_power_of_two(), "MemDevice: sector size {bytes}");
        self.sector_size = bytes;
        self.size -= self.size % u64::from(bytes);
        self
    }

    /// A volume with these contents; a tail shorter than a sector is cut off.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let device = Self::new(bytes.len() as u64);
        for (index, chunk) in bytes[..device.size as usize].chunks(CHUNK).enumerate() {
            device.put_unless_zero((index * CHUNK) as u64, chunk);
        }
        device
    }

    /// A copy of another device's contents.
    pub fn copy_of(device: &dyn Device) -> io::Result<Self> {
        let copy = Self::new(device.size()).with_sector_size(device.sector_size());
        let mut buf = BufferPool::global().take(CHUNK);
        for piece in pieces(0, copy.size) {
            let offset = piece.leaf as u64 * LEAF_BYTES + (piece.slot * CHUNK) as u64;
            let chunk = &mut buf[..piece.len];
            device.read_at(offset, &mut [IoSliceMut::new(chunk)])?;
            copy.put_unless_zero(offset, chunk);
        }
        Ok(copy)
    }

    /// A second volume with the same contents, cheap: memory is shared until either writes.
    ///
    /// Writes that run meanwhile may be in it or not, each chunk on its own; so too in
    /// [`snapshot`](Self::snapshot) and [`save`](Self::save).
    pub fn fork(&self) -> Self {
        let leaves = self.leaves.iter().map(|leaf| match leaf.get() {
            Some(slots) => OnceLock::from(
                slots.iter().map(|slot| RwLock::new(slot.read().clone())).collect::<Box<[Slot]>>(),
            ),
            None => OnceLock::new(),
        });
        Self { size: self.size, sector_size: self.sector_size, leaves: leaves.collect() }
    }

    /// The contents, `size` bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let size = usize::try_from(self.size).expect("a snapshot fits in memory");
        let mut out = vec![0; size];
        self.for_each_chunk(|offset, chunk| {
            let start = offset as usize; // below `size`
            out[start..start + chunk.len()].copy_from_slice(chunk);
            Ok(())
        })
        .expect("copying in memory cannot fail");
        out
    }

    /// Writes the contents to a new or truncated file, leaving holes where nothing was written.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        self.for_each_chunk(|offset, chunk| file.write_all_at(chunk, offset))
    }

    /// Bytes of memory that hold contents, shared ones included.
    pub fn allocated_bytes(&self) -> u64 {
        let slots = self.leaves.iter().filter_map(OnceLock::get).flat_map(|leaf| leaf.iter());
        slots.filter(|slot| slot.read().is_some()).count() as u64 * CHUNK as u64
    }

    fn for_each_chunk(&self, mut visit: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        for piece in pieces(0, self.size) {
            let chunk = self.slot(&piece).and_then(|slot| slot.read().clone());
            if let Some(chunk) = chunk {
                let offset = piece.leaf as u64 * LEAF_BYTES + (piece.slot * CHUNK) as u64;
                visit(offset, &chunk[..piece.len])?;
            }
        }
        Ok(())
    }

    /// Sets the chunk at `offset` of a device that nobody else uses yet.
    fn put_unless_zero(&self, offset: u64, bytes: &[u8]) {
        if *bytes != zeros()[..bytes.len()] {
            let piece = Piece::at(offset, bytes.len() as u64);
            let mut slot = self.slot_or_new(&piece).write();
            own(&mut slot)[..bytes.len()].copy_from_slice(bytes);
        }
    }

    fn slot(&self, piece: &Piece) -> Option<&Slot> {
        Some(&self.leaves[piece.leaf].get()?[piece.slot])
    }

    fn slot_or_new(&self, piece: &Piece) -> &Slot {
        let leaf = self.leaves[piece.leaf]
            .get_or_init(|| std::iter::repeat_with(|| RwLock::new(None)).take(LEAF).collect());
        &leaf[piece.slot]
    }
}

/// The chunk's bytes, allocated if it was a hole and copied if a fork shares them.
fn own(slot: &mut Option<Arc<[u8]>>) -> &mut [u8] {
    const { assert!(CHUNK == 64 << 10, "zeros() is one chunk") };
    Arc::make_mut(slot.get_or_insert_with(|| Arc::from(zeros())))
}

impl Device for MemDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = check::read(self, offset, bufs)?;
        let mut out = Scatter::new(bufs);
        for piece in pieces(offset, len) {
            let chunk = self.slot(&piece).map(|slot| slot.read());
            match chunk.as_deref() {
                Some(Some(bytes)) => out.copy_from(&bytes[piece.start..piece.end()]),
                _ => out.copy_from(&zeros()[..piece.len]),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = check::write(self, offset, bufs)?;
        let mut source = Gather::new(bufs);
        for piece in pieces(offset, len) {
            let mut slot = self.slot_or_new(&piece).write();
            source.copy_to(&mut own(&mut slot)[piece.start..piece.end()]);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check::change_range(self, offset, len)?;
        for piece in pieces(offset, len) {
            let Some(slot) = self.slot(&piece) else { continue };
            let mut slot = slot.write();
            if piece.len == CHUNK {
                *slot = None;
            } else if slot.is_some() {
                own(&mut slot)[piece.start..piece.end()].fill(0);
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

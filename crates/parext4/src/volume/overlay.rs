//! Devices that have changed blocks, over a device that stays as it is: a volume after a replay,
//! for a volume that must not be written, and a volume for a computation.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};

use parext4_device::{AlignedBuf, Device, forward_device};
use parext4_format::FsBlock;

use crate::convert::to_usize;
use crate::journal::LogIndex;
use crate::sync::{Arc, Mutex, Rank};

/// Contents of blocks of the volume.
pub(super) type Blocks = HashMap<u64, Arc<AlignedBuf>>;

/// Where changed contents of blocks are found.
pub(super) trait Changed: Send + Sync + std::fmt::Debug {
    /// Returns the contents of a block of the volume, or `None` if it has not changed.
    fn contents(&self, block: u64) -> io::Result<Option<Arc<AlignedBuf>>>;
}

impl Changed for Blocks {
    fn contents(&self, block: u64) -> io::Result<Option<Arc<AlignedBuf>>> {
        Ok(self.get(&block).cloned())
    }
}

impl Changed for LogIndex {
    fn contents(&self, block: u64) -> io::Result<Option<Arc<AlignedBuf>>> {
        Ok(self.read(FsBlock(block))?)
    }
}

/// A read-only device that returns changed blocks in place of its own.
#[derive(Debug)]
pub(super) struct OverlayDevice<C> {
    inner: Arc<dyn Device>,
    block_size: u32,
    changed: C,
}

impl<C: Changed> OverlayDevice<C> {
    pub(super) fn new(inner: Arc<dyn Device>, block_size: u32, changed: C) -> Self {
        Self { inner, block_size, changed }
    }
}

impl<C: Changed> Device for OverlayDevice<C> {
    forward_device!(this => this.inner; size, sector_size, network);

    fn read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.inner.read_at(offset, bufs)?;
        patch(&self.changed, self.block_size, offset, bufs)
    }

    fn write_at(&self, _: u64, _: &[IoSlice<'_>]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// A device that keeps whole blocks that are written, up to a limit.
#[derive(Debug)]
pub(super) struct ScratchDevice {
    inner: Arc<dyn Device>,
    block_size: u32,
    state: Mutex<Scratch>,
}

#[derive(Debug)]
struct Scratch {
    blocks: Blocks,
    /// The most blocks to keep. `None`: writes have no effect any more.
    limit: Option<u32>,
}

impl ScratchDevice {
    pub(super) fn new(inner: Arc<dyn Device>, block_size: u32, limit: u32) -> Self {
        let scratch = Scratch { blocks: Blocks::new(), limit: Some(limit) };
        Self { inner, block_size, state: Mutex::new(Rank::Leaf, scratch) }
    }

    /// Returns the blocks that were written. Later writes have no effect.
    pub(super) fn take(&self) -> Blocks {
        let mut state = self.state.lock();
        state.limit = None;
        state.blocks.clone()
    }
}

impl Device for ScratchDevice {
    forward_device!(this => this.inner; size, sector_size, network);

    fn read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.inner.read_at(offset, bufs)?;
        patch(&self.state.lock().blocks, self.block_size, offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes = bufs.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<u8>>();
        let block_size = to_usize(self.block_size.into());
        if !offset.is_multiple_of(self.block_size.into()) || !bytes.len().is_multiple_of(block_size) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut state = self.state.lock();
        let Some(limit) = state.limit else { return Ok(()) };
        for (number, block) in (offset / u64::from(self.block_size)..).zip(bytes.chunks(block_size)) {
            state.blocks.insert(number, Arc::new(AlignedBuf::from_slice(block)));
            if state.blocks.len() > to_usize(limit.into()) {
                return Err(io::Error::other(format!("more than {limit} blocks change; run e2fsck")));
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Replaces the parts of a read from `offset` on that have changed.
fn patch(
    changed: &impl Changed,
    block_size: u32,
    offset: u64,
    bufs: &mut [IoSliceMut<'_>],
) -> io::Result<()> {
    let block_size = u64::from(block_size);
    let mut at = offset;
    for buf in bufs {
        let mut rest = &mut buf[..];
        while !rest.is_empty() {
            let skip = at % block_size;
            let here = to_usize(block_size - skip).min(rest.len());
            let (now, later) = rest.split_at_mut(here);
            if let Some(block) = changed.contents(at / block_size)? {
                let skip = to_usize(skip);
                now.copy_from_slice(&block[skip..skip + here]);
            }
            rest = later;
            at += here as u64;
        }
    }
    Ok(())
}

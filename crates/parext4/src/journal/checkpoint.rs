//! Checkpoint: bringing committed blocks to their homes, so that the log can be reused.

use std::collections::BTreeMap;
use std::io::IoSlice;

use parext4_device::Device;

use super::transaction::{Freed, FrozenBlock};
use crate::error::{Error, Result};

/// At most this many blocks in one write.
const RUN: usize = 256;

/// The newest committed version of every block that is not at home yet.
#[derive(Debug, Default)]
pub(super) struct Pending(BTreeMap<u64, FrozenBlock>);

impl Pending {
    pub(super) fn add(&mut self, blocks: Vec<FrozenBlock>) {
        for frozen in blocks {
            self.0.insert(frozen.block.number().get(), frozen);
        }
    }

    /// Drops blocks that a durable transaction has freed: their next owner may write them at once (H13).
    pub(super) fn drop_freed(&mut self, freed: &[Freed]) {
        for freed in freed {
            let start = freed.start.get();
            let gone: Vec<u64> =
                self.0.range(start..start + u64::from(freed.len)).map(|(&number, _)| number).collect();
            for number in gone {
                self.0.remove(&number);
            }
        }
    }

    /// Writes every block to its home and flushes.
    pub(super) fn write_home(&mut self, device: &dyn Device, block_size: u32) -> Result<()> {
        let blocks: Vec<&FrozenBlock> = self.0.values().collect();
        write_sorted(device, block_size, &blocks)?;
        device.flush().map_err(|e| Error::device("flushing the device", e))?;
        self.0.clear();
        Ok(())
    }
}

/// Writes blocks that are sorted by number, neighbours together.
fn write_sorted(device: &dyn Device, block_size: u32, blocks: &[&FrozenBlock]) -> Result<()> {
    let follows = |a: &&FrozenBlock, b: &&FrozenBlock| a.block.number().get() + 1 == b.block.number().get();
    for run in blocks.chunk_by(follows).flat_map(|run| run.chunks(RUN)) {
        let first = run[0].block.number();
        let slices: Vec<IoSlice<'_>> = run.iter().map(|frozen| IoSlice::new(&frozen.bytes)).collect();
        device
            .write_at(first.get() * u64::from(block_size), &slices)
            .map_err(|e| Error::device(format_args!("writing metadata block {first}"), e))?;
    }
    Ok(())
}

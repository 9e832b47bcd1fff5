//! Gathers the facts of a file on which a plan depends.

use rangelock::ByteRange;

use super::{Admission, Blocks, FileState, plan};
use crate::error::Result;
use crate::inode_ref::InodeRef;
use crate::mapping::{BlockState, Mapping, Runs};
use crate::operation::Operation;
use crate::policy::Policy;

/// The facts on which a plan depends, and the mapping of the blocks of a write.
#[derive(Debug)]
pub(crate) struct Facts {
    pub state: FileState,
    /// The mapping of the blocks of a write; empty for every other operation.
    pub runs: Runs,
}

impl InodeRef {
    /// Plans `operation` before it holds its range. The facts may change until then.
    pub(crate) fn tentative_plan(&self, operation: Operation) -> Result<Admission> {
        let (policy, engine) = (self.engine.policy(), &self.engine);
        // A write of whole blocks needs the same range whatever the mapping of its blocks. Only the
        // reason depends on the mapping, which explanations of waits report.
        let whole_blocks = |offset: u64, end: u64| (offset | end).is_multiple_of(engine.block_size());
        if let Some((offset, end)) = operation.written()
            && policy == Policy::Range
            && whole_blocks(offset, end)
            && !engine.usage().explains()
        {
            return Ok(plan(operation, &self.state(Blocks::UNMAPPED), policy));
        }
        Ok(plan(operation, &self.facts(operation)?.state, policy))
    }

    /// Returns the facts of the file that the plan of `operation` depends on.
    pub(crate) fn facts(&self, operation: Operation) -> Result<Facts> {
        let Some((offset, end)) = operation.written() else {
            return Ok(Facts { state: self.state(Blocks::UNMAPPED), runs: Runs::new() });
        };
        let block_size = self.engine.block_size();
        let covered = (offset.is_multiple_of(block_size), end.is_multiple_of(block_size));
        let runs = self.runs(self.blocks_of(ByteRange::new(offset, end)))?;
        Ok(Facts { state: self.state(Blocks::of(&runs, covered)), runs })
    }

    pub(crate) fn state(&self, blocks: Blocks) -> FileState {
        let (size, block_size) = (self.inode.size(), self.engine.block_size());
        FileState {
            size,
            block_size,
            page_size: self.engine.page_size().bytes() as u64,
            cluster_size: self.engine.layout().cluster_bytes(),
            blocks,
            tail_clean: self.inode.is_tail_clean(),
            cached: self.inode.cached().is_some(),
        }
    }
}

impl Blocks {
    /// The value for operations whose range does not depend on the mapping of blocks.
    pub(crate) const UNMAPPED: Self =
        Self { all_written: false, edges_written: false, holes: false, one_extent: false };

    /// Summarises the blocks that `runs` map. `covered` is whether the request covers all of the
    /// first block, and all of the last.
    fn of(runs: &[Mapping], covered: (bool, bool)) -> Self {
        let is_written = |run: &Mapping| matches!(run.state, BlockState::Written(_));
        Self {
            all_written: runs.iter().all(is_written),
            edges_written: (covered.0 || runs.first().is_some_and(is_written))
                && (covered.1 || runs.last().is_some_and(is_written)),
            holes: runs.iter().any(Mapping::is_hole),
            one_extent: runs.len() == 1,
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use rangelock::Mode;

    use crate::operation::Reason;
    use crate::sync::Arc;
    use crate::{
        DirectFile, Error, FileSize, MemDevice, MkfsOptions, OpenOptions, ResearchOptions, Volume,
        VolumeOptions, mkfs,
    };

    use super::*;

    const BLOCK: u64 = 4096;

    /// Creates a file of a written and an unwritten block.
    fn create(policy: Policy, explains: bool) -> (Volume, DirectFile) {
        let device = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*device, &MkfsOptions::new().block_size(4096).device_is_zero(true)).unwrap();
        let options = VolumeOptions::new().commit_interval(None).explain(explains);
        let options = options.research(ResearchOptions::new().policy(policy));
        let volume = Volume::open_device(device, &options).unwrap();
        let file = volume.open_direct("/file", &OpenOptions::read_write().create_new(true)).unwrap();
        file.write_all_at(&[1; BLOCK as usize], 0).unwrap();
        file.allocate(BLOCK..2 * BLOCK, FileSize::Extend).unwrap();
        (volume, file)
    }

    fn planned(file: &DirectFile, offset: u64, end: u64) -> (ByteRange, Mode, Reason) {
        let admission = file.inode_ref().tentative_plan(Operation::Write { offset, end }).unwrap();
        (admission.range, admission.mode, admission.reason)
    }

    #[test]
    fn a_write_of_whole_blocks_is_planned_without_its_blocks_unless_waits_are_explained() {
        for (explains, reason) in [(false, Reason::WholeBlocks), (true, Reason::Overwrite)] {
            let (_volume, file) = create(Policy::Range, explains);
            let own = (ByteRange::new(0, BLOCK), Mode::Exclusive, reason);
            assert_eq!(planned(&file, 0, BLOCK), own);
        }
    }

    #[test]
    fn a_write_of_a_part_needs_its_own_bytes_of_written_blocks_and_all_of_others() {
        let (_volume, file) = create(Policy::Range, false);
        for (start, end) in [(512, BLOCK), (0, 512), (512, 1024)] {
            let own = (ByteRange::new(start, end), Mode::Exclusive, Reason::Overwrite);
            assert_eq!(planned(&file, start, end), own);
        }
        for (start, end) in [(BLOCK + 512, 2 * BLOCK), (BLOCK, BLOCK + 512)] {
            let whole = (ByteRange::new(BLOCK, 2 * BLOCK), Mode::Exclusive, Reason::InitialisesBlock);
            assert_eq!(planned(&file, start, end), whole);
        }
    }

    #[test]
    fn an_overwrite_of_one_extent_shares_the_file() {
        let (_volume, file) = create(Policy::SharedOverwrite, false);
        let (_, mode, reason) = planned(&file, 0, BLOCK);
        assert_eq!((mode, reason), (Mode::Shared, Reason::Overwrite));
        let (_, mode, reason) = planned(&file, 0, 2 * BLOCK);
        assert_eq!((mode, reason), (Mode::Exclusive, Reason::ManyExtents));
    }

    #[test]
    fn active_operations_are_known_if_waits_are_explained() {
        for explains in [false, true] {
            let (_volume, file) = create(Policy::Range, explains);
            let (node, operation) = (file.inode_ref(), Operation::Write { offset: 0, end: BLOCK });
            let admission = node.tentative_plan(operation).unwrap();
            assert_eq!(node.enter(operation, &admission).is_some(), explains);
            assert_eq!(node.enter_queued(operation, &admission).is_some(), explains);
        }
    }

    #[test]
    fn the_last_byte_that_the_format_can_map_is_a_byte_of_a_file() {
        let (_volume, file) = create(Policy::Range, false);
        let node = file.inode_ref();
        let most = node.engine.max_size(&node.inode);
        assert_eq!(node.end_of(most - 1, 1).unwrap(), most);
        assert!(matches!(node.end_of(most, 1), Err(Error::FileTooLarge)));
        assert!(matches!(node.end_of(u64::MAX, 1), Err(Error::FileTooLarge)));
    }
}

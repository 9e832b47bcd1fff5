//! Decides which range an operation needs, in which mode, and why. The plan is a pure function of
//! the facts and acquires no lock, so a table of cases tests it.

use rangelock::{ByteRange, Mode};

use crate::fault::{Fault, guarded};
use crate::operation::{Operation, Reason};
use crate::policy::Policy;

/// The facts of a file that a plan depends on. They may change until the range is held, so the
/// operation plans again under its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Size of the file, in bytes.
    pub size: u64,
    /// Size of a block, in bytes.
    pub block_size: u64,
    /// Size of a page of the cache, in bytes.
    pub page_size: u64,
    /// Size of a cluster, in bytes: of a block without `bigalloc`.
    pub cluster_size: u64,
    /// The blocks that a write covers.
    pub blocks: Blocks,
    /// Whether the rest of the last block is known to be zeros.
    pub tail_clean: bool,
    /// Whether the file may have pages in the cache.
    pub cached: bool,
}

/// A summary of the mapping of the blocks of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// Whether every block is written.
    pub all_written: bool,
    /// Whether every block that the request covers only in part is written.
    pub edges_written: bool,
    /// Whether any block is a hole.
    pub holes: bool,
    /// Whether all blocks are contiguous on the device and in one state.
    pub one_extent: bool,
}

/// The plan: the range to hold, the mode, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    pub range: ByteRange,
    pub mode: Mode,
    /// Whether the operation must first zero the rest of the last block.
    pub zero_tail: bool,
    /// Whether the operation waits until no other write to the file is in flight. An exclusive hold
    /// of the whole file implies that, because every operation holds its range until it completes.
    /// The flag exists for the statistics: the kernel's ext4 releases the inode lock when
    /// asynchronous I/O is submitted, so it waits once more at this point.
    pub drains: bool,
    pub reason: Reason,
}

/// The range that stands for the whole file under a whole-file policy. One byte is enough, because
/// every operation requests the same byte.
const WHOLE_FILE: ByteRange = ByteRange::new(0, 1);

impl Admission {
    /// Returns true if a hold of `range` in `mode` satisfies this plan.
    pub(crate) fn is_met_by(&self, range: ByteRange, mode: Mode) -> bool {
        range.contains(&self.range) && (mode == Mode::Exclusive || self.mode == Mode::Shared)
    }
}

/// Plans what `operation` must hold under `policy`.
pub(crate) fn plan(operation: Operation, file: &FileState, policy: Policy) -> Admission {
    let zero_tail = operation.grows(file.size) && !file.tail_clean;
    match policy {
        Policy::Range => plan_range(operation, file, zero_tail),
        Policy::Exclusive | Policy::SharedOverwrite => plan_whole_file(operation, file, policy, zero_tail),
    }
}

/// Plans a hold of the whole file, shared or exclusive. Operations that may share the file do not
/// change its size or the mapping of its blocks, except to convert them. Two of them may convert
/// the same whole blocks or overwrite the same bytes; either order is correct.
fn plan_whole_file(operation: Operation, file: &FileState, policy: Policy, zero_tail: bool) -> Admission {
    let (reason, aligned) = match operation {
        Operation::Read { .. } => (Reason::Read, true),
        Operation::BufferedRead { .. } => (Reason::ReadsCached, true),
        Operation::BufferedWrite { .. } => (Reason::WritesCached, true),
        Operation::WriteBack { .. } => (Reason::WritesBack, true),
        Operation::ChangeInline => (Reason::ChangesInline, true),
        Operation::Widen { .. } => (Reason::InitialisesBlock, false),
        Operation::Write { offset, end } => {
            let aligned = is_aligned(offset, end, file);
            (whole_file_reason(end, aligned, file, policy), aligned)
        }
        // These operations exclude all I/O on the file.
        Operation::SetLen { .. } => (Reason::SetsSize, false),
        Operation::Allocate { .. } => (Reason::Allocates, false),
        Operation::PunchHole { .. } => (Reason::PunchesHole, false),
        Operation::ZeroRange { .. } => (Reason::ZeroesRange, false),
        Operation::CollapseRange { .. } => (Reason::CollapsesRange, false),
        Operation::InsertRange { .. } => (Reason::InsertsRange, false),
    };
    let shared = match reason {
        Reason::Read | Reason::Overwrite | Reason::ReadsCached | Reason::WritesBack => true,
        Reason::WholeBlocks => policy == Policy::SharedOverwrite,
        _ => false,
    };
    let (range, shared) = match operation {
        Operation::BufferedRead { offset, end } if policy == Policy::SharedOverwrite => {
            (beside_whole_file(offset, end), true)
        }
        // Buffered reads hold no byte of `WHOLE_FILE`.
        Operation::ChangeInline => (ByteRange::ALL, false),
        // An operation that bypasses the cache, unless it is a read, also excludes buffered reads:
        // their ranges may lie past `WHOLE_FILE`.
        operation if file.cached && operation.bypasses_cache() && reason != Reason::Read => {
            (ByteRange::ALL, false)
        }
        _ => (WHOLE_FILE, shared),
    };
    let mode = if shared { Mode::Shared } else { Mode::Exclusive };
    Admission { range, mode, zero_tail, drains: !shared && !aligned, reason }
}

/// Returns the range of a buffered read, moved past [`WHOLE_FILE`] so that it never conflicts with
/// that byte. The kernel's ext4 reads through the cache without the inode lock; it only keeps pages
/// out of the cache while they could become stale.
fn beside_whole_file(offset: u64, end: u64) -> ByteRange {
    let beside = |at: u64| at.saturating_add(WHOLE_FILE.end());
    ByteRange::new(beside(offset), beside(end))
}

/// Returns the first property of a write that prevents it from sharing the file. If there is none,
/// returns the kind of the write.
fn whole_file_reason(end: u64, aligned: bool, file: &FileState, policy: Policy) -> Reason {
    let blocks = file.blocks;
    if end > file.size {
        Reason::Extends
    } else if !aligned && !blocks.edges_written {
        Reason::InitialisesBlock
    } else if blocks.holes {
        Reason::FillsHole
    } else if !blocks.one_extent {
        Reason::ManyExtents
    } else if !aligned && policy == Policy::Exclusive {
        Reason::Unaligned
    } else if blocks.all_written {
        Reason::Overwrite
    } else {
        Reason::WholeBlocks
    }
}

/// Plans a hold of the operation's own bytes, or of its blocks if it may initialise part of one.
fn plan_range(operation: Operation, file: &FileState, zero_tail: bool) -> Admission {
    let (range, mode, reason) = match operation {
        Operation::Read { offset, end } => (ByteRange::new(offset, end), Mode::Shared, Reason::Read),
        Operation::Write { offset, end } | Operation::Widen { offset, end } => {
            let (own, reason) = own_range(offset, end, file);
            with_tail(own, reason, file, zero_tail)
        }
        Operation::BufferedRead { offset, end } => {
            (ByteRange::new(offset, end), Mode::Shared, Reason::ReadsCached)
        }
        Operation::BufferedWrite { offset, end } => {
            with_tail(ByteRange::new(offset, end), Reason::WritesCached, file, zero_tail)
        }
        Operation::WriteBack { offset, end } => {
            (ByteRange::new(offset, end).round_out(file.page_size), Mode::Shared, Reason::WritesBack)
        }
        // No operation may find the contents half in the inode and half in blocks.
        Operation::ChangeInline => (whole_file_bytes(), Mode::Exclusive, Reason::ChangesInline),
        Operation::SetLen { size } => {
            let kept = size.min(file.size);
            let start = kept - kept % unmap_unit(file);
            (ByteRange::starting_at(start), Mode::Exclusive, Reason::SetsSize)
        }
        Operation::Allocate { offset, end, .. } => {
            with_tail(whole_blocks(offset, end, file), Reason::Allocates, file, zero_tail)
        }
        Operation::ZeroRange { offset, end, .. } => {
            with_tail(whole_blocks(offset, end, file), Reason::ZeroesRange, file, zero_tail)
        }
        Operation::PunchHole { offset, end } => {
            let range = whole_blocks(offset, end, file);
            let has_clusters = file.cluster_size > file.block_size;
            let range = if has_clusters { range.round_out(unmap_unit(file)) } else { range };
            (range, Mode::Exclusive, Reason::PunchesHole)
        }
        Operation::CollapseRange { offset, end } => {
            (behind(offset, end), Mode::Exclusive, Reason::CollapsesRange)
        }
        Operation::InsertRange { offset, end } => {
            (behind(offset, end), Mode::Exclusive, Reason::InsertsRange)
        }
    };
    let whole_pages = guarded!(Fault::PagesOutsideRange, file.cached && operation.bypasses_cache());
    let range = if whole_pages { range.round_out(file.page_size) } else { range };
    let range = guarded!(Fault::HoldWholeFile, range, ByteRange::ALL);
    Admission { range, mode, zero_tail, drains: false, reason }
}

/// Returns `[offset, end)` rounded out to blocks, because the operation may zero part of the first
/// and the last block (H21).
fn whole_blocks(offset: u64, end: u64, file: &FileState) -> ByteRange {
    let own = ByteRange::new(offset, end);
    guarded!(Fault::EdgesOutsideRange, own.round_out(file.block_size), own)
}

/// Returns the unit to which operations that unmap blocks round their ranges out: clusters, because
/// no page may be dirty in a cluster that the file loses (H38).
fn unmap_unit(file: &FileState) -> u64 {
    guarded!(Fault::UnmapBlocksOnly, file.cluster_size, file.block_size)
}

/// Returns all bytes, for an operation that changes contents in the inode or moves them to blocks
/// (H36).
fn whole_file_bytes() -> ByteRange {
    guarded!(Fault::InlineUnheld, ByteRange::ALL, ByteRange::new(u64::MAX - 1, u64::MAX))
}

/// Returns all bytes from `offset` on, because collapsing or inserting `[offset, end)` moves all
/// later bytes (H20).
fn behind(offset: u64, end: u64) -> ByteRange {
    guarded!(Fault::ShiftOutsideRange, ByteRange::starting_at(offset), ByteRange::new(offset, end))
}

/// Returns the range of a write and its reason, without the old last block of the file.
fn own_range(offset: u64, end: u64, file: &FileState) -> (ByteRange, Reason) {
    let (own, blocks) = (ByteRange::new(offset, end), file.blocks);
    let needs_edges = !is_aligned(offset, end, file) && !blocks.edges_written;
    if guarded!(Fault::OwnBytesOnly, needs_edges) {
        return (own.round_out(file.block_size), Reason::InitialisesBlock);
    }
    let reason = if end > file.size {
        Reason::Extends
    } else if blocks.all_written {
        Reason::Overwrite
    } else if blocks.holes {
        Reason::FillsHole
    } else {
        Reason::WholeBlocks
    };
    (own, reason)
}

/// Adds the old last block to the range of an operation that grows the file past that block, if its
/// rest must be zeroed.
fn with_tail(
    range: ByteRange,
    reason: Reason,
    file: &FileState,
    zero_tail: bool,
) -> (ByteRange, Mode, Reason) {
    if !guarded!(Fault::ZeroTailWithoutRange, zero_tail) {
        return (range, Mode::Exclusive, reason);
    }
    let start = range.start().min(file.size - file.size % file.block_size);
    (ByteRange::new(start, range.end()), Mode::Exclusive, Reason::ZeroesTail)
}

/// Returns true if the request covers whole blocks only.
fn is_aligned(offset: u64, end: u64, file: &FileState) -> bool {
    offset.is_multiple_of(file.block_size) && end.is_multiple_of(file.block_size)
}

#[cfg(test)]
mod tests;

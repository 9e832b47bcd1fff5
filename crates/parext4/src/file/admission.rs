//! Admission: which range an operation needs, how, and why. Pure: it looks at facts and takes no lock, so
//! it is tested as a table.

use rangelock::{ByteRange, Mode};

use crate::fault::{Fault, planted};

/// What an operation wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read { offset: u64, end: u64 },
    Write { offset: u64, end: u64 },
    SetLen { size: u64 },
    Allocate { offset: u64, end: u64, keep_size: bool },
}

/// What is known of the file. It may change until the range is held, so the plan is made again then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    /// Bytes.
    pub size: u64,
    /// Bytes in a block.
    pub block_size: u64,
    /// Whether every block of the request is written.
    pub all_written: bool,
    /// Whether every block that the request covers only in part is written.
    pub edges_written: bool,
    /// Whether the rest of the last block is known to be zeros.
    pub tail_clean: bool,
}

/// Why an operation needs the range that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A read shares its range with other reads.
    Read,
    /// Written blocks are overwritten; only the bytes themselves matter.
    Overwrite,
    /// Whole blocks become written.
    WholeBlocks,
    /// A block is written in part and its rest filled with zeros: no other writer may be in it (I4).
    InitialisesBlock,
    /// The file grows past a last block whose rest must be zeroed first (H3).
    ZeroesTail,
    /// The size is set: everything behind it is affected.
    SetsSize,
    /// Blocks are allocated ahead of writing.
    Allocates,
}

/// The answer: what to hold, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    pub range: ByteRange,
    pub mode: Mode,
    /// Whether the rest of the last block must be zeroed before anything else.
    pub zero_tail: bool,
    pub reason: Reason,
}

/// A range that no file reaches.
const NOWHERE: ByteRange = ByteRange::new(u64::MAX - 1, u64::MAX);

/// What `operation` needs, under the policy `range`: its own bytes, or its blocks where it may fill part of
/// one.
pub(crate) fn plan(operation: Operation, file: &FileState) -> Admission {
    match operation {
        Operation::Read { offset, end } => Admission {
            range: if planted(Fault::ReadUnheld) { NOWHERE } else { ByteRange::new(offset, end) },
            mode: Mode::Shared,
            zero_tail: false,
            reason: Reason::Read,
        },
        Operation::Write { offset, end } => plan_write(offset, end, file),
        Operation::SetLen { size } => {
            let kept = size.min(file.size);
            Admission {
                range: ByteRange::from(kept - kept % file.block_size),
                mode: Mode::Exclusive,
                zero_tail: size > file.size && !file.tail_clean,
                reason: Reason::SetsSize,
            }
        }
        Operation::Allocate { offset, end, keep_size } => {
            let whole = ByteRange::new(offset, end).round_out(file.block_size);
            let grows = !keep_size && end > file.size;
            with_tail(whole, grows, Reason::Allocates, file)
        }
    }
}

fn plan_write(offset: u64, end: u64, file: &FileState) -> Admission {
    let own = ByteRange::new(offset, end);
    let aligned = offset.is_multiple_of(file.block_size) && end.is_multiple_of(file.block_size);
    let (range, reason) = if file.all_written {
        (own, Reason::Overwrite)
    } else if aligned || file.edges_written || planted(Fault::OwnBytesOnly) {
        (own, Reason::WholeBlocks)
    } else {
        (own.round_out(file.block_size), Reason::InitialisesBlock)
    };
    with_tail(range, end > file.size, reason, file)
}

/// Adds the old last block to the range of an operation that grows the file past it.
fn with_tail(range: ByteRange, grows: bool, reason: Reason, file: &FileState) -> Admission {
    let zero_tail = grows && !file.tail_clean;
    let (range, reason) = if zero_tail {
        let start = range.start().min(file.size - file.size % file.block_size);
        (ByteRange::new(start, range.end()), Reason::ZeroesTail)
    } else {
        (range, reason)
    };
    Admission { range, mode: Mode::Exclusive, zero_tail, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: FileState =
        FileState { size: 8192, block_size: 4096, all_written: true, edges_written: true, tail_clean: true };
    const UNWRITTEN: FileState = FileState { all_written: false, edges_written: false, ..WRITTEN };

    fn write(offset: u64, end: u64, file: &FileState) -> (u64, u64, Reason) {
        let admission = plan(Operation::Write { offset, end }, file);
        assert_eq!(admission.mode, Mode::Exclusive);
        (admission.range.start(), admission.range.end(), admission.reason)
    }

    #[test]
    fn the_table_of_policy_range() {
        let inner_holes = FileState { all_written: false, ..WRITTEN };
        let dirty_tail = FileState { tail_clean: false, size: 5000, ..UNWRITTEN };
        let cases = [
            ("overwrite, aligned", write(0, 4096, &WRITTEN), (0, 4096, Reason::Overwrite)),
            ("overwrite, unaligned", write(512, 1024, &WRITTEN), (512, 1024, Reason::Overwrite)),
            ("unwritten, aligned", write(4096, 8192, &UNWRITTEN), (4096, 8192, Reason::WholeBlocks)),
            ("unwritten, unaligned", write(4608, 5120, &UNWRITTEN), (4096, 8192, Reason::InitialisesBlock)),
            ("holes inside, edges written", write(512, 9216, &inner_holes), (512, 9216, Reason::WholeBlocks)),
            ("extend, aligned", write(8192, 12288, &UNWRITTEN), (8192, 12288, Reason::WholeBlocks)),
            ("extend, unaligned", write(8192, 8704, &UNWRITTEN), (8192, 12288, Reason::InitialisesBlock)),
            ("extend, unknown tail", write(8192, 12288, &dirty_tail), (4096, 12288, Reason::ZeroesTail)),
        ];
        for (name, got, want) in cases {
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn sizes_and_allocations() {
        let set = |size, file: &FileState| plan(Operation::SetLen { size }, file);
        assert_eq!(set(5000, &WRITTEN).range, ByteRange::from(4096));
        assert_eq!(set(100_000, &WRITTEN).range, ByteRange::from(8192));
        let dirty = FileState { tail_clean: false, size: 5000, ..WRITTEN };
        assert!(set(100_000, &dirty).zero_tail && !set(10, &dirty).zero_tail);
        let allocate = |keep_size| plan(Operation::Allocate { offset: 9000, end: 9001, keep_size }, &dirty);
        assert_eq!(allocate(true).range, ByteRange::new(8192, 12288));
        assert_eq!(allocate(false).range, ByteRange::new(4096, 12288));
    }
}

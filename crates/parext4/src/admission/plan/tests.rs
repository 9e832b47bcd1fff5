//! Checks, as a table, the plan of every operation under every policy.

use super::*;

const BLOCK: u64 = 4096;
/// A size in the middle of the last block, past the blocks that most rows use.
const SIZE: u64 = 16 * BLOCK + 512;

const WRITTEN: Blocks = Blocks { all_written: true, edges_written: true, holes: false, one_extent: true };
const UNWRITTEN: Blocks = Blocks { all_written: false, edges_written: false, ..WRITTEN };
const HOLE: Blocks = Blocks { holes: true, ..UNWRITTEN };

/// The plan that a row expects: the range (`None`: the whole file), the mode, whether it drains,
/// and the reason.
type Expected = (Option<(u64, u64)>, Mode, bool, Reason);

const fn shared(reason: Reason) -> Expected {
    (None, Mode::Shared, false, reason)
}

const fn alone(reason: Reason) -> Expected {
    (None, Mode::Exclusive, false, reason)
}

const fn drained(reason: Reason) -> Expected {
    (None, Mode::Exclusive, true, reason)
}

const fn own(start: u64, end: u64, reason: Reason) -> Expected {
    (Some((start, end)), Mode::Exclusive, false, reason)
}

const fn write(offset: u64, end: u64) -> Operation {
    Operation::Write { offset, end }
}

const fn file(blocks: Blocks) -> FileState {
    let (block_size, cluster_size, page_size) = (BLOCK, BLOCK, BLOCK);
    FileState { size: SIZE, block_size, cluster_size, page_size, blocks, tail_clean: true, cached: false }
}

fn check(rows: &[(&str, Operation, FileState, [Expected; 3])]) {
    for (name, operation, file, expected) in rows {
        for (policy, (range, mode, drains, reason)) in Policy::ALL.into_iter().zip(expected) {
            let zero_tail = operation.grows(file.size) && !file.tail_clean;
            let (start, end) = range.unwrap_or((WHOLE_FILE.start(), WHOLE_FILE.end()));
            let range = ByteRange::new(start, end);
            let want = Admission { range, mode: *mode, zero_tail, drains: *drains, reason: *reason };
            assert_eq!(plan(*operation, file, policy), want, "{name}, {policy}");
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn writes() {
    use Reason::{
        Extends, FillsHole, InitialisesBlock, ManyExtents, Overwrite, Unaligned, WholeBlocks, ZeroesTail,
    };
    let two_written = Blocks { one_extent: false, ..WRITTEN };
    let two_states = Blocks { all_written: false, ..two_written };
    let hole_inside = Blocks { holes: true, ..two_states };
    let dirty_tail = FileState { tail_clean: false, ..file(HOLE) };
    let last = SIZE - 512;
    check(&[
        (
            "written",
            write(0, 4096),
            file(WRITTEN),
            [shared(Overwrite), shared(Overwrite), own(0, 4096, Overwrite)],
        ),
        (
            "written, unaligned",
            write(512, 1024),
            file(WRITTEN),
            [drained(Unaligned), shared(Overwrite), own(512, 1024, Overwrite)],
        ),
        (
            "two written extents",
            write(0, 8192),
            file(two_written),
            [alone(ManyExtents), alone(ManyExtents), own(0, 8192, Overwrite)],
        ),
        (
            "two written extents, unaligned",
            write(512, 8192),
            file(two_written),
            [drained(ManyExtents), drained(ManyExtents), own(512, 8192, Overwrite)],
        ),
        (
            "unwritten",
            write(4096, 8192),
            file(UNWRITTEN),
            [alone(WholeBlocks), shared(WholeBlocks), own(4096, 8192, WholeBlocks)],
        ),
        (
            "unwritten, unaligned",
            write(4608, 5120),
            file(UNWRITTEN),
            [drained(InitialisesBlock), drained(InitialisesBlock), own(4096, 8192, InitialisesBlock)],
        ),
        (
            "written and unwritten",
            write(0, 8192),
            file(Blocks { edges_written: false, ..two_states }),
            [alone(ManyExtents), alone(ManyExtents), own(0, 8192, WholeBlocks)],
        ),
        (
            "written and unwritten, written edges",
            write(512, 9216),
            file(two_states),
            [drained(ManyExtents), drained(ManyExtents), own(512, 9216, WholeBlocks)],
        ),
        ("hole", write(0, 4096), file(HOLE), [alone(FillsHole), alone(FillsHole), own(0, 4096, FillsHole)]),
        (
            "hole, unaligned",
            write(512, 4096),
            file(HOLE),
            [drained(InitialisesBlock), drained(InitialisesBlock), own(0, 4096, InitialisesBlock)],
        ),
        (
            "hole inside, written edges",
            write(512, 9216),
            file(hole_inside),
            [drained(FillsHole), drained(FillsHole), own(512, 9216, FillsHole)],
        ),
        (
            "up to the end",
            write(last, SIZE),
            file(WRITTEN),
            [drained(Unaligned), shared(Overwrite), own(last, SIZE, Overwrite)],
        ),
        (
            "extends within written blocks",
            write(last, last + 1024),
            file(WRITTEN),
            [drained(Extends), drained(Extends), own(last, last + 1024, Extends)],
        ),
        (
            "extends by blocks",
            write(last + 4096, last + 8192),
            file(HOLE),
            [alone(Extends), alone(Extends), own(last + 4096, last + 8192, Extends)],
        ),
        (
            "extends by part of a block",
            write(last + 4096, last + 4608),
            file(HOLE),
            [drained(Extends), drained(Extends), own(last + 4096, last + 8192, InitialisesBlock)],
        ),
        (
            "extends, unknown tail",
            write(last + 4096, last + 8192),
            dirty_tail,
            [alone(Extends), alone(Extends), own(last, last + 8192, ZeroesTail)],
        ),
    ]);
}

#[test]
fn everything_else() {
    use Reason::{Allocates, Read, SetsSize, ZeroesTail};
    let known = file(HOLE);
    let unknown = FileState { tail_clean: false, ..known };
    let last = SIZE - 512;
    let allocate = |keep_size| Operation::Allocate { offset: SIZE + 9000, end: SIZE + 9001, keep_size };
    let from = |start| own(start, u64::MAX, SetsSize);
    check(&[
        (
            "read",
            Operation::Read { offset: 512, end: 1024 },
            known,
            [shared(Read), shared(Read), (Some((512, 1024)), Mode::Shared, false, Read)],
        ),
        (
            "cut",
            Operation::SetLen { size: 5000 },
            unknown,
            [drained(SetsSize), drained(SetsSize), from(4096)],
        ),
        (
            "extend",
            Operation::SetLen { size: SIZE + 1 },
            unknown,
            [drained(SetsSize), drained(SetsSize), from(last)],
        ),
        (
            "allocate past the end",
            allocate(true),
            unknown,
            [drained(Allocates), drained(Allocates), own(SIZE + 7680, SIZE + 11776, Allocates)],
        ),
        (
            "allocate and extend",
            allocate(false),
            unknown,
            [drained(Allocates), drained(Allocates), own(last, SIZE + 11776, ZeroesTail)],
        ),
    ]);
    assert!(plan(Operation::SetLen { size: SIZE + 1 }, &unknown, Policy::Range).zero_tail);
    assert!(!plan(Operation::SetLen { size: 10 }, &unknown, Policy::Range).zero_tail);
}

#[test]
fn layout() {
    use Reason::{CollapsesRange, InsertsRange, PunchesHole, ZeroesRange, ZeroesTail};
    let known = file(WRITTEN);
    let unknown = FileState { tail_clean: false, ..known };
    let last = SIZE - 512;
    let zero = |keep_size| Operation::ZeroRange { offset: 5000, end: SIZE + 1, keep_size };
    check(&[
        (
            "punch whole blocks",
            Operation::PunchHole { offset: 4096, end: 8192 },
            known,
            [drained(PunchesHole), drained(PunchesHole), own(4096, 8192, PunchesHole)],
        ),
        (
            "punch parts of blocks, also past the end",
            Operation::PunchHole { offset: 5000, end: SIZE + 1 },
            unknown,
            [drained(PunchesHole), drained(PunchesHole), own(4096, last + 4096, PunchesHole)],
        ),
        (
            "zero within the size",
            zero(true),
            unknown,
            [drained(ZeroesRange), drained(ZeroesRange), own(4096, last + 4096, ZeroesRange)],
        ),
        (
            "zero and extend",
            zero(false),
            unknown,
            [drained(ZeroesRange), drained(ZeroesRange), own(4096, last + 4096, ZeroesTail)],
        ),
        (
            "collapse",
            Operation::CollapseRange { offset: 4096, end: 8192 },
            unknown,
            [drained(CollapsesRange), drained(CollapsesRange), own(4096, u64::MAX, CollapsesRange)],
        ),
        (
            "insert",
            Operation::InsertRange { offset: 4096, end: 8192 },
            unknown,
            [drained(InsertsRange), drained(InsertsRange), own(4096, u64::MAX, InsertsRange)],
        ),
    ]);
}

#[test]
fn what_is_held_may_be_more_than_what_is_needed() {
    let needs = |mode| Admission {
        range: ByteRange::new(10, 20),
        mode,
        zero_tail: false,
        drains: false,
        reason: Reason::Read,
    };
    let (shared, exclusive) = (needs(Mode::Shared), needs(Mode::Exclusive));
    assert!(shared.is_met_by(ByteRange::new(0, 20), Mode::Exclusive));
    assert!(exclusive.is_met_by(ByteRange::new(10, 20), Mode::Exclusive));
    assert!(!exclusive.is_met_by(ByteRange::new(10, 20), Mode::Shared));
    assert!(!shared.is_met_by(ByteRange::new(10, 19), Mode::Exclusive));
}

#[test]
fn buffered() {
    use Reason::{ReadsCached, WritesBack, WritesCached, ZeroesTail};
    let cached = FileState { cached: true, ..file(HOLE) };
    let dirty_tail = FileState { tail_clean: false, ..cached };
    let read = Operation::BufferedRead { offset: 100, end: 300 };
    let part = |start, end, reason| (Some((start, end)), Mode::Shared, false, reason);
    let buffered_write = |offset, end| Operation::BufferedWrite { offset, end };
    check(&[
        (
            "read",
            read,
            cached,
            [shared(ReadsCached), part(101, 301, ReadsCached), part(100, 300, ReadsCached)],
        ),
        (
            "write",
            buffered_write(100, 300),
            cached,
            [alone(WritesCached), alone(WritesCached), own(100, 300, WritesCached)],
        ),
        (
            "write past the end",
            buffered_write(SIZE + 5000, SIZE + 5001),
            cached,
            [alone(WritesCached), alone(WritesCached), own(SIZE + 5000, SIZE + 5001, WritesCached)],
        ),
        (
            "write past an end with stale bytes",
            buffered_write(SIZE + 5000, SIZE + 5001),
            dirty_tail,
            [alone(WritesCached), alone(WritesCached), own(SIZE - 512, SIZE + 5001, ZeroesTail)],
        ),
        (
            "write-back",
            Operation::WriteBack { offset: 4096, end: 8192 },
            cached,
            [shared(WritesBack), shared(WritesBack), part(4096, 8192, WritesBack)],
        ),
    ]);
}

/// With 1 KiB blocks a page has four blocks. An operation that bypasses the cache holds whole
/// pages.
#[test]
fn past_the_cache() {
    use Reason::{Allocates, Overwrite, SetsSize};
    let small = |blocks| FileState { block_size: 1024, cached: true, ..file(blocks) };
    let all = |reason, drains| (Some((0, u64::MAX)), Mode::Exclusive, drains, reason);
    check(&[
        (
            "read",
            Operation::Read { offset: 512, end: 1024 },
            small(WRITTEN),
            [
                shared(Reason::Read),
                shared(Reason::Read),
                (Some((0, 4096)), Mode::Shared, false, Reason::Read),
            ],
        ),
        (
            "write",
            write(5120, 6144),
            small(WRITTEN),
            [all(Overwrite, false), all(Overwrite, false), own(4096, 8192, Overwrite)],
        ),
        (
            "cut",
            Operation::SetLen { size: 5120 },
            small(WRITTEN),
            [all(SetsSize, true), all(SetsSize, true), own(4096, u64::MAX, SetsSize)],
        ),
        (
            "allocation",
            Operation::Allocate { offset: 1024, end: 2048, keep_size: true },
            small(HOLE),
            [drained(Allocates), drained(Allocates), own(1024, 2048, Allocates)],
        ),
    ]);
}

/// Under every policy it excludes all other operations, also buffered reads that hold no byte of
/// the whole file.
#[test]
fn contents_in_the_inode() {
    let all = (Some((0, u64::MAX)), Mode::Exclusive, false, Reason::ChangesInline);
    let cached = FileState { cached: true, ..file(HOLE) };
    let dirty_tail = FileState { tail_clean: false, ..file(HOLE) };
    check(&[
        ("change", Operation::ChangeInline, file(HOLE), [all; 3]),
        ("change of a file that was opened for buffered I/O", Operation::ChangeInline, cached, [all; 3]),
        ("change of a file with stale bytes", Operation::ChangeInline, dirty_tail, [all; 3]),
    ]);
}

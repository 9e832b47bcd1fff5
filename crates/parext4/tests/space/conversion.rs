//! Volumes with no free block, and with few: preallocated blocks can always be written, in any
//! pieces and order, and reads return only written data.
//!
//! Run with `cargo test -p parext4 --profile stress --test space conversion`.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use parext4::device::AlignedBuf;
use parext4::{
    DirectFile, Error, IoFlags, IoQueue, IoRequest, Policy, ResearchOptions, SplitAt, VolumeOptions,
};

use testkit::full_volume::{BEHIND, BLOCK, FullVolume, LARGE, SMALL, Size};
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{DirectFiles as _, untimed};
use testkit::watchdog::Watchdog;

fn options(split_at: SplitAt, policy: Policy) -> VolumeOptions {
    untimed().research(ResearchOptions::new().split_at(split_at).policy(policy))
}

/// Ranges of sectors to write: blocks, parts of blocks, parts of several; first and end.
fn piece(rng: &mut Rng, blocks: u64) -> (u64, u64) {
    let sectors = blocks * BLOCK / 512;
    if rng.chance(40) {
        let block = rng.below(blocks);
        return (2 * block, (2 * (block + 1 + rng.below(4))).min(sectors));
    }
    let first = rng.below(sectors);
    (first, (first + rng.log_uniform(8)).min(sectors))
}

/// How writes get to the file.
enum Way {
    Call,
    Queue(Box<IoQueue>),
}

impl Way {
    /// Writes that do not overlap, and their results.
    fn write(&mut self, file: &DirectFile, writes: &[(u64, Vec<u8>)]) -> Vec<Result<(), Error>> {
        match self {
            Self::Call => writes.iter().map(|(offset, bytes)| file.write_all_at(bytes, *offset)).collect(),
            Self::Queue(queue) => {
                for (token, (offset, bytes)) in (0..).zip(writes) {
                    let (buf, len) = (AlignedBuf::from_slice(bytes), bytes.len());
                    let request = IoRequest::Write { buf, len, offset: *offset };
                    queue.submit(file, request, token, IoFlags::new());
                }
                let mut done = Vec::new();
                while queue.in_flight() > 0 {
                    queue.harvest(&mut done).unwrap();
                }
                done.sort_by_key(|completion| completion.token);
                for (completion, (_, bytes)) in done.iter().zip(writes) {
                    assert!(completion.buf.as_ref().unwrap()[..] == bytes[..], "another buffer came back");
                }
                done.into_iter().map(|completion| completion.result.map(drop)).collect()
            }
        }
    }
}

/// Up to `count` writes, numbered from `number` on, that do not overlap.
fn choose(rng: &mut Rng, blocks: u64, number: u64, count: u64) -> Vec<(u64, Vec<u8>)> {
    let mut writes: Vec<(u64, Vec<u8>)> = Vec::new();
    for nth in 0..count {
        let (first, end) = piece(rng, blocks);
        let byte = 3 + u8::try_from((number + nth) % 150).unwrap();
        let free = writes
            .iter()
            .all(|(offset, bytes)| end * 512 <= *offset || offset + bytes.len() as u64 <= first * 512);
        if free {
            writes.push((first * 512, vec![byte; usize::try_from((end - first) * 512).unwrap()]));
        }
    }
    writes
}

/// Random writes all over the file.
fn scribble(full: &mut FullVolume, way: &mut Way, rng: &mut Rng, what: &str) {
    let watchdog = Watchdog::start(what, 0, 1);
    for round in 0..40 {
        let writes = choose(rng, full.model.len() as u64 / BLOCK, round * 6, 6);
        let results = watchdog.watch(0, || way.write(&full.file, &writes));
        for ((offset, bytes), result) in writes.iter().zip(results) {
            result.unwrap_or_else(|e| {
                panic!("{what}: {} bytes at {offset} into preallocated blocks: {e}", bytes.len())
            });
            let at = usize::try_from(*offset).unwrap();
            full.model[at..at + bytes.len()].copy_from_slice(bytes);
        }
        full.check(what);
    }
}

fn with(size: Size, split_at: SplitAt, free: u64, cuts: u64, queue: bool, rng: &mut Rng) {
    let what = format!("{free} blocks free, {cuts} cuts, split at {split_at}, queue: {queue}");
    let mut full = FullVolume::new(size, &options(split_at, Policy::Range), free, cuts);
    let mut way = if queue { Way::Queue(Box::new(full.volume.io_queue(8))) } else { Way::Call };
    scribble(&mut full, &mut way, rng, &what);
    drop(way);
    if free == 0 {
        assert!(full.volume.stats().zero_outs > 0, "{what}: nothing was widened");
    }
    full.close(&what);
}

#[test]
fn preallocated_blocks_can_always_be_written() {
    let seed = settings::seed("blocks_allocated_ahead");
    for split_at in [SplitAt::Completion, SplitAt::Submission] {
        for free in 0..8 {
            // A tree without a leaf, with a full leaf, with several leaves; alternately with a
            // queue.
            for (nth, cuts) in [(0, 0), (1, 40 + free / 2), (2, 120)] {
                if settings::all() || nth % 2 == free % 2 {
                    let queue = (free / 2 + nth) % 2 == 0;
                    with(SMALL, split_at, free, cuts, queue, &mut Rng::new(seed, free * 1000 + cuts));
                }
            }
        }
    }
}

/// Extents of several MiB are filled with zeros like small ones.
#[test]
fn large_extents_too() {
    let seed = settings::seed("large_extents_too");
    for (split_at, queue) in [(SplitAt::Completion, true), (SplitAt::Submission, false)] {
        with(LARGE, split_at, 0, 0, queue, &mut Rng::new(seed, 0));
    }
}

/// The conversion of a whole extent needs no entry of the tree at any moment, however long it is.
#[test]
fn a_long_extent_is_converted_in_one_piece() {
    for split_at in [SplitAt::Completion, SplitAt::Submission] {
        let what = format!("split at {split_at}");
        let mut full = FullVolume::new(LARGE, &options(split_at, Policy::Range), 0, 0);
        // Two splits fill the root, so that the third write is widened to the first half of the
        // file.
        for (block, len) in [(LARGE.blocks / 2, 1024), (LARGE.blocks - 1, 1024), (LARGE.blocks / 4, 512)] {
            let at = usize::try_from(block * BLOCK).unwrap();
            full.file.write_all_at(&vec![7; len], block * BLOCK).unwrap_or_else(|e| panic!("{what}: {e}"));
            full.model[at..at + len].fill(7);
            full.check(&what);
        }
        assert_eq!(full.volume.stats().zero_outs, 1, "{what}");
        full.close(&what);
    }
}

/// Threads whose writes race in the same extents: one converts an extent, the others find it
/// written.
#[test]
fn threads_write_the_same_extents_on_a_full_volume() {
    let seed = settings::seed("threads_write_the_same_extents");
    for split_at in [SplitAt::Completion, SplitAt::Submission] {
        for (policy, cuts) in [
            (Policy::Range, 0),
            (Policy::Range, 42),
            (Policy::SharedOverwrite, 0),
            (Policy::SharedOverwrite, 42),
        ] {
            let what = format!("{policy}, {cuts} cuts, split at {split_at}");
            let mut full = FullVolume::new(SMALL, &options(split_at, policy), 0, cuts);
            let mut writes: Vec<_> = (0..SMALL.blocks)
                .filter(|block| block % 4 != 3)
                .map(|block| match block % 3 {
                    0 => (block * BLOCK, vec![9; 1024]),
                    _ => (block * BLOCK + 512 * (block % 2), vec![9; 512]),
                })
                .collect();
            let mut rng = Rng::new(seed, cuts);
            for last in (1..writes.len()).rev() {
                writes.swap(last, usize::try_from(rng.below(last as u64 + 1)).unwrap());
            }
            std::thread::scope(|scope| {
                for (nth, writes) in writes.chunks(writes.len().div_ceil(6)).enumerate() {
                    let (file, volume) = (&full.file, &full.volume);
                    scope.spawn(move || {
                        let mut way =
                            if nth % 2 == 0 { Way::Queue(Box::new(volume.io_queue(8))) } else { Way::Call };
                        for few in writes.chunks(6) {
                            way.write(file, few).into_iter().for_each(|result| result.expect("a write"));
                        }
                    });
                }
            });
            for (offset, bytes) in writes {
                let at = usize::try_from(offset).unwrap();
                full.model[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            full.check(&what);
            full.close(&what);
        }
    }
}

/// An append with the option not to wait that finds no space for its completion is refused before
/// other appends depend on it, so they leave no gap for it.
#[test]
fn a_refused_append_leaves_no_gap_on_a_full_volume() {
    let full = FullVolume::new(SMALL, &untimed(), 0, 0);
    let behind = full.volume.direct_file("/behind").unwrap();
    let (over, begun) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut queue = full.volume.io_queue(4);
            let mut done = Vec::new();
            begun.wait();
            while !over.load(Ordering::Relaxed) {
                let request = IoRequest::Append { buf: AlignedBuf::from_slice(&[9; 1024]), len: 1024 };
                queue.submit(&behind, request, 0, IoFlags::new().nowait(true));
                queue.harvest(&mut done).unwrap();
            }
            assert!(
                done.iter().all(|one| matches!(one.result, Err(Error::WouldBlock(_)))),
                "a block was free"
            );
        });
        begun.wait();
        let gap = (0..BEHIND).find(|number| behind.append(&[8; 1024]).ok() != Some(number * BLOCK));
        over.store(true, Ordering::Relaxed);
        assert_eq!(gap, None, "an append was elsewhere");
    });
    drop(behind);
    full.close("a full volume");
}

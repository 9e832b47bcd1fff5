//! Crashes while the layout of a file changes. The device was full of stale bytes.

use std::io::IoSlice;
use std::sync::Arc;

use parext4::device::{Event, RecordingDevice};
use parext4::{Device, DirectFile, Error, FileSize, MemDevice, MkfsOptions, Volume, mkfs};

use testkit::crash_states::{CrashState, for_each_crash_state};
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{DirectFiles as _, assert_clean, assert_recovers, untimed};

const BLOCK: usize = 1024;
/// e2fsck checks one of this many consecutive crash states.
const SAMPLE: usize = 8;

/// Returns the byte that fills a block which began as number `nth` of the file; 0 stands for zeros.
fn block(nth: u64) -> Vec<u8> {
    nth.to_le_bytes().repeat(BLOCK / 8)
}

/// Makes a volume with the smallest journal, on a device of stale bytes.
fn device(mib: u64) -> MemDevice {
    let device = MemDevice::new(mib << 20);
    for at in 0..mib {
        device.write_at(at << 20, &[IoSlice::new(&vec![0xa5; 1 << 20])]).unwrap();
    }
    let options = MkfsOptions::new().block_size(1024).journal_blocks(1024);
    mkfs(&device, &options).unwrap();
    device
}

/// Returns the number of each block of a file, by its sectors. If one sector holds zeros and the
/// other data, the block counts as `mixed`.
fn numbers(file: &DirectFile, mixed: &mut usize) -> Result<Vec<u64>, String> {
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
    file.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
    let number = |bytes: &[u8]| {
        let first = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let same = bytes[8..] == bytes[..bytes.len() - 8];
        same.then_some(first)
    };
    let blocks = bytes.chunks(BLOCK).enumerate();
    blocks
        .map(|(at, bytes)| match (number(&bytes[..BLOCK / 2]), number(&bytes[BLOCK / 2..])) {
            (Some(one), Some(other)) if one == other => Ok(one),
            (Some(0), Some(one)) | (Some(one), Some(0)) => {
                *mixed += 1;
                Ok(one)
            }
            other => Err(format!("block {at} holds {other:x?}")),
        })
        .collect()
}

/// Makes a file of `blocks` blocks, of which each `step`th is written, and applies `change`. After
/// every crash, `may_be` checks the file. Returns the number of transactions.
fn crash(
    name: &str,
    (mib, blocks, step): (u64, u64, usize),
    change: impl Fn(&DirectFile) -> Result<(), Error>,
    may_be: impl Fn(&[u64], &[u64], &[u64]) -> bool,
) -> usize {
    let seed = settings::seed(name);
    let prepared = Arc::new(device(mib));
    let volume = Volume::open_device(Arc::clone(&prepared) as Arc<_>, &untimed()).unwrap();
    let file = volume.create_direct("/file").unwrap();
    file.set_len(blocks * BLOCK as u64).unwrap();
    // From the end, so that leaves are half full.
    for nth in (1..=blocks).rev().step_by(step) {
        file.write_all_at(&block(nth), (nth - 1) * BLOCK as u64).unwrap();
    }
    drop(file);
    volume.close().unwrap();
    let base = prepared.fork();
    let recording = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let volume = Volume::open_device(Arc::clone(&recording) as Arc<dyn Device>, &untimed()).unwrap();
    let file = volume.direct_file("/file").unwrap();
    let before = numbers(&file, &mut 0).unwrap();
    change(&file).unwrap();
    let mut mixed = 0;
    let after = numbers(&file, &mut mixed).unwrap();
    // Freed blocks must not be reused before the free is durable.
    let other = volume.create_direct("/other").unwrap();
    for nth in 0..64 {
        other.write_all_at(&[0x77; 4096], nth * 4096).unwrap();
    }
    volume.sync().unwrap();
    let steps = recording.log().iter().filter(|event| matches!(event, Event::Flush { .. })).count() / 2;
    let mut count = 0;
    for_each_crash_state(&recording, &base, &mut Rng::new(seed, 1), |CrashState { image, what, .. }| {
        let image = Arc::new(image);
        count += 1;
        let sampled = count % SAMPLE == 0 || settings::all();
        if sampled {
            assert_recovers(&image, &what);
        }
        let volume = Volume::open_device(Arc::clone(&image) as Arc<dyn Device>, &untimed()).unwrap();
        let seen = numbers(&volume.direct_file("/file").unwrap(), &mut 0);
        let seen = seen.unwrap_or_else(|e| panic!("{name}: seed {seed}, {what}: {e}"));
        assert!(may_be(&before, &after, &seen), "{name}: seed {seed}, {what}: {} blocks", seen.len());
        volume.close().unwrap();
        if sampled {
            assert_clean(&image, &what);
        }
    });
    eprintln!("{name}: {} events, {steps} transactions, {count} crashes", recording.events());
    // At the end everything was synced.
    let now = numbers(&file, &mut 0).unwrap();
    assert_eq!(now, after);
    steps
}

/// Returns true if the file is in the old or in the new state.
fn one_or_the_other(before: &[u64], after: &[u64], seen: &[u64]) -> bool {
    seen == before || seen == after
}

/// Returns true if each block is in the old or in the new state; no block has moved.
fn block_by_block(before: &[u64], after: &[u64], seen: &[u64]) -> bool {
    let good = |((before, after), seen): ((&u64, &u64), &u64)| seen == before || seen == after;
    seen.len() == before.len() && before.iter().zip(after).zip(seen).all(good)
}

const KIB: u64 = BLOCK as u64;

#[test]
fn a_hole_is_punched() {
    let punch = |file: &DirectFile| file.punch_hole(50 * KIB - 512..50 * KIB - 512 + 200 * KIB);
    crash("a_hole_is_punched", (8, 400, 1), punch, block_by_block);
}

#[test]
fn a_hole_is_punched_through_many_pieces() {
    let punch = |file: &DirectFile| file.punch_hole(50 * KIB..1050 * KIB);
    crash("a_hole_is_punched_through_many_pieces", (12, 1100, 2), punch, block_by_block);
}

#[test]
fn a_range_is_zeroed_and_written_again() {
    let zero = |file: &DirectFile| file.zero_range(50 * KIB..250 * KIB, FileSize::Keep);
    crash("a_range_is_zeroed_and_written_again", (8, 400, 3), zero, block_by_block);
}

#[test]
fn a_range_is_taken_out_at_once() {
    let collapse = |file: &DirectFile| file.collapse_range(100 * KIB..433 * KIB);
    crash("a_range_is_taken_out_at_once", (12, 2500, 2), collapse, one_or_the_other);
}

#[test]
fn a_range_is_put_in_at_once() {
    // In the middle of an extent.
    let insert = |file: &DirectFile| file.insert_range(101 * KIB..434 * KIB);
    crash("a_range_is_put_in_at_once", (12, 400, 1), insert, one_or_the_other);
    let insert = |file: &DirectFile| file.insert_range(100 * KIB..433 * KIB);
    crash("a_range_is_put_in_at_once", (12, 2500, 2), insert, one_or_the_other);
}

/// Returns true if `seen` begins like `head` and ends like `tail`, from the same block on, with
/// `count` blocks of zeros between them.
fn with_a_hole_between(seen: &[u64], head: &[u64], tail: &[u64], count: usize) -> bool {
    if seen.len() != tail.len() {
        return false;
    }
    let same = seen.iter().zip(head).take_while(|(a, b)| a == b).count();
    let same_behind = seen.iter().rev().zip(tail.iter().rev()).take_while(|(a, b)| a == b).count();
    let least = (seen.len() - same_behind).saturating_sub(count);
    (least..=same.min(seen.len() - count)).any(|at| seen[at..at + count].iter().all(|&number| number == 0))
}

/// Makes a file whose extents need more blocks than one transaction has.
const HUGE: (u64, u64, usize) = (40, 26_000, 2);

#[test]
fn a_range_is_taken_out_step_by_step() {
    const COUNT: usize = 99;
    let collapse = |file: &DirectFile| file.collapse_range(200 * KIB..200 * KIB + COUNT as u64 * KIB);
    let may_be = |before: &[u64], after: &[u64], seen: &[u64]| {
        one_or_the_other(before, after, seen)
            // While its blocks are freed.
            || seen.len() == before.len() && seen[..200] == before[..200] && seen[200 + COUNT..] == before[200 + COUNT..]
            || with_a_hole_between(seen, after, before, COUNT)
    };
    assert!(crash("a_range_is_taken_out_step_by_step", HUGE, collapse, may_be) > 1);
}

#[test]
fn a_range_is_put_in_step_by_step() {
    const COUNT: usize = 99;
    let insert = |file: &DirectFile| file.insert_range(200 * KIB..200 * KIB + COUNT as u64 * KIB);
    let may_be = |before: &[u64], after: &[u64], seen: &[u64]| {
        seen == before || with_a_hole_between(seen, before, after, COUNT)
    };
    assert!(crash("a_range_is_put_in_step_by_step", HUGE, insert, may_be) > 1);
}

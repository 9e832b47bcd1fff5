//! Logs of 64 KiB blocks, which reach the limits of memory soon.

use std::io::{self, IoSlice};

use parext4_device::{Device, Event, RecordingDevice, forward_device};
use parext4_format::jbd2::JournalIncompat;

use super::*;
use crate::MemDevice;
use crate::clock::Clock;
use crate::journal::log::{Log, LogExtent};
use crate::journal::replay::{read_log, replay};

const BLOCK: u32 = 65536;
const LOG: u32 = 1000;

/// Returns an empty log of 1000 blocks of 64 KiB with checksums, and the device that has it.
fn log() -> (Arc<MemDevice>, LogMap, JournalSuperblock) {
    log_of(LOG)
}

fn log_of(blocks: u32) -> (Arc<MemDevice>, LogMap, JournalSuperblock) {
    let device = Arc::new(MemDevice::new(u64::from(blocks) * u64::from(BLOCK)));
    let extents = vec![LogExtent { log: LogBlock(0), physical: FsBlock(0), len: blocks }];
    let map = LogMap {
        device: Arc::clone(&device) as Arc<dyn Device>,
        external: true,
        block_size: BLOCK,
        superblock: LogBlock::SUPERBLOCK,
        extents,
    };
    let mut superblock = JournalSuperblock::new(BLOCK, blocks, 1, &[7; 16]);
    superblock.set_incompat(JournalIncompat::CSUM_V3 | JournalIncompat::REVOKE);
    superblock.set_sequence(1);
    superblock.set_start(1);
    (device, map, superblock)
}

/// Returns the contents of block `number` in version `version`. The contents of some blocks begin
/// as blocks of the log do.
fn contents(number: u64, version: u8) -> Arc<AlignedBuf> {
    let mut bytes = AlignedBuf::zeroed(BLOCK as usize);
    bytes[4..12].copy_from_slice(&number.to_le_bytes());
    bytes[12] = version;
    if number.is_multiple_of(3) {
        bytes[..4].copy_from_slice(&jbd2::MAGIC.to_be_bytes());
    }
    Arc::new(bytes)
}

/// Returns the writer of a log.
fn writer(map: &LogMap, superblock: &JournalSuperblock) -> Log {
    Log::new(Arc::clone(&map.device), Arc::new(map.clone()), superblock, Clock::system())
}

fn write(log: &mut Log, tid: u64, revoked: &[FsBlock], numbers: Range<u64>, version: u8) {
    let blocks: Vec<_> = numbers.map(|number| (FsBlock(number), contents(number, version))).collect();
    let contents: Vec<_> = blocks.iter().map(|(number, bytes)| (*number, bytes)).collect();
    log.write_blocks(tid, revoked, &contents).unwrap();
}

#[test]
fn a_replay_in_memory_of_a_full_log_of_large_blocks_keeps_32_mib() {
    let (device, map, superblock) = log();
    let mut log = writer(&map, &superblock);
    write(&mut log, 1, &[], 0..600, 1);
    write(&mut log, 2, &[FsBlock(10)], 400..700, 2);
    let (mut index, found) = read_log(&map, &superblock, 1 << 20).unwrap();
    assert_eq!((found.transactions, index.len()), (2, 699));
    index.keep().unwrap();
    let kept = index.kept.len();
    assert!(kept * BLOCK as usize <= MAX_LOADED && kept > 400, "{kept} are kept");
    for number in (0..700).filter(|&number| number != 10) {
        let version = if number < 400 { 1 } else { 2 };
        let found = index.read(FsBlock(number)).unwrap().expect("a logged block");
        assert!(found[..] == contents(number, version)[..], "block {number}");
    }
    assert!(index.read(FsBlock(700)).unwrap().is_none() && index.read(FsBlock(10)).unwrap().is_none());
    // Another program writes to the log. The last block lies before the last commit block.
    let last = u64::from(log.head().get() - 2) * u64::from(BLOCK);
    device.write_at(last + 512, &[IoSlice::new(&[1; 512])]).unwrap();
    assert!(matches!(index.read(FsBlock(699)), Err(Error::Corrupt(_))));
}

#[test]
fn revocations_of_blocks_that_are_not_in_the_log_take_no_memory() {
    let (_device, map, superblock) = log();
    let mut log = writer(&map, &superblock);
    let revoked: Vec<_> = (5..1_000_000).map(FsBlock).collect();
    write(&mut log, 1, &revoked, 9..10, 1);
    write(&mut log, 2, &[], 4..5, 1);
    let (index, _) = read_log(&map, &superblock, 1 << 20).unwrap();
    assert_eq!(index.blocks().collect::<Vec<_>>(), [(FsBlock(4), 2)]);
    assert!(index.blocks.capacity() < 100);
}

#[test]
fn a_damaged_copy_counts_only_if_no_transaction_revokes_it() {
    let (device, map, superblock) = log();
    let mut log = writer(&map, &superblock);
    let mut write_and_damage = |tid, revoked: &[FsBlock], number| {
        write(&mut log, tid, revoked, number..number + 1, 1);
        let data = u64::from(log.head().get() - 2) * u64::from(BLOCK);
        device.write_at(data + 512, &[IoSlice::new(&[1; 512])]).unwrap();
        read_log(&map, &superblock, 1 << 20)
    };
    assert!(matches!(write_and_damage(1, &[], 9), Err(Error::Corrupt(_))));
    assert!(matches!(write_and_damage(2, &[FsBlock(9)], 10), Err(Error::Corrupt(_))));
    write(&mut log, 3, &[FsBlock(10)], 11..12, 1);
    let (index, found) = read_log(&map, &superblock, 1 << 20).unwrap();
    assert_eq!(found.transactions, 3);
    assert_eq!(index.blocks().collect::<Vec<_>>(), [(FsBlock(11), 3)]);
}

/// Replays a log onto an empty device, and returns the offsets and lengths of the writes, in
/// blocks.
fn replay_onto(home: &Arc<MemDevice>, map: &LogMap, superblock: &JournalSuperblock) -> Vec<(u64, u64)> {
    let recorder = Arc::new(RecordingDevice::new(Arc::clone(home) as Arc<dyn Device>));
    let (index, _) = read_log(map, superblock, 1 << 20).unwrap();
    replay(&(Arc::clone(&recorder) as Arc<dyn Device>), BLOCK, index).unwrap();
    let block = u64::from(BLOCK);
    let mut writes: Vec<_> = recorder
        .log()
        .iter()
        .map(|event| match event {
            Event::Write { offset, bytes } => (offset / block, bytes.len() as u64 / block),
            other => panic!("{other:?}"),
        })
        .collect();
    writes.sort_unstable();
    writes
}

#[test]
fn a_replay_writes_each_block_once_and_consecutive_ones_together() {
    let (_device, map, superblock) = log();
    let mut log = writer(&map, &superblock);
    for tid in 1..=50 {
        write(&mut log, tid.into(), &[], 20..32, tid);
    }
    write(&mut log, 51, &[FsBlock(25)], 40..41, 51);
    let home = Arc::new(MemDevice::new(64 * u64::from(BLOCK)));
    assert_eq!(replay_onto(&home, &map, &superblock), [(20, 5), (26, 6), (40, 1)]);
    let image = home.snapshot();
    for (number, found) in (0..).zip(image.chunks(BLOCK as usize)) {
        let wanted = match number {
            25 => Arc::new(AlignedBuf::zeroed(BLOCK as usize)),
            20..32 => contents(number, 50),
            40 => contents(number, 51),
            _ => Arc::new(AlignedBuf::zeroed(BLOCK as usize)),
        };
        assert!(found == &wanted[..], "block {number}");
    }
}

#[test]
fn a_replay_of_more_blocks_than_memory_may_hold_writes_them_in_parts() {
    let (_device, map, superblock) = log();
    let mut log = writer(&map, &superblock);
    write(&mut log, 1, &[], 300..600, 1);
    write(&mut log, 2, &[], 0..310, 2);
    let home = Arc::new(MemDevice::new(600 * u64::from(BLOCK)));
    let writes = replay_onto(&home, &map, &superblock);
    assert_eq!(writes.iter().map(|(_, blocks)| blocks).sum::<u64>(), 600);
    assert!(writes.len() < 10, "{writes:?}");
    for (number, found) in (0..).zip(home.snapshot().chunks(BLOCK as usize)) {
        let version = if number < 310 { 2 } else { 1 };
        assert!(found == &contents(number, version)[..], "block {number}");
    }
}

#[test]
fn a_copy_is_newer_if_the_log_has_wrapped_around_before_it() {
    let (_device, map, mut superblock) = log_of(12);
    let mut log = writer(&map, &superblock);
    write(&mut log, 1, &[], 0..4, 1);
    // The log begins with the second transaction, at block 7, and the third begins at block 2.
    write(&mut log, 2, &[], 0..4, 2);
    write(&mut log, 3, &[], 0..3, 3);
    superblock.set_sequence(2);
    superblock.set_start(7);
    let home = Arc::new(MemDevice::new(4 * u64::from(BLOCK)));
    assert_eq!(replay_onto(&home, &map, &superblock), [(0, 4)]);
    for (number, found) in (0..).zip(home.snapshot().chunks(BLOCK as usize)) {
        let version = if number < 3 { 3 } else { 2 };
        assert!(found == &contents(number, version)[..], "block {number}");
    }
}

/// jbd2 writes the copies in the order of the log, and checks all of them.
#[test]
fn the_last_of_two_copies_in_one_transaction_counts_and_both_are_checked() {
    let (device, map, superblock) = log();
    let mut log = writer(&map, &superblock);
    let copies = [1, 2].map(|version| contents(5, version));
    let copies = copies.each_ref().map(|bytes| (FsBlock(5), bytes));
    log.write_blocks(1, &[], &copies).unwrap();
    let (index, _) = read_log(&map, &superblock, 1 << 20).unwrap();
    assert_eq!(index.read(FsBlock(5)).unwrap().unwrap()[..], contents(5, 2)[..]);
    // The first copy follows the journal's superblock and the descriptor.
    device.write_at(2 * u64::from(BLOCK) + 512, &[IoSlice::new(&[1; 512])]).unwrap();
    assert!(matches!(read_log(&map, &superblock, 1 << 20), Err(Error::Corrupt(_))));
}

/// A device on which one block cannot be read.
#[derive(Debug)]
struct Unreadable {
    inner: Arc<MemDevice>,
    block: u64,
}

impl Device for Unreadable {
    forward_device!(this => this.inner; size, sector_size, read_only, network, write_at, flush, discard);

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let bad = self.block * u64::from(BLOCK);
        if (offset..offset + len as u64).contains(&bad) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.inner.read_at(offset, bufs)
    }
}

#[test]
fn a_block_that_cannot_be_read_matters_only_if_it_belongs_to_the_log() {
    let (device, map, superblock) = log();
    let mut log = writer(&map, &superblock);
    write(&mut log, 1, &[], 0..6, 1);
    let read_without = |block| {
        let device = Arc::new(Unreadable { inner: Arc::clone(&device), block });
        read_log(&LogMap { device, ..map.clone() }, &superblock, 1 << 20)
    };
    // The transaction occupies 1 to 8, and 9 shows that it is the last one.
    for block in 1..=9 {
        assert!(matches!(read_without(block), Err(Error::Device { .. })), "block {block}");
    }
    for block in 10..20 {
        assert_eq!(read_without(block).unwrap().1.blocks, 6, "block {block}");
    }
}

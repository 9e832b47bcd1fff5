//! Areas of fast commits that are as large as the format permits: many changes, and many large
//! blocks.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use parext4::{Device, Error, MemDevice, MkfsOptions, NewInode, Volume, VolumeOptions, mkfs, replay_journal};
use parext4_format::features::Compat;
use parext4_format::jbd2::JournalSuperblock;
use parext4_format::superblock::Superblock;
use testkit::fast_commit_tags::Tags;
use testkit::volume::{DirectFiles as _, assert_clean, journal_offset, untimed};

/// Blocks of the log.
const LOG: u32 = 1024;

fn read(device: &MemDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(at, &mut [IoSliceMut::new(&mut bytes)]).unwrap();
    bytes
}

fn write(device: &MemDevice, at: u64, bytes: &[u8]) {
    device.write_at(at, &[IoSlice::new(bytes)]).unwrap();
}

/// Returns a volume that crashed with `/file`, a hole, and a full area of `blocks` blocks, which
/// has one fast commit. `fill` gets the inode number of the file.
fn crashed(mib: u64, block_size: u32, blocks: u32, fill: impl FnOnce(&mut Tags, u32)) -> Arc<MemDevice> {
    crashed_with_orphans(0, MkfsOptions::new(), mib, block_size, blocks, fill)
}

/// Like [`crashed`], with this number of orphans.
fn crashed_with_orphans(
    orphans: usize,
    options: MkfsOptions,
    mib: u64,
    block_size: u32,
    blocks: u32,
    fill: impl FnOnce(&mut Tags, u32),
) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(mib << 20));
    let options = options.block_size(block_size).journal_blocks(LOG + 1 + blocks);
    mkfs(&*device, &options.device_is_zero(true)).unwrap();
    let journal_at = journal_offset(&device);
    let raw = &mut read(&device, 1024, 1024);
    let mut superblock = Superblock::parse(raw).unwrap();
    superblock.set_compat(superblock.compat() | Compat::FAST_COMMIT);
    superblock.encode(raw);
    write(&device, 1024, raw);
    let raw = &mut read(&device, journal_at, 1024);
    let mut journal = JournalSuperblock::parse(raw).unwrap();
    journal.set_fast_commit_blocks(blocks);
    journal.encode(raw);
    write(&device, journal_at, raw);

    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    let file = volume.create_direct("/file").unwrap();
    file.set_len(mib << 20).unwrap();
    let ino = file.inode_ref().ino().get();
    drop(file);
    let root = volume.root().unwrap();
    let create = |_| {
        let orphan = root.create(b"orphan", &NewInode::new()).unwrap();
        root.unlink(b"orphan").unwrap();
        orphan
    };
    let orphans: Vec<_> = (0..orphans).map(create).collect();
    volume.sync().unwrap();
    volume.abort().unwrap();
    drop((orphans, root, volume));
    let transactions = replay_journal(Arc::new(device.fork())).unwrap().transactions;
    let tid = JournalSuperblock::parse(&read(&device, journal_at, 1024)).unwrap().sequence() + transactions;
    let mut tags = Tags::new(block_size as usize, tid);
    fill(&mut tags, ino);
    // The fast commit ends in the last block but one.
    tags.fill(blocks as usize - 2);
    tags.tail();
    // One block between the log and the area is not used.
    write(&device, journal_at + u64::from(LOG + 2) * u64::from(block_size), tags.bytes());
    device
}

/// Asserts that both kinds of replay give `/file` these blocks, and leave a sound volume.
fn assert_blocks(device: &Arc<MemDevice>, block_size: u64, blocks: u64) {
    for read_only in [true, false] {
        let options = VolumeOptions::new().commit_interval(None).read_only(read_only);
        let volume = Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &options).unwrap();
        let extents = volume.direct_file("/file").unwrap().fiemap(0..u64::MAX).unwrap();
        let bytes: u64 = extents.iter().map(|extent| extent.len).sum();
        assert_eq!(bytes, blocks * block_size, "read only: {read_only}");
        volume.close().unwrap();
    }
    assert_clean(device, "after the replay");
}

#[test]
fn a_full_area_of_more_than_16_mib_is_replayed() {
    const BLOCK: u32 = 65536;
    let device = crashed(176, BLOCK, 270, |tags, ino| {
        (0..260).for_each(|_| tags.make_room(BLOCK as usize));
        tags.add_range(ino, 0, 3, 1500);
    });
    assert_blocks(&device, BLOCK.into(), 3);
}

#[test]
fn time_of_a_replay_grows_with_the_number_of_changes_of_one_inode_not_with_its_square() {
    const BLOCK: u32 = 4096;
    const TAGS: u32 = 400_000;
    const RUNS: u32 = 10_000;
    let device = crashed(128, BLOCK, 2100, |tags, ino| {
        for nth in 0..TAGS {
            let run = nth % RUNS;
            tags.make_room(20);
            tags.add_range(ino, 2 * run, 1, 8000 + 2 * run);
        }
    });
    assert_blocks(&device, BLOCK.into(), RUNS.into());
}

/// A replay keeps the orphans of the list in memory. Of 131,000, in an image of 16 MiB, they took
/// 300 MiB.
#[test]
fn a_replay_refuses_more_orphans_than_it_keeps_in_memory() {
    const MOST: usize = 16 << 10;
    const BLOCK: u32 = 1024;
    for orphans in [MOST, MOST + 1] {
        let options = MkfsOptions::new().features("^orphan_file").unwrap().inode_ratio(Some(1024));
        let device = crashed_with_orphans(orphans, options, 32, BLOCK, 16, |tags, ino| {
            tags.add_range(ino, 0, 3, 20_000);
        });
        if orphans == MOST {
            assert_blocks(&device, BLOCK.into(), 3);
            continue;
        }
        let open = |read_only| {
            let options = untimed().read_only(read_only);
            Volume::open_device(Arc::new(device.fork()) as Arc<dyn Device>, &options).map(drop)
        };
        for replayed in [open(true), open(false), replay_journal(Arc::new(device.fork())).map(drop)] {
            let refused =
                matches!(&replayed, Err(Error::Unsupported(why)) if why.contains("16384 orphan inodes"));
            assert!(refused, "{replayed:?}");
        }
    }
}

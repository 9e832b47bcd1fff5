//! The cache of inodes, directories and other metadata: its budget, inodes by number, and
//! concurrent reads.

use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parext4::device::{FaultDevice, FaultKind, FaultPlan};
use parext4::server::ServerVolume as _;
use parext4::{
    Device, EmptiedLog, Error, InodeId, InodeRef, MemDevice, MkfsOptions, NewInode, SetAttributes, Volume,
    VolumeOptions, mkfs,
};

use testkit::device::{GatedDevice, HookedDevice, Hooks};
use testkit::volume::{Shape, assert_no_findings};

const BUDGET: usize = 1 << 20;

/// Opens a volume that commits only in `sync` and when a transaction is full.
fn open(device: Arc<dyn Device>) -> Volume {
    let options = VolumeOptions::new().metadata_cache_bytes(BUDGET).commit_interval(None);
    Volume::open_device(device, &options).unwrap()
}

/// Makes a device with a volume that has `count` directories below the root.
fn with_directories(count: u32) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(64 << 20));
    let options = MkfsOptions::new().block_size(1024).inode_ratio(8192);
    mkfs(&*device, &options).unwrap();
    let volume = open(Arc::clone(&device) as _);
    let root = volume.root().unwrap();
    for nth in 0..count {
        root.mkdir(format!("{nth:05}").as_bytes(), &NewInode::new()).unwrap();
    }
    drop(root);
    volume.close().unwrap();
    device
}

fn for_each_entry(dir: &InodeRef, mut visit: impl FnMut(&[u8])) {
    let mut after = 0;
    loop {
        let items = dir.read_dir_after(after).unwrap();
        let Some(last) = items.last() else { return };
        after = last.cookie();
        items
            .iter()
            .filter(|item| !item.name().starts_with(b".") && item.name() != b"lost+found")
            .for_each(|item| visit(item.name()));
    }
}

#[test]
fn a_walk_over_many_directories_stays_within_the_budget() {
    const COUNT: u32 = 1500;
    let volume = open(with_directories(COUNT));
    let root = volume.root().unwrap();
    let (mut visited, mut most) = (0, 0);
    for_each_entry(&root, |name| {
        let dir = root.lookup(name).unwrap();
        for_each_entry(&dir, |_| unreachable!("the directory is empty"));
        visited += 1;
        most = most.max(volume.metadata_cache_stats().bytes);
    });
    assert_eq!(visited, COUNT);
    let stats = volume.metadata_cache_stats();
    // All directories together use many times the budget. A lookup adds at most 16 KiB: the inode,
    // the directory's block, and a block of the inode table. Entries that were used while the last
    // quarter of the budget was charged stay. How many more inodes stay depends on the order of the
    // names, which follows the volume's random hash seed.
    let recent = BUDGET / 4 / (16 << 10);
    assert!(stats.inodes >= recent as u64, "recently used inodes stay: {stats:?}");
    assert!(stats.bytes > (BUDGET - BUDGET / 16) as u64, "the budget is used: {stats:?}");
    assert!(most <= (BUDGET + BUDGET / 2) as u64, "at most {most} bytes, then {stats:?}");
}

#[test]
fn an_inode_is_found_by_number_as_long_as_it_exists() {
    let volume = open(with_directories(0));
    let root = volume.root().unwrap();
    let file = root.create(b"file", &NewInode::new()).unwrap();
    let set = SetAttributes::new().uid(7);
    file.set_attributes(&set).unwrap();
    let id = file.id();
    drop(file);
    volume.sync().unwrap();
    assert_eq!(volume.inode_ref(id).unwrap().metadata().uid, 7);
    assert_eq!(volume.inode_ref(root.id()).unwrap().ino(), root.ino());
    let gone = |id| matches!(volume.inode_ref(id), Err(Error::NotFound(_)));
    let unnamed = |ino| matches!(volume.inode_by_number(ino), Err(Error::NotFound(_)));
    // The journal, a free number, and numbers that do not exist.
    for ino in [0, 8, id.ino.get() + 1, u32::MAX] {
        assert!(gone(InodeId { ino: parext4::InodeNo(ino), generation: 0 }), "{ino}");
        assert!(unnamed(parext4::InodeNo(ino)), "{ino}");
    }
    assert_eq!(volume.inode_by_number(id.ino).unwrap().id(), id, "whatever its generation");
    let held = volume.inode_ref(id).unwrap();
    root.unlink(b"file").unwrap();
    assert_eq!(volume.inode_ref(id).unwrap().metadata().links, 0, "an inode without a name that is in use");
    assert!(unnamed(id.ino));
    drop(held);
    assert!(gone(id), "a deleted inode");
    let next = root.create(b"next", &NewInode::new()).unwrap();
    assert_eq!(next.ino(), id.ino, "the number is reused");
    assert!(gone(id), "another inode of the number");
    assert_eq!(volume.inode_by_number(id.ino).unwrap().id(), next.id());
    assert_eq!(volume.inode_ref(next.id()).unwrap().metadata().uid, 0);
}

#[test]
fn the_read_of_an_inode_delays_no_other_inode() {
    let device = Arc::new(GatedDevice::new(with_directories(0)));
    let volume = open(Arc::clone(&device) as _);
    let root = volume.root().unwrap();
    let create = |nth: u32| root.create(format!("{nth}").as_bytes(), &NewInode::new()).unwrap().id();
    let files: Vec<_> = (0..600).map(create).collect();
    // Some of these inodes share the first one's shard of the cache, and all are in other blocks of
    // the table.
    let (one, others) = (files[0], &files[16..]);
    drop(root);
    volume.close().unwrap();
    let volume = open(Arc::clone(&device) as _);
    let _held: Vec<_> = others.iter().map(|&id| volume.inode_ref(id).unwrap()).collect();
    device.shut();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| volume.inode_ref(one).map(|node| node.id()));
        device.wait_for(1);
        let (send, receive) = mpsc::channel();
        let volume = &volume;
        scope.spawn(move || {
            let found = others.iter().all(|&id| volume.inode_ref(id).is_ok_and(|node| node.id() == id));
            send.send(found)
        });
        let found = receive.recv_timeout(Duration::from_secs(20));
        device.open();
        assert!(found.expect("a lookup waits for the read of another inode"));
        assert_eq!(reading.join().unwrap().unwrap(), one);
    });
}

/// Fails one read.
#[derive(Debug, Default)]
struct FailOneRead(AtomicBool);

impl Hooks for FailOneRead {
    fn read_at(&self, inner: &dyn Device, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        match self.0.swap(false, Ordering::SeqCst) {
            true => Err(io::Error::other("a read that fails")),
            false => inner.read_at(offset, bufs),
        }
    }
}

/// Two inodes share a block. The read for one fails; the other thread waits for that read, and then
/// reads the block itself.
#[test]
fn a_block_is_in_memory_once_after_a_read_that_failed() {
    let memory = with_directories(0);
    let failing = Arc::new(HookedDevice::new(Arc::clone(&memory), FailOneRead::default()));
    let device = Arc::new(GatedDevice::new(Arc::clone(&failing) as _));
    let volume = open(Arc::clone(&device) as _);
    let root = volume.root().unwrap();
    let create = |nth: u32| root.create(format!("{nth}").as_bytes(), &NewInode::new()).unwrap().id();
    let files: Vec<_> = (0..64).map(create).collect();
    // A block of the table has four inodes.
    let first = files.iter().position(|id| id.ino.get() % 4 == 1).unwrap();
    let (one, other) = (files[first], files[first + 1]);
    drop(root);
    volume.close().unwrap();

    let volume = open(Arc::clone(&device) as _);
    // Reads the bitmap.
    volume.inode_ref(files[32]).unwrap();
    device.shut();
    let found = std::thread::scope(|scope| {
        let fails = scope.spawn(|| volume.inode_ref(one).map(drop));
        device.wait_for(1);
        let waits = scope.spawn(|| volume.inode_ref(other));
        // Long enough to reach the block.
        std::thread::sleep(Duration::from_millis(200));
        failing.hooks().0.store(true, Ordering::SeqCst);
        device.open();
        assert!(matches!(fails.join().unwrap(), Err(Error::Device { .. })));
        waits.join().unwrap().unwrap()
    });
    let set = |uid| SetAttributes::new().uid(uid);
    found.set_attributes(&set(2)).unwrap();
    volume.inode_ref(one).unwrap().set_attributes(&set(1)).unwrap();
    drop(found);
    volume.close().unwrap();
    let volume = open(memory);
    let uid = |id| volume.inode_ref(id).unwrap().metadata().uid;
    assert_eq!((uid(one), uid(other)), (1, 2), "a change is lost");
}

/// The device has the old contents of the blocks that a failed commit would have written.
#[test]
fn blocks_of_a_failed_commit_stay_in_memory() {
    for journal in [true, false] {
        let device =
            Arc::new(FaultDevice::new(Arc::new(Shape::new(16, 1024, journal).make()), FaultPlan::default()));
        let options = VolumeOptions::new().metadata_cache_bytes(1).commit_interval(None);
        let volume = Volume::open_device(Arc::clone(&device) as _, &options).unwrap();
        let names = |nth: u32| format!("/{nth}");
        (0..20).for_each(|nth| drop(volume.create_dir(names(nth), 0o755).unwrap()));
        volume.sync().unwrap();
        (20..40).for_each(|nth| drop(volume.create_dir(names(nth), 0o755).unwrap()));
        device.arm(FaultPlan::at(1).kind(FaultKind::Flushes));
        assert!(matches!(volume.sync(), Err(Error::Device { .. })));
        for nth in (0..40).chain(0..40) {
            assert!(volume.exists(names(nth)).unwrap(), "{nth}, with a journal: {journal}");
            assert_eq!(volume.read_dir(names(nth)).unwrap().count(), 0);
        }
    }
}

/// A trim reads the bitmaps of all groups.
#[test]
fn bitmaps_of_groups_that_are_not_in_use_leave_the_memory() {
    const BUDGET: usize = 256 << 10;
    const GROUPS: u64 = 256;
    let device = Arc::new(MemDevice::new(GROUPS << 23));
    mkfs(&*device, &MkfsOptions::new().block_size(1024).device_is_zero(true)).unwrap();
    let options = VolumeOptions::new().metadata_cache_bytes(BUDGET).commit_interval(None);
    let volume = Volume::open_device(Arc::clone(&device) as _, &options).unwrap();
    // Group descriptors stay in memory, as does the root.
    let always = volume.metadata_cache_stats().bytes;
    assert!(volume.trim(0..u64::MAX, 0).unwrap() > GROUPS << 22);
    for nth in 0..100 {
        volume.write(format!("/{nth}"), vec![nth; 3000]).unwrap();
        volume.sync().unwrap();
        volume.empty_journal(EmptiedLog::Kept).unwrap();
    }
    let stats = volume.metadata_cache_stats();
    assert!(
        stats.bytes <= always + (BUDGET + BUDGET / 2) as u64,
        "{always} bytes after the open, then {stats:?}"
    );
    for nth in 0..100 {
        assert_eq!(volume.read(format!("/{nth}")).unwrap(), [nth; 3000]);
    }
    volume.close().unwrap();
    assert_no_findings(&*device, "after an eviction of bitmaps");
}

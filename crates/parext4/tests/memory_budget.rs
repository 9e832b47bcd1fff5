//! Memory that a volume uses while several threads write and read a file much larger than its
//! cache: the peak of the process's resident memory. A test program of its own, so that the process
//! does nothing else.
//!
//! `PAREXT4_MEMORY_MIB` is the size of the file in MiB.

use std::sync::Arc;

use parext4::{DeviceOptions, File, FileDevice, MkfsOptions, Volume, VolumeOptions, mkfs};

use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::DirectFiles as _;

const MIB: u64 = 1 << 20;
/// Budget of the page cache: contents of pages, their states, and the nodes of the trees.
const BUDGET: u64 = 16 * MIB;
/// Budget of the metadata cache.
const METADATA: u64 = MIB;
/// Threads that write and read.
const THREADS: u64 = 4;
/// Includes the background threads: 3 for write-back, 4 for read-ahead, 1 for commits.
const ALL_THREADS: u64 = THREADS + 8;
/// Each thread keeps one request buffer of each power of two up to 1 MiB. A read-ahead has at most
/// a sixteenth of the cache under way.
const BUFFERS: u64 = ALL_THREADS * 2 * MIB + 4 * BUDGET / 16;
/// All other memory: the used part of the stacks, committed blocks that await their checkpoint, the
/// extent map of the file, and the fragmentation of the process's allocator.
const BESIDES: u64 = 8 * MIB;

/// Returns a line of `/proc/self/status`, in bytes.
fn status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Returns the expected word of the file at byte `at`.
fn word(at: u64) -> [u8; 8] {
    (at ^ 0x5eed).to_le_bytes()
}

fn piece(offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len).step_by(8).flat_map(word).collect()
}

/// Runs one thread: writes a quarter of the file, reads it in order, and then reads and overwrites
/// random pieces of it.
fn work(file: &File, thread: u64, size: u64) {
    const LEN: u64 = 128 << 10;
    let part = size / THREADS;
    let pieces = || (0..part / LEN).map(|nth| thread * part + nth * LEN);
    let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
    let mut read = |offset| {
        file.read_at(&mut bytes, offset).expect("read_at");
        assert_eq!(
            (&bytes[..8], &bytes[bytes.len() - 8..]),
            (&word(offset)[..], &word(offset + LEN - 8)[..])
        );
    };
    for offset in pieces() {
        file.write_all_at(&piece(offset, LEN), offset).expect("write_at");
    }
    pieces().for_each(&mut read);
    let mut rng = Rng::new(1, thread);
    for _ in 0..part / LEN {
        let offset = thread * part + rng.below(part / LEN) * LEN;
        match rng.chance(50) {
            true => read(offset),
            false => file.write_all_at(&piece(offset, 4096), offset).expect("write_at"),
        }
    }
}

#[test]
fn a_volume_stays_within_its_memory_limit() {
    let size = settings::memory_mib() * MIB;
    let dir = tempfile::tempdir().unwrap();
    let image = DeviceOptions::new().create(size + size / 8 + 64 * MIB);
    let device = Arc::new(FileDevice::open(dir.path().join("image"), &image).unwrap());
    mkfs(&*device, &MkfsOptions::new()).unwrap();
    let Some(before) = status("VmRSS") else {
        testkit::skipped("memory use: there is no VmRSS in /proc/self/status");
        return;
    };
    let options =
        VolumeOptions::new().cache_bytes(BUDGET).metadata_cache_bytes(usize::try_from(METADATA).unwrap());
    let volume = Volume::open_device(device, &options).unwrap();
    let file = volume.create_direct("/file").unwrap().buffered().unwrap();
    // The threads write at the same time, and read afterwards.
    file.set_len(size).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let file = file.clone();
            scope.spawn(move || work(&file, thread, size));
        }
    });
    file.sync_all().unwrap();
    let stats = volume.cache_stats();
    assert!(stats.evicted > size / 4096, "much more went through the cache than it holds: {stats:?}");
    drop(file);
    volume.close().unwrap();
    let grown = status("VmHWM").unwrap().saturating_sub(before);
    let may = BUDGET + METADATA + BUFFERS + BESIDES;
    eprintln!(
        "{} MiB of {} after a file of {} MiB, from {} MiB",
        grown / MIB,
        may / MIB,
        size / MIB,
        before / MIB
    );
    assert!(grown <= may, "{grown} bytes, more than {may}");
}

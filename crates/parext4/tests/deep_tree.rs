//! A chain of directories as deep as a hostile image can have: walking and removing it must need
//! little memory and no deep stack. A test program of its own, because it measures the peak of the
//! process's resident memory.

use std::sync::Arc;

use parext4::{MemDevice, MkfsOptions, NewInode, Volume, VolumeOptions, mkfs};

/// Directories in the chain. If each level kept its whole path, 400 MB.
const DEPTH: usize = 20_000;
/// Limit of memory for one pass over the chain: 1 KiB for a level, and the caches.
const LIMIT: u64 = (DEPTH as u64 * 1024) + (20 << 20);
/// A fraction of what a thread has by default, so that recursion over the chain fails.
const STACK: usize = 256 << 10;

/// Returns the largest resident memory of the process so far, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Runs `pass` on a small stack, and asserts that it needs little memory.
fn measure(what: &str, pass: impl FnOnce() + Send) {
    let before = peak();
    std::thread::scope(|scope| {
        std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, pass).unwrap().join().unwrap();
    });
    let grown = peak() - before;
    assert!(grown < LIMIT, "{what}: {} MiB", grown >> 20);
}

/// Makes the chain `/d/d/d/...`. Each directory also has a file, which follows the subdirectory in
/// the listing of some.
fn chain() -> Volume {
    let device = Arc::new(MemDevice::new(128 << 20));
    mkfs(&*device, &MkfsOptions::new().block_size(1024).inode_ratio(1024).device_is_zero(true)).unwrap();
    let options = VolumeOptions::new().metadata_cache_bytes(4 << 20).cache_bytes(1 << 20);
    let volume = Volume::open_device(device, &options).unwrap();
    let mut dir = volume.root().unwrap();
    for _ in 0..DEPTH {
        dir.symlink(b"link", b"target", &NewInode::new()).unwrap();
        dir = dir.mkdir(b"d", &NewInode::new().permissions(0o755)).unwrap();
    }
    drop(dir);
    volume
}

#[test]
fn a_deep_chain_needs_memory_for_its_names_only() {
    let volume = chain();
    measure("walk", || {
        let (mut directories, mut links, mut last) = (0, 0, None);
        for entry in volume.walk("/").unwrap() {
            let entry = entry.unwrap();
            match entry.file_name().as_encoded_bytes() {
                b"d" => {
                    directories += 1;
                    last = Some(entry);
                }
                b"link" => links += 1,
                name => assert_eq!(name, b"lost+found"),
            }
        }
        assert_eq!((directories, links), (DEPTH, DEPTH));
        let last = last.unwrap();
        assert_eq!(last.path().as_os_str().len(), 2 * DEPTH);
        assert_eq!(format!("{last:?}").matches("/d").count(), DEPTH - 1, "the path of its directory");
    });
    measure("remove_dir_all", || {
        volume.remove_dir_all("/d").unwrap();
        assert_eq!(volume.read_dir("/").unwrap().count(), 2, "lost+found and link");
    });
    volume.close().unwrap();
}

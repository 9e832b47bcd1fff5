//! A block that is mapped twice: below two indirect blocks of one file, and in two files. Each use
//! of it is an error that is reported or changes only that block, and the block is freed once.

use std::sync::Arc;

use parext4::{DirectFile, Error, MemDevice, Volume};
use testkit::image::Image;
use testkit::volume::{DirectFiles as _, e2fsck, findings, recover, untimed};

const BLOCK: usize = 1024;
/// A file block below the single indirect block, and its place there.
const SINGLE: (u64, usize) = (19, 7);
/// A file block below the first indirect block of the double one, and its place there.
const DOUBLE: (u64, usize) = (273, 5);
/// The blocks of each file.
const BLOCKS: u64 = 300;
const FILES: [&str; 2] = ["/one", "/two"];

/// A volume with two files in which `block` is mapped twice, and a third file.
struct Damaged {
    device: MemDevice,
    /// The free blocks before the damage.
    free: u64,
}

/// Makes [`FILES`] and a third file, and then maps the block [`SINGLE`] of the first file also as
/// block [`DOUBLE`] of the file `other`, whose own block there stays in use. `None` if e2fsprogs
/// are not installed.
fn damaged(other: usize) -> Option<Damaged> {
    let image = Image::mke2fs(8, &["-b", "1024", "-N", "64", "-O", "^extent,^64bit,^metadata_csum"])?;
    let volume = image.open();
    for (nth, path) in FILES.into_iter().chain(["/bystander"]).enumerate() {
        let file = volume.create_direct(path).unwrap();
        for block in 0..BLOCKS {
            file.write_all_at(&content(nth, block), block * BLOCK as u64).unwrap();
        }
    }
    let free = volume.space().free_blocks;
    volume.close().unwrap();
    image.fsck();
    let leaf = |path: &str, block: u64| -> usize {
        let listed = image.debugfs(&format!("stat {path}"));
        let (name, nth) = if block < 268 { ("(IND):", 1) } else { ("(IND):", 2) };
        let number = listed.split(name).nth(nth).and_then(|rest| rest.split([',', '\n']).next());
        number.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("{listed}"))
    };
    let slot = |path, (block, place): (u64, usize)| leaf(path, block) * BLOCK + 4 * place;
    let (from, to) = (slot(FILES[0], SINGLE), slot(FILES[other], DOUBLE));
    let mut bytes = std::fs::read(image.path()).unwrap();
    bytes.copy_within(from..from + 4, to);
    Some(Damaged { device: MemDevice::from_bytes(bytes), free })
}

/// Returns the contents of a block of the file with number `nth`.
fn content(nth: usize, block: u64) -> [u8; BLOCK] {
    let mut bytes = [u8::try_from(nth + 1).unwrap(); BLOCK];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

fn read(file: &DirectFile, block: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    file.read_exact_at(&mut bytes, block * BLOCK as u64).unwrap();
    bytes
}

/// Checks the contents of the third file, and the contents of the file `nth` except for one block.
fn check_others(volume: &Volume, nth: Option<(usize, u64)>, what: &str) {
    let files = [Some((2, u64::MAX)), nth];
    for (nth, twice) in files.into_iter().flatten() {
        let path = FILES.get(nth).copied().unwrap_or("/bystander");
        let file = volume.direct_file(path).unwrap();
        for block in (0..BLOCKS).filter(|block| *block != twice) {
            assert!(read(&file, block) == content(nth, block), "{what}: block {block} of {path}");
        }
    }
}

impl Damaged {
    fn open(&self) -> (Arc<MemDevice>, Volume) {
        let device = Arc::new(self.device.fork());
        let volume = Volume::open_device(Arc::clone(&device) as _, &untimed()).unwrap();
        (device, volume)
    }

    /// Checks what a volume left on `device`: no more blocks are free than `freed` ones, the third
    /// file is whole, and e2fsck repairs the rest.
    fn check_left(&self, device: &Arc<MemDevice>, freed: u64, what: &str) {
        recover(device);
        let volume = Volume::open_device(Arc::clone(device) as _, &untimed().read_only(true)).unwrap();
        let free = volume.space().free_blocks;
        assert!(free <= self.free + freed, "{what}: {free} blocks are free, {} before", self.free);
        check_others(&volume, None, what);
        drop(volume);
        if let Some((status, text)) = e2fsck(device, "-fy") {
            assert!(matches!(status, Some(0 | 1)), "{what}: {text}");
        }
    }
}

fn corrupt<T: std::fmt::Debug>(result: Result<T, Error>, what: &str) {
    assert!(matches!(result, Err(Error::Corrupt(_))), "{what}: {result:?}");
}

#[test]
fn a_read_and_a_write_of_a_block_that_is_mapped_twice_change_no_other_block() {
    for other in [0, 1] {
        let Some(damaged) = damaged(other) else { return };
        let found = findings(&damaged.device);
        assert!(found.iter().any(|line| line.contains("PR_1B_DUP_BLOCK")), "{found:?}");
        let (device, volume) = damaged.open();
        let [one, two] = [FILES[0], FILES[other]].map(|path| volume.direct_file(path).unwrap());
        assert!(read(&two, DOUBLE.0) == read(&one, SINGLE.0));
        one.write_all_at(&[7; BLOCK], SINGLE.0 * BLOCK as u64).unwrap();
        assert!(read(&two, DOUBLE.0) == [7; BLOCK]);
        let buffered = two.buffered().unwrap();
        buffered.write_all_at(&[8; BLOCK], DOUBLE.0 * BLOCK as u64).unwrap();
        buffered.sync_all().unwrap();
        assert!(read(&one, SINGLE.0) == [8; BLOCK]);
        drop((one, two, buffered));
        check_others(&volume, Some((1, DOUBLE.0)), "after the writes");
        volume.close().unwrap();
        damaged.check_left(&device, 0, "after the writes");
    }
}

/// The tree is checked before anything is changed.
#[test]
fn a_truncation_and_a_removal_of_a_file_that_maps_a_block_twice_are_refused() {
    let Some(damaged) = damaged(0) else { return };
    let (device, volume) = damaged.open();
    let file = volume.direct_file(FILES[0]).unwrap();
    let size = file.size();
    corrupt(file.set_len(0), "truncation to nothing");
    corrupt(file.set_len(SINGLE.0 * BLOCK as u64), "truncation to the first of the two places");
    corrupt(volume.remove_file(FILES[0]), "removal");
    corrupt(volume.rename(FILES[1], FILES[0]), "replacement");
    assert_eq!((file.size(), volume.space().free_blocks), (size, damaged.free));
    // The other files are changed as before.
    volume.remove_file(FILES[1]).unwrap();
    drop(file);
    check_others(&volume, Some((0, DOUBLE.0)), "after the refusals");
    volume.close().unwrap();
    damaged.check_left(&device, BLOCKS + 3, "after the refusals");
}

/// The second place is freed in the transaction of the first, and in a later one.
#[test]
fn a_block_that_is_mapped_twice_is_freed_once() {
    let hole = |(block, _): (u64, usize)| block * BLOCK as u64..(block + 1) * BLOCK as u64;
    for (other, synced) in [(0, false), (0, true), (1, false), (1, true)] {
        let Some(damaged) = damaged(other) else { return };
        let what = format!("in file {other}, {}", if synced { "after a sync" } else { "at once" });
        let (device, volume) = damaged.open();
        let [one, two] = [FILES[0], FILES[other]].map(|path| volume.direct_file(path).unwrap());
        one.punch_hole(hole(SINGLE)).unwrap();
        if synced {
            volume.sync().unwrap();
        }
        corrupt(two.punch_hole(hole(DOUBLE)), &what);
        assert!(volume.sync().is_err(), "{what}: the volume goes on");
        drop((one, two));
        check_others(&volume, None, &what);
        let _ = volume.close();
        damaged.check_left(&device, 1, &what);
    }
}

/// The files are removed one after the other.
#[test]
fn a_block_of_two_files_is_freed_with_the_first_of_them() {
    for [first, second] in [[0, 1], [1, 0]] {
        let Some(damaged) = damaged(1) else { return };
        let what = format!("{} first", FILES[first]);
        let (device, volume) = damaged.open();
        volume.remove_file(FILES[first]).unwrap();
        volume.sync().unwrap();
        let free = volume.space().free_blocks;
        let removed = volume.remove_file(FILES[second]).and_then(|()| volume.sync());
        assert!(removed.is_err(), "{what}: the second free is not noticed");
        check_others(&volume, None, &what);
        let _ = volume.close();
        let freed = (free - damaged.free) + BLOCKS + 2;
        damaged.check_left(&device, freed, &what);
    }
}

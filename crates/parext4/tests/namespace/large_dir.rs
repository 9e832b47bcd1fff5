//! Directories with three levels of index, which need `large_dir`.

use std::sync::Arc;

use super::{Error, Image, names, new};
use parext4::device::RecordingDevice;
use parext4::{Device, InodeRef, MemDevice, Volume};
use testkit::crash_states::for_each_crash_state;
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{assert_clean, untimed};

const BLOCK: u64 = 1024;
/// The name that a directory with [`name`]s needs the third level for, with the hash seed of
/// [`before_the_third_level`].
const DEEPENS: u32 = 22_299;

/// Three names of this length fill a block of 1 KiB.
fn name(n: u32) -> Vec<u8> {
    format!("{n:0>250}").into_bytes()
}

/// Links names to `/first`, starting with number `from`, until the tree gets another level: the
/// directory then grows by a leaf and two nodes. Returns the number of the name that it grew for.
fn link_until_deeper(dir: &InodeRef, first: &InodeRef, from: u32) -> u32 {
    let mut size = dir.metadata().size;
    for n in from..65_000 {
        dir.link(&name(n), first).unwrap();
        let grown = dir.metadata().size;
        if grown - size == 3 * BLOCK {
            return n;
        }
        size = grown;
    }
    panic!("the tree never gets a third level");
}

/// Makes a volume with a directory of two levels. The next name gives it the third: the hash seed
/// fixes which names split which blocks.
fn before_the_third_level(features: &str) -> Option<Image> {
    let seed = "hash_seed=6e0ad3ae-7d1d-4f4e-9a52-1d6a7c3ab1f0";
    let image = Image::mke2fs(24, &["-b", "1024", "-N", "256", "-O", features, "-E", seed])?;
    let volume = image.open();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    let first = volume.root().unwrap().create(b"first", &new()).unwrap();
    for n in 0..DEEPENS {
        dir.link(&name(n), &first).unwrap();
    }
    drop((dir, first));
    volume.close().unwrap();
    Some(image)
}

fn open(device: Arc<dyn Device>) -> (Volume, InodeRef, InodeRef) {
    let volume = Volume::open_device(device, &untimed()).unwrap();
    let (dir, first) = (volume.resolve("/dir").unwrap(), volume.resolve("/first").unwrap());
    (volume, dir, first)
}

fn device(image: &Image) -> MemDevice {
    MemDevice::from_bytes(std::fs::read(image.path()).unwrap())
}

/// Returns the number of levels of nodes that the root of `/dir` states, and its byte in the image.
fn levels(image: &Image) -> Option<(u8, usize)> {
    let block: usize = image.debugfs("bmap /dir 0").trim().parse().ok()?;
    let at = block * 1024 + 30;
    Some((std::fs::read(image.path()).unwrap()[at], at))
}

#[test]
fn a_third_level_of_index() {
    let Some(image) = before_the_third_level("large_dir") else { return };
    image.fsck();
    let base = device(&image);
    crashes_while_it_is_added(&base);
    threads_add_it(&base);

    let volume = image.open();
    let (dir, first) = (volume.resolve("/dir").unwrap(), volume.resolve("/first").unwrap());
    assert_eq!(link_until_deeper(&dir, &first, DEEPENS), DEEPENS);
    for n in DEEPENS + 1..DEEPENS + 500 {
        dir.link(&name(n), &first).unwrap();
    }
    drop((dir, first));
    volume.close().unwrap();
    image.fsck();
    assert!(levels(&image).is_none_or(|(levels, _)| levels == 2));

    let text = |n| String::from_utf8(name(n)).unwrap();
    image.with_kernel(|root| {
        let dir = root.join("dir");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), DEEPENS as usize + 500);
        for n in (0..DEEPENS + 500).step_by(50) {
            assert!(dir.join(text(n)).symlink_metadata().is_ok(), "{n}");
            std::fs::remove_file(dir.join(text(n))).unwrap();
        }
        for n in 0..500 {
            std::fs::hard_link(root.join("first"), dir.join(text(40_000 + n))).unwrap();
        }
    });
    image.fsck();
    if image.debugfs("stat /dir").is_empty() {
        return;
    }
    // The kernel has added and removed names, if it mounts images here.
    let volume = image.open();
    let dir = volume.resolve("/dir").unwrap();
    let listed = names(&dir);
    if dir.lookup(&name(0)).is_err() {
        assert!((0..500).all(|n| dir.lookup(&name(40_000 + n)).is_ok()));
        assert_eq!(listed.len(), (DEEPENS + 500) as usize - (DEEPENS as usize + 500).div_ceil(50) + 500);
    }
    for name in &listed {
        dir.unlink(name).unwrap();
    }
    drop(dir);
    volume.remove_dir("/dir").unwrap();
    volume.close().unwrap();
    image.fsck();
}

/// Crashes at any step of the insertions around the one that adds the level: each name that was
/// synced is found, and the tree is sound.
fn crashes_while_it_is_added(base: &MemDevice) {
    let recorded = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let (volume, dir, first) = open(Arc::clone(&recorded) as Arc<dyn Device>);
    let mut synced = vec![(0, 0)];
    for n in 0..3 {
        dir.link(&name(DEEPENS + n), &first).unwrap();
        volume.sync().unwrap();
        synced.push((recorded.events(), n + 1));
    }
    drop((dir, first));
    volume.close().unwrap();
    let mut rng = Rng::new(settings::seed("large_dir"), 0);
    let mut checked = 0;
    for_each_crash_state(&recorded, base, &mut rng, |state| {
        let due = synced.iter().rev().find(|(events, _)| *events <= state.epoch.start).unwrap().1;
        let image = Arc::new(state.image);
        let (volume, dir, first) = open(Arc::clone(&image) as Arc<dyn Device>);
        let found: Vec<_> = (0..3).map(|n| dir.lookup(&name(DEEPENS + n)).is_ok()).collect();
        assert!(found[..due as usize].iter().all(|found| *found), "{}: {found:?}", state.what);
        assert!(found.is_sorted_by(|a, b| a >= b), "{}: {found:?}", state.what);
        dir.link(b"one more", &first).unwrap();
        drop((dir, first));
        volume.close().unwrap();
        if checked % 8 == 0 {
            assert_clean(&image, &state.what);
        }
        checked += 1;
    });
    assert!(checked > 10, "{checked} crash states");
}

/// Threads insert names in parallel while another one lists the directory.
fn threads_add_it(base: &MemDevice) {
    const THREADS: u32 = 4;
    const EACH: u32 = 150;
    let image = Arc::new(base.fork());
    let (volume, dir, first) = open(Arc::clone(&image) as Arc<dyn Device>);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (dir, first) = (&dir, &first);
            scope.spawn(move || {
                for n in 0..EACH {
                    dir.link(&name(DEEPENS + n * THREADS + thread), first).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..3 {
                let listed = names(&dir);
                assert!((0..DEEPENS).step_by(97).all(|n| listed.binary_search(&name(n)).is_ok()));
            }
        });
    });
    assert!(names(&dir).into_iter().eq((0..DEEPENS + THREADS * EACH).map(name)));
    drop((dir, first));
    volume.close().unwrap();
    assert_clean(&image, "threads");
}

/// Trees that no driver makes: operations return errors, and no walk goes in a circle.
#[test]
fn hostile_trees_of_three_levels() {
    let Some(image) = before_the_third_level("large_dir,^metadata_csum") else { return };
    let volume = image.open();
    volume.resolve("/dir").unwrap().link(&name(DEEPENS), &volume.resolve("/first").unwrap()).unwrap();
    volume.close().unwrap();
    let Some((2, at)) = levels(&image) else { return };
    let sound = std::fs::read(image.path()).unwrap();
    let root = at - 30;
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let block_of = |n: usize| -> usize { image.debugfs(&format!("bmap /dir {n}")).trim().parse().unwrap() };
    // The first entry of the root leads to a node, whose first entry leads to a node above leaves.
    let upper = word(&sound, root + 36);
    let upper_at = block_of(upper) * 1024;
    let lower = word(&sound, upper_at + 12);
    let lower_at = block_of(lower) * 1024;
    let leaf = word(&sound, lower_at + 12);

    let damaged = |changes: &[(usize, usize)]| {
        let mut bytes = sound.clone();
        for &(at, value) in changes {
            bytes[at..at + 4].copy_from_slice(&u32::try_from(value).unwrap().to_le_bytes());
        }
        bytes
    };
    let incompat = 1024 + 0x60;
    let without_feature = damaged(&[(incompat, word(&sound, incompat) & !0x4000)]);
    let mut too_deep = sound.clone();
    too_deep[at] = 3;
    let mut shallow = sound.clone();
    shallow[at] = 1;
    let states = [
        ("two levels of nodes without large_dir", without_feature),
        ("three levels of nodes", too_deep),
        ("one level of nodes too few", shallow),
        ("a node leads to itself", damaged(&[(lower_at + 12, lower)])),
        ("a node leads to the one above", damaged(&[(lower_at + 12, upper)])),
        ("the upper node leads to itself", damaged(&[(upper_at + 12, upper)])),
        ("a node leads to the root", damaged(&[(upper_at + 12, 0)])),
        ("a leaf in the place of a node", damaged(&[(upper_at + 12, leaf)])),
        ("a block past the end", damaged(&[(lower_at + 12, 0x0fff_ffff)])),
        ("two entries of the root lead to one node", damaged(&[(root + 36, upper), (root + 44, upper)])),
    ];
    for (what, bytes) in states {
        let (volume, dir, first) = open(Arc::new(MemDevice::from_bytes(bytes)));
        let mut corrupt = 0;
        let mut check = |result: Result<(), Error>| match result {
            Err(Error::Corrupt(_)) => corrupt += 1,
            Ok(()) | Err(Error::NotFound(_) | Error::Exists(_) | Error::NotEmpty(_)) => {}
            Err(error) => panic!("{what}: {error}"),
        };
        for n in (0..DEEPENS).step_by(101) {
            check(dir.lookup(&name(n)).map(drop));
            check(dir.link(&[b"new", &name(n)[..240]].concat(), &first));
        }
        check(volume.root().unwrap().rmdir(b"dir"));
        let (mut after, mut batches) = (0, 0);
        while let Ok(batch) = dir.read_dir_after(after) {
            let Some(last) = batch.last() else { break };
            assert!(last.cookie() > after, "{what}: the listing goes on");
            (after, batches) = (last.cookie(), batches + 1);
        }
        assert!(batches < 30_000, "{what}: the listing ends");
        assert!(corrupt > 0, "{what}: nothing was found");
        drop((dir, first));
        let _ = volume.close();
    }
}

/// Two million names, made by parext4 and found by the kernel, and the reverse. Takes minutes, so
/// it runs only with `PAREXT4_STRESS_ALL=1`.
#[test]
fn two_million_names() {
    const COUNT: u32 = 2_000_000;
    const LINKS: u32 = 60_000;
    if !settings::all() {
        return;
    }
    let name = |n: u32| format!("{n:0>60}");
    let Some(image) = Image::mke2fs(1024, &["-b", "1024", "-N", "256", "-O", "large_dir"]) else { return };
    let volume = image.open();
    let (dir, root) = (volume.create_dir("/dir", 0o755).unwrap(), volume.root().unwrap());
    let target = |n: u32| format!("target-{}", n / LINKS);
    for first in (0..COUNT).step_by(LINKS as usize) {
        let file = root.create(target(first).as_bytes(), &new()).unwrap();
        for n in first..COUNT.min(first + LINKS) {
            dir.link(name(n).as_bytes(), &file).unwrap();
        }
    }
    drop((dir, root));
    volume.close().unwrap();
    image.fsck();
    assert!(levels(&image).is_none_or(|(levels, _)| levels == 2));
    let mut by_kernel = false;
    image.with_kernel(|root| {
        by_kernel = true;
        let dir = root.join("dir");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), COUNT as usize);
        std::fs::create_dir(root.join("other")).unwrap();
        for n in 0..COUNT {
            let old = dir.join(name(n));
            assert!(old.symlink_metadata().is_ok(), "{n}");
            std::fs::rename(old, root.join("other").join(name(n))).unwrap();
        }
    });
    image.fsck();
    let volume = image.open();
    let other = volume.resolve(if by_kernel { "/other" } else { "/dir" }).unwrap();
    assert_eq!(names(&other).len(), COUNT as usize);
    assert!((0..COUNT).all(|n| other.lookup(name(n).as_bytes()).is_ok()));
}

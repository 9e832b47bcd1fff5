//! Crashes around the move of contents out of the inode: a file has the contents of one of its
//! states, and synced ones stay.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use parext4::device::RecordingDevice;
use parext4::{Device, MemDevice, MkfsOptions, NewInode, Volume, XattrMode, mkfs};
use testkit::crash_states::{Timeline, for_each_crash_state};
use testkit::rng::Rng;
use testkit::volume::{assert_clean, assert_recovers, untimed};

const FILES: u64 = 6;
/// e2fsck checks one of this many consecutive crash states.
const SAMPLE: usize = 40;

/// Makes a volume on a device of stale bytes, of which none may be seen: contents that move cover
/// only a part of their block.
fn poisoned() -> MemDevice {
    let device = MemDevice::new(8 << 20);
    device.write_at(0, &[IoSlice::new(&vec![0xa5; 8 << 20])]).unwrap();
    mkfs(&device, &MkfsOptions::new().block_size(1024).features("inline_data").unwrap()).unwrap();
    device
}

/// The contents of each file, and the names in `/dir`.
type State = (BTreeMap<String, Vec<u8>>, usize);

fn read(volume: &Volume) -> State {
    let mut files = BTreeMap::new();
    for number in 0..FILES {
        let path = format!("/file{number}");
        if volume.exists(&path).unwrap() {
            files.insert(path.clone(), volume.read(&path).unwrap());
        }
    }
    let names =
        volume.read_dir("/dir").map_or(0, |entries| entries.inspect(|entry| assert!(entry.is_ok())).count());
    (files, names)
}

/// Changes one file once, with a sync after data that is written in place.
fn change(volume: &Volume, rng: &mut Rng, step: u64) -> bool {
    let path = format!("/file{}", rng.below(FILES));
    let dir = volume.resolve("/dir").unwrap();
    if rng.chance(30) {
        dir.create(format!("name{step}").as_bytes(), &NewInode::new()).unwrap();
        return false;
    }
    if !volume.exists(&path).unwrap() {
        volume.create_file(&path).unwrap();
        return false;
    }
    let file = volume.open_file(&path, &parext4::OpenOptions::read_write()).unwrap();
    let byte = u8::try_from(step % 250 + 1).unwrap();
    match rng.below(10) {
        0 => {
            let note = vec![byte; usize::try_from(rng.below(40)).unwrap()];
            file.inode_ref().set_xattr(b"user.note", &note, XattrMode::Any).unwrap();
            false
        }
        1 if file.size() < 100 => {
            file.set_len(rng.below(100)).unwrap();
            false
        }
        _ => {
            let len = 1 + rng.below(if file.size() > 300 { 1 } else { 70 });
            file.append(&vec![byte; usize::try_from(len).unwrap()]).unwrap();
            file.size() > 100
        }
    }
}

#[test]
fn contents_are_in_one_place_after_a_crash() {
    for seed in [1] {
        let base = poisoned();
        let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
        volume.create_dir("/dir", 0o755).unwrap();
        volume.sync().unwrap();
        let mut rng = Rng::new(seed, 0);
        let mut timeline = Timeline::new(&device, read(&volume));
        for step in 0..70 {
            let must_sync = change(&volume, &mut rng, step);
            timeline.add(read(&volume));
            if must_sync || step % 9 == 8 {
                volume.sync().unwrap();
                timeline.sync();
            }
        }
        volume.close().unwrap();
        let mut nth = 0;
        for_each_crash_state(&device, &base, &mut rng, |crash| {
            let Some(allowed) = timeline.allowed(&crash) else { return };
            nth += 1;
            if nth % SAMPLE == 0 {
                assert_recovers(&crash.image, &crash.what);
            }
            check(crash.image, allowed, &crash.what);
        });
        assert!(nth > 50, "{nth}");
    }
}

fn check(image: MemDevice, allowed: &[State], what: &str) {
    let image = Arc::new(image);
    let volume = Volume::open_device(Arc::clone(&image) as Arc<dyn Device>, &untimed()).unwrap();
    let (files, names) = read(&volume);
    for number in 0..FILES {
        let path = format!("/file{number}");
        let found = files.get(&path);
        let fits = allowed.iter().any(|(files, _)| files.get(&path) == found);
        assert!(fits, "{what}: {path} has {found:?}");
    }
    assert!(allowed.iter().any(|(_, count)| *count == names), "{what}: {names} names");
    volume.close().unwrap();
    if what.ends_with("none of them") {
        assert_clean(&image, what);
    }
}

//! Files that are replaced without a sync, by a rename or after a truncation to zero: a crash
//! leaves the old contents or the new ones, whole.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::device::RecordingDevice;
use parext4::{Device, File, MemDevice, RenameMode, SetAttributes, Volume, VolumeOptions};

use testkit::crash_states::{CrashState, for_each_crash_state};
use testkit::rng::Rng;
use testkit::volume::{DirectFiles as _, Shape, assert_recovers, untimed};

const TARGET: &str = "/d/target";
const NEW: &str = "/d/new";
const ELSEWHERE: &str = "/e/new";
const OTHER: &str = "/other";

fn old() -> Vec<u8> {
    vec![1; 30_000]
}

fn new() -> Vec<u8> {
    vec![2; 200_100]
}

/// Returns options without timed commits and without background write-back.
fn without_threads() -> VolumeOptions {
    untimed().write_back_interval(None)
}

fn open(device: Arc<dyn Device>, options: &VolumeOptions) -> Volume {
    Volume::open_device(device, options).expect("the volume opens")
}

fn buffered(volume: &Volume, path: &str) -> File {
    let file = volume.direct_file(path).or_else(|_| volume.create_direct(path)).expect("the file");
    file.buffered().expect("buffered")
}

fn contents(volume: &Volume, path: &str) -> Option<Vec<u8>> {
    let file = volume.direct_file(path).ok()?.buffered().expect("buffered");
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
    file.read_at(&mut bytes, 0).expect("read_at");
    Some(bytes)
}

/// Commits without writing back.
fn commit(volume: &Volume) {
    let other = volume.direct_file(OTHER).unwrap();
    let set = SetAttributes::new().permissions(0o600);
    other.inode_ref().set_attributes(&set).expect("set_attributes");
    other.sync_all().expect("sync_all");
}

fn dirty(volume: &Volume) -> u64 {
    volume.cache_stats().dirty
}

/// Makes a volume with the old file.
fn prepare() -> MemDevice {
    let device = Arc::new(Shape::new(16, 4096, true).make_poisoned());
    let volume = open(Arc::clone(&device) as Arc<_>, &untimed());
    volume.create_dir("/d", 0o755).expect("mkdir");
    volume.create_dir("/e", 0o755).expect("mkdir");
    volume.create_direct(OTHER).expect("create");
    buffered(&volume, TARGET).write_all_at(&old(), 0).expect("write_at");
    volume.close().expect("close");
    device.fork()
}

/// Replaces the target by `replace`, commits, and checks every crash state. Each of `names` must
/// have one of the contents, and after the commit `then`.
fn check(options: &VolumeOptions, then: &[(&str, &[u8])], replace: impl FnOnce(&Volume)) {
    let base = prepare();
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let volume = open(Arc::clone(&device) as Arc<dyn Device>, options);
    replace(&volume);
    commit(&volume);
    let committed = device.events();
    let mut count = 0;
    for_each_crash_state(&device, &base, &mut Rng::new(1, 1), |CrashState { epoch, image, what }| {
        count += 1;
        check_state(&Arc::new(image), then, epoch, committed, &format!("{what} ({count})"));
    });
}

fn check_state(
    image: &Arc<MemDevice>,
    then: &[(&str, &[u8])],
    epoch: Range<usize>,
    committed: usize,
    what: &str,
) {
    if what.ends_with("0)") {
        assert_recovers(image, what);
    }
    let volume = open(Arc::clone(image) as Arc<dyn Device>, &untimed());
    for (name, expected) in then {
        let Some(found) = contents(&volume, name) else {
            assert!(epoch.start < committed, "{what}: {name} is lost");
            continue;
        };
        let whole = found == *expected || epoch.start < committed && (found == old() || found == new());
        let (len, first) = (found.len(), found.first());
        assert!(whole, "{what}: {name} has {len} bytes, which begin with {first:?}");
    }
}

/// Writes the new contents to a file, which stays open.
fn write_new(volume: &Volume, path: &str) -> File {
    let file = buffered(volume, path);
    file.write_all_at(&new(), 0).expect("write_at");
    assert!(dirty(volume) > 0, "nothing is dirty");
    file
}

#[test]
fn a_rename_over_a_file() {
    check(&without_threads(), &[(TARGET, &new())], |volume| {
        let _file = write_new(volume, NEW);
        volume.rename(NEW, TARGET).expect("rename");
    });
}

#[test]
fn a_rename_over_a_file_of_another_directory() {
    check(&without_threads(), &[(TARGET, &new())], |volume| {
        let _file = write_new(volume, ELSEWHERE);
        volume.rename(ELSEWHERE, TARGET).expect("rename");
    });
}

/// Exchanges the target with a file.
fn exchange(volume: &Volume, path: &str) {
    let (dir, name) = path.rsplit_once('/').unwrap();
    let (from, to) = (volume.resolve(dir).unwrap(), volume.resolve("/d").unwrap());
    from.rename(name.as_bytes(), &to, b"target", RenameMode::Exchange).expect("rename");
}

#[test]
fn an_exchange() {
    for path in [NEW, ELSEWHERE] {
        check(&without_threads(), &[(TARGET, &new()), (path, &old())], |volume| {
            // The other file of the exchange was also just written.
            buffered(volume, TARGET).write_all_at(&old(), 0).expect("write_at");
            let _file = write_new(volume, path);
            exchange(volume, path);
        });
    }
}

#[test]
fn a_cut_to_nothing() {
    check(&without_threads(), &[(TARGET, &new())], |volume| {
        let file = buffered(volume, TARGET);
        file.set_len(0).expect("set_len");
        drop(write_new(volume, TARGET));
        assert_eq!(dirty(volume), 0);
    });
}

#[test]
fn a_cut_to_nothing_with_threads() {
    let options = untimed().write_back_interval(Duration::from_hours(1));
    check(&options, &[(TARGET, &new())], |volume| {
        volume.direct_file(TARGET).unwrap().set_len(0).expect("set_len");
        drop(write_new(volume, TARGET));
        let deadline = Instant::now() + Duration::from_secs(20);
        while dirty(volume) > 0 {
            assert!(Instant::now() < deadline, "the file is not written back");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Renames that replace nothing, and closes, do not wait for data.
#[test]
fn a_rename_that_replaces_nothing_writes_nothing_back() {
    let volume = open(Arc::new(prepare()), &without_threads());
    drop(write_new(&volume, NEW));
    let pages = dirty(&volume);
    volume.rename(NEW, "/d/free").expect("rename");
    volume.rename("/d/free", ELSEWHERE).expect("rename");
    assert_eq!(dirty(&volume), pages);
    volume.rename(TARGET, OTHER).expect("rename");
    assert_eq!(dirty(&volume), pages);
    // A file without contents is not replaced, either.
    let file = buffered(&volume, "/empty");
    file.set_len(0).expect("set_len");
    file.write_all_at(&[3; 100], 0).expect("write_at");
    drop(file);
    assert!(dirty(&volume) > pages);
}

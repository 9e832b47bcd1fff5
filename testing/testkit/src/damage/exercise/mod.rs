//! Reads, checks, recovers and changes a damaged volume. Every call may fail; none may panic, hang,
//! or need much memory.

mod change;
mod look;
mod make;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parext4::{Device, MemDevice, Result, Volume, VolumeOptions, replay_in_memory, replay_journal};
use parext4_check::{CheckOptions, check};

use crate::volume::{assert_clean, assert_no_findings, e2fsck};

use change::change;
use look::look;
use make::{NEW, make};

/// Memory of the process above twice the image that one volume may need, in bytes.
pub const BUDGET: u64 = 64 << 20;
/// The most files that are changed, and the most of one directory.
const MAX_CHANGED: (usize, usize) = (80, 25);

/// Uses the volume on `device` in every way. Returns true if it could be opened for writing.
///
/// # Panics
/// If e2fsck accepted the volume before it was changed, and not afterwards.
pub fn exercise(device: MemDevice) -> bool {
    let bytes = Arc::new(device);
    let device: Arc<dyn Device> = Arc::clone(&bytes) as _;
    let is_sound = check_volume(&device) && is_accepted(&bytes);
    let options =
        VolumeOptions::new().cache_bytes(4 << 20).metadata_cache_bytes(4 << 20).commit_interval(None);
    if let Ok(volume) = Volume::open_device(Arc::clone(&device), &options.clone().read_only(true)) {
        look(&volume);
    }
    let Ok(volume) = Volume::open_device(Arc::clone(&device), &options) else { return false };
    let paths = look(&volume);
    let is_sound = is_sound && !confuses_e2fsck(&volume, &paths);
    // Changes of one part of the volume must not depend on another part that is damaged.
    let _ = make(&volume);
    for path in chosen(&paths) {
        let _ = change(&volume, path);
    }
    for path in ["/many", "/dir", "/enc", "/tight", "/folded", NEW] {
        let _ = volume.remove_dir_all(path);
    }
    let _ = volume.sync();
    let _ = volume.trim(0..u64::MAX, 0);
    let is_closed = volume.close().is_ok();
    check_volume(&device);
    if is_sound && is_closed {
        assert_clean(&bytes, "a volume that e2fsck accepted before it was changed");
        assert_no_findings(&*device, "a volume that e2fsck accepts");
    }
    true
}

/// Returns true if a volume with directories that ignore case has a name that is not UTF-8. e2fsck
/// 1.47.0 cannot hash it there, and may report the index as damaged once the names have moved.
fn confuses_e2fsck(volume: &Volume, paths: &[PathBuf]) -> bool {
    volume.info().features.iter().any(|name| name == "casefold")
        && paths.iter().any(|path| path.to_str().is_none())
}

/// Returns paths of entries of many directories.
fn chosen(paths: &[PathBuf]) -> Vec<&Path> {
    let (most, most_of_one) = MAX_CHANGED;
    let mut changed = BTreeMap::new();
    let mut chosen: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
    chosen.retain(|path| {
        let of_directory = changed.entry(path.parent()).or_insert(0);
        *of_directory += 1;
        *of_directory <= most_of_one
    });
    chosen.truncate(most);
    chosen
}

/// Checks the volume as the command does: after a replay in memory, if that succeeds. Returns true
/// if it has no findings then.
fn check_volume(device: &Arc<dyn Device>) -> bool {
    let options = CheckOptions::new().threads(2).limit(100);
    let mut report = check(&**device, &options);
    let Ok((view, replayed)) = replay_in_memory(Arc::clone(device)) else { return false };
    if replayed.transactions > 0 {
        report = check(&*view, &options.is_replayed(true));
    }
    report.refused.is_none() && report.findings.is_empty()
}

/// Returns true if e2fsck finds no error once the log is replayed.
fn is_accepted(device: &MemDevice) -> bool {
    let copy = Arc::new(device.fork());
    let is_replayed = replay_journal(Arc::clone(&copy) as Arc<dyn Device>).is_ok();
    is_replayed && e2fsck(&copy, "-fn").is_some_and(|(status, _)| status == Some(0))
}

/// Runs all steps. Each may fail without an effect on the next.
fn each<const N: usize>(steps: [&dyn Fn() -> Result<()>; N]) {
    for step in steps {
        let _ = step();
    }
}

//! Multi-mount protection: what commands print about it.

use std::path::Path;

use parext4::device::Sharing;
use parext4::mmp::{self, MmpOptions, MmpState, MmpUse};
use parext4::{Device, Volume};
use serde_json::{Value, json};

/// Returns the options of a volume on `image`.
pub fn options(image: &Path) -> MmpOptions {
    MmpOptions::new().device_name(image.display().to_string())
}

/// Prints how long opening the volume takes, if it waits for another machine.
pub fn announce_wait(image: &Path, device: &dyn Device, read_only: bool) {
    // Opening the volume reports errors.
    let Ok(Some(state)) = mmp::read(device) else { return };
    let waits = match device.sharing() {
        Sharing::Immutable => false,
        _ => !device.has_fenced(),
    };
    if state.usage != MmpUse::InUse || !waits {
        return;
    }
    let seconds = state.stale_after().as_secs() * if read_only { 1 } else { 2 };
    let image = image.display();
    crate::error::say(&format!(
        "{image}: in use, or not closed ({state}); waiting up to {seconds} seconds to find out"
    ));
}

/// Prints what to expect of a volume that another machine changes.
pub fn warn_reader(image: &Path, volume: &Volume) {
    if let Some(live) = volume.info().live {
        crate::error::say(&format!("warning: {}: {}", image.display(), live.warn_reader()));
    }
}

/// Describes the state of the protection in one line.
pub fn describe(state: &MmpState) -> String {
    let interval = state.update_interval;
    match state.usage {
        MmpUse::Clean => format!("not in use; update interval {interval} s"),
        MmpUse::Fsck => format!("checked by e2fsck: {state}; update interval {interval} s"),
        _ => format!("in use: {state}; update interval {interval} s"),
    }
}

/// Returns the state of the protection as JSON.
pub fn to_json(state: &MmpState) -> Value {
    let usage = match state.usage {
        MmpUse::Clean => "clean",
        MmpUse::Fsck => "fsck",
        _ => "in-use",
    };
    let updated = i64::try_from(state.time).ok().filter(|time| *time > 0);
    json!({
        "state": usage,
        "node": state.node,
        "device": state.device,
        "updated": updated.and_then(|time| jiff::Timestamp::from_second(time).ok()).map(|time| time.to_string()),
        "update_interval": state.update_interval,
        "check_interval": state.check_interval,
        "sequence": state.sequence,
    })
}

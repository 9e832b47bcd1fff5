//! Waits to take a volume over from another machine, and opens it.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use parext4::{DeviceOptions, Volume};
use parext4_mount::{MountOptions, StandbyClaim};
use parext4_standby::{Standby, Step};

use super::signals::{Signals, Stage};
use crate::mmp;

/// Blocks until the owner of the volume is gone, and opens the volume. Calls `ready` once the
/// standby waits.
pub fn take_over(
    image: &Path,
    device: DeviceOptions,
    options: &MountOptions,
    dir: &Path,
    signals: &Signals,
    mut ready: impl FnMut() -> Result<()>,
) -> Result<Volume> {
    ensure!(!options.read_only, "a standby writes; mount with \"ro\" and without standby to only read");
    ensure!(options.journal.is_none(), "a standby cannot take over a volume with a journal device");
    let Some(claim) = StandbyClaim::new(dir).with_context(|| dir.display().to_string())? else {
        bail!("{}: another standby waits to mount there", dir.display());
    };
    let volume = options.open_options().mmp(mmp::options(image));
    let standby = Standby::new(image.as_os_str(), device, volume);
    let volume = standby.take_over(|step| match step {
        Step::TakesOver => signals.enter(Stage::Opens),
        _ => {
            signals.enter(Stage::StandsBy);
            if let Err(error) = ready() {
                ::log::warn!("{error:#}");
            }
        }
    });
    // Held until here, so that one process at a time waits for the directory.
    drop(claim);
    volume.with_context(|| image.display().to_string())
}

//! Reads back what the demo wrote, after the volume was closed, and runs e2fsck.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use parext4::device::{AlignedBuf, Direct};
use parext4::{DeviceOptions, DirectFile, OpenOptions, Volume, VolumeOptions};
use parext4_storage::open_device;

use super::BLOCK;
use super::pattern::Stamp;
use super::writer::Writer;
use crate::interrupt;

/// Blocks read at a time.
const BATCH: usize = 256;

/// The result of e2fsck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fsck {
    Clean,
    /// e2fsck found errors; its output.
    Faults(String),
    NotInstalled,
}

/// The results of all checks.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Blocks read back.
    pub blocks: u64,
    /// Blocks whose contents are not as written.
    pub wrong: u64,
    /// Description of the first wrong block.
    pub first_fault: Option<String>,
    pub fsck: Fsck,
}

impl Checked {
    /// Returns true if no check failed.
    pub fn is_clean(&self) -> bool {
        self.wrong == 0 && !matches!(self.fsck, Fsck::Faults(_))
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(fault) = &self.first_fault {
            write!(f, "{} of {} blocks are not as written, first: {fault}; ", self.wrong, self.blocks)?;
        }
        match &self.fsck {
            Fsck::Clean => write!(f, "e2fsck found nothing"),
            Fsck::Faults(output) => write!(f, "e2fsck found: {}", output.trim().replace('\n', "; ")),
            Fsck::NotInstalled => write!(f, "e2fsck is not installed"),
        }
    }
}

/// Opens the image again, reads every block back, and runs e2fsck.
pub fn check(image: &Path, writers: &[Writer], direct: bool) -> Result<Checked> {
    let direct = if direct { Direct::Always } else { Direct::Never };
    let device = open_device(image, &DeviceOptions::new().read_only(true).direct(direct))?;
    let volume = Volume::open_device(device, &VolumeOptions::new().read_only(true))
        .context("opening the volume again")?;
    let mut files = BTreeMap::<&Path, Vec<Stamp>>::new();
    for writer in writers {
        files.entry(&writer.path).or_default().extend(writer.written());
    }
    let mut checked = Checked { blocks: 0, wrong: 0, first_fault: None, fsck: Fsck::NotInstalled };
    for (path, mut stamps) in files {
        stamps.sort_unstable_by_key(|stamp| stamp.block);
        let file = volume.open_direct(path, &OpenOptions::new().read(true))?;
        checked
            .read_back(&file, path, &stamps)
            .with_context(|| format!("reading {} back", path.display()))?;
    }
    volume.close()?;
    checked.fsck = fsck(image)?;
    Ok(checked)
}

impl Checked {
    /// Reads the blocks of `stamps`, which are in ascending order.
    fn read_back(&mut self, file: &DirectFile, path: &Path, stamps: &[Stamp]) -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(BATCH * BLOCK);
        for batch in stamps.chunk_by(|a, b| a.block as usize / BATCH == b.block as usize / BATCH) {
            interrupt::check()?;
            let first = batch[0].block as usize / BATCH * BATCH;
            buffer.fill(0);
            file.read_at(&mut buffer, first as u64 * BLOCK as u64)?;
            for stamp in batch {
                self.blocks += 1;
                let start = (stamp.block as usize - first) * BLOCK;
                if let Some(fault) = stamp.fault(&buffer[start..start + BLOCK]) {
                    self.wrong += 1;
                    let fault = || format!("{} block {}: {fault}", path.display(), stamp.block);
                    self.first_fault.get_or_insert_with(fault);
                }
            }
        }
        Ok(())
    }
}

/// Runs e2fsck in read-only mode.
fn fsck(image: &Path) -> Result<Fsck> {
    // PATH often lacks /usr/sbin for users other than root.
    for program in ["e2fsck", "/usr/sbin/e2fsck", "/sbin/e2fsck"] {
        let output = Command::new(program).args(["-f", "-n"]).arg(image).stdin(Stdio::null()).output();
        return match output {
            Ok(output) if output.status.success() => Ok(Fsck::Clean),
            Ok(output) => Ok(Fsck::Faults(String::from_utf8_lossy(&output.stdout).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => Err(error).context("running e2fsck"),
        };
    }
    Ok(Fsck::NotInstalled)
}

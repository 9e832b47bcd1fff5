//! `takeover`: fences the owner of a volume.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use parext4::DeviceOptions;
use parext4_standby::{Forced, Mmp, force};

use crate::output;

/// Fence the machine that has a volume on the network open, whether it is alive or not
///
/// From then on the storage refuses every write of that machine, which loses what its programs have
/// not synced. Replays the journal and closes the volume, so that any machine can mount it; a
/// standby does at once. Without a fence (NBD), an owner that runs parext4 stops when it next reads
/// its MMP block; the command waits for that and fails if the owner goes on.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A URL, or a block device that several machines share
    image: PathBuf,
    /// Offset of the volume in the image, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let options = DeviceOptions::new().offset(args.offset);
    let image = args.image.display();
    let taken = force(args.image.as_os_str(), &options).with_context(|| image.to_string())?;
    output::print(|out| Ok(writeln!(out, "{image}: {}", describe(&taken))?))
}

fn describe(Forced { before, is_fenced, .. }: &Forced) -> String {
    match (is_fenced, &before.lock, &before.mmp) {
        (true, ..) => format!("taken from {before}; replayed and closed"),
        (false, None, Mmp::Closed | Mmp::Absent) => "had no owner, and is closed".to_owned(),
        (false, None, _) => format!("taken from {before}, without a fence; replayed and closed"),
        (false, Some(_), _) => format!("{before} has released its lock by itself; replayed and closed"),
    }
}

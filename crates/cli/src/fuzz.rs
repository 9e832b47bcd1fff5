//! Gives the bytes of a fuzzer to the parsers of the command line and of the files that it names:
//! arguments, archives, manifests and partition tables.

mod archive;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use clap::Parser;
use parext4::{MemDevice, MkfsOptions, NewInode, Volume, VolumeOptions, mkfs};
use parext4_check::{CheckOptions, check};
use parext4_copy::{CopyOptions, Error, Input, ModeRule, Observer, Put, apply_manifest};
use parext4_mount::MountOptions;
use parext4_storage::{Location, partitions, split_partition};

use crate::cli::Cli;
use crate::image_path::ImagePath;
use crate::mkfs::keywords;
use crate::size;

/// Parses what `bytes` stand for: a byte that chooses the parser, and its input. Returns the volume
/// that was made or changed.
///
/// # Panics
/// If a parser does, or leaves a volume with errors.
pub fn run(bytes: &[u8]) -> Option<MemDevice> {
    let (first, rest) = bytes.split_first()?;
    let volume = match first % 5 {
        0 => command_line(rest),
        1 => Some(put(&archive::compose(rest), false)),
        2 => Some(put(rest, true)),
        3 => {
            words_of_options(rest);
            None
        }
        _ => {
            partition_table(rest);
            None
        }
    };
    if let Some(device) = &volume {
        let report = check(device, &CheckOptions::new().threads(1));
        assert!(report.refused.is_none() && report.findings.is_empty(), "{:?}", report.findings);
    }
    volume
}

/// Parses arguments that are separated by zero bytes, and makes the volume that they describe.
fn command_line(bytes: &[u8]) -> Option<MemDevice> {
    let words = bytes.split(|byte| *byte == 0).map(OsStr::from_bytes);
    let cli = Cli::try_parse_from(std::iter::once(OsStr::new("parext4")).chain(words)).ok()?;
    cli.prepare().ok().flatten()
}

/// Parses words that are separated by zero bytes in every way.
fn words_of_options(bytes: &[u8]) {
    for word in bytes.split(|byte| *byte == 0) {
        let word = OsStr::from_bytes(word);
        let _ = (ImagePath::split(word), Location::parse(word), split_partition(word));
        let text = word.to_string_lossy();
        let _ =
            (size::parse(&text), keywords::extended(&text), keywords::journal(&text), keywords::id(&text));
        let _ = (keywords::on_error(&text), keywords::volume_size(&text, Some(1024)));
        let _ = text.parse::<ModeRule>().map(|rule| rule.apply(0o644, true));
        let _ = (MkfsOptions::new().features(&text), MkfsOptions::new().usage(&text));
        let _ = (MountOptions::new().add(&text), MountOptions::without_effect(&text).count());
    }
}

/// Reads the partition table of a disk that begins with `bytes`.
fn partition_table(bytes: &[u8]) {
    let mut disk = bytes.to_vec();
    disk.resize(bytes.len().next_multiple_of(512) + (64 << 10), 0);
    if let Some(signature) = disk.get_mut(510..512) {
        signature.copy_from_slice(&[0x55, 0xaa]);
    }
    let _ = partitions("disk", &MemDevice::from_bytes(disk));
}

/// Unpacks an archive into a volume, or applies a manifest to it.
fn put(bytes: &[u8], is_manifest: bool) -> MemDevice {
    let device = Arc::new(sound());
    let options = VolumeOptions::new().cache_bytes(1 << 20).commit_interval(None);
    let volume = Volume::open_device(Arc::clone(&device) as _, &options).expect("the volume opens");
    let input = Input::reader(bytes, "input");
    let _ = match is_manifest {
        true => apply_manifest(&volume, Path::new("/"), input),
        false => {
            Put::new(&volume, "/").options(CopyOptions::new().observer(&GoesOn)).unpack([input]).map(|_| ())
        }
    };
    volume.close().expect("the volume is closed");
    device.fork()
}

/// Has a copy go on after the error of each file.
struct GoesOn;

impl Observer for GoesOn {
    fn failed(&self, _: Error) -> Result<(), Error> {
        Ok(())
    }
}

/// Returns a volume with entries that archives and manifests name.
fn sound() -> MemDevice {
    static SOUND: OnceLock<MemDevice> = OnceLock::new();
    let make = || -> parext4::Result<MemDevice> {
        let device = Arc::new(MemDevice::new(8 << 20));
        mkfs(&*device, &MkfsOptions::new().block_size(1024).device_is_zero(true))?;
        let volume = Volume::open_device(Arc::clone(&device) as _, &VolumeOptions::new())?;
        volume.create_dir("/d", 0o755)?;
        volume.write("/f", "contents")?;
        volume.root()?.symlink(b"s", b"d", &NewInode::new())?;
        volume.root()?.symlink(b"loop", b"loop", &NewInode::new())?;
        volume.close()?;
        Ok(device.fork())
    };
    SOUND.get_or_init(|| make().expect("a sound volume")).fork()
}

#[cfg(test)]
mod tests;

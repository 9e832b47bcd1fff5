//! `mkfs`: makes an empty volume.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use parext4::device::{Direct, signature};
use parext4::mkfs::Summary;
use parext4::mmp::{self, MmpUse};
use parext4::storage::{Location, open_device};
use parext4::{Device, DeviceOptions, MkfsOptions};
use serde_json::json;
use uuid::Uuid;

use crate::{image, in_use, json, output, size};

/// Make an ext4 volume in an image file, on a block device or on a device of the network
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image file, created if it does not exist, or a block device or URL
    image: PathBuf,
    /// Size such as 512M or 4G; by default that of the existing file or device
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
    /// Bytes of a block: 1024, 2048 or 4096
    #[arg(long, value_parser = size::parse)]
    block_size: Option<u64>,
    /// Name of the volume, at most 16 bytes
    #[arg(long, default_value = "")]
    label: String,
    /// UUID of the volume; random by default
    #[arg(long)]
    uuid: Option<Uuid>,
    /// Bytes of the volume for each inode
    #[arg(long, value_parser = size::parse)]
    inode_ratio: Option<u64>,
    /// Make no journal: a crash may then leave an inconsistent volume
    #[arg(long)]
    no_journal: bool,
    /// Features to add, or with ^ to leave out, separated by commas. mmp: one machine at a time can open the volume for
    /// writing; on by default on devices of a network. inline_data: contents of small files lie in their inodes
    #[arg(short = 'O', long, value_name = "LIST", value_parser = features)]
    features: Option<Features>,
    /// Extended options, separated by commas: mmp_update_interval=SECONDS, the time between two signs of life of the machine
    /// that uses a volume with mmp, 1 to 300
    #[arg(short = 'E', value_name = "OPTIONS", value_parser = extended)]
    extended: Option<Extended>,
    /// Overwrite a file system, a partition table or another volume that the device holds. A device that is in use
    /// is never overwritten
    #[arg(long)]
    force: bool,
    /// Print the summary as JSON, with the fields that docs/json.md lists
    #[arg(long)]
    json: bool,
}

/// The features of `-O` that the command knows.
#[derive(Clone, Copy, Debug, Default)]
struct Features {
    mmp: Option<bool>,
    inline_data: bool,
}

fn features(list: &str) -> Result<Features> {
    let mut features = Features::default();
    for word in list.split(',') {
        match word.strip_prefix('^').map_or((true, word), |name| (false, name)) {
            (wanted, "mmp") => features.mmp = Some(wanted),
            (wanted, "inline_data") => features.inline_data = wanted,
            (_, name) => bail!("feature {name:?} cannot be chosen, only inline_data and mmp"),
        }
    }
    Ok(features)
}

/// The options of `-E` that the command knows.
#[derive(Clone, Copy, Debug, Default)]
struct Extended {
    mmp_update_interval: Option<u16>,
}

fn extended(list: &str) -> Result<Extended> {
    let mut extended = Extended::default();
    for word in list.split(',') {
        match word.split_once('=') {
            Some(("mmp_update_interval", seconds)) => {
                extended.mmp_update_interval = Some(seconds.parse().context("mmp_update_interval")?);
            }
            _ => bail!("option {word:?} is unknown; there is mmp_update_interval=SECONDS"),
        }
    }
    Ok(extended)
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let block_size = args.block_size.map(u32::try_from).transpose().context("--block-size")?;
    let mut options = MkfsOptions::new()
        .block_size(block_size)
        .label(args.label)
        .uuid(args.uuid.map(Uuid::into_bytes))
        .inode_ratio(args.inode_ratio)
        .journal(!args.no_journal)
        .inline_data(args.features.is_some_and(|features| features.inline_data))
        .mmp(args.features.and_then(|features| features.mmp));
    if let Some(seconds) = args.extended.and_then(|extended| extended.mmp_update_interval) {
        options = options.mmp_update_interval(seconds);
    }
    let created = !exists(&args.image)?;
    let (device, is_zero) = open(&args.image, args.size, args.force)?;
    options.device_is_zero = is_zero;
    let summary = match parext4::mkfs(&*device, &options) {
        Ok(summary) => summary,
        Err(error) => {
            if created {
                let _ = std::fs::remove_file(&args.image);
            }
            return Err(error).with_context(|| args.image.display().to_string());
        }
    };
    if args.json { print_json(&args.image, &summary) } else { print(&args.image, &summary) }
}

/// Opens the device that will hold the volume. Returns true with it if all its bytes are known to be zero.
///
/// Opens it through the page cache, because a volume may have smaller blocks than the device has sectors.
fn open(image: &Path, size: Option<u64>, force: bool) -> Result<(Arc<dyn Device>, bool)> {
    let options = DeviceOptions::new().direct(Direct::Never);
    if !exists(image)? {
        let Some(size) = size else {
            bail!("{}: no such file; --size says how large to make it", image.display())
        };
        return Ok((open_device(image, &options.create(size))?, true));
    }
    if let Some(size) = size.filter(|_| is_created_by_open(image)) {
        let device = open_device(image, &options.create(size).len(size))?;
        if !force {
            refuse_to_overwrite(image, &*device)?;
        }
        return Ok((device, false));
    }
    if let Some(user) = in_use::describe(image) {
        bail!("{}: in use: {user}", image.display());
    }
    let device = image::when_closed(image, || open_device(image, &options))?;
    if !force {
        refuse_to_overwrite(image, &*device)?;
    }
    let Some(size) = size else { return Ok((device, false)) };
    let is_file = image.metadata().is_ok_and(|metadata| metadata.is_file());
    // The lock belongs to the open file, so the next open would fail.
    drop(device);
    let options = if is_file { options.create(size) } else { options.len(size) };
    Ok((open_device(image, &options)?, is_file))
}

/// Returns false if the image is a file that mkfs must create.
fn exists(image: &Path) -> Result<bool> {
    Location::parse(image)?
        .path()
        .map_or(Ok(true), Path::try_exists)
        .with_context(|| image.display().to_string())
}

/// Returns whether opening the image creates it, or leaves it as it is.
fn is_created_by_open(image: &Path) -> bool {
    Location::parse(image).is_ok_and(|location| location.is_created_by_open())
}

/// Fails if the device holds a file system, a partition table or the like.
fn refuse_to_overwrite(image: &Path, device: &dyn Device) -> Result<()> {
    if let Ok(Some(state)) = mmp::read(device)
        && state.usage != MmpUse::Clean
    {
        bail!(
            "{}: a volume that another machine may be using ({state}); use --force to overwrite it",
            image.display()
        );
    }
    match signature::find(device).with_context(|| format!("reading {}", image.display()))? {
        Some(contents) => bail!("{}: holds {contents}; use --force to overwrite it", image.display()),
        None => Ok(()),
    }
}

fn print(image: &Path, summary: &Summary) -> Result<()> {
    let mut out = output::lock();
    let bytes = |blocks: u64| size::display(blocks * u64::from(summary.block_size));
    writeln!(out, "{}: ext4, {}", image.display(), bytes(summary.blocks_count))?;
    writeln!(out, "  uuid      {}", Uuid::from_bytes(summary.uuid))?;
    if !summary.label.is_empty() {
        writeln!(out, "  label     {}", summary.label)?;
    }
    let block_size = summary.block_size;
    writeln!(out, "  blocks    {} of {block_size} bytes, {} groups", summary.blocks_count, summary.groups)?;
    writeln!(out, "  inodes    {} of {} bytes", summary.inodes_count, summary.inode_size)?;
    match summary.journal_blocks {
        0 => writeln!(out, "  journal   none")?,
        blocks => writeln!(out, "  journal   {}", bytes(blocks.into()))?,
    }
    writeln!(out, "  features  {}", summary.features.join(" "))?;
    Ok(())
}

fn print_json(image: &Path, summary: &Summary) -> Result<()> {
    let value = json!({
        "size": summary.blocks_count * u64::from(summary.block_size),
        "block_size": summary.block_size,
        "blocks": summary.blocks_count,
        "free_blocks": summary.free_blocks,
        "reserved_blocks": summary.reserved_blocks,
        "groups": summary.groups,
        "inodes": summary.inodes_count,
        "free_inodes": summary.free_inodes,
        "inode_size": summary.inode_size,
        "journal_blocks": summary.journal_blocks,
        "uuid": Uuid::from_bytes(summary.uuid).to_string(),
        "label": summary.label,
        "features": summary.features,
    });
    json::print(&json::with_names(value, [("image", image.as_os_str())]))
}

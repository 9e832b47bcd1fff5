//! `mkfs`: makes an empty volume.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use parext4::device::{Direct, signature};
use parext4::mkfs::{Casefold, Summary};
use parext4::mmp::{self, MmpUse};
use parext4::storage::{Location, open_device};
use parext4::{Device, DeviceOptions, MkfsOptions, open_volume_device};
use serde_json::json;
use uuid::Uuid;

use crate::image_path::is_url;
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
    #[arg(long, short, value_parser = size::parse)]
    block_size: Option<u64>,
    /// Name of the volume, at most 16 bytes
    #[arg(long, default_value = "")]
    label: String,
    /// UUID of the volume; random by default
    #[arg(long)]
    uuid: Option<Uuid>,
    /// Bytes of the volume for each inode
    #[arg(long, short, value_parser = size::parse)]
    inode_ratio: Option<u64>,
    /// Number of inodes, rounded up to what fills the inode tables
    #[arg(long, short = 'N', value_name = "COUNT", conflicts_with = "inode_ratio")]
    inodes: Option<u32>,
    /// Bytes of an inode: a power of two from 128 to the block size. Inodes of 128 bytes have no times after 2038 and no
    /// fractions of seconds
    #[arg(long, short = 'I', value_name = "BYTES", default_value_t = 256)]
    inode_size: u16,
    /// Blocks of a group, a multiple of 8; by default as many as one block of bits describes
    #[arg(long, short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Groups whose bitmaps and inode tables lie together, a power of two; 16 by default
    #[arg(long, short = 'G', value_name = "GROUPS")]
    flex_groups: Option<u32>,
    /// Percentage of the blocks that only root may use, at most 50
    #[arg(long, short = 'm', value_name = "PERCENT", default_value_t = 5)]
    reserved_percent: u8,
    /// Revision of the format: 1, or 0, which old programs read and which has no features
    #[arg(long, short, default_value_t = 1)]
    revision: u32,
    /// Make no journal: a crash may then leave an inconsistent volume
    #[arg(long)]
    no_journal: bool,
    /// Features to add to the ones that mke2fs -t ext4 chooses, or with ^ to leave out, separated by commas; none leaves out all. mmp, with
    /// which one machine at a time can open the volume for writing, is on by default on devices of a network
    #[arg(short = 'O', long, value_name = "LIST", value_parser = features)]
    features: Vec<String>,
    /// Extended options, separated by commas: mmp_update_interval=SECONDS, the time between two signs of life of the machine
    /// that uses a volume with mmp, 1 to 300; hash_seed=UUID, the secret of the directory hashes; encoding=utf8 for casefold, which it
    /// adds; encoding_flags=strict to refuse names that are not UTF-8 in directories that ignore case
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

/// Checks a list of features.
fn features(list: &str) -> Result<String> {
    MkfsOptions::new().features(list)?;
    Ok(list.to_owned())
}

/// The options of `-E` that the command knows.
#[derive(Clone, Copy, Debug, Default)]
struct Extended {
    mmp_update_interval: Option<u16>,
    hash_seed: Option<Uuid>,
    has_encoding: bool,
    strict: bool,
}

fn extended(list: &str) -> Result<Extended> {
    let mut extended = Extended::default();
    for word in list.split(',') {
        match word.split_once('=') {
            Some(("mmp_update_interval", seconds)) => {
                extended.mmp_update_interval = Some(seconds.parse().context("mmp_update_interval")?);
            }
            Some(("hash_seed", uuid)) => extended.hash_seed = Some(uuid.parse().context("hash_seed")?),
            Some(("encoding", "utf8" | "utf8-12.1")) => extended.has_encoding = true,
            Some(("encoding_flags", "strict")) => extended.strict = true,
            _ => bail!(
                "option {word:?} is unknown; there are mmp_update_interval=SECONDS, hash_seed=UUID, encoding=utf8 and \
                 encoding_flags=strict"
            ),
        }
    }
    Ok(extended)
}

impl Args {
    fn options(&self) -> Result<MkfsOptions> {
        let block_size = self.block_size.map(u32::try_from).transpose().context("--block-size")?;
        let extended = self.extended.unwrap_or_default();
        let mut options = MkfsOptions::new()
            .block_size(block_size)
            .label(&self.label)
            .uuid(self.uuid.map(Uuid::into_bytes))
            .hash_seed(extended.hash_seed.map(Uuid::into_bytes))
            .inode_ratio(self.inode_ratio)
            .inodes(self.inodes)
            .inode_size(self.inode_size)
            .blocks_per_group(self.blocks_per_group)
            .flex_groups(self.flex_groups)
            .reserved_percent(self.reserved_percent)
            .revision(self.revision)
            .now(source_date()?);
        for list in &self.features {
            options = options.features(list).context("-O")?;
        }
        options.journal &= !self.no_journal;
        if extended.has_encoding && options.casefold.is_none() {
            options = options.casefold(Casefold::Lenient);
        }
        if extended.strict {
            ensure!(options.casefold.is_some(), "encoding_flags needs encoding=utf8");
            options = options.casefold(Casefold::Strict);
        }
        if let Some(seconds) = extended.mmp_update_interval {
            options = options.mmp_update_interval(seconds);
        }
        Ok(options)
    }
}

/// Returns the time of `SOURCE_DATE_EPOCH`, with which builds are the same each time; `None` if it is not set.
fn source_date() -> Result<Option<u32>> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH").filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let seconds = value.to_str().and_then(|value| value.parse().ok());
    Ok(Some(
        seconds.with_context(|| format!("SOURCE_DATE_EPOCH={}: not a time in seconds", value.display()))?,
    ))
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let mut options = args.options()?;
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
    if !force && is_url(image.as_os_str()) {
        refuse_before_the_open(image, &options)?;
    }
    if let Some(size) = size.filter(|_| is_created_by_open(image)) {
        let device = open_volume_device(image, &options.create(size).len(size))?;
        if !force {
            refuse_to_overwrite(image, &*device)?;
        }
        return Ok((device, false));
    }
    if let Some(user) = in_use::describe(image::disk(image)) {
        bail!("{}: in use: {user}", image.display());
    }
    let device = image::when_closed(image, || open_volume_device(image, &options))?;
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

/// Fails if a device on a network holds a file system or the like. An open for writing could fence the last owner of the device,
/// although nothing is to be overwritten.
fn refuse_before_the_open(image: &Path, options: &DeviceOptions) -> Result<()> {
    match open_device(image, &options.clone().read_only(true).lock(false)) {
        Ok(device) => refuse_to_overwrite(image, &*device),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
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

//! `fallocate`: allocates, frees and moves the blocks of a file, with the options of util-linux's
//! command.

use anyhow::{Context, Result};
use parext4::{DirectFile, FileSize, OpenOptions};

use crate::image;
use crate::image_path::ImagePath;
use crate::size;

/// Allocate, free, collapse or insert blocks of a file
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file
    #[arg(value_name = "IMAGE:/FILE", value_parser = ImagePath::parser())]
    file: ImagePath,
    #[command(flatten)]
    mode: Mode,
    /// Keep the size of the file
    #[arg(short = 'n', long, conflicts_with_all = ["collapse_range", "insert_range"])]
    keep_size: bool,
    /// Start of the range
    #[arg(short, long, value_name = "BYTES", value_parser = size::parse, default_value = "0")]
    offset: u64,
    /// Length of the range
    #[arg(short, long, value_name = "BYTES", value_parser = size::parse)]
    length: u64,
}

/// Operations other than allocating.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Mode {
    /// Free the blocks of the range; it reads as zeros afterwards
    #[arg(short, long)]
    punch_hole: bool,
    /// Allocate the range, and make it read as zeros
    #[arg(short, long)]
    zero_range: bool,
    /// Remove the range; the data after it moves down
    #[arg(short, long)]
    collapse_range: bool,
    /// Insert a hole; the data from its start on moves up
    #[arg(short, long)]
    insert_range: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    image::write(&args.file.image, |volume| {
        let change = || change(args, &volume.open_direct(&args.file.path, &OpenOptions::new().write(true))?);
        change().with_context(|| args.file.to_string())
    })
}

fn change(args: &Args, file: &DirectFile) -> parext4::Result<()> {
    // A range that is too large stays too large.
    let range = args.offset..args.offset.saturating_add(args.length);
    let size = FileSize::kept_if(args.keep_size);
    match args.mode {
        Mode { punch_hole: true, .. } => file.punch_hole(range),
        Mode { zero_range: true, .. } => file.zero_range(range, size),
        Mode { collapse_range: true, .. } => file.collapse_range(range),
        Mode { insert_range: true, .. } => file.insert_range(range),
        Mode { .. } => file.allocate(range, size),
    }
}

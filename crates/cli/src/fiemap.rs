//! `fiemap`: prints the extents of a file, as `filefrag -v` does.

use std::io::Write;

use anyhow::{Context, Result};
use parext4::{FileExtent, OpenOptions, Volume};
use serde_json::{Value, json};

use crate::image;
use crate::image_path::ImagePath;
use crate::json;
use crate::output::{self, Output};

/// Show the extents of a file
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file
    #[arg(value_name = "IMAGE:/FILE", value_parser = ImagePath::parser())]
    file: ImagePath,
    /// Print as JSON, with the fields that parext4-json(5) lists
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    image::read(&args.file.image, |volume| {
        let printed = match args.json {
            true => print_json(volume, &args.file),
            false => output::print(|out| print(out, volume, &args.file)),
        };
        printed.with_context(|| args.file.to_string())
    })
}

fn print(out: &mut Output, volume: &Volume, path: &ImagePath) -> Result<()> {
    let file = volume.open_direct(&path.path, &OpenOptions::new().read(true))?;
    let (name, size) = (path.path.display(), file.size());
    let block_size = u64::from(volume.info().block_size);
    let blocks = size.div_ceil(block_size);
    let extents = file.fiemap(0..u64::MAX)?;
    writeln!(out, "Filesystem type is: ef53")?;
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    writeln!(out, "File size of {name} is {size} ({blocks} block{} of {block_size} bytes)", plural(blocks))?;
    if !extents.is_empty() {
        writeln!(
            out,
            " ext: {:>19} {:>23} length: {:>11} flags:",
            "logical_offset:", "physical_offset:", "expected:"
        )?;
    }
    if let [extent] = extents.as_slice()
        && extent.inline
    {
        // In bytes: the contents of the inode are not aligned to blocks.
        let (last, place) = (extent.len - 1, extent.device_offset);
        writeln!(
            out,
            "{:4}: {:8}..{last:8}: {place:10}..{:10}: {:6}: {:12}{}",
            0,
            0,
            place + last,
            extent.len,
            "",
            flags(extent, size)
        )?;
        writeln!(out, "{name}: 1 extent found")?;
        return Ok(());
    }
    // Counts extents that do not follow the one before them on the device.
    let (mut apart, mut expected) = (0, None);
    for (number, extent) in extents.iter().enumerate() {
        let jump = expected.filter(|&place| place != extent.device_offset);
        apart += u64::from(number == 0 || jump.is_some());
        let jump = jump.map_or_else(|| " ".repeat(12), |place| format!("{:>10}: ", place / block_size));
        let (first, place, len) =
            (extent.offset / block_size, extent.device_offset / block_size, extent.len / block_size);
        writeln!(
            out,
            "{number:4}: {first:8}..{:8}: {place:10}..{:10}: {len:6}: {jump}{}",
            first + len - 1,
            place + len - 1,
            flags(extent, size)
        )?;
        expected = Some(extent.device_offset + extent.len);
    }
    writeln!(out, "{name}: {apart} extent{} found", plural(apart))?;
    Ok(())
}

fn flags(extent: &FileExtent, size: u64) -> String {
    let at_end = extent.offset + extent.len >= size;
    let all = [
        (extent.last, "last"),
        (extent.unwritten, "unwritten"),
        (extent.inline, "not_aligned,inline"),
        (at_end, "eof"),
    ];
    let set: Vec<&str> = all.into_iter().filter_map(|(is_set, name)| is_set.then_some(name)).collect();
    set.join(",")
}

fn print_json(volume: &Volume, path: &ImagePath) -> Result<()> {
    let file = volume.open_direct(&path.path, &OpenOptions::new().read(true))?;
    let extents = file.fiemap(0..u64::MAX)?;
    let extents: Vec<Value> = extents
        .iter()
        .map(|extent| {
            json!({
                "offset": extent.offset,
                "device_offset": extent.device_offset,
                "length": extent.len,
                "unwritten": extent.unwritten,
                "inline": extent.inline,
                "last": extent.last,
            })
        })
        .collect();
    let value = json!({"size": file.size(), "block_size": volume.info().block_size, "extents": extents});
    json::print(&json::with_names(value, path.names()))
}

//! `info`: prints the properties of a volume and its free space.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use parext4::Info;
use parext4::mmp::MmpState;
use serde_json::json;
use uuid::Uuid;

use crate::output::{self, Output};
use crate::{disk, image, json, mmp, recorded, size};

/// Show the properties of a volume and its free space, or the partitions of a disk
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The image file, block device or URL
    image: PathBuf,
    /// Print as JSON, with the fields that parext4-json(5) lists
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    if let Some(disk) = disk::read(&args.image)? {
        return if args.json {
            disk::print_json(&args.image, &disk)
        } else {
            output::print(|out| disk::print(out, &args.image, &disk))
        };
    }
    let (info, mmp) = image::look(&args.image, |volume| Ok((volume.info(), volume.mmp())))?;
    let mmp = mmp.unwrap_or_else(|error| {
        crate::error::say(&format!("warning: {}: {error}", args.image.display()));
        None
    });
    let mmp = mmp.as_ref();
    if args.json {
        return print_json(&args.image, &info, mmp);
    }
    output::print(|out| print(out, &args.image, &info, mmp))
}

fn print(out: &mut Output, image: &Path, info: &Info, mmp: Option<&MmpState>) -> Result<()> {
    let space = info.space;
    let bytes = |blocks: u64| size::display(blocks.saturating_mul(space.block_size.into()));
    let (size, free) = (bytes(space.blocks), bytes(space.free_blocks));
    writeln!(out, "{}: {}, {size}, {free} free", image.display(), info.type_name)?;
    writeln!(out, "  uuid      {}", Uuid::from_bytes(info.uuid))?;
    if !info.label.is_empty() {
        writeln!(out, "  label     {}", info.label.escape_debug())?;
    }
    writeln!(out, "  blocks    {} of {} bytes, {} groups", space.blocks, info.block_size, info.groups)?;
    writeln!(out, "            {} free, {} reserved", space.free_blocks, space.reserved_blocks)?;
    writeln!(out, "  inodes    {} of {} bytes, {} free", space.inodes, info.inode_size, space.free_inodes)?;
    writeln!(out, "  journal   {}", if info.journal { "yes" } else { "none" })?;
    writeln!(out, "  features  {}", info.features.join(" "))?;
    if let Some(state) = mmp {
        writeln!(out, "  mmp       {}", mmp::describe(state))?;
    }
    if let Some(errors) = &info.errors {
        writeln!(out, "  errors    {}", recorded::describe(errors))?;
    }
    Ok(())
}

fn print_json(image: &Path, info: &Info, mmp: Option<&MmpState>) -> Result<()> {
    let value = json!({
        "type": info.type_name,
        "label": info.label,
        "uuid": Uuid::from_bytes(info.uuid).to_string(),
        "block_size": info.block_size,
        "inode_size": info.inode_size,
        "groups": info.groups,
        "features": info.features,
        "journal": info.journal,
        "mmp": mmp.map(mmp::to_json),
        "errors": info.errors.as_ref().map(recorded::describe),
        "blocks": info.space.blocks,
        "free_blocks": info.space.free_blocks,
        "reserved_blocks": info.space.reserved_blocks,
        "inodes": info.space.inodes,
        "free_inodes": info.space.free_inodes,
    });
    json::print(&json::with_names(value, [("image", image.as_os_str())]))
}

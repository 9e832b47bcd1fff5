//! `info`: prints the properties of a volume and its free space.
//!
//! If the device cannot read a structure that opening the volume needs, prints what the superblock
//! says, or else its first valid backup.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};
use parext4::device::signature::Unreadable;
use parext4::mmp::MmpState;
use parext4::{DeviceOptions, FoundInfo, Info, find_info};
use serde_json::json;
use uuid::Uuid;

use crate::output::{self, Output};
use crate::{disk, error, image, json, mmp, recorded, size};

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
    let (disk, unreadable) = disk::read(&args.image)?;
    if let Some(disk) = disk {
        warn(&args.image, &unreadable, &[]);
        return if args.json {
            disk::print_json(&args.image, &disk)
        } else {
            output::print(|out| disk::print(out, &args.image, &disk))
        };
    }
    let looked = image::look(&args.image, |volume| Ok((volume.info(), volume.mmp())));
    let (shown, error) = match looked {
        Ok((info, mmp)) => {
            warn(&args.image, &unreadable, &[]);
            let mmp = mmp.unwrap_or_else(|error| {
                error::say(&format!("warning: {}: {error}", args.image.display()));
                None
            });
            (Shown { info, mmp, backup: None }, None)
        }
        Err(error) => match find(&args.image, &error) {
            Some(found) => {
                warn(&args.image, &unreadable, &found.unreadable);
                (Shown { info: found.info, mmp: None, backup: found.backup }, Some(error))
            }
            None => {
                warn(&args.image, &unreadable, &[]);
                return Err(error);
            }
        },
    };
    if args.json {
        print_json(&args.image, &shown)?;
    } else {
        output::print(|out| print(out, &args.image, &shown))?;
    }
    error.map_or(Ok(()), Err)
}

/// The properties of a volume that are printed.
struct Shown {
    info: Info,
    mmp: Option<MmpState>,
    /// The block of the backup that was read in place of the superblock.
    backup: Option<u64>,
}

/// Describes a volume that could not be opened because of `error`; `None` if that was no error of
/// its device.
fn find(image: &Path, error: &Error) -> Option<FoundInfo> {
    let is_of_device = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(parext4::Error::Device { .. }))
    };
    error.chain().any(is_of_device).then_some(())?;
    find_info(&*image::open_device(image, &DeviceOptions::new().read_only(true)).ok()?)
}

/// Prints a warning for each part that cannot be read: `structures` with names, and `others` apart
/// from them.
fn warn(image: &Path, others: &[Unreadable], structures: &[(&str, Unreadable)]) {
    let image = image.display();
    let say = |part: Error| error::say(&format!("warning: {}", error::describe(&part)));
    structures.iter().for_each(|(what, part)| say(anyhow!("{image}: {what}: {part}")));
    let is_named = |part: &Unreadable| structures.iter().any(|(_, named)| named.offset == part.offset);
    others.iter().filter(|part| !is_named(part)).for_each(|part| say(anyhow!("{image}: {part}")));
}

fn print(out: &mut Output, image: &Path, shown: &Shown) -> Result<()> {
    let Shown { info, mmp, backup } = shown;
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
    if let Some(block) = backup {
        writeln!(
            out,
            "  backup    all of this is from block {block}, and free space may be that of an earlier time"
        )?;
    }
    Ok(())
}

fn print_json(image: &Path, shown: &Shown) -> Result<()> {
    let Shown { info, mmp, backup } = shown;
    let value = json!({
        "type": info.type_name,
        "label": info.label,
        "uuid": Uuid::from_bytes(info.uuid).to_string(),
        "block_size": info.block_size,
        "inode_size": info.inode_size,
        "groups": info.groups,
        "features": info.features,
        "journal": info.journal,
        "mmp": mmp.as_ref().map(mmp::to_json),
        "backup": backup,
        "errors": info.errors.as_ref().map(recorded::describe),
        "blocks": info.space.blocks,
        "free_blocks": info.space.free_blocks,
        "reserved_blocks": info.space.reserved_blocks,
        "inodes": info.space.inodes,
        "free_inodes": info.space.free_inodes,
    });
    json::print(&json::with_names(value, [("image", image.as_os_str())]))
}

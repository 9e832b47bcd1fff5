//! Prints what was made.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use parext4::mkfs::Summary;
use serde_json::json;
use uuid::Uuid;

use crate::output::Output;
use crate::{json, size};

/// Prints a summary for people.
pub fn print(out: &mut Output, image: &Path, summary: &Summary) -> Result<()> {
    let bytes = |blocks: u64| size::display(blocks * u64::from(summary.block_size));
    let is_journal = summary.groups == 0;
    let kind = if is_journal { "journal device" } else { summary.type_name };
    writeln!(out, "{}: {kind}, {}", image.display(), bytes(summary.blocks_count))?;
    writeln!(out, "  uuid      {}", Uuid::from_bytes(summary.uuid))?;
    if !summary.label.is_empty() {
        writeln!(out, "  label     {}", summary.label)?;
    }
    let block_size = summary.block_size;
    write!(out, "  blocks    {} of {block_size} bytes", summary.blocks_count)?;
    if is_journal {
        return Ok(writeln!(out)?);
    }
    writeln!(out, ", {} groups", summary.groups)?;
    if summary.cluster_size > block_size {
        writeln!(out, "  clusters  of {} bytes", summary.cluster_size)?;
    }
    writeln!(out, "  inodes    {} of {} bytes", summary.inodes_count, summary.inode_size)?;
    match summary.journal_blocks {
        0 => writeln!(out, "  journal   none")?,
        blocks => writeln!(out, "  journal   {}", bytes(blocks.into()))?,
    }
    writeln!(out, "  features  {}", summary.features.join(" "))?;
    Ok(())
}

/// Prints a summary for programs.
pub fn print_json(image: &Path, summary: &Summary) -> Result<()> {
    let value = json!({
        "type": summary.type_name,
        "size": summary.blocks_count * u64::from(summary.block_size),
        "block_size": summary.block_size,
        "cluster_size": summary.cluster_size,
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

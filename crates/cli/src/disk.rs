//! Disks with partitions: the list that `info` prints.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use parext4::device::signature::{self, Scan, Unreadable};
use parext4::{DeviceOptions, find_info};
use parext4_storage::{Partition, PartitionTable, partitions};
use serde_json::json;

use crate::output::Output;
use crate::{image, json, size};

/// A disk without a volume of its own.
pub struct Disk {
    size: u64,
    /// The partitions, and what each of them holds.
    partitions: Vec<(Partition, Option<String>)>,
    /// Why partitions may be missing.
    damage: Option<String>,
}

/// Reads the partitions of the disk in `image`; `None` if it holds a volume, or has no partition
/// table. Also returns the parts of the image that may hold a signature and cannot be read.
pub fn read(image: &Path) -> Result<(Option<Disk>, Vec<Unreadable>)> {
    let device = image::open_device(image, &DeviceOptions::new().read_only(true))?;
    let size = device.size();
    let Scan { contents, unreadable } = signature::scan(&*device, 0..size);
    if contents.is_some_and(|contents| contents.has_ext()) {
        return Ok((None, unreadable));
    }
    let table = match partitions(image, &*device) {
        // It is a volume whose superblock cannot be read.
        Err(_) if !unreadable.is_empty() && find_info(&*device).is_some() => None,
        table => table.with_context(|| image.display().to_string())?,
    };
    let Some(PartitionTable { partitions, damage, .. }) = table else { return Ok((None, unreadable)) };
    // Through the device of the disk: opening a partition would read the table again for each of up
    // to 8192.
    let contents = |partition: &Partition| {
        let end = partition.start.saturating_add(partition.len);
        let contents = signature::scan(&*device, partition.start..end).contents;
        contents.map(|contents| contents.to_string())
    };
    let partitions = partitions.into_iter().map(|partition| (contents(&partition), partition));
    let partitions = partitions.map(|(contents, partition)| (partition, contents)).collect();
    Ok((Some(Disk { size, partitions, damage }), unreadable))
}

/// Prints the partitions.
pub fn print(out: &mut Output, image: &Path, disk: &Disk) -> Result<()> {
    let count = disk.partitions.len();
    writeln!(out, "{}: a disk of {} with {count} partitions", image.display(), size::display(disk.size))?;
    for (partition, contents) in &disk.partitions {
        let Partition { number, len, kind, label, .. } = partition;
        let label = if label.is_empty() { String::new() } else { format!(" \"{}\"", label.escape_debug()) };
        let contents = contents.as_ref().map_or(String::new(), |contents| format!(": {contents}"));
        writeln!(out, "  {number:<3} {:>9}  {kind}{label}{contents}", size::display(*len))?;
    }
    if let Some(damage) = &disk.damage {
        writeln!(out, "  partitions may be missing: {damage}")?;
    }
    Ok(())
}

/// Prints the partitions as JSON.
pub fn print_json(image: &Path, disk: &Disk) -> Result<()> {
    let partitions: Vec<_> = disk
        .partitions
        .iter()
        .map(|(partition, contents)| {
            json!({
                "number": partition.number,
                "start": partition.start,
                "size": partition.len,
                "type": partition.kind,
                "label": partition.label,
                "contents": contents,
            })
        })
        .collect();
    let value = json!({"size": disk.size, "partitions": partitions, "damage": disk.damage});
    json::print(&json::with_names(value, [("image", image.as_os_str())]))
}

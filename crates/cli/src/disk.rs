//! Disks with partitions: the list that `info` prints.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use parext4::DeviceOptions;
use parext4::device::signature;
use parext4::storage::{Partition, open_device, partitions};
use serde_json::json;

use crate::output::Output;
use crate::{image, json, size};

/// A disk without a volume of its own.
pub struct Disk {
    size: u64,
    /// The partitions, and what each of them holds.
    partitions: Vec<(Partition, Option<String>)>,
}

/// Reads the partitions of the disk in `image`. `None` if it holds a volume, or has no partition table.
pub fn read(image: &Path) -> Result<Option<Disk>> {
    let options = DeviceOptions::new().read_only(true);
    let device = image::open_device(image, &options)?;
    let name = || image.display().to_string();
    if signature::find(&*device).with_context(name)?.is_some_and(|contents| contents.has_ext()) {
        return Ok(None);
    }
    let Some(list) = partitions(image, &*device).with_context(name)? else { return Ok(None) };
    let size = device.size();
    // The lock belongs to the open file.
    drop(device);
    let contents = |partition: &Partition| {
        let mut name = OsString::from(image);
        name.push(format!("?partition={}", partition.number));
        let device = open_device(name, &options).ok()?;
        signature::find(&*device).ok()?.map(|contents| contents.to_string())
    };
    let partitions = list.into_iter().map(|partition| (contents(&partition), partition));
    Ok(Some(Disk {
        size,
        partitions: partitions.map(|(contents, partition)| (partition, contents)).collect(),
    }))
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
    let value = json!({"size": disk.size, "partitions": partitions});
    json::print(&json::with_names(value, [("image", image.as_os_str())]))
}

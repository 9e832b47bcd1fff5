//! Describes a tree and its changes.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

/// The times of last access and modification before an operation.
const ACCESSED: i64 = 4_000_000_000;
const MODIFIED: i64 = 1_000_000_000;
/// Times from here on count as current.
const NOW: i64 = 1_500_000_000;

/// The metadata of a directory and of all inodes below it.
pub struct Snapshot {
    /// Metadata by path.
    entries: BTreeMap<String, Metadata>,
}

/// Sets old times at and below a path.
pub fn age(path: &Path) {
    if path.symlink_metadata().unwrap().is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            age(&entry.unwrap().path());
        }
    }
    let time = |seconds: i64| Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time(ACCESSED), last_modification: time(MODIFIED) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

impl Snapshot {
    pub fn take(dir: &Path) -> Self {
        let mut entries = BTreeMap::new();
        add(dir, ".", &mut entries);
        Self { entries }
    }

    /// Describes the current state, one line for each inode, with the times that have changed since
    /// this snapshot.
    pub fn compare(&self, now: &Snapshot) -> Vec<String> {
        let line = |(path, metadata): (&String, &Metadata)| {
            let before = self.entries.values().find(|before| before.ino() == metadata.ino());
            format!("{path}: {}, {}", describe(metadata), times(metadata, before))
        };
        now.entries.iter().map(line).collect()
    }
}

fn add(path: &Path, name: &str, entries: &mut BTreeMap<String, Metadata>) {
    let metadata = path.symlink_metadata().unwrap();
    let is_dir = metadata.is_dir();
    entries.insert(name.to_owned(), metadata);
    if is_dir {
        for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
            add(&entry.path(), &format!("{name}/{}", entry.file_name().to_string_lossy()), entries);
        }
    }
}

fn describe(metadata: &Metadata) -> String {
    let size = if metadata.is_dir() { 0 } else { metadata.len() };
    let (mode, links, device) = (metadata.mode(), metadata.nlink(), metadata.rdev());
    format!("{mode:o} {}:{} {links} links, {size} bytes, device {device:x}", metadata.uid(), metadata.gid())
}

/// Describes how each time has changed.
fn times(metadata: &Metadata, before: Option<&Metadata>) -> String {
    let stamps = |metadata: &Metadata| {
        [
            (metadata.atime(), metadata.atime_nsec()),
            (metadata.mtime(), metadata.mtime_nsec()),
            (metadata.ctime(), metadata.ctime_nsec()),
        ]
    };
    let Some(before) = before else { return format!("new, {}", stamps(metadata).map(show).join(" ")) };
    let changed = ["atime", "mtime", "ctime"].iter().zip(stamps(metadata)).zip(stamps(before));
    let changed = changed.filter(|((_, now), before)| now != before);
    changed.map(|((name, now), _)| format!("{name} {}", show(now))).collect::<Vec<_>>().join(" ")
}

/// Describes a time: `now` for any current time, else its value.
fn show((seconds, nanoseconds): (i64, i64)) -> String {
    match seconds {
        NOW..ACCESSED => "now".to_owned(),
        _ => format!("{seconds}.{nanoseconds}"),
    }
}

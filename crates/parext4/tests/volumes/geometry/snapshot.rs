//! Describes all inodes of a volume, as the kernel sees them and as parext4 does.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use parext4::{FileType, Node, Volume};
use rustix::fs::{lgetxattr, llistxattr};

/// One line for each path.
pub type Snapshot = BTreeMap<String, String>;

/// What both sides know of an inode.
struct Facts {
    kind: FileType,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    /// 0 for a directory, whose size depends on the order of changes.
    size: u64,
    sectors: u64,
    rdev: (u32, u32),
    /// Of modification and change.
    times: [(i64, u32); 2],
    contents: Vec<u8>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

impl Facts {
    fn line(&self) -> String {
        let Self { kind, mode, owner, links, size, sectors, rdev, times, contents, xattrs } = self;
        let mut line =
            format!("{kind:?} {mode:o} {owner:?} {links} links {size}+{sectors} {rdev:?} {times:?}");
        write!(
            line,
            " sum {}",
            contents.iter().fold(7_u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte))
        )
        .unwrap();
        write!(line, " {xattrs:?}").unwrap();
        line
    }
}

pub fn of_kernel(root: &Path) -> Snapshot {
    let mut snapshot = Snapshot::new();
    add_of_kernel(root, "", &mut snapshot);
    snapshot
}

fn add_of_kernel(path: &Path, name: &str, snapshot: &mut Snapshot) {
    let metadata = path.symlink_metadata().unwrap();
    let file_type = metadata.file_type();
    let kind = if file_type.is_dir() {
        FileType::Directory
    } else if file_type.is_symlink() {
        FileType::Symlink
    } else if file_type.is_char_device() {
        FileType::CharDevice
    } else if file_type.is_fifo() {
        FileType::Fifo
    } else {
        FileType::Regular
    };
    let contents = match kind {
        FileType::Regular => std::fs::read(path).unwrap(),
        FileType::Symlink => std::fs::read_link(path).unwrap().into_os_string().into_encoded_bytes(),
        _ => Vec::new(),
    };
    let rdev = metadata.rdev();
    let nanoseconds = |time: i64| u32::try_from(time).unwrap();
    let facts = Facts {
        kind,
        mode: metadata.mode() & 0o7777,
        owner: (metadata.uid(), metadata.gid()),
        links: metadata.nlink(),
        size: if kind == FileType::Directory { 0 } else { metadata.len() },
        sectors: metadata.blocks(),
        rdev: (rustix::fs::major(rdev), rustix::fs::minor(rdev)),
        times: [
            (metadata.mtime(), nanoseconds(metadata.mtime_nsec())),
            (metadata.ctime(), nanoseconds(metadata.ctime_nsec())),
        ],
        contents,
        xattrs: xattrs_of_kernel(path),
    };
    snapshot.insert(format!("{name}/"), facts.line());
    if kind == FileType::Directory {
        for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
            add_of_kernel(
                &entry.path(),
                &format!("{name}/{}", entry.file_name().to_string_lossy()),
                snapshot,
            );
        }
    }
}

fn xattrs_of_kernel(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0_u8; 4096];
    let len = llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let name = String::from_utf8(name.to_vec()).unwrap();
            let mut value = vec![0; 4096];
            let len = lgetxattr(path, &name, &mut value[..]).unwrap();
            value.truncate(len);
            (name, value)
        })
        .collect()
}

pub fn of_volume(volume: &Volume) -> Snapshot {
    let mut snapshot = Snapshot::new();
    add_of_volume(volume, &volume.root().unwrap(), "", &mut snapshot);
    snapshot
}

fn add_of_volume(volume: &Volume, node: &Node, name: &str, snapshot: &mut Snapshot) {
    let metadata = node.metadata();
    let kind = metadata.file_type;
    let contents = match kind {
        FileType::Regular => volume.read(name).unwrap(),
        FileType::Symlink => node.read_link().unwrap(),
        _ => Vec::new(),
    };
    let xattrs = node.list_xattr().unwrap().into_iter().map(|name| {
        let value = node.get_xattr(&name).unwrap().unwrap();
        (String::from_utf8(name).unwrap(), value)
    });
    let time = |time: parext4::Timestamp| (time.seconds, time.nanoseconds);
    let facts = Facts {
        kind,
        mode: metadata.permissions.into(),
        owner: (metadata.uid, metadata.gid),
        links: metadata.links.into(),
        size: if kind == FileType::Directory { 0 } else { metadata.size },
        sectors: metadata.sectors,
        rdev: metadata.rdev.unwrap_or((0, 0)),
        times: [time(metadata.mtime), time(metadata.ctime)],
        contents,
        xattrs: xattrs.collect(),
    };
    snapshot.insert(format!("{name}/"), facts.line());
    if kind != FileType::Directory {
        return;
    }
    let mut after = 0;
    loop {
        let batch = node.read_dir(after).unwrap();
        let Some(last) = batch.last() else { break };
        after = last.cookie;
        for item in batch.iter().filter(|item| item.name != b"." && item.name != b"..") {
            let child = node.lookup(&item.name).unwrap();
            assert_eq!(child.file_type(), item.file_type, "{name}: {:?}", item.name);
            let name = format!("{name}/{}", String::from_utf8_lossy(&item.name));
            add_of_volume(volume, &child, &name, snapshot);
        }
    }
}

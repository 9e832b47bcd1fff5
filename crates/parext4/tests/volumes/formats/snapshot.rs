//! Describes all inodes of a volume, as the kernel sees them and as parext4 does.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use parext4::{Error, FileType, InodeRef, Volume};
use rustix::fs::{lgetxattr, llistxattr};

/// One line for each path.
pub type Snapshot = BTreeMap<String, String>;

/// The facts of an inode that are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    All,
    /// What debugfs copies of directories, files and symbolic links.
    Contents,
}

/// Contents of a file whose key is missing.
const NO_KEY: &[u8] = b"no key";

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
    fn line(&self, detail: Detail) -> String {
        let Self { kind, mode, owner, links, size, sectors, rdev, times, contents, xattrs } = self;
        let sum = contents.iter().fold(7_u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte));
        let mut line = format!("{kind:?} {size} sum {sum}");
        if detail == Detail::All {
            write!(
                line,
                " {mode:o} {owner:?} {links} links, {sectors} sectors {rdev:?} {times:?} {xattrs:?}"
            )
            .unwrap();
        }
        line
    }

    /// Adds a line, if the inode is compared.
    fn add_to(&self, snapshot: &mut Snapshot, name: &str, detail: Detail) {
        let is_copied = matches!(self.kind, FileType::Directory | FileType::Regular | FileType::Symlink);
        if detail == Detail::All || is_copied {
            snapshot.insert(name.to_owned(), self.line(detail));
        }
    }
}

/// Describes a directory that the kernel shows.
pub fn of_directory(root: &Path, detail: Detail) -> Snapshot {
    let mut snapshot = Snapshot::new();
    add_of_directory(root, "", detail, &mut snapshot);
    snapshot
}

fn add_of_directory(path: &Path, name: &str, detail: Detail, snapshot: &mut Snapshot) {
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
    } else if file_type.is_socket() {
        FileType::Socket
    } else {
        FileType::Regular
    };
    let contents = match kind {
        FileType::Regular => match std::fs::read(path) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOKEY.raw_os_error()) => {
                NO_KEY.to_vec()
            }
            contents => contents.unwrap(),
        },
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
        xattrs: xattrs_of_path(path),
    };
    facts.add_to(snapshot, name, detail);
    if kind == FileType::Directory {
        for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
            let name = format!("{name}/{}", entry.file_name().to_string_lossy());
            add_of_directory(&entry.path(), &name, detail, snapshot);
        }
    }
}

fn xattrs_of_path(path: &Path) -> BTreeMap<String, Vec<u8>> {
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

/// Describes a volume that is open.
pub fn of_volume(volume: &Volume, detail: Detail) -> Snapshot {
    let mut snapshot = Snapshot::new();
    add_of_volume(volume, &volume.root().unwrap(), "", detail, &mut snapshot);
    snapshot
}

fn add_of_volume(volume: &Volume, node: &InodeRef, name: &str, detail: Detail, snapshot: &mut Snapshot) {
    let metadata = node.metadata();
    let kind = metadata.file_type;
    let contents = match kind {
        FileType::Regular => match volume.read(name) {
            Err(Error::NoKey(_)) => NO_KEY.to_vec(),
            contents => contents.unwrap(),
        },
        FileType::Symlink => node.read_link().unwrap().into_os_string().into_vec(),
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
    facts.add_to(snapshot, name, detail);
    if kind != FileType::Directory {
        return;
    }
    let mut after = 0;
    loop {
        let batch = node.read_dir_after(after).unwrap();
        let Some(last) = batch.last() else { break };
        after = last.cookie();
        for item in batch.iter().filter(|item| item.name() != b"." && item.name() != b"..") {
            let child = node.lookup(item.name()).unwrap();
            assert_eq!(child.file_type(), item.file_type(), "{name}: {:?}", item.name());
            let name = format!("{name}/{}", String::from_utf8_lossy(item.name()));
            add_of_volume(volume, &child, &name, detail, snapshot);
        }
    }
}

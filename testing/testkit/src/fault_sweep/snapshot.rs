//! The contents of a volume at one moment: all names with their attributes and data.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use parext4::{Error, FileType, InodeFlags, InodeNo, InodeRef, Volume};

/// Names that begin so belong to the harness, and are in no snapshot.
pub const OWN: &str = "/probe";

/// What a name has besides its data, of all that an operation of a workload changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    file_type: FileType,
    permissions: u16,
    owner: (u32, u32, u32),
    links: u16,
    rdev: Option<(u32, u32)>,
    flags: InodeFlags,
    /// The target of a symbolic link.
    target: Option<Vec<u8>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// One name.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The inode number.
    pub ino: InodeNo,
    /// All but the data.
    pub attributes: Attributes,
    /// The data of a regular file.
    pub data: Option<Arc<Vec<u8>>>,
}

/// The names of a volume, by path.
#[derive(Clone, Debug, Default)]
pub struct Snapshot(pub BTreeMap<String, Entry>);

impl Snapshot {
    /// Reads a whole volume. Data that is the same as in `before` is shared with it.
    ///
    /// # Errors
    /// A failed read; corruption.
    pub fn take(volume: &Volume, before: Option<&Self>) -> Result<Self, Error> {
        let mut names = BTreeMap::new();
        for entry in volume.walk("/")? {
            let entry = entry?;
            let path = entry.path().to_string_lossy().into_owned();
            if path == "/lost+found" || path.starts_with(OWN) {
                continue;
            }
            let node = entry.inode_ref()?;
            let attributes = Attributes::of(&node)?;
            let is_file = attributes.file_type == FileType::Regular;
            let data = if is_file { Some(Arc::new(volume.read(&path)?)) } else { None };
            let old = before.and_then(|before| before.0.get(&path)).and_then(|entry| entry.data.clone());
            let data = if old == data { old } else { data };
            names.insert(path, Entry { ino: node.ino(), attributes, data });
        }
        Ok(Self(names))
    }

    /// Returns true if both have the same names with the same attributes.
    pub fn has_names_of(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|((path, entry), (other_path, other))| {
                path == other_path && entry.attributes == other.attributes
            })
    }

    /// Describes the first name that differs.
    pub fn difference(&self, other: &Self) -> String {
        let differs = |path: &&String| {
            let attributes = |snapshot: &Self| snapshot.0.get(*path).map(|entry| entry.attributes.clone());
            attributes(self) != attributes(other)
        };
        let path = self.0.keys().chain(other.0.keys()).find(differs);
        path.map_or_else(String::new, |path| {
            let of = |snapshot: &Self| {
                snapshot
                    .0
                    .get(path)
                    .map_or_else(|| "missing".into(), |entry| format!("{:?}", entry.attributes))
            };
            format!("{path} is {}, not {}", of(self), of(other))
        })
    }

    /// Returns the data of an inode, if it has a name.
    pub fn data_of(&self, ino: InodeNo) -> Option<&Arc<Vec<u8>>> {
        self.0.values().find(|entry| entry.ino == ino)?.data.as_ref()
    }
}

impl Attributes {
    fn of(node: &InodeRef) -> Result<Self, Error> {
        /// The flags that users set. The other flags say how the engine stores the file.
        const SET: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND).union(InodeFlags::NOATIME);
        let metadata = node.metadata();
        let mut xattrs = BTreeMap::new();
        for name in node.list_xattr()? {
            let value = node.get_xattr(&name)?.unwrap_or_default();
            xattrs.insert(name, value);
        }
        let is_link = metadata.file_type == FileType::Symlink;
        Ok(Self {
            file_type: metadata.file_type,
            permissions: metadata.permissions,
            owner: (metadata.uid, metadata.gid, node.project()),
            links: metadata.links,
            rdev: metadata.rdev,
            flags: metadata.flags & SET,
            target: if is_link { Some(node.read_link()?.into_os_string().into_vec()) } else { None },
            xattrs,
        })
    }
}

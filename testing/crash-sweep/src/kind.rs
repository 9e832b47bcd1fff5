//! The volumes of the sweep: small ones of several formats, full of stale bytes.

use std::sync::Arc;
use std::time::Duration;

use parext4::{Device, MemDevice, OpenOptions, Volume, VolumeOptions, XattrMode};
use testkit::ops::found::COMMIT_FILE;
use testkit::ops::tree::Kind as InodeKind;
use testkit::ops::{Op, Tree, read_tree};
use testkit::volume::{Shape, untimed};

use crate::start::initial;

/// A format of volumes.
#[derive(Debug)]
pub struct Kind {
    /// Its name, in cases.
    pub name: &'static str,
    shape: Shape,
}

const fn kind(name: &'static str, features: &'static str, inode_size: u16) -> Kind {
    let shape = Shape { inode_ratio: Some(16384), features, inode_size, ..Shape::new(4, 1024, true) };
    Kind { name, shape }
}

/// All formats; the sequences that are all tried use the first.
pub static KINDS: [Kind; 7] = [
    kind("1k", "", 256),
    kind("list", "^orphan_file,^metadata_csum,^64bit", 256),
    kind("inline", "inline_data", 512),
    kind("indirect", "^extent", 256),
    kind("old", "none,extent,has_journal,filetype", 128),
    kind("quota", "quota", 256),
    Kind {
        name: "clusters",
        shape: Shape { inode_ratio: Some(16384), ..Shape::new(8, 1024, true).with_clusters(2) },
    },
];

impl Kind {
    /// Returns the kind with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Returns the number of the kind in the list.
    pub fn index(&self) -> usize {
        KINDS.iter().position(|kind| kind.name == self.name).expect("it is in the list")
    }

    /// Returns true if files are mapped by extents.
    pub fn has_extents(&self) -> bool {
        self.shape.has_extents()
    }

    /// Returns true if all metadata has checksums.
    pub fn protects_metadata(&self) -> bool {
        matches!(self.name, "1k" | "inline" | "clusters")
    }

    /// Returns true if files of the format support the operation.
    pub fn supports(&self, op: &Op) -> bool {
        self.shape.has_extents() || !op.needs_extents()
    }

    /// Makes an empty volume over what the device has, with another UUID than [`base`](Self::base).
    pub fn make_over(&self, device: &dyn Device) {
        self.shape_with_identity(100).make_over(device);
    }

    fn shape_with_identity(&self, first: u8) -> Shape {
        let identity = first + u8::try_from(self.index()).expect("few kinds");
        Shape { identity: Some(identity), ..self.shape }
    }

    /// Makes a volume with a tree for each root. `mib` is its size; 0 for the size that suits one
    /// tree.
    ///
    /// # Panics
    /// If the volume cannot be made.
    pub fn base(&self, roots: &[String], mib: u64) -> MemDevice {
        let shape = Shape { mib: self.shape.mib.max(mib), ..self.shape_with_identity(1) };
        let device = Arc::new(shape.make_poisoned());
        let volume = open(&device).expect("the volume opens");
        let empty = OpenOptions::read_write().create_new(true);
        volume.open_direct(COMMIT_FILE, &empty).expect("create");
        for (thread, root) in (0..).zip(roots) {
            if !root.is_empty() {
                volume.create_dir(root, 0o755).expect("mkdir");
            }
            let tree = initial(thread);
            populate(&volume, root, &tree);
            let found = read_tree(&volume, root).expect("the tree");
            assert!(tree.has_names_of(&found), "{found:?}");
        }
        volume.close().expect("close");
        device.fork()
    }
}

fn populate(volume: &Volume, root: &str, tree: &Tree) {
    for (path, entry) in &tree.names {
        let path = format!("{root}{path}");
        match entry.kind {
            InodeKind::Directory => drop(volume.create_dir(&path, entry.attributes.mode).expect("mkdir")),
            InodeKind::File(key) => volume.write(&path, tree.files[key].bytes()).expect("write"),
            InodeKind::Symlink { .. } => unreachable!("no initial tree has one"),
        }
        for (name, value) in &entry.attributes.xattrs {
            let node = volume.resolve(&path).expect("resolve");
            node.set_xattr(name, value, XattrMode::Any).expect("set_xattr");
        }
    }
}

/// Returns options without threads: only calls commit and write back.
pub fn options() -> VolumeOptions {
    untimed().write_back_interval(None).cache_idle(None).cache_bytes(1 << 20)
}

/// Interval of timed commits, in the cases that have them.
pub const INTERVAL: Duration = Duration::from_millis(2);

/// Opens a volume with [`options`].
///
/// # Errors
/// As [`Volume::open_device`].
pub fn open(device: &Arc<MemDevice>) -> parext4::Result<Volume> {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &options())
}

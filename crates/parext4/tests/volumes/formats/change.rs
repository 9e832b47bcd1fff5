//! Populates volumes through the kernel, and changes them here.

use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;

use parext4::{NewInode, SetAttributes, Special, Timestamp, Volume, XattrMode};
use rustix::fs::{XattrFlags, setxattr};
use testkit::ops::{Runner, Tree};
use testkit::tool;
use testkit::workload::Workload;

/// Number of random operations on each volume.
const OPERATIONS: usize = 120;
/// Number of files of a directory that outgrows a block of its index, if it has one.
const MANY: usize = 300;

/// Makes a tree of all kinds of inodes.
pub fn populate(root: &Path) {
    let path = |name: &str| root.join(name);
    std::fs::create_dir(path("many")).unwrap();
    for n in 0..MANY {
        std::fs::write(path(&format!("many/{n:0>30}")), n.to_string()).unwrap();
    }
    std::fs::create_dir_all(path("dir/below/it")).unwrap();
    std::fs::write(path("dir/large"), vec![3; 700_001]).unwrap();
    std::fs::hard_link(path("dir/large"), path("link")).unwrap();
    symlink("target", path("short")).unwrap();
    symlink("x".repeat(200), path("long")).unwrap();
    tool(Command::new("mknod").arg(path("device")).args(["c", "5", "300"]));
    tool(Command::new("mkfifo").arg(path("fifo")));
    setxattr(path("link"), "user.origin", b"the kernel", XattrFlags::empty()).unwrap();
    setxattr(path("dir"), "trusted.large", &[5; 500], XattrFlags::empty()).unwrap();
    chown(path("dir"), Some(70_000), Some(80_000)).unwrap();
    tool(Command::new("touch").args(["-h", "-d", "1960-01-02 03:04:05.678"]).arg(path("short")));
    tool(Command::new("touch").args(["-d", "2100-01-01"]).arg(path("fifo")));
}

/// Random changes, with a model of their result.
pub struct Changes {
    workload: Workload,
    tree: Tree,
}

impl Changes {
    pub fn new(seed: u64, extents: bool) -> Self {
        Self { workload: Workload::new(seed).with_extents(extents), tree: Tree::default() }
    }

    /// Changes a volume that [`populate`] has filled.
    pub fn make(&mut self, volume: &Volume) {
        for _ in 0..OPERATIONS {
            let (op, content) = self.workload.next(&self.tree);
            Runner::new(volume).run(&op, content).unwrap_or_else(|error| panic!("{op:?}: {error}"));
            self.tree = self.tree.after(&op, content).expect("it has succeeded");
        }
        let root = volume.root().unwrap();
        let many = root.lookup(b"many").unwrap();
        for n in 0..MANY {
            let name = format!("{n:0>30}").into_bytes();
            match n % 3 {
                0 => many.unlink(&name).unwrap(),
                1 => {
                    let mut new = name.clone();
                    new.push(b'x');
                    many.rename(&name, &many, &new, parext4::RenameMode::Replace).unwrap();
                }
                _ => drop(many.mkdir(format!("dir {n}").as_bytes(), &NewInode::new()).unwrap()),
            }
        }
        let new = NewInode::new().uid(100_000).gid(7);
        root.mknod(b"our device", Special::CharDevice { major: 9, minor: 70_000 }, &new).unwrap();
        root.symlink(b"our link", &[b'y'; 150], &new).unwrap();
        let link = root.lookup(b"link").unwrap();
        link.set_xattr(b"user.origin", b"changed", XattrMode::Replace).unwrap();
        link.set_xattr(b"user.more", &[9; 300], XattrMode::Create).unwrap();
        let far = Timestamp { seconds: 6_000_000_000, nanoseconds: 5 };
        link.set_attributes(&SetAttributes::new().mtime(far).uid(90_000)).unwrap();
        volume
            .root()
            .unwrap()
            .lookup(b"dir")
            .unwrap()
            .rename(b"below", &root, b"moved", parext4::RenameMode::Replace)
            .unwrap();
    }

    /// Checks the names and the data of the random operations, on a volume that has other names
    /// besides.
    pub fn check(&self, volume: &Volume) {
        for path in self.tree.names.keys() {
            match self.tree.bytes(path) {
                None => assert!(volume.read_dir(path).is_ok(), "{path}"),
                Some(bytes) => assert!(volume.read(path).unwrap() == bytes, "{path}"),
            }
        }
    }
}

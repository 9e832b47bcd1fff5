//! A tree of the kernel, of its own ext4 or of a mount of parext4, and operations on it.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, Permissions};
use std::io::Result;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use parext4::XattrMode;
use rustix::fs::{
    CWD, RenameFlags, XattrFlags, lgetxattr, llistxattr, lremovexattr, lsetxattr, renameat_with, syncfs,
};

use super::content::Content;
use super::file_op::{FileOp, Way};
use super::found;
use super::kernel_file::KernelFile;
use super::op::{LAST_WRITE, Op};
use super::tree::{Attributes, Entry, Kind, Tree, mode_of};

/// Bytes of the longest value of an attribute, and of all names of the attributes of an inode.
const XATTR_BYTES: usize = 64 << 10;

/// The operations of one thread below a directory.
#[derive(Debug)]
pub struct KernelTree<'a> {
    root: &'a Path,
    /// Files without a name.
    open: Vec<File>,
}

impl<'a> KernelTree<'a> {
    /// Returns a thread whose operations have paths below `root`.
    pub fn new(root: &'a Path) -> Self {
        Self { root, open: Vec::new() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Runs an operation that writes `content`. Direct operations must be of
    /// [whole sectors](FileOp::in_whole_sectors).
    ///
    /// # Errors
    /// The errors of the calls.
    pub fn run(&mut self, op: &Op, content: Content) -> Result<()> {
        let byte = content.byte();
        match *op {
            Op::Create(path) => {
                File::create_new(self.at(path))?.set_permissions(Permissions::from_mode(0o644))
            }
            Op::MakeDir(path) => {
                fs::create_dir(self.at(path))?;
                fs::set_permissions(self.at(path), Permissions::from_mode(0o755))
            }
            Op::Link(from, to) => fs::hard_link(self.at(from), self.at(to)),
            Op::Symlink(path, target) => symlink(target, self.at(path)),
            Op::Rename(from, to) => fs::rename(self.at(from), self.at(to)),
            Op::RenameNew(from, to) => self.rename(from, to, RenameFlags::NOREPLACE),
            Op::Exchange(one, two) => self.rename(one, two, RenameFlags::EXCHANGE),
            Op::Unlink(path) => fs::remove_file(self.at(path)),
            Op::UnlinkOpen(path) => {
                self.open.push(File::open(self.at(path))?);
                fs::remove_file(self.at(path))
            }
            Op::RemoveOpen(path) => {
                let file = KernelFile::open(&self.at(path))?;
                fs::remove_file(self.at(path))?;
                file.run(FileOp::Write { way: Way::Direct, offset: 0, len: LAST_WRITE }, content)?;
                self.sync()
            }
            Op::RemoveDir(path) => fs::remove_dir(self.at(path)),
            Op::SetXattr { path, name, len, mode } => {
                Ok(lsetxattr(self.at(path), name, &content.value(len), flags(mode))?)
            }
            Op::RemoveXattr { path, name } => Ok(lremovexattr(self.at(path), name)?),
            Op::Chmod(path) => {
                fs::set_permissions(self.at(path), Permissions::from_mode(mode_of(byte).into()))
            }
            Op::Chown(path) => lchown(self.at(path), Some(byte.into()), None),
            Op::File(path, op) => KernelFile::open(&self.at(path))?.run(op, content).map(drop),
            Op::SyncVolume => self.sync(),
        }
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<()> {
        Ok(renameat_with(CWD, self.at(from), CWD, self.at(to), flags)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(syncfs(File::open(self.root)?)?)
    }

    /// Reads the tree.
    ///
    /// # Errors
    /// A description of what cannot be read, or is of no kind that a tree has.
    pub fn read(&self) -> std::result::Result<Tree, String> {
        let mut tree = Tree::default();
        let mut keys = BTreeMap::new();
        let mut dirs = vec![String::new()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(self.at(&dir)).map_err(|e| format!("{dir}: {e}"))? {
                let entry = entry.map_err(|e| format!("{dir}: {e}"))?;
                let name = format!("{dir}/{}", entry.file_name().to_string_lossy());
                if name == "/lost+found" {
                    continue;
                }
                let entry = read_entry(&entry.path(), &mut tree, &mut keys);
                let entry = entry.map_err(|e| format!("{name}: {e}"))?;
                if entry.kind == Kind::Directory {
                    dirs.push(name.clone());
                }
                if tree.names.insert(name.clone(), entry).is_some() {
                    return Err(format!("{name} is listed twice"));
                }
            }
        }
        Ok(tree)
    }
}

fn flags(mode: XattrMode) -> XattrFlags {
    match mode {
        XattrMode::Create => XattrFlags::CREATE,
        XattrMode::Replace => XattrFlags::REPLACE,
        _ => XattrFlags::empty(),
    }
}

fn read_entry(
    path: &Path,
    tree: &mut Tree,
    keys: &mut BTreeMap<u64, usize>,
) -> std::result::Result<Entry, String> {
    let metadata = fs::symlink_metadata(path).map_err(|e| e.to_string())?;
    let attributes = attributes(path, &metadata).map_err(|e| e.to_string())?;
    let file_type = metadata.file_type();
    let kind = if file_type.is_dir() {
        Kind::Directory
    } else if file_type.is_symlink() {
        let target = fs::read_link(path).map_err(|e| e.to_string())?;
        let target = target.into_os_string().into_string().map_err(|e| format!("a link to {e:?}"))?;
        Kind::Symlink { key: found::key(tree, keys, metadata.ino(), || Ok(Vec::new()))?, target }
    } else if file_type.is_file() {
        let read = || fs::read(path).map_err(|e| e.to_string());
        Kind::File(found::key(tree, keys, metadata.ino(), read)?)
    } else {
        return Err(format!("an inode of type {file_type:?}"));
    };
    Ok(Entry { kind, attributes })
}

fn attributes(path: &Path, metadata: &Metadata) -> Result<Attributes> {
    let mut xattrs = BTreeMap::new();
    let mut names = vec![0; XATTR_BYTES];
    let len = llistxattr(path, &mut names[..])?;
    for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_BYTES];
        let len = lgetxattr(path, name, &mut value[..])?;
        value.truncate(len);
        xattrs.insert(name.to_vec(), value);
    }
    let mode = u16::try_from(metadata.mode() & 0o7777).expect("12 bits");
    Ok(Attributes { mode, uid: metadata.uid(), xattrs })
}

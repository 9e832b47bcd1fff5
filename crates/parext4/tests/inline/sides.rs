//! The two implementations that change and read a tree: parext4 and the kernel.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parext4::{FileType, NewInode, OpenOptions, Volume, XattrMode};
use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::tree::{Change, Item, Tree};

const NOTE: &str = "user.note";

/// Makes a change through parext4.
pub fn change(volume: &Volume, change: &Change) -> parext4::Result<()> {
    let open = |path: &str| volume.open_file(path, &OpenOptions::read_write());
    match change {
        Change::Create(path) => volume.create_file(path).map(drop),
        Change::Write { path, offset, data } => open(path)?.write_all_at(data, *offset as u64),
        Change::Append { path, data } => open(path)?.append(data).map(drop),
        Change::SetLen { path, len } => open(path)?.set_len(*len as u64),
        Change::MakeDirectory(path) => volume.create_dir(path, 0o755).map(drop),
        Change::Link { path, target } => {
            let (dir, name) = path.rsplit_once('/').unwrap();
            let dir = volume.resolve(if dir.is_empty() { "/" } else { dir })?;
            dir.symlink(name.as_bytes(), target, &NewInode::new()).map(drop)
        }
        Change::Remove(path) => match volume.symlink_metadata(path)?.file_type {
            FileType::Directory => volume.remove_dir(path),
            _ => volume.remove_file(path),
        },
        Change::Rename { from, to } => volume.rename(from, to),
        Change::Note { path, note } => volume.resolve(path)?.set_xattr(NOTE.as_bytes(), note, XattrMode::Any),
    }
}

/// Makes a change through the kernel, below `root`.
pub fn change_by_kernel(root: &Path, change: &Change) -> std::io::Result<()> {
    let at = |path: &str| -> PathBuf { root.join(&path[1..]) };
    match change {
        Change::Create(path) => fs::File::create_new(at(path)).map(drop),
        Change::Write { path, offset, data } => {
            fs::OpenOptions::new().write(true).open(at(path))?.write_all_at(data, *offset as u64)
        }
        Change::Append { path, data } => fs::OpenOptions::new().append(true).open(at(path))?.write_all(data),
        Change::SetLen { path, len } => {
            fs::OpenOptions::new().write(true).open(at(path))?.set_len(*len as u64)
        }
        Change::MakeDirectory(path) => fs::create_dir(at(path)),
        Change::Link { path, target } => {
            std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), at(path))
        }
        Change::Remove(path) => match fs::symlink_metadata(at(path))?.is_dir() {
            true => fs::remove_dir(at(path)),
            false => fs::remove_file(at(path)),
        },
        Change::Rename { from, to } => fs::rename(at(from), at(to)),
        Change::Note { path, note } => Ok(setxattr(at(path), NOTE, note, XattrFlags::empty())?),
    }
}

/// Reads the tree through parext4.
pub fn read(volume: &Volume) -> Tree {
    let mut tree = Tree::new();
    for entry in volume.walk("/").unwrap() {
        let entry = entry.unwrap();
        let path = entry.path().to_str().unwrap().to_owned();
        if path == "/" || path.starts_with("/lost+found") {
            continue;
        }
        let node = entry.inode_ref().unwrap();
        let item = match entry.file_type() {
            FileType::Directory => Item::Directory,
            FileType::Symlink => Item::Link(node.read_link().unwrap().into_os_string().into_vec()),
            _ => Item::File {
                contents: volume.read(&path).unwrap(),
                note: node.get_xattr(NOTE.as_bytes()).unwrap(),
            },
        };
        let double = tree.insert(path.clone(), item);
        assert!(double.is_none(), "{path} is listed twice");
    }
    tree
}

/// Reads the tree through the kernel.
pub fn read_by_kernel(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut directories = vec![root.to_owned()];
    while let Some(dir) = directories.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("/{}", path.strip_prefix(root).unwrap().to_str().unwrap());
            if name == "/lost+found" {
                continue;
            }
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let item = if kind.is_dir() {
                directories.push(path);
                Item::Directory
            } else if kind.is_symlink() {
                Item::Link(fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            } else {
                let mut note = vec![0; 4096];
                let len = getxattr(&path, NOTE, &mut note[..]);
                Item::File {
                    contents: fs::read(&path).unwrap(),
                    note: len.ok().map(|len| note[..len].to_vec()),
                }
            };
            tree.insert(name, item);
        }
    }
    tree
}

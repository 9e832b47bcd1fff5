//! Changes an inode in every way, and moves it.

use std::path::Path;

use parext4::server::ServerInode;
use parext4::{
    DirectFile, FileSize, FileType, InodeFlags, InodeRef, NewInode, OpenOptions, RenameMode, Result,
    SetAttributes, Volume, XattrMode,
};

use super::each;
use super::make::{NEW, USER};
use crate::access_list::full_access_list;

/// Changes what is at a path, and removes it at the end.
pub(super) fn change(volume: &Volume, at: &Path) -> Result<()> {
    let node = volume.resolve_no_follow(at)?;
    attributes(&node);
    match node.file_type() {
        FileType::Directory => return entries(&node),
        FileType::Regular => {
            if let Ok(file) = volume.open_direct(at, &OpenOptions::read_write()) {
                contents(&file);
            }
        }
        _ => {}
    }
    let root = volume.root()?;
    let _ = root.link(b"link", &node);
    drop(node);
    let _ = root.unlink(b"link");
    moves(volume, at)
}

/// Moves a name within and across directories, and removes it.
fn moves(volume: &Volume, at: &Path) -> Result<()> {
    let (root, new) = (volume.root()?, volume.resolve(NEW));
    let _ = volume.rename(at, "/moved");
    if let Ok(new) = new {
        each([
            &|| new.create(b"exchanged", &NewInode::new()).map(drop),
            &|| root.rename(b"moved", &new, b"exchanged", RenameMode::Exchange),
            &|| new.rename(b"exchanged", &root, b"moved", RenameMode::Replace),
        ]);
    }
    let _ = root.rename_with_whiteout(b"moved", &root, b"again", RenameMode::NoReplace, &NewInode::new());
    let _ = volume.remove_file("/moved");
    volume.remove_file("/again")
}

fn attributes(node: &InodeRef) {
    let change = SetAttributes::new().uid(USER).permissions(0o600);
    each([
        &|| node.set_flags(node.flags() ^ (InodeFlags::NOATIME | InodeFlags::NODUMP)),
        &|| node.set_attributes(&change),
        &|| node.touch(),
        &|| node.touch_accessed(),
        &|| node.touch_modified(),
        &|| node.set_project(7),
        &|| node.set_xattr(b"user.more", &[9; 300], XattrMode::Any),
        &|| node.set_xattr(b"system.posix_acl_access", &full_access_list(USER), XattrMode::Any),
        &|| node.set_attributes(&SetAttributes::new().permissions(0o640)),
        &|| node.sync(),
    ]);
    for name in node.list_xattr().unwrap_or_default() {
        let _ = node.remove_xattr(&name);
    }
}

/// Adds names to a directory, and moves it.
fn entries(dir: &InodeRef) -> Result<()> {
    let new = NewInode::new();
    let _ = dir.create(b"another", &new);
    let _ = dir.rename(b"another", dir, b"Another", RenameMode::Replace);
    let _ = dir.unlink(b"Another");
    if let Some(item) = dir.read_dir_after(0)?.iter().find(|item| !matches!(item.name(), b"." | b"..")) {
        dir.rename(item.name(), dir, b"renamed", RenameMode::NoReplace)?;
        dir.rename(b"renamed", dir, item.name(), RenameMode::NoReplace)?;
    }
    Ok(())
}

fn contents(file: &DirectFile) {
    each([
        &|| file.write_all_at(&[3; 4096], 0),
        &|| file.append(&[4; 512]).map(drop),
        &|| file.punch_hole(4096..24096),
        &|| file.zero_range(30_000..40000, FileSize::Keep),
        &|| file.allocate(0..100_000, FileSize::Extend),
        &|| file.collapse_range(0..4096),
        &|| file.insert_range(0..4096),
        &|| file.set_len(5000),
        &|| file.sync_all(),
    ]);
}

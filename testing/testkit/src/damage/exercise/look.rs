//! Reads facts, names, attributes and contents.

use std::io::Read;
use std::path::{Path, PathBuf};

use parext4::{FileType, InodeRef, OpenOptions, QuotaKind, Result, Volume};

/// The most entries that are read.
const MAX_ENTRIES: usize = 1500;
/// The most bytes that are read of a file.
const MAX_BYTES: u64 = 256 << 10;

/// Reads everything that can be read. Returns the paths of entries.
pub(super) fn look(volume: &Volume) -> Vec<PathBuf> {
    let _ = (volume.info(), volume.space(), volume.label(), volume.last_mounted(), volume.mmp());
    for kind in QuotaKind::ALL {
        let _ = (volume.quotas(kind), volume.quota_graces(kind));
    }
    let Ok(walk) = volume.walk("/") else { return Vec::new() };
    let mut paths = Vec::new();
    for entry in walk.take(MAX_ENTRIES).filter_map(Result::ok) {
        if let Ok(node) = entry.inode_ref() {
            let _ = look_at(volume, &entry.path(), &node);
        }
        paths.push(entry.path());
    }
    paths
}

fn look_at(volume: &Volume, path: &Path, node: &InodeRef) -> Result<()> {
    let _ = (node.metadata(), node.project(), volume.project_quota(node));
    for name in node.list_xattr().unwrap_or_default() {
        let _ = node.get_xattr(&name);
    }
    match node.file_type() {
        FileType::Symlink => drop(node.read_link()?),
        FileType::Regular => look_into(volume, path)?,
        FileType::Directory => {
            if let Some(item) = node.read_dir_after(0)?.first() {
                let _ = node.read_dir_after(item.cookie());
            }
        }
        _ => {}
    }
    Ok(())
}

/// Reads a file through the cache and past it.
fn look_into(volume: &Volume, path: &Path) -> Result<()> {
    let file = volume.open_file(path, &OpenOptions::read_only())?;
    let _ = file.inode_ref().verity().map(|verity| verity.map(|verity| verity.to_string()));
    let mut bytes = Vec::new();
    let _ = file.into_cursor().take(MAX_BYTES).read_to_end(&mut bytes);
    let direct = volume.open_direct(path, &OpenOptions::new().read(true))?;
    let _ = direct.fiemap(0..u64::MAX);
    let _ = direct.seek_data(0).and_then(|data| direct.seek_hole(data));
    let _ = direct.read_at(&mut vec![0; 64 << 10], 0);
    Ok(())
}

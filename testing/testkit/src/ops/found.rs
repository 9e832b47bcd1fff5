//! The tree that a volume has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use parext4::{DirectFile, FileType, InodeRef, Volume};

use super::file_model::FileModel;
use super::tree::{Attributes, Entry, Kind, LINK_TARGET, Tree};

/// A file whose attributes change when a commit is wanted. It belongs to no tree.
pub const COMMIT_FILE: &str = "/commit";
/// A file that is made to use a recovered volume. It belongs to no tree.
pub const USED: &str = "/used";

/// Reads the tree below `root`, without the names that belong to no tree.
///
/// # Errors
/// A description of what cannot be read, or is of no kind that a tree has.
pub fn read_tree(volume: &Volume, root: &str) -> Result<Tree, String> {
    let mut tree = Tree::default();
    let mut keys = BTreeMap::new();
    let mut dirs = vec![String::new()];
    // A damaged volume can have a directory below itself.
    let mut visited = BTreeSet::new();
    while let Some(dir) = dirs.pop() {
        let path = if root.is_empty() && dir.is_empty() { "/".to_owned() } else { format!("{root}{dir}") };
        let entries = volume.read_dir(&path).map_err(|e| format!("{path}: {e}"))?;
        for entry in entries {
            let entry = entry.map_err(|e| format!("{path}: {e}"))?;
            let name = format!("{dir}/{}", entry.file_name().to_string_lossy());
            if ["/lost+found", COMMIT_FILE, USED].contains(&name.as_str()) && root.is_empty() {
                continue;
            }
            let node = entry.inode_ref().map_err(|e| format!("{name}: {e}"))?;
            let kind = kind(&node, &mut tree, &mut keys).map_err(|e| format!("{name}: {e}"))?;
            if kind == Kind::Directory {
                if !visited.insert(node.ino().get()) {
                    return Err(format!("{name}: a second name of a directory"));
                }
                dirs.push(name.clone());
            }
            let xattr = node.get_xattr(b"user.x").map_err(|e| format!("{name}: {e}"))?;
            let metadata = node.metadata();
            let (mode, uid) = (metadata.permissions, metadata.uid);
            let attributes = Attributes { mode, uid, xattr: xattr.map(|value| value[0]) };
            tree.names.insert(name, Entry { kind, attributes });
        }
    }
    Ok(tree)
}

fn kind(node: &InodeRef, tree: &mut Tree, keys: &mut BTreeMap<u32, usize>) -> Result<Kind, String> {
    match node.file_type() {
        FileType::Directory => Ok(Kind::Directory),
        FileType::Symlink => match node.read_link() {
            Ok(target) if target == Path::new(LINK_TARGET) => Ok(Kind::Symlink),
            other => Err(format!("a symbolic link to {other:?}")),
        },
        FileType::Regular => {
            if let Some(&key) = keys.get(&node.ino().get()) {
                return Ok(Kind::File(key));
            }
            let key = tree.files.len();
            tree.files.push(Arc::new(FileModel::of(contents(node.clone())?)));
            keys.insert(node.ino().get(), key);
            Ok(Kind::File(key))
        }
        other => Err(format!("an inode of type {other:?}")),
    }
}

fn contents(node: InodeRef) -> Result<Vec<u8>, String> {
    let file = DirectFile::new(node).map_err(|e| e.to_string())?;
    let size = usize::try_from(file.size()).expect("volumes are small");
    let mut bytes = vec![0; size.next_multiple_of(512)];
    let read = file.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
    if read < size {
        return Err(format!("{read} of {size} bytes can be read"));
    }
    bytes.truncate(size);
    Ok(bytes)
}

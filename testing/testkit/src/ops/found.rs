//! The tree that a volume has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parext4::{DirectFile, FileType, InodeRef, Volume};

use super::file_model::FileModel;
use super::tree::{Attributes, Entry, Kind, Tree};

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
            let attributes = attributes(&node).map_err(|e| format!("{name}: {e}"))?;
            if tree.names.insert(name.clone(), Entry { kind, attributes }).is_some() {
                return Err(format!("{name} is listed twice"));
            }
        }
    }
    Ok(tree)
}

fn attributes(node: &InodeRef) -> parext4::Result<Attributes> {
    let mut xattrs = BTreeMap::new();
    for name in node.list_xattr()? {
        let value = node.get_xattr(&name)?.unwrap_or_default();
        xattrs.insert(name, value);
    }
    let metadata = node.metadata();
    Ok(Attributes { mode: metadata.permissions, uid: metadata.uid, xattrs })
}

fn kind(node: &InodeRef, tree: &mut Tree, keys: &mut BTreeMap<u64, usize>) -> Result<Kind, String> {
    let ino = node.ino().get().into();
    match node.file_type() {
        FileType::Directory => Ok(Kind::Directory),
        FileType::Symlink => {
            let target = node.read_link().map_err(|e| e.to_string())?;
            let target = target.into_os_string().into_string().map_err(|e| format!("a link to {e:?}"))?;
            Ok(Kind::Symlink { key: key(tree, keys, ino, || Ok(Vec::new()))?, target })
        }
        FileType::Regular => Ok(Kind::File(key(tree, keys, ino, || contents(node.clone()))?)),
        other => Err(format!("an inode of type {other:?}")),
    }
}

/// Returns the key of the inode `ino`, whose contents `read` returns. They are added to the tree at
/// its first name; `keys` has the keys by inode number.
pub(super) fn key(
    tree: &mut Tree,
    keys: &mut BTreeMap<u64, usize>,
    ino: u64,
    read: impl FnOnce() -> Result<Vec<u8>, String>,
) -> Result<usize, String> {
    if let Some(&key) = keys.get(&ino) {
        return Ok(key);
    }
    let key = tree.files.len();
    tree.files.push(Arc::new(FileModel::of(read()?)));
    keys.insert(ino, key);
    Ok(key)
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

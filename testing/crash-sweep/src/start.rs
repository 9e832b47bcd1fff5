//! The trees before the first operation, of one thread or of several, and the bytes that the
//! operations write.

use std::collections::BTreeMap;
use std::sync::Arc;

use testkit::ops::tree::Kind;
use testkit::ops::{Content, FileModel, Oracle, Step, Tree, Zeros};

use crate::op::{FILE_BYTES, SHORT};

/// The directory in which all threads have names, in the trees of threads. Thread 3's name `/s/1`
/// is `/s/t3-1` on the volume.
pub const COMMON: &str = "/s";
/// The extended attribute that operations set and remove.
pub const XATTR: &str = "user.x";
/// The most threads that have a tree each. No two write the same byte.
pub const MAX_THREADS: u8 = 8;
/// The most operations on a tree. No two write the same byte.
pub const MAX_STEPS: usize = 16;

/// Returns what operation `nth` of a thread writes: a byte that is not that of the stale bytes on
/// the device.
pub const fn content(thread: u8, nth: u8) -> Content {
    Content::Byte(0x10 + thread * 0x10 + nth)
}

/// Returns the tree before the first operation of a thread.
pub fn initial(thread: u8) -> Tree {
    let mut tree = Tree::default();
    for path in ["/a", "/b", "/e"] {
        tree.add(path, Kind::Directory, 0o755);
    }
    for (nth, path) in ["/a/1", "/b/1", "/b/2"].into_iter().enumerate() {
        let byte = 0xb0 + thread * 4 + u8::try_from(nth).expect("few");
        let bytes = if path == "/b/2" { SHORT } else { FILE_BYTES };
        tree.files.push(Arc::new(FileModel::of(Content::Byte(byte).bytes(0, bytes))));
        tree.add(path, Kind::File(nth), 0o644);
    }
    let entry = tree.names.get_mut("/b/1").expect("it was added");
    entry.attributes.xattrs.insert(XATTR.into(), vec![1]);
    tree
}

/// Returns the tree before the first operation of a thread that has names in [`COMMON`].
pub fn initial_with_common(thread: u8) -> Tree {
    let mut tree = initial(thread);
    tree.add(COMMON, Kind::Directory, 0o755);
    tree
}

/// Returns the oracle of steps that succeed. `writer` chooses the bytes that they write.
///
/// # Panics
/// If a step would fail.
pub fn oracle(first: Tree, writer: u8, steps: &[Step]) -> Oracle {
    let mut oracle = Oracle::new(first, Zeros::PastTheEnd);
    (0..).zip(steps).for_each(|(nth, (op, _))| oracle.add(*op, content(writer, nth)));
    oracle
}

/// Returns the tree of the thread whose directory is `root` in the tree of a volume, by the paths
/// below it, with the thread's names in [`COMMON`].
#[must_use]
pub fn below(tree: &Tree, root: &str) -> Tree {
    let mut below = Tree::default();
    let mut keys = BTreeMap::new();
    for (path, entry) in &tree.names {
        let Some(path) = path_below(root, path) else { continue };
        let mut entry = entry.clone();
        if let Kind::File(key) | Kind::Symlink { key, .. } = &mut entry.kind {
            let next = below.files.len();
            let new = *keys.entry(*key).or_insert(next);
            if new == next {
                below.files.push(tree.files[*key].clone());
            }
            *key = new;
        }
        below.names.insert(path, entry);
    }
    below
}

/// Returns the path on the volume of `path` of the thread whose directory is `root`; the empty path
/// is the directory itself.
pub fn path_on_volume(root: &str, path: &str) -> String {
    match path.strip_prefix(COMMON) {
        Some("") => COMMON.to_owned(),
        Some(rest) if rest.starts_with('/') => format!("{COMMON}{root}-{}", &rest[1..]),
        _ => format!("{root}{path}"),
    }
}

/// The reverse of [`path_on_volume`]. `None` for a path of another thread.
fn path_below(root: &str, path: &str) -> Option<String> {
    if path == COMMON {
        return Some(path.to_owned());
    }
    if let Some(name) = path.strip_prefix(COMMON).and_then(|path| path.strip_prefix(root)) {
        return name.strip_prefix('-').map(|name| format!("{COMMON}/{name}"));
    }
    path.strip_prefix(root).filter(|path| path.starts_with('/')).map(str::to_owned)
}

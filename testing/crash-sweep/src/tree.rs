//! The expected tree: names, attributes and contents, and what each operation makes of them. Pure.

use std::collections::BTreeMap;

use testkit::sector::SECTOR;

use crate::op::{FILE_BYTES, Op, PIECE, SHORT, Way};

/// The target of symbolic links.
pub const LINK_TARGET: &str = "target";

/// What a name refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A file; the key of its contents.
    File(usize),
}

/// The attributes that operations change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// Value of the attribute `user.x`.
    pub xattr: Option<u8>,
}

/// An inode with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// File, directory or symbolic link.
    pub kind: Kind,
    /// Its attributes; names of one file have the same.
    pub attributes: Attributes,
}

/// The state between two operations.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tree {
    /// All names but `/` and `/lost+found`.
    pub names: BTreeMap<String, Entry>,
    /// Contents by key, also of files without a name.
    pub files: Vec<Vec<u8>>,
}

/// The directory in which all threads have names, in the trees of threads. Thread 3's name `/s/1`
/// is `/s/t3-1` on the volume.
pub const COMMON: &str = "/s";
/// The most threads that have a tree each. No two write the same byte.
pub const MAX_THREADS: u8 = 8;
/// The most operations on a tree. No two write the same byte.
pub const MAX_STEPS: usize = 16;

/// Returns the byte that operation `nth` of a thread writes. It is not that of the stale bytes on
/// the device.
pub const fn byte(thread: u8, nth: u8) -> u8 {
    0x10 + thread * 0x10 + nth
}

impl Tree {
    /// Returns the tree before the first operation of a thread.
    pub fn initial(thread: u8) -> Self {
        let mut tree = Self::default();
        for path in ["/a", "/b", "/e"] {
            tree.add(path, Kind::Directory, 0o755);
        }
        for (nth, path) in ["/a/1", "/b/1", "/b/2"].into_iter().enumerate() {
            let byte = 0xb0 + thread * 4 + u8::try_from(nth).expect("few");
            let bytes = if path == "/b/2" { SHORT } else { FILE_BYTES };
            tree.files.push(vec![byte; index(bytes)]);
            tree.add(path, Kind::File(nth), 0o644);
        }
        tree.names.get_mut("/b/1").expect("it was added").attributes.xattr = Some(1);
        tree
    }

    /// Returns the tree before the first operation of a thread that has names in [`COMMON`].
    pub fn initial_with_common(thread: u8) -> Self {
        let mut tree = Self::initial(thread);
        tree.add(COMMON, Kind::Directory, 0o755);
        tree
    }

    fn add(&mut self, path: &str, kind: Kind, mode: u16) {
        let attributes = Attributes { mode, uid: 0, xattr: None };
        self.names.insert(path.to_owned(), Entry { kind, attributes });
    }

    /// Returns the key of a file.
    pub fn file(&self, path: &str) -> Option<usize> {
        match self.names.get(path)?.kind {
            Kind::File(key) => Some(key),
            _ => None,
        }
    }

    fn is_free(&self, path: &str) -> bool {
        let (parent, _) = path.rsplit_once('/').expect("an absolute path");
        let has_parent =
            parent.is_empty() || matches!(self.names.get(parent), Some(e) if e.kind == Kind::Directory);
        has_parent && !self.names.contains_key(path)
    }

    /// Returns the tree after an operation that writes `byte`; `None` if it would fail.
    pub fn after(&self, op: &Op, byte: u8) -> Option<Self> {
        let mut next = self.clone();
        next.apply(op, byte).then_some(next)
    }

    fn apply(&mut self, op: &Op, byte: u8) -> bool {
        match *op {
            Op::Create(path) => self.is_free(path) && self.create(path, Kind::File(self.files.len())),
            Op::MakeDir(path) => self.is_free(path) && self.create(path, Kind::Directory),
            Op::Symlink(path) => self.is_free(path) && self.create(path, Kind::Symlink),
            Op::Link(from, to) => self.is_free(to) && self.file(from).is_some() && self.copy_name(from, to),
            Op::Rename(from, to) => self.rename(from, to),
            Op::Exchange(one, two) => self.exchange(one, two),
            Op::Unlink(path) => {
                self.names.get(path).is_some_and(|e| e.kind != Kind::Directory) && self.remove(path)
            }
            Op::UnlinkOpen(path) => self.file(path).is_some() && self.remove(path),
            Op::RemoveDir(path) => {
                let is_dir = self.names.get(path).is_some_and(|e| e.kind == Kind::Directory);
                is_dir && !self.has_children(path) && self.remove(path)
            }
            Op::Chmod(path) => self.change(path, |attributes| attributes.mode = mode_of(byte)),
            Op::Chown(path) => self.change(path, |attributes| attributes.uid = u32::from(byte)),
            Op::SetXattr(path) => {
                self.file(path).is_some() && self.change(path, |attributes| attributes.xattr = Some(byte))
            }
            Op::RemoveXattr(path) => {
                let has = self.names.get(path).is_some_and(|entry| entry.attributes.xattr.is_some());
                has && self.change(path, |attributes| attributes.xattr = None)
            }
            _ => self.file(op.target()).is_some_and(|key| change_data(&mut self.files[key], op, byte)),
        }
    }

    /// Returns the tree of the thread whose directory is `root`, by the paths below it, with the
    /// thread's names in [`COMMON`].
    #[must_use]
    pub fn below(&self, root: &str) -> Self {
        let mut below = Self::default();
        let mut keys = BTreeMap::new();
        for (path, entry) in &self.names {
            let Some(path) = path_below(root, path) else { continue };
            let mut entry = entry.clone();
            if let Kind::File(key) = &mut entry.kind {
                let next = below.files.len();
                let new = *keys.entry(*key).or_insert(next);
                if new == next {
                    below.files.push(self.files[*key].clone());
                }
                *key = new;
            }
            below.names.insert(path, entry);
        }
        below
    }

    /// Compares all names, attributes and contents.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self, found: &Self) -> Result<(), String> {
        if !self.has_names_of(found) {
            return Err(format!("names are {:?}, not {:?}", found.names, self.names));
        }
        for path in self.names.keys() {
            let contents = |tree: &Self| tree.file(path).map(|key| tree.files[key].clone());
            if contents(self) != contents(found) {
                return Err(format!("{path} has other contents"));
            }
        }
        Ok(())
    }

    fn create(&mut self, path: &str, kind: Kind) -> bool {
        let mode = match kind {
            Kind::Directory => 0o755,
            Kind::Symlink => 0o777,
            Kind::File(_) => {
                self.files.push(Vec::new());
                0o644
            }
        };
        self.add(path, kind, mode);
        true
    }

    fn remove(&mut self, path: &str) -> bool {
        self.names.remove(path).is_some()
    }

    fn copy_name(&mut self, from: &str, to: &str) -> bool {
        let entry = self.names[from].clone();
        self.names.insert(to.to_owned(), entry);
        true
    }

    fn has_children(&self, path: &str) -> bool {
        !self.children(path).is_empty()
    }

    /// Returns the names in a directory, and what they refer to.
    pub fn children(&self, path: &str) -> Vec<(&str, &Kind)> {
        let name_in =
            |name: &'_ str| name.strip_prefix(path)?.strip_prefix('/').map(|rest| !rest.contains('/'));
        let is_child = |(name, _): &(&String, &Entry)| name_in(name) == Some(true);
        self.names.iter().filter(is_child).map(|(name, entry)| (name.as_str(), &entry.kind)).collect()
    }

    /// Returns true if names, kinds and attributes are as they were found, and names of one file
    /// are of one file.
    pub fn has_names_of(&self, found: &Self) -> bool {
        let mut keys = BTreeMap::new();
        self.names.len() == found.names.len()
            && self.names.iter().zip(&found.names).all(|((path, entry), (found_path, found))| {
                let same_kind = match (&entry.kind, &found.kind) {
                    (Kind::File(key), Kind::File(found)) => {
                        keys.insert(*key, *found).is_none_or(|old| old == *found)
                    }
                    (kind, found) => kind == found,
                };
                path == found_path && same_kind && entry.attributes == found.attributes
            })
    }

    fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(entry) = self.names.get(from).cloned() else { return false };
        let replaces = self.names.get(to);
        // Two names of one file stay as they are.
        if replaces == Some(&entry)
            || !replaces.map_or(self.is_free(to), |old| is_file(old) && is_file(&entry))
        {
            return false;
        }
        let below = format!("{from}/");
        let moved: Vec<_> = self.names.keys().filter(|name| name.starts_with(&below)).cloned().collect();
        for name in moved {
            let entry = self.names.remove(&name).expect("it was listed");
            self.names.insert(format!("{to}/{}", &name[below.len()..]), entry);
        }
        self.names.remove(from);
        self.names.insert(to.to_owned(), entry);
        true
    }

    fn exchange(&mut self, one: &str, two: &str) -> bool {
        let (Some(first), Some(second)) = (self.names.get(one).cloned(), self.names.get(two).cloned()) else {
            return false;
        };
        if first == second || !is_file(&first) || !is_file(&second) {
            return false;
        }
        self.names.insert(one.to_owned(), second);
        self.names.insert(two.to_owned(), first);
        true
    }

    /// Changes the attributes of all names of an inode.
    fn change(&mut self, path: &str, change: impl Fn(&mut Attributes)) -> bool {
        let Some(kind) = self.names.get(path).map(|entry| entry.kind.clone()) else { return false };
        for (name, entry) in &mut self.names {
            if name == path || matches!(kind, Kind::File(_)) && entry.kind == kind {
                change(&mut entry.attributes);
            }
        }
        kind != Kind::Symlink
    }
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

/// Returns the permissions that an operation sets.
pub fn mode_of(byte: u8) -> u16 {
    0o600 + u16::from(byte % 0x10)
}

fn is_file(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::File(_))
}

/// Changes the contents of a file; returns false if the operation would fail.
fn change_data(bytes: &mut Vec<u8>, op: &Op, byte: u8) -> bool {
    let size = bytes.len() as u64;
    match *op {
        Op::Write(_, offset, _) => fill(bytes, offset, PIECE, byte, true),
        Op::WriteShort(_) => fill(bytes, 0, SHORT, byte, true),
        // Direct appends need whole sectors.
        Op::Append(_, Way::Direct | Way::Queued) if !size.is_multiple_of(SECTOR as u64) => return false,
        Op::Append(..) => fill(bytes, size, PIECE, byte, true),
        Op::SetLen(_, len) => bytes.resize(index(len), 0),
        Op::Allocate(_, offset, keep_size) if !keep_size => {
            bytes.resize(index((offset + PIECE).max(size)), 0)
        }
        Op::Allocate(..) => {}
        Op::Punch(_, offset) => fill(bytes, offset, PIECE, 0, false),
        Op::Zero(_, offset, keep_size) => fill(bytes, offset, PIECE, 0, !keep_size),
        Op::Collapse(_) if size > 2 * PIECE => drop(bytes.drain(index(PIECE)..index(2 * PIECE))),
        Op::Insert(_) if size > PIECE => {
            bytes.splice(index(PIECE)..index(PIECE), std::iter::repeat_n(0, index(PIECE)));
        }
        _ => return false,
    }
    true
}

fn fill(bytes: &mut Vec<u8>, offset: u64, len: u64, byte: u8, grows: bool) {
    if grows {
        bytes.resize(bytes.len().max(index(offset + len)), 0);
    }
    let end = index(offset + len).min(bytes.len());
    let start = index(offset).min(end);
    bytes[start..end].fill(byte);
}

fn index(offset: u64) -> usize {
    testkit::ops::content::index(offset)
}

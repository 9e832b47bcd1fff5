//! The expected tree: names, attributes and contents, and what each operation makes of them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parext4::{RenameMode, XattrMode};

use super::content::Content;
use super::file_model::FileModel;
use super::file_op::{FileOp, Way};
use super::op::{LAST_WRITE, Op, parent};
use crate::sector::SECTOR;

/// What a name refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A symbolic link. The key tells it from other links with this target.
    Symlink {
        /// Like that of a file, of empty contents.
        key: usize,
        /// The path that the link contains.
        target: String,
    },
    /// A file; the key of its contents.
    File(usize),
}

impl Kind {
    /// Returns the key of the inode, unless it is a directory, which has one name.
    pub fn key(&self) -> Option<usize> {
        match self {
            Self::Directory => None,
            Self::Symlink { key, .. } | Self::File(key) => Some(*key),
        }
    }

    /// Returns true if both are of one inode that can have several names.
    fn is_same_inode(&self, other: &Self) -> bool {
        self.key().is_some() && self.key() == other.key()
    }
}

/// The attributes that operations change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// Extended attributes: names and values.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// An inode with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// File, directory or symbolic link.
    pub kind: Kind,
    /// Its attributes; names of one file have the same.
    pub attributes: Attributes,
}

impl Entry {
    /// Returns true if kind and attributes are as they were found. Contents are not compared.
    fn is_like(&self, found: &Self) -> bool {
        let is_same_kind = match (&self.kind, &found.kind) {
            (Kind::Symlink { target, .. }, Kind::Symlink { target: found, .. }) => target == found,
            (Kind::Directory, Kind::Directory) | (Kind::File(_), Kind::File(_)) => true,
            _ => false,
        };
        is_same_kind && self.attributes == found.attributes
    }
}

/// The state between two operations.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tree {
    /// All names but `/` and `/lost+found`.
    pub names: BTreeMap<String, Entry>,
    /// Contents by key, also of files without a name. A symbolic link has empty contents.
    pub files: Vec<Arc<FileModel>>,
}

impl Tree {
    /// Adds a name without extended attributes that belongs to root.
    pub fn add(&mut self, path: &str, kind: Kind, mode: u16) {
        let attributes = Attributes { mode, uid: 0, xattrs: BTreeMap::new() };
        self.names.insert(path.to_owned(), Entry { kind, attributes });
    }

    /// Returns the key of a file.
    pub fn file(&self, path: &str) -> Option<usize> {
        match self.names.get(path)?.kind {
            Kind::File(key) => Some(key),
            _ => None,
        }
    }

    /// Returns the contents of a file.
    pub fn bytes(&self, path: &str) -> Option<&[u8]> {
        self.file(path).map(|key| self.files[key].bytes())
    }

    /// Returns the number of inodes with names.
    pub fn inodes(&self) -> usize {
        let keys = || self.names.values().map(|entry| entry.kind.key());
        let with_keys: BTreeSet<_> = keys().flatten().collect();
        with_keys.len() + keys().filter(Option::is_none).count()
    }

    fn is_free(&self, path: &str) -> bool {
        let parent = parent(path);
        let has_parent =
            parent.is_empty() || matches!(self.names.get(parent), Some(e) if e.kind == Kind::Directory);
        has_parent && !self.names.contains_key(path)
    }

    /// Returns the tree after an operation that writes `content`; `None` if it would fail.
    pub fn after(&self, op: &Op, content: Content) -> Option<Self> {
        let mut next = self.clone();
        next.apply(op, content).then_some(next)
    }

    fn apply(&mut self, op: &Op, content: Content) -> bool {
        let byte = content.byte();
        match *op {
            Op::SyncVolume => true,
            Op::Create(path) => self.is_free(path) && self.create(path, Kind::File(self.files.len())),
            Op::MakeDir(path) => self.is_free(path) && self.create(path, Kind::Directory),
            Op::Symlink(path, target) => {
                let kind = Kind::Symlink { key: self.files.len(), target: target.to_owned() };
                self.is_free(path) && self.create(path, kind)
            }
            Op::Link(from, to) => {
                let key = self.names.get(from).and_then(|entry| entry.kind.key());
                self.is_free(to) && key.is_some() && self.copy_name(from, to)
            }
            Op::Rename(from, to) => self.rename(from, to, RenameMode::Replace),
            Op::RenameNew(from, to) => self.rename(from, to, RenameMode::NoReplace),
            Op::Exchange(one, two) => self.rename(one, two, RenameMode::Exchange),
            Op::Unlink(path) => {
                self.names.get(path).is_some_and(|e| e.kind != Kind::Directory) && self.remove(path)
            }
            Op::UnlinkOpen(path) => self.file(path).is_some() && self.remove(path),
            Op::RemoveOpen(path) => {
                let write = FileOp::Write { way: Way::Direct, offset: 0, len: LAST_WRITE };
                self.change_file(path, write, content) && self.remove(path)
            }
            Op::RemoveDir(path) => {
                let is_dir = self.names.get(path).is_some_and(|e| e.kind == Kind::Directory);
                is_dir && !self.has_children(path) && self.remove(path)
            }
            Op::Chmod(path) => self.change(path, |attributes| attributes.mode = mode_of(byte)),
            Op::Chown(path) => self.change(path, |attributes| attributes.uid = u32::from(byte)),
            Op::SetXattr { path, name, len, mode } => {
                let is_possible = match mode {
                    XattrMode::Create => !self.has_xattr(path, name),
                    XattrMode::Replace => self.has_xattr(path, name),
                    _ => true,
                };
                let set = |attributes: &mut Attributes| {
                    attributes.xattrs.insert(name.into(), content.value(len));
                };
                is_possible && self.file(path).is_some() && self.change(path, set)
            }
            Op::RemoveXattr { path, name } => {
                let remove = |attributes: &mut Attributes| {
                    attributes.xattrs.remove(name.as_bytes());
                };
                self.has_xattr(path, name) && self.change(path, remove)
            }
            Op::File(path, op) => self.change_file(path, op, content),
        }
    }

    /// Compares all names, attributes and contents.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self, found: &Self) -> Result<(), String> {
        if !self.has_names_of(found) {
            return Err(self.difference(found));
        }
        for path in self.names.keys() {
            if self.bytes(path) != found.bytes(path) {
                return Err(format!("{path} has other contents"));
            }
        }
        Ok(())
    }

    fn create(&mut self, path: &str, kind: Kind) -> bool {
        let mode = match kind {
            Kind::Directory => 0o755,
            Kind::Symlink { .. } => 0o777,
            Kind::File(_) => 0o644,
        };
        if kind.key().is_some() {
            self.files.push(Arc::default());
        }
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

    fn has_xattr(&self, path: &str, name: &str) -> bool {
        self.names.get(path).is_some_and(|entry| entry.attributes.xattrs.contains_key(name.as_bytes()))
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

    /// Returns true if names, kinds and attributes are as they were found, and two names are of one
    /// inode if and only if they were found so.
    pub fn has_names_of(&self, found: &Self) -> bool {
        let (mut keys, mut found_keys) = (BTreeMap::new(), BTreeMap::new());
        self.names.len() == found.names.len()
            && self.names.iter().zip(&found.names).all(|((path, entry), (found_path, found))| {
                let is_same_inode = match (entry.kind.key(), found.kind.key()) {
                    (Some(key), Some(found)) => {
                        *keys.entry(key).or_insert(found) == found
                            && *found_keys.entry(found).or_insert(key) == key
                    }
                    _ => true,
                };
                path == found_path && entry.is_like(found) && is_same_inode
            })
    }

    /// Describes the first name that differs.
    fn difference(&self, found: &Self) -> String {
        let differs = |path: &&String| match (self.names.get(*path), found.names.get(*path)) {
            (Some(entry), Some(found)) => !entry.is_like(found),
            _ => true,
        };
        match self.names.keys().chain(found.names.keys()).find(differs) {
            Some(path) => {
                format!("{path} is {:?}, not {:?}", found.names.get(path), self.names.get(path))
            }
            None => "other names are of one inode".to_owned(),
        }
    }

    fn rename(&mut self, from: &str, to: &str, mode: RenameMode) -> bool {
        let Some(moved) = self.names.get(from) else { return false };
        let is_possible = match self.names.get(to) {
            None => mode != RenameMode::Exchange && self.is_free(to) && !is_below(to, from),
            Some(_) if mode == RenameMode::NoReplace => false,
            // Two names of one inode stay as they are.
            Some(replaced) if from == to || replaced.kind.is_same_inode(&moved.kind) => return true,
            Some(_) if mode == RenameMode::Exchange => !is_below(to, from) && !is_below(from, to),
            Some(replaced) => {
                let are_directories = [moved, replaced].map(|entry| entry.kind == Kind::Directory);
                are_directories[0] == are_directories[1] && !self.has_children(to) && !is_below(to, from)
            }
        };
        if is_possible {
            let (moved, replaced) = (self.take(from), self.take(to));
            self.put(to, moved);
            if mode == RenameMode::Exchange {
                self.put(from, replaced);
            }
        }
        is_possible
    }

    /// Removes a name and all names below it. Returns each with the rest of its path.
    fn take(&mut self, path: &str) -> Vec<(String, Entry)> {
        let names = self.names.keys().filter(|name| *name == path || is_below(name, path));
        let names: Vec<_> = names.cloned().collect();
        let take = |name: String| {
            let entry = self.names.remove(&name).expect("it was listed");
            (name[path.len()..].to_owned(), entry)
        };
        names.into_iter().map(take).collect()
    }

    fn put(&mut self, path: &str, names: Vec<(String, Entry)>) {
        self.names.extend(names.into_iter().map(|(rest, entry)| (format!("{path}{rest}"), entry)));
    }

    /// Changes the contents of a file. Returns false if the operation would fail.
    fn change_file(&mut self, path: &str, op: FileOp, content: Content) -> bool {
        let Some(key) = self.file(path) else { return false };
        let size = self.files[key].size();
        let is_possible = match op {
            // Direct appends need whole sectors.
            FileOp::Append { way, .. } => !way.is_direct() || size.is_multiple_of(SECTOR as u64),
            FileOp::CollapseRange { offset, len } => offset + len < size,
            FileOp::InsertRange { offset, .. } => offset < size,
            _ => true,
        };
        if is_possible && op.changes() {
            Arc::make_mut(&mut self.files[key]).apply(op, content);
        }
        is_possible
    }

    /// Changes the attributes of all names of an inode.
    fn change(&mut self, path: &str, change: impl Fn(&mut Attributes)) -> bool {
        let Some(kind) = self.names.get(path).map(|entry| entry.kind.clone()) else { return false };
        for (name, entry) in &mut self.names {
            if name == path || entry.kind.is_same_inode(&kind) {
                change(&mut entry.attributes);
            }
        }
        !matches!(kind, Kind::Symlink { .. })
    }
}

/// Returns the permissions that an operation sets.
pub fn mode_of(byte: u8) -> u16 {
    0o600 + u16::from(byte % 0x10)
}

fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

//! Walks a tree of the volume, and makes the copy outside.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use parext4::{DirectFile, FileType, InodeNo, Metadata, Node, NodeId, Volume};
use rustix::fs::{CWD, Mode, makedev, mknodat};

use super::file::FileJob;
use super::replace::replace;
use super::{Shared, attributes};
use crate::transfer::Submit;
use crate::tree::{self, Entries, Visited};

/// Copies trees: directories and special files itself, regular files as jobs.
pub struct Walker {
    shared: Arc<Shared>,
    visited: Visited,
    /// The first names of files that have several.
    linked: HashMap<InodeNo, Place>,
    /// Further names of such files, which are made when the files are.
    links: Vec<(InodeNo, Place)>,
    /// Directories, each before its entries. Kept by number, because there may be millions.
    directories: Vec<(Place, NodeId)>,
}

/// Where a copy is made. Millions of copies together keep each name once.
struct Place {
    /// Index of the directory in [`Walker::directories`].
    dir: Option<usize>,
    /// The name in that directory; the whole path of the first copy.
    name: OsString,
}

/// A directory whose entries are copied.
struct Level {
    entries: Entries,
    /// Index of the directory in [`Walker::directories`].
    index: usize,
}

impl Walker {
    pub fn new(shared: Arc<Shared>) -> Self {
        let (visited, linked) = (Visited::default(), HashMap::new());
        Self { shared, visited, linked, links: Vec::new(), directories: Vec::new() }
    }

    /// Copies `node` and all below it to `path`. Does not recurse, because the image decides how deep the tree is; the paths
    /// outside limit it to some thousand directories.
    pub fn tree(&mut self, jobs: &Submit<'_, FileJob>, node: Node, mut path: PathBuf) -> Result<()> {
        let top = Place { dir: None, name: path.clone().into_os_string() };
        let mut levels: Vec<Level> = self.entry(jobs, node, &path, top)?.into_iter().collect();
        while let Some(level) = levels.last_mut() {
            let Some(item) = level.entries.next() else {
                levels.pop();
                path.pop();
                continue;
            };
            let name = OsString::from_vec(item.with_context(|| self.shared.source_of(&path))?.name);
            let node = level.entries.dir().lookup(name.as_bytes());
            let node = node.with_context(|| self.shared.source_of(&path))?;
            path.push(&name);
            match self.entry(jobs, node, &path, Place { dir: Some(level.index), name })? {
                Some(below) => levels.push(below),
                None => drop(path.pop()),
            }
        }
        Ok(())
    }

    /// Copies `node` alone to `path`, which is the path of `place`. Returns a directory, for its entries.
    fn entry(
        &mut self,
        jobs: &Submit<'_, FileJob>,
        node: Node,
        path: &Path,
        place: Place,
    ) -> Result<Option<Level>> {
        let metadata = node.metadata();
        if metadata.file_type == FileType::Directory {
            return self.directory(&node, path, place).map(Some);
        }
        if metadata.links > 1 {
            if self.linked.contains_key(&metadata.ino) {
                self.links.push((metadata.ino, place));
                return Ok(None);
            }
            self.linked.insert(metadata.ino, place);
        }
        if metadata.file_type == FileType::Regular {
            self.shared.progress.expect(metadata.size);
            let shared = Arc::clone(&self.shared);
            let file = DirectFile::new(node).with_context(|| shared.source_of(path))?;
            jobs.submit(FileJob { file, path: path.to_owned(), metadata, shared })?;
            return Ok(None);
        }
        if metadata.rdev.is_some() && !self.shared.is_root {
            self.linked.remove(&metadata.ino);
            self.shared
                .progress
                .warn(&format!("{}: only root can make device nodes; skipped", path.display()));
            return Ok(None);
        }
        small(&node, path, &metadata)
            .and_then(|()| attributes::set(path, &node, &metadata, &self.shared))
            .with_context(|| path.display().to_string())?;
        self.shared.progress.file_done();
        Ok(None)
    }

    /// Makes the links, and gives the directories their attributes. All jobs are done.
    pub fn finish(self, volume: &Volume) -> Result<()> {
        for (ino, further) in &self.links {
            let Some(first) = self.linked.get(ino).map(|first| self.path(first)) else { continue };
            let further = self.path(further);
            replace(&further, |path| fs::hard_link(&first, path))
                .with_context(|| further.display().to_string())?;
            self.shared.progress.file_done();
        }
        // Entries before their directory: its permissions may forbid access, and changes of entries set its times.
        for &(ref place, id) in self.directories.iter().rev() {
            let path = self.path(place);
            let set = |node: &Node| attributes::set(&path, node, &node.metadata(), &self.shared);
            volume
                .node(id)
                .map_err(Into::into)
                .and_then(|node| set(&node))
                .with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn directory(&mut self, dir: &Node, path: &Path, place: Place) -> Result<Level> {
        self.visited.enter(dir).with_context(|| self.shared.source_of(path))?;
        make_directory(path).with_context(|| path.display().to_string())?;
        let index = self.directories.len();
        self.directories.push((place, dir.id()));
        Ok(Level { entries: tree::entries(dir), index })
    }

    /// Returns the path of a copy.
    fn path(&self, place: &Place) -> PathBuf {
        let above = |place: &&Place| Some(&self.directories.get(place.dir?)?.0);
        let names: Vec<_> =
            std::iter::successors(Some(place), above).map(|place| place.name.as_os_str()).collect();
        names.into_iter().rev().collect()
    }
}

/// Makes a directory that only this user can read until it has its own attributes.
fn make_directory(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // A symbolic link to a directory does not count: it may come from the image.
            let is_dir = path.symlink_metadata()?.is_dir();
            ensure!(is_dir, "is not a directory, and would have to be replaced by one");
            Ok(())
        }
        made => Ok(made?),
    }
}

/// Makes a symbolic link or special file.
fn small(node: &Node, path: &Path, metadata: &Metadata) -> Result<()> {
    use rustix::fs::FileType as Kind;
    let kind = match metadata.file_type {
        FileType::CharDevice => Kind::CharacterDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Symlink => {
            let target = OsString::from_vec(node.read_link()?);
            return replace(path, |path| std::os::unix::fs::symlink(&target, path));
        }
        FileType::Regular | FileType::Directory => bail!("inode {} changed its type", metadata.ino),
    };
    let device = metadata.rdev.map_or(0, |(major, minor)| makedev(major, minor));
    replace(path, |path| Ok(mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device)?))
}

//! Walks a tree of the volume, and makes the copy outside.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
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
use crate::tree::{self, Visited};

/// Copies trees: directories and special files itself, regular files as jobs.
pub struct Walker {
    shared: Arc<Shared>,
    visited: Visited,
    /// The first names of files that have several.
    linked: HashMap<InodeNo, PathBuf>,
    /// First and further names of such files; the latter are made when the files are.
    links: Vec<(PathBuf, PathBuf)>,
    /// Directories, each before its entries. Kept by number, because there may be millions.
    directories: Vec<(PathBuf, NodeId)>,
}

impl Walker {
    pub fn new(shared: Arc<Shared>) -> Self {
        let (visited, linked) = (Visited::default(), HashMap::new());
        Self { shared, visited, linked, links: Vec::new(), directories: Vec::new() }
    }

    /// Copies `node` and all below it to `path`.
    ///
    /// The recursion ends: a path outside can have no more than some thousand directories.
    pub fn entry(&mut self, jobs: &Submit<'_, FileJob>, node: Node, path: PathBuf) -> Result<()> {
        let metadata = node.metadata();
        if metadata.file_type == FileType::Directory {
            return self.directory(jobs, &node, path);
        }
        if metadata.links > 1 {
            if let Some(first) = self.linked.get(&metadata.ino) {
                self.links.push((first.clone(), path));
                return Ok(());
            }
            self.linked.insert(metadata.ino, path.clone());
        }
        if metadata.file_type == FileType::Regular {
            self.shared.progress.expect(metadata.size);
            let shared = Arc::clone(&self.shared);
            return jobs.submit(FileJob {
                file: DirectFile::new(node).with_context(|| shared.source_of(&path))?,
                path,
                metadata,
                shared,
            });
        }
        if metadata.rdev.is_some() && !self.shared.is_root {
            self.linked.remove(&metadata.ino);
            self.shared
                .progress
                .warn(&format!("{}: only root can make device nodes; skipped", path.display()));
            return Ok(());
        }
        small(&node, &path, &metadata)
            .and_then(|()| attributes::set(&path, &node, &metadata, &self.shared))
            .with_context(|| path.display().to_string())?;
        self.shared.progress.file_done();
        Ok(())
    }

    /// Makes the links, and gives the directories their attributes. All jobs are done.
    pub fn finish(self, volume: &Volume) -> Result<()> {
        for (first, further) in &self.links {
            replace(further, |path| fs::hard_link(first, path))
                .with_context(|| further.display().to_string())?;
            self.shared.progress.file_done();
        }
        // Entries before their directory: its permissions may forbid access, and changes of entries set its times.
        for &(ref path, id) in self.directories.iter().rev() {
            let set = |node: &Node| attributes::set(path, node, &node.metadata(), &self.shared);
            volume
                .node(id)
                .map_err(Into::into)
                .and_then(|node| set(&node))
                .with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn directory(&mut self, jobs: &Submit<'_, FileJob>, dir: &Node, path: PathBuf) -> Result<()> {
        self.visited.enter(dir).with_context(|| self.shared.source_of(&path))?;
        make_directory(&path).with_context(|| path.display().to_string())?;
        self.directories.push((path.clone(), dir.id()));
        for item in tree::entries(dir) {
            let item = item.with_context(|| self.shared.source_of(&path))?;
            let path = path.join(OsStr::from_bytes(&item.name));
            let node = dir.lookup(&item.name).with_context(|| self.shared.source_of(&path))?;
            self.entry(jobs, node, path)?;
        }
        Ok(())
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

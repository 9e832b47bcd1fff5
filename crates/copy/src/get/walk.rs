//! Walks a tree of the volume, and makes the copy outside.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::error::{Context, Result, bail, ensure};
use parext4::{DirectFile, FileType, InodeId, InodeNo, InodeRef, Metadata, Volume};
use rustix::fs::{Mode, makedev, mknodat, symlinkat};

use super::confined_path::{ConfinedPath, Dir, Directories, Identity, replace};
use super::created_entry::CreatedEntry;
use super::file::FileJob;
use super::seen_inodes::SeenInodes;
use super::{Shared, attributes};
use crate::transfer::Submit;
use crate::tree::{self, Entries, Visited};
use crate::volume_files::VolumeFiles;

/// Copies trees: directories and special files itself, regular files as jobs.
pub struct Walker<'a> {
    shared: &'a Shared<'a>,
    visited: Visited,
    seen_inodes: SeenInodes,
    /// The first names of files that have several, and the identities of their copies when these
    /// are made.
    linked: HashMap<InodeNo, (ConfinedPath, Arc<OnceLock<Identity>>)>,
    /// Further names of such files, which are made when the files are.
    links: Vec<(InodeNo, ConfinedPath)>,
    outside: Directories,
    /// The directories in the volume, at the indices of their copies in `outside`. Kept by number,
    /// because there may be millions.
    directories: Vec<InodeId>,
}

/// Bytes of a path that the kernel accepts, with the zero byte at its end (`PATH_MAX`). Copies
/// below would be of no use to most programs.
pub(super) const PATH_MAX: usize = 4096;

/// A directory whose entries are copied.
struct Level {
    entries: Entries,
    /// Index of its copy.
    index: usize,
}

impl<'a> Walker<'a> {
    /// Returns a walker, and the place of the first copy.
    pub fn new(volume: &Volume, shared: &'a Shared<'a>) -> Result<(Self, ConfinedPath)> {
        let (outside, top) = Directories::above(&shared.dest)?;
        let walker = Self {
            shared,
            visited: Visited::none(volume),
            seen_inodes: SeenInodes::default(),
            linked: HashMap::new(),
            links: Vec::new(),
            outside,
            directories: Vec::new(),
        };
        Ok((walker, top))
    }

    /// Copies `node` and all below it to `top`, without the files whose errors it reports. Does not
    /// recurse, because the image decides how deep the tree is; the paths outside limit it to some
    /// thousand directories.
    pub fn tree(&mut self, jobs: &Submit<'_, FileJob<'a>>, node: InodeRef, top: ConfinedPath) -> Result<()> {
        let mut path = self.shared.dest.clone();
        let mut levels: Vec<Level> = self.entry(jobs, node, &path, top)?.into_iter().collect();
        while let Some(level) = levels.last_mut() {
            let Some(item) = level.entries.next() else {
                levels.pop();
                path.pop();
                continue;
            };
            let item = item.with_context(|| self.shared.source_of(&path));
            let Some(entry) = self.shared.report.skip(item)? else { continue };
            let name = OsString::from_vec(entry.name);
            path.push(&name);
            let place = ConfinedPath { dir: Some(level.index), name };
            let node = entry.node.with_context(|| self.shared.source_of(&path));
            let copied = node.and_then(|node| self.entry(jobs, node, &path, place));
            match self.shared.report.skip(copied)?.flatten() {
                Some(below) => levels.push(below),
                None => drop(path.pop()),
            }
        }
        Ok(())
    }

    /// Copies `node` alone to `path`, which is the path of `place`. Returns a directory, for its
    /// entries.
    fn entry(
        &mut self,
        jobs: &Submit<'_, FileJob<'a>>,
        node: InodeRef,
        path: &Path,
        place: ConfinedPath,
    ) -> Result<Option<Level>> {
        self.shared.report.check()?;
        let metadata = node.metadata();
        ensure!(path.as_os_str().len() < PATH_MAX, "{}: the path is too long", path.display());
        if metadata.file_type == FileType::Directory {
            return self.directory(&node, path, place).map(Some);
        }
        let dir = self.outside.open(place.dir).with_context(|| path.display().to_string())?;
        let name = place.name.clone();
        let mut identity = None;
        if metadata.links > 1 {
            if self.linked.contains_key(&metadata.ino) {
                self.links.push((metadata.ino, place));
                return Ok(None);
            }
            let slot = Arc::new(OnceLock::new());
            self.linked.insert(metadata.ino, (place, Arc::clone(&slot)));
            identity = Some(slot);
        } else {
            self.seen_inodes.meet(&metadata).with_context(|| self.shared.source_of(path))?;
        }
        if metadata.file_type == FileType::Regular {
            self.shared.report.expect(metadata.size);
            let shared = self.shared;
            let file = DirectFile::new(node).with_context(|| shared.source_of(path))?;
            jobs.submit(FileJob { file, dir, name, path: path.to_owned(), identity, metadata, shared })?;
            return Ok(None);
        }
        if metadata.rdev.is_some() && !self.shared.is_root {
            bail!("{}: only root can make device nodes", path.display());
        }
        let entry =
            small(&node, &dir, &name, &metadata, self.shared).with_context(|| path.display().to_string())?;
        attributes::set(&entry, path, &node, &metadata, self.shared)
            .with_context(|| path.display().to_string())?;
        if let Some(identity) = identity {
            let _ = identity.set(entry.identity()?);
        }
        self.shared.report.file_done();
        Ok(None)
    }

    /// Makes the links, and gives the directories their attributes. All jobs are done.
    pub fn finish(self, volume: &Volume) -> Result<()> {
        let Self { shared, linked, links, mut outside, directories, .. } = self;
        for (ino, further) in links {
            let Some((first, identity)) = linked.get(&ino) else { continue };
            let linked = link(&mut outside, &shared.volume_files, first, identity.get(), &further)
                .with_context(|| outside.path(&further).display().to_string());
            if shared.report.skip(linked)?.is_some() {
                shared.report.file_done();
            }
        }
        // Entries before their directory: its permissions may forbid access, and changes of entries
        // set its times.
        for (index, id) in directories.into_iter().enumerate().rev() {
            let path = outside.path(outside.place(index));
            let mut set = || {
                let (node, dir) = (volume.inode_ref(id)?, outside.open(Some(index))?);
                let made = CreatedEntry::resolve(&dir, OsStr::new("."))?;
                attributes::merge(&made, &path, &node, &node.metadata(), shared)
            };
            shared.report.skip(set().with_context(|| path.display().to_string()))?;
        }
        Ok(())
    }

    /// Makes a directory outside. Removes the access control lists that a new one inherits, before
    /// it has entries that would inherit them. A command that fails leaves the directory, and a
    /// repeated command keeps the lists of a directory that is there.
    fn make(&mut self, place: ConfinedPath) -> Result<usize> {
        let (index, is_new) = self.outside.make(place)?;
        if is_new {
            let dir = self.outside.open(Some(index))?;
            CreatedEntry::Resolved(dir.try_clone()?).remove_inherited_lists(FileType::Directory)?;
        }
        Ok(index)
    }

    fn directory(&mut self, dir: &InodeRef, path: &Path, place: ConfinedPath) -> Result<Level> {
        self.visited.enter(dir).with_context(|| self.shared.source_of(path))?;
        let index = self.make(place).with_context(|| path.display().to_string())?;
        self.directories.push(dir.id());
        let entries = tree::entries(dir).with_context(|| self.shared.source_of(path))?;
        Ok(Level { entries, index })
    }
}

/// Gives a copy a further name.
fn link(
    outside: &mut Directories,
    kept: &VolumeFiles,
    first: &ConfinedPath,
    identity: Option<&Identity>,
    further: &ConfinedPath,
) -> Result<()> {
    let identity = identity.with_context(|| format!("{} was not copied", outside.path(first).display()))?;
    let made = CreatedEntry::resolve(&outside.open(first.dir)?, &first.name)?;
    let is_same = made.identity()? == *identity;
    ensure!(is_same, "{} was replaced while it was copied", outside.path(first).display());
    let dir = outside.open(further.dir)?;
    replace(kept, &dir, &further.name, || made.link(&dir, &further.name))
}

/// Makes a symbolic link or special file.
fn small(
    node: &InodeRef,
    dir: &Dir,
    name: &OsStr,
    metadata: &Metadata,
    shared: &Shared<'_>,
) -> Result<CreatedEntry<'static>> {
    use rustix::fs::FileType as Kind;
    let kind = match metadata.file_type {
        FileType::CharDevice => Some(Kind::CharacterDevice),
        FileType::BlockDevice => Some(Kind::BlockDevice),
        FileType::Fifo => Some(Kind::Fifo),
        FileType::Socket => Some(Kind::Socket),
        FileType::Symlink => None,
        FileType::Regular | FileType::Directory => bail!("inode {} changed its type", metadata.ino),
    };
    let target = match kind {
        Some(kind) => {
            let device = metadata.rdev.map_or(0, |(major, minor)| makedev(major, minor));
            replace(&shared.volume_files, dir, name, || {
                mknodat(&**dir, name, kind, Mode::RUSR | Mode::WUSR, device)
            })?;
            None
        }
        None => {
            let target = node.read_link()?.into_os_string();
            replace(&shared.volume_files, dir, name, || symlinkat(&target, &**dir, name))?;
            Some(target)
        }
    };
    let made = CreatedEntry::resolve(dir, name)?;
    made.expect(metadata, target.as_deref(), shared.is_root)?;
    Ok(made)
}

//! Walks a tree outside, and makes the copy in the volume.

use std::collections::HashMap;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Context, Error, Result, bail, refused};
use parext4::{InodeId, InodeRef, Volume};

use super::Shared;
use super::attributes::{Attributes, special};
use super::destination::{Destination, OtherKind, Slot};
use super::file::FileJob;
use super::target::Target;
use super::xattrs::Source;
use crate::transfer::Submit;

/// A further name of a file. Kept by number, because there may be millions.
struct Link {
    first: Slot,
    parent: InodeId,
    name: Vec<u8>,
    path: PathBuf,
}

/// Copies trees: directories and special files itself, regular files as jobs.
pub struct Walker<'a> {
    volume: &'a Volume,
    shared: &'a Shared<'a>,
    /// Files with several names by device and inode number, as far as they have been met since the
    /// last [`begin`](Self::begin).
    linked: HashMap<(u64, u64), Slot>,
    /// The copies of such files that were met before. They are complete, and may have been
    /// replaced.
    complete: HashMap<(u64, u64), InodeId>,
    /// Further names of files in `linked`, made when the files are.
    links: Vec<Link>,
    /// Directories outside, their copies and their attributes, set when nothing more goes into
    /// them. Kept by number, because there may be millions.
    directories: Vec<(PathBuf, InodeId, Attributes)>,
}

impl<'a> Walker<'a> {
    pub fn new(volume: &'a Volume, shared: &'a Shared<'a>) -> Self {
        let (linked, complete) = Default::default();
        Self { volume, shared, linked, complete, links: Vec::new(), directories: Vec::new() }
    }

    /// Begins to copy sources that may replace the copies of the ones before, which are complete.
    pub fn begin(&mut self) {
        let linked = std::mem::take(&mut self.linked).into_iter();
        self.complete.extend(linked.filter_map(|(id, slot)| Some((id, *slot.get()?))));
    }

    /// Copies the tree at `source`, without the files whose errors it reports. Fails with an error
    /// that ends the copy.
    pub fn copy(&mut self, jobs: &Submit<'_, FileJob<'a>>, source: &Path, target: &Target) -> Result<()> {
        let shared = self.shared;
        let mut copy = || match target {
            Target::Entry { parent, name, path } => {
                let metadata = source.symlink_metadata().with_context(|| source.display().to_string())?;
                let (parent, name, path) = (parent.clone(), name.clone(), path.clone());
                let place = Destination { parent, name, path, other_kind: OtherKind::Stays };
                self.entry(jobs, source, &metadata, place)
            }
            Target::Contents { dir, path } => {
                let metadata = source.metadata().with_context(|| source.display().to_string())?;
                self.contents(jobs, source, &metadata, dir.clone(), path)
            }
        };
        shared.report.skip(copy()).map(|_| ())
    }

    /// Makes the further names of the files that have been met. All jobs are done.
    pub fn link(&mut self) -> Result<()> {
        for link in std::mem::take(&mut self.links) {
            let path = link.path.clone();
            let linked = self.further(link).with_context(|| self.shared.name.of(&path));
            self.shared.report.skip(linked)?;
        }
        Ok(())
    }

    fn further(&self, Link { first, parent, name, path }: Link) -> Result<()> {
        // The error of the first name has been reported. An interrupt leaves many names out.
        let Some(&first) = first.get() else {
            self.shared.report.check()?;
            return Err(refused!("the first name of this file was not copied"));
        };
        let place =
            Destination { parent: self.volume.inode_ref(parent)?, name, path, other_kind: OtherKind::Stays };
        place.link(&self.volume.inode_ref(first)?)?;
        self.done(place.path)
    }

    /// Gives the directories their attributes. All links are made.
    pub fn finish(self) -> Result<()> {
        let Self { volume, shared, directories, .. } = self;
        for (source, id, attributes) in directories {
            let complete = || -> Result<()> {
                let node = volume.inode_ref(id)?;
                let source = Source::Path(&source);
                let attributes = attributes.copy_xattrs(&source, &node, &shared.report)?;
                shared.rules.set_xattrs(&node)?;
                Ok(node.set_attributes(&attributes.all())?)
            };
            shared.report.skip(complete().with_context(|| source.display().to_string()))?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        jobs: &Submit<'_, FileJob<'a>>,
        source: &Path,
        metadata: &Metadata,
        place: Destination,
    ) -> Result<()> {
        self.shared.report.check()?;
        if metadata.is_dir() {
            let dir = place
                .directory(&self.shared.rules.of_directory(metadata).new_inode())
                .with_context(|| self.shared.name.of(&place.path))?;
            return self.contents(jobs, source, metadata, dir.node, &place.path);
        }
        let mut slot = None;
        if metadata.nlink() > 1 {
            let id = (metadata.dev(), metadata.ino());
            if let Some(first) = self.linked.get(&id) {
                let (first, Destination { parent, name, path, .. }) = (Arc::clone(first), place);
                self.links.push(Link { first, parent: parent.id(), name, path });
                return Ok(());
            }
            if let Some(&copy) = self.complete.get(&id)
                && self.link_to(copy, &place).with_context(|| self.shared.name.of(&place.path))?
            {
                return self.done(place.path);
            }
            let first = Slot::default();
            self.linked.insert(id, Arc::clone(&first));
            slot = Some(first);
        }
        if metadata.is_file() {
            let refused = self.shared.volume_files.refuse(metadata.dev(), metadata.ino());
            refused.with_context(|| source.display().to_string())?;
            self.shared.report.expect(metadata.len());
            return jobs.submit(FileJob { source: source.to_owned(), place, slot, shared: self.shared });
        }
        let node =
            small(source, &place, metadata, self.shared).with_context(|| self.shared.name.of(&place.path))?;
        if let Some(slot) = slot {
            let _ = slot.set(node.id());
        }
        self.done(place.path)
    }

    /// Makes `place` a further name of a complete copy. Returns false if the copy has lost its last
    /// name, because files of a later source replaced it.
    fn link_to(&self, copy: InodeId, place: &Destination) -> Result<bool> {
        let link = || place.link(&self.volume.inode_ref(copy)?);
        match link() {
            Err(error) if matches!(error.root(), Error::Volume(parext4::Error::NotFound(_))) => Ok(false),
            linked => linked.map(|()| true),
        }
    }

    /// Counts a file that is complete.
    fn done(&self, path: PathBuf) -> Result<()> {
        self.shared.report.file_done();
        self.shared.durable.complete(path)
    }

    /// Returns the entries of a directory; in the order of their names if the copy is to be the
    /// same each time.
    fn items(&self, source: &Path) -> io::Result<Box<dyn Iterator<Item = io::Result<DirEntry>>>> {
        let items = fs::read_dir(source)?;
        if self.shared.reproducible.is_none() {
            return Ok(Box::new(items));
        }
        let mut items: Vec<_> = items.collect::<io::Result<_>>()?;
        items.sort_by_key(DirEntry::file_name);
        Ok(Box::new(items.into_iter().map(Ok)))
    }

    /// Copies what is in directory `source` into `dir`, without the entries whose errors it
    /// reports.
    fn contents(
        &mut self,
        jobs: &Submit<'_, FileJob<'a>>,
        source: &Path,
        metadata: &Metadata,
        dir: InodeRef,
        path: &Path,
    ) -> Result<()> {
        let attributes = self.shared.rules.of_directory(metadata);
        self.directories.push((source.to_owned(), dir.id(), attributes));
        for item in self.items(source).with_context(|| source.display().to_string())? {
            let item = item.with_context(|| source.display().to_string())?;
            let name = item.file_name();
            let (from, path) = (source.join(&name), path.join(&name));
            // By the open directory: the kernel looks up the name alone.
            let metadata = item.metadata().with_context(|| from.display().to_string());
            let (parent, name, other_kind) = (dir.clone(), name.into_vec(), OtherKind::Stays);
            let place = Destination { parent, name, path, other_kind };
            let copied = metadata.and_then(|metadata| self.entry(jobs, &from, &metadata, place));
            self.shared.report.skip(copied)?;
        }
        Ok(())
    }
}

/// Makes a symbolic link or special file.
fn small(source: &Path, place: &Destination, metadata: &Metadata, shared: &Shared<'_>) -> Result<InodeRef> {
    let attributes = shared.rules.of_file(metadata);
    let new = attributes.new_inode();
    if metadata.is_symlink() {
        let target = fs::read_link(source)?;
        let node = place.replace(|dir, name| dir.symlink(name, target.as_os_str().as_bytes(), &new))?.node;
        attributes.copy_xattrs(&Source::Path(source), &node, &shared.report)?;
        node.set_attributes(&attributes.of_symlink())?;
        return Ok(node);
    }
    let Some(special) = special(metadata) else { bail!("{}: unknown type", source.display()) };
    let node = place.replace(|dir, name| dir.mknod(name, special, &new))?.node;
    let attributes = attributes.copy_xattrs(&Source::Path(source), &node, &shared.report)?;
    shared.rules.set_xattrs(&node)?;
    node.set_attributes(&attributes.all())?;
    Ok(node)
}

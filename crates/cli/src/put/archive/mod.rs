//! Unpacks a tar archive into the volume: `put --tar`.
//!
//! Reads ustar, GNU and PAX archives from a file or from standard input, in one pass. Directories get their attributes at the
//! end, because entries change their times. All names mean places inside the destination (`inside`).

mod inside;
mod pax;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use parext4::{Error, FileType, Node, NodeId, SetAttributes, Special, Timestamp, Volume, XattrMode};
use tar::{Archive, Entry, EntryType};

use super::Shared;
use super::attributes::Attributes;
use super::place::Place;
use crate::image_path::ImagePath;
use inside::Inside;
use pax::Records;

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;
/// Zeros of this many bytes, at a multiple of them, become a hole in a file that is sparse.
const HOLE: usize = 4096;

/// Unpacks the archive at `path`, or from standard input if that is `-`, into the directory `dest`.
pub fn put(volume: &Volume, path: &Path, dest: &ImagePath, shared: &Arc<Shared>) -> Result<()> {
    let root = volume.resolve(&dest.path).with_context(|| dest.to_string())?;
    ensure!(root.file_type() == FileType::Directory, "{dest}: not a directory");
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| path.display().to_string())?)
    };
    let mut archive = Archive::new(BufReader::with_capacity(CHUNK, input));
    let inside = Inside::new(root, dest.path.clone());
    let mut unpacker = Unpacker { inside, shared: Arc::clone(shared), directories: Vec::new(), buf: vec![0; CHUNK] };
    for entry in archive.entries()? {
        let name = || path.display().to_string();
        let mut entry = entry.with_context(name)?;
        unpacker.entry(&mut entry).with_context(name)?;
    }
    unpacker.finish(volume)
}

struct Unpacker {
    inside: Inside,
    shared: Arc<Shared>,
    /// Kept by number, because there may be millions.
    directories: Vec<(NodeId, SetAttributes)>,
    buf: Vec<u8>,
}

type Input<'a> = Entry<'a, BufReader<Box<dyn Read>>>;

impl Unpacker {
    fn entry(&mut self, entry: &mut Input<'_>) -> Result<()> {
        let mut records = records(entry)?;
        let name = records.name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
        let shown = String::from_utf8_lossy(&name).into_owned();
        self.named(entry, &name, records).with_context(|| shown)
    }

    fn named(&mut self, entry: &mut Input<'_>, name: &[u8], records: Records) -> Result<()> {
        let kind = entry.header().entry_type();
        let is_directory = kind == EntryType::Directory;
        let attributes = self.shared.rules.applied(attributes(entry, &records)?, is_directory);
        let Some(place) = self.inside.place(name)? else {
            let root = self.inside.root().clone();
            self.xattrs(&root, &records)?;
            self.directories.push((root.id(), attributes.all()));
            return Ok(());
        };
        match kind {
            EntryType::Directory => {
                let node = place.directory(&attributes.new_inode())?;
                self.xattrs(&node, &records)?;
                self.directories.push((node.id(), attributes.all()));
                return Ok(());
            }
            EntryType::Link => self.link(entry, &place)?,
            EntryType::Symlink => {
                let target = entry.link_name_bytes().context("no target")?.into_owned();
                let new = attributes.new_inode();
                let node = place.replace(|dir, name| dir.symlink(name, &target, &new))?;
                self.inside.forget();
                self.xattrs(&node, &records)?;
                node.set_attributes(&attributes.of_symlink())?;
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                let (special, new) = (special(entry, kind)?, attributes.new_inode());
                let node = place.replace(|dir, name| dir.mknod(name, special, &new))?;
                self.xattrs(&node, &records)?;
                node.set_attributes(&attributes.all())?;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(entry, &place, &attributes, records)?;
            }
            kind => {
                let kind = char::from(kind.as_byte());
                self.shared.progress.warn(&format!("{}: an entry of type {kind:?} is left out", place.path.display()));
                return Ok(());
            }
        }
        self.shared.progress.file_done();
        self.shared.durable.complete(place.path)
    }

    /// Makes a further name of a file that was unpacked, or that the destination has.
    fn link(&mut self, entry: &Input<'_>, place: &Place) -> Result<()> {
        let target = entry.link_name_bytes().context("no target")?.into_owned();
        let shown = String::from_utf8_lossy(&target).into_owned();
        let target = self.inside.place(&target)?.with_context(|| shown.clone())?;
        let node = target.parent.lookup(&target.name).with_context(|| format!("hard link to {shown}"))?;
        match place.parent.lookup(&place.name) {
            // Unpacked twice.
            Ok(existing) if existing.id() == node.id() => return Ok(()),
            Ok(_) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        place.replace(|parent, name| parent.link(name, &node))
    }

    fn file(&mut self, entry: &mut Input<'_>, place: &Place, set: &Attributes, mut records: Records) -> Result<()> {
        let new = set.new_inode();
        let node = place.replace(|dir, name| dir.create(name, &new))?;
        let file = parext4::File::new(node.clone(), &parext4::OpenOptions::read_write())?;
        let size = match &mut records.sparse {
            Some(sparse) => {
                for (offset, len) in sparse.runs(entry)? {
                    let end = offset.checked_add(len).filter(|&end| end <= sparse.size);
                    ensure!(end.is_some(), "a run of data passes the end of the file");
                    self.data(entry, &file, offset, len, false)?;
                }
                sparse.size
            }
            None => {
                let size = entry.size();
                let is_sparse = entry.header().entry_type() == EntryType::GNUSparse;
                self.data(entry, &file, 0, size, is_sparse)?;
                size
            }
        };
        if file.size() != size {
            file.set_len(size)?;
        }
        drop(file);
        self.xattrs(&node, &records)?;
        Ok(node.set_attributes(&set.all())?)
    }

    /// Copies `len` bytes to `offset`; leaves out zeros if the file is sparse.
    fn data(
        &mut self,
        entry: &mut Input<'_>,
        file: &parext4::File,
        mut offset: u64,
        mut len: u64,
        is_sparse: bool,
    ) -> Result<()> {
        while len > 0 {
            let here = usize::try_from(len).unwrap_or(CHUNK).min(CHUNK);
            let bytes = &mut self.buf[..here];
            entry.read_exact(bytes).context("the archive ends within the file")?;
            if is_sparse {
                for (at, part) in (0_u64..).zip(bytes.chunks(HOLE)) {
                    if part.iter().any(|&byte| byte != 0) {
                        file.write_at(part, offset + at * HOLE as u64)?;
                    }
                }
            } else {
                file.write_at(bytes, offset)?;
            }
            self.shared.progress.moved(here as u64);
            offset += here as u64;
            len -= here as u64;
        }
        Ok(())
    }

    /// Sets the attributes of the archive and of the rules. Removes access control lists that the node inherited, and warns of
    /// attributes that the volume cannot hold.
    fn xattrs(&self, node: &Node, records: &Records) -> Result<()> {
        for name in node.list_xattr()? {
            if name.starts_with(b"system.") && !records.xattrs.iter().any(|(kept, _)| *kept == name) {
                node.remove_xattr(&name)?;
            }
        }
        for (name, value) in &records.xattrs {
            match node.set_xattr(name, value, XattrMode::Any) {
                Err(error @ (Error::Unsupported(_) | Error::NoSpace)) => {
                    let name = String::from_utf8_lossy(name);
                    self.shared.progress.warn(&format!("attribute {name} is left out: {error}"));
                }
                set => set?,
            }
        }
        for ignored in &records.ignored {
            self.shared.progress.warn(&format!("record {ignored} is left out"));
        }
        self.shared.rules.set_xattrs(node)
    }

    /// Gives the directories their attributes.
    fn finish(self, volume: &Volume) -> Result<()> {
        for (id, set) in self.directories {
            volume.node(id)?.set_attributes(&set)?;
        }
        Ok(())
    }
}

fn records(entry: &mut Input<'_>) -> Result<Records> {
    let Some(extensions) = entry.pax_extensions()? else { return Ok(Records::default()) };
    let extensions = extensions.collect::<io::Result<Vec<_>>>()?;
    Records::read(extensions.iter().filter_map(|record| Some((record.key().ok()?, record.value_bytes()))))
}

fn attributes(entry: &Input<'_>, records: &Records) -> Result<Attributes> {
    let header = entry.header();
    let id = |id: u64| u32::try_from(id).context("an owner out of range");
    let seconds = i64::try_from(header.mtime()?)?;
    let mtime = records.mtime.unwrap_or(Timestamp { seconds, nanoseconds: 0 });
    Ok(Attributes {
        permissions: (header.mode()? & 0o7777).try_into().unwrap_or(0),
        uid: records.uid.map_or_else(|| id(header.uid()?), Ok)?,
        gid: records.gid.map_or_else(|| id(header.gid()?), Ok)?,
        atime: records.atime.unwrap_or(mtime),
        mtime,
    })
}

fn special(entry: &Input<'_>, kind: EntryType) -> Result<Special> {
    // Only device files need these fields, and other entries may leave them empty.
    let device = || -> Result<(u32, u32)> {
        let header = entry.header();
        Ok((header.device_major()?.unwrap_or(0), header.device_minor()?.unwrap_or(0)))
    };
    Ok(match kind {
        EntryType::Char => device().map(|(major, minor)| Special::CharDevice { major, minor })?,
        EntryType::Block => device().map(|(major, minor)| Special::BlockDevice { major, minor })?,
        EntryType::Fifo => Special::Fifo,
        _ => bail!("not a special file"),
    })
}

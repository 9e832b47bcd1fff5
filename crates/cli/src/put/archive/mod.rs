//! Unpacks a tar archive into the volume: `put --tar`.
//!
//! Reads ustar, GNU and PAX archives from a file or from standard input, in one pass. Directories get their attributes at the
//! end, because entries change their times. All names mean places inside the destination (`inside`).

mod inside;
mod pax;
mod reader;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use parext4::{Error, FileType, Node, NodeId, SetAttributes, Special, Timestamp, Volume, XattrMode};
use tar::EntryType;

use super::Shared;
use super::attributes::Attributes;
use super::place::Place;
use crate::image_path::ImagePath;
use inside::Inside;
use pax::Records;
use reader::{Member, Reader};

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;
/// Bytes of a name that a message has at most.
const SHOWN: usize = 255;

/// Unpacks the archive at `path`, or from standard input if that is `-`, into the directory `dest`.
pub fn put(volume: &Volume, path: &Path, dest: &ImagePath, shared: &Arc<Shared>) -> Result<()> {
    let input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| path.display().to_string())?)
    };
    unpack(volume, input, path, dest, shared)
}

/// Unpacks the archive that `input` reads and messages call `path`.
pub fn unpack(
    volume: &Volume,
    input: Box<dyn Read>,
    path: &Path,
    dest: &ImagePath,
    shared: &Arc<Shared>,
) -> Result<()> {
    let root = volume.resolve(&dest.path).with_context(|| dest.to_string())?;
    ensure!(root.file_type() == FileType::Directory, "{dest}: not a directory");
    let mut archive = Reader::new(BufReader::with_capacity(CHUNK, input));
    let inside = Inside::new(root, dest.path.clone(), Arc::clone(shared));
    let mut unpacker =
        Unpacker { inside, shared: Arc::clone(shared), directories: Vec::new(), buf: vec![0; CHUNK] };
    let name = || path.display().to_string();
    let mut members = || -> Result<()> {
        while let Some(member) = archive.next()? {
            unpacker.member(&mut archive, member)?;
        }
        Ok(())
    };
    let unpacked = members().with_context(name);
    if unpacked.is_ok() && !archive.has_end() {
        let text = format!("{}: ends without an end mark, and may be incomplete", name());
        shared.progress.warn(&text);
    }
    // Also after an error: the members before it are unpacked.
    let finished = unpacker.finish(volume);
    unpacked.and(finished)
}

struct Unpacker {
    inside: Inside,
    shared: Arc<Shared>,
    /// Kept by number, because there may be millions.
    directories: Vec<(NodeId, SetAttributes)>,
    buf: Vec<u8>,
}

type Input = Reader<BufReader<Box<dyn Read>>>;

impl Unpacker {
    fn member(&mut self, input: &mut Input, member: Member) -> Result<()> {
        let start = &member.name[..member.name.len().min(SHOWN)];
        let shown = String::from_utf8_lossy(start).into_owned();
        self.named(input, member).with_context(|| shown)
    }

    fn named(&mut self, input: &mut Input, member: Member) -> Result<()> {
        // An old archive marks a directory by a slash at the end of its name.
        let is_old_directory =
            member.header.entry_type() == EntryType::Regular && member.name.ends_with(b"/");
        let kind = if is_old_directory { EntryType::Directory } else { member.header.entry_type() };
        let is_directory = kind == EntryType::Directory;
        let attributes = self.shared.rules.applied(attributes(&member)?, is_directory);
        let Some(place) = self.inside.place(&member.name)? else {
            ensure!(is_directory, "replaces the destination");
            let root = self.inside.root().clone();
            self.xattrs(&root, &member.records)?;
            self.directories.push((root.id(), attributes.all()));
            return Ok(());
        };
        match kind {
            EntryType::Directory => {
                let node = place.directory(&attributes.new_inode())?;
                self.xattrs(&node, &member.records)?;
                self.directories.push((node.id(), attributes.all()));
                return Ok(());
            }
            EntryType::Link => {
                self.link(&member, &place)?;
                self.inside.forget();
            }
            EntryType::Symlink => {
                let target = member.target.as_deref().context("no target")?;
                let new = attributes.new_inode();
                let node = place.replace(|dir, name| dir.symlink(name, target, &new))?;
                self.inside.forget();
                self.xattrs(&node, &member.records)?;
                node.set_attributes(&attributes.of_symlink())?;
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                let (special, new) = (special(&member, kind)?, attributes.new_inode());
                let node = place.replace(|dir, name| dir.mknod(name, special, &new))?;
                self.xattrs(&node, &member.records)?;
                node.set_attributes(&attributes.all())?;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(input, &place, &attributes, member)?;
            }
            kind => {
                let kind = char::from(kind.as_byte());
                let text = format!("{}: an entry of type {kind:?} is left out", place.path.display());
                self.shared.progress.warn(&text);
                return Ok(());
            }
        }
        self.shared.progress.file_done();
        self.shared.durable.complete(place.path)
    }

    /// Makes a further name of a file that was unpacked, or that the destination has.
    fn link(&mut self, member: &Member, place: &Place) -> Result<()> {
        let target = member.target.as_deref().context("no target")?;
        let target_place = self.inside.place(target).context("hard link")?;
        let shown = String::from_utf8_lossy(target).into_owned();
        let target = target_place.with_context(|| shown.clone())?;
        let node = target.parent.lookup(&target.name).with_context(|| format!("hard link to {shown}"))?;
        place.link(&node)
    }

    fn file(&mut self, input: &mut Input, place: &Place, set: &Attributes, mut member: Member) -> Result<()> {
        let new = set.new_inode();
        let node = place.replace(|dir, name| dir.create(name, &new))?;
        let file = parext4::File::new(node.clone(), &parext4::OpenOptions::read_write())?;
        let (size, runs) = match &mut member.records.sparse {
            Some(sparse) => (sparse.size, sparse.runs(input)?),
            None => (member.size, vec![(0, member.size)]),
        };
        for (offset, len) in runs {
            let end = offset.checked_add(len).filter(|&end| end <= size);
            ensure!(end.is_some(), "a run of data passes the end of the file");
            self.data(input, &file, offset, len)?;
        }
        if file.size() != size {
            file.set_len(size)?;
        }
        drop(file);
        self.xattrs(&node, &member.records)?;
        Ok(node.set_attributes(&set.all())?)
    }

    /// Copies `len` bytes to `offset`.
    fn data(&mut self, input: &mut Input, file: &parext4::File, mut offset: u64, mut len: u64) -> Result<()> {
        while len > 0 {
            let here = usize::try_from(len).unwrap_or(CHUNK).min(CHUNK);
            let bytes = &mut self.buf[..here];
            input.read_exact(bytes).context("the archive ends within the file")?;
            file.write_at(bytes, offset)?;
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
        // GNU tar can store a list in both ways.
        let has_list = records.xattrs.iter().any(|(name, _)| name.starts_with(b"system.posix_acl_"));
        for ignored in records.ignored.iter().filter(|_| !has_list) {
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

fn attributes(member: &Member) -> Result<Attributes> {
    let (header, records) = (&member.header, &member.records);
    let fields = header.as_old();
    let id = |field: &[u8], parsed| u32::try_from(number(field, parsed)?).context("an owner out of range");
    // A time before 1970 is a negative number.
    let seconds = number(&fields.mtime, header.mtime())?.cast_signed();
    let mtime = records.mtime.unwrap_or(Timestamp { seconds, nanoseconds: 0 });
    Ok(Attributes {
        permissions: (number(&fields.mode, header.mode())? & 0o7777).try_into().unwrap_or(0),
        uid: records.uid.map_or_else(|| id(&fields.uid, header.uid()), Ok)?,
        gid: records.gid.map_or_else(|| id(&fields.gid, header.gid()), Ok)?,
        atime: records.atime.unwrap_or(mtime),
        mtime,
    })
}

/// Returns the number in a field of a header. A field that contains only zero bytes and spaces counts as 0, because some programs leave
/// fields empty.
fn number<T: Default>(field: &[u8], parsed: io::Result<T>) -> io::Result<T> {
    if field.iter().all(|byte| matches!(byte, 0 | b' ')) { Ok(T::default()) } else { parsed }
}

fn special(member: &Member, kind: EntryType) -> Result<Special> {
    // Only device files need these fields, and other entries may leave them empty.
    let device = || -> Result<(u32, u32)> {
        let header = &member.header;
        let (major, minor) = (&header.as_bytes()[329..337], &header.as_bytes()[337..345]);
        let (major, minor) = (number(major, header.device_major())?, number(minor, header.device_minor())?);
        Ok((major.unwrap_or(0), minor.unwrap_or(0)))
    };
    Ok(match kind {
        EntryType::Char => device().map(|(major, minor)| Special::CharDevice { major, minor })?,
        EntryType::Block => device().map(|(major, minor)| Special::BlockDevice { major, minor })?,
        EntryType::Fifo => Special::Fifo,
        _ => bail!("not a special file"),
    })
}

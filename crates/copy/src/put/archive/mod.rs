//! Unpacks a tar archive into the volume.
//!
//! Reads ustar, GNU and PAX archives from a file or from standard input, in one pass. Directories
//! get their attributes at the end, because entries change their times. All names mean places
//! inside the destination (`inside`).
//!
//! A member takes the place of what has its name, as with GNU tar: also a directory that of a file
//! or a symbolic link, and a file that of an empty directory. A member that cannot be unpacked is
//! reported, and the next one follows ([`Report`](crate::report::Report)). The whiteouts of layers
//! are not applied; each is reported and makes no file.

mod base64;
mod flags;
mod inside;
mod pax;
mod reader;

use std::ffi::OsStr;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Context, Error, Result, bail, ensure, refused};
use parext4::{FileType, InodeFlags, InodeId, InodeRef, SetAttributes, Special, Timestamp, Volume};
use tar::EntryType;

use super::attributes::Attributes;
use super::destination::Destination;
use super::{Shared, xattrs};
use crate::access_list::{self, ACCESS, permissions_without_list};
use crate::input::Input;
use inside::Inside;
use pax::Records;
use reader::{Member, Reader};

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;
/// The bits of a mode that an access list sets.
const RIGHTS: u16 = 0o777;
/// Bytes of a name that a message has at most.
const SHOWN: usize = 255;

/// Unpacks an archive into the directory `dest`.
pub fn unpack(volume: &Volume, archive: Input<'_>, dest: &Path, shared: &Shared<'_>) -> Result<()> {
    let (archive_name, input) = archive.into_reader(shared.report.cancel())?;
    let root = volume.resolve(dest).with_context(|| shared.name.of(dest))?;
    ensure!(root.file_type() == FileType::Directory, "{}: not a directory", shared.name.of(dest));
    let mut archive = Reader::new(BufReader::with_capacity(CHUNK, input));
    let inside = Inside::new(root, dest.to_owned(), shared);
    let mut unpacker =
        Unpacker { inside, shared, directories: Vec::new(), flags: Vec::new(), buf: vec![0; CHUNK] };
    let name = || archive_name.clone();
    let mut members = || -> Result<()> {
        while let Some(member) = archive.next().with_context(name)? {
            shared.report.check()?;
            shared.report.skip(unpacker.member(&mut archive, member).with_context(name))?;
        }
        Ok(())
    };
    let unpacked = members();
    if unpacked.is_ok() && !archive.has_end() {
        let text = format!("{}: ends without an end mark, and may be incomplete", name());
        shared.report.warn(&text);
    }
    // Also after an error: the members before it are unpacked.
    let finished = unpacker.finish(volume).with_context(name);
    unpacked.and(finished)
}

struct Unpacker<'a> {
    inside: Inside<'a>,
    shared: &'a Shared<'a>,
    /// Kept by number, because there may be millions.
    directories: Vec<(InodeId, SetAttributes)>,
    /// Flags, set at the end: some forbid changes.
    flags: Vec<(InodeId, InodeFlags)>,
    buf: Vec<u8>,
}

type Archive<'a> = Reader<BufReader<Box<dyn Read + 'a>>>;

impl Unpacker<'_> {
    fn member(&mut self, input: &mut Archive<'_>, member: Member) -> Result<()> {
        let start = &member.name[..member.name.len().min(SHOWN)];
        let shown = String::from_utf8_lossy(start).into_owned();
        self.named(input, member).with_context(|| shown)
    }

    fn named(&mut self, input: &mut Archive<'_>, mut member: Member) -> Result<()> {
        if let Some(malformed) = member.records.malformed.take() {
            return Err(malformed);
        }
        // Before directories above it are made.
        refuse_whiteout(member.name.rsplit(|&byte| byte == b'/').next().unwrap_or_default())?;
        // An old archive marks a directory by a slash at the end of its name.
        let is_old_directory =
            member.header.entry_type() == EntryType::Regular && member.name.ends_with(b"/");
        let kind = if is_old_directory { EntryType::Directory } else { member.header.entry_type() };
        let is_directory = kind == EntryType::Directory;
        // The rules apply once, to what the archive says, access lists included.
        let mut attributes = attributes(&member)?;
        let new = self.shared.rules.applied(attributes, is_directory).new_inode();
        let Some(place) = self.inside.place(&member.name)? else {
            ensure!(is_directory, "replaces the destination");
            let root = self.inside.root().clone();
            return self.directory(&root, attributes, &member);
        };
        match kind {
            EntryType::Directory => {
                let made = place.directory(&new)?;
                if made.has_replaced {
                    self.inside.forget();
                }
                return self.directory(&made.node, attributes, &member);
            }
            EntryType::Link => {
                self.link(&member, &place)?;
                self.inside.forget();
            }
            EntryType::Symlink => {
                let target = member.target.as_deref().context("no target")?;
                let node = place.replace(|dir, name| dir.symlink(name, target, &new))?.node;
                self.inside.forget();
                self.xattrs(&node, &member, &mut attributes)?;
                node.set_attributes(&attributes.of_symlink())?;
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                let special = special(&member, kind)?;
                let node = self.replace(&place, |dir, name| dir.mknod(name, special, &new))?;
                self.complete(&node, attributes, &member)?;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let node = self.replace(&place, |dir, name| dir.create(name, &new))?;
                self.data(input, &node, &mut member).inspect_err(|error| {
                    if self.shared.report.check().is_err() && error.is_last() {
                        self.shared.incomplete(&place.path);
                    }
                })?;
                self.complete(&node, attributes, &member)?;
            }
            kind => {
                // The kind of a hostile archive may be any byte.
                bail!("an entry of type {:?} is left out", char::from(kind.as_byte()));
            }
        }
        self.shared.report.file_done();
        self.shared.durable.complete(place.path)
    }

    /// Makes a file in place of what has its name.
    fn replace(
        &mut self,
        place: &Destination,
        make: impl Fn(&InodeRef, &[u8]) -> parext4::Result<InodeRef>,
    ) -> Result<InodeRef> {
        let made = place.replace(make)?;
        if made.has_replaced {
            self.inside.forget();
        }
        Ok(made.node)
    }

    /// Sets the attributes of a directory, some of them at the end.
    fn directory(&mut self, node: &InodeRef, mut attributes: Attributes, member: &Member) -> Result<()> {
        self.xattrs(node, member, &mut attributes)?;
        self.directories.push((node.id(), attributes.all()));
        Ok(())
    }

    /// Sets the attributes of a file that is complete otherwise.
    fn complete(&mut self, node: &InodeRef, mut attributes: Attributes, member: &Member) -> Result<()> {
        self.xattrs(node, member, &mut attributes)?;
        Ok(node.set_attributes(&attributes.all())?)
    }

    /// Makes a further name of a file that was unpacked, or that the destination has.
    fn link(&mut self, member: &Member, place: &Destination) -> Result<()> {
        let target = member.target.as_deref().context("no target")?;
        let shown = || {
            let start = &target[..target.len().min(SHOWN)];
            format!("hard link to {}", String::from_utf8_lossy(start))
        };
        let node = self.inside.find(target).with_context(shown)?;
        place.link(&node)
    }

    /// Copies the data of a member to its file.
    fn data(&mut self, input: &mut Archive<'_>, node: &InodeRef, member: &mut Member) -> Result<()> {
        let file = parext4::File::new(node.clone(), &parext4::OpenOptions::read_write())?;
        let (size, runs) = match &mut member.records.sparse {
            Some(sparse) => (sparse.size, sparse.runs(input).map_err(unreadable)?),
            None => (member.size, vec![(0, member.size)]),
        };
        for (offset, len) in runs {
            let end = offset.checked_add(len).filter(|&end| end <= size);
            ensure!(end.is_some(), "a run of data passes the end of the file");
            self.run(input, &file, offset, len)?;
        }
        if file.size() != size {
            file.set_len(size)?;
        }
        Ok(())
    }

    /// Copies `len` bytes to `offset`.
    fn run(
        &mut self,
        input: &mut Archive<'_>,
        file: &parext4::File,
        mut offset: u64,
        mut len: u64,
    ) -> Result<()> {
        while len > 0 {
            self.shared.report.check()?;
            let here = usize::try_from(len).unwrap_or(CHUNK).min(CHUNK);
            let bytes = &mut self.buf[..here];
            input.read_exact(bytes).map_err(|error| unreadable(error.into()))?;
            file.write_all_at(bytes, offset)?;
            self.shared.report.moved(here as u64);
            offset += here as u64;
            len -= here as u64;
        }
        Ok(())
    }

    /// Sets the extended attributes, access control lists and flags of the archive and of the
    /// rules. Removes lists that the node inherited. Reports each attribute that the volume cannot
    /// hold; without its list, a file gives its group no rights.
    fn xattrs(&mut self, node: &InodeRef, member: &Member, attributes: &mut Attributes) -> Result<()> {
        let records = &member.records;
        let shown = Path::new(OsStr::from_bytes(&member.name[..member.name.len().min(SHOWN)]));
        let lists = self.lists(shown, records, attributes);
        let all = || records.xattrs.iter().chain(&lists);
        for name in node.list_xattr()? {
            if name.starts_with(b"system.") && !all().any(|(kept, _)| *kept == name) {
                node.remove_xattr(&name)?;
            }
        }
        for (name, value) in all() {
            let is_set = xattrs::set(node, shown, name, value, &self.shared.report);
            if name == ACCESS {
                let permissions = attributes.permissions;
                attributes.permissions = if is_set {
                    // The list counts: in the header, the rights of the group are the upper bound
                    // of the list from GNU tar, and the group's own from bsdtar.
                    permissions & !RIGHTS | node.metadata().permissions & RIGHTS
                } else {
                    permissions_without_list(permissions)
                };
            }
        }
        for record in &records.ignored {
            self.shared.report.error(refused!("{}: record {record} is left out", shown.display()));
        }
        if !records.flags.is_empty() {
            self.flags.push((node.id(), records.flags));
        }
        let is_directory = node.file_type() == FileType::Directory;
        *attributes = self.shared.rules.applied(*attributes, is_directory);
        self.shared.rules.set_xattrs(node)
    }

    /// Converts the lists of a member from text, unless it has them as attributes, too.
    fn lists(&self, shown: &Path, records: &Records, attributes: &mut Attributes) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut lists = Vec::new();
        for (name, text) in &records.lists {
            if text.is_empty() || records.xattrs.iter().any(|(other, _)| *other == *name) {
                continue;
            }
            match access_list::parse(text) {
                Ok(list) => lists.push((name.to_vec(), list)),
                Err(error) => {
                    let attribute = OsStr::from_bytes(name).display();
                    let what = format!("{}: attribute {attribute} is left out", shown.display());
                    self.shared.report.error(error.context(what));
                    if *name == ACCESS {
                        attributes.permissions = permissions_without_list(attributes.permissions);
                    }
                }
            }
        }
        lists
    }

    /// Gives the directories their attributes, and all files their flags.
    fn finish(self, volume: &Volume) -> Result<()> {
        let report = &self.shared.report;
        for (id, set) in self.directories {
            let set = match volume.inode_ref(id) {
                // A later member has replaced it.
                Err(parext4::Error::NotFound(_)) => Ok(()),
                node => node.and_then(|node| node.set_attributes(&set)),
            };
            report.skip(set.map_err(Error::from))?;
        }
        for (id, flags) in self.flags {
            let set = match volume.inode_ref(id) {
                Err(parext4::Error::NotFound(_)) => Ok(()),
                node => node.and_then(|node| node.set_flags(node.flags() | flags)),
            };
            let shown = || format!("inode {}: flags {flags:?} are left out", id.ino);
            report.skip(set.with_context(shown))?;
        }
        Ok(())
    }
}

/// Makes an error of reading the archive one that ends the copy. Errors of another kind stay as
/// they are.
fn unreadable(error: Error) -> Error {
    match error.root() {
        Error::Io(of_archive) if of_archive.kind() == ErrorKind::UnexpectedEof => {
            Error::Source("the archive ends within the file".to_owned())
        }
        Error::Io(of_archive) => Error::Source(of_archive.to_string()),
        _ => error,
    }
}

/// Refuses an entry that stands for the removal of a file of a lower layer of a container image, or
/// of all files of a directory.
fn refuse_whiteout(name: &[u8]) -> Result<()> {
    match name.strip_prefix(b".wh.") {
        Some(b".wh..opq") => bail!("a whiteout of all entries of the directory in lower layers; not applied"),
        Some(below) if !below.is_empty() => {
            let below = OsStr::from_bytes(below).display();
            bail!("a whiteout, which removes {below} of lower layers; not applied")
        }
        _ => Ok(()),
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

/// Returns the number in a field of a header. A field that contains only zero bytes and spaces
/// counts as 0, because some programs leave fields empty.
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

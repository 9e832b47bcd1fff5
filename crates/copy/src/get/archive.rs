//! Writes a tree of the volume as a tar archive.
//!
//! The archive has the PAX format with GNU tar's names of records: times with nanoseconds, extended
//! attributes with access control lists, which it also has as text, and sparse files (format 1.0).
//!
//! An entry that cannot be read is reported and left out. If its data cannot be read after its
//! member has begun, zeros take the place of the rest, as with GNU tar.
//!
//! An archive that could not be completed ends within a member, or is an empty file if the end
//! could not be written. GNU tar and this crate refuse both. The archive may end anywhere if a
//! signal or a panic ends the process, or if something other than a regular file cannot be written.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Read, Write};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::{Context, Result, ensure};
use parext4::{DirectFile, FileType, InodeNo, InodeRef, Metadata, Volume, XattrRef};
use tar::{Builder, EntryType, Header};

use super::fail_stop::FailStop;
use super::output::{OpenOutput, Output};
use super::records::Records;
use super::runs::{self, Data};
use super::seen_inodes::{DataLimit, SeenInodes};
use super::walk::PATH_MAX;
use crate::access_list::{self, ACCESS, DEFAULT, permissions_without_list};
use crate::options::CopyOptions;
use crate::report::Report;
use crate::transfer::MOST_RUNS;
use crate::tree::{self, Entries, Visited};
use crate::volume_name::means_contents;

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;
/// Bytes of a block of an archive.
const BLOCK: usize = 512;
/// The largest value of an extended attribute, in bytes (`XATTR_SIZE_MAX`). No program can set a
/// larger one.
const MOST_VALUE: usize = 1 << 16;
/// Bytes of all attributes of one entry. This crate reads no more than 8 MiB of records.
const MOST_XATTRS: usize = 7 << 20;

/// Writes `node`, which is at `source`, and all below it to `output`.
pub fn write(
    volume: &Volume,
    node: InodeRef,
    source: &Path,
    output: Output<'_>,
    options: &CopyOptions<'_>,
    report: &Report<'_>,
) -> Result<()> {
    let OpenOutput { name, writer, file } = output.open(&options.volume_files)?;
    let mut packer = Packer {
        builder: ManuallyDrop::new(Builder::new(BufWriter::with_capacity(CHUNK, FailStop::new(writer)))),
        is_within_member: false,
        report,
        linked: HashMap::new(),
        seen_inodes: SeenInodes::default(),
        data_limit: DataLimit::of(volume),
        visited: Visited::none(volume),
        source,
        source_name: options.name.of(source),
    };
    let written = packer.tree(node);
    let ended = match written {
        Ok(()) => ManuallyDrop::into_inner(packer.builder).into_inner().and_then(|mut output| output.flush()),
        Err(_) => packer.cut(),
    };
    if let (Err(_), Some(file)) = (&ended, file) {
        // The part that is in the file may end between two members. Only a regular file can be
        // emptied.
        let _ = file.set_len(0);
    }
    written?;
    ended.with_context(|| name)
}

/// The output of an archive. A failed write is final, because the bytes before it may end between
/// two members.
type Buffered<'a> = BufWriter<FailStop<Box<dyn Write + 'a>>>;

struct Packer<'a> {
    /// Not dropped, because the drop writes the end of an archive.
    builder: ManuallyDrop<Builder<Buffered<'a>>>,
    /// True while a member is being written. After an error, the archive cannot go on.
    is_within_member: bool,
    report: &'a Report<'a>,
    /// The first names of files that have several.
    linked: HashMap<InodeNo, PathBuf>,
    seen_inodes: SeenInodes,
    data_limit: DataLimit,
    visited: Visited,
    source: &'a Path,
    /// What messages call `source`.
    source_name: String,
}

impl Packer<'_> {
    /// Writes `node` and all below it, without the entries whose errors it reports. Does not
    /// recurse, because the image decides how deep the tree is.
    fn tree(&mut self, node: InodeRef) -> Result<()> {
        let name = self.source.file_name().filter(|_| !means_contents(self.source));
        let mut path = PathBuf::from(name.unwrap_or(OsStr::new(".")));
        let mut levels: Vec<Entries> = self.entry(node, &path)?.into_iter().collect();
        if name.is_none() {
            path.clear();
        }
        while let Some(entries) = levels.last_mut() {
            let Some(item) = entries.next() else {
                levels.pop();
                path.pop();
                continue;
            };
            let item = item.with_context(|| self.shown(&path));
            let Some(entry) = self.report.skip(item)? else { continue };
            path.push(OsString::from_vec(entry.name));
            let node = entry.node.with_context(|| self.shown(&path));
            let written = node.and_then(|node| self.entry(node, &path));
            if self.is_within_member {
                return written.map(|_| ());
            }
            match self.report.skip(written)?.flatten() {
                Some(below) => levels.push(below),
                None => drop(path.pop()),
            }
        }
        Ok(())
    }

    /// Returns a name in the image for messages.
    fn shown(&self, path: &Path) -> String {
        format!("{}: {}", self.source_name, path.display())
    }

    /// Writes `node` alone. Returns a directory, for its entries.
    fn entry(&mut self, node: InodeRef, path: &Path) -> Result<Option<Entries>> {
        let shown = self.shown(path);
        let is_directory = node.file_type() == FileType::Directory;
        let mut write = || -> Result<Option<Entries>> {
            self.report.check()?;
            // The name of a directory ends with a slash.
            let len = path.as_os_str().len() + usize::from(is_directory);
            ensure!(len < PATH_MAX, "the path is too long");
            if is_directory {
                self.visited.enter(&node)?;
            }
            self.write(&node, path)?;
            is_directory.then(|| tree::entries(&node)).transpose()
        };
        write().with_context(|| shown)
    }

    fn write(&mut self, node: &InodeRef, path: &Path) -> Result<()> {
        let metadata = node.metadata();
        let mut header = header(&metadata);
        if metadata.file_type == FileType::Directory {
            // `visited` knows it.
        } else if metadata.links > 1 {
            if let Some(first) = self.linked.get(&metadata.ino) {
                header.set_entry_type(EntryType::Link);
                let first = first.clone();
                self.append(header, Records::default(), path, Some(&first), io::empty())?;
                self.report.file_done();
                return Ok(());
            }
        } else {
            self.seen_inodes.meet(&metadata)?;
        }
        let records = self.records(node, &metadata, path, &mut header);
        match metadata.file_type {
            FileType::Regular => self.file(node, &metadata, header, records, path)?,
            FileType::Socket => {
                self.report.warn(&format!("{}: an archive holds no sockets; skipped", path.display()));
                return Ok(());
            }
            FileType::Symlink => {
                let target = node.read_link()?;
                header.set_entry_type(EntryType::Symlink);
                self.append(header, records, path, Some(&target), io::empty())?;
            }
            kind => self.special(kind, &metadata, header, records, path)?,
        }
        if metadata.file_type != FileType::Directory {
            if metadata.links > 1 {
                self.linked.insert(metadata.ino, path.to_owned());
            }
            self.report.file_done();
        }
        Ok(())
    }

    /// Returns the times, and the extended attributes. Reports the ones that cannot be read or
    /// exceed a limit; without its access list, a file gives its group no rights.
    fn records(&self, node: &InodeRef, metadata: &Metadata, path: &Path, header: &mut Header) -> Records {
        let mut records = Records::default();
        records.push_time(b"mtime", metadata.mtime);
        records.push_time(b"atime", metadata.atime);
        let (mut left, mut has_list) = (MOST_XATTRS, true);
        let mut push = |xattr: &XattrRef<'_>| -> Result<()> {
            let key = key(xattr.name());
            let fits = |len: usize| len <= MOST_VALUE && key.len() + len <= left;
            let value = if fits(xattr.stored_len()) { Some(xattr.value()?) } else { None };
            let len = value.as_ref().map_or(xattr.stored_len(), Vec::len);
            let value = value.filter(|value| fits(value.len()));
            let value = value.with_context(|| format!("{len} bytes do not fit the archive"))?;
            left -= key.len() + len;
            records.push(&key, &value);
            push_text(&mut records, xattr.name(), &value);
            Ok(())
        };
        let visited = node.visit_xattrs(|xattr| -> Result<()> {
            if let Err(error) = push(xattr) {
                has_list &= xattr.name() != ACCESS;
                let (path, name) = (path.display(), OsStr::from_bytes(xattr.name()).display());
                self.report.error(error.context(format!("{path}: attribute {name} is left out")));
            }
            Ok(())
        });
        if let Err(error) = visited {
            has_list = false;
            let what = format!("{}: attributes are left out", self.shown(path));
            self.report.error(error.context(what));
        }
        if !has_list {
            header.set_mode(permissions_without_list(metadata.permissions).into());
        }
        records
    }

    fn special(
        &mut self,
        kind: FileType,
        metadata: &Metadata,
        mut header: Header,
        records: Records,
        path: &Path,
    ) -> Result<()> {
        header.set_entry_type(match kind {
            FileType::Directory => EntryType::Directory,
            FileType::CharDevice => EntryType::Char,
            FileType::BlockDevice => EntryType::Block,
            _ => EntryType::Fifo,
        });
        if let Some((major, minor)) = metadata.rdev {
            header.set_device_major(major)?;
            header.set_device_minor(minor)?;
        }
        let mut name = path.as_os_str().to_owned();
        if kind == FileType::Directory {
            name.push("/");
        }
        self.append(header, records, Path::new(&name), None, io::empty())
    }

    /// Writes one entry. Names that do not fit the header are in the records.
    fn append(
        &mut self,
        mut header: Header,
        mut records: Records,
        path: &Path,
        target: Option<&Path>,
        data: impl Read,
    ) -> Result<()> {
        let path = fitting(&mut records, b"path", path);
        if let Some(target) = target {
            // The target of a symbolic link is any text, which the header takes as it is.
            let target = fitting(&mut records, b"linkpath", target);
            header.set_link_name_literal(target.as_os_str().as_bytes())?;
        }
        header.set_path(path)?;
        header.set_cksum();
        self.is_within_member = true;
        let records = records.as_bytes();
        if !records.is_empty() {
            let mut of_records = Header::new_ustar();
            of_records.set_entry_type(EntryType::XHeader);
            of_records.set_size(records.len() as u64);
            of_records.set_cksum();
            self.builder.append(&of_records, records)?;
        }
        self.builder.append(&header, data)?;
        self.is_within_member = false;
        Ok(())
    }

    /// Ends the archive within a member. Programs accept an archive that ends between two members.
    fn cut(&mut self) -> io::Result<()> {
        let output = self.builder.get_mut();
        if !self.is_within_member {
            // Announces records that do not follow.
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::XHeader);
            header.set_size(BLOCK as u64);
            header.set_cksum();
            output.write_all(header.as_bytes())?;
        }
        output.flush()
    }

    fn file(
        &mut self,
        node: &InodeRef,
        metadata: &Metadata,
        mut header: Header,
        mut records: Records,
        path: &Path,
    ) -> Result<()> {
        let file = DirectFile::new(node.clone())?;
        header.set_entry_type(EntryType::Regular);
        self.report.expect(metadata.size);
        let (runs, data) = runs::sparse_runs(&file, metadata.size, MOST_RUNS)?;
        self.data_limit.count(metadata, data)?;
        let report = self.report;
        let Some(runs) = runs else {
            header.set_size(metadata.size);
            let mut data = Data::new(&file, vec![(0, metadata.size)], report);
            self.append(header, records, path, None, &mut data)?;
            return self.report(data, path);
        };
        let mut map = format!("{}\n", runs.len());
        runs.iter().for_each(|(offset, len)| map.push_str(&format!("{offset}\n{len}\n")));
        let mut map = map.into_bytes();
        map.resize(map.len().next_multiple_of(BLOCK), 0);
        let bytes: u64 = runs.iter().map(|(_, len)| len).sum();
        header.set_size(map.len() as u64 + bytes);
        records.push(b"GNU.sparse.major", b"1");
        records.push(b"GNU.sparse.minor", b"0");
        records.push(b"GNU.sparse.name", path.as_os_str().as_bytes());
        records.push(b"GNU.sparse.realsize", metadata.size.to_string().as_bytes());
        // Programs that do not know the format unpack the map and the data under this name.
        let stand_in = format!("GNUSparseFile.0/{}", metadata.ino);
        let mut data = Data::new(&file, runs, report);
        let reader = io::Cursor::new(map).chain(&mut data);
        self.append(header, records, Path::new(&stand_in), None, reader)?;
        self.report(data, path)
    }

    /// Reports the error that a read of the data has met.
    fn report(&self, data: Data<'_>, path: &Path) -> Result<()> {
        let Some((offset, error)) = data.failure() else { return Ok(()) };
        let what = format!("{}: zeros from byte {offset} on", self.shown(path));
        Err(error).context(what)
    }
}

/// Adds an access control list as text, which GNU tar, bsdtar and star read.
fn push_text(records: &mut Records, name: &[u8], value: &[u8]) {
    let key: &[u8] = match name {
        ACCESS => b"SCHILY.acl.access",
        DEFAULT => b"SCHILY.acl.default",
        _ => return,
    };
    if let Some(text) = access_list::to_text(value) {
        records.push(key, text.as_bytes());
    }
}

/// Returns the key of the record of an attribute. The first `=` ends a key, so `=` and `%` are
/// encoded, as GNU tar does.
fn key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for &byte in name {
        match byte {
            b'%' => key.extend(b"%25"),
            b'=' => key.extend(b"%3D"),
            _ => key.push(byte),
        }
    }
    key
}

/// Returns a name that fits the header: `name` itself, or the end of it, with the whole name as a
/// record.
fn fitting(records: &mut Records, key: &[u8], name: &Path) -> PathBuf {
    /// Bytes of the field of the header.
    const FIELD: usize = 100;
    let bytes = name.as_os_str().as_bytes();
    if bytes.len() < FIELD {
        return name.to_owned();
    }
    records.push(key, bytes);
    let end = bytes.split(|&byte| byte == b'/').rfind(|part| !part.is_empty()).unwrap_or_default();
    OsStr::from_bytes(&end[..end.len().min(FIELD - 1)]).into()
}

fn header(metadata: &Metadata) -> Header {
    let mut header = Header::new_ustar();
    header.set_mode(metadata.permissions.into());
    header.set_uid(metadata.uid.into());
    header.set_gid(metadata.gid.into());
    // Times before 1970 are in the records alone.
    header.set_mtime(metadata.mtime.seconds.try_into().unwrap_or(0));
    header.set_size(0);
    header
}

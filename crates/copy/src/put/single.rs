//! Copies what the caller has open, such as standard input, to one file.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Context, Result, bail};
use parext4::{AlignedBuf, FileType, NewInode, Volume};
use rustix::process::{getegid, geteuid};

use super::Shared;
use super::attributes::Attributes;
use super::destination::{Destination, OtherKind};
use super::file::FileJob;
use crate::input::Input;
use crate::transfer::CHUNK;

/// Permissions of the file.
const PERMISSIONS: u16 = 0o644;

/// Copies `input` to the file `dest`, which belongs to the user of the process.
pub fn put(volume: &Volume, input: Input<'_>, dest: &Path, shared: &Shared<'_>) -> Result<()> {
    let is_directory = volume.resolve(dest).is_ok_and(|node| node.file_type() == FileType::Directory);
    let is_named = !is_directory && !dest.as_os_str().as_bytes().ends_with(b"/");
    let (Some(parent), Some(name), true) = (dest.parent(), dest.file_name(), is_named) else {
        bail!("{}: a directory; {} needs the name of a file", shared.name.of(dest), input.name());
    };
    let parent = volume.resolve(parent).with_context(|| shared.name.of(dest))?;
    let (name, path) = (name.as_bytes().to_vec(), dest.to_owned());
    let place = Destination { parent, name, path, other_kind: OtherKind::Stays };
    let (source, mut input) = input.into_reader(shared.report.cancel())?;
    let job = FileJob { source: source.into(), place, slot: None, shared };
    let mut created = job.create(&NewInode::new().permissions(PERMISSIONS), 0)?;
    let mut attributes = Attributes::of_copy(&created.file.inode_ref().metadata());
    (attributes.uid, attributes.gid) = (geteuid().as_raw(), getegid().as_raw());
    created.write_all(|bytes, _| input.read(bytes), &mut AlignedBuf::zeroed(CHUNK))?;
    shared.rules.set_xattrs(created.file.inode_ref())?;
    created.finish(&shared.rules.applied(attributes, false).all())
}

//! Standard input as a source, and input whose reads end when the user interrupts the command.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use parext4::{AlignedBuf, FileType, NewInode, Volume};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::stdio::stdin;

use super::Shared;
use super::attributes::Attributes;
use super::file::FileJob;
use super::place::{OtherKind, Place};
use crate::image_path::ImagePath;
use crate::interrupt;
use crate::transfer::CHUNK;

/// Time between two checks for a signal.
const CHECK_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Permissions of a copy of standard input.
const PERMISSIONS: u16 = 0o644;

/// Returns true if `source` means standard input.
pub fn is_meant(source: &Path) -> bool {
    source == Path::new("-")
}

/// Reads a file without a buffer. A read fails after a signal has asked the command to end, also while no input comes.
pub struct Interruptible<F>(pub F);

impl<F: AsFd> Read for Interruptible<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if interrupt::requested() {
                // Not `ErrorKind::Interrupted`, after which callers try again.
                return Err(io::Error::other("interrupted"));
            }
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&CHECK_AFTER)) {
                Ok(0) | Err(Errno::INTR) => {}
                ready => {
                    ready?;
                    return Ok(rustix::io::read(&self.0, bytes)?);
                }
            }
        }
    }
}

/// Copies standard input to the file `dest`, which belongs to the user.
pub fn put(volume: &Volume, dest: &ImagePath, shared: &Arc<Shared>) -> Result<()> {
    let is_directory = volume.resolve(&dest.path).is_ok_and(|node| node.file_type() == FileType::Directory);
    let is_named = !is_directory && !dest.path.as_os_str().as_bytes().ends_with(b"/");
    let (Some(parent), Some(name), true) = (dest.path.parent(), dest.path.file_name(), is_named) else {
        bail!("{dest}: a directory; standard input needs the name of a file");
    };
    let parent = volume.resolve(parent).with_context(|| dest.to_string())?;
    let (name, path) = (name.as_bytes().to_vec(), dest.path.clone());
    let place = Place { parent, name, path, other_kind: OtherKind::Stays };
    let job = FileJob { source: "standard input".into(), place, slot: None, shared: Arc::clone(shared) };
    let mut created = job.create(&NewInode::new().permissions(PERMISSIONS), 0)?;
    let mut attributes = Attributes::of_copy(&created.file.node().metadata());
    (attributes.uid, attributes.gid) = (geteuid().as_raw(), getegid().as_raw());
    let mut input = Interruptible(stdin());
    created.write_all(|bytes, _| input.read(bytes), &mut AlignedBuf::zeroed(CHUNK))?;
    shared.rules.set_xattrs(created.file.node())?;
    created.finish(&shared.rules.applied(attributes, false).all())
}

//! Runs the operations of one thread on a volume.

use std::io::ErrorKind;
use std::sync::Arc;
#[cfg(not(shuttle))]
use std::thread::sleep;
use std::time::Duration;

#[cfg(shuttle)]
use parext4::models::simulated_time::sleep;
use parext4::{Error, File, InodeRef, OpenOptions, RenameMode, Result, SetAttributes, Volume};

use super::content::Content;
use super::file_handles::FileHandles;
use super::file_op::{FileOp, Way};
use super::found::COMMIT_FILE;
use super::op::{LAST_WRITE, Op, Persist};
use super::tree::mode_of;
use crate::volume::DirectFiles as _;

/// The time between two reads of the number of commits while a timed commit is awaited, and the
/// number of reads after which the wait fails. In a simulation time is skipped, and a request may
/// take ten minutes.
#[cfg(not(shuttle))]
const POLL: Duration = Duration::from_micros(200);
#[cfg(not(shuttle))]
const POLLS: u32 = 100_000;
#[cfg(shuttle)]
const POLL: Duration = Duration::from_secs(1);
#[cfg(shuttle)]
const POLLS: u32 = 86_400;

/// One thread on a volume.
pub struct Runner<'a> {
    volume: &'a Volume,
    /// Returns the path on the volume of a path of an operation.
    at: Box<dyn Fn(&str) -> String + 'a>,
    /// Files without a name.
    open: Vec<File>,
}

impl<'a> Runner<'a> {
    /// Returns a thread whose operations have the paths of the volume.
    pub fn new(volume: &'a Volume) -> Self {
        Self::with_paths(volume, str::to_owned)
    }

    /// Returns a thread for whose operations `at` returns the paths of the volume.
    pub fn with_paths(volume: &'a Volume, at: impl Fn(&str) -> String + 'a) -> Self {
        Self { volume, at: Box::new(at), open: Vec::new() }
    }

    fn at(&self, path: &str) -> String {
        let path = (self.at)(path);
        if path.is_empty() { "/".to_owned() } else { path }
    }

    fn file(&self, path: &str) -> Result<File> {
        self.volume.open_file(self.at(path), &OpenOptions::read_write())
    }

    /// Runs an operation that writes `content`.
    ///
    /// # Errors
    /// The errors of the operation.
    pub fn run(&mut self, op: &Op, content: Content) -> Result<()> {
        let (volume, byte) = (self.volume, content.byte());
        match *op {
            Op::Create(path) => {
                volume.open_direct(self.at(path), &OpenOptions::read_write().create_new(true)).map(drop)
            }
            Op::MakeDir(path) => volume.create_dir(self.at(path), 0o755).map(drop),
            Op::Link(from, to) => volume.hard_link(self.at(from), self.at(to)),
            Op::Symlink(path, target) => volume.symlink(self.at(path), target).map(drop),
            Op::Rename(from, to) => volume.rename(self.at(from), self.at(to)),
            Op::RenameNew(from, to) => volume.rename_with(self.at(from), self.at(to), RenameMode::NoReplace),
            Op::Exchange(one, two) => volume.rename_with(self.at(one), self.at(two), RenameMode::Exchange),
            Op::Unlink(path) => volume.remove_file(self.at(path)),
            Op::UnlinkOpen(path) => {
                self.open.push(self.file(path)?);
                volume.remove_file(self.at(path))
            }
            Op::RemoveOpen(path) => {
                let file = volume.direct_file(self.at(path))?;
                volume.remove_file(self.at(path))?;
                file.write_all_at(&content.bytes(0, LAST_WRITE), 0)?;
                volume.sync()
            }
            Op::RemoveDir(path) => volume.remove_dir(self.at(path)),
            Op::SetXattr { path, name, len, mode } => {
                volume.resolve(self.at(path))?.set_xattr(name.as_bytes(), &content.value(len), mode)
            }
            Op::RemoveXattr { path, name } => volume.resolve(self.at(path))?.remove_xattr(name.as_bytes()),
            Op::Chmod(path) => {
                let set = SetAttributes::new().permissions(mode_of(byte));
                volume.resolve(self.at(path))?.set_attributes(&set)
            }
            Op::Chown(path) => {
                let set = SetAttributes::new().uid(u32::from(byte));
                volume.resolve(self.at(path))?.set_attributes(&set)
            }
            Op::File(path, op) => self.handles(path)?.run(op, content).map(drop),
            Op::SyncVolume => volume.sync(),
        }
    }

    fn handles(&self, path: &str) -> Result<FileHandles> {
        FileHandles::new(self.volume, self.volume.direct_file(self.at(path))?)
    }

    /// Makes an operation durable.
    ///
    /// # Errors
    /// The errors of the call.
    pub fn persist(&self, op: &Op, persist: Persist) -> Result<()> {
        let target = self.at(op.target());
        match persist {
            Persist::None => Ok(()),
            Persist::Volume => self.volume.sync(),
            Persist::Empty(blocks) => self.volume.empty_journal(blocks),
            Persist::Commit => commit(self.volume),
            Persist::Timed => await_commits(self.volume),
            Persist::Parent => self.volume.resolve(self.at(op.parent()))?.sync(),
            Persist::All | Persist::Data | Persist::Range => match self.handles(op.target()) {
                Ok(handles) => {
                    let op = match persist {
                        Persist::All => FileOp::SyncAll { way: Way::Buffered },
                        Persist::Data => FileOp::SyncData { way: Way::Buffered },
                        _ => {
                            let range = op.range(handles.direct.size());
                            FileOp::SyncRange { offset: range.start, len: range.end - range.start }
                        }
                    };
                    handles.run(op, Content::Byte(0)).map(drop)
                }
                Err(Error::IsDirectory(_)) => self.volume.resolve(&target)?.sync(),
                Err(error) => Err(error),
            },
        }
    }
}

/// Commits without writing back.
///
/// # Errors
/// The errors of the sync.
pub fn commit(volume: &Volume) -> Result<()> {
    change(volume)?.sync()
}

/// Changes the attributes of a file that belongs to no tree, so that there is something to commit.
fn change(volume: &Volume) -> Result<InodeRef> {
    let node = volume.resolve(COMMIT_FILE)?;
    node.set_attributes(&SetAttributes::new().permissions(node.metadata().permissions ^ 1))?;
    Ok(node)
}

/// Waits, without a sync, until all changes of names and attributes before the call are in a
/// durable commit. The first of two commits may have begun before the call.
fn await_commits(volume: &Volume) -> Result<()> {
    for _ in 0..2 {
        let before = volume.commits();
        change(volume)?;
        await_commit_after(volume, before)?;
    }
    Ok(())
}

/// Waits until the volume has made more than `before` commits.
fn await_commit_after(volume: &Volume, before: u64) -> Result<()> {
    for _ in 0..POLLS {
        if volume.commits() > before {
            return Ok(());
        }
        if let Some(why) = volume.stopped() {
            return Err(Error::Stopped(why.into()));
        }
        sleep(POLL);
    }
    Err(Error::Device {
        what: "waiting for a timed commit".into(),
        cause: Arc::new(ErrorKind::TimedOut.into()),
    })
}

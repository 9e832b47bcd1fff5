//! Runs the steps of one thread on a volume.

use std::io::ErrorKind;
use std::sync::Arc;
#[cfg(not(shuttle))]
use std::thread::sleep;
use std::time::Duration;

use parext4::device::AlignedBuf;
#[cfg(shuttle)]
use parext4::models::simulated_time::sleep;
use parext4::{
    Error, File, FileSize, InodeRef, IoFlags, IoRequest, OpenOptions, RenameMode, Result, SetAttributes,
    SyncMode, Volume, XattrMode,
};

use crate::found::COMMIT_FILE;
use crate::op::{Op, PIECE, Persist, SHORT, Way};
use crate::tree::{LINK_TARGET, mode_of, path_on_volume};

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
    /// The directory of the thread's tree; empty for the root.
    root: &'a str,
    /// Files without a name.
    open: Vec<File>,
}

impl<'a> Runner<'a> {
    /// Returns a thread that works below `root`.
    pub fn new(volume: &'a Volume, root: &'a str) -> Self {
        Self { volume, root, open: Vec::new() }
    }

    fn at(&self, path: &str) -> String {
        if self.root.is_empty() && path.is_empty() { "/".to_owned() } else { path_on_volume(self.root, path) }
    }

    fn file(&self, path: &str) -> Result<File> {
        self.volume.open_file(self.at(path), &OpenOptions::read_write())
    }

    fn synced_file(&self, path: &str) -> Result<File> {
        self.volume.open_file(self.at(path), &OpenOptions::read_write().sync(SyncMode::All))
    }

    /// Runs an operation that writes `byte`.
    ///
    /// # Errors
    /// The errors of the operation. The generator makes only operations that succeed.
    pub fn run(&mut self, op: &Op, byte: u8) -> Result<()> {
        let volume = self.volume;
        match *op {
            Op::Create(path) => {
                volume.open_direct(self.at(path), &OpenOptions::read_write().create_new(true)).map(drop)
            }
            Op::MakeDir(path) => volume.create_dir(self.at(path), 0o755).map(drop),
            Op::Link(from, to) => volume.hard_link(self.at(from), self.at(to)),
            Op::Symlink(path) => volume.symlink(self.at(path), LINK_TARGET).map(drop),
            Op::Rename(from, to) => volume.rename(self.at(from), self.at(to)),
            Op::Exchange(one, two) => self.exchange(one, two),
            Op::Unlink(path) => volume.remove_file(self.at(path)),
            Op::UnlinkOpen(path) => {
                self.open.push(self.file(path)?);
                volume.remove_file(self.at(path))
            }
            Op::RemoveDir(path) => volume.remove_dir(self.at(path)),
            Op::SetXattr(path) => {
                volume.resolve(self.at(path))?.set_xattr(b"user.x", &[byte], XattrMode::Any)
            }
            Op::RemoveXattr(path) => volume.resolve(self.at(path))?.remove_xattr(b"user.x"),
            Op::Chmod(path) => {
                let set = SetAttributes::new().permissions(mode_of(byte));
                volume.resolve(self.at(path))?.set_attributes(&set)
            }
            Op::Chown(path) => {
                let set = SetAttributes::new().uid(u32::from(byte));
                volume.resolve(self.at(path))?.set_attributes(&set)
            }
            _ => self.change_data(op, byte),
        }
    }

    fn exchange(&self, one: &str, two: &str) -> Result<()> {
        let (dir, name) = one.rsplit_once('/').expect("an absolute path");
        let (other_dir, other) = two.rsplit_once('/').expect("an absolute path");
        let to = self.volume.resolve(self.at(other_dir))?;
        let from = self.volume.resolve(self.at(dir))?;
        from.rename(name.as_bytes(), &to, other.as_bytes(), RenameMode::Exchange)
    }

    fn change_data(&self, op: &Op, byte: u8) -> Result<()> {
        let piece = usize::try_from(PIECE).expect("small");
        let data = vec![byte; piece];
        let file = self.volume.open_direct(self.at(op.target()), &OpenOptions::read_write())?;
        match *op {
            Op::Write(path, offset, Way::Synced) => self.synced_file(path)?.write_all_at(&data, offset),
            Op::Append(path, Way::Synced) => self.synced_file(path)?.append(&data).map(drop),
            Op::Write(path, offset, Way::Buffered) => self.file(path)?.write_all_at(&data, offset),
            Op::Write(_, offset, Way::Direct) => file.write_all_at(&data, offset),
            Op::Write(_, offset, Way::Queued) => {
                let half = piece / 2;
                let request = |nth: usize| IoRequest::Write {
                    buf: AlignedBuf::from_slice(&data[..half]),
                    len: half,
                    offset: offset + (nth * half) as u64,
                };
                self.queue(&file, [request(0), request(1)])
            }
            Op::WriteShort(path) => {
                self.file(path)?.write_all_at(&data[..usize::try_from(SHORT).expect("small")], 0)
            }
            Op::Append(path, Way::Buffered) => self.file(path)?.append(&data).map(drop),
            Op::Append(_, Way::Direct) => file.append(&data).map(drop),
            Op::Append(_, Way::Queued) => {
                self.queue(&file, [IoRequest::Append { buf: AlignedBuf::from_slice(&data), len: piece }])
            }
            Op::SetLen(_, size) => file.set_len(size),
            Op::Allocate(_, offset, keep_size) => {
                file.allocate(offset..offset + PIECE, FileSize::kept_if(keep_size))
            }
            Op::Punch(_, offset) => file.punch_hole(offset..offset + PIECE),
            Op::Zero(_, offset, keep_size) => {
                file.zero_range(offset..offset + PIECE, FileSize::kept_if(keep_size))
            }
            Op::Collapse(_) => file.collapse_range(PIECE..2 * PIECE),
            Op::Insert(_) => file.insert_range(PIECE..2 * PIECE),
            _ => unreachable!("{op:?} changes no data"),
        }
    }

    fn queue<const N: usize>(&self, file: &parext4::DirectFile, requests: [IoRequest; N]) -> Result<()> {
        let mut queue = self.volume.io_queue(4);
        for (token, request) in (0..).zip(requests) {
            queue.submit(file, request, token, IoFlags::new());
        }
        let mut done = Vec::new();
        while queue.in_flight() > 0 {
            queue.harvest(&mut done)?;
        }
        done.into_iter().try_for_each(|completion| completion.result.map(drop))
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
            Persist::All | Persist::Data | Persist::Range => {
                match (self.volume.open_file(&target, &OpenOptions::read_only()), persist) {
                    (Ok(file), Persist::All) => file.sync_all(),
                    (Ok(file), Persist::Data) => file.sync_data(),
                    (Ok(file), _) => {
                        let (offset, len) = op.range(file.size());
                        file.sync_range(offset..offset + len)
                    }
                    (Err(Error::IsDirectory(_)), _) => self.volume.resolve(&target)?.sync(),
                    (Err(error), _) => Err(error),
                }
            }
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

//! Reads and sets attributes, and updates the time of last access.

use std::time::SystemTime;

use fuser::{INodeNo, TimeOrNow};
use parext4::server::ServerInode;
use parext4::{DirectFile, FileType, InodeFlags, InodeRef, Metadata, SetAttributes};

use super::Server;
use super::files::check_flags;
use crate::options::Atime;
use crate::protocol::attr::{Entry, now, timestamp};
use crate::protocol::{Caller, Failure, Outcome};

/// The attributes that a request sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
    pub ctime: Option<SystemTime>,
}

impl NewAttributes {
    /// Returns true for a utimensat(2) without times, which sets the current time. With
    /// `cache=writeback` the kernel sends the times that it has set itself: if it has set all to
    /// the current time, they are equal.
    fn sets_times_to_now(&self) -> bool {
        let Self { mode, uid, gid, size, atime, mtime, ctime } = *self;
        let sets_now = match (mtime, ctime) {
            (Some(TimeOrNow::Now), _) => true,
            (Some(TimeOrNow::SpecificTime(mtime)), Some(ctime)) => mtime == ctime,
            _ => false,
        };
        let only_times = mode.is_none() && uid.is_none() && gid.is_none() && size.is_none();
        only_times && atime == Some(TimeOrNow::Now) && sets_now
    }

    /// Returns true for a chown(2) to an owner or a group, even if it is the same as before.
    fn changes_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }

    /// Returns true if the request sets only the time of change: a chown(2) to no owner and no
    /// group.
    fn is_empty(&self) -> bool {
        let Self { mode, uid, gid, size, atime, mtime, ctime: _ } = self;
        mode.is_none()
            && uid.is_none()
            && gid.is_none()
            && size.is_none()
            && atime.is_none()
            && mtime.is_none()
    }
}

/// Age, in seconds, from which `relatime` updates the time of last access.
const DAY: i64 = 24 * 60 * 60;

impl Server {
    /// Returns the attributes of an inode.
    pub fn attributes(&self, ino: INodeNo) -> Outcome<Entry> {
        Ok(self.entry(&self.inode_ref(ino)?).with_watched_blocks())
    }

    pub fn set_attributes(&self, ino: INodeNo, new: &NewAttributes, caller: Caller) -> Outcome<Entry> {
        self.check_not_shut_down()?;
        let node = self.inode_ref_for(ino, caller)?;
        self.change_attributes(&node, new, caller)?;
        self.after_change(&node)?;
        Ok(self.entry(&node))
    }

    fn change_attributes(&self, node: &InodeRef, new: &NewAttributes, caller: Caller) -> Outcome<()> {
        let uid = new_owner(self.options.uid, new.uid)?;
        let gid = new_owner(self.options.gid, new.gid)?;
        if let Some(size) = new.size {
            check_flags(node, true, true)?;
            node.make_room_for_fields();
            let file = DirectFile::new(node.clone())?;
            self.drop_privileges(node, caller)?;
            file.set_len(size)?;
            if size == 0 {
                self.kernel_pages(node).inspect(|pages| pages.forget_lost());
                self.refused.forget(node.id());
            }
        }
        if new.is_empty() {
            return self.chown_to_nobody(node, new.ctime, caller);
        }
        let is_protected = node.flags().intersects(InodeFlags::APPEND | InodeFlags::IMMUTABLE);
        if new.changes_owner() && is_protected {
            return Err(Failure::NOT_PERMITTED);
        }
        if new.changes_owner() && node.file_type() != FileType::Directory {
            node.remove_capabilities()?;
            self.drop_set_group_id(node, caller)?;
        }
        let time = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => timestamp(time),
            TimeOrNow::Now => now(),
        };
        let set = SetAttributes::new()
            .permissions(
                new.mode
                    .map(|mode| self.permissions_to_store(node, u16::try_from(mode & 0o7777).unwrap_or(0))),
            )
            .uid(uid)
            .gid(gid)
            .atime(new.atime.map(time))
            .mtime(new.mtime.map(time))
            .ctime(new.ctime.map(timestamp));
        if new.sets_times_to_now() && node.flags().contains(InodeFlags::APPEND) {
            node.touch()?;
        } else if set != SetAttributes::new() {
            node.set_attributes(&set)?;
        }
        Ok(())
    }

    /// Executes a chown(2) to no owner and no group. Like any chown(2), it removes set-ID bits and
    /// file capabilities, and sets the time of change.
    ///
    /// The kernel permits this call to every process, but only the owner may remove set-ID bits
    /// with it (`EPERM`). The kernel also sends the same request before each write to a file with
    /// set-ID bits, for any writer, and says with the write whether the bits must be cleared. So
    /// while the file is open for writing, the request of a caller that is not the owner changes
    /// nothing and succeeds.
    fn chown_to_nobody(&self, node: &InodeRef, ctime: Option<SystemTime>, caller: Caller) -> Outcome<()> {
        let lost = self.set_ids_lost_by_chown(node, caller);
        if lost != 0 && (!self.acts_as_owner(node, caller) || node.flags().contains(InodeFlags::APPEND)) {
            let may_precede_write = self.kernel_pages(node).is_some_and(|pages| pages.is_open_for_writing());
            return if may_precede_write { Ok(()) } else { Err(Failure::NOT_PERMITTED) };
        }
        if node.file_type() != FileType::Directory {
            node.remove_capabilities()?;
        }
        node.clear_set_ids(|_| lost)?;
        Ok(node.set_attributes(&SetAttributes::new().ctime(ctime.map(timestamp)))?)
    }

    /// Updates the time of last access after a read, if the options require it. An error does not
    /// fail the read.
    pub fn update_atime(&self, node: &InodeRef) {
        if self.updates_atime(node)
            && let Err(error) = node.touch_accessed()
        {
            log::debug!("inode {}: cannot update the time of last access: {error}", node.ino());
        }
    }

    /// Returns true if a read now changes the time of last access.
    pub fn updates_atime(&self, node: &InodeRef) -> bool {
        let is_off = self.options.atime == Atime::Never
            || !self.options.diratime && node.file_type() == FileType::Directory;
        if is_off {
            return false;
        }
        let Metadata { atime, mtime, ctime, flags, .. } = node.metadata();
        let is_old = || now().seconds.saturating_sub(atime.seconds) >= DAY;
        let wanted = self.options.atime == Atime::Strict || atime <= mtime || atime <= ctime || is_old();
        wanted
            && !flags.contains(InodeFlags::NOATIME)
            && self.volume().is_ok_and(|volume| !volume.is_read_only())
    }
}

/// Returns the owner to store. With an owner that all files show (`shown`), no owner is stored.
///
/// # Errors
/// If the new owner differs from the owner that all files show.
fn new_owner(shown: Option<u32>, new: Option<u32>) -> Outcome<Option<u32>> {
    match (shown, new) {
        (Some(shown), Some(new)) if new != shown => Err(Failure::NOT_PERMITTED),
        (Some(_), _) => Ok(None),
        (None, new) => Ok(new),
    }
}

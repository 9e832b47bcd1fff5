//! Attributes: reading and setting them, and the time of last access.

use std::time::SystemTime;

use fuser::{FileAttr, INodeNo, TimeOrNow};
use parext4::{File, FileType, InodeFlags, Metadata, Node, SetAttributes};

use crate::attr::{now, timestamp};
use crate::caller::Caller;
use crate::failure::{Failure, Outcome};
use crate::files::check_flags;
use crate::options::Atime;
use crate::server::Server;

/// Attributes to set.
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
    /// Returns true for a utimensat(2) without times. With `cache=writeback` the kernel sends the times that it has set
    /// itself: if all became the current time, they are equal.
    fn touches(&self) -> bool {
        let Self { mode, uid, gid, size, atime, mtime, ctime } = *self;
        let sets_now = match (mtime, ctime) {
            (Some(TimeOrNow::Now), _) => true,
            (Some(TimeOrNow::SpecificTime(mtime)), Some(ctime)) => mtime == ctime,
            _ => false,
        };
        let only_times = mode.is_none() && uid.is_none() && gid.is_none() && size.is_none();
        only_times && atime == Some(TimeOrNow::Now) && sets_now
    }

    /// Returns true for a chown(2) to an owner or a group, also to the same.
    fn changes_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }

    /// Returns true if nothing is set but the time of change: a chown(2) to no owner and no group.
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

const DAY: i64 = 24 * 60 * 60;

impl Server {
    pub fn attributes(&self, ino: INodeNo) -> Outcome<FileAttr> {
        Ok(self.entry(&self.node(ino)?).attr)
    }

    pub fn set_attributes(&self, ino: INodeNo, new: &NewAttributes, caller: Caller) -> Outcome<FileAttr> {
        let node = self.node(ino)?;
        let uid = new_owner(self.options.uid, new.uid)?;
        let gid = new_owner(self.options.gid, new.gid)?;
        if let Some(size) = new.size {
            check_flags(&node, true, true)?;
            self.drop_privileges(&node, caller)?;
            File::new(node.clone())?.set_len(size)?;
        }
        if new.is_empty() {
            self.keep_owner(&node, new.ctime, caller)?;
            return Ok(self.entry(&node).attr);
        }
        let is_fixed = node.flags().intersects(InodeFlags::APPEND | InodeFlags::IMMUTABLE);
        if new.changes_owner() && is_fixed {
            return Err(Failure::NOT_PERMITTED);
        }
        if new.changes_owner() && node.file_type() != FileType::Directory {
            node.remove_capabilities()?;
            self.drop_set_group_id(&node, caller)?;
        }
        let time = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => timestamp(time),
            TimeOrNow::Now => now(),
        };
        let set = SetAttributes {
            permissions: new.mode.map(|mode| u16::try_from(mode & 0o7777).unwrap_or(0)),
            uid,
            gid,
            atime: new.atime.map(time),
            mtime: new.mtime.map(time),
            ctime: new.ctime.map(timestamp),
        };
        if new.touches() && node.flags().contains(InodeFlags::APPEND) {
            node.touch()?;
        } else if set != SetAttributes::default() {
            node.set_attributes(&set)?;
        }
        Ok(self.entry(&node).attr)
    }

    /// Carries out chown(2) to no owner and no group: as any other it takes set-ID bits and file capabilities away, and
    /// dates the inode.
    ///
    /// The kernel lets everybody ask for it, but taking set-ID bits away so is for the owner. It sends the same request before
    /// each write to a file with set-ID bits, whoever writes, and says with the write whether they go. So the request of
    /// another caller changes nothing, and does not fail.
    fn keep_owner(&self, node: &Node, ctime: Option<SystemTime>, caller: Caller) -> Outcome<()> {
        let loses = self.set_ids_lost_by_chown(node, caller);
        if loses != 0 && (!self.acts_as_owner(node, caller) || node.flags().contains(InodeFlags::APPEND)) {
            return Ok(());
        }
        if node.file_type() != FileType::Directory {
            node.remove_capabilities()?;
        }
        node.clear_set_ids(|_| loses)?;
        Ok(node.set_attributes(&SetAttributes { ctime: ctime.map(timestamp), ..SetAttributes::default() })?)
    }

    /// Notes that an inode's contents were read, if the options want that. No read fails for want of its time.
    pub fn note_access(&self, node: &Node) {
        if self.is_access_noted(node)
            && let Err(error) = node.touch_accessed()
        {
            tracing::debug!("inode {}: time of access: {error}", node.ino());
        }
    }

    /// Whether a read now changes the time of last access.
    pub fn is_access_noted(&self, node: &Node) -> bool {
        let is_off = self.options.atime == Atime::Never
            || !self.options.diratime && node.file_type() == FileType::Directory;
        if self.options.read_only || is_off {
            return false;
        }
        let Metadata { atime, mtime, ctime, flags, .. } = node.metadata();
        let is_old = || now().seconds.saturating_sub(atime.seconds) >= DAY;
        let wanted = self.options.atime == Atime::Strict || atime <= mtime || atime <= ctime || is_old();
        wanted && !flags.contains(InodeFlags::NOATIME)
    }
}

/// What to store of a new owner: nothing where all files are `shown` to be of one, and nobody else can be it.
fn new_owner(shown: Option<u32>, new: Option<u32>) -> Outcome<Option<u32>> {
    match (shown, new) {
        (Some(shown), Some(new)) if new != shown => Err(Failure::NOT_PERMITTED),
        (Some(_), _) => Ok(None),
        (None, new) => Ok(new),
    }
}

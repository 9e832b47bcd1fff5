//! Attributes: reading and setting them, and the time of last access.

use std::time::SystemTime;

use fuser::{FileAttr, INodeNo, TimeOrNow};
use parext4::{File, InodeFlags, Metadata, Node, SetAttributes};

use crate::attr::{now, timestamp};
use crate::failure::{Failure, Outcome};
use crate::options::Atime;
use crate::server::{Caller, Server};

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
    /// Whether nothing is set but the time of change: chown(2) to no owner and no group, which takes set-ID bits away as
    /// any other does.
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
        Ok(self.entry(&*self.node(ino)?).attr)
    }

    pub fn set_attributes(&self, ino: INodeNo, new: &NewAttributes, caller: Caller) -> Outcome<FileAttr> {
        let node = self.node(ino)?;
        let uid = new_owner(self.options.uid, new.uid)?;
        let gid = new_owner(self.options.gid, new.gid)?;
        if let Some(size) = new.size {
            File::new((*node).clone())?.set_len(size)?;
            self.drop_privileges(&node, !caller.is_root() && new.mode.is_none())?;
        }
        let uid = if new.is_empty() { Some(node.metadata().uid) } else { uid };
        if new.is_empty() || new.uid.is_some() || new.gid.is_some() {
            self.drop_privileges(&node, false)?;
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
        if set != SetAttributes::default() {
            node.set_attributes(&set)?;
        }
        Ok(self.entry(&node).attr)
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
        if self.options.read_only || self.options.atime == Atime::Never {
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

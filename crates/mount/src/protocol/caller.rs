//! The thread that sent a request, and its privileges.
//!
//! A request carries the user and one group of its sender. The supplementary groups and the
//! capabilities are read from `/proc/PID/status` where an operation depends on them. The sender
//! waits for the reply, so it exists meanwhile, unless the request is asynchronous. If the entry is
//! missing, unreadable, or that of another thread, the sender counts as having no supplementary
//! groups and no capabilities.
//!
//! With the option `idmap`, only a request that creates an inode carries a user and a group: the
//! new inode's, as the mount maps its sender's. Every other request carries neither. The sender's
//! own ids are then read from `/proc/PID/status`. They are not mapped, so they are compared with 0
//! and with the server's user, never with the owner of an inode. The entry of a kernel thread is
//! not used: it has root's credentials, while the thread acts with the credentials of a client (as
//! an NFS server does).

use std::path::Path;

use fuser::Request;
use rustix::process::geteuid;

use crate::protocol::{Failure, Outcome};

/// `CAP_FOWNER` of capabilities(7): permits acting as the owner of any file.
pub(crate) const CAP_FOWNER: u32 = 3;
/// `CAP_FSETID`: keeps the set-ID bits of files that the caller changes.
pub(crate) const CAP_FSETID: u32 = 4;
/// `CAP_LINUX_IMMUTABLE`: permits changing the immutable and append-only flags.
pub(crate) const CAP_LINUX_IMMUTABLE: u32 = 9;
/// `CAP_SYS_ADMIN`: permits administering file systems.
pub(crate) const CAP_SYS_ADMIN: u32 = 21;

/// The id that the kernel reports for users and groups that the server's user namespace does not
/// map.
const OVERFLOW: u32 = 65534;

/// The user and the group of a request that carries none (`FUSE_INVALID_UIDGID`).
const NONE: u32 = u32::MAX;

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// The user and the group that the request carries, or [`NONE`].
    uid: u32,
    gid: u32,
    /// The thread's number in the server's PID namespace; 0 if the thread is not visible there.
    pid: u32,
}

impl From<&Request> for Caller {
    fn from(request: &Request) -> Self {
        Self { uid: request.uid(), gid: request.gid(), pid: request.pid() }
    }
}

impl Caller {
    /// Returns the user and the group of an inode that the request creates.
    pub fn new_owner(self) -> Outcome<(u32, u32)> {
        if self.uid == NONE || self.gid == NONE { Err(Failure::NO_ID) } else { Ok((self.uid, self.gid)) }
    }

    /// Returns true if the caller is user 0. This does not imply capabilities; see
    /// [`has`](Self::has).
    pub fn is_root(self) -> bool {
        self.user() == Some(0)
    }

    /// Returns true if the caller is the owner of an inode with the owner `uid`. If the request
    /// carries no user, returns false: the mount through which it came may map users.
    pub fn owns(self, uid: u32) -> bool {
        self.uid != NONE && self.uid == uid
    }

    /// Returns the caller's user before any id mapping: from the request, else from `/proc`.
    fn user(self) -> Option<u32> {
        match self.uid {
            NONE => self.proc_status().map(|status| status.uid).filter(|&uid| uid != OVERFLOW),
            uid => Some(uid),
        }
    }

    /// Returns true if the caller has a capability in the server's user namespace.
    pub fn has(self, capability: u32) -> bool {
        self.proc_status().is_some_and(|status| status.capabilities & 1 << capability != 0)
    }

    /// Returns true if the caller is a member of the group `gid` of an inode. If the request
    /// carries no group, returns false, as [`owns`](Self::owns) does.
    pub fn is_in_group(self, gid: u32) -> bool {
        if self.gid == NONE {
            return false;
        }
        let is_supplementary =
            || gid != OVERFLOW && self.proc_status().is_some_and(|status| status.groups.contains(&gid));
        self.gid == gid || is_supplementary()
    }

    /// Returns true if the caller may administer the mounted volume: with `CAP_SYS_ADMIN`, or as
    /// the unprivileged user that the server runs as.
    pub fn administers(self) -> bool {
        let server = geteuid();
        !server.is_root() && self.user() == Some(server.as_raw()) || self.has(CAP_SYS_ADMIN)
    }

    /// Reads the caller's entry in `/proc`. `None` if the entry may be another thread's.
    fn proc_status(self) -> Option<ProcStatus> {
        if self.pid == 0 {
            return None;
        }
        // In the `/proc` of another PID namespace, the number would name another thread.
        let own = std::fs::read_link("/proc/self").ok()?;
        if own != Path::new(&std::process::id().to_string()) {
            return None;
        }
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let mut status = ProcStatus::parse(&text)?;
        let is_callers = match (self.uid, self.gid) {
            (NONE, NONE) => !status.is_kernel_thread,
            ids => ids == (status.uid, status.gid),
        };
        if !is_callers {
            return None;
        }
        // A process in another user namespace may have all capabilities there, but none in the
        // server's.
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/user")).ok();
        let own = namespace("self");
        if own.is_none() || namespace(&self.pid.to_string()) != own {
            status.capabilities = 0;
        }
        Some(status)
    }
}

/// The credentials of a thread from `/proc/PID/status`.
#[derive(Debug, PartialEq, Eq)]
struct ProcStatus {
    /// The user and the group of file accesses.
    uid: u32,
    gid: u32,
    /// The supplementary groups.
    groups: Vec<u32>,
    /// The effective capabilities, one bit each.
    capabilities: u64,
    is_kernel_thread: bool,
}

impl ProcStatus {
    fn parse(status: &str) -> Option<Self> {
        let values = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.split_whitespace())
        };
        // The four ids are real, effective, saved, and of file accesses.
        let id = |name| values(name)?.nth(3)?.parse().ok();
        let capabilities = u64::from_str_radix(values("CapEff")?.next()?, 16).ok()?;
        let groups = values("Groups")?.map(str::parse).collect::<Result<_, _>>().ok()?;
        // Kernels without this line do not support idmapped mounts, so their requests carry a user.
        let is_kernel_thread = values("Kthread").and_then(|mut value| value.next()) != Some("0");
        Some(Self { uid: id("Uid")?, gid: id("Gid")?, groups, capabilities, is_kernel_thread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_parsed() {
        let status = "Name:\tUid: 7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapEff:\t0000000000200008\nKthread:\t0\n";
        let capabilities = 1 << CAP_SYS_ADMIN | 1 << CAP_FOWNER;
        let expected =
            ProcStatus { uid: 4, gid: 8, groups: vec![9, 10], capabilities, is_kernel_thread: false };
        assert_eq!(ProcStatus::parse(status), Some(expected));
        assert_eq!(ProcStatus::parse("Uid:\t1\t2\t3\n"), None);
    }

    #[test]
    fn only_the_callers_own_entry_counts() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ProcStatus { uid, gid, groups, capabilities, .. } = ProcStatus::parse(&status).unwrap();
        let pid = std::process::id();
        let caller = |uid, pid| Caller { uid, gid, pid };
        assert_eq!(caller(uid, pid).has(CAP_SYS_ADMIN), capabilities & 1 << CAP_SYS_ADMIN != 0);
        assert!(groups.into_iter().all(|group| group == OVERFLOW || caller(uid, pid).is_in_group(group)));
        // A thread of another user, no thread, and a thread that `/proc` does not show.
        for other in [caller(uid + 1, pid), caller(uid, 0), caller(uid, u32::MAX)] {
            assert!(!other.has(CAP_SYS_ADMIN));
            assert!(other.is_in_group(gid) && !other.is_in_group(gid + 1));
        }
    }

    #[test]
    fn a_request_without_a_user_has_the_privileges_of_its_thread_or_none() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ProcStatus { uid, gid, capabilities, .. } = ProcStatus::parse(&status).unwrap();
        let without_ids = |pid| Caller { uid: NONE, gid: NONE, pid };
        let caller = without_ids(std::process::id());
        assert_eq!(caller.user(), (uid != OVERFLOW).then_some(uid));
        assert_eq!(caller.has(CAP_SYS_ADMIN), capabilities & 1 << CAP_SYS_ADMIN != 0);
        assert!(!caller.owns(uid) && !caller.owns(NONE) && !caller.is_in_group(gid));
        assert!(caller.new_owner().is_err());
        // No thread, one that `/proc` does not show, and a kernel thread (kthreadd) if process 2 is
        // that.
        for unknown in [without_ids(0), without_ids(u32::MAX)].into_iter().chain(kthreadd().map(without_ids))
        {
            assert!(!unknown.is_root() && !unknown.has(CAP_SYS_ADMIN) && !unknown.administers());
        }
    }

    fn kthreadd() -> Option<u32> {
        let status = std::fs::read_to_string("/proc/2/status").ok()?;
        status.lines().any(|line| line == "Name:\tkthreadd").then_some(2)
    }
}

//! Methods that set the options of a mount one by one.

use std::path::PathBuf;
use std::time::Duration;

use parext4::{OnError, Policy, QuotaKinds};

use super::{Atime, Cache, MountOptions};

impl MountOptions {
    /// Returns the options of a mount without `-o`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`read_only`](field@Self::read_only).
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets [`allow_other`](field@Self::allow_other).
    #[must_use]
    pub fn allow_other(mut self, allow_other: bool) -> Self {
        self.allow_other = allow_other;
        self
    }

    /// Sets [`offset`](field@Self::offset).
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.offset = bytes;
        self
    }

    /// Sets [`atime`](field@Self::atime).
    #[must_use]
    pub fn atime(mut self, atime: Atime) -> Self {
        self.atime = atime;
        self
    }

    /// Sets [`quotas`](field@Self::quotas).
    #[must_use]
    pub fn quotas(mut self, quotas: QuotaKinds) -> Self {
        self.quotas = quotas;
        self
    }

    /// Sets [`diratime`](field@Self::diratime).
    #[must_use]
    pub fn diratime(mut self, diratime: bool) -> Self {
        self.diratime = diratime;
        self
    }

    /// Sets [`commit`](field@Self::commit).
    #[must_use]
    pub fn commit(mut self, time: Duration) -> Self {
        self.commit = time;
        self
    }

    /// Sets [`cache`](field@Self::cache).
    #[must_use]
    pub fn cache(mut self, cache: Cache) -> Self {
        self.cache = cache;
        self
    }

    /// Sets [`metadata_cache`](field@Self::metadata_cache).
    #[must_use]
    pub fn metadata_cache(mut self, bytes: impl Into<Option<usize>>) -> Self {
        self.metadata_cache = bytes.into();
        self
    }

    /// Sets [`page_cache`](field@Self::page_cache).
    #[must_use]
    pub fn page_cache(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.page_cache = bytes.into();
        self
    }

    /// Sets [`threads`](field@Self::threads).
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets [`policy`](field@Self::policy).
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets [`suid`](field@Self::suid).
    #[must_use]
    pub fn suid(mut self, suid: bool) -> Self {
        self.suid = suid;
        self
    }

    /// Sets [`dev`](field@Self::dev).
    #[must_use]
    pub fn dev(mut self, dev: bool) -> Self {
        self.dev = dev;
        self
    }

    /// Sets [`exec`](field@Self::exec).
    #[must_use]
    pub fn exec(mut self, exec: bool) -> Self {
        self.exec = exec;
        self
    }

    /// Sets [`sync`](field@Self::sync).
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Sets [`dirsync`](field@Self::dirsync).
    #[must_use]
    pub fn dirsync(mut self, dirsync: bool) -> Self {
        self.dirsync = dirsync;
        self
    }

    /// Sets [`uid`](field@Self::uid).
    #[must_use]
    pub fn uid(mut self, uid: impl Into<Option<u32>>) -> Self {
        self.uid = uid.into();
        self
    }

    /// Sets [`gid`](field@Self::gid).
    #[must_use]
    pub fn gid(mut self, gid: impl Into<Option<u32>>) -> Self {
        self.gid = gid.into();
        self
    }

    /// Sets [`idmap`](field@Self::idmap).
    #[must_use]
    pub fn idmap(mut self, idmap: bool) -> Self {
        self.idmap = idmap;
        self
    }

    /// Sets [`group_of_directory`](field@Self::group_of_directory).
    #[must_use]
    pub fn group_of_directory(mut self, group_of_directory: impl Into<Option<bool>>) -> Self {
        self.group_of_directory = group_of_directory.into();
        self
    }

    /// Sets [`minix_df`](field@Self::minix_df).
    #[must_use]
    pub fn minix_df(mut self, minix_df: bool) -> Self {
        self.minix_df = minix_df;
        self
    }

    /// Sets [`fsname`](field@Self::fsname).
    #[must_use]
    pub fn fsname(mut self, name: impl Into<String>) -> Self {
        self.fsname = Some(name.into());
        self
    }

    /// Sets [`remount`](field@Self::remount).
    #[must_use]
    pub fn remount(mut self, remount: bool) -> Self {
        self.remount = remount;
        self
    }

    /// Sets [`recover`](field@Self::recover).
    #[must_use]
    pub fn recover(mut self, recover: bool) -> Self {
        self.recover = recover;
        self
    }

    /// Sets [`journal`](field@Self::journal).
    #[must_use]
    pub fn journal(mut self, device: impl Into<Option<PathBuf>>) -> Self {
        self.journal = device.into();
        self
    }

    /// Sets [`on_error`](field@Self::on_error).
    #[must_use]
    pub fn on_error(mut self, reaction: impl Into<Option<OnError>>) -> Self {
        self.on_error = reaction.into();
        self
    }

    /// Sets [`resuid`](field@Self::resuid).
    #[must_use]
    pub fn resuid(mut self, uid: impl Into<Option<u32>>) -> Self {
        self.resuid = uid.into();
        self
    }

    /// Sets [`resgid`](field@Self::resgid).
    #[must_use]
    pub fn resgid(mut self, gid: impl Into<Option<u32>>) -> Self {
        self.resgid = gid.into();
        self
    }

    /// Sets [`nonempty`](field@Self::nonempty).
    #[must_use]
    pub fn nonempty(mut self, nonempty: bool) -> Self {
        self.nonempty = nonempty;
        self
    }

    /// Sets [`standby`](field@Self::standby).
    #[must_use]
    pub fn standby(mut self, standby: bool) -> Self {
        self.standby = standby;
        self
    }

    /// Sets [`explain`](field@Self::explain).
    #[must_use]
    pub fn explain(mut self, explain: bool) -> Self {
        self.explain = explain;
        self
    }

    /// Sets [`log`](field@Self::log).
    #[must_use]
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }
}

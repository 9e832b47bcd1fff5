//! The operations of a mount: what each request of the kernel does to the volume.
//!
//! An operation is a method of [`Server`], in the file of its kind. It runs in any thread, may
//! block on the device, and never blocks on the kernel.

mod attributes;
mod dir_offsets;
mod dirs;
mod export;
mod files;
mod inode_flags;
mod names;
mod privileges;
mod refused;
mod report;
mod served;
mod volume_ioctls;
mod xattrs;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fuser::{FileHandle, FileType as Kind, INodeNo, Notifier};
use parext4::server::ServerVolume;
use parext4::{Credentials, FileType, InodeFlags, InodeRef, OnError, Quota, Space, Volume};
use parext4_sync::atomic::AtomicBool;

use crate::in_flight::InFlightRequests;
use crate::inodes::{Durability, LookupCounts, OpenFile, OpenFiles};
use crate::kernel_cache::{ChangedBlocks, Kernel as _};
use crate::options::{Cache, MountOptions};
use crate::protocol::attr::Entry;
use crate::protocol::{Caller, Failure, Outcome};
use crate::report::RecentLog;
use served::ServedVolume;

pub(crate) use attributes::NewAttributes;
use dir_offsets::DirOffsets;
pub(crate) use files::{FilePosition, MAX_COPY, Opened, PIECE, write_what_fits};
pub(crate) use inode_flags::sets_flags;
pub(crate) use names::NewName;
pub(crate) use refused::Refused;
pub(crate) use served::Served;
pub use served::{Access, Reopen, Reopening};
pub(crate) use volume_ioctls::EXT4_IOC_SHUTDOWN;
pub(crate) use xattrs::{is_report, is_switch, is_sync};

/// Size of an inode without fields for nanoseconds, in bytes.
const SMALL_INODE: u16 = 128;

/// A mounted volume.
#[derive(Debug)]
pub(crate) struct Server {
    volume: ServedVolume,
    pub options: MountOptions,
    pub lookup_counts: LookupCounts,
    pub open_files: OpenFiles,
    dir_offsets: DirOffsets,
    pub in_flight: Arc<InFlightRequests>,
    /// The write-back that was refused.
    pub refused: Refused,
    /// Function that returns the last lines of the log, and its destination. The program that logs
    /// sets it.
    pub log: Arc<OnceLock<RecentLog>>,
    /// Files of which the kernel may have an old number of blocks.
    pub changed_blocks: Arc<ChangedBlocks>,
    /// Sends notifications to the kernel. It is set once the volume is mounted.
    pub notifier: Arc<OnceLock<Notifier>>,
    block_size: u32,
    inode_size: u16,
    has_verity: bool,
    /// True if the volume has directories that ignore case, or users may create some.
    may_ignore_case: bool,
    /// True if corruption found by a request stops the volume for changes.
    stops_on_corruption: bool,
    /// The user and the group that may use reserved blocks beside root. Group 0 means none.
    reserved_for: (u32, u32),
    /// True if a new inode gets the group of its directory.
    group_of_directory: bool,
    /// True if a program has shut the volume down, before any error had stopped it.
    shut_down: AtomicBool,
    /// The path of the image.
    image: PathBuf,
    /// Opens the image again. A program that can do that sets it.
    pub reopen: OnceLock<Box<dyn Reopen>>,
    started: Instant,
}

impl Server {
    /// Creates a server for a volume.
    ///
    /// # Errors
    /// If the root directory cannot be read.
    pub fn new(volume: Volume, image: &Path, options: MountOptions) -> parext4::Result<Self> {
        let info = volume.info();
        let (resuid, resgid) = info.reserved_for;
        let notifier = Arc::<OnceLock<Notifier>>::default();
        let changed_blocks = Arc::new(ChangedBlocks::new(notifier.clone()));
        Ok(Self {
            lookup_counts: LookupCounts::new(options.effective_cache() == Cache::Writeback),
            open_files: OpenFiles::default(),
            dir_offsets: DirOffsets::default(),
            in_flight: Arc::default(),
            refused: Refused::default(),
            log: Arc::default(),
            shut_down: AtomicBool::new(false),
            notifier,
            block_size: info.block_size,
            may_ignore_case: info.features.iter().any(|feature| feature == "casefold"),
            stops_on_corruption: options.on_error.unwrap_or(info.on_error) == OnError::ReadOnly,
            reserved_for: (options.resuid.unwrap_or(resuid), options.resgid.unwrap_or(resgid)),
            group_of_directory: options.group_of_directory.unwrap_or(info.group_of_directory),
            image: image.to_owned(),
            reopen: OnceLock::new(),
            started: Instant::now(),
            volume: ServedVolume::new(volume, &changed_blocks)?,
            changed_blocks,
            inode_size: info.inode_size,
            has_verity: info.features.iter().any(|feature| feature == "verity"),
            options,
        })
    }

    /// Returns the resolution of times: small inodes have no nanoseconds.
    pub fn time_granularity(&self) -> Duration {
        let has_nanoseconds = self.inode_size > SMALL_INODE;
        if has_nanoseconds { Duration::from_nanos(1) } else { Duration::from_secs(1) }
    }

    /// Makes the kernel drop the cached attributes of an inode. If the sender of the current
    /// request holds a reference to the inode, as by an open file, this blocks on no request, so
    /// the handler of such a request may call it. Without such a reference the kernel may be
    /// evicting the inode, and this blocks until its requests for that are answered.
    pub fn invalidate_attributes(&self, ino: INodeNo) {
        self.notifier.drop_attributes(ino);
    }

    /// Returns the volume.
    ///
    /// # Errors
    /// `EIO` if it could not be opened again.
    pub fn volume(&self) -> Outcome<Arc<Served>> {
        self.volume.get().ok_or(Failure::IO)
    }

    /// Returns the inode that a request names, with the credentials of an ordinary user. This is
    /// for requests that allocate no blocks; [`inode_ref_for`](Self::inode_ref_for) is for all
    /// requests.
    pub fn inode_ref(&self, ino: INodeNo) -> Outcome<InodeRef> {
        self.inode_ref_with(ino, Credentials::user())
    }

    /// Returns the inode that a request of `caller` names, to act on behalf of the caller.
    pub fn inode_ref_for(&self, ino: INodeNo, caller: Caller) -> Outcome<InodeRef> {
        self.inode_ref_with(ino, self.credentials(caller))
    }

    fn inode_ref_with(&self, ino: INodeNo, credentials: Credentials) -> Outcome<InodeRef> {
        let volume = self.volume()?;
        let node = match ino {
            INodeNo::ROOT => volume.root().clone(),
            _ => self.lookup_counts.inode_ref(&volume, ino)?,
        };
        Ok(node.with_credentials(credentials))
    }

    /// Fails with `EIO` if the volume was shut down. As in the kernel, files can then not be
    /// opened, read or synced, even if nothing is left to sync.
    pub fn check_not_shut_down(&self) -> Outcome<()> {
        if self.volume()?.is_shut_down() { Err(Failure::IO) } else { Ok(()) }
    }

    /// Returns the open file that a request reads from.
    pub fn file_to_read(&self, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
        self.check_not_shut_down()?;
        self.open_file(handle)
    }

    /// Returns the open file that a request names.
    pub fn open_file(&self, handle: FileHandle) -> Outcome<Arc<OpenFile>> {
        self.open_files.get(handle)
    }

    /// Returns the attributes of an inode for the kernel, without counting a look-up.
    fn entry(&self, node: &InodeRef) -> Entry {
        let mut entry = Entry::new(node, self.block_size);
        let attr = &mut entry.attr;
        attr.perm &= !self.hidden_set_ids(attr.kind == Kind::Directory, (attr.uid, attr.gid));
        (attr.uid, attr.gid) = self.owner(attr.uid, attr.gid);
        entry
    }

    /// Returns the attributes of an inode for a reply by which the kernel learns of it, and counts
    /// the look-up.
    fn entry_of_lookup(&self, node: &InodeRef) -> Entry {
        self.lookup_counts.count_lookup(node);
        self.entry(node)
    }

    /// Returns the owner and the group that an inode shows and is created with: the arguments,
    /// unless the options `uid` and `gid` replace them.
    fn owner(&self, uid: u32, gid: u32) -> (u32, u32) {
        (self.options.uid.unwrap_or(uid), self.options.gid.unwrap_or(gid))
    }

    /// Returns true if inodes may show another owner or group than the stored one. The shown owner
    /// may then write to a file, and make it executable, whose set-ID bits give the rights of the
    /// stored owner.
    pub fn has_shown_ids(&self) -> bool {
        self.options.uid.is_some() || self.options.gid.is_some()
    }

    /// Returns the credentials of a caller, which decide whether it may use the reserved blocks and
    /// exceed quotas. The protocol names one group of the caller. With the option `idmap` it names
    /// no caller, so no caller may do either.
    fn credentials(&self, caller: Caller) -> Credentials {
        let (uid, gid) = self.reserved_for;
        let owner = caller.new_owner().ok().filter(|_| !self.options.idmap);
        match owner {
            Some((0, _)) => Credentials::root(),
            Some((user, group)) if user == uid || gid != 0 && group == gid => {
                Credentials::root().within_quotas()
            }
            _ => Credentials::user(),
        }
    }

    /// Records corruption that a request has found, and stops the volume for changes if the options
    /// say so. Returns the outcome of the request.
    pub fn handle_corruption<T>(&self, outcome: Outcome<T>) -> Outcome<T> {
        if let Some(error) = outcome.as_ref().err().and_then(Failure::corruption)
            && let Ok(volume) = self.volume()
        {
            if self.stops_on_corruption { volume.stop(error) } else { volume.note_error(error) }
        }
        outcome
    }

    /// Returns the space for statfs(2) of an inode: that of the volume, or, for a directory that
    /// passes on its project, the space that the limits of the project leave.
    pub fn space_at(&self, ino: INodeNo) -> Outcome<Space> {
        let volume = self.volume()?;
        let mut space = self.space_of(&volume);
        if let Some(quota) = volume.project_quota(&self.inode_ref(ino)?)? {
            limit_space(&mut space, &quota);
        }
        Ok(space)
    }

    fn space_of(&self, volume: &Volume) -> Space {
        let mut space = volume.space();
        if !self.options.minix_df {
            space.blocks = space.blocks.saturating_sub(space.overhead_blocks);
        }
        space
    }

    /// Makes a change of an inode durable if the mount or the inode demands it (`sync`, `dirsync`,
    /// chattr(1) `+S` and `+D`).
    fn after_change(&self, node: &InodeRef) -> Outcome<()> {
        let of_dirs = self.options.dirsync || node.flags().contains(InodeFlags::DIRSYNC);
        if self.syncs_changes(node) || of_dirs && node.file_type() == FileType::Directory {
            node.sync()?;
        }
        Ok(())
    }

    /// Returns true if each change of an inode is durable when its request returns.
    pub fn syncs_changes(&self, node: &InodeRef) -> bool {
        self.options.sync || node.flags().contains(InodeFlags::SYNC)
    }

    /// Makes a change of an open file durable, as far as the mount and the caller require.
    pub fn after_file_change(&self, open: &OpenFile, durability: Durability) -> Outcome<()> {
        match durability {
            Durability::None if self.syncs_changes(open.file.inode_ref()) => open.sync(false),
            Durability::None => Ok(()),
            Durability::Data => open.sync(true),
            Durability::DataAndAttributes => open.sync(false),
        }
    }

    /// Closes all files and forgets all inodes, after the last request.
    pub fn shut_down(&self) {
        self.open_files.clear();
        self.lookup_counts.forget_all();
    }

    /// Closes the volume.
    pub fn close(&self) -> parext4::Result<()> {
        self.volume.take().map_or(Ok(()), |served| served.volume().close())
    }
}

/// Reduces the space of a volume to the space that the limits of a quota leave, as the kernel does
/// (`ext4_statfs_project`).
fn limit_space(space: &mut Space, quota: &Quota) {
    let lower = |soft: u64, hard: u64| if soft != 0 && (hard == 0 || soft < hard) { soft } else { hard };
    let block_size = u64::from(space.block_size);
    let blocks = lower(quota.limits.space_soft, quota.limits.space_hard) / block_size;
    if blocks != 0 && space.blocks > blocks {
        let left = blocks.saturating_sub(quota.space / block_size);
        (space.blocks, space.free_blocks, space.available_blocks) = (blocks, left, left);
    }
    let inodes = lower(quota.limits.inodes_soft, quota.limits.inodes_hard);
    if let Some(inodes) = u32::try_from(inodes).ok().filter(|&inodes| inodes != 0 && space.inodes > inodes) {
        let used = u32::try_from(quota.inodes).unwrap_or(u32::MAX);
        (space.inodes, space.free_inodes) = (inodes, inodes.saturating_sub(used));
    }
}

//! What all passes share: the device, the superblock, the descriptors, the blocks in use, and the
//! state of each inode.

use std::collections::HashSet;
use std::io::IoSliceMut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parext4_device::{AlignedBuf, Device};
use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::group_desc::GroupDesc;
use parext4_format::superblock::Superblock;
use parext4_format::{ChecksumSeed, FormatError, FsBlock, InodeNo};

use crate::claims::{Claims, SharedNodes};
use crate::finding::Findings;
use crate::problem::Problem;
use crate::usage::Usage;

/// An inode as the scan of the inode tables found it.
#[derive(Debug, Default)]
pub(crate) struct InodeState {
    /// The number of names found. For a directory it includes its `.` and the `..` of its
    /// subdirectories.
    pub names: AtomicU32,
    /// `i_links_count`.
    pub links: u16,
    /// The type as in a directory entry; 0 if the inode is not in use.
    pub kind: u8,
    pub marks: Marks,
}

/// Facts about an inode that its names depend on. They fit one byte, because each inode has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

impl Marks {
    const HIDDEN: u8 = 1;
    const ENCRYPTED: u8 = 2;

    pub(crate) fn new(is_hidden: bool, is_encrypted: bool) -> Self {
        let mark = |is_set, mark| if is_set { mark } else { 0 };
        Self(mark(is_hidden, Self::HIDDEN) | mark(is_encrypted, Self::ENCRYPTED))
    }

    /// Returns true if the inode has no name, as the journal and orphans.
    pub(crate) fn is_hidden(self) -> bool {
        self.0 & Self::HIDDEN != 0
    }

    pub(crate) fn is_encrypted(self) -> bool {
        self.0 & Self::ENCRYPTED != 0
    }
}

/// The inodes of a group, up to the last one in use.
type GroupInodes = Box<[InodeState]>;

/// A volume that is being checked.
pub(crate) struct Volume<'a> {
    device: &'a dyn Device,
    pub sb: Superblock,
    /// The superblock without checksums, to read inodes whose checksum is wrong.
    pub lenient: Superblock,
    pub block_size: usize,
    pub seed: Option<ChecksumSeed>,
    pub findings: &'a Findings,
    /// The descriptors of all groups; `None` for a descriptor that leads out of the volume.
    pub descs: Vec<Option<GroupDesc>>,
    pub claims: Claims,
    pub shared_nodes: SharedNodes,
    /// Blocks of the file system itself: sorted `(start, end, structure)`.
    pub system: Vec<(u64, u64, &'static str)>,
    /// Inodes that the next mount deletes or truncates.
    pub orphans: HashSet<u32>,
    /// The usage of users, groups and projects, if the volume has quota files.
    pub usage: Option<Usage>,
    inodes: Vec<OnceLock<GroupInodes>>,
}

impl<'a> Volume<'a> {
    /// Returns a volume whose descriptors are unknown, without memory for any group.
    pub(crate) fn new(device: &'a dyn Device, sb: Superblock, findings: &'a Findings) -> Self {
        let mut lenient = sb.clone();
        lenient.set_ro_compat(sb.ro_compat() - RoCompat::METADATA_CSUM);
        Self {
            device,
            lenient,
            block_size: sb.block_size() as usize,
            seed: sb.checksum_seed(),
            findings,
            descs: Vec::new(),
            claims: Claims::new(&sb, 0),
            shared_nodes: SharedNodes::new(),
            system: Vec::new(),
            orphans: HashSet::new(),
            usage: Usage::new(&sb),
            inodes: Vec::new(),
            sb,
        }
    }

    /// Sets the descriptors of all groups, and allocates memory for the results of the passes in
    /// each group.
    pub(crate) fn set_descs(&mut self, descs: Vec<Option<GroupDesc>>) {
        self.claims = Claims::new(&self.sb, descs.len());
        self.inodes = std::iter::repeat_with(OnceLock::new).take(descs.len()).collect();
        self.descs = descs;
    }

    pub(crate) fn report(&self, error: FormatError, problem: impl Into<Option<Problem>>) {
        self.findings.add(error, problem);
    }

    /// Reads whole blocks. If the device fails or the volume has no such blocks, reports that and
    /// returns false.
    pub(crate) fn read(&self, block: u64, buf: &mut [u8], what: &'static str, problem: Problem) -> bool {
        let Err(error) = self.try_read(block, buf) else { return true };
        self.report(FormatError::new(what, "block", error).in_block(FsBlock(block)), problem);
        false
    }

    /// Reads whole blocks.
    ///
    /// # Errors
    /// Says why: the device fails, or the volume has no such blocks.
    pub(crate) fn try_read(&self, block: u64, buf: &mut [u8]) -> Result<(), String> {
        let offset = block.checked_mul(self.block_size as u64).ok_or_else(|| "is out of range".to_owned())?;
        self.device.read_at(offset, &mut [IoSliceMut::new(buf)]).map_err(|error| error.to_string())
    }

    /// Returns a buffer for `blocks` blocks.
    pub(crate) fn buffer(&self, blocks: usize) -> AlignedBuf {
        AlignedBuf::zeroed(blocks * self.block_size)
    }

    /// Returns true if the blocks lie in the volume, and no boot block or superblock is among them.
    pub(crate) fn has_blocks(&self, start: u64, len: u64) -> bool {
        let end = start.checked_add(len);
        start > u64::from(self.sb.first_data_block()) && end.is_some_and(|end| end <= self.sb.blocks_count())
    }

    /// Claims blocks for a file. Returns true if no other structure has claimed any of them.
    pub(crate) fn claim_blocks(&self, start: u64, len: u64) -> bool {
        let (first, last) = (self.claims.cluster_of(start), self.claims.cluster_of(start + len.max(1) - 1));
        self.claims.claim(first, last - first + 1)
    }

    /// Returns the structure of the file system itself to which a block belongs.
    pub(crate) fn system_at(&self, block: u64) -> Option<&'static str> {
        let at = self.system.partition_point(|&(_, end, _)| end <= block);
        self.system.get(at).filter(|zone| zone.0 <= block).map(|zone| zone.2)
    }

    /// Returns the number of blocks of a group.
    pub(crate) fn group_blocks(&self, group: u32) -> u32 {
        let start = self.group_start(group);
        u32::try_from(self.sb.blocks_count() - start).unwrap_or(u32::MAX).min(self.sb.blocks_per_group())
    }

    pub(crate) fn group_start(&self, group: u32) -> u64 {
        u64::from(self.sb.first_data_block()) + u64::from(group) * u64::from(self.sb.blocks_per_group())
    }

    pub(crate) fn has(&self, feature: Incompat) -> bool {
        self.sb.incompat().contains(feature)
    }

    pub(crate) fn set_inodes(&self, group: u32, states: Vec<InodeState>) {
        if let Some(slot) = self.inodes.get(group as usize) {
            let _ = slot.set(states.into());
        }
    }

    /// Returns the state of an inode; `None` if it is not in use, or does not exist.
    pub(crate) fn inode(&self, ino: InodeNo) -> Option<&InodeState> {
        let index = ino.get().checked_sub(1)?;
        let (group, index) = (index / self.sb.inodes_per_group(), index % self.sb.inodes_per_group());
        let state = self.inodes.get(group as usize)?.get()?.get(index as usize)?;
        (state.kind != 0).then_some(state)
    }

    /// Returns the states of a group's inodes, up to the last one in use.
    pub(crate) fn inodes_of(&self, group: u32) -> &[InodeState] {
        self.inodes.get(group as usize).and_then(OnceLock::get).map_or(&[], |states| states)
    }

    /// Counts a name of an inode.
    pub(crate) fn count_name(&self, ino: InodeNo) {
        if let Some(state) = self.inode(ino) {
            state.names.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns true for inodes that no directory names: reserved ones, and hidden files of the file
    /// system. A journal that was added to a mounted volume has a name.
    pub(crate) fn is_hidden(&self, ino: u32) -> bool {
        let raw = self.sb.raw();
        let files = [raw.s_usr_quota_inum, raw.s_grp_quota_inum, raw.s_prj_quota_inum];
        let is_file = files.iter().any(|file| file.get() == ino);
        let is_orphan_file =
            self.sb.compat().contains(Compat::ORPHAN_FILE) && self.sb.orphan_file_inode() == ino;
        (ino < self.sb.first_inode() && ino != InodeNo::ROOT.get()) || is_file || is_orphan_file
    }

    /// Returns true if a time of deletion may be the number of the next inode in a list of orphans.
    /// As e2fsck does, returns false if a time in the superblock could be such a number, too: then
    /// a clock has shown such times.
    pub(crate) fn may_be_orphan(&self, dtime: u32) -> bool {
        let (raw, inodes) = (self.sb.raw(), 1..self.sb.inodes_count());
        let times = [raw.s_wtime, raw.s_mtime, raw.s_mkfs_time];
        inodes.contains(&dtime) && !times.iter().any(|time| inodes.contains(&time.get()))
    }

    /// Reads the bytes of an inode at its place in the table.
    pub(crate) fn inode_bytes(&self, ino: u32, buf: &mut AlignedBuf) -> Option<Vec<u8>> {
        let index = ino.checked_sub(1).filter(|_| ino <= self.sb.inodes_count())?;
        let (group, index) = (index / self.sb.inodes_per_group(), index % self.sb.inodes_per_group());
        let desc = self.descs.get(group as usize)?.as_ref()?;
        let byte = u64::from(index) * u64::from(self.sb.inode_size());
        let block = desc.inode_table.get() + byte / self.block_size as u64;
        let at = (byte % self.block_size as u64) as usize;
        let block_buf = &mut buf[..self.block_size];
        if !self.read(block, block_buf, "inode table", crate::problem::PR_1_ISCAN_ERROR) {
            return None;
        }
        block_buf.get(at..at + usize::from(self.sb.inode_size())).map(<[u8]>::to_vec)
    }
}

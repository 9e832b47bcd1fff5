//! Volumes in memory: made by parext4, checked by e2fsck.

use std::io::IoSlice;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use parext4::{
    Device, DirectFile, MemDevice, MkfsOptions, OpenOptions, Result, Volume, VolumeOptions, mkfs,
    replay_in_memory,
};
use parext4_check::{CheckOptions, check};
use parext4_format::jbd2::{self, BlockType, JournalSuperblock};
use parext4_format::superblock::{STATE_ERROR, Superblock};

use crate::sector::SECTOR;
use crate::tool;

/// The format of a test volume.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Size in MiB.
    pub mib: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Whether the volume has a journal.
    pub journal: bool,
    /// Bytes of the volume for each inode; the default of mke2fs if `None`.
    pub inode_ratio: Option<u64>,
    /// Features to add and to leave out, in the words of mke2fs.
    pub features: &'static str,
    /// Blocks of a group; the default of mke2fs if `None`.
    pub blocks_per_group: Option<u32>,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Blocks of a cluster, with bigalloc; 1 without.
    pub cluster_blocks: u32,
    /// The bytes of UUID and hash seed, of volumes that are the same each time; random, as the time
    /// is the clock's, if `None`.
    pub identity: Option<u8>,
}

impl Shape {
    /// Returns the format of a volume of `mib` MiB with blocks of `block_size` bytes.
    pub const fn new(mib: u64, block_size: u32, journal: bool) -> Self {
        Self {
            mib,
            block_size,
            journal,
            inode_ratio: None,
            features: "",
            blocks_per_group: None,
            inode_size: 256,
            cluster_blocks: 1,
            identity: None,
        }
    }

    /// Returns the format of a volume whose files are mapped by indirect blocks.
    #[must_use]
    pub const fn without_extents(mut self) -> Self {
        self.features = "^extent";
        self
    }

    /// Returns the format of a volume that allocates clusters of `blocks` blocks.
    #[must_use]
    pub const fn with_clusters(mut self, blocks: u32) -> Self {
        self.features = "bigalloc";
        self.cluster_blocks = blocks;
        self
    }

    /// Returns true if files are mapped by extents.
    pub fn has_extents(&self) -> bool {
        self.features != "^extent"
    }

    fn options(self) -> MkfsOptions {
        let options = MkfsOptions::new().features(self.features).expect("features that mkfs knows");
        options
            .block_size(self.block_size)
            .cluster_size((self.cluster_blocks > 1).then_some(self.cluster_blocks * self.block_size))
            .journal(self.journal)
            .inode_ratio(self.inode_ratio)
            .blocks_per_group(self.blocks_per_group)
            .inode_size(self.inode_size)
            .uuid(self.identity.map(|byte| [byte; 16]))
            .hash_seed(self.identity.map(|byte| [byte; 16]))
            .now(self.identity.map(|_| 1_700_000_000))
    }

    /// Makes an empty volume on a new device.
    pub fn make(self) -> MemDevice {
        let device = MemDevice::new(self.mib << 20);
        self.make_on(&device);
        device
    }

    /// Makes an empty volume on a device that reads as zeros.
    pub fn make_on(self, device: &dyn Device) {
        mkfs(device, &self.options().device_is_zero(true)).unwrap();
    }

    /// Makes an empty volume on a device full of old bytes, so that tests notice any that become
    /// visible.
    pub fn make_poisoned(self) -> MemDevice {
        let device = MemDevice::new(self.mib << 20);
        let poison = vec![0xa5; 1 << 20];
        for mib in 0..self.mib {
            device.write_at(mib << 20, &[IoSlice::new(&poison)]).unwrap();
        }
        self.make_over(&device);
        device
    }

    /// Makes an empty volume over what the device has.
    pub fn make_over(self, device: &dyn Device) {
        mkfs(device, &self.options()).unwrap();
    }
}

/// Returns an empty volume of 16 MiB in memory, with blocks of 4 KiB. The examples of the
/// documentation use it.
pub fn scratch() -> Volume {
    let device = Arc::new(Shape::new(16, 4096, true).make());
    Volume::open_device(device, &VolumeOptions::new().cache_bytes(1 << 20)).expect("the volume opens")
}

/// Opens damaged bytes read-only and for writing, and calls `exercise` with each volume that opens.
pub fn exercise_damaged(bytes: &[u8], exercise: impl Fn(&Volume)) {
    for read_only in [true, false] {
        let device = Arc::new(MemDevice::from_bytes(bytes.to_vec()));
        let Ok(volume) = Volume::open_device(device, &untimed().read_only(read_only)) else { continue };
        exercise(&volume);
        let _ = volume.close();
    }
}

/// Returns options with which only syncs, closing and full transactions commit, so that runs are
/// reproducible.
pub fn untimed() -> VolumeOptions {
    VolumeOptions::new().commit_interval(None)
}

/// Opens and closes the volume, which replays its journal and deletes its orphans.
pub fn recover(device: &Arc<MemDevice>) {
    let volume =
        Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &untimed()).expect("the volume opens");
    volume.close().expect("the volume closes");
}

/// Runs e2fsck on a copy of the volume. Returns its exit status and messages, or `None` if it is
/// not installed.
pub fn e2fsck(device: &MemDevice, flags: &str) -> Option<(Option<i32>, String)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    e2fsck_in(file.path(), device, None, flags)
}

/// Like [`e2fsck`], on a copy in a file, and with the journal on a device of its own, if it has
/// one.
fn e2fsck_in(
    path: &Path,
    device: &MemDevice,
    journal: Option<&MemDevice>,
    flags: &str,
) -> Option<(Option<i32>, String)> {
    device.save(path).unwrap();
    let mut command = Command::new("e2fsck");
    // An extent tree that could be shorter is no error.
    command.args([flags, "-E", "no_optimize_extents"]);
    let log = tempfile::NamedTempFile::new().unwrap();
    if let Some(journal) = journal {
        journal.save(log.path()).unwrap();
        command.arg("-j").arg(log.path());
    }
    let output = tool(command.arg(path))?;
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.code(), text))
}

/// Returns the byte offset of the journal of a volume.
pub fn journal_offset(device: &MemDevice) -> u64 {
    let is_superblock = |block: &[u8]| block[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
    let at = device.snapshot().chunks(1024).position(is_superblock).expect("the journal's superblock");
    at as u64 * 1024
}

/// Asserts that e2fsck finds no error in the volume in a file.
pub fn assert_clean_file(path: &Path, what: &str) {
    if let Some(output) = tool(Command::new("e2fsck").arg("-fn").arg(path)) {
        assert!(
            output.status.code() == Some(0),
            "{what}: e2fsck -fn: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

/// Asserts that e2fsck finds no error in a volume that was closed.
pub fn assert_clean(device: &MemDevice, what: &str) {
    assert_clean_with(device, None, what);
}

/// Like [`assert_clean`], for a volume whose journal may be on a device of its own.
pub fn assert_clean_with(device: &MemDevice, journal: Option<&MemDevice>, what: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    if let Some((status, text)) = e2fsck_in(file.path(), device, journal, "-fn") {
        assert!(status == Some(0), "{what}: e2fsck -fn: {text}");
    }
}

/// Returns what the check of this project finds, a line for each finding.
pub fn findings(device: &dyn Device) -> Vec<String> {
    let report = check(device, &CheckOptions::new().threads(2));
    report.refused.into_iter().chain(report.findings.iter().map(ToString::to_string)).collect()
}

/// Asserts that the check of this project finds no error in a volume that was closed.
pub fn assert_no_findings(device: &dyn Device, what: &str) {
    let findings = findings(device);
    assert!(findings.is_empty(), "{what}: {}", findings.join("\n"));
}

/// Asserts that e2fsck finds no error in a volume after a crash, once it has replayed the journal
/// and deleted the orphans, which it does without asking.
pub fn assert_recovers(device: &MemDevice, what: &str) {
    recovered_by_e2fsck(device, what);
}

/// Like [`assert_recovers`], for a volume whose journal may be on a device of its own.
pub fn assert_recovers_with(device: &MemDevice, journal: Option<&MemDevice>, what: &str) {
    recovered_with(device, journal, what);
}

/// Like [`assert_recovers`], and returns the volume as e2fsck leaves it, or `None` if it is not
/// installed or does not recover it.
pub fn recovered_by_e2fsck(device: &MemDevice, what: &str) -> Option<MemDevice> {
    recovered_with(device, None, what)
}

fn recovered_with(device: &MemDevice, journal: Option<&MemDevice>, what: &str) -> Option<MemDevice> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (status, text) = e2fsck_in(file.path(), device, journal, "-fy")?;
    // e2fsck 1.47.0 takes a commit block of which only the first sector was written for damage,
    // leaves the transaction out and repairs the volume without its orphans. Linux 6.18 replays the
    // transaction, and so does this project.
    if text.contains(" was corrupt, replay was aborted.") && has_torn_commit(journal.unwrap_or(device)) {
        return None;
    }
    let repaired = text
        .split("\n\n")
        .filter(|finding| {
            !is_about_orphan_file(finding) && !is_about_quota_of_orphans(finding, &text, device)
        })
        .any(|finding| finding.contains("? yes") || finding.contains("IGNORED"));
    assert!(matches!(status, Some(0 | 1)) && !repaired, "{what}: e2fsck -fy: {status:?} {text}");
    Some(MemDevice::from_bytes(std::fs::read(file.path()).unwrap()))
}

/// Returns true if the log has a commit block with other bytes than zeros in its second sector.
fn has_torn_commit(device: &MemDevice) -> bool {
    let bytes = device.snapshot();
    let is_commit = |block: &[u8]| matches!(jbd2::header(block), Some((BlockType::Commit, _)));
    bytes.chunks_exact(1024).any(|block| is_commit(block) && block[SECTOR..].iter().any(|&byte| byte != 0))
}

/// Returns true for the findings that e2fsck also has after a crash of the kernel: the kernel sets
/// the feature `orphan_present` when it opens a volume, and e2fsck 1.47.0 deletes the orphans, but
/// leaves their entries to a later pass.
fn is_about_orphan_file(finding: &str) -> bool {
    let mut lines = finding.lines().rev();
    let is_cleared = lines.next() == Some("Clear? yes");
    is_cleared
        && lines.next().is_some_and(|problem| {
            problem == "Feature orphan_present is set but orphan file is clean."
                || (problem.starts_with("Orphan file (inode ") && problem.ends_with(" is not clean."))
        })
}

/// Returns true if e2fsck has miscounted the usage of orphans: with clusters, e2fsck 1.47.0
/// subtracts only their blocks when it deletes them. The check of this project finds that the usage
/// is right before.
fn is_about_quota_of_orphans(finding: &str, text: &str, device: &MemDevice) -> bool {
    let is_quota = |line: &str| line.starts_with("Update quota info for quota type ");
    if !finding.lines().next_back().is_some_and(is_quota) || !text.contains(" orphaned inode ") {
        return false;
    }
    let (view, _) = replay_in_memory(Arc::new(device.fork())).expect("the log is replayed");
    assert_no_findings(&*view, "before the orphans are deleted");
    true
}

/// Returns the volume without the record that an error stopped it. e2fsck does not trust the orphan
/// list of a volume with errors, and asks about each orphan.
pub fn without_error_record(device: &MemDevice) -> MemDevice {
    let mut bytes = device.snapshot();
    let mut superblock = Superblock::parse(&bytes[1024..2048]).expect("a superblock");
    superblock.set_state(superblock.state() & !STATE_ERROR);
    superblock.encode(&mut bytes[1024..2048]);
    clear_journal_error(&mut bytes, superblock.block_size() as usize);
    MemDevice::from_bytes(bytes)
}

/// Returns a journal device without the record of an error. `block_size` is in bytes.
pub fn journal_without_error_record(device: &MemDevice, block_size: usize) -> MemDevice {
    let mut bytes = device.snapshot();
    clear_journal_error(&mut bytes, block_size);
    MemDevice::from_bytes(bytes)
}

fn clear_journal_error(bytes: &mut [u8], block_size: usize) {
    for block in bytes.chunks_exact_mut(block_size) {
        if let Ok(mut journal) = JournalSuperblock::parse(block) {
            journal.set_errno(0);
            journal.encode(block);
        }
    }
}

/// Shortcuts of tests for files of direct I/O.
pub trait DirectFiles {
    /// Creates a file with permissions `0o644`, which must not exist, and opens it for reading and
    /// writing.
    ///
    /// # Errors
    /// As [`Volume::open_direct`].
    fn create_direct(&self, path: impl AsRef<Path>) -> Result<DirectFile>;

    /// Opens a file for reading, and for writing unless the volume is read-only.
    ///
    /// # Errors
    /// As [`Volume::open_direct`].
    fn direct_file(&self, path: impl AsRef<Path>) -> Result<DirectFile>;
}

impl DirectFiles for Volume {
    fn create_direct(&self, path: impl AsRef<Path>) -> Result<DirectFile> {
        self.open_direct(path, &OpenOptions::read_write().create_new(true))
    }

    fn direct_file(&self, path: impl AsRef<Path>) -> Result<DirectFile> {
        self.open_direct(path, &OpenOptions::read_write().write(!self.is_read_only()))
    }
}

//! Reads, checks, recovers and changes a damaged volume. Every call may fail; none may panic, hang, or need much memory.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use parext4::{
    Device, FileType, MemDevice, NewInode, Node, OpenOptions, RenameMode, Result, SetAttributes, Volume,
    VolumeOptions, XattrMode, replay_in_memory, replay_journal,
};
use parext4_check::{CheckOptions, check};

use crate::volume::{assert_clean, assert_no_findings, e2fsck};

/// Memory of the process above twice the image that one volume may need, in bytes.
pub const BUDGET: u64 = 64 << 20;
/// The most entries that are read.
const MAX_ENTRIES: usize = 1500;
/// The most bytes that are read of a file.
const MAX_BYTES: u64 = 256 << 10;
/// The most files that are changed.
const MAX_CHANGED: usize = 60;

/// Uses the volume on `device` in every way. Returns true if it could be opened for writing.
///
/// # Panics
/// If e2fsck accepted the volume before it was changed, and not afterwards.
pub fn exercise(device: MemDevice) -> bool {
    let bytes = Arc::new(device);
    let device: Arc<dyn Device> = Arc::clone(&bytes) as _;
    let is_sound = check_volume(&device) && is_accepted(&bytes);
    let options =
        VolumeOptions::new().cache_bytes(4 << 20).metadata_cache_bytes(4 << 20).commit_interval(None);
    if let Ok(volume) = Volume::open_device(Arc::clone(&device), &options.clone().read_only(true)) {
        look(&volume);
    }
    let Ok(volume) = Volume::open_device(Arc::clone(&device), &options) else { return false };
    let paths = look(&volume);
    // Changes of one part of the volume must not depend on another part that is damaged.
    let _ = make(&volume);
    for (path, _) in paths.iter().take(MAX_CHANGED) {
        let _ = change(&volume, path);
    }
    for path in ["/many", "/dir", "/new"] {
        let _ = volume.remove_dir_all(path);
    }
    let _ = volume.sync();
    let _ = volume.trim(0..u64::MAX, 0);
    let is_closed = volume.close().is_ok();
    check_volume(&device);
    if is_sound && is_closed {
        assert_clean(&bytes, "a volume that e2fsck accepted before it was changed");
        assert_no_findings(&*device, "a volume that e2fsck accepts");
    }
    true
}

/// Checks the volume as the command does: after a replay in memory, if that succeeds. Returns true if it has no findings then.
fn check_volume(device: &Arc<dyn Device>) -> bool {
    let options = CheckOptions::new().threads(2).limit(100);
    let mut report = check(&**device, &options);
    let Ok((view, replayed)) = replay_in_memory(Arc::clone(device)) else { return false };
    if replayed.transactions > 0 {
        report = check(&*view, &options.is_replayed(true));
    }
    report.refused.is_none() && report.findings.is_empty()
}

/// Returns true if e2fsck finds no error once the log is replayed.
fn is_accepted(device: &MemDevice) -> bool {
    let copy = Arc::new(device.fork());
    let is_replayed = replay_journal(Arc::clone(&copy) as Arc<dyn Device>).is_ok();
    is_replayed && e2fsck(&copy, "-fn").is_some_and(|(status, _)| status == Some(0))
}

/// Reads facts, names, attributes and contents. Returns the paths and kinds of entries.
fn look(volume: &Volume) -> Vec<(PathBuf, FileType)> {
    let _ = (volume.info(), volume.space(), volume.label(), volume.last_mounted(), volume.mmp());
    let Ok(walk) = volume.walk("/") else { return Vec::new() };
    let mut paths = Vec::new();
    for entry in walk.take(MAX_ENTRIES).filter_map(Result::ok) {
        if let Ok(node) = entry.node() {
            let _ = look_at(volume, &entry.path(), &node);
        }
        paths.push((entry.path(), entry.file_type()));
    }
    paths
}

fn look_at(volume: &Volume, path: &std::path::Path, node: &Node) -> Result<()> {
    let _ = node.metadata();
    for name in node.list_xattr().unwrap_or_default() {
        let _ = node.get_xattr(&name);
    }
    match node.file_type() {
        FileType::Symlink => drop(node.read_link()?),
        FileType::Regular => {
            let file = volume.open_file(path)?;
            let mut bytes = Vec::new();
            let _ = file.into_cursor().take(MAX_BYTES).read_to_end(&mut bytes);
            let direct = volume.open_direct(path, &OpenOptions::new().read(true))?;
            let _ = direct.fiemap(0..u64::MAX);
            let _ = direct.seek_data(0).and_then(|data| direct.seek_hole(data));
            let mut bytes = vec![0; 64 << 10];
            let _ = direct.read_at(&mut bytes, 0);
        }
        _ => {}
    }
    Ok(())
}

/// Makes new inodes of all kinds.
fn make(volume: &Volume) -> Result<()> {
    let new = NewInode::new();
    let root = volume.root()?;
    let dir = root.mkdir(b"new", &new)?;
    for n in 0..40 {
        let name = format!("{n:0>60}").into_bytes();
        match n % 4 {
            0 => drop(dir.mkdir(&name, &new)?),
            1 => drop(dir.symlink(&name, &vec![b't'; 20 * (n + 1)], &new)?),
            _ => {
                let file = dir.create(&name, &new)?;
                file.set_xattr(b"user.a", &vec![7; 30 * (n + 1)], XattrMode::Any)?;
            }
        }
    }
    volume.write("/new/file", vec![7; 300_000])?;
    let file = volume.open_direct("/new/direct", &OpenOptions::read_write().create_new(true))?;
    for n in 0..40 {
        file.write_at(&[n; 4096], u64::from(n) * 20_480)?;
    }
    let _ = file.allocate(1 << 20, 300_000, false);
    file.punch_hole(8192, 200_000)?;
    volume.sync()
}

/// Changes an inode in every way.
fn change(volume: &Volume, at: &std::path::Path) -> Result<()> {
    let node = volume.resolve_no_follow(at)?;
    let _ = node.set_attributes(&SetAttributes::new().uid(70_000).permissions(0o600));
    let _ = node.set_xattr(b"user.more", &[9; 300], XattrMode::Any);
    for name in node.list_xattr().unwrap_or_default() {
        let _ = node.remove_xattr(&name);
    }
    if node.file_type() == FileType::Directory {
        let _ = node.create(b"another", &NewInode::new());
        let _ = node.unlink(b"another");
        return Ok(());
    }
    if node.file_type() == FileType::Regular
        && let Ok(file) = volume.open_direct(at, &OpenOptions::read_write())
    {
        let _ = file.write_at(&[3; 4096], 0);
        let _ = file.append(&[4; 512]);
        let _ = file.punch_hole(4096, 20_000);
        let _ = file.allocate(0, 100_000, false);
        let _ = file.collapse_range(0, 4096);
        let _ = file.insert_range(0, 4096);
        let _ = file.set_len(5000);
        let _ = file.sync_all();
    }
    drop(node);
    let root = volume.root()?;
    let _ = volume.rename(at, "/moved");
    let _ = root.rename(b"moved", &root, b"again", RenameMode::Replace);
    volume.remove_file("/again")
}

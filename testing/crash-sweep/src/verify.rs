//! Checks one state that a crash left: it is recovered, compared, used, closed and checked; by this
//! project, and for a sample of the states by e2fsck and the kernel.

use std::sync::Arc;

use parext4::device::AlignedBuf;
use parext4::{DirectFile, MemDevice, OpenOptions, Volume};
use testkit::ops::found::USED;
use testkit::ops::tree::Kind;
use testkit::ops::{Tree, read_tree};
use testkit::volume::{e2fsck, recovered_by_e2fsck};
use testkit::{Image, volume};

use crate::kind::{open, options};

/// What else recovers a state, or has recovered it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peers {
    /// e2fsck, on a copy. It also checks the volume that this project recovered, used and closed.
    pub e2fsck: bool,
    /// The kernel, on a copy.
    pub kernel: bool,
}

/// Bytes past the end of a file that must read as zeros when the file grows over them.
const PAST_THE_END: usize = 4096;

/// Recovers a state and checks it. Returns the tree that it has, and the peers that have recovered
/// it and found the same tree. A peer that is not installed, or that is known not to recover such a
/// state, is not one of them.
///
/// # Errors
/// What is wrong.
///
/// # Panics
/// If a peer finds errors.
pub fn verify(
    image: MemDevice,
    peers: Peers,
    expect: impl FnOnce(&Tree) -> Result<(), String>,
) -> Result<(Tree, Peers), String> {
    let crashed = image.fork();
    let image = Arc::new(image);
    let volume = open(&image).map_err(|e| format!("the volume does not open: {e}"))?;
    let tree = read_tree(&volume, "")?;
    expect(&tree)?;
    use_volume(&volume, &tree).map_err(|e| format!("after recovery, {e}"))?;
    volume.close().map_err(|e| format!("the volume does not close: {e}"))?;
    has_no_findings(&image, "recovered, used and closed")?;
    let peers = Peers {
        e2fsck: peers.e2fsck && compare_with_e2fsck(&tree, &crashed, &image)?,
        kernel: peers.kernel && compare_with_kernel(&tree, &crashed, &image)?,
    };
    Ok((tree, peers))
}

/// Returns true if e2fsck has recovered `crashed`. It also checks what this project made of it,
/// `used`.
fn compare_with_e2fsck(tree: &Tree, crashed: &MemDevice, used: &MemDevice) -> Result<bool, String> {
    if let Some((status, text)) = e2fsck(used, "-fn")
        && status != Some(0)
    {
        return Err(format!("e2fsck -fn of the volume that was recovered, used and closed: {text}"));
    }
    let repaired = recovered_by_e2fsck(crashed, "the state after the crash");
    repaired.map_or(Ok(false), |repaired| compare(tree, repaired, "e2fsck").map(|()| true))
}

/// Returns true if the kernel has recovered `crashed`. If it does not mount it, it must not mount
/// what this project made of it, `used`.
fn compare_with_kernel(tree: &Tree, crashed: &MemDevice, used: &MemDevice) -> Result<bool, String> {
    let is_mounted = |image: &Image| image.with_kernel_options("", |_| ()).is_some();
    let copy = Image::of(crashed);
    if is_mounted(&copy) {
        return compare(tree, copy.load(), "the kernel").map(|()| true);
    }
    if is_mounted(&Image::of(used)) {
        return Err("the kernel does not mount it, but it mounts what parext4 recovered".to_owned());
    }
    Ok(false)
}

fn has_no_findings(device: &MemDevice, what: &str) -> Result<(), String> {
    let findings = volume::findings(device);
    if findings.is_empty() { Ok(()) } else { Err(format!("the volume, {what}: {}", findings.join("\n"))) }
}

fn compare(tree: &Tree, recovered: MemDevice, peer: &str) -> Result<(), String> {
    // A volume that still needs recovery does not open.
    let volume = Volume::open_device(Arc::new(recovered), &options().recover(false))
        .map_err(|e| format!("after {peer}: {e}"))?;
    let found = read_tree(&volume, "")?;
    tree.compare(&found).map_err(|e| format!("recovered by {peer}: {e}"))
}

/// Uses a volume: every file grows, and a file and a directory are made, synced and removed.
fn use_volume(volume: &Volume, tree: &Tree) -> Result<(), String> {
    let files = tree.names.iter().filter(|(_, entry)| matches!(entry.kind, Kind::File(_)));
    for (path, _) in files {
        grow(volume, path).map_err(|e| format!("{path}: {e}"))?;
    }
    make_used(volume).map_err(|e| format!("{USED}: {e}"))?;
    volume.sync().map_err(|e| e.to_string())?;
    volume.remove_file(USED).map_err(|e| format!("{USED}: {e}"))
}

/// Makes a file with data.
///
/// # Errors
/// The errors of the calls.
pub fn make_used(volume: &Volume) -> parext4::Result<()> {
    let file = volume.open_direct(USED, &OpenOptions::read_write().create(true))?;
    file.write_all_at(&AlignedBuf::from_slice(&[0xee; 3072]), 1024)?;
    file.sync_all()
}

/// Grows a file, and checks that it does not show old bytes.
fn grow(volume: &Volume, path: &str) -> Result<(), String> {
    let options = OpenOptions::read_write();
    let file: DirectFile = volume.open_direct(path, &options).map_err(|e| e.to_string())?;
    let size = file.size();
    file.set_len(size + PAST_THE_END as u64).map_err(|e| e.to_string())?;
    let start = size / 512 * 512;
    let mut bytes = vec![1; PAST_THE_END];
    file.read_at(&mut bytes, start).map_err(|e| e.to_string())?;
    let skipped = usize::try_from(size - start).expect("less than a sector");
    match bytes[skipped..].iter().find(|&&byte| byte != 0) {
        Some(byte) => Err(format!("{byte:#x} past the end")),
        None => Ok(()),
    }
}

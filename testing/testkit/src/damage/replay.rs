//! Replays a log in all ways, which must agree with each other, and with e2fsck.

use std::collections::BTreeSet;
use std::io::IoSliceMut;
use std::ops::Range;
use std::process::Command;
use std::sync::Arc;

use parext4::{Device, MemDevice, Volume, replay_in_memory, replay_journal};
use parext4_format::GroupNo;
use parext4_format::features::Compat;
use parext4_format::superblock::Superblock;

use super::Anatomy;
use crate::tool;
use crate::volume::untimed;

const SUPERBLOCK: usize = 1024;
/// Bytes of the superblock that say when and how much its writer wrote.
const WHEN: [Range<usize>; 3] = [
    SUPERBLOCK + 0x30..SUPERBLOCK + 0x34,   // s_wtime
    SUPERBLOCK + 0x178..SUPERBLOCK + 0x180, // s_kbytes_written
    SUPERBLOCK + 0x3fc..SUPERBLOCK + 0x400, // s_checksum, which covers them
];
/// A replay in memory keeps the flag `RECOVER` in s_feature_incompat.
const FLAG: Range<usize> = SUPERBLOCK + 0x60..SUPERBLOCK + 0x64;

/// Replays the log in memory, on the device, and by opening the volume, which is then changed.
///
/// # Panics
/// If a replay in memory and on the device differ. Their bytes are not compared if the volume may
/// have fast commits.
pub fn replay(image: &MemDevice, anatomy: &Anatomy) {
    let device = |copy: MemDevice| -> Arc<dyn Device> { Arc::new(copy) };
    let in_memory = replay_in_memory(device(image.fork()));
    let on_device = Arc::new(image.fork());
    let replayed = replay_journal(Arc::clone(&on_device) as Arc<dyn Device>);
    assert_eq!(in_memory.is_ok(), replayed.is_ok(), "{in_memory:?} {replayed:?}");
    // A replay of fast commits stores its time in inodes that it changes.
    if let Ok((view, _)) = in_memory
        && !anatomy.superblock.compat().contains(Compat::FAST_COMMIT)
    {
        assert_same(&contents(&*view), &contents(&*on_device), anatomy, &BTreeSet::new(), Some(FLAG));
    }
    let Ok(volume) = Volume::open_device(device(image.fork()), &untimed()) else { return };
    let _ = volume.write("/after", "the replay");
    let _ = volume.close();
}

/// Replays the log with e2fsck and on the device. Returns false if e2fsck is not installed.
///
/// # Panics
/// If one of them fails, or they differ.
pub fn replay_as_e2fsck(image: &MemDevice, anatomy: &Anatomy) -> bool {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    image.save(file.path()).expect("room for the image");
    let mut command = Command::new("e2fsck");
    let Some(output) = tool(command.args(["-y", "-E", "journal_only"]).arg(file.path())) else {
        return false;
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "e2fsck: {text}");
    let ours = Arc::new(image.fork());
    let replayed = replay_journal(Arc::clone(&ours) as Arc<dyn Device>);
    assert!(replayed.is_ok(), "{replayed:?}, but e2fsck says {text}");
    let theirs = std::fs::read(file.path()).expect("the image");
    let copies = descriptor_copies(&anatomy.superblock);
    assert_same(&theirs, &ours.snapshot(), anatomy, &copies, None);
    true
}

fn contents(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size()).expect("a small device")];
    device.read_at(0, &mut [IoSliceMut::new(&mut bytes)]).expect("a device without faults");
    bytes
}

/// Returns the blocks with copies of the descriptors of meta groups, which e2fsck writes whenever
/// it writes the superblock.
fn descriptor_copies(superblock: &Superblock) -> BTreeSet<u64> {
    let per_block = superblock.descs_per_block();
    let meta_groups = superblock.table_gdt_blocks()..superblock.gdt_blocks();
    let groups = meta_groups.flat_map(|nr| [nr * per_block + 1, (nr + 1) * per_block - 1]);
    let blocks = groups.map(|group| {
        let start = u64::from(group) * u64::from(superblock.blocks_per_group());
        u64::from(superblock.first_data_block()) + start + u64::from(superblock.has_backup(GroupNo(group)))
    });
    blocks.collect()
}

/// Asserts that two replayed volumes are equal, but for the blocks of the journal, for the time of
/// the replay in the superblock, for `other_blocks`, and for the bytes in `also`.
fn assert_same(
    left: &[u8],
    right: &[u8],
    anatomy: &Anatomy,
    other_blocks: &BTreeSet<u64>,
    also: Option<Range<usize>>,
) {
    assert_eq!(left.len(), right.len(), "the size");
    let block_size = anatomy.superblock.block_size() as usize;
    let except: BTreeSet<_> = anatomy.journal.iter().chain(other_blocks).copied().collect();
    let ignored: Vec<_> = WHEN.into_iter().chain(also).collect();
    for (nth, (left, right)) in left.chunks(block_size).zip(right.chunks(block_size)).enumerate() {
        if left != right && !except.contains(&(nth as u64)) {
            let mut at = (nth * block_size..).zip(left.iter().zip(right));
            let is_ignored = |at: &usize| ignored.iter().any(|range| range.contains(at));
            let different = at.find(|(at, (left, right))| left != right && !is_ignored(at));
            assert!(different.is_none(), "byte {different:x?} differs");
        }
    }
}

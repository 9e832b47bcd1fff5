//! Reads the inode tables in large requests, several groups at a time on several threads.

use parext4_format::InodeNo;
use parext4_format::group_desc::GroupFlags;
use parext4_format::inode::Inode;

use crate::problem::PR_1_ISCAN_ERROR;
use crate::volume::Volume;
use crate::work::in_parallel;

/// Bytes of an inode table that are read at a time.
const PIECE: usize = 1 << 20;

/// Calls `each` with every inode of every table that is not all zeros, and `end` after the last
/// inode of each group. Returns the states of the threads.
pub(crate) fn scan<S: Send>(
    volume: &Volume<'_>,
    threads: usize,
    state: impl Fn() -> S + Sync,
    each: impl Fn(&mut S, InodeNo, &[u8]) + Sync,
    end: impl Fn(&mut S, u32) + Sync,
) -> Vec<S> {
    let groups = volume.sb.group_count() as usize;
    let piece = (PIECE / volume.block_size).min(volume.sb.inode_table_blocks() as usize).max(1);
    let with_buffer = || (state(), volume.buffer(piece));
    let states = in_parallel(threads, groups, with_buffer, |(state, buf), group| {
        let group = u32::try_from(group).unwrap_or(u32::MAX);
        scan_group(volume, group, buf, |ino, bytes| each(state, ino, bytes));
        end(state, group);
    });
    states.into_iter().map(|(state, _)| state).collect()
}

fn scan_group(volume: &Volume<'_>, group: u32, buf: &mut [u8], mut each: impl FnMut(InodeNo, &[u8])) {
    let Some(Some(desc)) = volume.descs.get(group as usize) else { return };
    let per_group = volume.sb.inodes_per_group();
    let used = match volume.sb.has_group_checksums() {
        true if desc.flags.contains(GroupFlags::INODE_UNINIT) => 0,
        true => per_group.saturating_sub(desc.itable_unused),
        false => per_group,
    };
    let size = usize::from(volume.sb.inode_size());
    let mut ino = group * per_group + 1;
    let (mut block, mut left) = (desc.inode_table.get(), used as usize);
    while left > 0 {
        let here = left.min(buf.len() / size);
        let blocks = (here * size).div_ceil(volume.block_size);
        let bytes = &mut buf[..blocks * volume.block_size];
        if volume.read(block, bytes, "inode table", PR_1_ISCAN_ERROR) {
            for (index, bytes) in (0_u32..).zip(bytes.chunks_exact(size).take(here)) {
                if bytes.iter().any(|&byte| byte != 0) {
                    each(InodeNo(ino + index), bytes);
                }
            }
        }
        ino += here as u32;
        block += blocks as u64;
        left -= here;
    }
}

/// The inode of bad blocks, which has neither mode nor links (`EXT4_BAD_INO`).
pub(crate) const BAD_BLOCKS: u32 = 1;

/// Calls `each` with every inode in use, as far as it can be parsed.
pub(crate) fn for_each_inode(volume: &Volume<'_>, threads: usize, each: &(dyn Fn(InodeNo, &Inode) + Sync)) {
    let visit = |(): &mut (), ino: InodeNo, bytes: &[u8]| {
        if let Some(inode) = parse(volume, ino, bytes) {
            each(ino, &inode);
        }
    };
    scan(volume, threads, || (), visit, |(), _| ());
}

/// Parses an inode in use, whatever its checksum.
pub(crate) fn parse(volume: &Volume<'_>, ino: InodeNo, bytes: &[u8]) -> Option<Inode> {
    if ino.get() == BAD_BLOCKS {
        return bad_blocks(volume, bytes);
    }
    let inode = Inode::parse(bytes, &volume.lenient, ino).ok()?;
    (inode.links > 0 || volume.orphans.contains(&ino.get())).then_some(inode)
}

/// Parses the inode of bad blocks, if it lists any, as a file.
fn bad_blocks(volume: &Volume<'_>, bytes: &[u8]) -> Option<Inode> {
    const REGULAR: u16 = 0o100_000;
    let mut bytes = bytes.to_vec();
    bytes[..2].copy_from_slice(&REGULAR.to_le_bytes());
    let inode = Inode::parse(&bytes, &volume.lenient, InodeNo(BAD_BLOCKS)).ok()?;
    inode.block.iter().any(|&byte| byte != 0).then_some(inode)
}

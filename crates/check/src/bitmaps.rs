//! Compares bitmaps and counts with what is in use, as pass 5 of e2fsck.

use parext4_format::bitmap;
use parext4_format::group_desc::{GroupDesc, GroupFlags};
use parext4_format::inode::FileType;
use parext4_format::{FormatError, FsBlock, GroupNo};

use crate::problem::{
    PR_5_BLOCK_BITMAP_CSUM_INVALID, PR_5_BLOCK_BMAP_PADDING, PR_5_BLOCK_UNINIT, PR_5_BLOCK_UNUSED,
    PR_5_BLOCK_USED, PR_5_FREE_BLOCK_COUNT, PR_5_FREE_BLOCK_COUNT_GROUP, PR_5_FREE_DIR_COUNT_GROUP,
    PR_5_FREE_INODE_COUNT, PR_5_FREE_INODE_COUNT_GROUP, PR_5_INODE_BITMAP_CSUM_INVALID,
    PR_5_INODE_BMAP_PADDING, PR_5_INODE_UNINIT, PR_5_INODE_UNUSED, PR_5_INODE_USED, Problem,
};
use crate::volume::Volume;
use crate::work::in_parallel;

/// The largest number of runs of wrong bits that are reported of one bitmap.
const MOST_RUNS: usize = 16;

/// Free blocks (clusters) and inodes of several groups.
#[derive(Default)]
struct Free {
    clusters: u64,
    inodes: u64,
}

/// Checks all groups. Compares the counts in the superblock, where they are possible, only if the
/// volume was closed: they are stale in a volume that is in use.
pub(crate) fn check(volume: &Volume<'_>, threads: usize, was_closed: bool) {
    let groups = volume.sb.group_count() as usize;
    let state = || (Free::default(), volume.buffer(1));
    let sums = in_parallel(threads, groups, state, |(free, buf), group| {
        let group = u32::try_from(group).unwrap_or(u32::MAX);
        let Some(Some(desc)) = volume.descs.get(group as usize) else { return };
        free.clusters += u64::from(blocks(volume, group, desc, buf));
        free.inodes += u64::from(inodes(volume, group, desc, buf));
    });
    if volume.descs.iter().any(Option::is_none) {
        return;
    }
    let ratio = u64::from(volume.sb.blocks_per_group() / volume.sb.clusters_per_group());
    let free_blocks: u64 = sums.iter().map(|(free, _)| free.clusters * ratio).sum();
    let free_inodes: u64 = sums.iter().map(|(free, _)| free.inodes).sum();
    let (blocks, inodes) = (volume.sb.blocks_count(), volume.sb.inodes_count().into());
    for (field, stored, counted, most, problem) in [
        ("s_free_blocks_count", volume.sb.free_blocks(), free_blocks, blocks, PR_5_FREE_BLOCK_COUNT),
        ("s_free_inodes_count", volume.sb.free_inodes().into(), free_inodes, inodes, PR_5_FREE_INODE_COUNT),
    ] {
        if stored != counted && (was_closed || stored > most) {
            let problem_text = format_args!("{stored}, but {counted} are free");
            volume.report(FormatError::new("superblock", field, problem_text), problem);
        }
    }
}

/// A place in a group.
struct GroupReport<'a, 'v> {
    volume: &'a Volume<'v>,
    group: GroupNo,
    structure: &'static str,
}

impl GroupReport<'_, '_> {
    fn fail(&self, field: &'static str, problem: impl std::fmt::Display, e2fsck: Problem) {
        self.volume.report(FormatError::new(self.structure, field, problem).in_group(self.group), e2fsck);
    }

    fn count(&self, field: &'static str, stored: u32, counted: u32, problem: Problem) {
        if stored != counted {
            self.fail(field, format_args!("{stored}, but {counted} were counted"), problem);
        }
    }

    fn report(&self, error: FormatError, block: FsBlock, problem: Problem) {
        self.volume.report(error.in_group(self.group).in_block(block), problem);
    }
}

/// Checks the block bitmap and the free blocks of a group. Returns the number of clusters that are
/// free.
fn blocks(volume: &Volume<'_>, group: u32, desc: &GroupDesc, buf: &mut [u8]) -> u32 {
    let ratio = volume.sb.blocks_per_group() / volume.sb.clusters_per_group();
    let clusters = volume.group_blocks(group).div_ceil(ratio);
    let free = clusters.saturating_sub(volume.claims.count(group));
    let descriptor = GroupReport { volume, group: GroupNo(group), structure: "group descriptor" };
    descriptor.count("bg_free_blocks_count", desc.free_blocks, free, PR_5_FREE_BLOCK_COUNT_GROUP);
    let is_uninit = volume.sb.has_group_checksums() && desc.flags.contains(GroupFlags::BLOCK_UNINIT);
    if is_uninit {
        if let Some(block) = first_of_a_file(volume, group, clusters) {
            let problem = format_args!("uninitialised, but block {block} is in use");
            descriptor.fail("bg_flags", problem, PR_5_BLOCK_UNINIT);
        }
        return free;
    }
    if !volume.read(desc.block_bitmap.get(), buf, "block bitmap", PR_5_BLOCK_BITMAP_CSUM_INVALID) {
        return free;
    }
    let place = GroupReport { structure: "block bitmap", ..descriptor };
    if let Err(error) = bitmap::verify_block_bitmap(desc, buf, &volume.sb) {
        place.report(error, desc.block_bitmap, PR_5_BLOCK_BITMAP_CSUM_INVALID);
    }
    let limit = volume.sb.clusters_per_group();
    if bitmap::next_zero(buf, clusters, limit).is_some() || !ends_set(buf, limit) {
        place.fail("padding", "bits after the last block are clear", PR_5_BLOCK_BMAP_PADDING);
    }
    let first = u64::from(group) * u64::from(limit);
    compare(
        &place,
        buf,
        clusters,
        |index| volume.claims.word(group, index),
        |bits, is_set| {
            let (from, to) = (
                volume.claims.block_of(first + u64::from(bits.0)),
                volume.claims.block_of(first + u64::from(bits.1)),
            );
            let what = if is_set { "marked as used, but not in use" } else { "in use, but not marked" };
            let problem = if is_set { PR_5_BLOCK_UNUSED } else { PR_5_BLOCK_USED };
            place.fail("blocks", format_args!("{from}-{}: {what}", to - 1), problem);
        },
    );
    free
}

/// Returns the first block of the group that is in use and does not belong to the file system
/// itself.
fn first_of_a_file(volume: &Volume<'_>, group: u32, clusters: u32) -> Option<u64> {
    let first = u64::from(group) * u64::from(volume.sb.clusters_per_group());
    let words = (0..clusters.div_ceil(64) as usize).map(|index| (index, volume.claims.word(group, index)));
    let used = words.filter(|(_, word)| *word != 0).flat_map(|(index, word)| {
        (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| index as u64 * 64 + bit)
    });
    let mut blocks = used.map(|bit| volume.claims.block_of(first + bit));
    // With clusters, blocks of the file system itself may be anywhere in a cluster.
    let ratio = u64::from(volume.sb.blocks_per_group() / volume.sb.clusters_per_group());
    blocks.find(|&block| (block..block + ratio).all(|block| volume.system_at(block).is_none()))
}

/// Checks the inode bitmap and the counts of inodes. Returns the number of free inodes.
fn inodes(volume: &Volume<'_>, group: u32, desc: &GroupDesc, buf: &mut [u8]) -> u32 {
    let per_group = volume.sb.inodes_per_group();
    let states = volume.inodes_of(group);
    // A group may have fewer inodes than there are reserved ones.
    let reserved = (volume.sb.first_inode() - 1).saturating_sub(group * per_group);
    let is_used =
        |index: u32| index < reserved || states.get(index as usize).is_some_and(|state| state.kind != 0);
    let used = (0..per_group).filter(|&index| is_used(index)).count() as u32;
    let dirs = states.iter().filter(|state| state.kind == FileType::Directory.dirent_type()).count() as u32;
    let free = per_group - used;
    let descriptor = GroupReport { volume, group: GroupNo(group), structure: "group descriptor" };
    descriptor.count("bg_free_inodes_count", desc.free_inodes, free, PR_5_FREE_INODE_COUNT_GROUP);
    descriptor.count("bg_used_dirs_count", desc.used_dirs, dirs, PR_5_FREE_DIR_COUNT_GROUP);
    if volume.sb.has_group_checksums() && desc.flags.contains(GroupFlags::INODE_UNINIT) {
        if used > 0 {
            descriptor.fail("bg_flags", "uninitialised, but inodes are in use", PR_5_INODE_UNINIT);
        }
        return free;
    }
    if !volume.read(desc.inode_bitmap.get(), buf, "inode bitmap", PR_5_INODE_BITMAP_CSUM_INVALID) {
        return free;
    }
    let place = GroupReport { structure: "inode bitmap", ..descriptor };
    if let Err(error) = bitmap::verify_inode_bitmap(desc, buf, &volume.sb) {
        place.report(error, desc.inode_bitmap, PR_5_INODE_BITMAP_CSUM_INVALID);
    }
    if !ends_set(buf, per_group) {
        place.fail("padding", "bits after the last inode are clear", PR_5_INODE_BMAP_PADDING);
    }
    let word = |index: usize| {
        let first = index as u32 * 64;
        (0..64).filter(|bit| is_used(first + bit)).fold(0, |word, bit| word | 1 << bit)
    };
    let first = group * per_group + 1;
    compare(&place, buf, per_group, word, |bits, is_set| {
        let what = if is_set { "marked as used, but not in use" } else { "in use, but not marked" };
        let problem = if is_set { PR_5_INODE_UNUSED } else { PR_5_INODE_USED };
        place.fail("inodes", format_args!("{}-{}: {what}", first + bits.0, first + bits.1 - 1), problem);
    });
    free
}

/// Returns true if all bytes from bit `limit` to the end of the block are set.
fn ends_set(buf: &[u8], limit: u32) -> bool {
    buf.get((limit / 8) as usize..).is_none_or(|rest| rest.iter().all(|&byte| byte == 0xff))
}

/// Calls `wrong` with each run of bits `(start, end)` in which the bitmap differs from `used`, and
/// with the bits' value in the bitmap.
fn compare(
    place: &GroupReport<'_, '_>,
    buf: &[u8],
    bits: u32,
    used: impl Fn(usize) -> u64,
    wrong: impl Fn((u32, u32), bool),
) {
    let mut run: Option<(u32, u32, bool)> = None;
    let mut runs = 0;
    let mut end = |run: Option<(u32, u32, bool)>| {
        if let Some((start, end, is_set)) = run {
            runs += 1;
            if runs <= MOST_RUNS {
                wrong((start, end), is_set);
            }
        }
    };
    for (index, bytes) in buf.chunks_exact(8).take(bits.div_ceil(64) as usize).enumerate() {
        let stored = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let first = index as u32 * 64;
        let mask = if bits - first < 64 { (1 << (bits - first)) - 1 } else { u64::MAX };
        let mut different = (stored ^ used(index)) & mask;
        while different != 0 {
            let bit = different.trailing_zeros();
            different &= different - 1;
            let (at, is_set) = (first + bit, stored & (1 << bit) != 0);
            match &mut run {
                Some((_, end, value)) if *end == at && *value == is_set => *end += 1,
                run => end(run.replace((at, at + 1, is_set))),
            }
        }
    }
    end(run);
    if runs > MOST_RUNS {
        let more = runs - MOST_RUNS;
        place
            .volume
            .findings
            .note(format!("{}: {more} more runs of group {} are wrong", place.structure, place.group));
    }
}

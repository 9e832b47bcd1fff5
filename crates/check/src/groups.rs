//! Descriptors, backups of the superblock, and the blocks of the file system itself.

use std::collections::BTreeSet;

use parext4_format::features::{Compat, Incompat};
use parext4_format::group_desc::{GroupDesc, GroupFlags};
use parext4_format::superblock::Superblock;
use parext4_format::{FormatError, FsBlock, GroupNo};

use crate::problem::{
    PR_0_BB_NOT_GROUP, PR_0_GDT_CSUM, PR_0_GDT_ITABLE_UNUSED, PR_0_IB_NOT_GROUP, PR_0_ITABLE_NOT_GROUP,
    PR_0_SB_CORRUPT, PR_1_BB_CONFLICT, PR_5_FREE_BLOCK_COUNT_GROUP, PR_5_FREE_DIR_COUNT_GROUP,
    PR_5_FREE_INODE_COUNT_GROUP, Problem,
};
use crate::volume::Volume;

/// The largest number of groups without a usable descriptor. The superblock alone decides how many
/// groups there are, so memory for groups is limited by the descriptors that are found.
const MOST_UNUSABLE: usize = 1 << 16;

/// Reads all descriptors, and claims the blocks of the file system itself. Returns false if too
/// many descriptors are unusable.
pub(crate) fn check(volume: &mut Volume<'_>) -> bool {
    let Some(descs) = read_descriptors(volume) else {
        volume.findings.note(format!(
            "more than {MOST_UNUSABLE} group descriptors are unusable, so nothing else was checked"
        ));
        return false;
    };
    volume.set_descs(descs);
    let mut zones = Vec::new();
    for group in 0..volume.sb.group_count() {
        heads(volume, group, &mut zones);
        let Some(Some(desc)) = volume.descs.get(group as usize) else { continue };
        let table = u64::from(volume.sb.inode_table_blocks());
        zones.push((desc.block_bitmap.get(), 1, "block bitmap"));
        zones.push((desc.inode_bitmap.get(), 1, "inode bitmap"));
        zones.push((desc.inode_table.get(), table, "inode table"));
    }
    if volume.has(Incompat::MMP) {
        zones.push((volume.sb.raw().s_mmp_block.get(), 1, "mmp block"));
    }
    zones.sort_unstable();
    let mut end_before = 0;
    for (start, len, what) in zones {
        let end = start.saturating_add(len).min(volume.sb.blocks_count());
        if start >= end {
            continue;
        }
        if start < end_before {
            let error =
                FormatError::new(what, "block", "another structure of the file system has this block");
            volume.report(error.in_block(FsBlock(start)), PR_1_BB_CONFLICT);
        }
        let (first, last) = (volume.claims.cluster_of(start), volume.claims.cluster_of(end - 1));
        volume.claims.share(first, last - first + 1);
        end_before = end_before.max(end);
        match volume.system.last_mut() {
            Some(zone) if start < zone.1 => zone.1 = zone.1.max(end),
            Some(zone) if start == zone.1 && what == zone.2 => zone.1 = end,
            _ => volume.system.push((start, end, what)),
        }
    }
    leave_out_shared_tables(volume);
    true
}

/// Removes the descriptor of each group whose inode table overlaps the one of an earlier group, so
/// that no inode is visited twice. The check of the metadata blocks has reported the overlap.
fn leave_out_shared_tables(volume: &mut Volume<'_>) {
    let len = u64::from(volume.sb.inode_table_blocks());
    let mut starts = BTreeSet::new();
    for desc in &mut volume.descs {
        let Some(start) = desc.as_ref().map(|desc| desc.inode_table.get()) else { continue };
        if starts.range((start + 1).saturating_sub(len)..start + len).next().is_some() {
            *desc = None;
        } else {
            starts.insert(start);
        }
    }
}

/// Adds the superblock and the descriptors at the start of a group.
fn heads(volume: &Volume<'_>, group: u32, zones: &mut Vec<(u64, u64, &'static str)>) {
    let (sb, start) = (&volume.sb, volume.group_start(group));
    let has_superblock = sb.has_backup(GroupNo(group));
    let mut next = start;
    if has_superblock {
        zones.push((start, 1, "superblock"));
        next += 1;
    }
    // Group 0 of a volume with blocks of 1 KiB and clusters begins with the boot block.
    if group == 0 && start == 0 && volume.block_size == 1024 {
        zones.push((next, 1, "superblock"));
        next += 1;
    }
    let meta_from = if volume.has(Incompat::META_BG) { sb.raw().s_first_meta_bg.get() } else { u32::MAX };
    let (index, within) = (group / sb.descs_per_block(), group % sb.descs_per_block());
    if index >= meta_from {
        if within < 2 || within + 1 == sb.descs_per_block() {
            zones.push((next, 1, "group descriptors"));
        }
    } else if has_superblock {
        let table = u64::from(sb.gdt_blocks().min(meta_from));
        zones.push((next, table + u64::from(sb.reserved_gdt_blocks()), "group descriptors"));
    }
}

/// Returns all descriptors; `None` if more than [`MOST_UNUSABLE`] are unusable.
fn read_descriptors(volume: &Volume<'_>) -> Option<Vec<Option<GroupDesc>>> {
    let (sb, size) = (&volume.sb, usize::from(volume.sb.desc_size()));
    let mut buf = volume.buffer(1);
    let (mut descs, mut unusable) = (Vec::new(), 0);
    for index in 0..sb.gdt_blocks() {
        let block = volume.sb.gdt_block(index).get();
        let is_read = volume.read(block, &mut buf, "group descriptors", PR_0_SB_CORRUPT);
        for raw in buf.chunks_exact(size).take(sb.descs_per_block() as usize) {
            let group = GroupNo(u32::try_from(descs.len()).unwrap_or(u32::MAX));
            if group.get() >= sb.group_count() {
                break;
            }
            let desc = if is_read { descriptor(volume, raw, group) } else { None };
            unusable += usize::from(desc.is_none());
            if unusable > MOST_UNUSABLE {
                return None;
            }
            descs.push(desc);
        }
    }
    Some(descs)
}

/// Parses a descriptor. Returns it in spite of errors that do not concern the places of its blocks.
fn descriptor(volume: &Volume<'_>, raw: &[u8], group: GroupNo) -> Option<GroupDesc> {
    match GroupDesc::parse(raw, &volume.sb, group) {
        Ok(desc) => {
            let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
            if !volume.sb.has_group_checksums() && desc.flags.intersects(uninit) {
                let error =
                    FormatError::new("group descriptor", "bg_flags", "uninitialised without checksums");
                volume.report(error.in_group(group), PR_0_GDT_CSUM);
            }
            Some(desc)
        }
        Err(error) => {
            let problem = problem_of(error.field);
            volume.report(error, problem);
            let located = GroupDesc::parse_locations(raw, &volume.sb);
            located
                .map_err(|error| volume.report(error.clone().in_group(group), problem_of(error.field)))
                .ok()
        }
    }
}

fn problem_of(field: &str) -> Problem {
    match field {
        "bg_block_bitmap" => PR_0_BB_NOT_GROUP,
        "bg_inode_bitmap" => PR_0_IB_NOT_GROUP,
        "bg_inode_table" => PR_0_ITABLE_NOT_GROUP,
        "bg_free_blocks_count" => PR_5_FREE_BLOCK_COUNT_GROUP,
        "bg_free_inodes_count" => PR_5_FREE_INODE_COUNT_GROUP,
        "bg_used_dirs_count" => PR_5_FREE_DIR_COUNT_GROUP,
        "bg_itable_unused" => PR_0_GDT_ITABLE_UNUSED,
        _ => PR_0_GDT_CSUM,
    }
}

/// Compares the geometry in the backups of the superblock with the primary one. Other fields of a
/// backup may be old.
pub(crate) fn check_backups(volume: &Volume<'_>) {
    let mut buf = volume.buffer(1);
    for group in (1..volume.sb.group_count()).filter(|&group| volume.sb.has_backup(GroupNo(group))) {
        let start = volume.group_start(group);
        if !volume.read(start, &mut buf, "backup superblock", PR_0_SB_CORRUPT) {
            continue;
        }
        let place = |error: FormatError| error.in_block(FsBlock(start)).in_group(GroupNo(group));
        match Superblock::parse(&buf) {
            Ok(backup) => {
                if let Some(field) = differs(&volume.sb, &backup) {
                    let error =
                        FormatError::new("backup superblock", field, "differs from the primary superblock");
                    volume.report(place(error), None);
                }
            }
            Err(error) => {
                let problem = format!("{}: {}", error.field, error.problem);
                volume.report(place(FormatError::new("backup superblock", error.field, problem)), None);
            }
        }
    }
    if volume.sb.compat().contains(Compat::SPARSE_SUPER2) {
        volume
            .findings
            .note("feature sparse_super2: only the backups that the superblock lists were checked");
    }
}

/// Returns a field of the geometry that differs between the two.
fn differs(primary: &Superblock, backup: &Superblock) -> Option<&'static str> {
    let (a, b) = (primary.raw(), backup.raw());
    let fields = [
        ("s_blocks_count", primary.blocks_count() != backup.blocks_count()),
        ("s_inodes_count", a.s_inodes_count != b.s_inodes_count),
        ("s_log_block_size", a.s_log_block_size != b.s_log_block_size),
        ("s_first_data_block", a.s_first_data_block != b.s_first_data_block),
        ("s_blocks_per_group", a.s_blocks_per_group != b.s_blocks_per_group),
        ("s_inodes_per_group", a.s_inodes_per_group != b.s_inodes_per_group),
        ("s_inode_size", a.s_inode_size != b.s_inode_size),
        ("s_desc_size", primary.desc_size() != backup.desc_size()),
    ];
    fields.iter().find(|(_, differs)| *differs).map(|(field, _)| *field)
}

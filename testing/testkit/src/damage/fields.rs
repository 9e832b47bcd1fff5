//! Where the fields of each structure are. Every function returns offset and width in bytes.

use parext4_format::jbd2::TagFormat;

/// Fields of the superblock on which the geometry and the meaning of other structures depend.
pub const SUPERBLOCK: &[(usize, usize)] = &[
    (0x00, 4),  // s_inodes_count
    (0x04, 4),  // s_blocks_count_lo
    (0x08, 4),  // s_r_blocks_count_lo
    (0x14, 4),  // s_first_data_block
    (0x18, 4),  // s_log_block_size
    (0x1c, 4),  // s_log_cluster_size
    (0x20, 4),  // s_blocks_per_group
    (0x24, 4),  // s_clusters_per_group
    (0x28, 4),  // s_inodes_per_group
    (0x36, 2),  // s_max_mnt_count
    (0x44, 4),  // s_checkinterval
    (0x48, 4),  // s_creator_os
    (0x4c, 4),  // s_rev_level
    (0x54, 4),  // s_first_ino
    (0x58, 2),  // s_inode_size
    (0x5c, 4),  // s_feature_compat
    (0x60, 4),  // s_feature_incompat
    (0x64, 4),  // s_feature_ro_compat
    (0xce, 2),  // s_reserved_gdt_blocks
    (0xe8, 4),  // s_last_orphan
    (0xfc, 1),  // s_def_hash_version
    (0xfe, 2),  // s_desc_size
    (0x104, 4), // s_first_meta_bg
    (0x150, 4), // s_blocks_count_hi
    (0x15c, 2), // s_min_extra_isize
    (0x15e, 2), // s_want_extra_isize
    (0x160, 4), // s_flags
    (0x174, 1), // s_log_groups_per_flex
    (0x178, 8), // s_kbytes_written
    (0xd0, 4),  // s_journal_uuid
    (0xe0, 4),  // s_journal_inum
    (0xe4, 4),  // s_journal_dev
    (0x166, 2), // s_mmp_update_interval
    (0x168, 8), // s_mmp_block
    (0x24c, 4), // s_backup_bgs
    (0x250, 4), // s_backup_bgs
    (0x270, 4), // s_checksum_seed
    (0x27c, 2), // s_encoding
    (0x280, 4), // s_orphan_file_inum
    (0x0c, 4),  // s_free_blocks_count_lo
    (0x10, 4),  // s_free_inodes_count
    (0x3a, 2),  // s_state
    (0x3c, 2),  // s_errors
    (0x50, 2),  // s_def_resuid
    (0x68, 4),  // s_uuid
    (0xec, 4),  // s_hash_seed
    (0xfd, 1),  // s_jnl_backup_type
    (0x100, 4), // s_default_mount_opts
    (0x10c, 4), // s_jnl_blocks
    (0x164, 2), // s_raid_stride
    (0x170, 4), // s_raid_stripe_width
    (0x175, 1), // s_checksum_type
    (0x176, 1), // s_encryption_level
    (0x194, 4), // s_error_count
    (0x19c, 4), // s_first_error_ino
    (0x240, 4), // s_usr_quota_inum
    (0x244, 4), // s_grp_quota_inum
    (0x248, 4), // s_overhead_blocks
    (0x268, 4), // s_lpf_ino
    (0x26c, 4), // s_prj_quota_inum
    (0x27e, 2), // s_encoding_flags
];

/// Flags of the tags of descriptors (`t_flags`).
const SAME_UUID: u32 = 2;
const LAST_TAG: u32 = 8;
/// The type of the last tag of a fast commit.
pub const TAIL: u16 = 8;

type Fields = Vec<(usize, usize)>;

/// Returns `count` fields of one width, one after another.
fn row(at: usize, width: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).map(move |nth| (at + nth * width, width))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn half(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).map_or(0, |bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
}

/// Returns the fields of a group descriptor.
pub fn descriptor(len: usize) -> Fields {
    let low = row(0, 4, 3).chain(row(0xc, 2, 4)).chain(row(0x18, 2, 3));
    low.chain(row(0x20, 4, 3)).chain(row(0x2c, 2, 4)).filter(|(at, width)| at + width <= len).collect()
}

/// Returns the fields of an inode, with the root of its map and its attributes as numbers of
/// several widths.
pub fn inode(bytes: &[u8]) -> Fields {
    let base = [
        (0, 2),
        (2, 2),
        (4, 4),
        (8, 4),
        (0xc, 4),
        (0x10, 4),
        (0x14, 4),
        (0x18, 2),
        (0x1a, 2),
        (0x1c, 4),
        (0x20, 4),
    ];
    let base =
        base.into_iter().chain([(0x20, 4), (0x20, 4), (0x64, 4), (0x68, 4), (0x6c, 4), (0x74, 2), (0x76, 2)]);
    let root = row(0x28, 2, 6).chain(row(0x28, 4, 15));
    let extra = [(0x80, 2), (0x84, 4), (0x90, 4)].into_iter().filter(|_| bytes.len() > 128);
    let area = 0x80 + half(bytes, 0x80);
    // A magic number, and entries: lengths, the place of the value, its inode and size.
    let attributes = if word(bytes, area) == 0xea02_0000 { entries(bytes, area + 4) } else { Vec::new() };
    base.chain(root).chain(extra).chain(attributes).collect()
}

/// Returns the fields of a node of a tree of extents.
pub fn extents(bytes: &[u8]) -> Fields {
    let count = half(bytes, 2).min((bytes.len() - 12) / 12);
    let entries = (0..count)
        .flat_map(|nth| [(0, 4), (4, 2), (6, 2), (8, 4)].map(|(at, width)| (12 + 12 * nth + at, width)));
    row(0, 2, 4).chain(row(0, 2, 4)).chain(entries).collect()
}

/// Returns the pointers of an indirect block: the ones in use, and the first.
pub fn pointers(bytes: &[u8]) -> Fields {
    row(0, 4, bytes.len() / 4).filter(|(at, _)| *at == 0 || word(bytes, *at) != 0).collect()
}

/// Returns the fields of the entries of a directory.
pub fn directory(bytes: &[u8]) -> Fields {
    let (mut at, mut fields) = (0, Vec::new());
    while at + 8 <= bytes.len() {
        fields.extend([(at, 4), (at + 4, 2), (at + 6, 1), (at + 7, 1)]);
        fields.extend((at + 9 <= bytes.len()).then_some((at + 8, 1)));
        match half(bytes, at + 4) {
            0..8 => break,
            len => at += len,
        }
    }
    fields
}

/// Returns the offset of the limit, the count and the entries in a block of a hash tree.
pub fn index_entries(bytes: &[u8]) -> usize {
    // A node begins with an entry that covers the block, a root with `.`.
    if half(bytes, 4) == 12 { 0x20 } else { 8 }
}

/// Returns the fields of a block of a hash tree.
pub fn index(bytes: &[u8]) -> Fields {
    let start = index_entries(bytes);
    let count = half(bytes, start + 2).min((bytes.len() - start) / 8);
    let head = [(0, 4), (4, 2), (6, 1), (0xc, 4), (0x10, 2), (0x1c, 1), (0x1d, 1), (0x1e, 1), (0x1f, 1)];
    let head = head.into_iter().filter(|(at, _)| *at < start);
    let limits = [(start, 2), (start + 2, 2), (start, 2), (start + 2, 2), (start + 4, 4)];
    head.chain(limits).chain(row(start + 8, 4, 2 * count.saturating_sub(1))).collect()
}

/// Returns the fields of a block of attributes.
pub fn attributes(bytes: &[u8]) -> Fields {
    row(0, 4, 5).chain(entries(bytes, 0x20)).collect()
}

/// Returns the fields of entries of attributes.
fn entries(bytes: &[u8], mut at: usize) -> Fields {
    let mut fields = Vec::new();
    while at + 16 <= bytes.len() && word(bytes, at) != 0 {
        fields.extend(
            [(0, 1), (1, 1), (2, 2), (4, 4), (8, 4), (0xc, 4)].map(|(field, width)| (at + field, width)),
        );
        at += 16 + usize::from(bytes[at]).next_multiple_of(4);
    }
    fields
}

/// Returns the slots of a block of the file of orphans.
pub fn orphans(bytes: &[u8]) -> Fields {
    row(0, 4, 16).chain(row(bytes.len() - 8, 4, 1)).collect()
}

/// Returns some words of a bitmap.
pub fn bitmap(bytes: &[u8]) -> Fields {
    row(0, 8, bytes.len() / 8).step_by(8).collect()
}

/// Returns the fields of the superblock of a journal.
pub fn journal_superblock() -> Fields {
    row(0, 4, 12).chain([(0x40, 4), (0x44, 4), (0x50, 1), (0x54, 4), (0x58, 4)]).collect()
}

/// Returns the fields of another block of a journal: its header, and its first tags or records.
pub fn journal_block() -> Fields {
    row(0, 4, 3).chain(row(0xc, 4, 30)).chain(row(0xc, 2, 60)).collect()
}

/// Returns the offset of each tag of a descriptor of the log, and the block of the volume that it
/// names.
pub fn tags(bytes: &[u8], format: TagFormat) -> Vec<(usize, u64)> {
    let wide = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let len = match (format.csum_v3, format.csum_v2, format.bit64) {
        (true, ..) => 16,
        (_, csum_v2, bit64) => 8 + if csum_v2 { 2 } else { 0 } + if bit64 { 4 } else { 0 },
    };
    let (mut at, mut tags) = (12, Vec::new());
    while at + len <= bytes.len() {
        let flags = if format.csum_v3 { wide(at + 4) } else { wide(at + 4) & 0xffff };
        let high = if format.bit64 { u64::from(wide(at + 8)) << 32 } else { 0 };
        tags.push((at, high | u64::from(wide(at))));
        if flags & LAST_TAG != 0 {
            break;
        }
        at += len + if flags & SAME_UUID == 0 { 16 } else { 0 };
    }
    tags
}

/// Returns the words of a block of a quota file, or of the metadata of fs-verity, that are not
/// zero, and the first of the block.
pub fn words(bytes: &[u8]) -> Fields {
    row(0, 4, bytes.len() / 4).filter(|(at, _)| *at < 32 || word(bytes, *at) != 0).collect()
}

/// Returns the offset, the type and the length of each tag of fast commits.
pub fn fast_commit_tags(bytes: &[u8]) -> Vec<(usize, u16, usize)> {
    let (mut at, mut tags) = (0, Vec::new());
    while at + 4 <= bytes.len() {
        let (kind, len) = (u16::from_le_bytes([bytes[at], bytes[at + 1]]), half(bytes, at + 2));
        if kind == 0 || kind > 9 || at + 4 + len > bytes.len() {
            break;
        }
        tags.push((at, kind, len));
        at = if kind == TAIL { after_tail(at, bytes) } else { at + 4 + len };
    }
    tags
}

/// Returns the offset after the tail at `tag`, which covers the rest of its block.
pub fn after_tail(tag: usize, bytes: &[u8]) -> usize {
    tag + 4 + half(bytes, tag + 2)
}

/// Returns the fields of fast commits: types, lengths, and the first numbers of values.
pub fn fast_commits(bytes: &[u8]) -> Fields {
    let of_tag = |(at, _, len): (usize, u16, usize)| {
        [(at, 2), (at + 2, 2)].into_iter().chain(row(at + 4, 4, (len / 4).min(8)))
    };
    fast_commit_tags(bytes).into_iter().flat_map(of_tag).collect()
}

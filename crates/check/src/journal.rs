//! The journal's superblock, and the lists of inodes that the next mount deletes or truncates.

use std::collections::HashSet;

use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::jbd2::JournalSuperblock;
use parext4_format::{FormatError, FsBlock, InodeNo, orphan_file};

use crate::found::Found;
use crate::map::{self, Run, Sink};
use crate::problem::{
    PR_0_CANT_FIND_JOURNAL, PR_0_CLEAR_V2_JOURNAL, PR_0_JOURNAL_BAD_INODE, PR_0_JOURNAL_BAD_SUPER,
    PR_0_JOURNAL_HAS_JOURNAL, PR_0_JOURNAL_RECOVER_SET, PR_0_JOURNAL_RECOVERY_CLEAR,
    PR_0_ORPHAN_ILLEGAL_HEAD_INODE, PR_0_ORPHAN_ILLEGAL_INODE, PR_1_ORPHAN_LIST_REFUGEES,
    PR_6_ORPHAN_BLOCK_DIRTY, PR_6_ORPHAN_FILE_CORRUPTED, Problem,
};
use crate::scan;
use crate::volume::Volume;

/// Checks the journal that the pass over the inodes has found.
pub(crate) fn check(volume: &Volume<'_>, found: &Found) {
    if !volume.sb.compat().contains(Compat::HAS_JOURNAL) {
        return check_without_journal(volume);
    }
    let raw = volume.sb.raw();
    let is_elsewhere = raw.s_journal_dev.get() != 0 || raw.s_journal_uuid != [0; 16];
    if volume.sb.journal_inode() == 0 && is_elsewhere {
        return volume.findings.note("the journal is on another device, and was not checked");
    }
    let Some((block, blocks)) = found.journal else {
        let error = FormatError::new("journal", "inode", "is not a file with blocks");
        return volume.report(error.of_inode(InodeNo(volume.sb.journal_inode())), PR_0_JOURNAL_BAD_INODE);
    };
    let mut buf = volume.buffer(1);
    if !volume.read(block, &mut buf, "journal superblock", PR_0_JOURNAL_BAD_SUPER) {
        return;
    }
    let parsed = JournalSuperblock::parse(&buf).and_then(|superblock| {
        superblock.check(volume.sb.block_size(), blocks)?;
        Ok(superblock)
    });
    match parsed {
        Err(error) => volume.report(error.in_block(FsBlock(block)), PR_0_JOURNAL_BAD_SUPER),
        Ok(superblock) if superblock.start() != 0 && !volume.has(Incompat::RECOVER) => {
            let problem = format_args!("{}, but the volume needs no recovery", superblock.start());
            let error = FormatError::new("journal superblock", "s_start", problem).in_block(FsBlock(block));
            volume.report(error, PR_0_JOURNAL_RECOVERY_CLEAR);
        }
        Ok(_) => {}
    }
    // A journal in the volume has one user, and a journal on a device of its own is named by
    // `s_journal_uuid`.
    let users = buf.get(USERS..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_be_bytes(*word));
    if users > 1 && !is_elsewhere {
        let error = FormatError::new(
            "journal superblock",
            "s_nr_users",
            format_args!("{users} users of a journal in the volume"),
        );
        volume.report(error.in_block(FsBlock(block)), PR_0_CLEAR_V2_JOURNAL);
    }
}

/// Offset of `s_nr_users` in the superblock of a journal.
const USERS: usize = 64;

/// Checks that no field of the superblock leads to a journal that the volume does not have.
fn check_without_journal(volume: &Volume<'_>) {
    let fail = |field, problem: &str, e2fsck: Problem| {
        volume.report(FormatError::new("superblock", field, problem), e2fsck);
    };
    if volume.sb.raw().s_journal_inum.get() != 0 {
        fail("s_journal_inum", "is not 0 without has_journal", PR_0_JOURNAL_HAS_JOURNAL);
    } else if volume.sb.raw().s_journal_uuid != [0; 16] {
        fail("s_journal_uuid", "is not 0 without has_journal", PR_0_CANT_FIND_JOURNAL);
    }
    if volume.has(Incompat::RECOVER) {
        fail("s_feature_incompat", "needs_recovery without has_journal", PR_0_JOURNAL_RECOVER_SET);
    }
}

/// Returns the inodes of the orphan list and of the orphan file.
pub(crate) fn orphans(volume: &Volume<'_>) -> HashSet<u32> {
    let mut orphans = HashSet::new();
    list(volume, &mut orphans);
    file(volume, &mut orphans);
    if !orphans.is_empty() {
        let count = orphans.len();
        volume.findings.note(format!("{count} orphans, which the next mount deletes or truncates"));
    }
    orphans
}

/// Reports that inodes look like parts of a list of orphans.
pub(crate) fn refugees(volume: &Volume<'_>, found: &Found) {
    if found.refugees > 0 {
        let problem = format_args!("{} inodes look like parts of a damaged list of orphans", found.refugees);
        volume.report(FormatError::new("orphan list", "i_dtime", problem), PR_1_ORPHAN_LIST_REFUGEES);
    }
}

/// Walks the list that begins in the superblock. `i_dtime` of an orphan is the next one.
fn list(volume: &Volume<'_>, orphans: &mut HashSet<u32>) {
    /// Offset of `i_dtime`.
    const DTIME: usize = 20;
    let mut buf = volume.buffer(1);
    let (mut next, mut problem) = (volume.sb.last_orphan(), PR_0_ORPHAN_ILLEGAL_HEAD_INODE);
    while next != 0 {
        let is_possible = (volume.sb.first_inode()..=volume.sb.inodes_count()).contains(&next);
        if !is_possible || !orphans.insert(next) {
            let error = FormatError::new("orphan list", "i_dtime", format_args!("{next} cannot follow"));
            return volume.report(error, problem);
        }
        let Some(bytes) = volume.inode_bytes(next, &mut buf) else { return };
        next = bytes.get(DTIME..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word));
        problem = PR_0_ORPHAN_ILLEGAL_INODE;
    }
}

fn file(volume: &Volume<'_>, orphans: &mut HashSet<u32>) {
    if !volume.sb.compat().contains(Compat::ORPHAN_FILE) {
        return;
    }
    let ino = InodeNo(volume.sb.orphan_file_inode());
    let mut buf = volume.buffer(1);
    let bytes = volume.inode_bytes(ino.get(), &mut buf);
    let Some(inode) = bytes.and_then(|bytes| scan::parse(volume, ino, &bytes)) else {
        let error = FormatError::new("superblock", "s_orphan_file_inum", format_args!("{ino} is not in use"));
        return volume.report(error, PR_0_ORPHAN_ILLEGAL_INODE);
    };
    let fail = |field, problem: String, e2fsck| {
        volume.report(FormatError::new("orphan file", field, problem).of_inode(ino), e2fsck);
    };
    let seed = volume.seed.map(|seed| seed.inode(ino, inode.generation));
    let mut blocks = Blocks { blocks: Vec::new(), nodes: HashSet::new() };
    map::walk(volume, ino, &inode, &mut blocks);
    let needed = inode.size.div_ceil(volume.block_size as u64);
    if !inode.size.is_multiple_of(volume.block_size as u64)
        || needed.min(MOST_BLOCKS) != blocks.blocks.len() as u64
    {
        let problem = format!("{} bytes, but {} blocks", inode.size, blocks.blocks.len());
        fail("i_size", problem, PR_6_ORPHAN_FILE_CORRUPTED);
    }
    let may_have_orphans = volume.sb.ro_compat().contains(RoCompat::ORPHAN_PRESENT);
    for block in blocks.blocks {
        if !volume.read(block, &mut buf, "orphan file block", PR_0_ORPHAN_ILLEGAL_INODE) {
            continue;
        }
        match orphan_file::parse_block(&buf, seed, FsBlock(block)) {
            Ok(slots) => {
                let before = orphans.len();
                orphans.extend(slots.iter().map(|ino| ino.get()).filter(|&ino| ino != 0));
                if orphans.len() > before && !may_have_orphans {
                    let problem =
                        format!("block {block} has orphans, but the feature orphan_present is missing");
                    fail("slot", problem, PR_6_ORPHAN_BLOCK_DIRTY);
                }
            }
            Err(error) => volume.report(error.of_inode(ino), PR_6_ORPHAN_BLOCK_DIRTY),
        }
    }
}

/// Collects the blocks of the orphan file.
struct Blocks {
    blocks: Vec<u64>,
    /// Nodes that the walk has read. It reads each node once.
    nodes: HashSet<u64>,
}

/// The kernel limits the orphan file to 512 blocks.
const MOST_BLOCKS: u64 = 512;

impl Sink for Blocks {
    fn node(&mut self, block: u64) -> bool {
        self.nodes.insert(block)
    }

    fn data(&mut self, run: Run) {
        let left = MOST_BLOCKS.saturating_sub(self.blocks.len() as u64);
        self.blocks.extend(run.physical..run.physical + run.len.min(left));
    }

    /// Does nothing: the pass over the inodes reports the error.
    fn wrong(&mut self, _: FormatError, _: Problem) {}
}

//! The pass over all inodes, as pass 1 of e2fsck.

use std::collections::HashMap;
use std::sync::Arc;

use parext4_format::{FormatError, FsBlock, InodeNo};

use crate::claims::Claims;
use crate::found::Found;
use crate::inode;
use crate::problem::PR_1_EXTATTR_REFCOUNT;
use crate::scan::scan;
use crate::values::Values;
use crate::volume::{InodeState, Volume};

/// Checks all inodes. Returns what the later passes need.
pub(crate) fn check(volume: &Volume<'_>, threads: usize) -> Found {
    let values = Arc::new(Values::read(volume, threads));
    let checked = Arc::new(Claims::new(&volume.sb, volume.descs.len()));
    let per_group = volume.sb.inodes_per_group();
    let each = |found: &mut Found, ino: InodeNo, bytes: &[u8]| {
        let state = inode::check(volume, found, ino, bytes);
        if state.kind != 0 {
            let index = ((ino.get() - 1) % per_group) as usize;
            if found.states.len() <= index {
                found.states.resize_with(index + 1, InodeState::default);
            }
            found.states[index] = state;
        }
    };
    let end = |found: &mut Found, group| {
        volume.set_inodes(group, std::mem::take(&mut found.states));
        if let Some(usage) = &volume.usage {
            usage.add(&mut found.counts);
        }
    };
    let all = scan(volume, threads, || Found::new(Arc::clone(&values), Arc::clone(&checked)), each, end);
    let mut found = Found::new(values, checked);
    all.into_iter().for_each(|one| found.merge(one));
    found.values.check_references(volume);
    attribute_references(volume, &mut found);
    found
}

/// Compares the number of references of each attribute block with the one in its header.
fn attribute_references(volume: &Volume<'_>, found: &mut Found) {
    for (block, stored) in std::mem::take(&mut found.stored_refcounts) {
        let count = found.attribute_blocks.get(&block).copied().unwrap_or(0);
        if stored != count {
            let problem = format_args!("{stored}, but {count} inodes use it");
            let error = FormatError::new("xattr block", "h_refcount", problem).in_block(FsBlock(block));
            volume.report(error, PR_1_EXTATTR_REFCOUNT);
        }
    }
    found.attribute_blocks = HashMap::new();
}

//! Connects directories to the root, and compares link counts with names, as passes 3 and 4 of
//! e2fsck.

use std::sync::atomic::Ordering;

use parext4_format::features::RoCompat;
use parext4_format::inode::FileType;
use parext4_format::{FormatError, InodeNo};

use crate::dirs::Tree;
use crate::problem::{
    PR_3_BAD_DOT_DOT, PR_3_NO_ROOT_INODE, PR_3_UNCONNECTED_DIR, PR_4_BAD_REF_COUNT, PR_4_DIR_NLINK_FEATURE,
    PR_4_UNATTACHED_INODE, Problem,
};
use crate::volume::{InodeState, Volume};
use crate::work::in_parallel;

/// The largest link count (`EXT2_LINK_MAX`); a directory with more has the count 1.
const MOST_LINKS: u32 = 65000;

/// Checks the parents of all directories.
pub(crate) fn check_parents(volume: &Volume<'_>, tree: &Tree) {
    let report = |ino: InodeNo, field, problem: String, e2fsck: Problem| {
        volume.report(FormatError::new("directory", field, problem).of_inode(ino), e2fsck);
    };
    let Some(root) = tree.index_of(InodeNo::ROOT) else {
        return report(InodeNo::ROOT, "root", "there is no root directory".to_owned(), PR_3_NO_ROOT_INODE);
    };
    let parent_of = |index: usize| {
        let parent = tree.named_in[index].load(Ordering::Relaxed);
        tree.index_of(InodeNo(parent))
    };
    let mut state = vec![Reach::Unknown; tree.inodes().len()];
    state[root] = Reach::Root;
    let mut path = Vec::new();
    for (index, &ino) in tree.inodes().iter().enumerate() {
        let parent =
            if index == root { InodeNo::ROOT.get() } else { tree.named_in[index].load(Ordering::Relaxed) };
        let dotdot = tree.dotdot[index].load(Ordering::Relaxed);
        if parent != 0 && parent != dotdot {
            let problem = format!("is inode {dotdot}, but inode {parent} names it");
            report(ino, "dotdot", problem, PR_3_BAD_DOT_DOT);
        }
        // Walks up to a directory whose reach is known, or that has no parent, or that this walk
        // has visited.
        let mut at = Some(index);
        let reach = loop {
            match at {
                Some(here) if state[here] == Reach::Unknown => {
                    state[here] = Reach::OnPath;
                    path.push(here);
                    at = parent_of(here);
                }
                Some(here) if state[here] == Reach::Root => break Reach::Root,
                _ => break Reach::Nowhere,
            }
        };
        // One report for each directory without a name, and for each loop.
        if reach == Reach::Nowhere
            && let Some(&top) = path.last()
            && at.is_none_or(|at| state[at] == Reach::OnPath)
        {
            let ino = tree.inodes()[top];
            let is_hidden = volume.inode(ino).is_some_and(|state| state.marks.is_hidden());
            let problem = if at.is_none() { "no directory names it" } else { "is in a loop of directories" };
            if !is_hidden {
                report(ino, "parent", problem.to_owned(), PR_3_UNCONNECTED_DIR);
            }
        }
        path.drain(..).for_each(|index| state[index] = reach);
    }
}

/// The end of the chain of parents of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Unknown,
    OnPath,
    Root,
    Nowhere,
}

/// Compares the link count of each inode with the names found.
pub(crate) fn check_links(volume: &Volume<'_>, threads: usize) {
    in_parallel(
        threads,
        volume.sb.group_count() as usize,
        || (),
        |(), group| {
            let group = u32::try_from(group).unwrap_or(u32::MAX);
            let first = group * volume.sb.inodes_per_group() + 1;
            for (index, state) in (0_u32..).zip(volume.inodes_of(group)) {
                if state.kind != 0 {
                    links(volume, InodeNo(first + index), state);
                }
            }
        },
    );
}

fn links(volume: &Volume<'_>, ino: InodeNo, state: &InodeState) {
    let (links, names) = (u32::from(state.links), state.names.load(Ordering::Relaxed));
    let fail = |problem: String, e2fsck: Problem| {
        volume.report(FormatError::new("inode", "i_links_count", problem).of_inode(ino), e2fsck);
    };
    if state.marks.is_hidden() {
        return;
    }
    let is_directory = state.kind == FileType::Directory.dirent_type();
    // A directory that no entry names was reported with its parent.
    if names == 0 && !is_directory {
        return fail("no directory names the inode".to_owned(), PR_4_UNATTACHED_INODE);
    }
    let has_too_many = is_directory && names > MOST_LINKS;
    if has_too_many && !volume.sb.ro_compat().contains(RoCompat::DIR_NLINK) {
        fail(format!("{names} names, but the feature dir_nlink is missing"), PR_4_DIR_NLINK_FEATURE);
    }
    let is_overflow = has_too_many && links == 1;
    if names != links && !is_overflow {
        fail(format!("{links}, but {names} names"), PR_4_BAD_REF_COUNT);
    }
}

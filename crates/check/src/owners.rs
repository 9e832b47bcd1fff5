//! Names the owners of blocks that are used twice, by a second walk over all files. The walk runs
//! only if there are such blocks.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use parext4_format::inode::Inode;
use parext4_format::{FormatError, FsBlock, InodeNo};

use crate::claims::{Claims, SharedNodes};
use crate::inode::has_map;
use crate::map::{self, Run, Sink};
use crate::problem::{PR_1B_DUP_BLOCK, PR_1D_SHARE_METADATA, Problem};
use crate::scan::for_each_inode;
use crate::volume::Volume;

/// The largest number of blocks used twice that are reported one by one.
const MOST: usize = 1000;

/// The largest number of references to blocks used twice that are noted. Hostile maps may have any
/// number of them.
const MOST_REFERENCES: u32 = 1_000_000;

/// The owners of each block that is used twice.
struct Owners {
    of: BTreeMap<u64, Vec<InodeNo>>,
    /// References that may still be noted.
    left: u32,
}

/// Reports each block that is used twice, with its owners.
pub(crate) fn check(volume: &Volume<'_>, threads: usize) {
    if !volume.claims.any_twice() {
        return;
    }
    let nodes = Nodes { once: Claims::new(&volume.sb, volume.descs.len()), again: SharedNodes::new() };
    let owners = Mutex::new(Owners { of: BTreeMap::new(), left: MOST_REFERENCES });
    for_each_inode(volume, threads, &|ino, inode| visit(volume, &nodes, &owners, ino, inode));
    for (block, inodes) in owners.into_inner().unwrap_or_else(PoisonError::into_inner).of {
        let files: Vec<String> = inodes.iter().map(ToString::to_string).collect();
        let files = files.join(", ");
        let (problem, text) = match volume.system_at(block) {
            Some(system) => (PR_1D_SHARE_METADATA, format!("belongs to the {system}, and to inode {files}")),
            None => (PR_1B_DUP_BLOCK, format!("is used several times, by inode {files}")),
        };
        volume.report(FormatError::new("block", "owner", text).in_block(FsBlock(block)), problem);
    }
}

fn visit(volume: &Volume<'_>, nodes: &Nodes, owners: &Mutex<Owners>, ino: InodeNo, inode: &Inode) {
    let mut finder = Finder { volume, nodes, owners, ino };
    if inode.file_acl != 0 && volume.has_blocks(inode.file_acl, 1) {
        finder.found(inode.file_acl, 1);
    }
    if has_map(inode) && ino != InodeNo::RESIZE {
        map::walk(volume, ino, inode, &mut finder);
    }
}

/// The nodes of maps that the walk has read.
struct Nodes {
    once: Claims,
    again: SharedNodes,
}

struct Finder<'a, 'v> {
    volume: &'a Volume<'v>,
    nodes: &'a Nodes,
    owners: &'a Mutex<Owners>,
    ino: InodeNo,
}

impl Finder<'_, '_> {
    /// Notes the inode as an owner of each block that is used twice, up to the limits.
    fn found(&self, start: u64, len: u64) {
        let claims = &self.volume.claims;
        let (mut at, end) = (claims.cluster_of(start), claims.cluster_of(start + len - 1) + 1);
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        while owners.left > 0
            && let Some(cluster) = claims.first_twice(at, end - at)
        {
            let block = claims.block_of(cluster);
            if owners.of.len() >= MOST && !owners.of.contains_key(&block) {
                return;
            }
            owners.left -= 1;
            let files = owners.of.entry(block).or_default();
            if files.len() < MOST && files.last() != Some(&self.ino) {
                files.push(self.ino);
            }
            at = cluster + 1;
        }
    }
}

impl Sink for Finder<'_, '_> {
    fn node(&mut self, block: u64) -> bool {
        self.found(block, 1);
        let once = &self.nodes.once;
        once.claim(once.cluster_of(block), 1) || self.nodes.again.may_read()
    }

    fn data(&mut self, run: Run) {
        self.found(run.physical, run.len);
    }

    /// Does nothing: the first walk has reported the error.
    fn wrong(&mut self, _: FormatError, _: Problem) {}
}

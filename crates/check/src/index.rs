//! The index tree of a directory: which of its blocks are nodes, and which hashes the names of each
//! leaf may have.

use std::collections::HashMap;

use parext4_format::hash::DirHash;
use parext4_format::htree::{self, DxEntry};
use parext4_format::inode::InodeFlags;
use parext4_format::{ChecksumSeed, FormatError, FsBlock, InodeNo};

use crate::found::DirRun;
use crate::problem::{
    PR_1_HTREE_BADROOT, PR_1_HTREE_HASHV, PR_2_HTREE_BAD_COUNT, PR_2_HTREE_BAD_DEPTH, PR_2_HTREE_BAD_LIMIT,
    PR_2_HTREE_BADBLK, PR_2_HTREE_DUPREF, PR_2_HTREE_HASH_ORDER, PR_2_HTREE_NODE_CSUM_INVALID,
    PR_2_HTREE_ROOT_CSUM_INVALID, PR_2_READ_DIRBLOCK, Problem,
};
use crate::volume::Volume;

/// The part that a block of a directory has in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A block of a directory without an index.
    Linear,
    /// A block to which no node refers.
    Unseen,
    InodeRef,
    /// A leaf whose names hash to `low` or more, and below `high`.
    Leaf {
        low: u32,
        high: Option<u32>,
    },
}

/// The index of one directory.
pub(crate) struct Index {
    /// The blocks that nodes refer to. A hostile map may have holes of any size, so the other
    /// blocks use no memory.
    roles: HashMap<u32, Role>,
    /// The number of blocks of the directory; 0 if the root is unusable.
    blocks: u32,
    /// The hash function of the directory; `None` if the hashes of names cannot be computed.
    pub hash: Option<DirHash>,
}

impl Index {
    /// Reads all nodes, and reports errors in them.
    pub(crate) fn read(
        volume: &Volume<'_>,
        dir: InodeNo,
        seed: Option<ChecksumSeed>,
        flags: InodeFlags,
        runs: &[DirRun],
        blocks: u32,
    ) -> Self {
        let mut reader = Reader { volume, dir, seed, runs, roles: HashMap::new(), blocks };
        let hash = reader.root(flags);
        Self { roles: reader.roles, blocks: reader.blocks, hash }
    }

    pub(crate) fn role(&self, logical: u32) -> Role {
        let other = if logical < self.blocks { Role::Unseen } else { Role::Linear };
        self.roles.get(&logical).copied().unwrap_or(other)
    }
}

struct Reader<'a, 'v> {
    volume: &'a Volume<'v>,
    dir: InodeNo,
    seed: Option<ChecksumSeed>,
    runs: &'a [DirRun],
    roles: HashMap<u32, Role>,
    blocks: u32,
}

impl Reader<'_, '_> {
    fn fail(&self, error: FormatError, block: u64, problem: Problem) {
        self.volume.report(error.of_inode(self.dir).in_block(FsBlock(block)), problem);
    }

    /// Reads the tree. If the root is unusable, all blocks count as linear.
    fn root(&mut self, flags: InodeFlags) -> Option<DirHash> {
        let Some((block, buf)) = self.node_block(0) else {
            self.blocks = 0;
            return None;
        };
        let root = match htree::parse_root(&buf, self.seed.is_some()) {
            Ok(root) => root,
            Err(error) => {
                let problem = problem_of(error.field).unwrap_or(PR_1_HTREE_BADROOT);
                self.fail(error, block, problem);
                self.blocks = 0;
                return None;
            }
        };
        self.verify(&buf, block, PR_2_HTREE_ROOT_CSUM_INVALID);
        self.roles.insert(0, Role::InodeRef);
        self.below(&root.entries, root.indirect_levels, 0, None);
        // Names of encrypted directories are hashed as they are stored.
        if flags.contains(InodeFlags::CASEFOLD) {
            return None;
        }
        let sb = &self.volume.sb;
        let hash = DirHash::from_disk(root.hash_version, sb.hash_is_unsigned(), sb.hash_seed());
        hash.map_err(|error| self.fail(error, block, PR_1_HTREE_HASHV)).ok()
    }

    /// Visits the blocks that `entries` refer to. The names in these blocks hash to `low` or more,
    /// and below `high`.
    fn below(&mut self, entries: &[DxEntry], levels: u8, low: u32, high: Option<u32>) {
        for (at, entry) in entries.iter().enumerate() {
            let logical = entry.block.get();
            let low = if at == 0 { low } else { entry.hash };
            let high = entries.get(at + 1).map(|next| next.hash).or(high);
            let fail = |problem: String, e2fsck| {
                let error = FormatError::new("directory index", "block", problem).of_inode(self.dir);
                self.volume.report(error, e2fsck);
            };
            if logical >= self.blocks {
                fail(format!("{logical}, but the directory has {} blocks", self.blocks), PR_2_HTREE_BADBLK);
                continue;
            }
            if logical == 0 {
                fail("0, the root".to_owned(), PR_2_HTREE_BADBLK);
                continue;
            }
            if self.roles.contains_key(&logical) {
                fail(format!("{logical} is referenced twice"), PR_2_HTREE_DUPREF);
                continue;
            }
            let role = if levels == 0 { Role::Leaf { low, high } } else { Role::InodeRef };
            self.roles.insert(logical, role);
            if levels > 0 {
                self.node(logical, levels - 1, low, high);
            }
        }
    }

    fn node(&mut self, logical: u32, levels: u8, low: u32, high: Option<u32>) {
        let Some((block, buf)) = self.node_block(logical) else { return };
        self.verify(&buf, block, PR_2_HTREE_NODE_CSUM_INVALID);
        match htree::parse_node(&buf, self.seed.is_some()) {
            Ok(entries) => {
                let outside = |hash: u32| hash & !1 < low & !1 || high.is_some_and(|high| hash > high);
                if let Some(entry) = entries.iter().skip(1).find(|entry| outside(entry.hash)) {
                    let problem = format_args!("{:#x} is not between the hashes of its parent", entry.hash);
                    self.fail(FormatError::new("dx_node", "hash", problem), block, PR_2_HTREE_HASH_ORDER);
                }
                self.below(&entries, levels, low, high);
            }
            Err(error) => {
                let problem = problem_of(error.field).unwrap_or(PR_2_HTREE_BADBLK);
                self.fail(error, block, problem);
            }
        }
    }

    fn verify(&self, buf: &[u8], block: u64, problem: Problem) {
        if let Some(seed) = self.seed
            && let Err(error) = htree::verify(seed, buf)
        {
            self.fail(error, block, problem);
        }
    }

    /// Reads a block of the directory. `None` if the directory has no such block.
    fn node_block(&self, logical: u32) -> Option<(u64, Vec<u8>)> {
        let at = self.runs.partition_point(|run| run.logical <= logical).checked_sub(1)?;
        let run = &self.runs[at];
        let within = logical - run.logical;
        let block = (within < run.len).then(|| run.physical + u64::from(within))?;
        let mut buf = self.volume.buffer(1);
        let is_read = self.volume.read(block, &mut buf, "directory block", PR_2_READ_DIRBLOCK);
        is_read.then(|| (block, buf.to_vec()))
    }
}

fn problem_of(field: &str) -> Option<Problem> {
    match field {
        "limit" => Some(PR_2_HTREE_BAD_LIMIT),
        "count" => Some(PR_2_HTREE_BAD_COUNT),
        "hash" => Some(PR_2_HTREE_HASH_ORDER),
        "indirect_levels" => Some(PR_2_HTREE_BAD_DEPTH),
        _ => None,
    }
}

//! Verifies blocks of files that fs-verity protects.
//!
//! A block is verified against the lowest level of the file's Merkle tree, whose block is verified
//! against the level above, up to the first one that is [kept](crate::verity), or to the root in
//! the descriptor. The tree and the descriptor lie past the end of the file, which never changes.
//! So reading them needs no range.

use std::fmt;

use parext4_device::BufferPool;
use parext4_format::verity::{self, HashAlgorithm, MerkleTree};

use crate::convert::to_usize;
use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;
use crate::verity::{Hash, VerifiedTree};

/// How fs-verity protects a file.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// // Only the kernel's ext4 and fsverity(1) protect files.
/// let node = volume.create_file("/file")?.inode_ref().clone();
/// assert!(node.verity()?.is_none());
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verity {
    /// The hash function.
    pub algorithm: HashAlgorithm,
    /// The digest of the file, which identifies its contents.
    pub digest: Vec<u8>,
    /// Size of the blocks of the Merkle tree, in bytes.
    pub block_size: u32,
    /// What each hash includes before its block.
    pub salt: Vec<u8>,
    /// The signature of the digest, which is not checked; empty if there is none.
    pub signature: Vec<u8>,
}

/// Prints the digest, as fsverity(1) does: `sha256:3d248c...`.
impl fmt::Display for Verity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.algorithm.name())?;
        self.digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl InodeRef {
    /// Returns how fs-verity protects the file, or `None` if it does not.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file has no valid descriptor; a failed read.
    pub fn verity(&self) -> Result<Option<Verity>> {
        let tree = self.merkle_tree()?.map(|tree| &tree.shape);
        Ok(tree.map(|shape| Verity {
            algorithm: shape.algorithm(),
            digest: shape.digest().to_vec(),
            block_size: u32::try_from(shape.block_size()).unwrap_or(u32::MAX),
            salt: shape.salt().to_vec(),
            signature: shape.signature().to_vec(),
        }))
    }

    /// Returns the Merkle tree of a file that fs-verity protects, which is read on first use;
    /// `None` for other inodes.
    ///
    /// # Errors
    /// Corruption of the descriptor; a failed read.
    pub(crate) fn merkle_tree(&self) -> Result<Option<&VerifiedTree>> {
        if !self.inode.has_verity() {
            return Ok(None);
        }
        if let Some(tree) = self.inode.merkle_tree() {
            return Ok(Some(tree));
        }
        // Two threads may read it at once. It never changes, so both read the same.
        let tree = self.read_descriptor().map_err(|error| error.of_inode(self.ino()));
        let tree = tree.map_err(|error| self.engine.health().note(self.ino(), error))?;
        Ok(Some(self.inode.set_merkle_tree(tree)))
    }

    /// Finds the descriptor as ext4 does: its size is in the last 4 bytes of the last mapped block,
    /// and it ends before them and begins with a block.
    fn read_descriptor(&self) -> Result<VerifiedTree> {
        let bad =
            |field, problem: &dyn fmt::Display| Error::corrupt_field("verity descriptor", field, problem);
        let (size, unit) = (self.inode.size(), self.engine.layout().block_size);
        let block_map = self.engine.block_map(&self.inode)?;
        if block_map.is_inline() || !block_map.has_unwritten() {
            return Err(bad("i_flags", &"a verity file without extents"));
        }
        let end = block_map.end()? << unit.bits();
        let offset = verity::tree_offset(size).filter(|offset| *offset < end);
        let offset = offset.ok_or_else(|| bad("i_size", &"no block after the file"))?;

        let block_size = u64::from(unit.bytes());
        let mut last = vec![0; unit.bytes() as usize];
        self.read_blocks(end - block_size, &mut last)?;
        let len = last.last_chunk().map_or(0, |len| u32::from_le_bytes(*len));
        let start = (end - 4).checked_sub(u64::from(len)).map(|start| start - start % block_size);
        let start = start.filter(|start| *start >= offset && len as usize <= verity::MAX_DESCRIPTOR);
        let start = start.ok_or_else(|| bad("size", &format_args!("{len} bytes")))?;
        let mut bytes = vec![0; to_usize(end - start)];
        self.read_blocks(start, &mut bytes)?;

        let shape = MerkleTree::parse(&bytes[..len as usize], size, unit.bits())?;
        if offset.checked_add(shape.len()).is_none_or(|end| end > start) {
            return Err(bad("data_size", &"the tree overlaps the descriptor"));
        }
        Ok(VerifiedTree::new(shape, offset))
    }

    /// Verifies data of the file that begins at `offset`, a multiple of the volume's block size.
    /// What follows the end of the file is not verified; the caller has zeroed it. Does nothing for
    /// a file that fs-verity does not protect.
    ///
    /// # Errors
    /// [`Error::Unverified`] for the first block that does not match; a failed read.
    pub(crate) fn verify(&self, offset: u64, data: &[u8]) -> Result<()> {
        let Some(tree) = self.merkle_tree()? else { return Ok(()) };
        let (size, unit) = (self.inode.size(), tree.shape.block_size());
        let first = offset / unit as u64;
        for (index, block) in (first..size.div_ceil(unit as u64)).zip(data.chunks(unit)) {
            let hash = tree.shape.hash(block);
            if self.hash_of(tree, 0, index)?[..] != *hash.as_ref() {
                return Err(self.unverified("the file", index));
            }
        }
        Ok(())
    }

    /// Returns the hash that block `index` must have: in level `level` of the tree, a block of the
    /// level below, or of the file.
    fn hash_of(&self, tree: &VerifiedTree, level: usize, index: u64) -> Result<Hash> {
        let Some(place) = tree.shape.place(level, index) else { return Ok(tree.shape.root().into()) };
        if let Some(hash) = tree.kept_hash(&place) {
            return Ok(hash);
        }
        let unit = self.engine.layout().block_size;
        let at = tree.offset + tree.shape.offset_of(place.block);
        let within = unit.offset_in_block(at) as usize;
        let mut bytes = BufferPool::global().take(unit.bytes() as usize);
        self.read_blocks(at - within as u64, &mut bytes)?;
        let block = &bytes[within..within + tree.shape.block_size()];
        if self.hash_of(tree, level + 1, place.index)?[..] != *tree.shape.hash(block).as_ref() {
            return Err(self.unverified("the Merkle tree", place.block));
        }
        self.inode.keep_tree_block(tree, place.block, block);
        Ok(block[place.bytes].into())
    }

    /// Returns the error of a block that does not match. It is logged once for each block, and not
    /// recorded in the superblock, because the volume is consistent.
    fn unverified(&self, what: &str, block: u64) -> Error {
        let error = Error::Unverified(format!("inode {}, block {block} of {what}", self.ino()));
        self.engine.health().log_once(error)
    }
}

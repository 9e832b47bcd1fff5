//! Processes the orphans of a volume when it is opened.

use std::collections::HashSet;

use parext4_format::features::Compat;
use parext4_format::{FileBlock, InodeNo, orphan_file};

use crate::engine::{Engine, OrphanFile, Use};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::mapping::State;
use crate::meta::{BlockKind, MetaBlock};
use crate::sync::Arc;

/// Limit of the blocks of an orphan file that are used (`EXT4_MAX_ORPHAN_FILE_BLOCKS`).
const MAX_FILE_BLOCKS: u32 = 512;

impl Use {
    /// Finishes deletions and truncations that the last user of the volume left incomplete: deletes orphans without a name,
    /// and truncates orphans with a name to their size.
    ///
    /// A damaged orphan does not keep the volume from being opened, as in the kernel (`ext4_orphan_cleanup`): the error is
    /// recorded, and the inode is left to e2fsck.
    ///
    /// # Errors
    /// A failed read; any error after which the volume stops.
    pub(crate) fn process_orphans(&self) -> Result<()> {
        for inode in self.load_orphans()? {
            let named = inode.core().links > 0;
            let finished = if named { self.finish_truncation(&inode) } else { self.delete_inode(&inode) };
            match finished {
                Err(error @ (Error::Corrupt(_) | Error::Unsupported(_))) => {
                    self.health.check()?;
                    tracing::warn!("orphan inode {} stays as it is: {error}", inode.ino());
                }
                finished => finished?,
            }
        }
        self.health.check()
    }

    /// Reads the list of orphans and the orphan file. Returns the orphans.
    ///
    /// # Errors
    /// A failed read; any error after which the volume stops.
    pub(super) fn load_orphans(&self) -> Result<Vec<Arc<Inode>>> {
        let mut inodes = self.read_list()?;
        inodes.extend(self.read_file()?);
        Ok(inodes)
    }
}

impl Engine {
    /// Returns the inodes on the list, up to the first that cannot be on it. Drops the rest, because the link to the next
    /// inode cannot be trusted.
    fn read_list(&self) -> Result<Vec<Arc<Inode>>> {
        let mut list = Vec::new();
        let mut seen = HashSet::new();
        let head = self.superblock.last_orphan();
        let mut next = head;
        while next != 0 {
            let inode = if seen.insert(InodeNo(next)) {
                self.orphan(InodeNo(next))?
            } else {
                self.bad_orphan(InodeNo(next), "appears twice")
            };
            let Some(inode) = inode else { break };
            next = inode.core().dtime;
            list.push(inode);
        }
        if head != 0 && list.is_empty() {
            self.transact(1, |handle| {
                self.counts().set_last_orphan(handle, 0);
                Ok(())
            })?;
        }
        self.orphans.set_list(&list);
        Ok(list)
    }

    /// Returns an orphan's inode; `None` if no inode in use has this number, or the inode is damaged.
    fn orphan(&self, ino: InodeNo) -> Result<Option<Arc<Inode>>> {
        let own = ino == InodeNo::ROOT || self.superblock.is_own_inode(ino);
        if own || ino.get() > self.layout.inodes_count {
            return Ok(self.bad_orphan(ino, "is no inode of a file"));
        }
        let found = self.allocator.inode_in_use(ino).and_then(|is_used| match is_used {
            true => self.inode(ino).map(Some),
            false => Ok(self.bad_orphan(ino, "is not in use")),
        });
        match found {
            Err(error @ Error::Corrupt(_)) => {
                self.health.note(ino, error);
                Ok(None)
            }
            found => found,
        }
    }

    #[track_caller]
    fn bad_orphan<T>(&self, ino: InodeNo, what: &str) -> Option<T> {
        self.health.note(ino, Error::corrupt(format_args!("orphan inode {ino} {what}")));
        None
    }

    fn read_file(&self) -> Result<Vec<Arc<Inode>>> {
        if !self.superblock.compat().contains(Compat::ORPHAN_FILE) {
            return Ok(Vec::new());
        }
        let file_inode = self.inode(InodeNo(self.superblock.orphan_file_inode()))?;
        let block_size = u64::from(self.layout.block_size.bytes());
        let blocks = (file_inode.size() / block_size).min(u64::from(MAX_FILE_BLOCKS));
        let slots_per_block = orphan_file::slots_per_block(self.layout.block_size.bytes() as usize);
        let mut file = OrphanFile::new(slots_per_block);
        let (mut inodes, mut bad) = (Vec::new(), Vec::new());
        for index in 0..u32::try_from(blocks).unwrap_or(0) {
            let block = self.orphan_block(&file_inode, FileBlock(index))?;
            let slots = orphan_file::parse_block(&block.snapshot(), file_inode.seed(), block.number())?;
            for (slot, ino) in slots.into_iter().enumerate() {
                let slot = index as usize * slots_per_block + slot;
                if ino.get() == 0 {
                    file.free.push(slot);
                    continue;
                }
                let inode = if self.orphans.is_listed(ino) || file.used.contains_key(&ino) {
                    self.bad_orphan(ino, "appears twice")
                } else {
                    self.orphan(ino)?
                };
                match inode {
                    Some(inode) => {
                        file.used.insert(ino, slot);
                        inodes.push(inode);
                    }
                    None => bad.push(slot),
                }
            }
            file.blocks.push(block);
        }
        for slot in bad {
            self.transact(1, |handle| {
                file.set(handle, slot, InodeNo(0));
                Ok(())
            })?;
            file.free.push(slot);
        }
        // Free slots are popped from the end, so this reuses the lowest slot first.
        file.free.reverse();
        self.orphans.set_file(file);
        Ok(inodes)
    }

    fn orphan_block(&self, file: &Inode, index: FileBlock) -> Result<Arc<MetaBlock>> {
        match self.body(file)?.state_of(index)? {
            State::Written(block) => self.cache.read(block, BlockKind::OrphanFile(file.seed())),
            _ => Err(Error::corrupt(format_args!("orphan file: block {index} is not written"))),
        }
    }
}

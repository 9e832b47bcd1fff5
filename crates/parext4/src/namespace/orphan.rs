//! Orphans: inodes that lost their last name while in use, or whose truncation takes several transactions.
//! Whoever opens the volume after a crash finishes what was begun.
//!
//! They are kept in the orphan file if the volume has one and it has room, else in the list that runs from
//! the superblock through the inodes' `i_dtime`. Source: kernel documentation, "Orphan file".

use std::collections::{BTreeMap, HashMap, HashSet};

use parext4_format::features::Compat;
use parext4_format::{FileBlock, InodeNo, orphan_file};

use crate::error::{Error, Result};
use crate::extent_map::State as MapState;
use crate::inode::Inode;
use crate::journal::Handle;
use crate::meta::{BlockKind, MetaBlock};
use crate::sync::Rank;
use crate::sync::{Arc, Mutex};
use crate::volume::Inner;

/// The most blocks of an orphan file that are used (`EXT4_MAX_ORPHAN_FILE_BLOCKS`).
const MAX_FILE_BLOCKS: u32 = 512;

/// The orphans of an open volume.
#[derive(Debug)]
pub(crate) struct Orphans(Mutex<Orphaned>);

#[derive(Debug, Default)]
struct Orphaned {
    /// The list on the device, last to first, by numbers that grow: new ones go to its head.
    list: BTreeMap<u64, Arc<Inode>>,
    /// Which inodes the list has, with their numbers.
    listed: HashMap<InodeNo, u64>,
    file: Option<OrphanFile>,
}

#[derive(Debug)]
struct OrphanFile {
    blocks: Vec<Arc<MetaBlock>>,
    slots_per_block: usize,
    free: Vec<usize>,
    used: HashMap<InodeNo, usize>,
}

impl Orphans {
    /// Blocks that adding or removing one orphan registers: the superblock, the inode, its neighbour.
    pub(crate) const CREDITS: u32 = 3;

    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rank::Orphans, Orphaned::default()))
    }

    /// Adds an inode within the handle that makes it one. It may be one already: while a truncation goes on the
    /// last name can go, and the other way round.
    pub(crate) fn add(&self, volume: &Inner, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        let mut orphaned = self.0.lock();
        if orphaned.has(inode.ino()) {
            return Ok(());
        }
        if let Some(file) = &mut orphaned.file
            && let Some(slot) = file.free.pop()
        {
            file.set(handle, slot, inode.ino());
            file.used.insert(inode.ino(), slot);
            return Ok(());
        }
        let (number, head) =
            orphaned.list.last_key_value().map_or((0, 0), |(number, head)| (number + 1, head.ino().get()));
        inode.join(handle);
        inode.core().dtime = head;
        volume.counts().set_last_orphan(handle, inode.ino().get());
        orphaned.list.insert(number, Arc::clone(inode));
        orphaned.listed.insert(inode.ino(), number);
        Ok(())
    }

    /// Removes an inode, if it is one, within the handle that finishes with it.
    pub(crate) fn remove(&self, volume: &Inner, handle: &Handle<'_>, inode: &Arc<Inode>) {
        self.0.lock().remove(volume, handle, inode);
    }

    /// As [`remove`](Self::remove), but leaves an inode without a name, which is an orphan on that account.
    pub(crate) fn remove_named(&self, volume: &Inner, handle: &Handle<'_>, inode: &Arc<Inode>) {
        let mut orphaned = self.0.lock();
        // Whoever takes the last name away counts it before he adds the inode. So either that is seen here, or
        // the inode is added again.
        let links = inode.core().links;
        if links > 0 {
            orphaned.remove(volume, handle, inode);
        }
    }

    /// Whether the orphan file was read and holds nothing.
    pub(crate) fn file_is_empty(&self) -> bool {
        self.0.lock().file.as_ref().is_some_and(|file| file.used.is_empty())
    }
}

impl Orphaned {
    fn has(&self, ino: InodeNo) -> bool {
        self.listed.contains_key(&ino) || self.file.as_ref().is_some_and(|file| file.used.contains_key(&ino))
    }

    fn remove(&mut self, volume: &Inner, handle: &Handle<'_>, inode: &Arc<Inode>) {
        let ino = inode.ino();
        if let Some(file) = &mut self.file
            && let Some(slot) = file.used.remove(&ino)
        {
            file.set(handle, slot, InodeNo(0));
            file.free.push(slot);
        } else if let Some(number) = self.listed.remove(&ino) {
            self.unlink(volume, handle, inode, number);
        }
    }

    /// Takes an inode out of the list.
    fn unlink(&mut self, volume: &Inner, handle: &Handle<'_>, inode: &Arc<Inode>, number: u64) {
        self.list.remove(&number);
        let next = self.list.range(..number).next_back().map_or(0, |(_, next)| next.ino().get());
        match self.list.range(number..).next() {
            Some((_, previous)) => {
                previous.join(handle);
                previous.core().dtime = next;
            }
            None => volume.counts().set_last_orphan(handle, next),
        }
        inode.join(handle);
        inode.core().dtime = 0;
    }
}

impl OrphanFile {
    fn set(&self, handle: &Handle<'_>, slot: usize, ino: InodeNo) {
        let block = &self.blocks[slot / self.slots_per_block];
        handle.change(block, |bytes| orphan_file::set_slot(bytes, slot % self.slots_per_block, ino));
    }
}

impl Inner {
    /// Finishes what the last user of the volume left half-done: deletes inodes without a name, cuts others
    /// to their size.
    ///
    /// As in the kernel (`ext4_orphan_cleanup`), a damaged orphan does not keep the volume from being opened: it is noted,
    /// and its inode left to e2fsck.
    ///
    /// # Errors
    /// A failed read; any error after which the volume stops.
    pub(crate) fn process_orphans(&self) -> Result<()> {
        let mut inodes = self.read_list()?;
        inodes.extend(self.read_file()?);
        for inode in inodes {
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

    /// Returns the inodes on the list, up to the first that cannot be on it. The rest is dropped, because the link to
    /// the next one cannot be trusted.
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
        let head_last = (0..).zip(list.iter().rev());
        let mut orphaned = self.orphans.0.lock();
        orphaned.listed = head_last.clone().map(|(number, inode)| (inode.ino(), number)).collect();
        orphaned.list = head_last.map(|(number, inode)| (number, Arc::clone(inode))).collect();
        drop(orphaned);
        Ok(list)
    }

    /// An orphan's inode; `None` if no inode that is in use has this number, or the inode is damaged.
    fn orphan(&self, ino: InodeNo) -> Result<Option<Arc<Inode>>> {
        if ino.get() < self.layout.first_inode || ino.get() > self.layout.inodes_count {
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
        let block_size = u64::from(self.layout.block_size);
        let blocks = (file_inode.size() / block_size).min(u64::from(MAX_FILE_BLOCKS));
        let slots_per_block = orphan_file::slots_per_block(self.layout.block_size as usize);
        let mut file =
            OrphanFile { blocks: Vec::new(), slots_per_block, free: Vec::new(), used: HashMap::new() };
        let listed = self.orphans.0.lock().listed.clone();
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
                let inode = if listed.contains_key(&ino) || file.used.contains_key(&ino) {
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
        // The first slots are used first.
        file.free.reverse();
        self.orphans.0.lock().file = Some(file);
        Ok(inodes)
    }

    fn orphan_block(&self, file: &Inode, index: FileBlock) -> Result<Arc<MetaBlock>> {
        let mapping = self.map(file)?.lookup(index.get(), 1);
        match mapping.state {
            MapState::Written(block) => self.cache.read(block, BlockKind::OrphanFile(file.seed())),
            _ => Err(Error::corrupt(format_args!("orphan file: block {index} is not written"))),
        }
    }
}

//! Orphans: inodes that lost their last name while in use, or whose truncation takes several transactions.
//!
//! Responsible for recording them on the device, so that the next open after a crash finishes their deletion or truncation. They are
//! stored in the orphan file if the volume has one with a free slot, otherwise in the list from the superblock through the
//! inodes' `i_dtime`. Source: kernel documentation, "Orphan file".

use std::collections::{BTreeMap, HashMap};

use parext4_format::InodeNo;
use parext4_format::orphan_file;

use super::Engine;
use crate::error::Result;
use crate::inode::Inode;
use crate::journal::Handle;
use crate::meta::MetaBlock;
use crate::sync::Rank;
use crate::sync::{Arc, Mutex, MutexGuard};

/// The orphans of an open volume.
#[derive(Debug)]
pub(crate) struct Orphans(Mutex<OrphanState>);

#[derive(Debug, Default)]
pub(crate) struct OrphanState {
    /// The list on the device, from the last inode to the head, by ascending numbers. A new orphan becomes the head.
    list: BTreeMap<u64, Arc<Inode>>,
    /// The number of each inode in the list.
    listed: HashMap<InodeNo, u64>,
    file: Option<OrphanFile>,
}

/// The orphan file: its blocks, and its used slots.
#[derive(Debug)]
pub(crate) struct OrphanFile {
    pub blocks: Vec<Arc<MetaBlock>>,
    pub slots_per_block: usize,
    pub free: Vec<usize>,
    pub used: HashMap<InodeNo, usize>,
}

impl Orphans {
    /// Maximum number of blocks that adding or removing one orphan registers: the superblock, the inode, its neighbour.
    pub(crate) const CREDITS: u32 = 3;

    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rank::Orphans, OrphanState::default()))
    }

    /// Adds an inode under the handle that makes it an orphan. Does nothing if it is one already: an inode may lose its last name while
    /// a truncation is in progress, or the reverse.
    pub(crate) fn add(&self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        self.lock().add(engine, handle, inode);
        Ok(())
    }

    /// Locks the orphans, for a change that depends on a field of an inode.
    pub(crate) fn lock(&self) -> MutexGuard<'_, OrphanState> {
        self.0.lock()
    }

    /// Removes an inode, if it is an orphan, under the handle that finishes its deletion or truncation.
    pub(crate) fn remove(&self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) {
        self.0.lock().remove(engine, handle, inode);
    }

    /// Like [`remove`](Self::remove), but keeps an inode without names, whose deletion removes it.
    pub(crate) fn remove_named(&self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) {
        let mut state = self.0.lock();
        // A thread that removes the last name decrements the count before it adds the inode. So either this thread sees the
        // count, or that thread adds the inode again.
        let links = inode.core().links;
        if links > 0 {
            state.remove(engine, handle, inode);
        }
    }

    /// Sets the list to the one read from the device, the head first.
    pub(crate) fn set_list(&self, list: &[Arc<Inode>]) {
        let head_last = (0..).zip(list.iter().rev());
        let mut state = self.0.lock();
        state.listed = head_last.clone().map(|(number, inode)| (inode.ino(), number)).collect();
        state.list = head_last.map(|(number, inode)| (number, Arc::clone(inode))).collect();
    }

    /// Returns true if the inode is in the list.
    pub(crate) fn is_listed(&self, ino: InodeNo) -> bool {
        self.0.lock().listed.contains_key(&ino)
    }

    /// Returns true if the inode is an orphan.
    pub(crate) fn contains(&self, ino: InodeNo) -> bool {
        let all = self.0.lock();
        all.listed.contains_key(&ino) || all.file.as_ref().is_some_and(|file| file.used.contains_key(&ino))
    }

    /// Sets the orphan file to the one read from the device.
    pub(crate) fn set_file(&self, file: OrphanFile) {
        self.0.lock().file = Some(file);
    }

    /// Returns true if the orphan file was read and has no used slot.
    pub(crate) fn file_is_empty(&self) -> bool {
        self.0.lock().file.as_ref().is_some_and(|file| file.used.is_empty())
    }
}

impl OrphanState {
    fn has(&self, ino: InodeNo) -> bool {
        self.listed.contains_key(&ino) || self.file.as_ref().is_some_and(|file| file.used.contains_key(&ino))
    }

    /// As [`Orphans::add`].
    pub(crate) fn add(&mut self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) {
        if self.has(inode.ino()) {
            return;
        }
        if let Some(file) = &mut self.file
            && let Some(slot) = file.free.pop()
        {
            file.set(handle, slot, inode.ino());
            file.used.insert(inode.ino(), slot);
            return;
        }
        let (number, head) =
            self.list.last_key_value().map_or((0, 0), |(number, head)| (number + 1, head.ino().get()));
        inode.join(handle);
        inode.core().dtime = head;
        engine.counts().set_last_orphan(handle, inode.ino().get());
        self.list.insert(number, Arc::clone(inode));
        self.listed.insert(inode.ino(), number);
    }

    /// As [`Orphans::remove`].
    pub(crate) fn remove(&mut self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) {
        let ino = inode.ino();
        if let Some(file) = &mut self.file
            && let Some(slot) = file.used.remove(&ino)
        {
            file.set(handle, slot, InodeNo(0));
            file.free.push(slot);
        } else if let Some(number) = self.listed.remove(&ino) {
            self.unlink(engine, handle, inode, number);
        }
    }

    /// Removes an inode from the list.
    fn unlink(&mut self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>, number: u64) {
        self.list.remove(&number);
        let next = self.list.range(..number).next_back().map_or(0, |(_, next)| next.ino().get());
        match self.list.range(number..).next() {
            Some((_, previous)) => {
                previous.join(handle);
                previous.core().dtime = next;
            }
            None => engine.counts().set_last_orphan(handle, next),
        }
        inode.join(handle);
        inode.core().dtime = 0;
    }
}

impl OrphanFile {
    /// Returns a file without blocks.
    pub(crate) fn new(slots_per_block: usize) -> Self {
        Self { blocks: Vec::new(), slots_per_block, free: Vec::new(), used: HashMap::new() }
    }

    /// Sets a slot; 0 means no inode.
    pub(crate) fn set(&self, handle: &Handle<'_>, slot: usize, ino: InodeNo) {
        let block = &self.blocks[slot / self.slots_per_block];
        handle.change(block, |bytes| orphan_file::set_slot(bytes, slot % self.slots_per_block, ino));
    }
}

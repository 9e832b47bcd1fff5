//! Orphans: inodes that lost their last name while in use, or whose truncation takes several
//! transactions.
//!
//! Responsible for recording them on the device, so that the next open after a crash finishes their
//! deletion or truncation. They are stored in the orphan file if the volume has one with a free
//! slot, otherwise in the list from the superblock through the inodes' `i_dtime`. Source: kernel
//! documentation, "Orphan file".

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use parext4_format::InodeNo;
use parext4_format::orphan_file;

use super::Engine;
use crate::error::Result;
use crate::inode::{Inode, InodeCache};
use crate::journal::Handle;
use crate::meta::MetaBlock;
use crate::sync::Rank;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, Mutex, MutexGuard};

/// The orphans of an open volume.
#[derive(Debug)]
pub(crate) struct Orphans(Mutex<OrphanState>);

#[derive(Debug, Default)]
pub(crate) struct OrphanState {
    /// The list on the device, from the last inode that was read to the head, by ascending numbers.
    /// A new orphan becomes the head.
    list: BTreeMap<i64, Arc<Inode>>,
    /// The number of each inode in the list.
    listed: HashMap<InodeNo, i64>,
    /// The inode that follows on the device, which was not read yet; 0 if none does.
    unread: u32,
    file: Option<OrphanFile>,
}

/// The orphan file: its blocks, and its used slots.
#[derive(Debug)]
pub(crate) struct OrphanFile {
    pub blocks: Vec<Arc<MetaBlock>>,
    pub slots_per_block: usize,
    /// The free slots, as runs: a file can have millions of them. The run at the end is used first.
    pub free: Vec<Range<usize>>,
    pub used: HashMap<InodeNo, usize>,
}

impl Orphans {
    /// Maximum number of blocks that adding or removing one orphan registers: the superblock, the
    /// inode, its neighbour.
    pub(crate) const CREDITS: u32 = 3;

    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rank::Orphans, OrphanState::default()))
    }

    /// Adds an inode under the handle that makes it an orphan. Does nothing if it is one already:
    /// an inode may lose its last name while a truncation is in progress, or the reverse.
    pub(crate) fn add(&self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        self.lock().add(engine, handle, inode);
        Ok(())
    }

    /// Locks the orphans, for a change that depends on a field of an inode.
    pub(crate) fn lock(&self) -> MutexGuard<'_, OrphanState> {
        self.0.lock()
    }

    /// Removes an inode, if it is an orphan, under the handle that finishes its deletion or
    /// truncation.
    pub(crate) fn remove(&self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) {
        self.0.lock().remove(engine, handle, inode);
    }

    /// Like [`remove`](Self::remove), but keeps an inode without names, whose deletion removes it.
    pub(crate) fn remove_named(&self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) {
        let mut state = self.0.lock();
        // A thread that removes the last name decrements the count before it adds the inode. So
        // either this thread sees the count, or that thread adds the inode again.
        let links = inode.core().links;
        if links > 0 {
            state.remove(engine, handle, inode);
        }
    }

    /// Adds the next inodes of the list on the device, after the inodes that were read before.
    /// Inode `unread` follows, or none if it is 0. Returns true if no inode of the list is in
    /// memory.
    pub(crate) fn extend_list(&self, read: &[Arc<Inode>], unread: u32) -> bool {
        let mut state = self.0.lock();
        let mut number = state.list.first_key_value().map_or(0, |(&number, _)| number);
        for inode in read {
            number -= 1;
            state.listed.insert(inode.ino(), number);
            state.list.insert(number, Arc::clone(inode));
        }
        state.unread = unread;
        state.list.is_empty()
    }

    /// Returns true if the inode is an orphan.
    pub(crate) fn contains(&self, ino: InodeNo) -> bool {
        let all = self.0.lock();
        all.listed.contains_key(&ino) || all.file.as_ref().is_some_and(|file| file.used.contains_key(&ino))
    }

    /// Calls `visit` with the orphans in memory, until it returns false.
    pub(crate) fn visit(&self, inodes: &InodeCache, mut visit: impl FnMut(&Inode) -> bool) {
        let state = self.0.lock();
        if !state.list.values().all(|inode| visit(inode)) {
            return;
        }
        let numbers = state.file.iter().flat_map(|file| file.used.keys());
        let _ = numbers.filter_map(|&ino| inodes.present(ino)).all(|inode| visit(&inode));
    }

    /// Sets the orphan file to the one read from the device.
    pub(crate) fn set_file(&self, file: OrphanFile) {
        self.0.lock().file = Some(file);
    }

    /// Removes an inode that cannot be an orphan from the orphan file. Registers one block.
    pub(crate) fn remove_from_file(&self, handle: &Handle<'_>, ino: InodeNo) {
        if let Some(file) = &mut self.0.lock().file {
            file.remove(handle, ino);
        }
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
        inode.stays.store(false, Ordering::Relaxed);
        if let Some(file) = &mut self.file
            && let Some(slot) = file.take_free()
        {
            file.set(handle, slot, inode.ino());
            file.used.insert(inode.ino(), slot);
            return;
        }
        let (number, head) = self
            .list
            .last_key_value()
            .map_or((0, self.unread), |(number, head)| (number + 1, head.ino().get()));
        inode.join(handle);
        inode.core().dtime = head;
        engine.counts().set_last_orphan(handle, inode.ino().get());
        self.list.insert(number, Arc::clone(inode));
        self.listed.insert(inode.ino(), number);
    }

    /// As [`Orphans::remove`].
    pub(crate) fn remove(&mut self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>) {
        let ino = inode.ino();
        let was_in_file = self.file.as_mut().is_some_and(|file| file.remove(handle, ino));
        if !was_in_file && let Some(number) = self.listed.remove(&ino) {
            self.unlink(engine, handle, inode, number);
        }
    }

    /// Removes an inode from the list.
    fn unlink(&mut self, engine: &Engine, handle: &Handle<'_>, inode: &Arc<Inode>, number: i64) {
        self.list.remove(&number);
        let next = self.list.range(..number).next_back().map_or(self.unread, |(_, next)| next.ino().get());
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

    /// Removes an inode. Returns false if it has no slot.
    fn remove(&mut self, handle: &Handle<'_>, ino: InodeNo) -> bool {
        let Some(slot) = self.used.remove(&ino) else { return false };
        self.set(handle, slot, InodeNo(0));
        self.add_free(slot);
        true
    }

    /// Adds a slot to the free ones.
    pub(crate) fn add_free(&mut self, slot: usize) {
        match self.free.last_mut() {
            Some(run) if run.end == slot => run.end += 1,
            _ => self.free.push(slot..slot + 1),
        }
    }

    /// Removes a slot from the free ones, the lowest of the last run.
    fn take_free(&mut self) -> Option<usize> {
        let run = self.free.last_mut()?;
        let slot = run.next();
        if run.start == run.end {
            self.free.pop();
        }
        slot
    }

    /// Sets a slot; 0 means no inode.
    fn set(&self, handle: &Handle<'_>, slot: usize, ino: InodeNo) {
        let block = &self.blocks[slot / self.slots_per_block];
        handle.change(block, |bytes| orphan_file::set_slot(bytes, slot % self.slots_per_block, ino));
    }
}

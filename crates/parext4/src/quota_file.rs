//! Quota files: reading them when a volume is opened, and adding entries of new ids.
//!
//! Responsible for the blocks of the files, not for what the entries count. An id gets its entry in
//! a transaction of its own, before the first handle that charges it, because the file may grow. No
//! entry is removed, also if nothing counts for its id any more.

use std::collections::HashMap;

use parext4_format::features::RoCompat;
use parext4_format::quota::entry::QuotaEntry;
use parext4_format::quota::tree::{self, MAX_ADDED, MAX_CHANGED, QuotaBlocks};
use parext4_format::quota::{QUOTA_BLOCK, QuotaHeader, QuotaKind, QuotaKinds};
use parext4_format::{BlockRange, FileBlock};

use crate::convert::to_usize;
use crate::credentials::Credentials;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::mapping::BlockState;
use crate::meta::{BlockKind, MetaBlock};
use crate::quota::{EntryLocation, QuotaIds, QuotaTable, Quotas};
use crate::sync::Arc;

/// The quota blocks of a file.
struct FileBlocks<'a> {
    engine: &'a Engine,
    file: &'a Inode,
    /// The handle under which blocks change.
    handle: Option<&'a Handle<'a>>,
}

impl FileBlocks<'_> {
    /// Returns the block of the volume that has a quota block, and the offset there.
    fn locate(&self, block: u32) -> Result<(Arc<MetaBlock>, usize)> {
        let block_size = self.engine.block_size();
        let at = u64::from(block) * QUOTA_BLOCK as u64;
        let state =
            FileBlock::from_u64(at / block_size).map(|at| self.engine.block_map(self.file)?.state_of(at));
        match state.transpose()? {
            Some(BlockState::Written(number)) => {
                let found = self.engine.cache().read(number, BlockKind::Quota(self.file.ino()))?;
                Ok((found, to_usize(at % block_size)))
            }
            _ => {
                Err(Error::corrupt(format_args!("quota file {}: block {block} is missing", self.file.ino())))
            }
        }
    }
}

impl QuotaBlocks for FileBlocks<'_> {
    type Error = Error;

    fn read<R>(&mut self, block: u32, use_bytes: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let (found, offset) = self.locate(block)?;
        Ok(use_bytes(&found.snapshot()[offset..offset + QUOTA_BLOCK]))
    }

    fn change(&mut self, block: u32, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let (found, offset) = self.locate(block)?;
        let Some(handle) = self.handle else {
            return Err(Error::corrupt("a quota file changes without a handle"));
        };
        handle.change(&found, |bytes| change(&mut bytes[offset..offset + QUOTA_BLOCK]));
        Ok(())
    }
}

impl Engine {
    /// Reads the quota files of the volume, and checks all of them. `None` if it does not have the
    /// feature.
    ///
    /// # Errors
    /// Corruption; a failed read.
    pub(crate) fn read_quotas(&self, enforced: QuotaKinds) -> Result<Option<Quotas>> {
        if !self.superblock().ro_compat().contains(RoCompat::QUOTA) {
            return Ok(None);
        }
        let mut tables = [None, None, None];
        for kind in QuotaKind::ALL {
            tables[kind as usize] = self.read_table(kind, enforced.contains(kind))?;
        }
        Ok(Some(Quotas::new(tables)))
    }

    fn read_table(&self, kind: QuotaKind, enforced: bool) -> Result<Option<QuotaTable>> {
        let Some(ino) = self.superblock().quota_inode(kind)? else { return Ok(None) };
        let file = self.inode(ino)?;
        let mut blocks = FileBlocks { engine: self, file: &file, handle: None };
        let header = blocks.read(0, |bytes| QuotaHeader::parse(bytes, kind, file.size()))?;
        let header = header.map_err(|error| error.of_inode(ino))?;
        let mut entries = Vec::new();
        tree::walk(&mut blocks, &header, |place, entry| entries.push((entry.id, place)))
            .map_err(|error| error.of_inode(ino))?;
        let mut places = HashMap::new();
        for (id, place) in entries {
            let (block, offset) = blocks.locate(place.block)?;
            places.insert(id, EntryLocation { block: block.number(), offset: offset + place.offset });
        }
        Ok(Some(QuotaTable::new(kind, ino, header, places, enforced, self.clock())))
    }

    /// Adds the entries of `ids` that quota files lack. The caller holds no handle.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; corruption; the errors of the device.
    pub(crate) fn add_quota_entries(&self, ids: QuotaIds) -> Result<()> {
        let Some(quotas) = self.quotas() else { return Ok(()) };
        let wanted = QuotaKind::ALL.into_iter().zip(ids.0);
        wanted
            .filter_map(|(kind, id)| Some((quotas.table(kind)?, id)))
            .try_for_each(|(table, id)| self.add_quota_entry(table, id))
    }

    /// Adds the entry of `id` to a quota file, unless it has one.
    ///
    /// # Errors
    /// As [`add_quota_entries`](Self::add_quota_entries).
    pub(crate) fn add_quota_entry(&self, table: &QuotaTable, id: u32) -> Result<()> {
        if table.has(id) {
            return Ok(());
        }
        let mut header = table.lock_header();
        if table.has(id) {
            return Ok(());
        }
        let file = self.inode(table.ino())?;
        self.extend_quota_file(&file, header.blocks.saturating_add(MAX_ADDED))?;
        self.transact(MAX_CHANGED + 1, |handle| {
            let mut blocks = FileBlocks { engine: self, file: &file, handle: Some(handle) };
            let mut changed = *header;
            let entry = QuotaEntry { id, ..QuotaEntry::default() };
            let place = tree::insert(&mut blocks, &mut changed, &entry)?;
            blocks.change(0, |bytes| changed.encode(bytes, table.kind()))?;
            let (block, offset) = blocks.locate(place.block)?;
            *header = changed;
            table.note(id, EntryLocation { block: block.number(), offset: offset + place.offset });
            Ok(())
        })
    }

    /// Sets the times for which soft limits may be exceeded, in seconds.
    ///
    /// # Errors
    /// Corruption; the errors of the device.
    pub(crate) fn set_quota_graces(&self, table: &QuotaTable, space: u32, inodes: u32) -> Result<()> {
        let mut header = table.lock_header();
        let file = self.inode(table.ino())?;
        self.transact(1, |handle| {
            let mut blocks = FileBlocks { engine: self, file: &file, handle: Some(handle) };
            let changed = QuotaHeader { space_grace: space, inode_grace: inodes, ..*header };
            blocks.change(0, |bytes| changed.encode(bytes, table.kind()))?;
            *header = changed;
            table.note_graces(&changed);
            Ok(())
        })
    }

    /// Gives a quota file the blocks for `blocks` quota blocks. The size covers all of its last
    /// block afterwards: mke2fs makes files that end within a block, and further quota blocks lie
    /// there.
    fn extend_quota_file(&self, file: &Arc<Inode>, blocks: u32) -> Result<()> {
        let want = self.layout().block_size.blocks_for(u64::from(blocks) * QUOTA_BLOCK as u64);
        let have = self.layout().block_size.blocks_for(file.size());
        if file.size() < have * self.block_size() {
            self.transact(1, |handle| {
                file.join(handle);
                file.set_size(have * self.block_size());
                Ok(())
            })?;
        }
        let mut rest = BlockRange::clamped(have, want);
        while !rest.is_empty() {
            let credits = self.map_credits(file)? + rest.count();
            let added = self.with_space(|| {
                self.transact(credits, |handle| {
                    let count = self.add_blocks(handle, file, rest, true, Credentials::root())?;
                    rest.take(count).blocks().try_for_each(|at| self.zero_quota_block(handle, file, at))?;
                    file.set_size(rest.take(count).end() * self.block_size());
                    Ok(count)
                })
            })?;
            rest = rest.skip(added);
        }
        Ok(())
    }

    fn zero_quota_block(&self, handle: &Handle<'_>, file: &Inode, at: FileBlock) -> Result<()> {
        let BlockState::Written(block) = self.block_map(file)?.state_of(at)? else {
            return Err(Error::corrupt(format_args!("quota file {}: block {at} is lost", file.ino())));
        };
        let block = self.cache().create(block, BlockKind::Quota(file.ino()))?;
        handle.change(&block, |bytes| bytes.fill(0));
        Ok(())
    }
}

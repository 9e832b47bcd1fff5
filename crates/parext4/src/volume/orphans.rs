//! Processes the orphans of a volume when it is opened.

use std::collections::HashSet;

use parext4_format::features::Compat;
use parext4_format::inode::InodeFlags;
use parext4_format::superblock::STATE_ERROR;
use parext4_format::{FileBlock, InodeNo, orphan_file};
use rangelock::ByteRange;

use crate::engine::{Engine, EngineRef, OrphanFile};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode_ref::{Hold, InodeRef};
use crate::mapping::BlockState;
use crate::meta::{BlockKind, MetaBlock};
use crate::sync::Arc;
use crate::sync::{Rank, hold};

/// Limit of the blocks of an orphan file that are used (`EXT4_MAX_ORPHAN_FILE_BLOCKS`).
const MAX_FILE_BLOCKS: u32 = 512;

/// Orphans that are in memory at once, about.
const BATCH: usize = 1024;
/// Limit of the orphans that stay as they are, and in memory. Orphans that were not read when there
/// are more are left to e2fsck, too.
const MAX_LEFT: usize = 1024;
/// Limit of the orphans on the list of a volume whose fast commits are replayed. The replay keeps
/// them in memory.
const MAX_LISTED: usize = 16 * BATCH;

/// The orphans on the device that were not read yet.
struct Unread {
    /// The next inode of the list, 0 at its end.
    next: u32,
    /// The inodes that were read from the list.
    seen: HashSet<InodeNo>,
    /// The inodes in the orphan file; `None` until the list is read.
    in_file: Option<std::vec::IntoIter<InodeNo>>,
}

impl EngineRef {
    /// Finishes deletions and truncations that the last user of the volume left incomplete: deletes
    /// orphans without a name, and truncates orphans with a name to their size. A volume can have
    /// as many orphans as inodes, so only some are in memory at once.
    ///
    /// A damaged orphan does not keep the volume from being opened, as in the kernel
    /// (`ext4_orphan_cleanup`): the error is recorded, and the inode is left to e2fsck. So are all
    /// orphans of a volume that had errors on record when it was opened: they may share blocks with
    /// other files.
    ///
    /// # Errors
    /// A failed read; any error after which the volume stops.
    pub(crate) fn process_orphans(&self) -> Result<()> {
        let has_errors = self.superblock().state() & STATE_ERROR != 0;
        let (mut unread, mut left) = (self.unread_orphans(), 0);
        while left <= MAX_LEFT {
            let inodes = self.read_orphans(&mut unread, BATCH)?;
            if inodes.is_empty() {
                break;
            }
            let more_may_follow = inodes.len() == BATCH;
            for inode in inodes {
                // The deletion of another one may have deleted it, if it is the value of an
                // attribute.
                if !self.orphans().contains(inode.ino()) {
                    continue;
                }
                let finished = !has_errors && self.finish_orphan(&inode)?;
                left += usize::from(!finished);
            }
            if more_may_follow {
                // An inode whose change is not durable stays in memory.
                self.journal().commit_all()?;
            }
        }
        if has_errors && left > 0 {
            log::warn!("orphan inodes stay as they are, because the volume has errors on record; run e2fsck");
        }
        self.health().check()
    }

    /// Deletes or truncates an orphan. Returns false if it is damaged.
    fn finish_orphan(&self, inode: &Arc<Inode>) -> Result<bool> {
        let named = inode.core().links > 0;
        let finished = if named { self.recover_truncation(inode) } else { self.delete_inode(inode) };
        match finished {
            Err(error @ (Error::Corrupt(_) | Error::Unsupported(_))) => {
                self.health().check()?;
                log::warn!("orphan inode {} stays as it is: {error}", inode.ino());
                Ok(false)
            }
            finished => finished.map(|()| true),
        }
    }

    /// Finishes a truncation that a crash has interrupted. First zeroes the rest of the last block,
    /// which the kernel does only after it has logged the size: a kernel that extends the file may
    /// expect zeros there. The commit that removes the orphan makes the zeros durable (H8). Without
    /// its key, an encrypted block cannot be zeroed in part.
    ///
    /// # Errors
    /// As [`finish_truncation`](Engine::finish_truncation), a failed read or write.
    fn recover_truncation(&self, inode: &Arc<Inode>) -> Result<()> {
        let kept = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT;
        if !inode.holds_metadata() && !inode.flags().intersects(kept) {
            let node = InodeRef::new(self, Arc::clone(inode));
            let _held = hold(Rank::Range);
            let alone = Hold::new(inode.ranges.exclusive(ByteRange::ALL));
            node.zero_rest_of_block(&alone, inode.size())?;
        }
        self.finish_truncation(inode)
    }

    /// Reads the list of orphans and the orphan file, and processes none of them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the list has more than [`MAX_LISTED`] inodes; a failed read; any
    /// error after which the volume stops.
    pub(super) fn load_orphans(&self) -> Result<()> {
        let mut unread = self.unread_orphans();
        while !self.read_orphans(&mut unread, BATCH)?.is_empty() {
            if unread.seen.len() > MAX_LISTED {
                return Err(Error::Unsupported(format!(
                    "fast commits on a volume with more than {MAX_LISTED} orphan inodes on its list; run e2fsck"
                )));
            }
        }
        Ok(())
    }
}

impl Engine {
    fn unread_orphans(&self) -> Unread {
        Unread { next: self.superblock().last_orphan(), seen: HashSet::new(), in_file: None }
    }

    /// Reads the next orphans, at most `most`: first orphans on the list, and then orphans in the
    /// orphan file. Returns none at the end.
    fn read_orphans(&self, unread: &mut Unread, most: usize) -> Result<Vec<Arc<Inode>>> {
        if unread.next != 0 {
            let inodes = self.read_list(unread, most)?;
            if !inodes.is_empty() {
                return Ok(inodes);
            }
        }
        if unread.in_file.is_none() {
            unread.in_file = Some(self.read_file(&unread.seen)?.into_iter());
        }
        let mut inodes = Vec::new();
        for ino in unread.in_file.iter_mut().flatten() {
            match self.orphan(ino)? {
                Some(inode) => inodes.push(inode),
                None => self.transact(1, |handle| {
                    self.orphans().remove_from_file(handle, ino);
                    Ok(())
                })?,
            }
            if inodes.len() == most {
                break;
            }
        }
        Ok(inodes)
    }

    /// Returns the next inodes on the list, up to the first that cannot be on it. Drops the rest
    /// then, because the link to the next inode cannot be trusted.
    fn read_list(&self, unread: &mut Unread, most: usize) -> Result<Vec<Arc<Inode>>> {
        let mut list = Vec::new();
        let mut was_bad = false;
        while unread.next != 0 && list.len() < most {
            let next = InodeNo(unread.next);
            let inode = if unread.seen.insert(next) {
                self.orphan(next)?
            } else {
                self.bad_orphan(next, "appears twice")
            };
            was_bad = inode.is_none();
            unread.next = inode.as_ref().map_or(0, |inode| inode.core().dtime);
            list.extend(inode);
        }
        let is_empty = self.orphans().extend_list(&list, unread.next);
        if was_bad && is_empty {
            self.transact(1, |handle| {
                self.counts().set_last_orphan(handle, 0);
                Ok(())
            })?;
        }
        Ok(list)
    }

    /// Returns an orphan's inode; `None` if no inode in use has this number, or the inode is
    /// damaged.
    fn orphan(&self, ino: InodeNo) -> Result<Option<Arc<Inode>>> {
        if !self.is_number_of_file(ino) {
            return Ok(self.bad_orphan(ino, "is no inode of a file"));
        }
        let found = self.allocator().inode_in_use(ino).and_then(|is_used| match is_used {
            true => self.inode(ino).map(Some),
            false => Ok(self.bad_orphan(ino, "is not in use")),
        });
        match found {
            Err(error @ Error::Corrupt(_)) => {
                self.health().note(ino, error);
                Ok(None)
            }
            found => found,
        }
    }

    /// Returns true if an inode of this number can belong to a user's file or directory.
    fn is_number_of_file(&self, ino: InodeNo) -> bool {
        let is_own = ino == InodeNo::ROOT || self.superblock().is_own_inode(ino);
        !is_own && ino.get() <= self.layout().inodes_count
    }

    #[track_caller]
    fn bad_orphan<T>(&self, ino: InodeNo, what: &str) -> Option<T> {
        self.health().note(ino, Error::corrupt(format_args!("orphan inode {ino} {what}")));
        None
    }

    /// Reads the orphan file. Returns the inodes in it, except for `seen`. Frees each slot with a
    /// number that was met before or that no file can have, so the result has at most as many
    /// inodes as the volume.
    fn read_file(&self, seen: &HashSet<InodeNo>) -> Result<Vec<InodeNo>> {
        if !self.superblock().compat().contains(Compat::ORPHAN_FILE) {
            return Ok(Vec::new());
        }
        let file_inode = self.inode(InodeNo(self.superblock().orphan_file_inode()))?;
        let block_size = u64::from(self.layout().block_size.bytes());
        let blocks = (file_inode.size() / block_size).min(u64::from(MAX_FILE_BLOCKS));
        let slots_per_block = orphan_file::slots_per_block(self.layout().block_size.bytes() as usize);
        let mut file = OrphanFile::new(slots_per_block);
        let mut inodes = Vec::new();
        for index in 0..u32::try_from(blocks).unwrap_or(0) {
            let block = self.orphan_block(&file_inode, FileBlock(index))?;
            let slots = orphan_file::parse_block(&block.snapshot(), file_inode.seed(), block.number())?;
            let mut bad = Vec::new();
            for (slot, ino) in slots.into_iter().enumerate() {
                let slot_of_file = index as usize * slots_per_block + slot;
                if ino.get() != 0 && self.is_new_in_file(ino, seen, &file) {
                    file.used.insert(ino, slot_of_file);
                    inodes.push(ino);
                    continue;
                }
                if ino.get() != 0 {
                    bad.push(slot);
                }
                file.add_free(slot_of_file);
            }
            if !bad.is_empty() {
                self.transact(1, |handle| {
                    let clear = |bytes: &mut [u8], &slot| orphan_file::set_slot(bytes, slot, InodeNo(0));
                    handle.change(&block, |bytes| bad.iter().for_each(|slot| clear(bytes, slot)));
                    Ok(())
                })?;
            }
            file.blocks.push(block);
        }
        // Slots are taken from the end of the list, so this reuses the lowest slot first.
        file.free.reverse();
        self.orphans().set_file(file);
        Ok(inodes)
    }

    /// Returns true if the inode can be an orphan that is in neither the list nor `file`. Notes the
    /// error if it cannot.
    fn is_new_in_file(&self, ino: InodeNo, listed: &HashSet<InodeNo>, file: &OrphanFile) -> bool {
        let problem = if !self.is_number_of_file(ino) {
            "is no inode of a file"
        } else if listed.contains(&ino) || file.used.contains_key(&ino) {
            "appears twice"
        } else {
            return true;
        };
        self.bad_orphan::<()>(ino, problem);
        false
    }

    fn orphan_block(&self, file: &Inode, index: FileBlock) -> Result<Arc<MetaBlock>> {
        match self.block_map(file)?.state_of(index)? {
            BlockState::Written(block) => self.cache().read(block, BlockKind::OrphanFile(file.seed())),
            _ => Err(Error::corrupt(format_args!("orphan file: block {index} is not written"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use parext4_format::{FileBlock, InodeNo, orphan_file};

    use super::BATCH;
    use crate::sync::Arc;
    use crate::{Device, MemDevice, MkfsOptions, NewInode, Volume, VolumeOptions, mkfs};

    /// A volume whose inodes are all orphans: with all of them in memory, an image of 16 MiB took
    /// 300 MiB.
    #[test]
    fn only_some_of_many_orphans_are_in_memory_at_once() {
        const ORPHANS: usize = 2 * BATCH + 100;
        for features in ["^orphan_file", "orphan_file"] {
            let device = Arc::new(MemDevice::new(32 << 20));
            let options = MkfsOptions::new().features(features).unwrap().inode_ratio(Some(8192));
            mkfs(&*device, &options.device_is_zero(true)).unwrap();
            let open = |read_only| {
                let options = VolumeOptions::new().commit_interval(None).read_only(read_only);
                Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap()
            };
            let volume = open(false);
            let root = volume.root().unwrap();
            let mut nodes = Vec::new();
            for nth in 0..ORPHANS {
                let name = nth.to_string();
                nodes.push(root.create(name.as_bytes(), &NewInode::new()).unwrap());
                root.unlink(name.as_bytes()).unwrap();
            }
            volume.sync().unwrap();
            volume.abort().unwrap();
            drop((nodes, root, volume));
            let volume = open(true);
            let mut unread = volume.engine.unread_orphans();
            for expected in [BATCH, BATCH, ORPHANS - 2 * BATCH, 0] {
                let inodes = volume.engine.read_orphans(&mut unread, BATCH).unwrap();
                // The orphan file has room for some, and the list has the others, which end within
                // a batch.
                assert!(inodes.len() <= BATCH, "{features}: {} at once", inodes.len());
                assert!(
                    features == "orphan_file" || inodes.len() == expected,
                    "{} of {expected}",
                    inodes.len()
                );
            }
            drop(volume);
            let volume = open(false);
            assert!(volume.engine.orphans().file_is_empty() || features == "^orphan_file");
            volume.close().unwrap();
            testkit::volume::assert_clean(&device, features);
        }
    }

    /// Millions of numbers that no file can have took hundreds of MiB, and a transaction each.
    #[test]
    fn the_orphan_file_keeps_only_numbers_that_files_can_have() {
        let device = Arc::new(MemDevice::new(32 << 20));
        mkfs(&*device, &MkfsOptions::new().features("orphan_file").unwrap().device_is_zero(true)).unwrap();
        let options = VolumeOptions::new().commit_interval(None);
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
        let engine = &volume.engine;
        let orphan = volume.root().unwrap().create(b"file", &NewInode::new()).unwrap().ino();
        let file = engine.inode(InodeNo(engine.superblock().orphan_file_inode())).unwrap();
        let slots = orphan_file::slots_per_block(engine.layout().block_size.bytes() as usize);
        let blocks = u32::try_from(file.size() / u64::from(engine.layout().block_size.bytes())).unwrap();
        assert!(blocks > 1);
        let slots_of = |index| {
            let block = engine.orphan_block(&file, FileBlock(index)).unwrap();
            orphan_file::parse_block(&block.snapshot(), None, block.number()).unwrap()
        };
        for index in 0..blocks {
            let block = engine.orphan_block(&file, FileBlock(index)).unwrap();
            let number = |slot| match slot {
                0 => InodeNo(file.ino().get()),
                5 | 6 => orphan,
                _ => {
                    InodeNo(engine.layout().inodes_count + 1 + index * 20_000 + u32::try_from(slot).unwrap())
                }
            };
            let fill = |bytes: &mut [u8]| {
                (0..slots).for_each(|slot| orphan_file::set_slot(bytes, slot, number(slot)));
                orphan_file::seal_block(file.seed().unwrap(), block.number(), bytes);
            };
            let changed = engine.transact(1, |handle| {
                handle.change(&block, fill);
                Ok(())
            });
            changed.unwrap();
        }
        assert_eq!(engine.read_file(&HashSet::new()).unwrap(), [orphan]);
        for index in 0..blocks {
            let used: Vec<_> = slots_of(index).into_iter().filter(|ino| ino.get() != 0).collect();
            assert_eq!(used.is_empty(), index > 0, "block {index}: {used:?}");
        }
        let removed = engine.transact(1, |handle| {
            engine.orphans().remove_from_file(handle, orphan);
            Ok(())
        });
        removed.unwrap();
        assert!(engine.orphans().file_is_empty());
        volume.close().unwrap();
    }
}

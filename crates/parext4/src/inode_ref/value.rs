//! Attribute values in inodes of their own (`ea_inode`): reads them, counts the entries that refer
//! to them, and creates them.
//!
//! Not responsible for the entries. Invariants: an inode of a value has one link while entries
//! refer to it. Before the first entry and after the last one it has none and is an orphan, so
//! dropping its last [`InodeRef`], or the next open after a crash, deletes it.

use parext4_format::inode::{FileType, Inode as RawInode, InodeFlags};
use parext4_format::xattr::{self, ValueInode, Xattr};
use parext4_format::{BlockRange, FileBlock, FormatError, FsBlock, InodeNo};

use super::InodeRef;
use crate::allocator::INODE_CREDITS;
use crate::convert::to_usize;
use crate::engine::{Engine, EngineRef, Orphans};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::Handle;
use crate::mapping::BlockState;
use crate::meta::{BlockKind, MetaBlock};
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

/// Blocks of a new value that one transaction writes.
const BLOCKS_AT_ONCE: u32 = 16;

impl Engine {
    /// Returns the inode of a value, for an entry of `owner`. An entry refers to it, and so counts
    /// as one of its references, also if the value cannot be read.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the inode is no value's.
    fn value_inode(&self, owner: &Inode, value: ValueInode) -> Result<Arc<Inode>> {
        let corrupt = |problem| corrupt_value(owner, value, problem);
        let number = value.ino.get();
        let own = self.superblock().is_own_inode(value.ino);
        if own || number > self.layout().inodes_count || value.ino == owner.ino() {
            return Err(corrupt("is no inode of a value"));
        }
        if !self.allocator().inode_in_use(value.ino)? {
            return Err(corrupt("is not in use"));
        }
        let inode = self.inode(value.ino)?;
        if !inode.has_value() {
            return Err(corrupt("is no inode of a value"));
        }
        // Without links and users it is being deleted, or was never a value.
        if inode.core().links == 0 && inode.references.load(Ordering::Acquire) == 0 {
            return Err(corrupt("has no references"));
        }
        Ok(inode)
    }

    /// Returns a value that an inode of its own has, for the entry `name` of `owner`. Verifies it
    /// against the hashes of the inode and of the entry. May block on the device.
    ///
    /// # Errors
    /// Corruption; a failed read.
    pub(crate) fn read_value(&self, owner: &Inode, name: &[u8], value: ValueInode) -> Result<Vec<u8>> {
        let inode = self.value_inode(owner, value)?;
        if inode.file_type() != FileType::Regular {
            return Err(corrupt_value(owner, value, "is no regular file"));
        }
        if inode.size() != u64::from(value.size) || value.size > ValueInode::MAX_SIZE {
            return Err(corrupt_value(owner, value, "has another size than the value"));
        }
        let bytes = self.value_bytes(&inode)?;
        let hash = ValueInode::hash(self.superblock().value_seed(), &bytes);
        let is_sound = {
            let owner = Owner::of(owner);
            let core = inode.core();
            core.value_hash() == hash && value.has_hash(name, hash) || owner.is_of_lustre(&core)
        };
        if is_sound {
            return Ok(bytes);
        }
        let problem = format_args!("differs from the value's, {hash:#010x}");
        Err(Error::corrupt_field("xattr value", "hash", problem).of_inode(value.ino))
    }

    fn value_bytes(&self, inode: &Inode) -> Result<Vec<u8>> {
        let len = to_usize(inode.size());
        let mut bytes = Vec::with_capacity(len);
        let blocks = BlockRange::clamped(0, self.layout().block_size.blocks_for(inode.size()));
        for run in self.block_map(inode)?.runs(blocks) {
            let run = run?;
            let BlockState::Written(first) = run.state else {
                let problem = format_args!("block {} is not written", run.logical);
                return Err(Error::corrupt_field("xattr value", "blocks", problem).of_inode(inode.ino()));
            };
            for nth in 0..u64::from(run.len) {
                let block = self.cache().read(first + nth, BlockKind::Value(inode.ino()))?.snapshot();
                bytes.extend_from_slice(&block[..block.len().min(len - bytes.len())]);
            }
        }
        Ok(bytes)
    }

    /// Changes the number of entries that refer to the inode of a value, under a handle with
    /// [`InodeRef::VALUE_CREDITS`] credits. Without entries the inode becomes an orphan. Returns
    /// true if this change made it one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if `change` returns `None` for the number of references; the volume then
    /// stops.
    fn change_value_references(
        &self,
        handle: &Handle<'_>,
        inode: &Arc<Inode>,
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> Result<bool> {
        inode.join(handle);
        // Under one lock: other owners of the value change the number at the same time.
        let mut orphans = self.orphans().lock();
        let (had_links, has_links) = {
            let mut core = inode.core();
            let before = core.value_references();
            let Some(after) = change(before) else {
                return Err(Error::corrupt_field("xattr value", "references", before).of_inode(inode.ino()));
            };
            let had_links = core.links > 0;
            core.set_value_references(after);
            core.links = u16::from(after > 0);
            (had_links, after > 0)
        };
        match (had_links, has_links) {
            (false, true) => orphans.remove(self, handle, inode),
            (true, false) => orphans.add(self, handle, inode),
            _ => {}
        }
        Ok(had_links && !has_links)
    }
}

fn corrupt_value(owner: &Inode, value: ValueInode, problem: &str) -> Error {
    let problem = format!("inode {} {problem}", value.ino);
    Error::corrupt_field("xattr", "e_value_inum", problem).of_inode(owner.ino())
}

impl EngineRef {
    /// Removes the attributes of a deleted inode whose values have inodes of their own, one in each
    /// transaction, and so deletes values that no other inode has. A block that other inodes use
    /// stays.
    ///
    /// A deleted value loses its own such attributes before it is dropped, and so in this loop: the
    /// image decides how long a chain of values is.
    ///
    /// # Errors
    /// The errors of the device; corruption of the attributes. A value that cannot be found is left
    /// to e2fsck.
    pub(super) fn release_values(&self, owner: &Arc<Inode>) -> Result<()> {
        let mut deleted: Vec<InodeRef> = Vec::new();
        loop {
            let inode = deleted.last().map_or(owner, |value| &value.inode);
            let removal = match self.next_removal(inode) {
                // The deletion of the value reports it.
                Err(Error::Corrupt(_)) if !deleted.is_empty() => None,
                removal => removal?,
            };
            if let Some(removal) = removal {
                deleted.extend(self.release_value(inode, &removal)?);
            } else if deleted.pop().is_none() {
                return Ok(());
            }
        }
    }

    /// Carries out a removal. Returns a reference to the inode of the value if this was the last
    /// entry that referred to it.
    fn release_value(&self, owner: &Arc<Inode>, removal: &Removal) -> Result<Option<InodeRef>> {
        let value = match self.value_inode(owner, removal.value) {
            Err(error @ Error::Corrupt(_)) => {
                log::warn!("deleting inode {}: {error}", owner.ino());
                None
            }
            inode => Some(InodeRef::new(self, inode?)),
        };
        let is_of_lustre = value.as_ref().is_some_and(|value| removal.is_of_lustre(owner, &value.inode));
        let was_last = self.transact(2 + InodeRef::VALUE_CREDITS, |handle| {
            owner.join(handle);
            if !is_of_lustre {
                let blocks = self.layout().allocated_for(removal.value.size.into());
                owner.sub_blocks(handle, blocks, self.layout().block_size);
                owner.charge_inodes(handle, -1);
            }
            match &removal.block {
                Some(block) => handle.change(block, |bytes| bytes.copy_from_slice(&removal.bytes)),
                None => owner.core().xattr_area_mut().copy_from_slice(&removal.bytes),
            }
            let Some(value) = &value else { return Ok(false) };
            // A value of Lustre does not count its only entry, and a damaged one may count too few.
            let left = |before: u64| if is_of_lustre { 0 } else { before.saturating_sub(1) };
            self.change_value_references(handle, &value.inode, |before| Some(left(before)))
        })?;
        Ok(value.filter(|_| was_last))
    }

    /// Returns the removal of the next attribute of `owner` whose value has an inode, except from a
    /// block that other inodes use.
    fn next_removal(&self, owner: &Inode) -> Result<Option<Removal>> {
        let corrupt =
            |error: FormatError| self.health().note(owner.ino(), error.of_inode(owner.ino()).into());
        let (list, len, number) = {
            let core = owner.core();
            let area = core.xattr_area();
            (xattr::parse_ibody(area).map_err(corrupt)?, area.len(), FsBlock(core.file_acl))
        };
        if let Some((name, value, rest)) = without_first_value(list) {
            let bytes = xattr::encode_ibody(&rest, len).ok_or(Error::NoSpace)?;
            return Ok(Some(Removal { name, value, block: None, bytes }));
        }
        if number.get() == 0 {
            return Ok(None);
        }
        let block = self.xattr_block(number)?;
        let bytes = block.snapshot();
        let list = xattr::parse_block(&bytes, number, None).map_err(corrupt)?;
        let is_shared = xattr::refcount(&bytes) > 1;
        let first = without_first_value(list).filter(|_| !is_shared);
        let Some((name, value, rest)) = first else { return Ok(None) };
        let bytes = xattr::encode_block(&rest, bytes.len()).ok_or(Error::NoSpace)?;
        Ok(Some(Removal { name, value, block: Some(block), bytes }))
    }

    /// Returns the number of values in a block of attributes that have inodes of their own, which
    /// [`release_values`](Self::release_values) removes.
    pub(super) fn values_in(block: &[u8]) -> usize {
        let list = xattr::parse_block(block, FsBlock(0), None).unwrap_or_default();
        list.iter().filter(|xattr| xattr.value.inode().is_some()).count()
    }
}

/// The removal of one attribute whose value has an inode.
struct Removal {
    name: Vec<u8>,
    value: ValueInode,
    /// The block that has the attribute; `None` if it is in the inode.
    block: Option<Arc<MetaBlock>>,
    /// The attributes without it, encoded.
    bytes: Vec<u8>,
}

impl Removal {
    /// Returns true if Lustre made the value. As in e2fsck, one that fits the hash of its entry is
    /// not of Lustre, whatever its owner's number.
    fn is_of_lustre(&self, owner: &Inode, value: &Inode) -> bool {
        let owner = Owner::of(owner);
        let value = value.core();
        owner.is_of_lustre(&value) && !self.value.has_hash(&self.name, value.value_hash())
    }
}

/// Returns the name and the value of the first attribute whose value has an inode, and all other
/// attributes.
fn without_first_value(mut list: Vec<Xattr>) -> Option<(Vec<u8>, ValueInode, Vec<Xattr>)> {
    let at = list.iter().position(|xattr| xattr.value.inode().is_some())?;
    let xattr = list.remove(at);
    Some((xattr.name, xattr.value.inode()?, list))
}

impl InodeRef {
    /// Blocks that a change of the references of one value registers.
    pub(crate) const VALUE_CREDITS: u32 = 1 + Orphans::CREDITS;

    /// Returns a reference to the inode of a value, for a change of the number of entries that
    /// refer to it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the inode is no value's. [`Error::Unsupported`] for a value of Lustre,
    /// which does not count entries.
    pub(crate) fn of_value(engine: &EngineRef, owner: &Inode, value: ValueInode) -> Result<Self> {
        let inode = engine.value_inode(owner, value)?;
        if Owner::of(owner).is_of_lustre(&inode.core()) {
            return Err(Error::Unsupported(format!("changing attribute value {} of Lustre", value.ino)));
        }
        Ok(Self::new(engine, inode))
    }

    /// Changes the number of entries that refer to this inode of a value, under a handle with
    /// [`Self::VALUE_CREDITS`] credits.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the inode has fewer references; the volume then stops.
    pub(crate) fn add_references(&self, handle: &Handle<'_>, added: i64) -> Result<()> {
        let change = |before: u64| before.checked_add_signed(added);
        self.engine.change_value_references(handle, &self.inode, change).map(drop)
    }

    /// Creates an inode for a value of an attribute of `owner`, to which no entry refers yet. The
    /// caller then calls [`write_value`](Self::write_value). Dropping the last reference deletes
    /// the inode, unless an entry refers to it.
    ///
    /// # Errors
    /// [`Error::NoInodes`]; the errors of the device.
    pub(crate) fn create_value(engine: &EngineRef, owner: &Inode, value: &[u8]) -> Result<Self> {
        let mut raw = RawInode::new(FileType::Regular.mode_bits() | 0o600, engine.superblock());
        raw.flags = InodeFlags::EA_INODE;
        raw.size = value.len() as u64;
        {
            let owner = owner.core();
            (raw.uid, raw.gid) = (owner.uid, owner.gid);
        }
        let now = engine.clock().now();
        (raw.mtime, raw.crtime) = (now, now);
        raw.set_value_references(0);
        raw.set_value_hash(ValueInode::hash(engine.superblock().value_seed(), value));
        engine.with_space(|| {
            engine.transact(INODE_CREDITS + Orphans::CREDITS, |handle| {
                let (ino, table_block) = engine.allocator().allocate_inode(handle, owner.ino(), false)?;
                let inode = engine.new_inode(ino, raw.clone(), table_block)?;
                inode.join(handle);
                engine.orphans().add(engine, handle, &inode)?;
                Ok(Self::new(engine, inode))
            })
        })
    }

    /// Writes a value into new blocks of its new inode, in several transactions.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the errors of the device.
    pub(crate) fn write_value(&self, value: &[u8]) -> Result<()> {
        let engine = &self.engine;
        let block_size = to_usize(engine.block_size());
        let mut rest = BlockRange::clamped(0, engine.layout().block_size.blocks_for(value.len() as u64));
        while !rest.is_empty() {
            let some = rest.take(BLOCKS_AT_ONCE);
            let credits = engine.map_credits(&self.inode)? + BLOCKS_AT_ONCE;
            let added = engine.with_space(|| {
                engine.transact(credits, |handle| {
                    let count = engine.add_blocks(handle, &self.inode, some, true, engine.credentials())?;
                    some.take(count).blocks().try_for_each(|at| {
                        let start = to_usize(at.to_u64()) * block_size;
                        let part = &value[start..value.len().min(start + block_size)];
                        self.write_value_block(handle, at, part)
                    })?;
                    Ok(count)
                })
            })?;
            rest = rest.skip(added);
        }
        Ok(())
    }

    fn write_value_block(&self, handle: &Handle<'_>, at: FileBlock, part: &[u8]) -> Result<()> {
        let ino = self.ino();
        let BlockState::Written(block) = self.engine.block_map(&self.inode)?.state_of(at)? else {
            return Err(Error::corrupt(format_args!("attribute value {ino}: block {at} is lost")));
        };
        let block = self.engine.cache().create(block, BlockKind::Value(ino))?;
        handle.change(&block, |bytes| {
            bytes.fill(0);
            bytes[..part.len()].copy_from_slice(part);
        });
        Ok(())
    }
}

/// The inode that has an attribute, as Lustre names it in the inode of the value.
struct Owner {
    ino: InodeNo,
    generation: u32,
}

impl Owner {
    fn of(inode: &Inode) -> Self {
        Self { ino: inode.ino(), generation: inode.core().generation }
    }

    /// Returns true if Lustre made this inode of a value: it has one owner, which it names, and no
    /// hash.
    fn is_of_lustre(&self, value: &RawInode) -> bool {
        value.mtime.seconds == i64::from(self.ino.get()) && value.generation == self.generation
    }
}

//! Changes of the numbers of entries that refer to values in inodes of their own (`ea_inode`).
//!
//! Responsible for what a change of one inode's attributes means for them. The counts themselves
//! are in `node/value.rs`.
//!
//! Each entry in an inode or in a block of attributes counts once, also if several inodes share the
//! block. So an inode that gets a block of its own in place of a shared one adds a reference for
//! each value that stays, and the last user of a block removes one for each value in it. Only under
//! the handle is it known whether the old block had another user.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use parext4_format::xattr::{self, ValueInode};
use parext4_format::{FsBlock, InodeNo};

use super::storage::Storage;
use crate::convert::saturating_u32;
use crate::engine::EngineRef;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode_ref::InodeRef;
use crate::journal::Handle;
use crate::quota::ReservedQuota;
use crate::sync::Arc;

/// Changes of references to values, which are known before the handle begins.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueChanges {
    /// The inodes of all values whose references may change. The last reference to each deletes it
    /// if no entry refers to it.
    nodes: BTreeMap<InodeNo, InodeRef>,
    /// Changes by entries in the inode.
    body: References,
    /// Entries in the new block, and in the old one.
    new_block: References,
    old_block: References,
    /// Change of the space that counts as the owner's, in blocks: each of its entries counts, also
    /// if inodes share a value.
    blocks: i64,
    /// Change of the number of values that have inodes of their own.
    count: i64,
}

/// Numbers of entries, by the inode of the value.
type References = BTreeMap<InodeNo, i64>;

impl ValueChanges {
    /// Returns the change of the number of values that have inodes of their own.
    pub(super) fn added(&self) -> i64 {
        self.count
    }

    /// Returns the changes for `owner`, whose attributes in the inode and in the block become
    /// `body` and `block`.
    ///
    /// # Errors
    /// Corruption; [`Error::NoSpace`] if more references change than the journal can hold in one
    /// transaction.
    pub(super) fn new(engine: &EngineRef, owner: &Inode, body: &Storage, block: &Storage) -> Result<Self> {
        let mut changes = Self::default();
        let mut touched = Vec::new();
        if body.changed {
            changes.blocks += body.added_blocks(engine.layout());
            changes.count += body.added_values();
            add(&mut changes.body, body.values(), 1);
            add(&mut changes.body, body.old_values.iter().copied(), -1);
            let is_changed = |value: &ValueInode| changes.body[&value.ino] != 0;
            touched.extend(body.values().chain(body.old_values.iter().copied()).filter(is_changed));
        }
        if block.changed {
            changes.blocks += block.added_blocks(engine.layout());
            changes.count += block.added_values();
            add(&mut changes.new_block, block.values(), 1);
            add(&mut changes.old_block, block.old_values.iter().copied(), -1);
            let stays = |value: &ValueInode| {
                let count = |references: &References| references.get(&value.ino).copied().unwrap_or(0);
                count(&changes.new_block) + count(&changes.old_block) == 0
            };
            let is_shared = is_block_shared(engine, owner)?;
            let all = block.values().chain(block.old_values.iter().copied());
            touched.extend(all.filter(|value| is_shared || !stays(value)));
        }
        for value in touched {
            if let Entry::Vacant(entry) = changes.nodes.entry(value.ino) {
                entry.insert(InodeRef::of_value(engine, owner, value)?);
            }
        }
        // The rest is for the attributes and for what else the caller changes.
        if changes.credits() > engine.journal().max_credits() / 2 {
            return Err(Error::NoSpace);
        }
        Ok(changes)
    }

    /// Returns the number of blocks that [`apply`](Self::apply) registers.
    pub(super) fn credits(&self) -> u32 {
        saturating_u32(self.nodes.len()).saturating_mul(InodeRef::VALUE_CREDITS)
    }

    /// Returns the references to the inodes of values.
    pub(super) fn reserve_quota(&self, engine: &EngineRef, owner: &Inode) -> Result<ReservedQuota> {
        let more = |count: i64| u64::try_from(count).unwrap_or(0);
        owner.reserve_quota(
            more(self.blocks),
            more(self.count),
            engine.layout().block_size,
            engine.credentials(),
        )
    }

    pub(super) fn into_nodes(self) -> impl Iterator<Item = InodeRef> {
        self.nodes.into_values()
    }

    /// Changes the numbers of references, and the space that `owner` uses. `old_block_ended` tells
    /// whether the entries of the old block exist no more.
    pub(super) fn apply(
        &self,
        engine: &EngineRef,
        handle: &Handle<'_>,
        owner: &Arc<Inode>,
        old_block_ended: bool,
    ) -> Result<()> {
        let (unit, blocks) = (engine.layout().block_size, self.blocks.unsigned_abs());
        match self.blocks {
            0 => {}
            1.. => {
                owner.join(handle);
                owner.add_blocks(handle, blocks, unit);
            }
            _ => {
                owner.join(handle);
                owner.sub_blocks(handle, blocks, unit);
            }
        }
        owner.charge_inodes(handle, self.count);
        let old_block = if old_block_ended { Some(&self.old_block) } else { None };
        let mut all = References::new();
        for (&ino, &count) in [&self.body, &self.new_block].into_iter().chain(old_block).flatten() {
            *all.entry(ino).or_default() += count;
        }
        for (ino, count) in all.into_iter().filter(|&(_, count)| count != 0) {
            let Some(node) = self.nodes.get(&ino) else {
                return Err(Error::corrupt(format_args!("the users of attribute value {ino} changed")));
            };
            node.add_references(handle, count)?;
        }
        Ok(())
    }
}

fn add(references: &mut References, values: impl Iterator<Item = ValueInode>, count: i64) {
    for value in values {
        *references.entry(value.ino).or_default() += count;
    }
}

/// Returns true if other inodes may use the inode's block of attributes. Their number does not
/// grow.
fn is_block_shared(engine: &EngineRef, inode: &Inode) -> Result<bool> {
    let number = FsBlock(inode.core().file_acl);
    Ok(number.get() != 0 && xattr::refcount(&engine.xattr_block(number)?.snapshot()) > 1)
}

//! The space that an inode uses, and its charges to quotas.
//!
//! Invariant: each change of the space is charged under the same handle, to the ids that the inode
//! has then (H37).

use parext4_format::BlockSize;

use super::Inode;
use crate::credentials::Credentials;
use crate::error::Result;
use crate::journal::Handle;
use crate::quota::{NewDquots, ReservedQuota};
use crate::sync::atomic::Ordering;

impl Inode {
    /// Adds blocks of the file system to the space that the inode uses.
    pub(crate) fn add_blocks(&self, handle: &Handle<'_>, blocks: u64, block_size: BlockSize) {
        let charges = self.charges.as_ref().map(|charges| charges.lock());
        // Relaxed suffices: `encode` reads it, which the commit orders after the handle.
        self.sectors.fetch_add(sectors(blocks, block_size), Ordering::Relaxed);
        if let Some(charges) = charges.filter(|_| blocks != 0) {
            charges.charge(handle, bytes(blocks, block_size), 0);
        }
    }

    /// Adds blocks that are [reserved](Self::delay_quota) to the space that the inode uses.
    pub(crate) fn add_reserved_blocks(&self, handle: &Handle<'_>, blocks: u32, block_size: BlockSize) {
        let charges = self.charges.as_ref().map(|charges| charges.lock());
        self.sectors.fetch_add(sectors(blocks.into(), block_size), Ordering::Relaxed);
        if let Some(charges) = charges {
            charges.charge_delayed(handle, bytes(blocks.into(), block_size));
        }
    }

    /// Subtracts blocks from the space that the inode uses.
    pub(crate) fn sub_blocks(&self, handle: &Handle<'_>, blocks: u64, block_size: BlockSize) {
        let charges = self.charges.as_ref().map(|charges| charges.lock());
        let sub = |used: u64| Some(used.saturating_sub(sectors(blocks, block_size)));
        let _ = self.sectors.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sub);
        if let Some(charges) = charges.filter(|_| blocks != 0) {
            charges.charge(handle, -bytes(blocks, block_size), 0);
        }
    }

    /// Returns the space in use, in units of 512 bytes, as `st_blocks`.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors.load(Ordering::Relaxed)
    }

    /// Charges inodes: the new inode itself, or values of its attributes that have inodes of their
    /// own.
    pub(crate) fn charge_inodes(&self, handle: &Handle<'_>, inodes: i64) {
        if let Some(charges) = self.charges.as_ref().filter(|_| inodes != 0) {
            charges.lock().charge(handle, 0, inodes);
        }
    }

    /// Ends all charges of an inode that is freed, and that still has `values` besides itself.
    pub(crate) fn end_charges(&self, handle: &Handle<'_>, values: u64) {
        if let Some(charges) = &self.charges {
            let charges = charges.lock();
            let space = self.sectors.swap(0, Ordering::Relaxed).saturating_mul(512);
            charges.charge(handle, -signed(space), -1 - signed(values));
        }
    }

    /// Charges the inode to other ids from now on. `values` of its attributes have inodes of their
    /// own.
    pub(crate) fn transfer_charges(&self, handle: &Handle<'_>, new: &NewDquots, values: u64) {
        if let Some(charges) = &self.charges {
            charges.transfer(handle, new, || self.sectors().saturating_mul(512), 1 + values);
        }
    }

    /// Reserves `blocks` and `inodes` of the quotas for a change.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded), with nothing reserved.
    pub(crate) fn reserve_quota(
        &self,
        blocks: u64,
        inodes: u64,
        block_size: BlockSize,
        credentials: Credentials,
    ) -> Result<ReservedQuota> {
        let Some(charges) = &self.charges else { return Ok(ReservedQuota::default()) };
        charges.reserve(bytes(blocks, block_size).unsigned_abs(), inodes, credentials)
    }

    /// Returns true if the blocks of the inode count for quotas, which may have limits.
    pub(crate) fn has_quotas(&self) -> bool {
        self.charges.is_some()
    }

    /// Reserves `blocks` of the quotas for dirty pages, or for blocks that a write claims.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`](crate::Error::QuotaExceeded), with nothing reserved.
    pub(crate) fn delay_quota(
        &self,
        blocks: u32,
        block_size: BlockSize,
        credentials: Credentials,
    ) -> Result<()> {
        let space = bytes(blocks.into(), block_size).unsigned_abs();
        self.charges.as_ref().map_or(Ok(()), |charges| charges.delay(space, credentials))
    }

    /// Ends the reservation of `blocks` for pages that are dirty no more, or whose blocks are about
    /// to be allocated, and for claims that are released.
    pub(crate) fn undelay_quota(&self, blocks: u32, block_size: BlockSize) {
        if let Some(charges) = &self.charges {
            charges.undelay(bytes(blocks.into(), block_size).unsigned_abs());
        }
    }

    /// Reserves `blocks` again for dirty pages whose blocks could not be allocated, or are claimed,
    /// without regard to limits.
    pub(crate) fn delay_quota_again(&self, blocks: u32, block_size: BlockSize) {
        if let Some(charges) = &self.charges {
            charges.delay_again(bytes(blocks.into(), block_size).unsigned_abs());
        }
    }
}

fn sectors(blocks: u64, block_size: BlockSize) -> u64 {
    blocks * u64::from(block_size.bytes() / 512)
}

fn bytes(blocks: u64, block_size: BlockSize) -> i64 {
    signed(blocks.saturating_mul(block_size.bytes().into()))
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

//! The location of the block of one volume, and its transfer.

use std::io::{IoSlice, IoSliceMut};

use parext4_device::{AlignedBuf, Device, ReadNow};
use parext4_format::mmp::{Mmp, SEQUENCE_MAX, first_check_interval, name_field};
use parext4_format::superblock::Superblock;
use parext4_format::{ChecksumSeed, FsBlock};
use rustix::rand::{GetRandomFlags, getrandom};

use super::MmpOptions;
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Number of attempts to read a block that fails its checks.
const READS: u32 = 3;

/// The location of the block, and the fields of the superblock that concern it.
#[derive(Clone, Debug)]
pub(super) struct MmpLocation {
    number: FsBlock,
    block_size: u32,
    seed: Option<ChecksumSeed>,
    /// Time between two updates, in seconds.
    pub update_interval: u16,
    /// The clock of the time in the block.
    clock: Clock,
}

impl MmpLocation {
    /// Returns the location of the volume's block; `None` if the volume has none.
    pub(super) fn of(superblock: &Superblock, clock: Clock) -> Result<Option<Self>> {
        let number = superblock.mmp_block()?;
        Ok(number.map(|number| Self {
            number,
            block_size: superblock.block_size(),
            seed: superblock.checksum_seed(),
            update_interval: superblock.mmp_update_interval(),
            clock,
        }))
    }

    /// Reads the block.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the block fails a check, also when read again: one read may return
    /// half of an update.
    pub(super) fn read(&self, device: &dyn Device) -> Result<Mmp> {
        for _ in 1..READS {
            match self.read_once(device) {
                Err(Error::Corrupt(_)) => {}
                read => return read,
            }
        }
        self.read_once(device)
    }

    fn read_once(&self, device: &dyn Device) -> Result<Mmp> {
        self.read_by(&mut |offset, bytes| device.read_at(offset, &mut [IoSliceMut::new(bytes)]))
    }

    /// Reads the block by calling `read` with an offset and a buffer.
    pub(super) fn read_by(&self, read: &mut ReadNow<'_>) -> Result<Mmp> {
        let mut bytes = AlignedBuf::zeroed(self.block_size as usize);
        read(self.offset(), &mut bytes)
            .map_err(|e| Error::device("reading the block of multi-mount protection", e))?;
        Ok(Mmp::parse(&bytes, self.seed, self.number)?)
    }

    /// Writes the block without a flush: other machines read it from the device, not from stable
    /// storage.
    pub(super) fn write(&self, device: &dyn Device, mmp: &Mmp) -> Result<()> {
        let mut bytes = AlignedBuf::zeroed(self.block_size as usize);
        mmp.encode(&mut bytes[..Mmp::SIZE], self.seed);
        device
            .write_at(self.offset(), &[IoSlice::new(&bytes)])
            .map_err(|e| Error::device("writing the block of multi-mount protection", e))
    }

    fn offset(&self) -> u64 {
        self.number.get() * u64::from(self.block_size)
    }

    /// Returns the time for which an owner sleeps between two updates, in seconds: the update
    /// interval, but at most half of the lease that an update gives.
    pub(super) fn pause(&self) -> u64 {
        let lease = first_check_interval(self.update_interval);
        u64::from(self.update_interval.min(lease / 2))
    }

    /// Returns the number that follows `sequence`.
    pub(super) const fn sequence_after(sequence: u32) -> u32 {
        if sequence < SEQUENCE_MAX { sequence + 1 } else { 1 }
    }

    /// Returns the time now in seconds since 1970.
    pub(super) fn seconds_now(&self) -> u64 {
        self.clock.now().seconds.unsigned_abs()
    }

    /// Returns a block with a random number, in the name of this machine.
    pub(super) fn mine(&self, options: &MmpOptions) -> Mmp {
        let random = u64::from_ne_bytes(random_bytes());
        let node = rustix::system::uname();
        Mmp {
            sequence: u32::try_from(random % (u64::from(SEQUENCE_MAX) + 1)).unwrap_or(0),
            time: self.seconds_now(),
            node: name_field(node.nodename().to_bytes()),
            device: name_field(options.device_name.as_bytes()),
            check_interval: first_check_interval(self.update_interval),
        }
    }
}

/// Returns bytes of the kernel's random number generator.
fn random_bytes() -> [u8; 8] {
    let mut bytes = [0; 8];
    let read = getrandom(&mut bytes, GetRandomFlags::empty());
    assert!(read == Ok(bytes.len()), "getrandom(2) fills up to 256 bytes: {read:?}");
    bytes
}

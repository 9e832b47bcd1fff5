//! The ioctls of the whole volume: trim, label, checkpoint and shutdown.
//!
//! The kernel copies arguments and results by the direction and the size in the command's number.
//! So two commands cannot behave as on the kernel's ext4:
//!
//! * The size of `EXT4_IOC_GETFSUUID` has no room for a UUID, so it fails. (`FS_IOC_GETFSUUID`
//!   never reaches the server: the kernel refuses it on FUSE.)
//! * `EXT4_IOC_SHUTDOWN` has an argument that says what to make durable first, but its number
//!   declares the argument as output, so the server does not get it. The server first makes all
//!   changes durable, as the kernel does without a flag. So a program that has called syncfs(2)
//!   before, of which the server is not told, does not lose its data. A second shutdown succeeds
//!   and changes nothing.

use parext4::EmptiedLog;
use parext4_sync::atomic::Ordering;

use super::Server;
use crate::protocol::{Caller, Failure, Outcome};

const FITRIM: u32 = 0xc018_5879;
const FS_IOC_GETFSLABEL: u32 = 0x8100_9431;
const FS_IOC_SETFSLABEL: u32 = 0x4100_9432;
const EXT4_IOC_CHECKPOINT: u32 = 0x4004_662b;
/// The ioctl that shuts the volume down. `FS_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN`, which test
/// programs use, have the same number.
pub(crate) const EXT4_IOC_SHUTDOWN: u32 = 0x8004_587d;

/// `EXT4_IOC_CHECKPOINT_FLAG_*`: discard the journal's blocks, overwrite them with zeros, only
/// check the arguments.
const DISCARD: u32 = 1;
const ZEROOUT: u32 = 2;
const DRY_RUN: u32 = 4;

/// Size of the label in the argument of the ioctls, in bytes (`FSLABEL_MAX`).
const LABEL: usize = 256;

impl Server {
    /// Executes an ioctl of the volume.
    pub fn volume_ioctl(&self, command: u32, argument: &[u8], caller: Caller) -> Outcome<Vec<u8>> {
        match command {
            FS_IOC_GETFSLABEL => {
                let mut label = self.volume()?.label();
                label.resize(LABEL, 0);
                Ok(label)
            }
            FITRIM | FS_IOC_SETFSLABEL | EXT4_IOC_CHECKPOINT | EXT4_IOC_SHUTDOWN if !caller.administers() => {
                Err(Failure::NOT_PERMITTED)
            }
            FITRIM => self.trim(argument),
            FS_IOC_SETFSLABEL => {
                let label = argument.split(|&byte| byte == 0).next().unwrap_or_default();
                self.volume()?.set_label(label)?;
                Ok(Vec::new())
            }
            EXT4_IOC_CHECKPOINT => self.empty_journal(argument),
            EXT4_IOC_SHUTDOWN => {
                let volume = self.volume()?;
                let is_first = volume.stopped().is_none();
                if is_first && let Err(error) = volume.sync() {
                    log::warn!("before the shutdown: {error}");
                }
                volume.abort()?;
                self.shut_down.fetch_or(is_first, Ordering::Relaxed);
                Ok(Vec::new())
            }
            _ => Err(Failure::NO_IOCTL),
        }
    }

    /// Checkpoints the journal, which empties it, as the flags in `argument` say.
    fn empty_journal(&self, argument: &[u8]) -> Outcome<Vec<u8>> {
        let flags = u32::from_ne_bytes(*argument.first_chunk().ok_or(Failure::INVALID)?);
        let blocks = match flags & !DRY_RUN {
            0 => EmptiedLog::Kept,
            DISCARD => EmptiedLog::Discarded,
            ZEROOUT => EmptiedLog::Zeroed,
            _ => return Err(Failure::INVALID),
        };
        if !self.volume()?.info().journal {
            return Err(Failure::NO_DEVICE);
        }
        if flags & DRY_RUN == 0 {
            self.volume()?.empty_journal(blocks)?;
        }
        Ok(Vec::new())
    }

    /// Discards the free space in the range of a `struct fstrim_range` on the device, and returns
    /// the structure with the number of discarded bytes.
    fn trim(&self, argument: &[u8]) -> Outcome<Vec<u8>> {
        let (fields, _) = argument.as_chunks();
        let &[start, len, least] = fields else { return Err(Failure::INVALID) };
        let [start, len, least] = [start, len, least].map(u64::from_ne_bytes);
        // This commits first, so that blocks freed by earlier calls are discarded, too.
        self.volume()?.sync()?;
        let trimmed = self.volume()?.trim(start..start.saturating_add(len), least)?;
        Ok([start, trimmed, least].map(u64::to_ne_bytes).concat())
    }
}

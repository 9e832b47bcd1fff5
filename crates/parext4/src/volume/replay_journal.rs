//! Replays the journal of a volume without opening it.

use std::io::IoSliceMut;

use parext4_device::{AlignedBuf, Device};
use parext4_format::features::Incompat;
use parext4_format::jbd2::JournalIncompat;

use super::VolumeOptions;
use super::open::build_scratch;
use super::recover::{JournalPlace, Replayed, flush, write};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::flush_turn::FlushTurn;
use crate::mmp::Protection;
use crate::superblock::{read_superblock, read_usable_superblock};
use crate::sync::Arc;

/// Returns true if an open must replay the journal of the volume on `device`: the volume is in use,
/// or was not closed cleanly.
///
/// ```
/// use parext4::{MemDevice, MkfsOptions, mkfs, needs_recovery};
///
/// let device = MemDevice::new(16 << 20);
/// mkfs(&device, &MkfsOptions::new())?;
/// assert!(!needs_recovery(&device)?);
/// # Ok::<(), parext4::Error>(())
/// ```
///
/// # Errors
/// The errors of [`Volume::open_device`](crate::Volume::open_device).
pub fn needs_recovery(device: &dyn Device) -> Result<bool> {
    let (superblock, _) = read_usable_superblock(device)?;
    Ok(superblock.incompat().contains(Incompat::RECOVER))
}

/// Replays the journal of the volume on `device` if it needs recovery, as `e2fsck -E journal_only`
/// does. Processes no orphans, and checks nothing else.
///
/// ```
/// use std::sync::Arc;
/// use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs, needs_recovery, replay_journal};
///
/// let device = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&*device, &MkfsOptions::new())?;
/// let volume = Volume::open_device(device.clone(), &VolumeOptions::new())?;
/// volume.create_dir("/dir", 0o755)?;
/// volume.abort()?;
/// drop(volume);
/// assert!(replay_journal(device.clone())?.transactions > 0);
/// assert!(!needs_recovery(&*device)?);
/// # Ok::<(), parext4::Error>(())
/// ```
///
/// # Errors
/// The errors of [`Volume::open_device`](crate::Volume::open_device).
pub fn replay_journal(device: Arc<dyn Device>) -> Result<Replayed> {
    VolumeOptions::new().replay_journal(device)
}

impl VolumeOptions {
    /// Replays the journal as [`replay_journal`] does, with these options of multi-mount
    /// protection.
    ///
    /// # Errors
    /// The errors of [`replay_journal`].
    pub fn replay_journal(&self, device: Arc<dyn Device>) -> Result<Replayed> {
        let (superblock, _) = read_usable_superblock(&*device)?;
        if !superblock.incompat().contains(Incompat::RECOVER) {
            return Ok(Replayed::NOTHING);
        }
        // The owner's thread flushes the device, too, and must not be the only one to learn that
        // the replay's writes are lost.
        let with_turn = |device| Arc::new(FlushTurn::new(device)) as Arc<dyn Device>;
        let (device, external) = (with_turn(device), self.journal_device.clone().map(with_turn));
        let Some((protection, device)) = Protection::claim(&device, &superblock, &self.mmp, self.clock)?
        else {
            return replay(&device, external.as_ref(), self.clock);
        };
        let external = external.map(|external| protection.lease(&external));
        let done = replay(&device, external.as_ref(), self.clock);
        let released = protection.release(done.is_ok());
        let done = done?;
        released?;
        protection.check()?;
        Ok(done)
    }
}

/// Returns a read-only view of the volume on `device` as a replay of its journal would leave it.
/// Nothing is written. Without anything to replay, the view is `device` itself.
///
/// ```
/// use std::sync::Arc;
/// use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs, replay_in_memory};
///
/// let device = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&*device, &MkfsOptions::new())?;
/// let volume = Volume::open_device(device.clone(), &VolumeOptions::new())?;
/// volume.create_dir("/dir", 0o755)?;
/// volume.abort()?;
/// let (view, replayed) = replay_in_memory(device)?;
/// assert!(replayed.transactions > 0 && view.read_only());
/// # Ok::<(), parext4::Error>(())
/// ```
///
/// # Errors
/// The errors of [`Volume::open_device`](crate::Volume::open_device).
pub fn replay_in_memory(device: Arc<dyn Device>) -> Result<(Arc<dyn Device>, Replayed)> {
    let (superblock, _) = read_usable_superblock(&*device)?;
    // A journal that is not needed may be damaged.
    if !superblock.incompat().contains(Incompat::RECOVER) {
        return Ok((device, Replayed::NOTHING));
    }
    let Some(place) = JournalPlace::find(&device, &superblock, None, true, Clock::system())? else {
        return Ok((device, Replayed::NOTHING));
    };
    let (_, replayed, done) = place.replay_in_memory(device, &superblock, build_scratch)?;
    Ok((replayed, done))
}

fn replay(device: &Arc<dyn Device>, external: Option<&Arc<dyn Device>>, clock: Clock) -> Result<Replayed> {
    let (superblock, _) = read_usable_superblock(&**device)?;
    let needs = superblock.incompat().contains(Incompat::RECOVER);
    let Some(place) = JournalPlace::find(device, &superblock, external, false, clock)?.filter(|_| needs)
    else {
        return Ok(Replayed::NOTHING);
    };
    let (place, done) = place.replay_home(device, &superblock, build_scratch)?;
    let device = &**device;
    let mut jsb = place.superblock;
    jsb.set_start(0);
    jsb.set_sequence(place.next_sequence);
    if jsb.incompat().contains(JournalIncompat::FAST_COMMIT) {
        jsb.set_incompat(jsb.incompat() - JournalIncompat::FAST_COMMIT);
    }
    let mut block = AlignedBuf::zeroed(place.map.block_size as usize);
    jsb.encode(&mut block);
    write(&*place.map.device, place.map.place(place.map.superblock)?.0, &block)?;
    // Empties the log before clearing the flag. In the other order, a crash in between would
    // discard the log as stale.
    flush(&*place.map.device)?;

    let found = superblock;
    let mut superblock = read_superblock(device)?;
    superblock.keep_errors_of(&found);
    superblock.set_incompat(superblock.incompat() - Incompat::RECOVER);
    let mut bytes = AlignedBuf::zeroed(4096);
    read(device, 0, &mut bytes)?;
    superblock.encode(&mut bytes[1024..2048]);
    write(device, 0, &bytes)?;
    flush(device)?;
    Ok(done)
}

fn read(device: &dyn Device, offset: u64, bytes: &mut AlignedBuf) -> Result<()> {
    device.read_at(offset, &mut [IoSliceMut::new(bytes)]).map_err(|e| Error::device("reading the volume", e))
}

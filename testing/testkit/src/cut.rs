//! One state that a crash can leave: the writes since the last flush that are on the device, and
//! the sectors of each.
//!
//! A device may reorder writes that no flush separates. Writes to different sectors have no order
//! that a crash shows, and of writes to one sector any may be the last one on the device, which a
//! subset of the writes covers.

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;

use parext4::device::Event;
use parext4::{Device, MemDevice};

use crate::sector::SECTOR;

/// The part of a write that is on the device after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of it.
    Whole,
    /// The sectors that are marked.
    Sectors(Vec<bool>),
}

impl Kept {
    /// Returns the first half of a write of `bytes` bytes.
    pub fn first_half(bytes: usize) -> Self {
        let sectors = bytes / SECTOR;
        Self::Sectors((0..sectors).map(|sector| sector < sectors / 2).collect())
    }

    /// Returns whether sector `number` of the write is on the device.
    fn has(&self, number: usize) -> bool {
        match self {
            Self::Whole => true,
            Self::Sectors(sectors) => sectors.get(number).copied().unwrap_or(false),
        }
    }
}

/// A state that a crash can leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Indices of the events between the two flushes around the crash. All earlier events are on
    /// the device.
    pub epoch: Range<usize>,
    /// The events of the epoch that are on the device, in order, and the part of each.
    pub kept: Vec<(usize, Kept)>,
}

impl Cut {
    /// Returns the state with all of the `events`; of the last write only the first half if `torn`.
    pub fn of(epoch: Range<usize>, events: &[usize], log: &[Event], torn: bool) -> Self {
        let mut kept: Vec<_> = events.iter().map(|&event| (event, Kept::Whole)).collect();
        let is_write = |(event, _): &&mut (usize, Kept)| matches!(log[*event], Event::Write { .. });
        if torn
            && let Some((event, part)) = kept.iter_mut().rev().find(is_write)
            && let Event::Write { bytes, .. } = &log[*event]
        {
            *part = Kept::first_half(bytes.len());
        }
        Self { epoch, kept }
    }

    /// Returns the number of events before the earliest crash that leaves this state.
    pub fn earliest(&self) -> usize {
        self.kept.last().map_or(self.epoch.start, |(event, _)| event + 1)
    }

    /// Returns the number of events before the latest crash that leaves this state.
    pub fn latest(&self) -> usize {
        self.epoch.end
    }

    /// Returns the device after the crash. `before` has the events before the epoch.
    pub fn image(&self, before: &MemDevice, log: &[Event]) -> MemDevice {
        let image = before.fork();
        for (event, part) in &self.kept {
            match &log[*event] {
                Event::Write { offset, bytes } => write(&image, *offset, bytes, part),
                Event::Discard { offset, len } => image.discard(*offset, *len).expect("it was recorded"),
                _ => {}
            }
        }
        image
    }
}

/// Writes the sectors that are kept, each run of them at once.
fn write(image: &MemDevice, offset: u64, bytes: &[u8], part: &Kept) {
    let is_kept = |sector: usize| part.has(with_superblock(offset, bytes.len(), sector));
    let sectors = bytes.len() / SECTOR;
    let mut first = 0;
    while first < sectors {
        let end = (first..sectors).find(|&sector| is_kept(sector) != is_kept(first)).unwrap_or(sectors);
        if is_kept(first) {
            let at = offset + (first * SECTOR) as u64;
            let run = IoSlice::new(&bytes[first * SECTOR..end * SECTOR]);
            image.write_at(at, &[run]).expect("a write that was recorded");
        }
        first = end;
    }
}

/// Returns the sector of a write whose fate sector `number` shares: its own, except that the
/// superblock is written whole. It spans two sectors, with the checksum in the second, so a volume
/// with a torn superblock cannot be opened. The first superblock of the device is in its third and
/// fourth sector.
fn with_superblock(offset: u64, len: usize, number: usize) -> usize {
    let first = 2 * SECTOR as u64;
    let at = offset + (number * SECTOR) as u64;
    if at == first && number + 1 < len / SECTOR { number + 1 } else { number }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a crash in events {:?}, with", self.epoch)?;
        if self.kept.is_empty() {
            return write!(f, " none of them");
        }
        for (event, part) in &self.kept {
            match part {
                Kept::Whole => write!(f, " {event}")?,
                Kept::Sectors(sectors) => {
                    let kept = sectors.iter().filter(|&&kept| kept).count();
                    write!(f, " {event} ({kept} of {} sectors)", sectors.len())?;
                }
            }
        }
        Ok(())
    }
}

//! States that a crash could have left: of the writes since the last flush any may be lost, and the last one torn.
//! Of a few writes all subsets are tried, of many a sample.

use std::io::IoSlice;
use std::ops::Range;

use parext4::device::{Event, RecordingDevice};
use parext4::{Device, MemDevice};

use super::rng::Rng;
use super::sector::SECTOR;
use super::settings;

/// Up to this many writes since a flush all subsets are tried.
const FEW: usize = 3;

/// One such state.
pub struct Crash {
    /// The events between two flushes in which it happened; all before are on the device.
    pub epoch: Range<usize>,
    pub image: MemDevice,
    /// What was lost.
    pub what: String,
}

/// Shows `check` states of a device that was recorded from `base` on: a sample, or more if the environment says so.
pub fn crashes(device: &RecordingDevice, base: &MemDevice, rng: &mut Rng, mut check: impl FnMut(Crash)) {
    let log = device.log();
    let subsets = if settings::all() { 12 } else { 3 };
    let state = base.fork();
    let mut done = 0;
    for epoch in device.flush_epochs() {
        device.replay_onto(&state, done..epoch.start);
        done = done.max(epoch.start);
        let mut check = |image: MemDevice, what: &str| {
            let what = format!("a crash in events {epoch:?}, {what}");
            check(Crash { epoch: epoch.clone(), image, what });
        };
        check(state.fork(), "with none of them");
        if epoch.len() <= FEW {
            for chosen in subsets_of(&epoch) {
                check(subset(&state, &log, &chosen, false), &format!("with {chosen:?}"));
                check(subset(&state, &log, &chosen, true), &format!("with {chosen:?}, the last torn"));
            }
            continue;
        }
        for _ in 0..subsets {
            let keep = 20 + rng.below(70);
            let chosen: Vec<_> = epoch.clone().filter(|_| rng.chance(keep)).collect();
            check(subset(&state, &log, &chosen, false), &format!("with {chosen:?}"));
            // And the last of them torn.
            check(subset(&state, &log, &chosen, true), &format!("with {chosen:?}, the last torn"));
            let prefix: Vec<_> = (epoch.start
                ..epoch.start + usize::try_from(rng.below(epoch.len() as u64)).unwrap())
                .collect();
            check(subset(&state, &log, &prefix, true), &format!("with {prefix:?}, the last torn"));
        }
        let all: Vec<_> = epoch.clone().collect();
        check(subset(&state, &log, &all, false), "with all of them");
    }
}

/// All subsets of a few events but the empty one.
fn subsets_of(events: &Range<usize>) -> impl Iterator<Item = Vec<usize>> {
    let events = events.clone();
    (1..1_usize << events.len()).map(move |mask| {
        events.clone().enumerate().filter(|(nth, _)| mask >> nth & 1 == 1).map(|(_, event)| event).collect()
    })
}

/// `base` and the chosen events, of the last only the first half if it is `torn`.
fn subset(base: &MemDevice, log: &[Event], chosen: &[usize], torn: bool) -> MemDevice {
    let state = base.fork();
    let last_write = chosen.iter().rev().find(|&&index| matches!(log[index], Event::Write { .. }));
    for index in chosen {
        if let Event::Write { offset, bytes } = &log[*index] {
            let half = torn && Some(index) == last_write && !is_superblock(*offset, bytes);
            let len = if half { bytes.len() / SECTOR / 2 * SECTOR } else { bytes.len() };
            state.write_at(*offset, &[IoSlice::new(&bytes[..len])]).expect("a write that was recorded");
        }
    }
    state
}

/// The superblock takes two sectors of 512 bytes, with the checksum in the second: half of it opens for nobody.
fn is_superblock(offset: u64, bytes: &[u8]) -> bool {
    offset == 1024 && bytes.len() == 1024
}

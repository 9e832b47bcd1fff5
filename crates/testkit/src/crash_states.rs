//! The states that a crash can leave on a device: any writes since the last flush may be lost, and the last one torn.
//! Of at most 3 such writes all subsets are tried, of more a random sample.

use std::io::IoSlice;
use std::ops::Range;

use parext4::device::{Event, RecordingDevice};
use parext4::{Device, MemDevice};

use crate::choices::Choices;
use crate::rng::Rng;
use crate::sector::SECTOR;
use crate::settings;

/// The most writes since a flush of which all subsets are tried.
const MAX_EXHAUSTIVE: usize = 3;

/// A state that a crash can leave.
pub struct CrashState {
    /// Indices of the events between the two flushes around the crash. All earlier events are on the device.
    pub epoch: Range<usize>,
    /// The device after the crash.
    pub image: MemDevice,
    /// Which writes were lost, for messages.
    pub what: String,
}

/// The states of a volume during a run, in order, and which of them are durable.
pub struct Timeline<'a, S> {
    device: &'a RecordingDevice,
    states: Vec<S>,
    /// For each state the number of events that were recorded when it began.
    begins: Vec<usize>,
    /// Numbers of events, and the indices of the states that were durable then.
    durable: Vec<(usize, usize)>,
}

impl<'a, S> Timeline<'a, S> {
    /// Begins with a state that is durable.
    pub fn new(device: &'a RecordingDevice, state: S) -> Self {
        let mut timeline = Self { device, states: Vec::new(), begins: Vec::new(), durable: Vec::new() };
        timeline.add(state);
        timeline.sync();
        timeline
    }

    /// Adds the state after a change.
    pub fn add(&mut self, state: S) {
        self.states.push(state);
        self.begins.push(self.device.log().len());
    }

    /// Notes that the last state is durable.
    pub fn sync(&mut self) {
        self.durable.push((self.device.log().len(), self.states.len() - 1));
    }

    /// Returns the states that may be found after a crash; `None` if it precedes the first state.
    #[must_use]
    pub fn allowed(&self, crash: &CrashState) -> Option<&[S]> {
        let epoch = &crash.epoch;
        if epoch.start < self.begins[0] {
            return None;
        }
        let first = self.durable.iter().rev().find(|(events, _)| *events <= epoch.start);
        let end = self.begins.partition_point(|&begin| begin <= epoch.end);
        Some(&self.states[first.map_or(0, |&(_, state)| state)..end])
    }
}

/// Calls `check` with crash states of a device that was recorded from `base` on: a sample, larger with
/// `PAREXT4_STRESS_ALL=1`.
pub fn for_each_crash_state(
    device: &RecordingDevice,
    base: &MemDevice,
    rng: &mut Rng,
    mut check: impl FnMut(CrashState),
) {
    let log = device.log();
    let subsets = if settings::all() { 12 } else { 3 };
    let state = base.fork();
    let mut done = 0;
    for epoch in device.flush_epochs() {
        device.replay_onto(&state, done..epoch.start);
        done = done.max(epoch.start);
        let mut check = |image: MemDevice, what: &str| {
            let what = format!("a crash in events {epoch:?}, {what}");
            check(CrashState { epoch: epoch.clone(), image, what });
        };
        check(state.fork(), "with none of them");
        if epoch.len() <= MAX_EXHAUSTIVE {
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

/// Returns a state that a crash can leave after event `since` at the earliest, and now at the latest, by choices.
pub fn chosen_crash_state(
    device: &RecordingDevice,
    base: &MemDevice,
    since: usize,
    choices: &mut dyn Choices,
) -> CrashState {
    let log = device.log();
    let end = log.len() - index(choices.below((log.len() - since + 1) as u64));
    let epochs = device.flush_epochs();
    let start = epochs.iter().map(|epoch| epoch.start).filter(|start| *start <= end).max().unwrap_or(0);
    let state = base.fork();
    device.replay_onto(&state, 0..start);
    let torn = choices.chance(25);
    let chosen: Vec<_> = match choices.below(4) {
        0 => (start..end).collect(),
        1 => Vec::new(),
        2 => (start..start + index(choices.below((end - start + 1) as u64))).collect(),
        _ => {
            let mut rng = Rng::new(choices.below(1 << 16), 0);
            (start..end).filter(|_| rng.chance(50)).collect()
        }
    };
    let image = subset(&state, &log, &chosen, torn);
    let what = format!("a crash in events {start}..{end} with {chosen:?}, torn: {torn}");
    CrashState { epoch: start..end, image, what }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("an index")
}

/// Returns all subsets of the events except the empty one.
fn subsets_of(events: &Range<usize>) -> impl Iterator<Item = Vec<usize>> {
    let events = events.clone();
    (1..1_usize << events.len()).map(move |mask| {
        events.clone().enumerate().filter(|(nth, _)| mask >> nth & 1 == 1).map(|(_, event)| event).collect()
    })
}

/// Returns `base` with the chosen events applied; of the last write only the first half if `torn`.
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

/// Returns true for a write of the superblock. It spans two sectors, with the checksum in the second, so a volume with a torn
/// superblock cannot be opened.
fn is_superblock(offset: u64, bytes: &[u8]) -> bool {
    offset == 1024 && bytes.len() == 1024
}

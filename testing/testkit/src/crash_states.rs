//! The states that a crash can leave on a device: any writes since the last flush may be lost, and
//! the last one torn. Of at most 3 such writes all subsets are tried, of more a random sample.

use std::ops::Range;

use parext4::MemDevice;
use parext4::device::RecordingDevice;

use crate::choices::Choices;
use crate::cut::Cut;
use crate::rng::Rng;
use crate::settings;

/// The most writes since a flush of which all subsets are tried.
const MAX_EXHAUSTIVE: usize = 3;

/// A state that a crash can leave.
pub struct CrashState {
    /// Indices of the events between the two flushes around the crash. All earlier events are on
    /// the device.
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

/// Calls `check` with crash states of a device that was recorded from `base` on: a sample, larger
/// with `PAREXT4_STRESS_ALL=1`.
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
        let mut check = |events: &[usize], torn: bool| {
            let cut = Cut::of(epoch.clone(), events, &log, torn);
            let (image, what) = (cut.image(&state, &log), cut.to_string());
            check(CrashState { epoch: epoch.clone(), image, what });
        };
        check(&[], false);
        if epoch.len() <= MAX_EXHAUSTIVE {
            for chosen in subsets_of(&epoch) {
                check(&chosen, false);
                check(&chosen, true);
            }
            continue;
        }
        for _ in 0..subsets {
            let keep = 20 + rng.below(70);
            let chosen: Vec<_> = epoch.clone().filter(|_| rng.chance(keep)).collect();
            check(&chosen, false);
            check(&chosen, true);
            let prefix: Vec<_> = (epoch.start
                ..epoch.start + usize::try_from(rng.below(epoch.len() as u64)).unwrap())
                .collect();
            check(&prefix, true);
        }
        check(&epoch.clone().collect::<Vec<_>>(), false);
    }
}

/// Returns a state that a crash can leave after event `since` at the earliest, and now at the
/// latest, by choices.
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
    let cut = Cut::of(start..end, &chosen, &log, torn);
    CrashState { epoch: start..end, image: cut.image(&state, &log), what: cut.to_string() }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("an index")
}

/// Returns all subsets of the events except the empty one.
pub fn subsets_of(events: &Range<usize>) -> impl Iterator<Item = Vec<usize>> {
    let events = events.clone();
    (1..1_usize << events.len()).map(move |mask| {
        events.clone().enumerate().filter(|(nth, _)| mask >> nth & 1 == 1).map(|(_, event)| event).collect()
    })
}

//! Records what a volume writes, and chooses states that a crash can leave.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use parext4::device::{Event, InlineQueue, Queue, RecordingDevice};
use parext4::{Device, MemDevice};
use testkit::crash_states::subsets_of;
use testkit::cut::{Cut, Kept};
use testkit::rng::Rng;
use testkit::sector::SECTOR;

/// A recording device. Its queue performs each request at once in the thread that submits it, or by
/// threads of the queue.
#[derive(Debug)]
pub struct Recorder {
    device: RecordingDevice,
    has_threads: bool,
}

impl Recorder {
    /// Returns a recorder of the writes to a copy of `base`.
    pub fn new(base: &MemDevice) -> Arc<Self> {
        Arc::new(Self { device: RecordingDevice::new(Arc::new(base.fork())), has_threads: false })
    }

    /// Returns a recorder of the writes to a device.
    pub fn over(device: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self { device: RecordingDevice::new(device), has_threads: false })
    }

    /// Like [`new`](Self::new), with a queue whose threads perform the requests.
    pub fn with_threads(base: &MemDevice) -> Arc<Self> {
        Arc::new(Self { device: RecordingDevice::new(Arc::new(base.fork())), has_threads: true })
    }

    /// Returns the number of events so far.
    pub fn events(&self) -> usize {
        self.device.events()
    }
}

impl Device for Recorder {
    parext4::device::forward_device!(this => this.device; size, sector_size, network, read_only, read_at, flush, discard);

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.device.write_at(offset, bufs)
    }

    fn native_queue(self: Arc<Self>, _depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        Ok(if self.has_threads { None } else { Some(Box::new(InlineQueue::new(self))) })
    }
}

/// What a volume wrote.
#[derive(Debug)]
pub struct Recording {
    /// The device before.
    pub base: MemDevice,
    /// The writes, discards and flushes.
    pub log: Vec<Event>,
    epochs: Vec<Range<usize>>,
}

/// How many of the states of a recording are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Density {
    /// All subsets of up to 4 writes, and a dozen samples of more, each whole and torn.
    All,
    /// At most this number of states: half of them at a flush, without later writes, if there are
    /// as many.
    Sample(usize),
}

/// The most writes of which all subsets are tried.
const MAX_EXHAUSTIVE: usize = 4;

impl Recording {
    /// Returns what `recorder` recorded over `base`.
    pub fn new(base: MemDevice, recorder: &Recorder) -> Self {
        Self { base, log: recorder.device.log(), epochs: recorder.device.flush_epochs() }
    }

    /// Makes states as of a device that ignores flushes.
    #[cfg(test)]
    pub fn ignore_flushes(&mut self) {
        self.epochs.iter_mut().for_each(|epoch| epoch.start = 0);
    }

    /// Returns states of a crash at or after event `first`, in the order of the recording.
    pub fn cuts(&self, first: usize, density: Density, rng: &mut Rng) -> Vec<Cut> {
        let samples = if density == Density::All { 12 } else { 2 };
        let mut cuts = Vec::new();
        for epoch in self.epochs.iter().filter(|epoch| epoch.end >= first) {
            self.cuts_of(epoch, samples, rng, &mut cuts);
        }
        if let Density::Sample(most) = density {
            let (mut at_flushes, mut between): (Vec<_>, Vec<_>) =
                cuts.into_iter().partition(|cut| cut.kept.is_empty());
            shorten(&mut at_flushes, (most / 2).max(most.saturating_sub(between.len())), rng);
            shorten(&mut between, most - at_flushes.len(), rng);
            cuts = at_flushes;
            cuts.append(&mut between);
            cuts.sort_by_key(|cut| cut.epoch.start);
        }
        cuts
    }

    fn cuts_of(&self, epoch: &Range<usize>, samples: usize, rng: &mut Rng, cuts: &mut Vec<Cut>) {
        let cut = |events: &[usize]| Cut::of(epoch.clone(), events, &self.log, false);
        cuts.push(cut(&[]));
        let mut add = |events: &[usize], rng: &mut Rng| {
            let whole = cut(events);
            cuts.push(self.torn(whole.clone(), rng));
            cuts.push(whole);
        };
        if epoch.len() <= MAX_EXHAUSTIVE {
            subsets_of(epoch).for_each(|events| add(&events, rng));
            return;
        }
        for _ in 0..samples {
            let keep = 20 + rng.below(70);
            let end = epoch.start + usize::try_from(1 + rng.below(epoch.len() as u64)).expect("few events");
            let some: Vec<_> = (epoch.start..end).filter(|_| rng.chance(keep)).collect();
            add(&some, rng);
            let prefix: Vec<_> = (epoch.start..end).collect();
            add(&prefix, rng);
        }
        let all: Vec<_> = epoch.clone().collect();
        add(&all, rng);
    }

    /// Tears the last write, or one write, or all.
    fn torn(&self, mut cut: Cut, rng: &mut Rng) -> Cut {
        let chosen = rng.below(cut.kept.len().max(1) as u64);
        let last = cut.kept.len().saturating_sub(1) as u64;
        let all = rng.chance(20);
        let one = if rng.chance(50) { last } else { chosen };
        for (nth, (event, part)) in (0..).zip(&mut cut.kept) {
            if (all || nth == one)
                && let Event::Write { bytes, .. } = &self.log[*event]
            {
                *part = Kept::Sectors((0..bytes.len() / SECTOR).map(|_| rng.chance(50)).collect());
            }
        }
        cut
    }

    /// Calls `check` with the state of each cut, in the order of the recording.
    ///
    /// # Errors
    /// The first error of `check`, with its cut.
    pub fn each(
        &self,
        cuts: &[Cut],
        mut check: impl FnMut(&Cut, MemDevice) -> Result<(), String>,
    ) -> Result<(), (Cut, String)> {
        let before = self.base.fork();
        let mut done = 0;
        for cut in cuts {
            let start = cut.epoch.start;
            if done < start {
                self.log[done..start].iter().for_each(|event| apply(&before, event));
                done = start;
            }
            check(cut, cut.image(&before, &self.log)).map_err(|error| (cut.clone(), error))?;
        }
        Ok(())
    }

    /// Returns a line for each event.
    pub fn describe(&self) -> String {
        let line = |(number, event): (usize, &Event)| match event {
            Event::Write { offset, bytes } => {
                format!("{number}: write of {} bytes at {offset}\n", bytes.len())
            }
            Event::Flush { covers } => format!("{number}: flush of the events before {covers}\n"),
            event => format!("{number}: {event:?}\n"),
        };
        self.log.iter().enumerate().map(line).collect()
    }

    /// Returns the state of one cut.
    pub fn image(&self, cut: &Cut) -> MemDevice {
        let before = self.base.fork();
        self.log[..cut.epoch.start].iter().for_each(|event| apply(&before, event));
        cut.image(&before, &self.log)
    }
}

/// Drops random cuts until at most `most` are left.
fn shorten(cuts: &mut Vec<Cut>, most: usize, rng: &mut Rng) {
    while cuts.len() > most {
        let dropped = rng.below(cuts.len() as u64);
        cuts.swap_remove(usize::try_from(dropped).expect("below a length"));
    }
}

fn apply(device: &MemDevice, event: &Event) {
    let result = match event {
        Event::Write { offset, bytes } => device.write_at(*offset, &[IoSlice::new(bytes)]),
        Event::Discard { offset, len } => device.discard(*offset, *len),
        _ => Ok(()),
    };
    result.expect("a recorded request fits the device it was recorded on");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_sample_is_at_flushes() {
        let base = MemDevice::new(1 << 20);
        let recorder = Recorder::new(&base);
        for _ in 0..6 {
            recorder.write_at(0, &[IoSlice::new(&[1; SECTOR])]).expect("a write");
            recorder.flush().expect("a flush");
        }
        let recording = Recording::new(base, &recorder);
        // The last epoch, after the last flush, has no writes.
        for (sample, expected) in [(14, (7, 7)), (10, (5, 5)), (5, (2, 3)), (100, (7, 12))] {
            let cuts = recording.cuts(0, Density::Sample(sample), &mut Rng::new(1, 1));
            let at_flushes = cuts.iter().filter(|cut| cut.kept.is_empty()).count();
            assert_eq!((at_flushes, cuts.len() - at_flushes), expected, "{sample}");
        }
        let last = recording.cuts(recording.log.len(), Density::Sample(1), &mut Rng::new(1, 1));
        assert_eq!(last.len(), 1);
    }
}

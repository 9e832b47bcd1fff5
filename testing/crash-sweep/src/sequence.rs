//! A sequence of steps of one thread, recorded.

use testkit::cut::Cut;
use testkit::ops::runner::commit;
use testkit::ops::{Durable, Oracle, Persist, Runner, Step, Tree};

use crate::experiment::Experiment;
use crate::kind::{INTERVAL, options};
use crate::record::{Recorder, Recording};
use crate::start::{content, initial, oracle};

use parext4::{Device, MemDevice, Volume};
use std::sync::Arc;

/// A sequence that was run on a volume, and then closed.
#[derive(Debug)]
pub struct Sequence {
    recording: Recording,
    oracle: Oracle,
    steps: Vec<Step>,
    /// Events before each step began.
    begun: Vec<usize>,
    /// Events when a call had made something durable.
    durable: Vec<(usize, Durable)>,
}

impl Sequence {
    /// Makes `commits` commits and runs steps on a copy of `base`, and closes the volume.
    ///
    /// # Errors
    /// A step that failed.
    pub fn record(base: &MemDevice, steps: &[Step], commits: u64) -> Result<Self, String> {
        let oracle = oracle(initial(0), 0, steps);
        let recorder = Recorder::new(base);
        let device = Arc::clone(&recorder) as Arc<dyn Device>;
        let is_timed = steps.iter().any(|(_, persist)| *persist == Persist::Timed);
        let options = options().commit_interval(is_timed.then_some(INTERVAL));
        let volume = Volume::open_device(device, &options).map_err(|e| format!("open: {e}"))?;
        (0..commits).try_for_each(|_| commit(&volume)).map_err(|e| format!("commit: {e}"))?;
        let (mut begun, mut durable) = (Vec::new(), Vec::new());
        let mut runner = Runner::new(&volume);
        for (nth, (op, persist)) in (0..).zip(steps) {
            begun.push(recorder.events());
            runner.run(op, content(0, nth)).map_err(|e| format!("{op:?}: {e}"))?;
            runner.persist(op, *persist).map_err(|e| format!("{persist:?} after {op:?}: {e}"))?;
            durable.push((recorder.events(), oracle.persisted(usize::from(nth), *persist)));
        }
        drop(runner);
        volume.close().map_err(|e| format!("close: {e}"))?;
        durable.push((recorder.events(), oracle.all(steps.len())));
        let recording = Recording::new(base.fork(), &recorder);
        Ok(Self { recording, oracle, steps: steps.to_vec(), begun, durable })
    }
}

impl Experiment for Sequence {
    fn recording(&self) -> &Recording {
        &self.recording
    }

    fn first(&self) -> usize {
        self.begun[0]
    }

    fn check(&self, cut: &Cut, tree: &Tree) -> Result<(), String> {
        let mut durable = Durable::default();
        self.durable
            .iter()
            .filter(|(events, _)| *events <= cut.latest())
            .for_each(|(_, more)| durable.merge(more));
        let begun = self.begun.partition_point(|&events| events <= cut.earliest());
        self.oracle.check_any(tree, &durable, begun)
    }

    fn describe(&self) -> String {
        let step =
            |(begun, (op, persist)): (&usize, &Step)| format!("  at event {begun}: {op:?}, {persist:?}");
        self.begun.iter().zip(&self.steps).map(step).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::base;
    use crate::failure::{Look, check};
    use crate::kind::KINDS;
    use crate::op::{set_len, write_short};
    use crate::record::Density;
    use testkit::ops::Op;
    use testkit::rng::Rng;

    #[test]
    fn a_rename_over_an_empty_file_keeps_the_new_contents() {
        let steps = [
            (write_short("/b/2"), Persist::None),
            (set_len("/a/1", 0), Persist::None),
            (Op::Rename("/b/2", "/a/1"), Persist::Commit),
        ];
        let sequence = Sequence::record(base(&KINDS[0]), &steps, 0).expect("the steps");
        let cuts = sequence.recording().cuts(sequence.first(), Density::All, &mut Rng::new(1, 5));
        let each = sequence
            .recording()
            .each(&cuts, |cut, image| check(&sequence, cut, image, Look::default()).map(drop));
        assert_eq!(each, Ok(()));
    }
}

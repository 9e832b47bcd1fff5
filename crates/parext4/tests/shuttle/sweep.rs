//! The crash sweep notices faults of order: in the log, the checkpoint, recovery, and data that a
//! transaction reveals.

use std::sync::OnceLock;

use crash_sweep::experiment::Experiment as _;
use crash_sweep::generate::random;
use crash_sweep::kind::Kind;
use crash_sweep::record::Density;
use crash_sweep::recovery::interrupt;
use crash_sweep::sequence::Sequence;
use crash_sweep::verify::{Peers, verify};
use parext4::MemDevice;
use parext4::fault::Fault;
use shuttle::rand::Rng as _;
use testkit::rng::Rng;

use super::support::*;

/// Steps of a sequence.
const STEPS: usize = 4;
/// States of a sequence, and of recoveries of them.
const STATES: usize = 12;
const RECOVERIES: usize = 1;

/// Runs random sequences on volumes of a kind, and checks states of each.
fn sweep(kind: &'static str, faults: &[Fault]) {
    let base: &'static OnceLock<MemDevice> = Box::leak(Box::default());
    let kind = Kind::named(kind).expect("a kind");
    check(12, faults, move |_| {
        let base = base.get_or_init(|| kind.base(&[String::new()], 0));
        let mut rng = Rng::new(shuttle::rand::thread_rng().gen_range(0..u64::MAX), 0);
        let steps = random(&mut rng, STEPS, |op| kind.supports(op));
        let sequence = Sequence::record(base, &steps, 0).unwrap_or_else(|e| panic!("{steps:?}: {e}"));
        let recording = sequence.recording();
        let cuts = recording.cuts(sequence.first(), Density::Sample(STATES), &mut rng);
        let mut count = 0;
        let result = recording.each(&cuts, |cut, image| {
            let crashed = image.fork();
            let (tree, _) = verify(image, Peers::default(), |tree| sequence.check(cut, tree))?;
            count += 1;
            if count <= RECOVERIES { interrupt(&crashed, &tree, &mut rng).map(drop) } else { Ok(()) }
        });
        result.unwrap_or_else(|(cut, error)| panic!("{}\n{cut}: {error}", sequence.describe()));
    });
}

#[test]
fn the_sweep_notices_faults_of_order() {
    let faults = [
        Fault::DataUnflushed,
        Fault::CommitUnflushed,
        Fault::TailBeforeHome,
        Fault::EmptyLogUnrecorded,
        Fault::ReplayUnflushed,
    ];
    sweep("1k", &faults);
}

#[test]
fn the_sweep_notices_contents_that_leave_their_inode_unwritten() {
    sweep("inline", &[Fault::MovedUnwritten]);
}

//! Power cuts during recovery: every one must lead to the tree that the whole recovery finds.

use std::sync::Arc;

use parext4::{Device, MemDevice, Volume};
use testkit::ops::Tree;
use testkit::rng::Rng;

use crate::kind::options;
use crate::record::{Density, Recorder, Recording};
use crate::verify::{Peers, make_used, verify};

/// States of one recovery.
const STATES: usize = 6;
/// How often a recovery that was cut off is cut off again.
const DEPTH: u32 = 2;

/// Recovers a state, uses the volume and closes it, and checks states of crashes in between. `tree`
/// is what the recovery finds. Returns the number of states.
///
/// # Errors
/// What is wrong with a state.
pub fn interrupt(crashed: &MemDevice, tree: &Tree, rng: &mut Rng) -> Result<u64, String> {
    interrupt_again(crashed, tree, rng, DEPTH)
}

fn interrupt_again(crashed: &MemDevice, tree: &Tree, rng: &mut Rng, depth: u32) -> Result<u64, String> {
    let recorder = Recorder::new(crashed);
    let recover = || -> parext4::Result<()> {
        let volume = Volume::open_device(Arc::clone(&recorder) as Arc<dyn Device>, &options())?;
        make_used(&volume)?;
        volume.close()
    };
    recover().map_err(|e| format!("a recovery to be cut off: {e}"))?;
    let recording = Recording::new(crashed.fork(), &recorder);
    let cuts = recording.cuts(0, Density::Sample(STATES), rng);
    let mut states = 0;
    let result = recording.each(&cuts, |_, image| {
        states += 1;
        let crashed = image.fork();
        verify(image, Peers::default(), |found| tree.compare(found))?;
        if depth > 1 && rng.chance(25) {
            states += interrupt_again(&crashed, tree, rng, depth - 1)?;
        }
        Ok(())
    });
    result.map_err(|(cut, error)| format!("recovery, then {cut}: {error}"))?;
    Ok(states)
}

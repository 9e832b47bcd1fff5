//! The states that a power cut can leave, and what is demanded of each.
//!
//! | the device | what each state must be |
//! |---|---|
//! | keeps its contract, or fails requests | as `verify` of the crash sweep demands: recovered, compared with the oracle, used, closed and checked |
//! | has returned or stored changed bits of metadata | each call fails, or the tree that it reads is one that the oracle permits; without checksums only as below |
//! | has written or read elsewhere, or lost writes after a flush | no call panics or hangs |

use std::sync::Arc;

use crash_sweep::experiment::Experiment;
use crash_sweep::history::History;
use crash_sweep::kind::open;
use crash_sweep::record::{Density, Recording};
use crash_sweep::recovery::interrupt;
use crash_sweep::verify::{Peers, make_used, verify};
use parext4::MemDevice;
use testkit::cut::Cut;
use testkit::ops::{Tree, read_tree};
use testkit::rng::Rng;
use testkit::volume::findings;

use crate::device::Faults;
use crate::profile::ContractFault;

/// States of a history, and of a recovery that was interrupted.
const STATES: usize = 24;
const RECOVERY_STATES: usize = 8;
/// The recovery of one in this number of states is interrupted again.
const INTERRUPT_ONE_IN: u64 = 30;

/// A volume as a generation has left it.
#[derive(Debug)]
pub struct Left {
    /// The device.
    pub image: MemDevice,
    /// The tree that recovery finds.
    pub tree: Tree,
}

/// The demand on a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    /// All promises are kept.
    Promises,
    /// Calls fail, or return what is right.
    RightOrError,
    /// No call panics.
    NoPanic,
}

/// Checks states, and counts them.
#[derive(Debug)]
pub struct States {
    contract_fault: ContractFault,
    has_checksums: bool,
    checked: u64,
}

impl States {
    pub fn new(contract_fault: ContractFault, has_checksums: bool) -> Self {
        Self { contract_fault, has_checksums, checked: 0 }
    }

    /// Returns the number of states so far.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    fn demand(&self, faults: Faults) -> Demand {
        match self.contract_fault {
            _ if faults.contract_faults == 0 => Demand::Promises,
            ContractFault::None => Demand::Promises,
            ContractFault::FlippedRead | ContractFault::Decay if self.has_checksums => Demand::RightOrError,
            _ => Demand::NoPanic,
        }
    }

    /// Checks states of a history. Returns one that a power cut at its end leaves, or `None` if the
    /// device has broken its contract.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(
        &mut self,
        history: &History,
        faults: Faults,
        rng: &mut Rng,
    ) -> Result<Option<Left>, String> {
        let recording = history.recording();
        let demand = self.demand(faults);
        let cuts = recording.cuts(history.first(), Density::Sample(STATES), rng);
        let each = recording.each(&cuts, |cut, image| {
            if demand != Demand::Promises {
                self.checked += 1;
                return without_promises(history, cut, image, demand);
            }
            let crashed = image.fork();
            let tree = self.verify(image, |found| history.check(cut, found))?;
            if rng.below(INTERRUPT_ONE_IN) == 0 {
                self.checked += interrupt(&crashed, &tree, rng)?;
            }
            Ok(())
        });
        each.map_err(|(cut, error)| format!("{cut}: {error}"))?;
        if faults.contract_faults > 0 {
            return Ok(None);
        }
        self.last(recording, rng, |cut, found| history.check(cut, found)).map(Some)
    }

    /// Checks states of a recovery that was interrupted. `tree` is what a complete one finds.
    /// Returns one state.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_recovery(
        &mut self,
        recording: &Recording,
        tree: Tree,
        rng: &mut Rng,
    ) -> Result<Left, String> {
        let cuts = recording.cuts(0, Density::Sample(RECOVERY_STATES), rng);
        let each =
            recording.each(&cuts, |_, image| self.verify(image, |found| tree.compare(found)).map(drop));
        each.map_err(|(cut, error)| format!("{cut}: {error}"))?;
        self.last(recording, rng, |_, found| tree.compare(found))
    }

    /// Returns a state that a power cut at the end of a recording leaves.
    fn last(
        &mut self,
        recording: &Recording,
        rng: &mut Rng,
        check: impl Fn(&Cut, &Tree) -> Result<(), String>,
    ) -> Result<Left, String> {
        let mut cuts = recording.cuts(recording.log.len(), Density::Sample(1), rng);
        let cut = cuts.pop().expect("the last epoch has a state");
        let image = recording.image(&cut);
        let tree = self.verify(image.fork(), |found| check(&cut, found));
        Ok(Left { image, tree: tree.map_err(|error| format!("{cut}: {error}"))? })
    }

    fn verify(
        &mut self,
        image: MemDevice,
        expect: impl FnOnce(&Tree) -> Result<(), String>,
    ) -> Result<Tree, String> {
        self.checked += 1;
        verify(image, Peers::default(), expect).map(|(tree, _)| tree)
    }
}

/// Recovers, reads, uses, closes and checks a volume whose device has broken its contract. Any call
/// may fail.
fn without_promises(history: &History, cut: &Cut, image: MemDevice, demand: Demand) -> Result<(), String> {
    let image = Arc::new(image);
    if let Ok(volume) = open(&image) {
        if let Ok(tree) = read_tree(&volume, "")
            && demand == Demand::RightOrError
        {
            history.check(cut, &tree).map_err(|error| format!("wrong without an error: {error}"))?;
        }
        let _ = make_used(&volume);
        let _ = volume.close();
    }
    findings(&*image);
    Ok(())
}

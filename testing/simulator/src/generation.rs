//! One generation: a volume is opened, threads change it, the power is cut or the volume is closed,
//! and states are checked.

use std::sync::Arc;
use std::time::Duration;

use crash_sweep::experiment::Experiment as _;
use crash_sweep::history::{History, Start, Threads};
use crash_sweep::kind::Kind;
use crash_sweep::record::Recording;
use crash_sweep::shared::make_again;
use parext4::models::simulated_time::sleep;
use parext4::{Device, Volume};
use parking_lot::Mutex;
use shuttle::thread;
use testkit::ops::read_tree;
use testkit::rng::Rng;

use crate::device::{Faults, SimulatedDevice};
use crate::power::Power;
use crate::profile::{ContractFault, Profile, random_time, time_of_cut, volume_options};
use crate::states::{Left, States};

/// The longest time until the power is cut: of a recovery, and of threads.
const RECOVERY: Duration = Duration::from_secs(1);
const LIFE: Duration = Duration::from_secs(120);
/// The longest pause of a thread.
const PAUSE: Duration = Duration::from_secs(60);

/// A run under way.
#[derive(Debug)]
pub struct Simulation {
    kind: &'static Kind,
    profile: Profile,
    threads: usize,
    rng: Rng,
    /// Histories so far.
    histories: u64,
    states: States,
}

/// The threads of a generation after they have run.
struct Lived {
    threads: Threads,
    /// Events before they began.
    first: usize,
    /// Events after the volume was closed, if it was.
    closed: Option<usize>,
    /// The errors of their calls.
    errors: Vec<String>,
}

impl Simulation {
    pub fn new(kind: &'static Kind, profile: Profile, threads: usize, rng: Rng) -> Self {
        let states = States::new(profile.contract_fault, kind.protects_metadata());
        Self { kind, profile, threads, rng, histories: 0, states }
    }

    /// Returns the number of states that were checked.
    pub fn states(&self) -> u64 {
        self.states.checked()
    }

    /// Simulates a generation on a volume. Returns the volume that it leaves, or `None` if none can
    /// follow, because the device has broken its contract.
    ///
    /// # Panics
    /// If a promise is broken.
    pub fn generation(&mut self, left: Left) -> Option<Left> {
        let device = SimulatedDevice::new(&left.image, self.profile, self.rng.next());
        let mut power = Power::new(&device);
        if self.rng.chance(25) {
            power.cut_after(time_of_cut(&mut self.rng, RECOVERY));
        }
        device.set_faults(self.profile.contract_fault == ContractFault::None && self.rng.chance(30));
        let options = volume_options(&mut self.rng);
        let opened = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &options);
        power.keep();
        device.set_faults(false);
        let left = match opened {
            Ok(volume) if !device.is_off() => {
                let is_timed = options.commit_interval.is_some();
                let lived = self.live(&device, &mut power, (volume, is_timed), &left);
                power.end();
                self.check_history(&device, lived, left)?
            }
            opened => {
                if let Err(error) = &opened
                    && !device.is_off()
                    && !device.faults().any()
                {
                    self.fail(&format!("the volume does not open: {error}"));
                }
                drop(opened);
                power.end();
                self.check_recovery(&device, left)
            }
        };
        Some(left)
    }

    /// Runs threads on an open volume, with timed commits if `is_timed`, until they end or the
    /// power is cut.
    fn live(
        &mut self,
        device: &Arc<SimulatedDevice>,
        power: &mut Power,
        (volume, is_timed): (Volume, bool),
        left: &Left,
    ) -> Lived {
        let found = read_tree(&volume, "").unwrap_or_else(|error| self.fail(&error));
        left.tree.compare(&found).unwrap_or_else(|error| self.fail(&format!("opened again: {error}")));
        make_again(&volume, self.kind.has_extents())
            .and_then(|()| volume.sync())
            .unwrap_or_else(|error| self.fail(&format!("the shared files: {error}")));
        let first = device.recorder().events();
        let start = Start::found(&found, self.threads, self.histories);
        let recorder = device.recorder();
        let mut threads = Threads::plan(self.kind, &start, recorder, is_timed, &mut self.rng);
        self.histories += 1;
        device.set_faults(true);
        if self.rng.chance(80) {
            power.cut_after(time_of_cut(&mut self.rng, LIFE));
        }
        let mut errors = run(&mut threads, &volume, device, self.rng.next());
        let mut closed = None;
        if self.rng.chance(50) {
            match threads.close(volume, device.recorder()) {
                Ok(events) => closed = Some(events),
                Err(error) => errors.push(format!("close: {error}")),
            }
        } else {
            drop(volume);
        }
        self.check_errors(device, &errors, closed.is_some());
        Lived { threads, first, closed, errors }
    }

    /// Checks that calls fail only if the device does, and that they do then.
    fn check_errors(&self, device: &SimulatedDevice, errors: &[String], is_closed: bool) {
        let faults: Faults = device.faults();
        if let Some(error) = errors.first()
            && !device.is_off()
            && !faults.any()
        {
            self.fail(&format!("a call failed on a device that works: {error}"));
        }
        if faults.changes > 0 && errors.is_empty() && is_closed {
            self.fail("a write or a flush failed, and no call, nor the close, returned an error");
        }
    }

    fn check_history(&mut self, device: &SimulatedDevice, lived: Lived, left: Left) -> Option<Left> {
        device.cut_power();
        let Lived { threads, first, closed, errors } = lived;
        let recording = Recording::new(left.image, device.recorder());
        let history: History = threads.into_history(recording, first, closed);
        let checked = self.states.check(&history, device.faults(), &mut self.rng);
        match checked {
            Ok(left) => left,
            Err(error) => self.fail(&format!("{error}\n{}\nerrors: {errors:?}", history.describe())),
        }
    }

    fn check_recovery(&mut self, device: &SimulatedDevice, left: Left) -> Left {
        device.cut_power();
        let recording = Recording::new(left.image, device.recorder());
        self.states
            .check_recovery(&recording, left.tree, &mut self.rng)
            .unwrap_or_else(|error| self.fail(&format!("a recovery that was interrupted: {error}")))
    }

    fn fail(&self, error: &str) -> ! {
        panic!("{}, history {}, {:?}: {error}", self.kind.name, self.histories, self.profile)
    }
}

/// Runs the threads on a volume. Returns the errors of their calls.
fn run(threads: &mut Threads, volume: &Volume, device: &SimulatedDevice, seed: u64) -> Vec<String> {
    let rng = Mutex::new(Rng::new(seed, 6));
    let pause = || {
        let time = {
            let mut rng = rng.lock();
            if rng.chance(60) { None } else { Some(random_time(&mut rng, PAUSE)) }
        };
        time.into_iter().for_each(sleep);
    };
    thread::scope(|scope| {
        let work = threads.work(volume, device.recorder(), &pause);
        let running: Vec<_> = work.into_iter().map(|work| scope.spawn(work)).collect();
        running.into_iter().filter_map(|thread| thread.join().expect("no thread panics").err()).collect()
    })
}

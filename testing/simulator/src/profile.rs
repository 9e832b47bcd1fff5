//! The choices of a run: the times and the faults of the device, and the options of the volume.

use std::time::Duration;

use crash_sweep::kind::options;
use parext4::VolumeOptions;
use testkit::rng::Rng;

const MICROSECOND: u64 = 1000;
const MILLISECOND: u64 = 1000 * MICROSECOND;
const SECOND: u64 = 1000 * MILLISECOND;

/// How a device breaks its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContractFault {
    /// It keeps it.
    None,
    /// A read returns metadata with a changed bit.
    FlippedRead,
    /// A bit of metadata at its home location changes on the device.
    Decay,
    /// A write changes other sectors, or a read returns them.
    Misdirection,
    /// A write or a flush succeeds and has no effect.
    LostWrite,
}

/// How a device of a run behaves.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The least and the greatest time of a request that does not stall, in nanoseconds.
    time: (u64, u64),
    /// One in this number of requests stalls.
    stall_one_in: u64,
    /// One in this number of requests fails, if any does.
    pub fail_one_in: Option<u64>,
    /// How it breaks its contract.
    pub contract_fault: ContractFault,
}

impl Profile {
    /// Returns a random profile.
    pub fn random(rng: &mut Rng) -> Self {
        let times = [
            (MICROSECOND, 100 * MICROSECOND),
            (50 * MICROSECOND, 10 * MILLISECOND),
            (MILLISECOND, 500 * MILLISECOND),
        ];
        let contract_faults = [
            ContractFault::FlippedRead,
            ContractFault::Decay,
            ContractFault::Misdirection,
            ContractFault::LostWrite,
        ];
        let (time, stall_one_in) = (*pick(rng, &times), *pick(rng, &[100, 1000, 10_000]));
        let (fail_one_in, contract_fault) = match rng.below(100) {
            0..15 => (Some(*pick(rng, &[30, 100, 300])), ContractFault::None),
            15..40 => (None, *pick(rng, &contract_faults)),
            _ => (None, ContractFault::None),
        };
        Self { time, stall_one_in, fail_one_in, contract_fault }
    }

    /// Returns the time of a request: most often short, and now and then up to ten minutes.
    pub fn latency(&self, rng: &mut Rng) -> Duration {
        let (least, most) =
            if rng.below(self.stall_one_in) == 0 { (SECOND, 600 * SECOND) } else { self.time };
        Duration::from_nanos(least - 1 + rng.log_uniform(most - least))
    }
}

/// Returns random options of a volume: with and without timed commits and write-back, with little
/// memory and with enough.
pub fn volume_options(rng: &mut Rng) -> VolumeOptions {
    let seconds =
        |rng: &mut Rng| pick(rng, &[None, Some(5.0), Some(5.0), Some(0.1)]).map(Duration::from_secs_f64);
    options()
        .commit_interval(seconds(rng))
        .write_back_interval(seconds(rng))
        .cache_idle(pick(rng, &[None, Some(60)]).map(Duration::from_secs))
        .cache_bytes(*pick(rng, &[256 << 10, 1 << 20]))
        .metadata_cache_bytes(*pick(rng, &[64 << 10, 16 << 20]))
        .explain(rng.chance(20))
}

/// Returns one of `values`.
pub fn pick<'a, T>(rng: &mut Rng, values: &'a [T]) -> &'a T {
    &values[usize::try_from(rng.below(values.len() as u64)).expect("below a length")]
}

/// Returns a time after which the power is cut: half of them uniform, the rest uniform on a
/// logarithmic scale.
pub fn time_of_cut(rng: &mut Rng, longest: Duration) -> Duration {
    if rng.chance(50) {
        random_time(rng, longest)
    } else {
        longest * u32::try_from(rng.below(1000)).expect("below") / 1000
    }
}

/// Returns a time from a microsecond to `longest`, uniform on a logarithmic scale.
pub fn random_time(rng: &mut Rng, longest: Duration) -> Duration {
    let microseconds = u64::try_from(longest.as_micros()).expect("less than a year");
    Duration::from_micros(rng.log_uniform(microseconds))
}

//! Finds the latency of a simulated device with which the engine reaches the rate that a source
//! measured before its change.

use std::time::Duration;

use anyhow::Result;
use parext4::Policy;

use crate::engine::Engine;
use crate::outcome::Outcome;

/// The engine before the change: one write at a time.
pub const BEFORE: Engine = Engine { policy: Policy::Exclusive, ..Engine::DEFAULT };

/// Returns the latency with which `run` performs `rate` sequential operations per second; 0 if the
/// rate cannot be reached.
pub fn latency(rate: f64, mut run: impl FnMut(Duration) -> Result<Outcome>) -> Result<Duration> {
    const TRIES: u32 = 4;
    const NEAR: f64 = 0.02;
    let period = 1.0 / rate;
    let mut latency = period;
    for _ in 0..TRIES {
        let found = 1.0 / run(Duration::from_secs_f64(latency))?.iops();
        latency = (latency + period - found).max(0.0);
        if (found / period - 1.0).abs() < NEAR {
            break;
        }
    }
    Ok(Duration::from_secs_f64(latency))
}

//! The storage: how long its requests take.

use std::time::Duration;

use testkit::rng::Rng;

/// The storage that all volumes are on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Storage {
    /// Begin and end of a time without answers.
    pub outage: Option<(Duration, Duration)>,
}

impl Storage {
    /// Returns when a request is done that begins at `start`: after 1 to 20 ms, or after the outage
    /// that it meets.
    pub fn done(&self, start: Duration, rng: &mut Rng) -> Duration {
        let done = start + Duration::from_millis(rng.log_uniform(20));
        match self.outage {
            Some((begin, end)) if done >= begin && start < end => end + (done - start),
            _ => done,
        }
    }
}

//! The thread that logs slow requests, and runs another check with the same interval.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::InFlightRequests;

/// Interval between two checks.
const INTERVAL: Duration = Duration::from_secs(10);

/// Logs each slow request once. Dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread, which also calls `check` each time.
    pub fn start(
        requests: Arc<InFlightRequests>,
        mut check: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let watch = move || {
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for request in requests.slow_and_unlogged(Instant::now()) {
                    log::warn!("slow request: {request}");
                }
                check();
            }
        };
        let thread = std::thread::Builder::new().name("parext4-watchdog".into()).spawn(watch)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("the watchdog thread panicked");
        }
    }
}

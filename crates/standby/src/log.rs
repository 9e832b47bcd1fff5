//! [`Log`]: logs the state of a standby and its observations, one line for each change.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::time::Duration;

use log::{info, warn};

use crate::poll_result::PollResult;
use crate::watch::{Gone, POLL, Verdict};

/// The log of one standby.
#[derive(Debug)]
pub(crate) struct Log {
    name: OsString,
    last: Option<PollResult>,
    /// Whether the latest poll failed.
    poll_failed: bool,
    /// Whether an attempt to take the volume over failed, and the owner has given no sign of life
    /// since.
    takeover_failed: bool,
    /// Whether the log says that the owner is silent.
    is_silent: bool,
}

impl Log {
    pub(crate) fn new(name: &OsStr) -> Self {
        Self {
            name: name.to_owned(),
            last: None,
            poll_failed: false,
            takeover_failed: false,
            is_silent: false,
        }
    }

    /// Returns true if a poll has succeeded.
    pub(crate) fn has_seen(&self) -> bool {
        self.last.is_some()
    }

    /// Logs a poll after which the standby keeps waiting.
    pub(crate) fn saw(&mut self, poll_result: &PollResult, verdict: Verdict) {
        let name = self.name.display();
        if std::mem::take(&mut self.poll_failed) {
            info!("{name}: can be read again; the wait for a sign of life starts again");
        }
        if !self.last.as_ref().is_some_and(|last| last.has_owner_of(poll_result)) {
            info!("{name}: standing by; owner: {poll_result}; polled every {POLL:?}{}", until(poll_result));
            self.is_silent = false;
            self.takeover_failed = false;
        }
        self.saw_silence(poll_result, verdict);
        self.last = Some(poll_result.clone());
    }

    fn saw_silence(&mut self, poll_result: &PollResult, verdict: Verdict) {
        let (name, silent) = (self.name.display(), evidence(verdict));
        let is_long = poll_result.wait().is_some_and(|wait| silent > wait / 2);
        // The wait may have started again without a sign of life.
        let is_alive = self.last.as_ref().is_some_and(|last| last.mmp != poll_result.mmp);
        if is_long && !self.is_silent {
            warn!(
                "{name}: no sign of life for {}; owner: {poll_result}{}",
                Seconds(silent),
                until(poll_result)
            );
            self.is_silent = true;
        } else if is_alive {
            if std::mem::take(&mut self.is_silent) {
                info!("{name}: the owner is alive: {poll_result}");
            }
            self.takeover_failed = false;
        }
    }

    /// Logs why the standby cannot take the volume from an owner that is gone.
    pub(crate) fn cannot_fence(&self, error: &dyn fmt::Display) {
        warn!(
            "{}: only a volume that its owner has closed can be taken over: {}",
            self.name.display(),
            self.plain(error)
        );
    }

    /// Returns the text of an error without the name of the device, because each line of the log
    /// begins with that name.
    fn plain(&self, error: &dyn fmt::Display) -> String {
        let (text, name) = (error.to_string(), format!("{}: ", self.name.display()));
        text.strip_prefix(&name).map_or(text.clone(), str::to_owned)
    }

    /// Logs the error of a poll, after which the standby retries.
    pub(crate) fn poll_failed(&mut self, error: &dyn fmt::Display) {
        if !std::mem::replace(&mut self.poll_failed, true) {
            warn!("{}: {}; trying again", self.name.display(), self.plain(error));
        }
    }

    /// Logs that the standby fences the owner and opens the volume. The log has one line for all
    /// attempts.
    pub(crate) fn takes_over(&mut self, gone: Gone, poll_result: &PollResult) {
        self.poll_failed = false;
        if !self.takeover_failed {
            info!("{}: taking over: {gone}; last owner: {poll_result}", self.name.display());
        }
    }

    /// Logs the error of an attempt to take over, after which the standby waits again.
    pub(crate) fn takeover_failed(&mut self, error: &dyn fmt::Display) {
        if !std::mem::replace(&mut self.takeover_failed, true) {
            warn!("{}: not taken over: {}; trying again", self.name.display(), self.plain(error));
        }
    }

    /// Logs that the volume is open, and the duration of the takeover.
    pub(crate) fn has_taken_over(&mut self, after: Duration) {
        info!(
            "{}: taken over in {}: the journal is replayed and the volume open",
            self.name.display(),
            Seconds(after)
        );
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the volume was closed"),
            Self::Silent(time) => write!(f, "no sign of life for {}", Seconds(*time)),
            Self::LockLapsed(time) => {
                write!(f, "the storage has not heard from the owner of the lock for {}", Seconds(*time))
            }
        }
    }
}

fn evidence(verdict: Verdict) -> Duration {
    match verdict {
        Verdict::Owned(silent) => silent,
        _ => Duration::ZERO,
    }
}

/// Returns a text that says when the volume is taken over.
fn until(poll_result: &PollResult) -> String {
    match poll_result.wait() {
        Some(wait) => format!("; taken over after {} without a sign of life", Seconds(wait)),
        None => String::new(),
    }
}

/// A duration in seconds, with one decimal.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

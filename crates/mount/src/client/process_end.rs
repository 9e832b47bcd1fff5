//! The end of another process, as an event to wait for.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The end of a process. Later processes with the same number are not mistaken for it.
#[derive(Debug)]
pub struct ProcessEnd(OwnedFd);

impl ProcessEnd {
    /// Returns the end of a process that runs; `None` if it has ended or the kernel cannot watch
    /// it.
    pub fn of(process: u32) -> Option<Self> {
        let pid = Pid::from_raw(process.try_into().ok()?)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    /// Blocks until the process has ended, for at most `time`. Returns false if it still runs.
    pub fn happens_within(&self, time: Duration) -> bool {
        let Ok(time) = Timespec::try_from(time) else { return false };
        let mut end = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut end, Some(&time)).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_end_of_a_process_is_noticed() {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let end = ProcessEnd::of(cat.id()).unwrap();
        assert!(!end.happens_within(Duration::from_millis(1)));
        drop(cat.stdin.take());
        assert!(end.happens_within(Duration::from_mins(1)));
        cat.wait().unwrap();
        assert!(ProcessEnd::of(u32::MAX).is_none());
    }
}

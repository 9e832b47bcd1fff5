//! Finds the holders of a mounted volume: other mounts of it in the caller's mount namespace, and
//! processes in other namespaces.
//!
//! The kernel lists the mounts of a namespace in `/proc/PID/mountinfo` of each process in it. Only
//! root sees all of them.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::connection::control::Connection;
use crate::connection::mounts;

/// Limit of processes that are named.
const MAX_NAMED: usize = 8;
/// Time limit of a search through `/proc`. Users may have any number of processes, namespaces and
/// mounts.
pub(super) const SEARCHES_FOR: Duration = Duration::from_secs(2);

/// The holders of a volume.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// True if the volume is mounted in the caller's namespace.
    pub here: bool,
    /// A process of each other namespace, with its name.
    processes: Vec<(u32, String)>,
}

impl Holders {
    /// Returns the holders of a FUSE connection; `None` if there are none. Does not search if
    /// `connection` has ended.
    pub fn of(number: &str, connection: Option<&Connection>) -> Option<Self> {
        if connection.is_some_and(|connection| !connection.exists()) {
            return None;
        }
        let holders = Self::find(number);
        (connection.is_some() || holders.here || !holders.processes.is_empty()).then_some(holders)
    }

    /// Finds the holders of the FUSE connection with the number `connection`, within
    /// [`SEARCHES_FOR`]. Reads one list for each namespace.
    fn find(connection: &str) -> Self {
        let holds = |mounts: std::io::Result<Vec<mounts::Mount>>| {
            mounts.is_ok_and(|mounts| {
                mounts.iter().any(|mount| mount.is_own() && mount.connection() == connection)
            })
        };
        let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let mut seen: HashSet<PathBuf> = namespace("self").into_iter().collect();
        let mut processes = Vec::new();
        let deadline = Instant::now() + SEARCHES_FOR;
        for process in all_processes().into_iter().take_while(|_| Instant::now() < deadline) {
            let is_new = namespace(&process.to_string()).is_some_and(|namespace| seen.insert(namespace));
            if is_new && holds(mounts::list_of(process)) {
                let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
                let name = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
                processes.push((process, name));
            }
        }
        Self { here: holds(mounts::list()), processes }
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.processes.is_empty() {
            return f.write_str("a mount namespace without processes, or open files");
        }
        f.write_str(if self.processes.len() == 1 {
            "the mount namespace of"
        } else {
            "the mount namespaces of"
        })?;
        for (nth, (process, name)) in self.processes.iter().take(MAX_NAMED).enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            // A process chooses its own name.
            write!(f, "{comma} process {process} ({})", name.escape_debug())?;
        }
        match self.processes.len().saturating_sub(MAX_NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Returns true if a process in another mount namespace holds the FUSE connection with the number
/// `connection`.
#[must_use]
pub fn is_held_elsewhere(connection: &str) -> bool {
    !Holders::find(connection).processes.is_empty()
}

/// Returns the processes that `/proc` lists, in the order of their numbers.
pub(super) fn all_processes() -> Vec<u32> {
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut processes: Vec<u32> =
        std::fs::read_dir(Path::new("/proc")).into_iter().flatten().flatten().filter_map(number).collect();
    processes.sort_unstable();
    processes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_described_on_one_line() {
        let holders = |count: u32| {
            let processes = (1..=count).map(|process| (process, format!("a\n{process}"))).collect();
            Holders { here: false, processes }.to_string()
        };
        assert_eq!(holders(1), "the mount namespace of process 1 (a\\n1)");
        assert_eq!(holders(2), "the mount namespaces of process 1 (a\\n1), process 2 (a\\n2)");
        assert!(holders(10).ends_with("process 8 (a\\n8) and 2 more"));
        assert!(Holders::of("no such number", None).is_none());
    }
}

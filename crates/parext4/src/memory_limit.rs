//! The memory that this process may use: the machine's memory, or the limit of its control group.
//!
//! Responsible for reading these numbers; which share a cache gets is decided where a volume is
//! opened. They are read at each open, so a limit that changes later does not affect an open
//! volume.
//!
//! Sources: proc_meminfo(5), cgroups(7), and the kernel's documentation of `memory.max`,
//! `memory.high` and `memory.limit_in_bytes`.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of memory to assume if the system does not tell.
const UNKNOWN: u64 = 1 << 30;
/// The mount point of the control groups, by the convention of systemd and of container runtimes.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Returns the bytes of memory that this process may use: the least of the machine's memory and the
/// limits of the process's control group and its ancestors (version 1 or 2).
pub(crate) fn memory() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let installed = read(Path::new("/proc/meminfo")).and_then(|text| installed(&text));
    let limit = read(Path::new("/proc/self/cgroup")).and_then(|groups| {
        limit_files(&groups).iter().filter_map(|path| read(path)?.trim().parse().ok()).min()
    });
    [installed, limit].into_iter().flatten().min().unwrap_or(UNKNOWN)
}

/// Returns the installed memory, in bytes, from the text of `/proc/meminfo`.
fn installed(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Returns the files that may hold a limit, from the text of `/proc/self/cgroup`. A file that does
/// not exist or contains "max" sets no limit.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (below, names): (_, &[_]) = match controllers {
            "" => ("", &["memory.max", "memory.high"]),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("memory", &["memory.limit_in_bytes"])
            }
            _ => continue,
        };
        let root = Path::new(CONTROL_GROUPS).join(below);
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            files.extend(names.iter().map(|name| root.join(group).join(name)));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_of_machine_and_group_counts() {
        assert_eq!(installed("MemTotal:       24603640 kB\nMemFree: 1 kB\n"), Some(24_603_640 << 10));
        assert_eq!(installed("nothing"), None);
        assert!(memory() >= 16 << 20, "of this machine");
    }

    #[test]
    fn limits_of_a_group_and_of_its_ancestors_are_looked_for() {
        let files =
            |text| limit_files(text).iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        let second = files("0::/user.slice/me\n");
        assert!(second.contains(&"/sys/fs/cgroup/user.slice/me/memory.max".to_owned()), "{second:?}");
        assert!(second.contains(&"/sys/fs/cgroup/memory.high".to_owned()), "{second:?}");
        let first = files("5:cpu,cpuacct:/a\n4:memory:/b/c\n");
        assert_eq!(first.len(), 3);
        assert_eq!(first[0], "/sys/fs/cgroup/memory/b/c/memory.limit_in_bytes");
        assert_eq!(first[2], "/sys/fs/cgroup/memory/memory.limit_in_bytes");
    }
}

//! The memory that this process may use: that of the machine, or less in a control group.
//!
//! The defaults of the caches are shares of it. It is read when a volume is opened; a limit that changes later has no
//! effect on an open volume.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory to assume where the system does not say how much there is, in bytes.
const UNKNOWN: u64 = 1 << 30;
/// Where the kernel mounts the control groups, by the convention of systemd and of container runtimes.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Returns the bytes of memory that this process may use: the machine's memory or the lowest limit of the process's
/// control group and its ancestors (version 1 or 2), whichever is less.
pub(crate) fn memory() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let installed = read(Path::new("/proc/meminfo")).and_then(|text| installed(&text));
    let limit = read(Path::new("/proc/self/cgroup")).and_then(|groups| {
        limit_files(&groups).iter().filter_map(|path| read(path)?.trim().parse().ok()).min()
    });
    [installed, limit].into_iter().flatten().min().unwrap_or(UNKNOWN)
}

/// Returns what the text of `/proc/meminfo` says of the memory installed, in bytes.
fn installed(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Returns the files that may hold a limit, for the text of `/proc/self/cgroup`. A file that does not exist, or that
/// says "max", sets no limit.
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

//! Puts this process into a memory control group (version 1 or 2) during a run. The group limits
//! the kernel's page cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Where the kernel mounts the control groups, by the convention of systemd and of container
/// runtimes.
const MOUNT_POINT: &str = "/sys/fs/cgroup";

/// The control group of this process, and the directory for new groups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupDir {
    dir: PathBuf,
    /// The directory for new groups. In version 2 a group with limits has no sibling processes in
    /// its parent, so new groups are made beside this process's own.
    parent: PathBuf,
    /// The file that holds a group's limit in bytes.
    limit: &'static str,
}

/// A group that this process is in. Dropping it returns the process to its former group and removes
/// the group.
#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
    former: PathBuf,
}

impl MemoryGroup {
    /// Moves this process to a new group. From now on its threads use at most `limit` bytes of
    /// memory, including the pages that they bring into the kernel's page cache.
    ///
    /// # Errors
    /// If there is no controller for memory, or this process may not use it.
    pub fn enter(limit: u64) -> Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").context("/proc/self/cgroup")?;
        let own = own_group(&groups).context("the kernel has no control groups for memory")?;
        let dir = own.parent.join(format!("parext4-bench-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        // From here on, dropping the group removes it.
        let group = Self { dir, former: own.dir };
        let path = group.dir.join(own.limit);
        if !path.exists() {
            bail!("{}: the parent group does not control memory", path.display());
        }
        fs::write(&path, limit.to_string()).with_context(|| path.display().to_string())?;
        move_to(&group.dir)?;
        Ok(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let removed = move_to(&self.former)
            .and_then(|()| fs::remove_dir(&self.dir).with_context(|| self.dir.display().to_string()));
        if let Err(error) = removed {
            eprintln!("parext4: cannot leave and remove a control group: {error:#}");
        }
    }
}

/// Moves all threads of this process to a group.
fn move_to(group: &Path) -> Result<()> {
    let path = group.join("cgroup.procs");
    fs::write(&path, std::process::id().to_string()).with_context(|| path.display().to_string())
}

/// Returns the group of this process according to the text of `/proc/self/cgroup`. A hierarchy of
/// version 1 that has the memory controller takes precedence, because version 2 has no such
/// controller then.
fn own_group(groups: &str) -> Option<GroupDir> {
    let fields = |line: &'_ str| -> Option<(String, String)> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        Some((controllers.into(), path.trim_start_matches('/').into()))
    };
    let all: Vec<(String, String)> = groups.lines().filter_map(fields).collect();
    let first = all.iter().find(|(controllers, _)| controllers.split(',').any(|name| name == "memory"));
    let second = all.iter().find(|(controllers, _)| controllers.is_empty());
    let mount_point = Path::new(MOUNT_POINT);
    let (root, path, limit) = match (first, second) {
        (Some((_, path)), _) => (mount_point.join("memory"), path, "memory.limit_in_bytes"),
        (None, Some((_, path))) => (mount_point.to_owned(), path, "memory.max"),
        (None, None) => return None,
    };
    let parent = Path::new(path).parent().map_or_else(|| root.clone(), |parent| root.join(parent));
    Some(GroupDir { dir: root.join(path), parent, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_groups_are_siblings() {
        let found = |text| {
            own_group(text)
                .map(|own| (own.dir.display().to_string(), own.parent.display().to_string(), own.limit))
        };
        let expected = |dir: &str, parent: &str, limit| Some((dir.to_owned(), parent.to_owned(), limit));
        assert_eq!(
            found("4:cpu,memory:/a/b\n0::/a\n"),
            expected("/sys/fs/cgroup/memory/a/b", "/sys/fs/cgroup/memory/a", "memory.limit_in_bytes")
        );
        assert_eq!(
            found("1:cpu:/\n0::/user.slice/me.scope\n"),
            expected("/sys/fs/cgroup/user.slice/me.scope", "/sys/fs/cgroup/user.slice", "memory.max")
        );
        assert_eq!(found("0::/\n"), expected("/sys/fs/cgroup/", "/sys/fs/cgroup", "memory.max"));
        assert_eq!(found("1:cpu:/\n"), None);
    }

    #[test]
    fn this_process_is_back_where_it_was_afterwards() {
        let groups = || fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let before = groups();
        let Ok(group) = MemoryGroup::enter(1 << 30) else { return };
        let dir = group.dir.clone();
        assert!(groups() != before && dir.exists());
        drop(group);
        assert!(groups() == before && !dir.exists());
    }
}

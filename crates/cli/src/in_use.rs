//! Finds what uses an image or a block device: mounts, swap, loop devices, partitions, and devices
//! stacked on it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use parext4_mount::lock_holder;
use parext4_mount::mounts::{self, Mount};

use crate::error::printable;

/// Describes the first use of the image or block device at `path` that the kernel knows, such as
/// `mounted on /mnt`. Returns `None` if there is none, or the kernel does not say.
pub fn describe(path: &Path) -> Option<String> {
    let metadata = path.metadata().ok()?;
    let users = Users { mounts: mounts::list().unwrap_or_default(), swaps: swaps() };
    let path = path.canonicalize().ok()?;
    if metadata.file_type().is_block_device() {
        return users.of_device(&path, &number_of(metadata.rdev()));
    }
    users.of_path(&path).or_else(|| users.of_loop_file(&path)).or_else(|| locked(&path))
}

/// Names the process that has locked an image. Any user that may read the image can.
fn locked(path: &Path) -> Option<String> {
    let process = lock_holder(path)?;
    let user = fs::metadata(format!("/proc/{process}")).ok()?.uid();
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    Some(format!("locked by process {process} ({}) of user {user}", printable(name.trim_end())))
}

/// The kernel's lists of what is in use.
struct Users {
    mounts: Vec<Mount>,
    /// Files and block devices.
    swaps: Vec<PathBuf>,
}

impl Users {
    fn of_path(&self, path: &Path) -> Option<String> {
        // All of them: a server that opens its image again is one.
        let mounts = self.mounts.iter().filter(|mount| mount.source == path);
        let dirs: Vec<_> = mounts.map(|mount| mount.dir.display().to_string()).collect();
        if !dirs.is_empty() {
            return Some(format!("mounted on {}", dirs.join(" and ")));
        }
        self.swaps.iter().any(|swap| swap == path).then(|| "swap space".to_owned())
    }

    /// Describes the use of a block device: its own, one of its partitions, or one of a device
    /// stacked on it.
    fn of_device(&self, path: &Path, number: &str) -> Option<String> {
        let mount = self.mounts.iter().find(|mount| mount.device == number);
        if let Some(user) = mount.map(mounted).or_else(|| self.of_path(path)) {
            return Some(user);
        }
        let sys = Path::new("/sys/dev/block").join(number);
        let mut partitions = children(&sys).filter(|dir| dir.join("partition").exists());
        let used_partition = partitions.find_map(|dir| self.of_part(&dir, "its partition"));
        used_partition.or_else(|| {
            let holder = children(&sys.join("holders")).next()?;
            let name = holder.file_name()?.display().to_string();
            Some(self.of_part(&holder, "part of").unwrap_or_else(|| format!("part of /dev/{name}")))
        })
    }

    /// Describes the use of the device whose directory in sysfs is `sys`.
    fn of_part(&self, sys: &Path, relation: &str) -> Option<String> {
        let path = Path::new("/dev").join(sys.file_name()?);
        let number = fs::read_to_string(sys.join("dev")).ok()?;
        let user = self.of_device(&path, number.trim())?;
        Some(format!("{relation} {}, which is {user}", path.display()))
    }

    /// Describes the loop device whose backing file is `path`.
    fn of_loop_file(&self, path: &Path) -> Option<String> {
        let sys = children(Path::new("/sys/block")).find(|sys| {
            let backing = fs::read(sys.join("loop/backing_file")).unwrap_or_default();
            backing.strip_suffix(b"\n").is_some_and(|backing| backing == path.as_os_str().as_encoded_bytes())
        })?;
        let device = format!("attached to /dev/{}", sys.file_name()?.display());
        Some(self.of_part(&sys, "attached to").unwrap_or(device))
    }
}

fn mounted(mount: &Mount) -> String {
    format!("mounted on {}", mount.dir.display())
}

/// Returns the files and block devices that are swap space.
fn swaps() -> Vec<PathBuf> {
    let text = fs::read("/proc/swaps").unwrap_or_default();
    let lines = text.split(|&byte| byte == b'\n').skip(1);
    let first = |line: &[u8]| line.split(|&byte| byte == b' ' || byte == b'\t').next().map(mounts::unescape);
    lines.filter_map(first).map(PathBuf::from).collect()
}

/// Returns the entries of a directory in sysfs, sorted; none if it does not exist.
fn children(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter()
}

/// Returns the device number as the kernel writes it, `MAJOR:MINOR`.
fn number_of(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

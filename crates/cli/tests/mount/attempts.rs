//! Operations of several users on several kinds of files and directories, on a mount and on the
//! kernel's ext4. A mount must refuse what the kernel's ext4 refuses, and otherwise have the same
//! effect.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use testkit::fuse_mount::{FuseMount, tool, until};
use testkit::kernel_mount::KernelMount;

const SCRIPT: &str = include_str!("attempts.py");

/// Maps each attempt and its user to the error and the changes.
type Attempts = BTreeMap<String, (String, String)>;

fn attempts(dir: &Path, subject: &str) -> Option<Attempts> {
    std::fs::set_permissions(dir, Permissions::from_mode(0o777)).unwrap();
    let said = tool(Command::new("python3").args(["-c", SCRIPT]).arg(dir).arg(subject))?;
    let parsed = said.lines().map(|line| {
        let (attempt, outcome) = line.rsplit_once(": ").unwrap();
        let (error, changes) = outcome.split_once("; ").unwrap_or((outcome, ""));
        (attempt.to_owned(), (error.to_owned(), changes.to_owned()))
    });
    Some(parsed.collect())
}

fn succeeds(error: &str) -> bool {
    error == "0" || error.starts_with("0 ")
}

/// Runs the attempts of a subject on both, and compares the results.
fn compare(subject: &str, least: usize) {
    let Some(kernel) = KernelMount::mounted(&[], "noatime") else { return };
    let Some(fuse) = FuseMount::mounted(&[], "allow_other,suid,dev") else { return };
    for dir in [fuse.scratch().path("."), kernel.path().join("..")] {
        std::fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
    let (ours, theirs) = std::thread::scope(|scope| {
        let ours = scope.spawn(|| attempts(fuse.dir(), subject));
        let theirs = attempts(&kernel.path(), subject);
        (ours.join().unwrap(), theirs)
    });
    let (Some(ours), Some(theirs)) = (ours, theirs) else { return };
    assert!(ours.len() == theirs.len() && ours.len() >= least, "{} and {}", ours.len(), theirs.len());
    let differing = theirs.iter().filter_map(|(attempt, theirs)| {
        let ours = &ours[attempt];
        let is_same = if succeeds(&theirs.0) { ours == theirs } else { ours.1 == theirs.1 };
        (!is_same).then(|| format!("{attempt}:\n    ext4: {theirs:?}\n    ours: {ours:?}"))
    });
    let differing: Vec<_> = differing.collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    fuse.finish();
}

#[test]
fn contents_are_changed_by_the_users_that_ext4_permits() {
    compare("contents", 400);
}

#[test]
fn names_are_changed_by_the_users_that_ext4_permits() {
    compare("names", 900);
}

#[test]
fn attributes_are_changed_by_the_users_that_ext4_permits() {
    compare("attributes", 700);
}

#[test]
fn commands_are_carried_out_for_whom_ext4_carries_them_out() {
    compare("commands", 200);
}

/// Stores to a mapping of a file that was opened with `O_RDWR` and the given flags, and optionally
/// becomes immutable then.
const MAP: &str = r#"
import mmap, os, subprocess, sys
path, flags, later = sys.argv[1], int(sys.argv[2]), sys.argv[3]
fd = os.open(path, os.O_RDWR | flags)
memory = mmap.mmap(fd, 4096)
if later:
    subprocess.run(["chattr", later, path], check=True)
memory[:4] = b"page"
try:
    memory.flush()
    print("stored")
except OSError as error:
    print(error.errno)
"#;

#[test]
fn protected_files_are_not_overwritten_through_a_mapping() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let contents = vec![b'x'; 4096];
    let append = libc::O_APPEND.to_string();
    for (name, before, flags, later) in [("log", "+a", &append[..], ""), ("fixed", "-i", "0", "+i")] {
        let path = fuse.path(name);
        std::fs::write(&path, &contents).unwrap();
        if tool(Command::new("chattr").arg(before).arg(&path)).is_none() {
            return;
        }
        let stored =
            fuse.watched(|| tool(Command::new("python3").args(["-c", MAP]).arg(&path).args([flags, later])));
        let Some(stored) = stored else { return };
        assert_eq!(stored, "1\n", "{name}: EPERM");
        // The kernel drops the page shortly afterwards.
        assert!(until(|| std::fs::read(&path).unwrap() == contents), "{name}");
        tool(Command::new("chattr").arg("-ai").arg(&path));
        assert_eq!(std::fs::read(&path).unwrap(), contents, "{name}");
    }
    let error = fuse.umount_loses_changes();
    assert!(error.contains("/log and 1 other file: operation not permitted"), "{error}");
    fuse.scratch().fsck();
}

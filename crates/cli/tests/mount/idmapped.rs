//! Idmapped mounts, on a mount and on the kernel's ext4.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use testkit::command::run;
use testkit::fuse_mount::{FuseMount, errors};
use testkit::kernel_mount::KernelMount;

const SCRIPT: &str = include_str!("idmapped.py");

/// Runs the script's operations on a mount and on an idmapped clone of it. Prints a notice and
/// returns `None` without Python.
fn operate(dir: &Path) -> Option<Output> {
    let output = Command::new("python3").args(["-c", SCRIPT]).arg(dir).output();
    if output.is_err() {
        testkit::skipped("python3 is not installed");
    }
    output.ok()
}

/// Returns true for documented differences: an owner cannot change flags, and a truncation by a
/// member of the file's group clears set-group-ID without execution by the group.
fn is_documented(line: &str) -> bool {
    line.contains(" nodump of") && line.ends_with(": 1")
        || line.contains(" leaves setgid-of") && line.ends_with(": 100766")
}

#[test]
fn a_mapped_mount_translates_owners_as_ext4_does() {
    let Some(kernel) = KernelMount::mounted(&[], "noatime") else { return };
    std::fs::set_permissions(kernel.path().join(".."), Permissions::from_mode(0o755)).unwrap();
    let Some(theirs) = operate(&kernel.path()) else { return };
    if errors(&theirs).starts_with("idmap: ") {
        testkit::skip_allowed("the kernel maps no users here");
        return;
    }
    assert!(theirs.status.success(), "{}", errors(&theirs));
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    for cache in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let options = format!("allow_other,suid,idmap,{cache}");
        let Some(fuse) = FuseMount::mounted(&[], &options) else { return };
        std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
        let Some(ours) = fuse.watched(|| operate(fuse.dir())) else { return };
        assert!(ours.status.success(), "{cache}: {}", errors(&ours));
        let ours = String::from_utf8(ours.stdout).unwrap();
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{cache}");
        let differing = ours.lines().zip(theirs.lines()).filter(|(ours, theirs)| ours != theirs);
        let undocumented: Vec<_> = differing.filter(|(ours, _)| !is_documented(ours)).collect();
        assert_eq!(undocumented, [], "{cache}");
        fuse.finish();
    }
}

/// Without `allow_other` only the owner may use a mount, and with `idmap` a request does not name
/// its user.
#[test]
fn the_option_needs_allow_other() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let command = fuse.mount_command("idmap");
    let output = run(&command.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!output.status.success());
    let error = errors(&output);
    assert!(error.contains("\"idmap\" is not supported: it needs \"allow_other\""), "{error}");
    assert!(!fuse.is_mounted());
}

#[test]
fn a_mount_without_the_option_refuses_to_be_mapped() {
    let Some(fuse) = FuseMount::mounted(&[], "allow_other") else { return };
    let Some(output) = operate(fuse.dir()) else { return };
    assert_eq!(errors(&output).trim_end(), format!("idmap: {}", libc::EINVAL));
    fuse.finish();
}

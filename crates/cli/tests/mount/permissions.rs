//! Permissions, access control lists and attributes, for programs without root's privileges.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, setxattr};

use testkit::fuse_mount::FuseMount;

const UNPRIVILEGED: u32 = 65534;
const OWNER: u32 = 1000;

/// Returns true if a shell script succeeds as a user. Prints a notice and returns `None` if it
/// cannot run.
fn can(user: u32, script: &str, path: &Path) -> Option<bool> {
    let user = user.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c", script]).arg(path);
    let Ok(output) = command.output() else {
        testkit::skipped("setpriv is not installed");
        return None;
    };
    Some(output.status.success())
}

/// Returns a mount that all users may use.
fn open_to_others() -> Option<FuseMount> {
    let fuse = FuseMount::mounted(&[], "allow_other")?;
    std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
    Some(fuse)
}

/// Returns an access control list in the form of the system call: read and write for the owner,
/// read for the group, `permissions` for one user, nothing for the rest.
fn list(user: u32, permissions: u16) -> Vec<u8> {
    let entries =
        [(1, 6, u32::MAX), (2, permissions, user), (4, 4, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(permissions));
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

#[test]
fn access_control_lists_are_enforced_and_inherited() {
    let Some(fuse) = open_to_others() else { return };
    let dir = fuse.path("dir");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("file"), "contents").unwrap();
    std::fs::set_permissions(dir.join("file"), Permissions::from_mode(0o640)).unwrap();
    let Some(reads) = can(UNPRIVILEGED, "cat $0", &dir.join("file")) else { return };
    assert!(!reads);
    setxattr(dir.join("file"), "system.posix_acl_access", &list(UNPRIVILEGED, 4), XattrFlags::empty())
        .unwrap();
    assert_eq!(std::fs::metadata(dir.join("file")).unwrap().mode() & 0o777, 0o670, "the mask is the group's");
    assert_eq!(can(UNPRIVILEGED, "cat $0", &dir.join("file")), Some(true));
    assert_eq!(can(UNPRIVILEGED, "echo more >> $0", &dir.join("file")), Some(false));
    assert_eq!(can(OWNER, "cat $0", &dir.join("file")), Some(false));

    setxattr(&dir, "system.posix_acl_default", &list(UNPRIVILEGED, 6), XattrFlags::empty()).unwrap();
    std::fs::write(dir.join("child"), "contents").unwrap();
    assert_eq!(can(UNPRIVILEGED, "echo more >> $0", &dir.join("child")), Some(true));
    std::fs::create_dir(dir.join("sub")).unwrap();
    let mut value = [0_u8; 256];
    let len = getxattr(dir.join("sub"), "system.posix_acl_default", &mut value[..]).unwrap();
    assert_eq!(value[..len], list(UNPRIVILEGED, 6));
    fuse.finish();
}

/// Sets an access list that has too many entries for the attributes of an inode.
const TOO_LONG: &str = "
import errno, os, struct, sys
entry = lambda tag, permissions, id=0xffffffff: struct.pack('<HHI', tag, permissions, id)
users = b''.join(entry(2, 7, user) for user in range(1, 506))
value = struct.pack('<I', 2) + entry(1, 7) + users + entry(4, 7) + entry(16, 7) + entry(32, 5)
try:
    os.setxattr(sys.argv[1], 'system.posix_acl_access', value)
except OSError as error:
    sys.exit(error.errno != errno.ENOSPC)
sys.exit('the list fits')
";

/// The list lets more users execute the file, with the rights of its group, to which the owner does
/// not belong.
#[test]
fn set_group_id_goes_before_an_access_list_takes_effect() {
    let Some(fuse) = open_to_others() else { return };
    let path = fuse.path("program");
    std::fs::write(&path, "contents").unwrap();
    chown(&path, Some(OWNER), Some(7)).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o2750)).unwrap();
    let Some(is_refused) = can(OWNER, &format!("python3 -c \"{TOO_LONG}\" $0"), &path) else { return };
    assert!(is_refused);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o750);
    fuse.finish();
}

#[test]
fn a_sticky_directory_keeps_names_for_their_owners() {
    let Some(fuse) = open_to_others() else { return };
    let dir = fuse.path("tmp");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, Permissions::from_mode(0o1777)).unwrap();
    let Some(made) = can(OWNER, "umask 0; echo x > $0", &dir.join("file")) else { return };
    assert!(made);
    let metadata = std::fs::metadata(dir.join("file")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (OWNER, OWNER, 0o666));
    assert_eq!(can(UNPRIVILEGED, "echo y >> $0", &dir.join("file")), Some(true));
    for script in ["rm -f $0", "mv $0 $0.new", "chmod 600 $0", "touch -d 2000-01-01 $0"] {
        assert_eq!(can(UNPRIVILEGED, script, &dir.join("file")), Some(false), "{script}");
    }
    assert_eq!(can(OWNER, "rm $0", &dir.join("file")), Some(true));
    fuse.finish();
}

#[test]
fn trusted_attributes_are_for_root() {
    let Some(fuse) = open_to_others() else { return };
    let path = fuse.path("file");
    std::fs::write(&path, "contents").unwrap();
    for name in ["trusted.secret", "user.open"] {
        setxattr(&path, name, b"value", XattrFlags::empty()).unwrap();
    }
    let list = "import os,sys; sys.exit(os.listxattr(sys.argv[1]) != ['user.open'])";
    let Some(only_open) = can(UNPRIVILEGED, &format!("python3 -c \"{list}\" $0"), &path) else { return };
    assert!(only_open);
    fuse.finish();
}

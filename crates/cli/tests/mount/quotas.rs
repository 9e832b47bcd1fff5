//! Quotas on a mount: inherited projects by ioctl(2), and limits of a user and of a project.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, as_user, tool, until};
use testkit::kernel_mount::KernelMount;

const USER: u32 = 1000;

/// Sets the project of a directory and has new files inherit it. Prints both as they are then.
const SET_PROJECT: &str = r#"
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
xattr = bytearray(28)
fcntl.ioctl(fd, 0x801c581f, xattr)
struct.pack_into("I", xattr, 0, struct.unpack_from("I", xattr, 0)[0] | 0x200)
struct.pack_into("I", xattr, 12, int(sys.argv[2]))
fcntl.ioctl(fd, 0x401c5820, bytes(xattr))
fcntl.ioctl(fd, 0x801c581f, xattr)
print(*struct.unpack("7I", xattr)[:4])
"#;

/// Runs a shell script as the user. Returns whether it succeeded, and its messages.
fn script(script: &str, path: &Path) -> Option<(bool, String)> {
    let user = Command::new("setpriv").arg("--version").output();
    if user.is_err() {
        testkit::skipped("setpriv is not installed");
        return None;
    }
    let output = as_user(USER, &["sh", "-c", script, "sh"]).arg(path).env("LC_ALL", "C").output().unwrap();
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn limits_hold_for_users_and_projects() {
    let Some(fuse) = FuseMount::new(&["-O", "quota,project"]) else { return };
    let image = text(&fuse.scratch().image());
    fuse.scratch().ok(&["quota", &image, "--user", "1000", "--block-hard", "256K"]);
    fuse.scratch().ok(&["quota", &image, "--project", "7", "--block-hard", "1M", "--inode-hard", "3"]);
    fuse.mount("usrquota,prjquota,allow_other");
    let dir = fuse.path("dir");
    std::fs::create_dir(&dir).unwrap();
    chown(&dir, Some(USER), Some(USER)).unwrap();
    chown(fuse.dir(), Some(USER), Some(USER)).unwrap();

    // The user reaches the limit of space at write(2), and root does not.
    let Some((done, errors)) = script("head -c 300000 /dev/zero > \"$1/file\"", fuse.dir()) else { return };
    assert!(!done && errors.contains("quota exceeded"), "{errors}");
    let (done, errors) = script("rm \"$1/file\"", fuse.dir()).unwrap();
    assert!(done, "{errors}");
    // The server frees the space of the file once the kernel has told it of the last close, which
    // may be after close(2) returned.
    let fits = || script("head -c 200000 /dev/zero > \"$1/file\" && sync", fuse.dir()).unwrap().0;
    assert!(until(fits), "the space of the removed file still counts");
    std::fs::write(fuse.path("file"), vec![1; 400_000]).unwrap();
    std::fs::remove_file(fuse.path("file")).unwrap();

    let set = Command::new("python3").args(["-c", SET_PROJECT]).arg(&dir).arg("7").output();
    match set {
        Ok(set) => assert_eq!(String::from_utf8_lossy(&set.stdout), "512 0 0 7\n", "{set:?}"),
        Err(_) => return testkit::skipped("python3 is not installed"),
    }
    // The directory counts, too.
    let (done, errors) = script("touch \"$1/a\" \"$1/b\"; touch \"$1/c\"", &dir).unwrap();
    assert!(!done && errors.contains("quota exceeded"), "{errors}");
    let Some(df) = tool(Command::new("df").args(["--output=size,itotal,iavail"]).arg(&dir)) else { return };
    let words: Vec<&str> = df.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(words, ["1024", "3", "0"], "{df}");
    let moved = std::fs::hard_link(dir.join("a"), fuse.path("elsewhere"));
    assert!(moved.is_ok(), "a file may leave the directory of its project");
    std::fs::write(fuse.path("other"), "x").unwrap();
    let moved = rustix::fs::link(fuse.path("other"), dir.join("other"));
    assert_eq!(moved, Err(rustix::io::Errno::XDEV));
    fuse.finish();
}

/// As the user, writes as much of a file as the limit of 256 KiB leaves, and then stores to a
/// mapping of another file, whose second half is a hole.
const STORE_AT_LIMIT: &str = "
import errno, mmap, os, sys
directory, user, size, limit = sys.argv[1], int(sys.argv[2]), 64 << 10, 256 << 10
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
file = os.open(directory + '/file', os.O_RDWR | os.O_CREAT, 0o644)
os.write(file, b'a' * (size // 2))
os.ftruncate(file, size)
rest = os.open(directory + '/rest', os.O_WRONLY | os.O_CREAT, 0o644)
written = os.write(rest, bytes(1 << 20))
# The directory counts, too.
assert written == limit - size // 2 - 4096, written
pages = mmap.mmap(file, size)
pages[:] = b'b' * size
try:
    pages.flush()
    sys.exit('the pages over the hole found space')
except OSError as error:
    assert error.errno == errno.EDQUOT, error
";

#[test]
fn what_fits_in_a_limit_is_stored() {
    let Some(fuse) = FuseMount::new(&["--block-size", "4096", "-O", "quota"]) else { return };
    let image = text(&fuse.scratch().image());
    fuse.scratch().ok(&["quota", &image, "--user", "1000", "--block-hard", "256K"]);
    std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
    for options in ["cache=kernel", "cache=kernel,threads=1"] {
        fuse.mount(&format!("usrquota,allow_other,{options}"));
        chown(fuse.dir(), Some(USER), Some(USER)).unwrap();
        let mut python = Command::new("python3");
        python.args(["-c", STORE_AT_LIMIT]).arg(fuse.dir()).arg(USER.to_string());
        if tool(&mut python).is_none() {
            return;
        }
        // The first sync of the mount reports the lost data once more.
        let _ = rustix::fs::syncfs(std::fs::File::open(fuse.dir()).unwrap());
        assert!(fuse.umount_loses_changes().contains("/file: disk quota exceeded"), "{options}");
        fuse.mount("rw");
        let stored = std::fs::read(fuse.path("file")).unwrap();
        assert!(stored[..32 << 10].iter().all(|&byte| byte == b'b'), "{options}");
        for name in ["file", "rest"] {
            std::fs::remove_file(fuse.path(name)).unwrap();
        }
        fuse.umount();
    }
    fuse.scratch().fsck();
}

/// Sets flags and projects of a file, each pair by one command, and prints the error number, and
/// the flags and the project afterwards.
const SET_BOTH: &str = r#"
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_CREAT)
for flags, project in (0x8, 7), (0x8, 8), (0x88, 7), (0, 8), (0x200, 9), (0x80, 9), (0x88, 10), (0x8, 10), (0, 10):
    try:
        fcntl.ioctl(fd, 0x401c5820, struct.pack("7I", flags, 0, 0, project, 0, 0, 0))
        error = 0
    except OSError as failed:
        error = failed.errno
    xattr = bytearray(28)
    fcntl.ioctl(fd, 0x801c581f, xattr)
    print(hex(flags), project, error, *struct.unpack("4I", xattr[:16]))
"#;

/// The output of the script on ext4: each command sets both or neither.
const SET: &str = "\
0x8 7 0 8 0 0 7
0x8 8 1 8 0 0 7
0x88 7 1 8 0 0 7
0x0 8 0 0 0 0 8
0x200 9 95 0 0 0 8
0x80 9 0 128 0 0 9
0x88 10 0 136 0 0 10
0x8 10 1 136 0 0 10
0x0 10 0 0 0 0 10
";

#[test]
fn flags_and_project_are_set_together_or_not_at_all() {
    let Some(fuse) = FuseMount::new(&["-O", "quota,project"]) else { return };
    let kernel = KernelMount::with_copy_of(&fuse.scratch().image(), "rw");
    fuse.mount("rw");
    let run = |dir: &Path| tool(Command::new("python3").args(["-c", SET_BOTH]).arg(dir.join("file")));
    let Some(ours) = run(fuse.dir()) else { return };
    assert_eq!(ours, SET);
    if let Some(theirs) = kernel.and_then(|kernel| run(&kernel.path())) {
        assert_eq!(theirs, SET, "ext4");
    }
    fuse.finish();
}

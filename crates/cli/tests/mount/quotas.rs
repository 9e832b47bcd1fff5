//! Quotas on a mount: inherited projects by ioctl(2), and limits of a user and of a project.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, as_user, tool, until};

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
    // The server frees the space of the file once the kernel has told it of the last close, which may be after close(2) returned.
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

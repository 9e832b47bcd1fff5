//! Commands of ioctl(2) by several users, with raw system calls, on a mount and on the kernel's
//! ext4.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use testkit::fuse_mount::{FuseMount, errors, tool, umount, until};
use testkit::kernel_mount::KernelMount;

const OWNER: u32 = 1000;
const UNPRIVILEGED: u32 = 65534;

/// Sends each command to each path by each kind of handle, and prints the error numbers and the
/// flags after it.
const SCRIPT: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
uid, commands, paths = int(sys.argv[1]), sys.argv[2].split(), sys.argv[3:]

def ioctl(fd, command, argument):
    buffer = ctypes.create_string_buffer(argument, 512)
    failed = libc.ioctl(fd, ctypes.c_ulong(command), buffer) < 0
    return (ctypes.get_errno() if failed else 0), buffer.raw

def flags(path):
    fd = os.open(path, os.O_RDONLY)
    seen = struct.unpack("I", ioctl(fd, 0x80086601, b"")[1][:4])[0]
    os.close(fd)
    return seen & 0x30

child = os.fork() if uid else 0
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if uid:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
for path in paths:
    for command in commands:
        number, argument = command.split(":")
        for kind in (os.O_RDONLY, os.O_RDWR, os.O_PATH):
            try:
                fd = os.open(path, kind)
            except OSError as error:
                print(os.path.basename(path), command, kind, "open", error.errno)
                continue
            error, _ = ioctl(fd, int(number, 16), bytes.fromhex(argument))
            os.close(fd)
            print(os.path.basename(path), command, kind, error, hex(flags(path)))
"#;

/// A command, and its argument in hexadecimal.
const SET_FLAGS: [&str; 7] = [
    // FS_IOC_SETFLAGS with FS_NODUMP_FL, FS_IMMUTABLE_FL and FS_APPEND_FL, then without flags.
    "40086602:40000800",
    "40086602:10000800",
    "40086602:20000800",
    "40086602:00000800",
    // FS_IOC32_SETFLAGS, with FS_IMMUTABLE_FL and without.
    "40046602:10000800",
    "40046602:00000800",
    // FS_IOC_FSSETXATTR with FS_XFLAG_IMMUTABLE.
    "401c5820:08000000",
];

/// Creates files and a directory of root and of the owner, which all users may change. One file is
/// immutable.
fn prepare(dir: &Path) -> Vec<String> {
    let make = |name: &str, owner: u32| {
        let path = dir.join(name);
        if name.ends_with("dir") { std::fs::create_dir(&path) } else { std::fs::write(&path, "contents") }
            .unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let paths = [("file", 0), ("immutable", 0), ("dir", 0), ("owned", OWNER), ("owned-dir", OWNER)];
    let paths = paths.map(|(name, owner)| make(name, owner)).to_vec();
    tool(Command::new("chattr").arg("+i").arg(&paths[1]));
    paths
}

/// Returns the output of the script when `user` sends `commands` to all paths.
fn sent(user: u32, commands: &[&str], paths: &[String]) -> Option<String> {
    tool(Command::new("python3").args(["-c", SCRIPT, &user.to_string(), &commands.join(" ")]).args(paths))
}

/// Returns a mount and the kernel's ext4, both accessible to all users.
fn both() -> Option<(FuseMount, KernelMount)> {
    let kernel = KernelMount::mounted(&[], "noatime")?;
    let fuse = FuseMount::mounted(&[], "allow_other")?;
    for dir in [fuse.scratch().path("."), kernel.path().join("..")] {
        std::fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
    Some((fuse, kernel))
}

#[test]
fn flags_change_for_the_same_users_as_with_the_kernel() {
    let Some((fuse, kernel)) = both() else { return };
    let (ours, theirs) = (prepare(fuse.dir()), prepare(&kernel.path()));
    for user in [UNPRIVILEGED, OWNER, 0] {
        let Some(printed) = sent(user, &SET_FLAGS, &ours) else { return };
        assert_eq!(printed, sent(user, &SET_FLAGS, &theirs).unwrap(), "user {user}");
        assert_eq!(printed.lines().count(), SET_FLAGS.len() * ours.len() * 3);
    }
    for path in ours.iter().chain(&theirs) {
        tool(Command::new("chattr").arg("-ia").arg(path));
    }
    fuse.finish();
}

#[test]
fn free_space_is_discarded_for_root_alone() {
    let Some((fuse, kernel)) = both() else { return };
    let (ours, theirs) = (prepare(fuse.dir()), prepare(&kernel.path()));
    // FITRIM of the whole volume.
    let command = ["c0185879:0000000000000000ffffffffffffffff0000000000000000"];
    for user in [UNPRIVILEGED, OWNER, 0] {
        let Some(printed) = sent(user, &command, &ours[..1]) else { return };
        assert_eq!(printed, sent(user, &command, &theirs[..1]).unwrap(), "user {user}");
    }
    for path in ours.iter().chain(&theirs) {
        tool(Command::new("chattr").arg("-i").arg(path));
    }
    fuse.finish();
}

/// A script that sends a command to a directory as root, and prints the result in hexadecimal or
/// the error number.
const ASK: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(bytes.fromhex(sys.argv[3]), 512)
failed = libc.ioctl(os.open(sys.argv[1], os.O_RDONLY), ctypes.c_ulong(int(sys.argv[2], 16)), buffer) < 0
print(f"error {ctypes.get_errno()}" if failed else buffer.raw.hex().rstrip("0"))
"#;

fn ask(dir: &Path, command: &str, argument: &str) -> Option<String> {
    Some(
        tool(Command::new("python3").args(["-c", ASK, dir.to_str()?, command, argument]))?
            .trim_end()
            .to_owned(),
    )
}

#[test]
fn the_label_is_read_and_set() {
    let Some((fuse, kernel)) = both() else { return };
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let name = |text: &str| format!("{}00", hex(text));
    // FS_IOC_SETFSLABEL and FS_IOC_GETFSLABEL.
    for label in [name("sixteen bytes ok"), name("seventeen bytes !"), name("short"), "ff00".to_owned()] {
        let Some(set) = ask(fuse.dir(), "41009432", &label) else { return };
        assert_eq!(Some(set), ask(&kernel.path(), "41009432", &label), "{label}");
        assert_eq!(ask(fuse.dir(), "81009431", ""), ask(&kernel.path(), "81009431", ""), "{label}");
    }
    let command = ["41009432:6e6f00"];
    let dirs = [fuse.dir(), &kernel.path()].map(|dir| [dir.to_str().unwrap().to_owned()]);
    for user in [UNPRIVILEGED, OWNER] {
        assert_eq!(sent(user, &command, &dirs[0]), sent(user, &command, &dirs[1]), "user {user}");
    }
    let image = fuse.scratch().image();
    assert_eq!(ask(fuse.dir(), "41009432", &name("final")), Some(hex("final")));
    // Programs such as blkid(8) read the device.
    let on_device = |image: &Path| {
        let mut label = [0; 16];
        File::open(image).unwrap().read_exact_at(&mut label, 1024 + 0x78).unwrap();
        String::from_utf8(label.to_vec()).unwrap()
    };
    assert_eq!(on_device(&image), "final\0\0\0\0\0\0\0\0\0\0\0");
    fuse.umount();
    assert_eq!(tool(Command::new("e2label").arg(image)).unwrap_or("final\n".into()), "final\n");
    fuse.scratch().fsck();
}

/// `EXT4_IOC_CHECKPOINT` with each combination of its flags (discard 1, zeros 2, dry run 4) and
/// with unknown ones.
const CHECKPOINT: [&str; 10] = [
    "4004662b:00000000",
    "4004662b:01000000",
    "4004662b:02000000",
    "4004662b:03000000",
    "4004662b:04000000",
    "4004662b:05000000",
    "4004662b:06000000",
    "4004662b:07000000",
    "4004662b:08000000",
    "4004662b:00000080",
];

/// Returns the number of nonzero bytes of the journal outside of its superblock, and debugfs's
/// description of the log.
fn journal(image: &Path) -> Option<(usize, String)> {
    let copy = image.with_extension("journal");
    let debugfs = |command: &str| {
        tool(Command::new("debugfs").args(["-R", command]).arg(image).env("DEBUGFS_PAGER", "cat"))
    };
    debugfs(&format!("dump <8> {}", copy.display()))?;
    let contents = std::fs::read(copy).unwrap();
    Some((contents[4096..].iter().filter(|&&byte| byte != 0).count(), debugfs("logdump")?))
}

#[test]
fn the_journal_is_emptied() {
    let Some((fuse, kernel)) = both() else { return };
    let dirs = [fuse.dir(), &kernel.path()].map(|dir| [dir.to_str().unwrap().to_owned()]);
    for user in [UNPRIVILEGED, OWNER, 0] {
        let Some(ours) = sent(user, &CHECKPOINT, &dirs[0]) else { return };
        // The directory's name and the flags of its inode differ.
        assert_eq!(ours, sent(user, &CHECKPOINT, &dirs[1]).unwrap(), "user {user}");
    }
    let copy = fuse.scratch().path("copy.img");
    for (nth, flags) in ["00000000", "01000000", "02000000"].into_iter().enumerate() {
        let name = fuse.path(&format!("file{nth}"));
        std::fs::write(&name, "contents").unwrap();
        std::fs::File::open(&name).unwrap().sync_all().unwrap();
        assert_eq!(ask(fuse.dir(), "4004662b", flags).as_deref(), Some(flags.trim_end_matches('0')));
        std::fs::copy(fuse.scratch().image(), &copy).unwrap();
        let Some((left, log)) = journal(&copy) else { return };
        assert!(!log.contains("Found expected sequence"), "{log}");
        assert_eq!(left == 0, nth > 0, "{flags}");
        tool(Command::new("e2fsck").args(["-f", "-n"]).arg(&copy));
    }
    // The journal still works: recovery finds what is synced from now on.
    std::fs::write(fuse.path("last"), "contents").unwrap();
    std::fs::File::open(fuse.path("last")).unwrap().sync_all().unwrap();
    std::fs::copy(fuse.scratch().image(), &copy).unwrap();
    fuse.scratch().ok(&["recover", copy.to_str().unwrap()]);
    assert_eq!(fuse.scratch().ok(&["cat", &format!("{}:/last", copy.display())]), "contents");
    fuse.finish();
}

#[test]
fn a_volume_without_a_journal_has_none_to_empty() {
    let Some(kernel) = KernelMount::mounted(&["-O", "^has_journal"], "noatime") else { return };
    let Some(fuse) = FuseMount::mounted(&["--no-journal"], "rw") else { return };
    for flags in ["00000000", "03000000", "06000000"] {
        let Some(ours) = ask(fuse.dir(), "4004662b", flags) else { return };
        assert_eq!(Some(ours), ask(&kernel.path(), "4004662b", flags), "{flags}");
    }
    fuse.finish();
}

/// The kernel's umount says nothing either.
#[test]
fn a_volume_that_is_shut_down_is_unmounted_without_complaint() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    std::fs::write(fuse.path("file"), "contents").unwrap();
    if ask(fuse.dir(), "8004587d", "02000000").is_none() {
        return;
    }
    let unmounted = umount(fuse.dir());
    assert!(unmounted.status.success() && !errors(&unmounted).contains("lost"), "{}", errors(&unmounted));
    fuse.scratch().ok(&["recover", fuse.scratch().image().to_str().unwrap()]);
    fuse.scratch().fsck();
}

#[test]
fn a_volume_that_is_shut_down_keeps_synced_data() {
    let Some((fuse, _)) = both() else { return };
    std::fs::write(fuse.path("synced"), "contents").unwrap();
    std::fs::File::open(fuse.path("synced")).unwrap().sync_all().unwrap();
    let Some(sent) = sent(OWNER, &["8004587d:02000000"], &[fuse.dir().to_str().unwrap().to_owned()]) else {
        return;
    };
    assert!(
        sent.lines().all(|line| line.contains(" 1 ") || line.contains("open") || line.contains(" 9 ")),
        "{sent}"
    );
    std::fs::write(fuse.path("still"), "writable").unwrap();
    assert_eq!(ask(fuse.dir(), "8004587d", "02000000").as_deref(), Some("02"));
    assert!(std::fs::write(fuse.path("late"), "refused").is_err());
    // umount(8), which does not wait for the server. Retries as `testkit::fuse_mount::umount` does.
    assert!(until(|| Command::new("umount").arg(fuse.dir()).output().unwrap().status.success()));
    assert!(!fuse.is_mounted());
    let image = fuse.scratch().image();
    // Waits until the server has closed the image.
    fuse.scratch().ok(&["recover", image.to_str().unwrap()]);
    fuse.scratch().fsck();
    fuse.mount("rw");
    assert_eq!(std::fs::read(fuse.path("synced")).unwrap(), b"contents");
    assert_eq!(std::fs::read(fuse.path("still")).unwrap(), b"writable");
    assert!(!fuse.path("late").exists());
    fuse.finish();
}

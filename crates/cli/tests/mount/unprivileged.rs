//! Mounts by a user without privileges, of a hostile image.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output};

use rustix::fs::{CWD, Mode, makedev, mknodat};

use testkit::fuse_mount::{FuseMount, errors, in_mount_namespace};

const USER: u32 = 65534;

/// Start of each script: makes `/dev/fuse` accessible to all users, as udev does, in a private
/// mount namespace. Defines `user`, which runs a command without privileges.
const PREPARE: &str = r#"
set -e
image="$2" dir="$3" parext4="$4" fuse="$1/fuse"
[ -e "$fuse" ] || mknod -m 666 "$fuse" c 10 229
mount --bind "$fuse" /dev/fuse
user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
options() { grep " $dir fuse.parext4 " /proc/mounts | cut -d' ' -f4; }
"#;

/// Returns an image with inodes that only root may create. The image and the directory belong to
/// the user. Prints a notice and returns `None` if mounting is not possible here.
fn hostile() -> Option<FuseMount> {
    let fuse = FuseMount::mounted(&[], "rw")?;
    std::fs::copy("/usr/bin/id", fuse.path("id")).unwrap();
    std::fs::set_permissions(fuse.path("id"), Permissions::from_mode(0o4755)).unwrap();
    mknodat(CWD, fuse.path("zero"), rustix::fs::FileType::CharacterDevice, Mode::from(0o666), makedev(1, 5))
        .unwrap();
    std::fs::set_permissions(fuse.path("zero"), Permissions::from_mode(0o666)).unwrap();
    std::fs::create_dir(fuse.path("his")).unwrap();
    chown(fuse.path("his"), Some(USER), Some(USER)).unwrap();
    fuse.umount();
    for path in [fuse.scratch().image(), fuse.dir().to_owned()] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
    Some(fuse)
}

/// Runs a script after [`PREPARE`]. Prints a notice and returns `None` without the tools for it.
fn run(fuse: &FuseMount, script: &str) -> Option<Output> {
    for tool in ["unshare", "setpriv", "fusermount3"] {
        if Command::new(tool).arg("--version").output().is_err() {
            testkit::skipped(&format!("{tool} is not installed"));
            return None;
        }
    }
    let mut command = in_mount_namespace(&format!("{PREPARE}{script}"));
    command.arg(fuse.scratch().path(".")).arg(fuse.scratch().image()).arg(fuse.dir());
    Some(command.arg(env!("CARGO_BIN_EXE_parext4")).env("LC_ALL", "C").output().unwrap())
}

/// Like [`run`], for a script that must succeed. Returns its output.
fn printed(fuse: &FuseMount, script: &str) -> Option<String> {
    let output = run(fuse, script)?;
    assert!(output.status.success(), "{}", errors(&output));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_user_mounts_without_privileges() {
    let Some(fuse) = hostile() else { return };
    let script = r#"
        user "$parext4" mount "$image" "$dir"
        options
        user sh -ec 'echo contents > "$1/his/file"; cat "$1/his/file"' sh "$dir"
        ls "$dir" 2>&1 || true
        # The root directory of the image belongs to root.
        user touch "$dir/file" 2>&1 || true
        user "$parext4" umount "$dir"
        [ -z "$(options)" ]
    "#;
    let Some(printed) = printed(&fuse, script) else { return };
    let mut lines = printed.lines();
    let options = lines.next().unwrap();
    assert!(options.contains("user_id=65534") && options.contains("nosuid,nodev"), "{options}");
    assert_eq!(lines.next(), Some("contents"));
    assert!(lines.next().unwrap().contains("Permission denied"), "root is not let in either: {printed}");
    assert!(lines.next().unwrap().contains("Permission denied"), "permissions count: {printed}");
    fuse.scratch().fsck();
    assert_eq!(fuse.scratch().ok(&["cat", &fuse.scratch().inside("/his/file")]), "contents\n");
}

#[test]
fn set_id_bits_and_devices_of_an_image_have_no_effect() {
    let Some(fuse) = hostile() else { return };
    // The options do not help: only root may set them.
    for options in ["rw", "suid,dev"] {
        let script = format!(
            r#"
            user "$parext4" mount -o {options} "$image" "$dir"
            user "$dir/id" -u
            user head -c 1 "$dir/zero" 2>&1 || true
            user "$parext4" umount "$dir"
            "#
        );
        let Some(printed) = printed(&fuse, &script) else { return };
        let mut lines = printed.lines();
        assert_eq!(lines.next(), Some("65534"), "{options}: a set-user-ID bit counts");
        assert!(lines.next().unwrap().contains("Permission denied"), "{options}: a device works: {printed}");
    }
    // Mounts by root ignore them, too, unless the options say otherwise.
    for (options, user) in [("allow_other", "65534"), ("allow_other,suid", "0")] {
        let script = format!(
            r#"
            "$parext4" mount -o {options} "$image" "$dir"
            user "$dir/id" -u
            "$parext4" umount "$dir"
            "#
        );
        assert_eq!(printed(&fuse, &script).as_deref().map(str::trim_end), Some(user), "{options}");
    }
    fuse.scratch().fsck();
}

/// The server of a user who mounts without `allow_other` gets no requests of the kernel's own
/// threads for times.
#[test]
fn data_that_is_written_back_late_sets_the_time_without_allow_other() {
    for cache in ["kernel", "writeback", "direct"] {
        let Some(fuse) = hostile() else { return };
        let script = format!(
            r#"
            user "$parext4" mount -o cache={cache} "$image" "$dir"
            user sh -ec 'cd "$1/his"; : > file; touch -d @1000000000 file; echo contents >> file' sh "$dir"
            user "$parext4" umount "$dir"
            user "$parext4" mount -o cache={cache} "$image" "$dir"
            user sh -ec 'cd "$1/his"; cat file; echo $(($(date +%s) - $(stat -c %Y file)))' sh "$dir"
            user "$parext4" umount "$dir"
            "#
        );
        let Some(printed) = printed(&fuse, &script) else { return };
        let (contents, age) = printed.trim_end().split_once('\n').unwrap();
        assert_eq!(contents, "contents", "{cache}");
        assert!((0..600).contains(&age.parse::<i64>().unwrap()), "{cache}: {age} seconds old");
    }
}

#[test]
fn errors_of_unprivileged_mounts_name_the_cause() {
    let Some(fuse) = hostile() else { return };
    let refused = |script: &str, why: &str| {
        let Some(output) = run(&fuse, script) else { return };
        assert!(!output.status.success(), "{script}");
        assert!(errors(&output).contains(why), "{}", errors(&output));
    };
    refused(r#"user "$parext4" mount -o allow_other "$image" "$dir""#, "allow_other");
    refused(r#"chmod 600 "$fuse"; user "$parext4" mount "$image" "$dir""#, "/dev/fuse");
    refused(r#"chown 0 "$image"; chmod 600 "$image"; user "$parext4" mount "$image" "$dir""#, "/test.img");
    fuse.scratch().fsck();
}

/// Start of the scripts that unmount as root what a user has prepared. `timeout` makes a hang a
/// failure.
const UNMOUNTS: &str = r#"
umounts() { timeout 100 "$parext4" umount "$1" 2>&1 || { echo "status $?"; "$parext4" umount -l "$1"; exit 1; } }
gone() { ! grep -q " $dir fuse" /proc/mounts; }
waits() { for _ in $(seq 6000); do if "$@"; then return; fi; sleep 0.01; done; echo "never: $*"; exit 1; }
# For commands in the background: a function would run in a shell of its own.
as_user="setpriv --reuid=65534 --regid=65534 --clear-groups --"
chown 65534 "$1"
cd "$1"
"#;

fn unmounts(fuse: &FuseMount, script: &str) -> Option<String> {
    printed(fuse, &format!("{UNMOUNTS}{script}"))
}

#[test]
fn the_name_of_a_mount_leads_root_nowhere() {
    let Some(fuse) = hostile() else { return };
    // Opening the FIFO blocks, and so does a lock of a file that the user has locked.
    let fifo = r#"
        user mkfifo fifo
        user "$parext4" mount -o "fsname=$PWD/fifo" "$image" "$dir"
        umounts "$dir"; gone
    "#;
    let locked = r#"
        user touch file
        user "$parext4" mount -o "fsname=$PWD/file" "$image" "$dir"
        $as_user flock --no-fork --exclusive file sh -c 'touch locked; exec sleep 1000' & flock="$!"
        waits [ -e locked ]
        umounts "$dir"; gone
        kill "$flock"
    "#;
    for script in [fifo, locked] {
        let Some(said) = unmounts(&fuse, script) else { return };
        assert_eq!(said, "");
    }
    fuse.scratch().fsck();
}

#[test]
fn any_name_of_a_mount_is_passed_on_as_it_is() {
    let Some(fuse) = hostile() else { return };
    let script = r#"
        names() { grep " $dir fuse.parext4 " /proc/mounts | cut -d' ' -f1; }
        for name in 'a\' 'a\b'; do
            user "$parext4" mount -o "fsname=$name" "$image" "$dir"; names
            user timeout 100 "$parext4" umount "$dir"
            "$parext4" mount -o "fsname=$name" "$image" "$dir"; names
            umounts "$dir"
        done
        user cp "$image" 'x,y=\'
        user "$parext4" mount 'x,y=\' "$dir"; names
        user timeout 100 "$parext4" umount "$dir"
    "#;
    let Some(said) = unmounts(&fuse, script) else { return };
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..4], ["a\\134", "a\\134", "a\\134b", "a\\134b"], "{said}");
    assert!(lines[4].ends_with("/x,y=\\134") && lines.len() == 5, "{said}");
}

/// A process whose command line looks like that of a standby, and that has locked a directory. It
/// ignores signals.
const FALSE_STANDBY: &str = "
import fcntl, os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
open('locked', 'w')
signal.pause()
";

#[test]
fn a_process_that_looks_like_a_standby_is_left_alone() {
    let Some(fuse) = hostile() else { return };
    std::fs::create_dir(fuse.scratch().path("scripts")).unwrap();
    std::fs::write(fuse.scratch().path("scripts/mount"), FALSE_STANDBY).unwrap();
    let script = r#"
        cd scripts; chown 65534 .
        [ -x /usr/bin/python3 ] || exit 0
        $as_user /usr/bin/python3 mount "$dir" & standby="$!"
        waits [ -e locked ]
        timeout 100 "$parext4" umount "$dir" 2>&1 && exit 1
        kill -KILL "$standby"
    "#;
    let Some(said) = unmounts(&fuse, script) else { return };
    assert!(said.is_empty() || said.contains("not a mount of parext4"), "{said}");
}

#[test]
fn a_lock_by_a_user_that_may_read_an_image_does_not_hold_umount_up() {
    let Some(fuse) = hostile() else { return };
    let script = r#"
        chown 0 "$image"; chmod 644 "$image"
        "$parext4" mount -o allow_other "$image" "$dir"
        # Waits for the lock, and is the next to get it.
        $as_user flock --no-fork --exclusive "$image" sleep 1000 & flock="$!"
        waits grep -q -- '-> FLOCK' /proc/locks
        # The user puts a FIFO in the place of the image.
        mv "$image" image
        user mkfifo "$image"
        umounts "$dir"; gone
        "$parext4" info image 2>&1 | grep -o 'locked by process [0-9]* ([a-z]*) of user 65534'
        kill "$flock"
        mv -f image "$image"
    "#;
    let Some(said) = unmounts(&fuse, script) else { return };
    assert!(said.starts_with("locked by process ") && said.lines().count() == 1, "{said}");
    fuse.scratch().fsck();
}

/// A server that mounts, and never answers the kernel.
const SILENT_SERVER: &str = "
import array, os, signal, socket, subprocess, sys
ours, theirs = socket.socketpair()
os.set_inheritable(theirs.fileno(), True)
options = 'subtype=parext4,fsname=' + sys.argv[2]
mount = subprocess.Popen(['fusermount3', '-o', options, '--', sys.argv[1]], env={'_FUSE_COMMFD': str(theirs.fileno())}, close_fds=False)
ours.recvmsg(1, socket.CMSG_SPACE(4))
mount.wait()
open('mounted', 'w')
signal.pause()
";

#[test]
fn a_server_that_never_answers_does_not_hold_root_up() {
    let Some(fuse) = hostile() else { return };
    std::fs::write(fuse.scratch().path("server.py"), SILENT_SERVER).unwrap();
    let script = r#"
        [ -x /usr/bin/python3 ] || exit 0
        $as_user /usr/bin/python3 server.py "$dir" "$image" & server="$!"
        waits [ -e mounted ]
        umounts "$dir"; gone
        kill -KILL "$server"
        echo done
    "#;
    let Some(said) = unmounts(&fuse, script) else { return };
    assert!(said.is_empty() || said.ends_with("done\n"), "{said}");
}

#[test]
fn a_dead_mount_of_another_user_stays() {
    let Some(fuse) = hostile() else { return };
    let script = r#"
        $as_user "$parext4" mount --foreground "$image" "$dir" & server="$!"
        waits grep -q " $dir fuse.parext4 " /proc/mounts
        kill -KILL "$server"; wait "$server" || true
        timeout 100 "$parext4" mount "$image" "$dir" 2>&1 && exit 1
        gone && exit 1
        # The user's own next mount replaces it.
        user timeout 100 "$parext4" mount "$image" "$dir" 2>&1
        ! user ls "$dir" > /dev/null || echo listed
        umounts "$dir"; gone
    "#;
    let Some(said) = unmounts(&fuse, script) else { return };
    assert!(
        said.contains("permission denied") || said.contains("the server of an earlier mount has ended"),
        "{said}"
    );
    assert!(said.ends_with("removed an earlier mount, whose server had ended\nlisted\n"), "{said}");
    fuse.scratch().fsck();
}

/// Without `/dev/log`.
#[test]
fn the_log_is_in_the_runtime_directory_and_stat_shows_it() {
    let Some(fuse) = hostile() else { return };
    let script = r#"
        mount -t tmpfs none /run
        if [ -e /dev/log ]; then mount --bind /dev/null /dev/log; fi
        "$parext4" mount -o commit=7,silent,allow_other "$image" "$dir"
        "$parext4" stat "$dir" | grep -A 9 '^log:'
        ls -ld /run/parext4 | cut -c 1-10
        user "$parext4" stat "$dir" | grep '^log:' || true
        # The log goes with the server, unless it has an error.
        log=$(echo /run/parext4/*.log)
        cat "$log"
        umounts "$dir"
        waits [ ! -e "$log" ]
        echo '2026-01-01 00:00:00 parext4[1]: ERROR: of an earlier server' > "$log"
        "$parext4" mount "$image" "$dir"
        umounts "$dir"
        waits grep -q 'is unmounted' "$log"
        cat "$log"
    "#;
    let Some(said) = unmounts(&fuse, script) else { return };
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("log: /run/parext4/") && lines[0].ends_with("-mount.log"), "{said}");
    assert!(lines[1].contains("is mounted on") && lines[2].contains("\"silent\" has no effect"), "{said}");
    assert_eq!(lines[3], "drwx------", "{said}");
    assert!(lines[4].contains("INFO:") && lines.last().unwrap().ends_with("is unmounted"), "{said}");
}

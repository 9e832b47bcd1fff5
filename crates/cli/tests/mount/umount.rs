//! Unmounting: bind mounts, other mount namespaces, users that want to make root's `umount` hang,
//! and lost data.

use std::process::Command;

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, errors, in_mount_namespace};

/// Start of each script. `timeout` makes a hang a failure.
const PREPARE: &str = r#"
tmp="$1" image="$2" dir="$3" parext4="$4"
fail() { echo "FAILED: $*" >&2; umount -i -l "$dir" 2>/dev/null; kill $holder; exit 1; }
umounts() { timeout 100 "$parext4" umount "$@" 2>"$tmp/said" || fail "umount $*: status $?: $(cat "$tmp/said")"; }
says() { grep -q "$1" "$tmp/said" || fail "said: $(cat "$tmp/said")"; }
silent() { [ ! -s "$tmp/said" ] || fail "said: $(cat "$tmp/said")"; }
mounted() { grep -q " $1 fuse" /proc/mounts; }
# Runs a process in a mount namespace with a copy of all mounts. Sets `holder`.
hold() {
    unshare --mount --propagation private sh -c 'echo $$ > "$1/holder"; exec sleep 1000' sh "$tmp" &
    while [ ! -s "$tmp/holder" ]; do sleep 0.01; done
    holder="$(cat "$tmp/holder")"; rm "$tmp/holder"
}
"#;

/// Runs a script after [`PREPARE`]. Returns false, after a notice, if that is not possible here.
fn run(fuse: &FuseMount, script: &str) -> bool {
    if !in_mount_namespace("mount -t tmpfs none /mnt").output().is_ok_and(|output| output.status.success()) {
        testkit::skipped("no mount namespaces");
        return false;
    }
    let mut command = in_mount_namespace(&format!("{PREPARE}{script}"));
    command.arg(fuse.scratch().path(".")).arg(fuse.scratch().image()).arg(fuse.dir());
    let output = command.arg(env!("CARGO_BIN_EXE_parext4")).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{:?}: {}", output.status, errors(&output));
    true
}

#[test]
fn a_bind_mount_is_unmounted_and_the_volume_stays() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let script = r#"
        "$parext4" mount "$image" "$dir" || fail mount
        mkdir "$dir/sub" "$tmp/bind"
        touch "$dir/one" "$dir/two"
        mount --bind "$dir/sub" "$tmp/bind"
        echo text > "$tmp/bind/file"
        umounts "$tmp/bind"; silent
        mounted "$tmp/bind" && fail "still bound"
        # A file over a file of the same volume.
        mount --bind "$dir/one" "$dir/two"
        umounts "$dir/two"; silent
        mounted "$dir/two" && fail "still bound"
        mounted "$dir" || fail "not mounted"
        # What was written is durable.
        cp "$image" "$tmp/copy"
        [ "$("$parext4" cat "$tmp/copy:/sub/file")" = text ] || fail "not durable"
        # The bind mount outlives the mount.
        mount --bind "$dir/sub" "$tmp/bind"
        umounts "$dir"; silent
        echo more >> "$tmp/bind/file" || fail "the volume is not mounted any more"
        umounts "$tmp/bind/"; silent
        [ "$("$parext4" cat "$image:/sub/file")" = "$(printf 'text\nmore')" ] || fail "not written"
    "#;
    if run(&fuse, script) {
        fuse.scratch().fsck();
    }
}

#[test]
fn the_holders_in_other_mount_namespaces_are_named() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let script = r#"
        "$parext4" mount "$image" "$dir" || fail mount
        hold
        echo text > "$dir/file"
        umounts "$dir"; says "held by the mount namespace of process $holder (sleep)"
        mounted "$dir" && fail "still mounted"
        kill -0 "$holder" || fail "the holder has ended"
        # Everything is durable, although the server goes on.
        cp "$image" "$tmp/copy"
        [ "$("$parext4" cat "$tmp/copy:/file")" = text ] || fail "not durable"
        kill "$holder"; wait
        [ "$("$parext4" cat "$image:/file")" = text ] || fail "not closed"
    "#;
    if run(&fuse, script) {
        fuse.scratch().fsck();
    }
}

#[test]
fn a_read_only_server_ends_by_a_signal_although_another_mount_namespace_holds_it() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let script = r#"
        "$parext4" mount --foreground -o ro "$image" "$dir" & server="$!"
        while ! mounted "$dir"; do sleep 0.01; done
        hold
        kill -TERM "$server"
        wait "$server" || fail "status $?"
        kill -0 "$holder" || fail "the holder has ended"
        mounted "$dir" && fail "still mounted"
        kill "$holder"
    "#;
    run(&fuse, script);
}

/// Has a process store to a mapping, after it has filled the volume, and closes the file before.
const STORE: &str = "
import mmap, os, sys
size = 1 << 20
file = os.open(sys.argv[1] + '/dir/mapped', os.O_RDWR | os.O_CREAT)
os.ftruncate(file, size)
memory = mmap.mmap(file, size)
os.close(file)
filler = os.open(sys.argv[1] + '/filler', os.O_WRONLY | os.O_CREAT)
at, step = 0, 1 << 20
while step >= 1024:
    try:
        os.posix_fallocate(filler, at, step)
        at += step
    except OSError: step //= 2
os.close(filler)
memory[:] = b'q' * size
";

fn store(fuse: &FuseMount) -> bool {
    std::fs::create_dir_all(fuse.path("dir")).unwrap();
    let mut command = Command::new("python3");
    let Ok(status) = command.args(["-c", STORE]).arg(fuse.dir()).status() else {
        testkit::skipped("python3 is not installed");
        return false;
    };
    assert!(status.success());
    true
}

#[test]
fn a_store_to_a_mapping_that_finds_no_space_makes_umount_fail() {
    for options in ["cache=kernel", "cache=direct"] {
        let Some(fuse) = FuseMount::new(&[]) else { return };
        let log = fuse.scratch().path("server.log");
        fuse.mount(&format!("{options},log={}", text(&log)));
        if !store(&fuse) {
            return;
        }
        let error = fuse.umount_loses_changes();
        assert!(error.contains("/dir/mapped: no space left on device"), "{options}: {error}");
        let log = std::fs::read_to_string(&log).unwrap();
        let logged = log.lines().filter(|line| line.contains("/dir/mapped") && line.contains("is lost"));
        assert_eq!(logged.count(), 1, "{options}: {log}");
        // A later mount of the volume has lost nothing.
        fuse.mount(options);
        fuse.finish();
    }
}

#[test]
fn stat_shows_files_that_have_lost_data_until_they_are_deleted() {
    let Some(fuse) = FuseMount::mounted(&[], "cache=writeback") else { return };
    if !store(&fuse) {
        return;
    }
    let root = std::fs::File::open(fuse.dir()).unwrap();
    let _ = rustix::fs::syncfs(&root);
    let stat = || fuse.scratch().ok(&["stat", &text(fuse.dir())]);
    assert!(testkit::fuse_mount::until(|| stat().contains("files have lost data")), "{}", stat());
    drop(root);
    for name in ["dir/mapped", "filler"] {
        std::fs::remove_file(fuse.path(name)).unwrap();
    }
    assert!(stat().contains("; 0 files have lost data"), "{}", stat());
    fuse.finish();
}

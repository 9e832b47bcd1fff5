//! Mounts, remounts and unmounts with mount(8) and umount(8), in a mount namespace in which the
//! helpers are installed.

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, errors, in_mount_namespace};
use testkit::nbd::{Nbdkit, Server};

/// Start of each script: mounts an overlay over /usr/sbin, so that installing changes nothing
/// outside, and a private /run for the files of mount(8). Defines `clean`, which runs a command
/// with a PATH without the program.
const PREPARE: &str = r#"
set -e
tmp="$1" image="$2" dir="$3" parext4="$4"
mkdir "$tmp/upper" "$tmp/work"
mount -t tmpfs none /run
mount -t overlay -o "lowerdir=/usr/sbin,upperdir=$tmp/upper,workdir=$tmp/work" overlay /usr/sbin
clean() { env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C "$@"; }
fail() { echo "FAILED: $*" >&2; umount -l "$dir" 2>/dev/null; exit 1; }
refused() { why="$1"; shift; said="$("$@" 2>&1)" && fail "succeeded: $*"; case "$said" in *"$why"*) ;; *) fail "$said" ;; esac; }
has() { grep -q " $dir fuse.parext4 $1[, ]" /proc/mounts || fail "not $1: $(grep "$dir" /proc/mounts)"; }
"$parext4" install-helper --dry-run | grep -q '^would: link /sbin/mount.fuse.parext4 to /' || fail "dry run"
[ ! -e /sbin/mount.fuse.parext4 ] || fail "installed"
"$parext4" install-helper
"#;

/// Runs a script after [`PREPARE`]. Prints a notice and returns `None` if that is not possible
/// here.
fn run(fuse: &FuseMount, script: &str) -> Option<String> {
    run_on(&text(&fuse.scratch().image()), fuse, script)
}

/// Like [`run`], with another image, or a URL, than that of `fuse`.
fn run_on(image: &str, fuse: &FuseMount, script: &str) -> Option<String> {
    let is_possible = in_mount_namespace("mount -t tmpfs none /mnt").output();
    let is_possible = is_possible.is_ok_and(|output| output.status.success());
    let is_merged = std::fs::read_link("/sbin").is_ok_and(|target| target.ends_with("usr/sbin"));
    if !is_possible || !is_merged {
        testkit::skipped("no mount namespaces, or /sbin is no link to /usr/sbin");
        return None;
    }
    let mut command = in_mount_namespace(&format!("{PREPARE}{script}"));
    command.arg(fuse.scratch().path(".")).arg(image).arg(fuse.dir());
    let output = command.arg(env!("CARGO_BIN_EXE_parext4")).env("LC_ALL", "C").output().unwrap();
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{:?}: {printed}{}", output.status, errors(&output));
    Some(printed)
}

#[test]
fn a_line_of_fstab_mounts_remounts_and_unmounts() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let script = r#"
        "$parext4" install-helper | grep -c already
        options=defaults,noatime,errors=remount-ro,data=ordered,commit=30,nofail,x-systemd.device-timeout=9
        echo "$image $dir fuse.parext4 $options 0 0" > "$tmp/fstab"
        clean mount -T "$tmp/fstab" "$dir"
        has rw
        echo one > "$dir/one"
        exec 5> "$dir/open"
        refused "open for writing" clean mount -T "$tmp/fstab" -o remount,ro "$dir"
        exec 5>&-
        clean mount -T "$tmp/fstab" -o remount,ro "$dir"
        has ro
        # As a crash now would leave it.
        cp "$image" "$tmp/crashed"
        "$parext4" cat "$tmp/crashed:/one"
        refused "Read-only file system" touch "$dir/two"
        clean mount -o remount,rw "$dir"
        has rw
        echo two > "$dir/two"
        refused "changes ro, rw, suid, dev and exec only" clean mount -o remount,commit=5 "$dir"
        clean mount -o remount,noexec "$dir"
        has rw,nosuid,nodev,noexec
        clean umount "$dir"
        # The image is closed by then.
        "$parext4" cat "$image:/two"
    "#;
    let Some(printed) = run(&fuse, script) else { return };
    assert!(printed.ends_with("\n3\none\ntwo\n"), "{printed}");
    fuse.scratch().fsck();
}

/// The standby mounts when the owner has unmounted.
#[test]
fn lines_of_fstab_mount_a_volume_of_a_network_and_a_standby() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let Some(server) = Nbdkit::new("memory 64M").start(&fuse.scratch().path(".")) else { return };
    let script = r#"
        second="$(realpath "$tmp")/second"
        mkdir "$second"
        "$parext4" mkfs "$image" > "$tmp/made"
        echo "$image $dir fuse.parext4 defaults,_netdev 0 0" > "$tmp/fstab"
        echo "$image $second fuse.parext4 defaults,_netdev,standby 0 0" >> "$tmp/fstab"
        clean mount -T "$tmp/fstab" "$dir"
        has rw
        echo one > "$dir/one"
        clean mount -T "$tmp/fstab" "$second"
        ! grep -q " $second fuse.parext4 " /proc/mounts || fail "two owners"
        clean umount "$dir"
        for _ in $(seq 600); do
            if grep -q " $second fuse.parext4 " /proc/mounts; then break; fi
            sleep 0.1
        done
        cat "$second/one"
        echo two > "$second/two"
        clean umount "$second"
        "$parext4" cat "$image:/two"
    "#;
    let Some(printed) = run_on(&server.url(""), &fuse, script) else { return };
    assert!(printed.ends_with("one\ntwo\n"), "{printed}");
}

#[test]
fn a_read_only_mount_becomes_writable() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let script = r#"
        clean mount -t parext4 -o ro "$image" "$dir"
        has ro
        # Another server reads the image.
        mkdir "$tmp/second"
        clean mount -t parext4 -o ro "$image" "$tmp/second"
        refused "in use" clean mount -o remount,rw "$dir"
        has ro
        clean umount "$tmp/second"
        clean mount -o remount,rw "$dir"
        has rw
        echo one > "$dir/one"
        clean umount "$dir"
        "$parext4" cat "$image:/one"
        refused "frobnicate" clean mount -t fuse.parext4 -o frobnicate "$image" "$dir"
        clean mount -s -t fuse.parext4 -o frobnicate "$image" "$dir" 2>&1
        clean umount -l "$dir"
        "$parext4" install-helper --remove
        refused "install" sh -c 'rm -f /sbin/mount.parext4; touch /sbin/mount.parext4; "$1" install-helper' sh "$parext4"
    "#;
    let Some(printed) = run(&fuse, script) else { return };
    assert!(printed.contains("unknown mount option \"frobnicate\" is left out"), "{printed}");
    assert!(printed.contains("remove /sbin/umount.fuse.parext4"), "{printed}");
}

#[test]
fn umount_8_fails_if_changes_may_be_lost() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let needle = crate::options::Needle::hide(&fuse);
    let script = r#"
        clean mount -t fuse.parext4 -o errors=remount-ro,uhelper=fuse.parext4 "$image" "$dir"
        refused "Structure needs cleaning" ls "$dir/dir/file"
        refused "changes are refused because of an earlier error: corrupt volume" clean mount -o remount,rw "$dir"
        refused "data that was not synced may be lost: corrupt volume" clean umount "$dir"
        grep -q " $dir " /proc/mounts && fail "still mounted"
        true
    "#;
    if run(&fuse, script).is_none() {
        return;
    }
    needle.put_back(&fuse);
    fuse.scratch().ok(&["recover", &text(&fuse.scratch().image())]);
    fuse.scratch().fsck();
}

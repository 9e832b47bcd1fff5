//! Mounts by a user without privileges, of a hostile image.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output};

use rustix::fs::{CWD, Mode, makedev, mknodat};

use testkit::fuse_mount::{FuseMount, errors, in_mount_namespace};

const USER: u32 = 65534;

/// Start of each script: makes `/dev/fuse` accessible to all users, as udev does, in a private mount namespace. Defines
/// `user`, which runs a command without privileges.
const PREPARE: &str = r#"
set -e
image="$2" dir="$3" parext4="$4" fuse="$1/fuse"
[ -e "$fuse" ] || mknod -m 666 "$fuse" c 10 229
mount --bind "$fuse" /dev/fuse
user() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
options() { grep " $dir fuse.parext4 " /proc/mounts | cut -d' ' -f4; }
"#;

/// Returns an image with inodes that only root may create. The image and the directory belong to the user. Prints a notice
/// and returns `None` if mounting is not possible here.
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

/// The server of a user who mounts without `allow_other` gets no requests of the kernel's own threads for times.
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

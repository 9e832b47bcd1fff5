//! Mounts by a user without privileges, of a hostile image.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output};

use rustix::fs::{CWD, Mode, makedev, mknodat};

use testkit::fuse_mount::{Bed, errors};

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
fn hostile() -> Option<Bed> {
    let bed = Bed::mounted(&[], "rw")?;
    std::fs::copy("/usr/bin/id", bed.path("id")).unwrap();
    std::fs::set_permissions(bed.path("id"), Permissions::from_mode(0o4755)).unwrap();
    mknodat(CWD, bed.path("zero"), rustix::fs::FileType::CharacterDevice, Mode::from(0o666), makedev(1, 5))
        .unwrap();
    std::fs::set_permissions(bed.path("zero"), Permissions::from_mode(0o666)).unwrap();
    std::fs::create_dir(bed.path("his")).unwrap();
    chown(bed.path("his"), Some(USER), Some(USER)).unwrap();
    bed.umount();
    for path in [bed.bench().image(), bed.dir().to_owned()] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    std::fs::set_permissions(bed.bench().path("."), Permissions::from_mode(0o755)).unwrap();
    Some(bed)
}

/// Runs a script after [`PREPARE`]. Prints a notice and returns `None` without the tools for it.
fn run(bed: &Bed, script: &str) -> Option<Output> {
    for tool in ["unshare", "setpriv", "fusermount3"] {
        if Command::new(tool).arg("--version").output().is_err() {
            eprintln!("SKIPPED: {tool} is not installed");
            return None;
        }
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &format!("{PREPARE}{script}"), "sh"]);
    command.arg(bed.bench().path(".")).arg(bed.bench().image()).arg(bed.dir());
    Some(command.arg(env!("CARGO_BIN_EXE_parext4")).env("LC_ALL", "C").output().unwrap())
}

/// Like [`run`], for a script that must succeed. Returns its output.
fn printed(bed: &Bed, script: &str) -> Option<String> {
    let output = run(bed, script)?;
    assert!(output.status.success(), "{}", errors(&output));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_user_mounts_without_privileges() {
    let Some(bed) = hostile() else { return };
    let script = r#"
        user "$parext4" mount "$image" "$dir"
        options
        user sh -ec 'echo contents > "$1/his/file"; cat "$1/his/file"' sh "$dir"
        ls "$dir" 2>&1 || true
        user "$parext4" umount "$dir"
        [ -z "$(options)" ]
    "#;
    let Some(printed) = printed(&bed, script) else { return };
    let mut lines = printed.lines();
    let options = lines.next().unwrap();
    assert!(options.contains("user_id=65534") && options.contains("nosuid,nodev"), "{options}");
    assert_eq!(lines.next(), Some("contents"));
    assert!(lines.next().unwrap().contains("Permission denied"), "root is not let in either: {printed}");
    bed.bench().fsck();
    assert_eq!(bed.bench().ok(&["cat", &bed.bench().inside("/his/file")]), "contents\n");
}

#[test]
fn set_id_bits_and_devices_of_an_image_have_no_effect() {
    let Some(bed) = hostile() else { return };
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
        let Some(printed) = printed(&bed, &script) else { return };
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
        assert_eq!(printed(&bed, &script).as_deref().map(str::trim_end), Some(user), "{options}");
    }
    bed.bench().fsck();
}

#[test]
fn errors_of_unprivileged_mounts_name_the_cause() {
    let Some(bed) = hostile() else { return };
    let refused = |script: &str, why: &str| {
        let Some(output) = run(&bed, script) else { return };
        assert!(!output.status.success(), "{script}");
        assert!(errors(&output).contains(why), "{}", errors(&output));
    };
    refused(r#"user "$parext4" mount -o allow_other "$image" "$dir""#, "allow_other");
    refused(r#"chmod 600 "$fuse"; user "$parext4" mount "$image" "$dir""#, "/dev/fuse");
    refused(r#"chown 0 "$image"; chmod 600 "$image"; user "$parext4" mount "$image" "$dir""#, "/test.img");
    bed.bench().fsck();
}

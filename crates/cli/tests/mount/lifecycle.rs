//! Mounting and unmounting.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use testkit::command::{run, text};
use testkit::fuse_mount::{Bed, errors};

#[test]
fn written_data_is_in_the_image() {
    for options in ["cache=writeback", "cache=direct", "threads=1"] {
        let Some(bed) = Bed::mounted(&[], options) else { return };
        std::fs::write(bed.path("file"), "to be or not to be").unwrap();
        bed.umount();
        assert_eq!(bed.bench().ok(&["cat", &bed.bench().inside("/file")]), "to be or not to be");
        bed.mount(options);
        assert_eq!(std::fs::read_to_string(bed.path("file")).unwrap(), "to be or not to be");
        assert_eq!(std::fs::metadata(bed.dir()).unwrap().ino(), 2);
        bed.finish();
    }
}

#[test]
fn a_second_mount_of_an_image_is_refused() {
    let Some(bed) = Bed::mounted(&[], "rw") else { return };
    let other = bed.bench().path("other");
    std::fs::create_dir(&other).unwrap();
    for options in ["rw", "ro"] {
        let command = ["mount", "-o", options, &text(&bed.bench().image()), &text(&other)];
        let error = bed.bench().fails(&command);
        assert!(error.contains(&format!("mounted on {}", text(bed.dir()))), "{error}");
    }
    bed.finish();
}

#[test]
fn read_only_mounts_share_the_image_and_change_nothing() {
    let Some(bed) = Bed::mounted(&[], "rw") else { return };
    std::fs::write(bed.path("file"), "contents").unwrap();
    bed.umount();
    let before = std::fs::read(bed.bench().image()).unwrap();
    bed.mount("ro");
    let other = bed.bench().path("other");
    std::fs::create_dir(&other).unwrap();
    bed.bench().ok(&["mount", "-o", "ro", &text(&bed.bench().image()), &text(&other)]);
    for dir in [bed.dir(), &other] {
        assert_eq!(std::fs::read_to_string(dir.join("file")).unwrap(), "contents");
        let error = std::fs::write(dir.join("new"), "").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(30), "EROFS: {error}");
    }
    bed.bench().ok(&["umount", &text(&other)]);
    bed.umount();
    assert!(std::fs::read(bed.bench().image()).unwrap() == before);
    bed.bench().fsck();
}

#[test]
fn a_signal_unmounts() {
    for signal in [Signal::TERM, Signal::INT] {
        let Some(bed) = Bed::new(&[]) else { return };
        let mut server = bed.serve("rw");
        std::fs::write(bed.path("file"), "contents").unwrap();
        kill_process(Pid::from_child(&server), signal).unwrap();
        assert!(server.wait().unwrap().success());
        assert!(!bed.is_mounted());
        bed.bench().fsck();
        assert_eq!(bed.bench().ok(&["cat", &bed.bench().inside("/file")]), "contents");
    }
}

#[test]
fn a_directory_in_use_stays_mounted() {
    let Some(bed) = Bed::mounted(&[], "rw") else { return };
    let file = std::fs::File::create(bed.path("file")).unwrap();
    let error = bed.bench().fails(&["umount", &text(bed.dir())]);
    assert!(error.contains("in use"), "{error}");
    assert!(bed.is_mounted());
    drop(file);
    bed.finish();
}

#[test]
fn errors_are_reported_before_the_command_returns() {
    let Some(bed) = Bed::new(&[]) else { return };
    let (image, dir) = (text(&bed.bench().image()), text(bed.dir()));
    let fails = |arguments: &[&str], part: &str| {
        let error = bed.bench().fails(arguments);
        assert!(error.contains(part), "{error}");
    };
    fails(&["mount", "-o", "log=/no/such/log", &image, &dir], "/no/such/log");
    fails(&["mount", "-o", "errors=panic", &image, &dir], "errors=panic");
    fails(&["mount", "-o", "frobnicate", &image, &dir], "frobnicate");
    fails(&["mount", &image, "/no/such/dir"], "/no/such/dir");
    fails(&["mount", "/no/such/image", &dir], "/no/such/image");
    fails(&["mount", &image, &image], "not a directory");
    fails(&["umount", &dir], "not a mount of parext4");
    std::fs::write(bed.bench().path("rubbish"), [1; 65536]).unwrap();
    fails(&["mount", &text(&bed.bench().path("rubbish")), &dir], "rubbish: not an ext4 volume");
    assert!(!bed.is_mounted());
}

#[test]
fn a_volume_may_have_any_offset_in_the_image() {
    let Some(bed) = Bed::new(&[]) else { return };
    let mut shifted = vec![0xee; 1 << 20];
    shifted.extend(std::fs::read(bed.bench().image()).unwrap());
    std::fs::write(bed.bench().image(), shifted).unwrap();
    bed.mount("offset=1048576");
    std::fs::write(bed.path("file"), "contents").unwrap();
    bed.umount();
    let shifted = std::fs::read(bed.bench().image()).unwrap();
    assert!(shifted[..1 << 20].iter().all(|&byte| byte == 0xee));
    std::fs::write(bed.bench().image(), &shifted[1 << 20..]).unwrap();
    bed.bench().fsck();
    assert_eq!(bed.bench().ok(&["cat", &bed.bench().inside("/file")]), "contents");
}

#[test]
fn other_users_have_access_only_with_allow_other() {
    let Some(bed) = Bed::mounted(&[], "rw") else { return };
    // By default only its owner may enter the temporary directory.
    std::fs::set_permissions(bed.bench().path("."), Permissions::from_mode(0o755)).unwrap();
    let file = text(&bed.path("file"));
    std::fs::write(&file, "contents").unwrap();
    let somebody_reads = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "cat", &file]);
        command.output().ok().map(|output| output.status.success())
    };
    let Some(reads) = somebody_reads() else { return eprintln!("SKIPPED: no setpriv") };
    assert!(!reads);
    bed.umount();
    bed.mount("allow_other");
    assert_eq!(somebody_reads(), Some(true));
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(somebody_reads(), Some(false), "permissions count");
    bed.finish();
}

#[test]
fn the_mount_table_names_the_image_and_the_options() {
    let Some(bed) = Bed::mounted(&[], "noexec") else { return };
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(&text(bed.dir()))).unwrap();
    let fields: Vec<_> = line.split(' ').collect();
    assert_eq!((fields[0], fields[2]), (&text(&bed.bench().image())[..], "fuse.parext4"));
    for option in ["nosuid", "nodev", "noexec"] {
        assert!(fields[3].split(',').any(|has| has == option), "{line}");
    }
    bed.finish();
    let output = run(&["mount", "--help"]);
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn mount_8_finds_it_by_name() {
    let Some(bed) = Bed::new(&[]) else { return };
    let helper = bed.bench().path("mount.fuse.parext4");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_parext4"), &helper).unwrap();
    let (image, dir) = (text(&bed.bench().image()), text(bed.dir()));
    let call = |arguments: &[&str]| {
        let output = Command::new(&helper).args([&image, &dir]).args(arguments).output().unwrap();
        (output.status.success(), errors(&output))
    };
    assert_eq!(call(&["-f", "-o", "rw,noatime"]), (true, String::new()));
    assert!(!bed.is_mounted());
    assert!(!call(&["-f", "-o", "frobnicate"]).0);
    assert_eq!(
        call(&["-n", "-t", "fuse.parext4", "-o", "rw,noatime,x-systemd.automount"]),
        (true, String::new())
    );
    assert!(bed.is_mounted());
    bed.finish();
}

#[test]
fn a_user_mounts_without_root() {
    let Some(bed) = Bed::new(&[]) else { return };
    if std::fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0o006 {
        return eprintln!("SKIPPED: /dev/fuse is for root");
    }
    let (image, dir) = (bed.bench().image(), bed.dir());
    std::fs::set_permissions(bed.bench().path("."), Permissions::from_mode(0o755)).unwrap();
    for path in [&image, dir] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    let as_unprivileged = |program: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).args(program);
        command.output().ok().map(|output| (output.status.success(), errors(&output)))
    };
    let program = env!("CARGO_BIN_EXE_parext4");
    let Some(mounted) = as_unprivileged(&[program, "mount", &text(&image), &text(dir)]) else {
        return eprintln!("SKIPPED: no setpriv");
    };
    assert_eq!(mounted, (true, String::new()));
    // The root directory of the image belongs to root.
    let file = text(&bed.path("file"));
    assert!(!as_unprivileged(&["touch", &file]).unwrap().0, "permissions count");
    assert!(as_unprivileged(&["ls", &text(dir)]).unwrap().0);
    assert!(std::fs::read_dir(dir).is_err(), "root must not read another user's mount");
    assert_eq!(as_unprivileged(&[program, "umount", &text(dir)]), Some((true, String::new())));
    bed.bench().fsck();
}

#[test]
fn a_dead_mount_is_explained_and_can_be_ended() {
    let Some(bed) = Bed::new(&[]) else { return };
    let mut server = bed.serve("rw");
    std::fs::write(bed.path("file"), "contents").unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let error = bed.bench().fails(&bed.mount_command("rw"));
    assert!(error.contains("parext4 umount"), "{error}");
    bed.umount();
    bed.mount("rw");
    bed.finish();
}

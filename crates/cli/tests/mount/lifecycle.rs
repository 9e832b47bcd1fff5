//! Mounting and unmounting.

use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};

use testkit::command::{program, run, text};
use testkit::fuse_mount::{FuseMount, errors, umount};

#[test]
fn written_data_is_in_the_image() {
    for options in ["cache=writeback", "cache=direct", "threads=1"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        std::fs::write(fuse.path("file"), "to be or not to be").unwrap();
        fuse.umount();
        assert_eq!(fuse.scratch().ok(&["cat", &fuse.scratch().inside("/file")]), "to be or not to be");
        fuse.mount(options);
        assert_eq!(std::fs::read_to_string(fuse.path("file")).unwrap(), "to be or not to be");
        assert_eq!(std::fs::metadata(fuse.dir()).unwrap().ino(), 2);
        fuse.finish();
    }
}

#[test]
fn a_second_mount_of_an_image_is_refused() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let other = fuse.scratch().path("other");
    std::fs::create_dir(&other).unwrap();
    for options in ["rw", "ro"] {
        let command = ["mount", "-o", options, &text(&fuse.scratch().image()), &text(&other)];
        let error = fuse.scratch().fails(&command);
        assert!(error.contains(&format!("mounted on {}", text(fuse.dir()))), "{error}");
    }
    fuse.finish();
}

#[test]
fn an_image_can_be_mounted_while_its_last_server_is_closing_it() {
    for options in ["rw", "ro"] {
        let Some(fuse) = FuseMount::new(&[]) else { return };
        let mut server = fuse.serve(options);
        assert!(fuse.path("lost+found").exists());
        // umount(2) waits neither for the server nor for its lock.
        let process = Pid::from_child(&server);
        kill_process(process, Signal::STOP).unwrap();
        rustix::mount::unmount(fuse.dir(), UnmountFlags::NOFOLLOW).unwrap();
        let mut next = Command::new(program());
        let mut next = next.args(fuse.mount_command("rw")).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let early = next.try_wait().unwrap();
        kill_process(process, Signal::CONT).unwrap();
        assert_eq!(early, None, "{options}: the image is still locked");
        assert!(next.wait().unwrap().success(), "{options}");
        assert!(server.wait().unwrap().success(), "{options}");
        assert!(fuse.is_mounted());
        fuse.finish();
    }
}

#[test]
fn the_image_is_closed_when_umount_returns() {
    for options in ["rw", "ro"].repeat(10) {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        fuse.umount();
        let image = File::open(fuse.scratch().image()).unwrap();
        image.try_lock().unwrap_or_else(|error| panic!("{options}: {error}"));
        // A program that another test is starting may hold a copy of the file, and with it the
        // lock.
        image.unlock().unwrap();
    }
}

#[test]
fn read_only_mounts_share_the_image_and_change_nothing() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    std::fs::write(fuse.path("file"), "contents").unwrap();
    fuse.umount();
    let before = std::fs::read(fuse.scratch().image()).unwrap();
    fuse.mount("ro");
    let other = fuse.scratch().path("other");
    std::fs::create_dir(&other).unwrap();
    fuse.scratch().ok(&["mount", "-o", "ro", &text(&fuse.scratch().image()), &text(&other)]);
    for dir in [fuse.dir(), &other] {
        assert_eq!(std::fs::read_to_string(dir.join("file")).unwrap(), "contents");
        let error = std::fs::write(dir.join("new"), "").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(30), "EROFS: {error}");
    }
    let unmounted = umount(&other);
    assert!(unmounted.status.success(), "{}", errors(&unmounted));
    fuse.umount();
    assert!(std::fs::read(fuse.scratch().image()).unwrap() == before);
    fuse.scratch().fsck();
}

#[test]
fn a_signal_unmounts() {
    for signal in [Signal::TERM, Signal::INT] {
        let Some(fuse) = FuseMount::new(&[]) else { return };
        let mut server = fuse.serve("rw");
        std::fs::write(fuse.path("file"), "contents").unwrap();
        kill_process(Pid::from_child(&server), signal).unwrap();
        assert!(server.wait().unwrap().success());
        assert!(!fuse.is_mounted());
        fuse.scratch().fsck();
        assert_eq!(fuse.scratch().ok(&["cat", &fuse.scratch().inside("/file")]), "contents");
    }
}

#[test]
fn a_directory_in_use_is_not_unmounted() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let file = File::create(fuse.path("file")).unwrap();
    let error = fuse.scratch().fails(&["umount", &text(fuse.dir())]);
    assert!(error.contains("in use"), "{error}");
    assert!(fuse.is_mounted());
    drop(file);
    fuse.finish();
}

#[test]
fn errors_are_reported_before_the_command_returns() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let (image, dir) = (text(&fuse.scratch().image()), text(fuse.dir()));
    let fails = |arguments: &[&str], part: &str| {
        let error = fuse.scratch().fails(arguments);
        assert!(error.contains(part), "{error}");
    };
    fails(&["mount", "-o", "log=/no/such/log", &image, &dir], "/no/such/log");
    fails(&["mount", "-o", "errors=panic", &image, &dir], "errors=panic");
    fails(&["mount", "-o", "frobnicate", &image, &dir], "frobnicate");
    fails(&["mount", &image, "/no/such/dir"], "/no/such/dir");
    fails(&["mount", "/no/such/image", &dir], "/no/such/image");
    fails(&["mount", &image, &image], "not a directory");
    fails(&["umount", &dir], "not a mount of parext4");
    std::fs::write(fuse.scratch().path("not-a-volume"), [1; 65536]).unwrap();
    fails(&["mount", &text(&fuse.scratch().path("not-a-volume")), &dir], "not-a-volume: not an ext4 volume");
    assert!(!fuse.is_mounted());
}

#[test]
fn a_volume_may_have_any_offset_in_the_image() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let mut shifted = vec![0xee; 1 << 20];
    shifted.extend(std::fs::read(fuse.scratch().image()).unwrap());
    std::fs::write(fuse.scratch().image(), shifted).unwrap();
    fuse.mount("offset=1048576");
    std::fs::write(fuse.path("file"), "contents").unwrap();
    fuse.umount();
    let shifted = std::fs::read(fuse.scratch().image()).unwrap();
    assert!(shifted[..1 << 20].iter().all(|&byte| byte == 0xee));
    std::fs::write(fuse.scratch().image(), &shifted[1 << 20..]).unwrap();
    fuse.scratch().fsck();
    assert_eq!(fuse.scratch().ok(&["cat", &fuse.scratch().inside("/file")]), "contents");
}

#[test]
fn other_users_have_access_only_with_allow_other() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    // By default only its owner may enter the temporary directory.
    std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
    let file = text(&fuse.path("file"));
    std::fs::write(&file, "contents").unwrap();
    let another_user_reads = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "cat", &file]);
        command.output().ok().map(|output| output.status.success())
    };
    let Some(reads) = another_user_reads() else { return testkit::skipped("no setpriv") };
    assert!(!reads);
    fuse.umount();
    fuse.mount("allow_other");
    assert_eq!(another_user_reads(), Some(true));
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(another_user_reads(), Some(false), "permissions count");
    fuse.finish();
}

#[test]
fn the_mount_table_names_the_image_and_the_options() {
    let Some(fuse) = FuseMount::mounted(&[], "noexec") else { return };
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(&text(fuse.dir()))).unwrap();
    let fields: Vec<_> = line.split(' ').collect();
    assert_eq!((fields[0], fields[2]), (&text(&fuse.scratch().image())[..], "fuse.parext4"));
    for option in ["nosuid", "nodev", "noexec"] {
        assert!(fields[3].split(',').any(|has| has == option), "{line}");
    }
    fuse.finish();
    let output = run(&["mount", "--help"]);
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn mount_8_finds_it_by_name() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let helper = fuse.scratch().path("mount.fuse.parext4");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_parext4"), &helper).unwrap();
    let (image, dir) = (text(&fuse.scratch().image()), text(fuse.dir()));
    // As every file system, it may cover files.
    std::fs::write(fuse.path("covered"), "").unwrap();
    let call = |arguments: &[&str]| {
        let output = Command::new(&helper).args([&image, &dir]).args(arguments).output().unwrap();
        (output.status.success(), errors(&output))
    };
    assert_eq!(call(&["-f", "-o", "rw,noatime"]), (true, String::new()));
    assert!(!fuse.is_mounted());
    assert!(!call(&["-f", "-o", "frobnicate"]).0);
    assert_eq!(
        call(&["-n", "-t", "fuse.parext4", "-o", "rw,noatime,x-systemd.automount"]),
        (true, String::new())
    );
    assert!(fuse.is_mounted());
    fuse.finish();
}

#[test]
fn a_dead_mount_is_replaced_by_the_next_one() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    for _ in 0..2 {
        let mut server = fuse.serve("rw");
        std::fs::write(fuse.path("file"), "contents").unwrap();
        File::open(fuse.path("file")).unwrap().sync_all().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(fuse.is_mounted());
        let output = run(&fuse.mount_command("rw").iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success(), "{}", errors(&output));
        assert!(
            errors(&output).contains("removed an earlier mount, whose server had ended"),
            "{}",
            errors(&output)
        );
        assert_eq!(std::fs::read_to_string(fuse.path("file")).unwrap(), "contents");
        fuse.umount();
        assert!(!fuse.is_mounted());
    }
    fuse.scratch().fsck();
}

#[test]
fn a_directory_that_holds_files_is_not_covered_unless_asked_for() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    std::fs::write(fuse.path("precious"), "contents").unwrap();
    for more in [&["mount"][..], &["mount", "--foreground"]] {
        let mut command = more.to_vec();
        let (image, dir) = (text(&fuse.scratch().image()), text(fuse.dir()));
        command.extend([&image[..], &dir]);
        let error = fuse.scratch().fails(&command);
        assert!(error.contains("the directory is not empty") && error.contains("-o nonempty"), "{error}");
        assert!(!fuse.is_mounted());
    }
    fuse.mount("nonempty");
    assert!(!fuse.path("precious").exists());
    fuse.finish();
}

//! The report of a mount, and `parext4 stat`.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use testkit::command::text;
use testkit::fuse_mount::{Bed, as_user, errors};

const ATTRIBUTE: &str = "user.parext4.stats";

fn report(bed: &Bed) -> Value {
    serde_json::from_str(&bed.bench().ok(&["stat", "--json", &text(bed.dir())])).unwrap()
}

/// Returns how many operations with a reason were admitted: shared and exclusive.
fn admitted(report: &Value, reason: &str) -> (u64, u64) {
    let rows = report["operations"]["admissions"].as_array().unwrap();
    let row = rows.iter().find(|row| row["reason"] == reason);
    row.map_or((0, 0), |row| (row["shared"].as_u64().unwrap(), row["exclusive"].as_u64().unwrap()))
}

#[test]
fn operations_are_counted() {
    for options in ["cache=direct,threads=3,explain", "cache=direct,threads=1,policy=exclusive"] {
        let Some(bed) = Bed::mounted(&["--block-size", "4096"], options) else { return };
        let before = report(&bed);
        assert_eq!(admitted(&before, "writes to the page cache"), (0, 0));
        std::fs::write(bed.path("file"), vec![7; 100_000]).unwrap();
        let dirty = report(&bed)["cache"]["dirty_bytes"].as_u64().unwrap();
        std::fs::File::open(bed.path("file")).unwrap().sync_all().unwrap();
        let after = report(&bed);
        let (shared, alone) = admitted(&after, "writes to the page cache");
        assert!(shared == 0 && alone > 0, "{after}");
        assert!(dirty == 0 || dirty >= 100_000, "{dirty}");
        assert_eq!(after["cache"]["dirty_bytes"], 0, "{after}");
        assert!(after["journal_commits"].as_u64() > before["journal_commits"].as_u64(), "{after}");
        assert!(after["requests"]["received"].as_u64() > before["requests"]["received"].as_u64(), "{after}");
        assert!(after["cache"]["misses"].as_u64().unwrap() >= 25, "{after}");
        let mount = &after["mount"];
        assert_eq!(mount["image"], text(&bed.bench().image()));
        let policy = if options.contains("exclusive") { "exclusive" } else { "range" };
        assert_eq!(mount["policy"], policy);
        assert!(mount["options"].as_str().unwrap().contains("cache=direct"), "{mount}");
        assert_eq!(mount["stopped"], Value::Null);

        let said = bed.bench().ok(&["stat", &text(bed.dir())]);
        for part in
            [&text(&bed.bench().image()), &format!("policy {policy}"), "writes to the page cache", "dirty"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        bed.finish();
    }
}

#[test]
fn the_report_hides_an_attribute_of_the_root() {
    let Some(bed) = Bed::mounted(&[], "rw") else { return };
    let mut value = vec![0_u8; 65536];
    let len = getxattr(bed.dir(), ATTRIBUTE, &mut value[..]).unwrap();
    serde_json::from_slice::<Value>(&value[..len]).unwrap();
    assert_eq!(getxattr(bed.dir(), ATTRIBUTE, &mut [0_u8; 10][..]), Err(Errno::RANGE));
    assert_eq!(setxattr(bed.dir(), ATTRIBUTE, b"x", XattrFlags::empty()), Err(Errno::PERM));
    assert_eq!(removexattr(bed.dir(), ATTRIBUTE), Err(Errno::PERM));
    assert_eq!(listxattr(bed.dir(), &mut value[..]), Ok(0));
    // On any other file the name stands for an ordinary attribute.
    std::fs::write(bed.path("file"), "").unwrap();
    assert_eq!(getxattr(bed.path("file"), ATTRIBUTE, &mut value[..]), Err(Errno::NODATA));
    setxattr(bed.path("file"), ATTRIBUTE, b"x", XattrFlags::empty()).unwrap();
    assert_eq!(listxattr(bed.path("file"), &mut value[..]), Ok(ATTRIBUTE.len() + 1));
    bed.finish();
}

#[test]
fn stat_explains_why_there_is_no_report() {
    let Some(bed) = Bed::new(&[]) else { return };
    let fails = |path: &str, part: &str| {
        let error = bed.bench().fails(&["stat", path]);
        assert!(error.contains(part), "{error}");
    };
    fails(&text(bed.dir()), "not a mount of parext4");
    fails("/proc", "not a mount of parext4");
    fails("/no/such/dir", "/no/such/dir");
    let mut server = bed.serve("rw");
    std::fs::create_dir(bed.path("dir")).unwrap();
    fails(&text(&bed.path("dir")), "is inside of a mount");
    std::fs::set_permissions(bed.bench().path("."), Permissions::from_mode(0o755)).unwrap();
    match as_user(65534, &[env!("CARGO_BIN_EXE_parext4"), "stat", &text(bed.dir())]).output() {
        Ok(output) => assert!(errors(&output).contains("allow_other"), "{}", errors(&output)),
        Err(_) => eprintln!("SKIPPED: no setpriv"),
    }
    server.kill().unwrap();
    server.wait().unwrap();
    fails(&text(bed.dir()), "parext4 umount");
    bed.umount();
    bed.mount("rw");
    bed.finish();
}

#[test]
fn stat_watch_ends_with_the_mount_and_by_a_signal() {
    for json in [true, false] {
        let Some(bed) = Bed::mounted(&[], "rw") else { return };
        let watch = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_parext4"));
            command.args(["stat", "--watch"]).args(json.then_some("--json")).arg(bed.dir());
            let mut watcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut output = BufReader::new(watcher.stdout.take().unwrap());
            let mut line = String::new();
            // Two reports, the second with rates.
            for _ in 0..2 {
                while !line.contains(&text(&bed.bench().image())) {
                    assert!(output.read_line(&mut line).unwrap() > 0, "{line}");
                }
                line.clear();
            }
            (watcher, output)
        };
        let ended = |(mut watcher, output): (std::process::Child, BufReader<_>)| {
            let rest: Vec<String> = output.lines().map(Result::unwrap).collect();
            assert!(watcher.wait().unwrap().success());
            rest
        };
        let watcher = watch();
        kill_process(Pid::from_child(&watcher.0), Signal::INT).unwrap();
        ended(watcher);
        let watcher = watch();
        bed.umount();
        let rest = ended(watcher);
        assert!(json || rest.last().unwrap().contains("not mounted any more"), "{rest:?}");
        bed.bench().fsck();
    }
}

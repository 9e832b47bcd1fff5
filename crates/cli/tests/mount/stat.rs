//! The report of a mount, and `parext4 stat`.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, as_user, errors};

const ATTRIBUTE: &str = "user.parext4.stats";

fn report(fuse: &FuseMount) -> Value {
    serde_json::from_str(&fuse.scratch().ok(&["stat", "--json", &text(fuse.dir())])).unwrap()
}

/// Returns how many operations with a reason were admitted: shared and exclusive.
fn admitted(report: &Value, reason: &str) -> (u64, u64) {
    let rows = report["operations"]["admissions"].as_array().unwrap();
    let row = rows.iter().find(|row| row["reason"] == reason);
    row.map_or((0, 0), |row| (row["shared"].as_u64().unwrap(), row["exclusive"].as_u64().unwrap()))
}

#[test]
fn a_durable_overwrite_costs_two_requests() {
    for options in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let received = || report(&fuse)["requests"]["received"].as_u64().unwrap();
        std::fs::write(fuse.path("file"), vec![1; 1 << 20]).unwrap();
        let file = std::fs::File::options().write(true).open(fuse.path("file")).unwrap();
        let overwrite = || {
            file.write_all_at(&[2; 8192], 0).unwrap();
            file.sync_data().unwrap();
        };
        overwrite();
        let before = received();
        (0..400).for_each(|_| overwrite());
        // With `cache=writeback` the kernel also sends the time of modification once a tick of its
        // clock.
        let requests = received() - before;
        assert!((800..1400).contains(&requests), "{options}: {requests} requests");
        drop(file);
        fuse.finish();
    }
}

#[test]
fn operations_are_counted() {
    for options in ["cache=direct,threads=3,explain", "cache=direct,threads=1,policy=exclusive"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        let before = report(&fuse);
        assert_eq!(admitted(&before, "writes to the page cache"), (0, 0));
        std::fs::write(fuse.path("file"), vec![7; 100_000]).unwrap();
        let dirty = report(&fuse)["cache"]["dirty_bytes"].as_u64().unwrap();
        std::fs::File::open(fuse.path("file")).unwrap().sync_all().unwrap();
        let after = report(&fuse);
        let (shared, alone) = admitted(&after, "writes to the page cache");
        assert!(shared == 0 && alone > 0, "{after}");
        assert!(dirty == 0 || dirty >= 100_000, "{dirty}");
        assert_eq!(after["cache"]["dirty_bytes"], 0, "{after}");
        assert!(after["journal_commits"].as_u64() > before["journal_commits"].as_u64(), "{after}");
        assert!(after["requests"]["received"].as_u64() > before["requests"]["received"].as_u64(), "{after}");
        assert!(after["cache"]["misses"].as_u64().unwrap() >= 25, "{after}");
        let mount = &after["mount"];
        assert_eq!(mount["image"], text(&fuse.scratch().image()));
        let policy = if options.contains("exclusive") { "exclusive" } else { "range" };
        assert_eq!(mount["policy"], policy);
        assert!(mount["options"].as_str().unwrap().contains("cache=direct"), "{mount}");
        assert_eq!(mount["stopped"], Value::Null);

        let said = fuse.scratch().ok(&["stat", &text(fuse.dir())]);
        for part in
            [&text(&fuse.scratch().image()), &format!("policy {policy}"), "writes to the page cache", "dirty"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        fuse.finish();
    }
}

#[test]
fn the_report_hides_an_attribute_of_the_root() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let mut value = vec![0_u8; 65536];
    let len = getxattr(fuse.dir(), ATTRIBUTE, &mut value[..]).unwrap();
    serde_json::from_slice::<Value>(&value[..len]).unwrap();
    assert_eq!(getxattr(fuse.dir(), ATTRIBUTE, &mut [0_u8; 10][..]), Err(Errno::RANGE));
    assert_eq!(setxattr(fuse.dir(), ATTRIBUTE, b"x", XattrFlags::empty()), Err(Errno::PERM));
    assert_eq!(removexattr(fuse.dir(), ATTRIBUTE), Err(Errno::PERM));
    assert_eq!(listxattr(fuse.dir(), &mut value[..]), Ok(0));
    // On any other file the name stands for an ordinary attribute.
    std::fs::write(fuse.path("file"), "").unwrap();
    assert_eq!(getxattr(fuse.path("file"), ATTRIBUTE, &mut value[..]), Err(Errno::NODATA));
    setxattr(fuse.path("file"), ATTRIBUTE, b"x", XattrFlags::empty()).unwrap();
    assert_eq!(listxattr(fuse.path("file"), &mut value[..]), Ok(ATTRIBUTE.len() + 1));
    fuse.finish();
}

#[test]
fn stat_explains_why_there_is_no_report() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let fails = |path: &str, part: &str| {
        let error = fuse.scratch().fails(&["stat", path]);
        assert!(error.contains(part), "{error}");
    };
    fails(&text(fuse.dir()), "not a mount of parext4");
    fails("/proc", "not a mount of parext4");
    fails("/no/such/dir", "/no/such/dir");
    for image in [&text(&fuse.scratch().image()), "nbd://localhost/export"] {
        fails(image, &format!("{image}: not a directory; \"parext4 info {image}\" shows"));
    }
    let mut server = fuse.serve("rw");
    std::fs::create_dir(fuse.path("dir")).unwrap();
    fails(&text(&fuse.path("dir")), "is inside of a mount");
    std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
    match as_user(65534, &[env!("CARGO_BIN_EXE_parext4"), "stat", &text(fuse.dir())]).output() {
        Ok(output) => assert!(errors(&output).contains("allow_other"), "{}", errors(&output)),
        Err(_) => testkit::skipped("no setpriv"),
    }
    server.kill().unwrap();
    server.wait().unwrap();
    fails(&text(fuse.dir()), "parext4 umount");
    fuse.umount();
    fuse.mount("rw");
    fuse.finish();
}

#[test]
fn stat_watch_ends_with_the_mount_and_by_a_signal() {
    for json in [true, false] {
        let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
        let watch = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_parext4"));
            command.args(["stat", "--watch"]).args(json.then_some("--json")).arg(fuse.dir());
            let mut watcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut output = BufReader::new(watcher.stdout.take().unwrap());
            let mut line = String::new();
            // Two reports, the second with rates.
            for _ in 0..2 {
                while !line.contains(&text(&fuse.scratch().image())) {
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
        fuse.umount();
        let rest = ended(watcher);
        assert!(json || rest.last().unwrap().contains("not mounted any more"), "{rest:?}");
        fuse.scratch().fsck();
    }
}

//! The benchmark: that it runs and says what it should, not how fast anything is.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Bench, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A short job on a small file.
fn job(bench: &Bench, target: &str, options: &[&str]) -> Value {
    let mut arguments = vec!["bench", "--json", "--size=4m", "--runtime=50ms", "--numjobs=2", "--iodepth=2"];
    let target = format!("--target={target}");
    arguments.push(&target);
    arguments.extend(options);
    json(&bench.ok(&arguments))
}

#[test]
fn every_target_is_measured() {
    let bench = Bench::new(&[]);
    let dir = bench.path("dir");
    std::fs::create_dir(&dir).unwrap();
    let fresh = bench.path("fresh.img");
    let targets = [
        "mem".to_owned(),
        "sim:50us,4".to_owned(),
        format!("lib:{}", text(&bench.image())),
        format!("lib:{}", text(&fresh)),
        format!("raw:{}", text(&fresh)),
        format!("dir:{}", text(&dir)),
    ];
    for target in &targets {
        let report = job(&bench, target, &["--direct=0"]);
        assert_eq!((&report["target"], &report["rw"]), (&Value::from(&**target), &"randwrite".into()));
        assert!(report["iops"].as_f64().unwrap() > 0.0 && report["mib_s"].as_f64().unwrap() > 0.0);
        let latency = |name: &str| report["latency_us"][name].as_f64().unwrap();
        assert!(latency("p50") > 0.0 && latency("p50") <= latency("p99") && latency("p99") <= latency("max"));
    }
    assert!(!fresh.exists() && std::fs::read_dir(&dir).unwrap().next().is_none());
    assert_eq!(bench.ok(&["ls", &bench.inside("/")]), "lost+found\n");
    bench.fsck();
}

#[test]
fn fresh_files_are_filled_once() {
    let bench = Bench::new(&[]);
    for layout in ["unwritten", "hole"] {
        let report = job(&bench, "mem", &["--runtime=60s", "--layout", layout]);
        assert_eq!(report["ops"], 1024, "{layout}");
    }
    let report = job(&bench, "mem", &["--runtime=60s", "--rw=append", "--bs=4k-16k", "--files=per-job"]);
    assert_eq!((&report["files"], &report["bs"]), (&"per-job".into(), &"4k-16k".into()));
    assert!(report["extents"].as_u64() >= report["extents_ideal"].as_u64());
    for rw in ["read", "write", "randread", "randrw"] {
        job(&bench, "mem", &["--rw", rw, "--policy=exclusive"]);
    }
}

#[test]
fn page_faults_are_measured() {
    let bench = Bench::new(&[]);
    let image = format!("lib:{}", text(&bench.image()));
    let dir = format!("dir:{}", text(bench.image().parent().unwrap()));
    for target in ["mem", &image, &dir] {
        for options in [&["--rw=read", "--pre-read"][..], &["--rw=randrw"], &["--rw=write", "--layout=hole"]]
        {
            let mapped = ["--ioengine=mmap", "--direct=0", "--loops=3", "--runtime=60s"];
            let report = job(&bench, target, &[&mapped, options].concat());
            let passes = if options.contains(&"--layout=hole") { 1 } else { 3 };
            assert_eq!(
                (&report["ioengine"], &report["ops"]),
                (&"mmap".into(), &(passes * 1024).into()),
                "{target}"
            );
        }
    }
    bench.fsck();
}

#[test]
fn a_job_that_cannot_be_done_is_refused() {
    let bench = Bench::new(&[]);
    let fails = |options: &[&str]| bench.fails(&[&["bench"], options].concat());
    assert!(fails(&["--size=1k"]).contains("--size"));
    assert!(fails(&["--rw=append", "--layout=hole"]).contains("--layout=append"));
    assert!(fails(&["--rw=randread", "--layout=append"]).contains("nothing to read"));
    assert!(fails(&["--ioengine=mmap"]).contains("--direct=0"));
    assert!(fails(&["--loops=0"]).contains("--loops"));
    let copies = ["--target=copy", "--rw=randread", "--direct=0", "--iodepth=1", "--size=4m"];
    assert!(fails(&[&copies[..], &["--ioengine=mmap"]].concat()).contains("no page faults"));
    let raw = format!("raw:{}", text(&bench.image()));
    assert!(fails(&["--target", &raw, "--size=4m"]).contains("ext2/3/4"));
    bench.fsck();
    assert!(fails(&["--target", "dir:/nowhere"]).contains("/nowhere"));
}

#[test]
fn the_sources_are_measured() {
    let bench = Bench::new(&[]);
    let out = text(&bench.path("out"));
    let only = "--only=written-unwritten-4k-mem,unaligned-overwrite-2k-qd256x8-sim";
    let table = bench.ok(&["bench", "sources", "--quick", only, "--out", &out]);
    assert!(table.contains("S3 unaligned-overwrite-2k-qd256x8-sim"), "{table}");
    let lines = json(&std::fs::read_to_string(bench.path("out/results.json")).unwrap());
    let policies: Vec<&str> =
        lines.as_array().unwrap().iter().filter_map(|line| line["policy"].as_str()).collect();
    assert_eq!(policies, ["range", "range", "exclusive", "shared-overwrite", "range"]);
    for line in lines.as_array().unwrap() {
        assert!(line["iops"].as_f64().unwrap() > 0.0 && line["mib_s"].as_f64().unwrap() > 0.0);
        assert_eq!(
            (&line["runs"], &line["files"], &line["failure"]),
            (&1.into(), &"one".into(), &Value::Null)
        );
        assert_eq!(line["iops_of_each_run"].as_array().unwrap().len(), 1);
        assert!(["S1", "S3"].contains(&line["source"].as_str().unwrap()));
        assert!(["lib", "sim"].contains(&line["target"].as_str().unwrap()));
        assert!(line["case"].is_string());
    }
    for picture in ["out/results.svg", "out/results.png"] {
        assert!(std::fs::metadata(bench.path(picture)).unwrap().len() > 1000);
    }
    assert!(bench.fails(&["bench", "sources", "--only=S9"]).contains("--list"));
}

/// The comparison of work with names and small files, whose images and mounts come under `temporary`.
fn metadata(bench: &Bench, temporary: &Path) -> Command {
    std::fs::create_dir(temporary).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_parext4"));
    command.args(["bench", "sources", "--quick", "--only=metadata", "--out"]).arg(bench.path("out"));
    command.env("TMPDIR", temporary).stdout(Stdio::piped());
    command
}

/// Whether something is mounted below `temporary`.
fn has_mounts(temporary: &Path) -> bool {
    std::fs::read_to_string("/proc/self/mounts").unwrap().contains(temporary.to_str().unwrap())
}

/// Nothing is left that the comparison made: no directory, image, mount or loop device.
fn assert_clean(temporary: &Path) {
    assert!(!has_mounts(temporary) && std::fs::read_dir(temporary).unwrap().next().is_none());
    // What looks at every new device keeps it for a moment.
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_attached(temporary) {
        assert!(Instant::now() < deadline, "a loop device is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a loop device has an image below `temporary`.
fn is_attached(temporary: &Path) -> bool {
    std::fs::read_dir("/sys/block").into_iter().flatten().any(|device| {
        let image = std::fs::read_to_string(device.unwrap().path().join("loop/backing_file"));
        image.unwrap_or_default().contains(temporary.to_str().unwrap())
    })
}

fn is_fuse_missing() -> bool {
    let is_missing = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_err()
        || Command::new("fusermount3").arg("-V").output().is_err()
        || !["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"].iter().any(|path| Path::new(path).exists());
    if is_missing {
        eprintln!("SKIPPED: nothing can be mounted here");
    }
    is_missing
}

#[test]
fn names_and_small_files_are_measured() {
    if is_fuse_missing() {
        return;
    }
    let bench = Bench::new(&[]);
    let temporary = bench.path("temporary");
    let output = metadata(&bench, &temporary).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("metadata create: 2 jobs, a directory each"));
    let lines = json(&std::fs::read_to_string(bench.path("out/results.json")).unwrap());
    let mounted: Vec<&Value> =
        lines.as_array().unwrap().iter().filter(|line| line["target"] == "parext4 mounted").collect();
    let cases: Vec<&str> = mounted.iter().map(|line| line["case"].as_str().unwrap()).collect();
    let all = ["create", "stat", "rename", "unlink", "untar", "git"];
    assert_eq!(cases, all[..if said.contains("git is not installed") { 5 } else { 6 }]);
    for line in mounted {
        assert_eq!(
            (&line["failure"], &line["source"], &line["runs"]),
            (&Value::Null, &"metadata".into(), &1.into())
        );
        assert!(line["iops"].as_f64().unwrap() > 0.0 && line["seconds"].as_f64().unwrap() > 0.0, "{line}");
        let moves_data = ["untar", "git"].contains(&line["case"].as_str().unwrap());
        assert_eq!(line["mib_s"].as_f64().unwrap() > 0.0, moves_data, "{line}");
    }
    assert_clean(&temporary);
}

#[test]
fn nothing_is_left_of_an_interrupted_comparison() {
    if is_fuse_missing() {
        return;
    }
    let bench = Bench::new(&[]);
    let temporary = bench.path("temporary");
    let mut running = metadata(&bench, &temporary).stderr(Stdio::null()).spawn().unwrap();
    while !has_mounts(&temporary) {
        assert!(running.try_wait().unwrap().is_none(), "it has not mounted anything");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    assert!(!running.wait().unwrap().success());
    assert!(!bench.path("out").exists());
    assert_clean(&temporary);
}

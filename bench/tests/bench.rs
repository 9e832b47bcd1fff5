//! The benchmark: that it runs and reports correct fields, not how fast anything is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parext4::{DeviceOptions, FileDevice, MkfsOptions, Volume, mkfs};
use parext4_storage::open_device;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use testkit::command::{failure, success, text};
use testkit::nbd::{FakeServer, Offer};
use testkit::volume::assert_clean_file;

const IMAGE_SIZE: u64 = 64 << 20;

/// A temporary directory.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Returns a path in the directory.
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes an image with an empty volume.
    fn make_image(&self) -> PathBuf {
        let image = self.path("test.img");
        let device = FileDevice::open(&image, &DeviceOptions::new().create(IMAGE_SIZE)).unwrap();
        mkfs(&device, &MkfsOptions::new()).unwrap();
        image
    }
}

/// Returns the program with arguments.
fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parext4-bench"));
    command.args(arguments);
    command
}

/// Runs the program, which must fail with one line of message. Returns the line.
fn fails(arguments: &[&str]) -> String {
    failure(&bench(arguments).output().unwrap())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Runs a short job on a small file. Returns its report.
fn job(target: &str, options: &[&str]) -> Value {
    let mut command = bench(&["--json", "--size=4m", "--runtime=50ms", "--numjobs=2", "--iodepth=2"]);
    json(&success(&command.arg(format!("--target={target}")).args(options).output().unwrap()))
}

#[test]
fn every_target_is_measured() {
    let scratch = Scratch::new();
    let image = scratch.make_image();
    let dir = scratch.path("dir");
    std::fs::create_dir(&dir).unwrap();
    let fresh = scratch.path("fresh.img");
    let targets = [
        "mem".to_owned(),
        "sim:50us,4".to_owned(),
        format!("lib:{}", text(&image)),
        format!("lib:{}", text(&fresh)),
        format!("raw:{}", text(&fresh)),
        format!("dir:{}", text(&dir)),
    ];
    for target in &targets {
        let report = job(target, &["--direct=0"]);
        assert_eq!((&report["target"], &report["rw"]), (&Value::from(&**target), &"randwrite".into()));
        assert!(report["iops"].as_f64().unwrap() > 0.0 && report["mib_s"].as_f64().unwrap() > 0.0);
        let latency = |name: &str| report["latency_us"][name].as_f64().unwrap();
        assert!(latency("p50") > 0.0 && latency("p50") <= latency("p99") && latency("p99") <= latency("max"));
    }
    assert!(!fresh.exists() && std::fs::read_dir(&dir).unwrap().next().is_none());
    let volume = Volume::open(&image).unwrap();
    let names: Vec<_> = volume.read_dir("/").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["lost+found"]);
    volume.close().unwrap();
    assert_clean_file(&image, "every target");
}

#[test]
fn fresh_files_are_filled_once() {
    for layout in ["unwritten", "hole"] {
        let report = job("mem", &["--runtime=60s", "--layout", layout]);
        assert_eq!(report["ops"], 1024, "{layout}");
    }
    let report = job("mem", &["--runtime=60s", "--rw=append", "--bs=4k-16k", "--files=per-job"]);
    assert_eq!((&report["files"], &report["bs"]), (&"per-job".into(), &"4k-16k".into()));
    assert!(report["extents"].as_u64() >= report["extents_ideal"].as_u64());
    for rw in ["read", "write", "randread", "randrw"] {
        job("mem", &["--rw", rw, "--policy=exclusive"]);
    }
}

#[test]
fn page_faults_are_measured() {
    let scratch = Scratch::new();
    let image = scratch.make_image();
    let (lib, dir) = (format!("lib:{}", text(&image)), format!("dir:{}", text(scratch.0.path())));
    for target in ["mem", &lib, &dir] {
        for options in [&["--rw=read", "--pre-read"][..], &["--rw=randrw"], &["--rw=write", "--layout=hole"]]
        {
            let mapped = ["--ioengine=mmap", "--direct=0", "--loops=3", "--runtime=60s"];
            let report = job(target, &[&mapped, options].concat());
            let passes = if options.contains(&"--layout=hole") { 1 } else { 3 };
            assert_eq!(
                (&report["ioengine"], &report["ops"]),
                (&"mmap".into(), &(passes * 1024).into()),
                "{target}"
            );
        }
    }
    assert_clean_file(&image, "page faults");
}

#[test]
fn a_url_is_a_target() {
    let server = FakeServer::start(IMAGE_SIZE, Offer::default());
    let url = server.url("");
    mkfs(&*open_device(Path::new(&url), &DeviceOptions::new()).unwrap(), &MkfsOptions::new()).unwrap();
    for kind in ["lib", "raw"] {
        let report = job(&format!("{kind}:{url}"), &["--rw=randread"]);
        assert!(report["ops"].as_u64() > Some(0), "{report}");
    }
    let destroyed = fails(&["--target", &format!("raw:{url}"), "--rw=randwrite", "--size=4m"]);
    assert!(destroyed.contains("which the job would destroy"), "{destroyed}");
    let refused = fails(&["--size=1m", "--target=lib:tape://host/disk"]);
    assert!(refused.contains("tape://host/disk: unknown scheme \"tape\""), "{refused}");
}

#[test]
fn a_job_that_cannot_be_done_is_refused() {
    let scratch = Scratch::new();
    let image = scratch.make_image();
    assert!(fails(&["--size=1k"]).contains("--size"));
    assert!(fails(&["--rw=append", "--layout=hole"]).contains("--layout=append"));
    assert!(fails(&["--rw=randread", "--layout=append"]).contains("nothing to read"));
    assert!(fails(&["--ioengine=mmap"]).contains("--direct=0"));
    assert!(fails(&["--loops=0"]).contains("--loops"));
    let copies = ["--target=copy", "--rw=randread", "--direct=0", "--iodepth=1", "--size=4m"];
    assert!(fails(&[&copies[..], &["--ioengine=mmap"]].concat()).contains("no page faults"));
    let raw = format!("raw:{}", text(&image));
    assert!(fails(&["--target", &raw, "--size=4m"]).contains("ext4 file system"));
    assert_clean_file(&image, "a refused job");
    let text_file = scratch.path("text");
    std::fs::write(&text_file, vec![b'a'; 4 << 20]).unwrap();
    let raw = format!("raw:{}", text(&text_file));
    let job = ["--target", &raw, "--size=4m", "--direct=0", "--runtime=1ms"];
    assert!(fails(&job).contains("--destroy"));
    assert!(std::fs::read(&text_file).unwrap().iter().all(|&byte| byte == b'a'), "nothing was written");
    success(&bench(&job).arg("--destroy").output().unwrap());
    assert!(fails(&["--target", "dir:/nowhere"]).contains("/nowhere"));
}

#[test]
fn the_sources_are_measured() {
    let scratch = Scratch::new();
    let out = text(&scratch.path("out"));
    let only = "--only=written-unwritten-4k-mem,unaligned-overwrite-2k-qd256x8-sim";
    let table = success(&bench(&["sources", "--quick", only, "--out", &out]).output().unwrap());
    assert!(table.contains("S3 unaligned-overwrite-2k-qd256x8-sim"), "{table}");
    let lines = json(&std::fs::read_to_string(scratch.path("out/results.json")).unwrap());
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
        assert!(std::fs::metadata(scratch.path(picture)).unwrap().len() > 1000);
    }
    assert!(fails(&["sources", "--only=S9"]).contains("--list"));
}

/// Returns the command that compares the sources or cases `only`, with images and mounts below
/// `temporary`.
fn sources(scratch: &Scratch, only: &str, temporary: &Path) -> Command {
    std::fs::create_dir(temporary).unwrap();
    let mut command = bench(&["sources", "--quick", "--only", only, "--out"]);
    command.arg(scratch.path("out"));
    command.env("TMPDIR", temporary).stdout(Stdio::piped());
    command
}

/// Returns true if a file system is mounted below `temporary`.
fn has_mounts(temporary: &Path) -> bool {
    std::fs::read_to_string("/proc/self/mounts").unwrap().contains(temporary.to_str().unwrap())
}

/// Asserts that no directory, image, mount or loop device of the comparison is left.
fn assert_clean(temporary: &Path) {
    assert!(!has_mounts(temporary) && std::fs::read_dir(temporary).unwrap().next().is_none());
    // Programs that examine every new device, such as udev, keep it open for a moment.
    let deadline = Instant::now() + Duration::from_mins(1);
    while is_attached(temporary) {
        assert!(Instant::now() < deadline, "a loop device is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns true if a loop device is attached to an image below `temporary`.
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
        testkit::skipped("nothing can be mounted here");
    }
    is_missing
}

#[test]
fn names_and_small_files_are_measured() {
    if is_fuse_missing() {
        return;
    }
    let scratch = Scratch::new();
    let temporary = scratch.path("temporary");
    let output = sources(&scratch, "metadata", &temporary).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("metadata create: 2 jobs, a directory each"));
    let lines = json(&std::fs::read_to_string(scratch.path("out/results.json")).unwrap());
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
    let scratch = Scratch::new();
    let temporary = scratch.path("temporary");
    let mut running = sources(&scratch, "metadata", &temporary).stderr(Stdio::null()).spawn().unwrap();
    while !has_mounts(&temporary) {
        assert!(running.try_wait().unwrap().is_none(), "it has not mounted anything");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    assert!(!running.wait().unwrap().success());
    assert!(!scratch.path("out").exists());
    assert_clean(&temporary);
}

#[test]
fn files_larger_than_the_cache_are_measured_by_jobs_in_step() {
    let scratch = Scratch::new();
    let temporary = scratch.path("temporary");
    let output = sources(&scratch, "pressure-overwrite-4k-4x", &temporary).output().unwrap();
    let (table, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{said}");
    assert!(table.contains("8 jobs x 1, in step, cache of 8.00 MiB"), "{table}");
    let lines = json(&std::fs::read_to_string(scratch.path("out/results.json")).unwrap());
    let lines = lines.as_array().unwrap();
    for line in lines {
        assert_eq!((&line["failure"], &line["in_step"]), (&Value::Null, &true.into()), "{line}");
        assert_eq!((&line["cache"], &line["size"]), (&(8 << 20).into(), &(32 << 20).into()), "{line}");
        let [all, slowest] = ["iops", "iops_slowest_job"].map(|field| line[field].as_f64().unwrap());
        assert!(slowest > 0.0 && slowest < all, "each job counts an operation: {line}");
        assert!(line["latency_max_us"].as_f64() >= line["latency_p99_9_us"].as_f64(), "{line}");
    }
    let has = |target: &str| lines.iter().any(|line| line["target"] == target);
    // If a peer is missing, the program has printed the reason.
    assert!(
        has("lib") && ["ext4", "xfs"].iter().all(|peer| has(peer) || said.contains("parext4: ")),
        "{said}"
    );
    assert_clean(&temporary);
}

#[test]
fn no_control_group_is_left_of_an_interrupted_comparison() {
    let scratch = Scratch::new();
    let temporary = scratch.path("temporary");
    let mut command = sources(&scratch, "pressure-randrw-4k-4x", &temporary);
    let mut running = command.stderr(Stdio::null()).spawn().unwrap();
    let name = format!("parext4-bench-{}", running.id());
    let groups = format!("/proc/{}/cgroup", running.id());
    let exists = |group: &str| {
        ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].iter().any(|root| Path::new(root).join(group).exists())
    };
    let group = loop {
        if running.try_wait().unwrap().is_some() {
            return testkit::skipped("no memory control group can be made here");
        }
        // The mount shows that a run has begun. Without it, the program may only be testing whether
        // groups can be made.
        let line = std::fs::read_to_string(&groups).unwrap_or_default();
        if let Some(line) = line.lines().find(|line| has_mounts(&temporary) && line.ends_with(&name)) {
            let group = line.rsplit(':').next().unwrap().trim_start_matches('/').to_owned();
            // Each row of the table has a group of its own, and the row may have ended.
            if exists(&group) {
                break group;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    assert!(!running.wait().unwrap().success());
    assert!(!exists(&group) && !scratch.path("out").exists());
    assert_clean(&temporary);
}

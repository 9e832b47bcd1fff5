//! The benchmark: that it runs and says what it should, not how fast anything is.

mod common;

use common::{Bench, text};
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

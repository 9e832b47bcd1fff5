//! All the checks, as steps of one command.

use std::collections::BTreeSet;
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::campaign::{crash, dirty, faults, formats, kill, mkfs, network, programs, simulate, split_brain};
use crate::command::Cmd;
use crate::report::Report;
use crate::scope::Scope;
use crate::workspace::{self, cargo};
use crate::{asan, beside, cargo_test, debian, embed, tidy, tsan};

/// A step of `cargo xtask test`.
pub struct Step {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// One line that describes it.
    pub about: &'static str,
    /// True if it mounts images in the kernel, which needs root, loop devices and e2fsprogs.
    mounts: bool,
    run: fn(Scope, &mut Report) -> Result<()>,
}

/// Test programs that wait most of their time, for other machines and for servers that come back. They run beside the others.
const WAITING: &[&str] = &["ceph", "mmp", "nbd", "network"];

/// The steps that build and run tests. The build comes first, because campaigns wait for it too.
const TESTS: &[Step] = &[
    Step { name: "tidy", about: "the rules of the project, read from the sources", mounts: false, run: tidy },
    Step { name: "fmt", about: "cargo fmt --check", mounts: false, run: fmt },
    Step {
        name: "deny",
        about: "licences, duplicates and sources of dependencies",
        mounts: false,
        run: deny,
    },
    Step {
        name: "embed",
        about: "the engine in a program of another workspace: warnings, number of crates",
        mounts: false,
        run: embed::run,
    },
    Step { name: "build", about: "builds all tests but models and sanitizers", mounts: false, run: build },
    Step {
        name: "unit",
        about: "cargo test of all but the engine, and of its parts",
        mounts: false,
        run: unit,
    },
    Step { name: "examples", about: "the examples in the documentation", mounts: false, run: examples },
    Step {
        name: "stress",
        about: "all tests of the engine, optimised, with debug checks: stress, full volumes, faults, crashes",
        mounts: false,
        run: stress,
    },
];

/// The steps whose tests are built in folders of their own, with other flags.
const MODELS: &[Step] = &[
    Step { name: "shuttle", about: "models of the concurrent parts", mounts: false, run: shuttle },
    Step {
        name: "simulate",
        about: "the engine with all its threads on a simulated device, with time skipped, against an oracle",
        mounts: false,
        run: simulate::run,
    },
    Step { name: "tsan", about: "the stress tests under ThreadSanitizer", mounts: false, run: tsan::run },
    Step {
        name: "asan",
        about: "the tests of the device queues and the range lock under AddressSanitizer",
        mounts: false,
        run: asan::run,
    },
];

/// Campaigns that mostly wait for the kernel, and then checks that need no other step, because this list ends first.
const KERNEL: &[Step] = &[
    Step {
        name: "formats",
        about: "trees copied in and out of images of many kinds, against the kernel",
        mounts: true,
        run: formats::run,
    },
    Step {
        name: "mkfs",
        about: "volumes that parext4 makes, under fio in the kernel",
        mounts: true,
        run: mkfs::run,
    },
    Step {
        name: "dirty",
        about: "recovery of journals that the kernel left dirty",
        mounts: true,
        run: dirty::run,
    },
    Step { name: "kill", about: "parext4 killed in the middle of a put", mounts: true, run: kill::run },
    Step {
        name: "faults",
        about: "workloads with a sample of the requests of the device failing, and with little memory and space",
        mounts: false,
        run: faults::run,
    },
    Step { name: "clippy", about: "cargo clippy, warnings are errors", mounts: false, run: clippy },
    Step { name: "doc", about: "the documentation, warnings are errors", mounts: false, run: doc },
];

/// Campaigns that mostly wait for servers and for other machines, and the crash sweep.
const SERVERS: &[Step] = &[
    Step {
        name: "network",
        about: "volumes on servers of network block devices, which delay, fail, are killed and come back",
        mounts: true,
        run: network::run,
    },
    Step {
        name: "mount-programs",
        about: "real programs on a mount, some with the server killed under them",
        mounts: false,
        run: programs::run,
    },
    Step {
        name: "split-brain",
        about: "a volume on Ceph RBD and on NBD taken over from an owner that is stopped, and then continued",
        mounts: false,
        run: split_brain::run,
    },
    Step {
        name: "crash",
        about: "power cuts during short sequences of operations and histories of threads, against an oracle",
        mounts: false,
        run: crash::run,
    },
];

/// A list of steps that run one after another, at the same time as the other lists: most steps do not keep all processors busy.
struct List {
    name: &'static str,
    steps: &'static [Step],
    /// The less important its builds are than the tests of the others, the higher.
    nice: i32,
    /// True if its steps run the programs that [`workspace::build_programs`] builds.
    runs_programs: bool,
}

const LISTS: &[List] = &[
    List { name: "tests", steps: TESTS, nice: 0, runs_programs: false },
    List { name: "models", steps: MODELS, nice: 5, runs_programs: false },
    List { name: "kernel", steps: KERNEL, nice: 0, runs_programs: true },
    List { name: "servers", steps: SERVERS, nice: 0, runs_programs: true },
];

/// Returns all steps.
pub fn all() -> impl Iterator<Item = &'static Step> {
    LISTS.iter().flat_map(|list| list.steps)
}

/// Runs all steps, or those named; returns whether all passed. The first list with one of them runs in this process, and each other
/// list in a process of its own, which `is_beside` tells that what it needs is installed and built.
pub fn test(only: &[String], is_beside: bool) -> Result<bool> {
    if let Some(name) = only.iter().find(|name| !all().any(|step| step.name == **name)) {
        bail!("no step is named {name}; `cargo xtask test --list` shows them");
    }
    let is_chosen = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    let chosen = |list: &'static List| (list, list.steps.iter().filter(is_chosen).collect::<Vec<_>>());
    let mut lists = LISTS.iter().map(chosen).filter(|(_, steps)| !steps.is_empty());
    let mut report = Report::default();
    if is_beside {
        workspace::use_programs();
    } else {
        report.step("programs", install);
    }
    let (_, own) = lists.next().context("no step")?;
    thread::scope(|scope| {
        let beside: Vec<_> = lists
            .map(|(list, steps)| {
                let names: Vec<_> = steps.iter().map(|step| step.name).collect();
                let run = move || {
                    if list.runs_programs {
                        workspace::build_programs()?;
                    }
                    beside::run(list.name, &names, list.nice)
                };
                (list.name, scope.spawn(run))
            })
            .collect();
        own.iter().for_each(|step| run_step(step, Scope::Short, &mut report));
        for (list, lines) in beside {
            match lines.join().expect("it does not panic") {
                Ok(lines) => report.add_summary(&lines, list),
                Err(error) => report.fail(list, &format!("{error:#}")),
            }
        }
    });
    Ok(report.finish())
}

/// Installs the programs that the steps need.
fn install(report: &mut Report) -> Result<()> {
    let missing = debian::install(&debian::ALL.concat());
    if !missing.is_empty() {
        report.skip("programs", &format!("missing, so what needs them is skipped: {}", missing.join(" ")));
    }
    Ok(())
}

/// Runs one step alone.
pub fn one(name: &str, scope: Scope) -> bool {
    let mut report = Report::default();
    for step in all().filter(|step| step.name == name) {
        run_step(step, scope, &mut report);
    }
    report.finish()
}

/// Runs a campaign that is not a step of `cargo xtask test`, or a longer run of one that is.
pub fn alone(name: &str, campaign: impl FnOnce(&mut Report) -> Result<()>) -> bool {
    let mut report = Report::default();
    report.step(name, |report| {
        let missing = debian::install(debian::FUSE_MOUNTS);
        if !missing.is_empty() {
            report.skip(name, &format!("missing, so what needs them is skipped: {}", missing.join(" ")));
        }
        campaign(report)
    });
    report.finish()
}

fn run_step(step: &Step, scope: Scope, report: &mut Report) {
    report.step(step.name, |report| {
        if step.mounts
            && let Err(why) = debian::check_kernel_mounts()
        {
            report.skip(step.name, &format!("{why:#}"));
            return Ok(());
        }
        (step.run)(scope, report)
    });
}

fn tidy(_: Scope, report: &mut Report) -> Result<()> {
    tidy::run(report)
}

fn fmt(_: Scope, report: &mut Report) -> Result<()> {
    plain("cargo fmt --all --check", cargo("fmt --all --check"), report)
}

fn clippy(_: Scope, report: &mut Report) -> Result<()> {
    plain("cargo clippy", check("clippy --quiet --workspace --all-targets -- -D warnings"), report)
}

/// Runs cargo-deny without its check of advisories, which needs the network.
fn deny(_: Scope, report: &mut Report) -> Result<()> {
    if cargo("deny --version").run().is_err() {
        report.skip_allowed("deny", "no cargo-deny (cargo install cargo-deny --locked)");
        return Ok(());
    }
    plain("cargo deny", cargo("deny --all-features --offline check bans licenses sources"), report)
}

/// A command that passes or fails as a whole.
fn plain(name: &str, command: Cmd, report: &mut Report) -> Result<()> {
    report.case(name, || command.run().map(drop));
    Ok(())
}

fn build(_: Scope, report: &mut Report) -> Result<()> {
    plain("cargo test --no-run", workspace_tests("--lib --bins --tests --no-run --quiet"), report)
}

/// The tests of all packages that `words` select. Packages alone would have other features, and be built again.
fn workspace_tests(words: &str) -> Cmd {
    cargo("test --workspace --profile stress --no-fail-fast").args(words)
}

/// Runs the unit tests of all packages, and the test programs that the step `stress` does not run.
fn unit(_: Scope, report: &mut Report) -> Result<()> {
    cargo_test::run(workspace_tests("--lib --bins"), "unit", report)?;
    let programs = &test_programs(|_| true)? - &engine_programs()?;
    run_programs(&|| workspace_tests(""), "unit", programs, None, report)
}

/// Returns the names of the test programs of the engine. Programs of these names in other packages run with them.
fn engine_programs() -> Result<BTreeSet<String>> {
    test_programs(|package| package == "parext4")
}

/// Builds and runs test programs, without the tests whose names contain `skip`. The programs that [`WAITING`] lists run beside the rest,
/// of which two run at a time, because single tests of each keep no processor busy.
fn run_programs(
    command: &dyn Fn() -> Cmd,
    name: &str,
    programs: BTreeSet<String>,
    skip: Option<&str>,
    report: &mut Report,
) -> Result<()> {
    let select = |programs: &mut dyn Iterator<Item = &String>| {
        programs.fold(command(), |command, program| command.arg("--test").arg(program))
    };
    select(&mut programs.iter()).args("--no-run --quiet").run().context("building the tests")?;
    let (waiting, others): (Vec<_>, Vec<_>) =
        programs.iter().partition(|program| WAITING.contains(&program.as_str()));
    let together = [waiting, every_second(&others, 0), every_second(&others, 1)];
    let commands = together.iter().filter(|programs| !programs.is_empty()).map(|programs| {
        let command = select(&mut programs.iter().copied());
        skip.iter().fold(command, |command, skip| command.args("-- --skip").arg(skip))
    });
    cargo_test::run_all(commands.collect(), name, report)
}

fn every_second<'a>(programs: &[&'a String], first: usize) -> Vec<&'a String> {
    programs.iter().skip(first).step_by(2).copied().collect()
}

/// Returns the names of the test programs of the packages whose names `of` selects.
fn test_programs(of: fn(&str) -> bool) -> Result<BTreeSet<String>> {
    let metadata = cargo("metadata --no-deps --format-version 1 --quiet").run()?;
    let metadata: Value = serde_json::from_str(&metadata).context("the output of cargo metadata")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages
        .filter(|package| package["name"].as_str().is_some_and(of))
        .flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test");
    Ok(tests.filter_map(|target| target["name"].as_str()).map(str::to_owned).collect())
}

fn doc(_: Scope, report: &mut Report) -> Result<()> {
    let command = check("doc --quiet --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings");
    plain("cargo doc", command, report)
}

/// A command that builds nothing to run. It has a folder of its own, because it runs beside tests, whose builds would wait for it.
fn check(words: &str) -> Cmd {
    cargo(words).env("CARGO_TARGET_DIR", workspace::target().join("check"))
}

fn examples(_: Scope, report: &mut Report) -> Result<()> {
    cargo_test::run(cargo("test --workspace --profile stress --doc --no-fail-fast"), "examples", report)
}

fn stress(_: Scope, report: &mut Report) -> Result<()> {
    let command = || workspace_tests("").env("PAREXT4_MEMORY_MIB", "512").env("PAREXT4_FSX_OPS", "20000");
    // The fault sweep is a step of its own.
    run_programs(&command, "stress", engine_programs()?, Some(faults::ALL), report)
}

/// Random operations on one file, `ops` in each configuration of blocks and memory.
pub fn fsx(ops: u64, report: &mut Report) -> Result<()> {
    let command = workspace_tests("--test fsx");
    cargo_test::run(command.env("PAREXT4_FSX_OPS", ops.to_string()), "fsx", report)
}

fn shuttle(_: Scope, report: &mut Report) -> Result<()> {
    cargo_test::run(simulate::models("--no-fail-fast --test shuttle*"), "shuttle", report)
}

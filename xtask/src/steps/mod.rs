//! All the checks, as steps of one command.

mod cargo_steps;
mod run;

use anyhow::Result;

pub use cargo_steps::fsx;
pub use run::{Choice, alone, one, test};

use crate::campaign::{crash, dirty, faults, formats, kill, mkfs, network, programs, simulate, split_brain};
use crate::report::Report;
use crate::scope::Scope;
use crate::{asan, deny, embed, tsan};
use cargo_steps::{build, clippy, doc, examples, fmt, shuttle, stress, tidy, tools, unit};

/// A step of `cargo xtask test`.
pub struct Step {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// One line that describes it.
    pub about: &'static str,
    /// True if it is no step of the short form.
    pub is_full_only: bool,
    /// True if it mounts images in the kernel, which needs root, loop devices and e2fsprogs.
    mounts: bool,
    run: fn(Scope, &mut Report) -> Result<()>,
}

const fn step(name: &'static str, about: &'static str, run: fn(Scope, &mut Report) -> Result<()>) -> Step {
    Step { name, about, is_full_only: false, mounts: false, run }
}

impl Step {
    const fn mounts(self) -> Self {
        Self { mounts: true, ..self }
    }

    const fn full_only(self) -> Self {
        Self { is_full_only: true, ..self }
    }
}

/// The steps that build and run tests. The build comes first, because campaigns wait for it too.
const TESTS: &[Step] = &[
    step("tidy", "the rules of the project, read from the sources", tidy),
    step("fmt", "cargo fmt --check", fmt),
    step("tools", "tests of xtask and of the mutation run", tools),
    step("deny", "licences, duplicates and sources of dependencies", deny::run).full_only(),
    step("embed", "the engine in a program of another workspace: warnings, number of crates", embed::run),
    step("build", "builds all tests but models and sanitizers", build),
    step("unit", "cargo test of all but the engine, and of its parts", unit),
    step("examples", "the examples in the documentation", examples),
    step(
        "stress",
        "all tests of the engine, optimised, with debug checks: stress, full volumes, faults, crashes",
        stress,
    ),
];

/// The steps whose tests are built in folders of their own, with other flags.
const MODELS: &[Step] = &[
    step("shuttle", "models of the concurrent parts", shuttle),
    step(
        "simulate",
        "the engine with all its threads on a simulated device, with time skipped, against an oracle",
        simulate::run,
    )
    .full_only(),
    step("tsan", "the stress tests under ThreadSanitizer", tsan::run),
    step("asan", "the tests of the device queues and the range lock under AddressSanitizer", asan::run),
];

/// Campaigns that mostly wait for the kernel, and then checks that need no other step, because this
/// list ends first.
const KERNEL: &[Step] = &[
    step("formats", "trees copied in and out of images of many kinds, against the kernel", formats::run)
        .mounts(),
    step("mkfs", "volumes that parext4 makes, under fio in the kernel", mkfs::run).mounts(),
    step("dirty", "recovery of journals that the kernel left dirty", dirty::run).mounts(),
    step("kill", "parext4 killed in the middle of a put", kill::run).mounts(),
    step(
        "faults",
        "workloads with a sample of the requests of the device failing, and with little memory and space",
        faults::run,
    ),
    step("clippy", "cargo clippy, warnings are errors", clippy),
    step("doc", "the documentation, warnings are errors", doc),
];

/// Campaigns that mostly wait for servers and for other machines, and the crash sweep.
const SERVERS: &[Step] = &[
    step(
        "network",
        "volumes on servers of network block devices, which delay, fail, are killed and come back",
        network::run,
    )
    .mounts(),
    step("mount-programs", "real programs on a mount, some with the server killed under them", programs::run),
    step(
        "split-brain",
        "a volume on Ceph RBD and on NBD taken over from an owner that is stopped, and then continued",
        split_brain::run,
    ),
    step(
        "crash",
        "power cuts during short sequences of operations and histories of threads, against an oracle",
        crash::run,
    ),
];

/// A list of steps that run one after another, at the same time as the other lists: most steps do
/// not keep all processors busy.
struct List {
    name: &'static str,
    steps: &'static [Step],
    /// The less important its builds are than the tests of the others, the higher.
    nice: i32,
    /// True if its steps run the programs that
    /// [`workspace::build_programs`](crate::workspace::build_programs) builds.
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

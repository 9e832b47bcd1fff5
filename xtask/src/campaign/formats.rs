//! The kinds of images: whole trees in both directions (what parext4 puts the kernel sees, and what
//! the kernel writes parext4 gets), and the tests of the engine that run over all kinds.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use image_kinds::{KINDS, Kind, Then, combinations};

use crate::cargo_test;
use crate::command::cmd;
use crate::image;
use crate::kernel_mount::Mount;
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::{TestBed, inside, remove};
use crate::tree::generate::{Plan, generate};
use crate::tree::manifest::Manifest;
use crate::workspace::cargo;

/// Seed of the trees, and of the combinations of a campaign that names no seed.
const SEED: u64 = 0x74_7265_6573;
/// `cargo xtask test --full` copies trees on one in this number of kinds.
const ONE_IN: usize = 6;

/// A size in bytes that a file without extents can have: with blocks of 1 KiB, at most 16 GiB.
const LARGEST_INDIRECT: u64 = 1 << 33;

/// What a campaign runs over.
#[derive(clap::Args)]
pub struct Args {
    /// All kinds instead of a sample, and trees of 20,000 files
    #[arg(long)]
    long: bool,
    /// Copy trees, and leave out the tests of the engine
    #[arg(long)]
    trees: bool,
    /// Seed of the combinations of features and of all random choices
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Repeat the tests of the engine with further seeds until this number of minutes has passed
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// Only kinds whose names contain this
    #[arg(long, value_name = "KIND", default_value = "")]
    only: String,
}

/// A tree to copy, and the size of an image that holds it.
struct Source {
    name: &'static str,
    plan: Plan,
    mib: u64,
}

/// Runs the part of `cargo xtask test`: trees on one kind, or on some. The step of the engine's
/// tests runs the tests over kinds.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let bed = TestBed::new()?;
    let kinds = with_trees("", SEED);
    if scope == Scope::Quick {
        return each_kind(&bed, &small(), &kinds[..1], report);
    }
    let some: Vec<_> = kinds.iter().step_by(ONE_IN).cloned().collect();
    each_kind(&bed, &small(), &some, report)?;
    each_kind(&bed, &full(), &kinds[..1], report)
}

/// Runs the tests of the engine, and then copies trees.
pub fn run_some(args: &Args, report: &mut Report) -> Result<()> {
    if !args.trees {
        engine_tests(args, report)?;
    }
    let bed = TestBed::new()?;
    let source = if args.long { full() } else { small() };
    let kinds = with_trees(&args.only, args.seed);
    let (extents, indirect): (Vec<_>, Vec<_>) = kinds.into_iter().partition(Kind::has_extents);
    each_kind(&bed, &source, &extents, report)?;
    let plan = Plan { sparse: source.plan.sparse.min(LARGEST_INDIRECT), ..source.plan };
    each_kind(&bed, &Source { plan, ..source }, &indirect, report)
}

/// Runs the tests of the engine over kinds, with one seed after another.
fn engine_tests(args: &Args, report: &mut Report) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60 * args.minutes);
    let mut seed = args.seed;
    loop {
        println!("  seed {seed}");
        cargo_test::run(tests(args, seed), "formats", report)?;
        seed += 1;
        if Instant::now() >= end {
            return Ok(());
        }
    }
}

/// Returns the command of the engine's tests that run over kinds of images.
fn tests(args: &Args, seed: u64) -> crate::command::Cmd {
    let words = "test --workspace --profile stress --no-fail-fast --test volumes --test crash --test fsx --test damaged_images all_kinds";
    let command = cargo(words).env("PAREXT4_STRESS_SEED", seed.to_string());
    // An empty PAREXT4_KIND selects all kinds, because every name contains it.
    if args.long || !args.only.is_empty() { command.env("PAREXT4_KIND", &args.only) } else { command }
}

fn small() -> Source {
    Source { name: "800 files", plan: Plan::small(SEED), mib: 96 }
}

fn full() -> Source {
    Source { name: "20,000 files", plan: Plan::full(SEED), mib: 768 }
}

/// Returns the kinds that can hold a tree: inodes have room for all times, and the geometry suits
/// any size.
fn with_trees(only: &str, seed: u64) -> Vec<Kind> {
    let excluded = ["-r 0", "-I 128", "^extra_isize", "-o hurd", "-N ", "-O none"];
    let holds = |kind: &Kind| {
        kind.name.contains(only)
            && kind.kernel.is_some()
            && matches!(kind.then, Then::Nothing)
            && kind.convert.is_empty()
            && !excluded.iter().any(|word| kind.mke2fs.contains(word))
    };
    KINDS.iter().cloned().chain(combinations(seed)).filter(holds).collect()
}

fn each_kind(bed: &TestBed, source: &Source, kinds: &[Kind], report: &mut Report) -> Result<()> {
    if kinds.is_empty() {
        return Ok(());
    }
    let tree = bed.path("source");
    generate(&tree, &source.plan)?;
    let wanted = Manifest::read(&tree)?;
    println!("  a tree of {} entries", wanted.len());
    for kind in kinds {
        let image = bed.path("image");
        let mut kind = kind.clone();
        // Requests under way reserve clusters for the map, which a small volume has few of.
        let cluster = cluster(&kind)?;
        kind.mib = if cluster > 0 { 4 * source.mib } else { source.mib };
        let case = Case { bed, source: &tree, wanted: &wanted.in_units(cluster), image: &image };
        let name = |what: &str| format!("{what}, {}, {} ({})", source.name, kind.name, kind.mke2fs);
        report.case(&name("parext4 to kernel"), || {
            image::of_kind(&image, &kind)?;
            case.parext4_to_kernel()
        });
        report.case(&name("kernel to parext4"), || {
            image::of_kind(&image, &kind)?;
            case.kernel_to_parext4()
        });
        remove(&image)?;
    }
    remove(&tree)
}

/// Returns the size of a cluster in bytes, 0 if the kind has none of its own.
fn cluster(kind: &Kind) -> Result<u64> {
    let mut words = kind.mke2fs.split(' ').skip_while(|word| *word != "-C").skip(1);
    Ok(words.next().map_or(Ok(0), str::parse)?)
}

struct Case<'a> {
    bed: &'a TestBed,
    source: &'a Path,
    wanted: &'a Manifest,
    image: &'a Path,
}

impl Case<'_> {
    fn parext4_to_kernel(&self) -> Result<()> {
        let to = inside(self.image, "/tree");
        self.bed.parext4("put --quiet").arg(self.source).arg(&to).run()?;
        image::check(self.image).context("after put")?;
        let mount = Mount::new(self.image, &self.bed.path("mount"), "ro")?;
        let found = Manifest::read(&mount.dir().join("tree"))?;
        mount.unmount()?;
        self.wanted.compare(&found)?;
        self.bed.parext4("rm -r").arg(&to).run()?;
        image::check(self.image).context("after rm -r")?;
        self.is_empty_for_kernel()
    }

    /// After all was removed, the kernel sees an empty root and can use the freed space.
    fn is_empty_for_kernel(&self) -> Result<()> {
        let mount = Mount::new(self.image, &self.bed.path("mount"), "rw")?;
        let names = std::fs::read_dir(mount.dir())?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<Result<Vec<_>>>()?;
        ensure!(names == ["lost+found"], "names left in the root: {names:?}");
        std::fs::write(mount.dir().join("new"), "written by the kernel")?;
        mount.unmount()?;
        image::check(self.image).context("after the kernel wrote")
    }

    fn kernel_to_parext4(&self) -> Result<()> {
        let got = self.bed.path("got");
        let mount = Mount::new(self.image, &self.bed.path("mount"), "rw")?;
        cmd("cp").arg("--archive").arg(self.source).arg(mount.dir().join("tree")).run()?;
        mount.unmount()?;
        self.bed.parext4("get --quiet").arg(inside(self.image, "/tree")).arg(&got).run()?;
        let found = Manifest::read(&got);
        remove(&got)?;
        self.wanted.compare(&found?)?;
        image::check(self.image).context("after get")
    }
}

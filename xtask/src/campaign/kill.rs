//! `parext4 put` killed at random moments: what it reported as synced is whole, and the volume is
//! consistent.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::journal_diff;
use super::seed::seeded;
use crate::image;
use crate::kernel_mount::Mount;
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::{TestBed, inside, remove};
use crate::tree::generate::{Plan, generate};
use crate::tree::manifest::Manifest;

const IMAGE_SIZE: u64 = 128 << 20;
/// The tree's place in the image.
const TREE: &str = "/tree";

/// Options of mke2fs.
pub const SETS: &[&str] = &[
    "-b 4096 -J size=8 -O 64bit,metadata_csum,orphan_file",
    "-b 1024 -J size=4 -O ^64bit,^metadata_csum,^orphan_file",
];

/// Runs the campaign.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let bed = TestBed::new()?;
    let mut rng = seeded("kill")?;
    let source = Source::new(&bed, &mut rng)?;
    let kills = scope.quick_or(3, scope.pick(12, 100));
    for set in scope.first(SETS) {
        report.case(set, || killed(&bed, &source, set, kills, &mut rng, &Path::to_owned));
    }
    Ok(())
}

/// Kills `put` `kills` times. It copies `source` into an image that mke2fs makes with the options
/// `set`. `name` returns what parext4 is given for an image file: its path, or a URL that leads to
/// it.
pub fn killed(
    bed: &TestBed,
    source: &Source,
    set: &str,
    kills: u32,
    rng: &mut Rng,
    name: &dyn Fn(&Path) -> PathBuf,
) -> Result<()> {
    Victim::new(bed, source, set, name)?.kill_often(kills, rng)
}

/// A tree to copy.
pub struct Source {
    root: PathBuf,
    wanted: Manifest,
}

impl Source {
    /// Makes a tree.
    pub fn new(bed: &TestBed, rng: &mut Rng) -> Result<Source> {
        let root = bed.path("source");
        generate(&root, &Plan { files: 1_500, large: (3, 5_000_000), ..Plan::small(rng.u64(..)) })?;
        Ok(Source { wanted: Manifest::read(&root)?, root })
    }
}

/// A `put` to kill.
struct Victim<'a> {
    bed: &'a TestBed,
    source: &'a Source,
    name: &'a dyn Fn(&Path) -> PathBuf,
    /// The image before the put.
    fresh: PathBuf,
    /// How long the put takes when it is not killed.
    whole: Duration,
}

impl<'a> Victim<'a> {
    fn new(
        bed: &'a TestBed,
        source: &'a Source,
        set: &str,
        name: &'a dyn Fn(&Path) -> PathBuf,
    ) -> Result<Victim<'a>> {
        let fresh = bed.path("fresh");
        image::mke2fs(&fresh, IMAGE_SIZE, set)?;
        let mut victim = Victim { bed, source, name, fresh, whole: Duration::from_hours(1) };
        let image = bed.path("killed");
        let start = Instant::now();
        let synced = victim.put(&image, victim.whole)?;
        victim.whole = start.elapsed();
        let files = source.wanted.files();
        ensure!(synced.len() >= files, "put reported {} of {files} files", synced.len());
        victim.check(&image, &synced).context("without a kill")?;
        Ok(victim)
    }

    fn kill_often(&self, kills: u32, rng: &mut Rng) -> Result<()> {
        let image = self.bed.path("killed");
        let (mut reported, mut dirty, mut kill, mut early) = (0, 0, 0, 0);
        let mut whole = self.whole;
        while kill < kills {
            let after = whole.mul_f64(rng.f64());
            let synced = self.put(&image, after)?;
            if synced.len() >= self.source.wanted.files() {
                // The machine is less busy than it was, so the put had ended.
                whole = after;
                continue;
            }
            let is_dirty = image::journal_is_dirty(&image)?;
            self.check(&image, &synced).with_context(|| format!("kill {kill}, after {after:?}"))?;
            if synced.is_empty() && early < kills {
                // The machine may be busier than it was.
                early += 1;
                whole = (whole * 2).min(self.whole * 16);
                continue;
            }
            kill += 1;
            reported += synced.len();
            dirty += u32::from(is_dirty);
        }
        println!("        {kills} kills, {dirty} dirty journals, {reported} entries reported and whole");
        ensure!(dirty > 0 && reported > 0, "the kills came too early or too late to show anything");
        remove(&image)
    }

    /// Starts a put on a fresh image, kills it after `time`; returns the paths in the tree that it
    /// reported.
    fn put(&self, image: &Path, time: Duration) -> Result<Vec<PathBuf>> {
        image::copy(&self.fresh, image)?;
        let put = self.bed.parext4("put --quiet --report --sync-every 40").arg(&self.source.root);
        let child = put.arg(inside(&(self.name)(image), TREE)).start()?;
        end_after(child, time)
    }

    /// The kernel's recovery, parext4's and e2fsck's agree, find nothing wrong, and lose nothing
    /// reported.
    fn check(&self, image: &Path, synced: &[PathBuf]) -> Result<()> {
        journal_diff::same_as_e2fsck(self.bed, image, None)?;
        let ours = self.bed.path("recovered-parext4");
        image::copy(image, &ours)?;
        let by_kernel = self.kernel_view(image, "rw").context("the kernel's recovery")?;
        image::check(image).context("after the kernel's recovery")?;
        self.source.wanted.compare_some(&by_kernel, synced).context("after the kernel's recovery")?;
        self.bed.parext4("recover").arg((self.name)(&ours)).run()?;
        image::check(&ours).context("after parext4's recovery")?;
        let by_parext4 = self.kernel_view(&ours, "ro").context("parext4's recovery")?;
        by_kernel.compare(&by_parext4).context("recovered by the kernel (wanted) and by parext4 (found)")?;
        remove(&ours)
    }

    /// The tree as the kernel shows it; empty if the put had not made it yet.
    fn kernel_view(&self, image: &Path, options: &str) -> Result<Manifest> {
        let mount = Mount::new(image, &self.bed.path("mount"), options)?;
        let tree = mount.dir().join(TREE.trim_start_matches('/'));
        let manifest = if tree.exists() { Manifest::read(&tree)? } else { Manifest::default() };
        mount.unmount()?;
        Ok(manifest)
    }
}

/// Kills `child` after `time`, unless it ends before; returns the paths of the lines `synced PATH`
/// that it printed.
fn end_after(mut child: Child, time: Duration) -> Result<Vec<PathBuf>> {
    let stdout = child.stdout.take().context("the put has no standard output")?;
    let reader = thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        lines.filter_map(|line| in_tree(line.strip_prefix("synced ")?)).collect()
    });
    let start = Instant::now();
    while start.elapsed() < time && !crate::interrupt::requested() && child.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    child.wait()?;
    reader.join().ok().context("the reader of the put's report panicked")
}

/// The path relative to the tree.
fn in_tree(path: &str) -> Option<PathBuf> {
    Some(Path::new(path).strip_prefix(TREE).ok()?.to_owned())
}

//! Whole trees, in both directions: what parext4 puts the kernel sees, and what the kernel writes parext4 gets.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::command::cmd;
use crate::image;
use crate::kernel_mount::Mount;
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::{TestBed, inside, remove};
use crate::tree::generate::{Plan, generate};
use crate::tree::manifest::Manifest;

const SEED: u64 = 0x74_7265_6573;

/// A tree to copy, and the size of an image that holds it.
struct Source {
    name: &'static str,
    plan: Plan,
    image_size: u64,
}

/// Runs the campaign.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let bed = TestBed::new()?;
    let full = Source { name: "20,000 files", plan: Plan::full(SEED), image_size: 768 << 20 };
    let small = Source { name: "800 files", plan: Plan::small(SEED), image_size: 96 << 20 };
    let sets = option_sets();
    let few: Vec<_> = sets.iter().filter(|set| is_usual(set)).cloned().collect();
    println!("seed {SEED:#x}, {} sets of mke2fs options", sets.len());
    match scope {
        Scope::Short => {
            each_set(&bed, &small, &sets, report)?;
            each_set(&bed, &full, &few, report)
        }
        Scope::Long => each_set(&bed, &full, &sets, report),
    }
}

/// The full matrix. The orphan file needs a journal.
fn option_sets() -> Vec<String> {
    let mut sets = Vec::new();
    for block_size in [1024, 2048, 4096] {
        for bits in ["64bit", "^64bit"] {
            for checksum in ["metadata_csum", "^metadata_csum"] {
                for journal in
                    ["^has_journal,^orphan_file", "has_journal,^orphan_file", "has_journal,orphan_file"]
                {
                    sets.push(format!("-b {block_size} -O {bits},{checksum},{journal}"));
                }
            }
        }
    }
    sets
}

/// Returns true for the options that mke2fs defaults to, and for their opposites.
fn is_usual(set: &str) -> bool {
    set == "-b 4096 -O 64bit,metadata_csum,has_journal,orphan_file"
        || set == "-b 1024 -O ^64bit,^metadata_csum,^has_journal,^orphan_file"
}

fn each_set(bed: &TestBed, source: &Source, sets: &[String], report: &mut Report) -> Result<()> {
    let tree = bed.path("source");
    generate(&tree, &source.plan)?;
    let wanted = Manifest::read(&tree)?;
    println!("  a tree of {} entries", wanted.len());
    for set in sets {
        let image = bed.path("image");
        let case = Case { bed, source: &tree, wanted: &wanted, image: &image };
        let name = |what: &str| format!("{what}, {}, {set}", source.name);
        report.case(&name("parext4 to kernel"), || {
            image::mke2fs(&image, source.image_size, set)?;
            case.parext4_to_kernel()
        });
        report.case(&name("kernel to parext4"), || {
            image::mke2fs(&image, source.image_size, set)?;
            case.kernel_to_parext4()
        });
        remove(&image)?;
    }
    remove(&tree)
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

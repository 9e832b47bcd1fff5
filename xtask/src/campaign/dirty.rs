//! Images with a dirty journal that the kernel wrote: parext4 recovers them as e2fsck and the kernel do.
//!
//! The image under work lies in a volume of its own, the outer one. Freezing the outer volume stops every write to
//! the image at one instant without telling the kernel's mount of it, so that a copy made then holds what a crash
//! would have left.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::{churn, fast_commit, journal_diff, journal_formats};
use crate::command::cmd;
use crate::image;
use crate::kernel_mount::{Frozen, Mount};
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::{TestBed, inside, remove};
use crate::tree::manifest::Manifest;

const OUTER_SIZE: u64 = 512 << 20;
const IMAGE_SIZE: u64 = 128 << 20;
const WRITERS: u64 = 3;

/// Options of mke2fs and of the mount: the usual ones with small blocks of journal, without checksums, with checksums of each
/// kind, with a commit block that is written along with its transaction.
const SETS: &[(&str, &str)] = &[
    ("-b 4096 -J size=4 -O 64bit,metadata_csum,orphan_file", ""),
    ("-b 1024 -J size=4 -O ^64bit,^metadata_csum,^orphan_file", ",journal_checksum"),
    ("-b 2048 -J size=8 -O ^64bit,metadata_csum,^orphan_file", ""),
    ("-b 1024 -J size=8 -O ^64bit,^metadata_csum,orphan_file", ""),
    ("-b 4096 -J size=16 -O 64bit,^metadata_csum,^orphan_file", ",data=writeback,journal_async_commit"),
];

/// Runs the campaign.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let bed = TestBed::new()?;
    let mut rng = Rng::new();
    let seed = rng.get_seed();
    println!("seed {seed:#x}");
    for (set, options) in SETS {
        let name = format!("{set}{options}");
        report.case(&name, || one_set(&bed, set, options, scope.pick(2, 20), &mut rng));
    }
    journal_formats::run(&bed, report);
    fast_commit::run(&bed, scope, &mut rng, report);
    Ok(())
}

/// Crashes the kernel's mount of one image again and again while writers work on it.
fn one_set(bed: &TestBed, set: &str, options: &str, rounds: u32, rng: &mut Rng) -> Result<()> {
    let outer_image = bed.path("outer.image");
    image::mke2fs(&outer_image, OUTER_SIZE, "-b 4096")?;
    let outer = Mount::new(&outer_image, &bed.path("outer"), "rw,noatime")?;
    let image = outer.dir().join("image");
    image::mke2fs(&image, IMAGE_SIZE, set)?;
    let inner = Mount::new(&image, &bed.path("inner"), &format!("rw,commit=1{options}"))?;

    let stop = AtomicBool::new(false);
    let synced = Mutex::new(Vec::new());
    let dirty = thread::scope(|scope| -> Result<u32> {
        let _stop = StopOnDrop(&stop);
        for writer in 0..WRITERS {
            let dir = inner.dir().join(format!("writer{writer}"));
            let seed = rng.u64(..);
            let (stop, synced) = (&stop, &synced);
            scope.spawn(move || churn::run(&dir, seed, stop, synced));
        }
        let mut dirty = 0;
        for round in 0..rounds {
            thread::sleep(Duration::from_millis(rng.u64(300..1_500)));
            let durable = synced.lock().expect("no writer panics").clone();
            let frozen = Frozen::new(&outer)?;
            let crash =
                Crash { bed, image: bed.path("crashed"), root: inner.dir(), durable, at: SystemTime::now() };
            image::copy(&image, &crash.image)?;
            drop(frozen);
            dirty += u32::from(image::journal_is_dirty(&crash.image)?);
            crash.recover().with_context(|| format!("crash {round}"))?;
        }
        Ok(dirty)
    })?;
    inner.unmount()?;
    outer.unmount()?;
    remove(&outer_image)?;
    ensure!(dirty > 0, "no crash left a dirty journal: the writers are too slow or the journal too small");
    Ok(())
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An image as a crash left it.
struct Crash<'a> {
    bed: &'a TestBed,
    image: PathBuf,
    /// Where the kernel had it mounted.
    root: &'a Path,
    /// The files that were synced before, as paths under `root`.
    durable: Vec<PathBuf>,
    at: SystemTime,
}

impl Crash<'_> {
    /// Recovers the image in each way; all agree, e2fsck finds nothing, and the synced files are whole.
    fn recover(&self) -> Result<()> {
        journal_diff::same_as_e2fsck(self.bed, &self.image, None)?;
        let copy = self.bed.path("recovered");
        let by_kernel = self.by_kernel(&copy).context("recovered by the kernel")?;

        image::copy(&self.image, &copy)?;
        self.bed.parext4("recover").arg(&copy).run()?;
        image::check(&copy).context("after recovery by parext4")?;
        let by_parext4 = self.view(&copy, "ro").context("recovered by parext4")?;
        by_kernel.compare(&by_parext4).context("recovered by the kernel (wanted) and by parext4 (found)")?;

        image::copy(&self.image, &copy)?;
        let by_reader = self.by_reader(&copy)?;
        by_kernel.compare(&by_reader).context("recovered by the kernel (wanted) and by a reader (found)")?;

        self.bed.parext4("mkdir").arg(inside(&copy, "/opened-for-writing")).run()?;
        image::check(&copy).context("after opening for writing")?;
        [&self.image, &copy].into_iter().try_for_each(|image| remove(image))
    }

    fn by_kernel(&self, copy: &Path) -> Result<Manifest> {
        image::copy(&self.image, copy)?;
        let mut manifest = self.view(copy, "rw")?;
        // The kernel gives a file whose truncation it completes the time of the recovery; parext4 does not.
        manifest.forget_times_after(self.at)?;
        Ok(manifest)
    }

    /// A reader replays in memory and leaves the image as it is.
    fn by_reader(&self, copy: &Path) -> Result<Manifest> {
        let got = self.bed.path("got");
        self.bed.parext4("get --quiet").arg(inside(copy, "/")).arg(&got).run()?;
        let manifest = Manifest::read(&got);
        remove(&got)?;
        cmd("cmp").arg(&self.image).arg(copy).run().context("a reader changed the image")?;
        manifest
    }

    /// The tree that the kernel shows of a recovered image. The files that were synced are whole in it.
    fn view(&self, image: &Path, options: &str) -> Result<Manifest> {
        let mount = Mount::new(image, &self.bed.path("mount"), options)?;
        let manifest = Manifest::read(mount.dir())?;
        for path in &self.durable {
            churn::check(&mount.dir().join(path.strip_prefix(self.root)?))?;
        }
        mount.unmount()?;
        Ok(manifest)
    }
}

//! Images with a dirty journal that the kernel wrote: parext4 recovers them as e2fsck and the
//! kernel do.
//!
//! The image under work lies in a volume of its own, the outer one. Freezing the outer volume stops
//! every write to the image at one instant without telling the kernel's mount of it, so that a copy
//! made then holds what a crash would have left.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::seed::seeded;
use super::{churn, fast_commit, journal_diff, journal_formats};
use crate::command::{Cmd, cmd};
use crate::image;
use crate::kernel_mount::{Frozen, Loop, Mount, mke2fs_with_journal};
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::{TestBed, inside, remove};
use crate::tree::manifest::Manifest;

const OUTER_SIZE: u64 = 512 << 20;
const IMAGE_SIZE: u64 = 128 << 20;
const WRITERS: u64 = 3;

/// Options of mke2fs and of the mount.
struct Set {
    mke2fs: &'static str,
    mount: &'static str,
    /// Bytes of a block, if the journal is on a device of its own.
    journal: Option<u32>,
}

const fn set(mke2fs: &'static str, mount: &'static str) -> Set {
    Set { mke2fs, mount, journal: None }
}

/// The usual options with small blocks of journal, without checksums, with checksums of each kind,
/// with a commit block that is written along with its transaction, and with a journal on a device
/// of its own.
const SETS: &[Set] = &[
    set("-b 4096 -J size=4 -O 64bit,metadata_csum,orphan_file", ""),
    set("-b 1024 -J size=4 -O ^64bit,^metadata_csum,^orphan_file", ",journal_checksum"),
    set("-b 2048 -J size=8 -O ^64bit,metadata_csum,^orphan_file", ""),
    set("-b 1024 -J size=8 -O ^64bit,^metadata_csum,orphan_file", ""),
    set("-b 4096 -J size=16 -O 64bit,^metadata_csum,^orphan_file", ",data=writeback,journal_async_commit"),
    Set { mke2fs: "-O 64bit,metadata_csum,orphan_file", mount: "", journal: Some(4096) },
];

/// Runs the campaign.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let bed = TestBed::new()?;
    let mut rng = seeded("dirty")?;
    for set in scope.first(SETS) {
        let place = if set.journal.is_some() { ", journal on a device of its own" } else { "" };
        let name = format!("{}{}{place}", set.mke2fs, set.mount);
        report.case(&name, || one_set(&bed, set, scope.pick(2, 20), &mut rng));
    }
    journal_formats::run(&bed, scope, report);
    fast_commit::run(&bed, scope, &mut rng, report);
    Ok(())
}

/// Crashes the kernel's mount of one image again and again while writers work on it.
fn one_set(bed: &TestBed, set: &Set, rounds: u32, rng: &mut Rng) -> Result<()> {
    let outer_image = bed.path("outer.image");
    image::mke2fs(&outer_image, OUTER_SIZE, "-b 4096")?;
    let outer = Mount::new(&outer_image, &bed.path("outer"), "rw,noatime")?;
    let image = outer.dir().join("image");
    let journal = set.journal.map(|_| outer.dir().join("journal"));
    // Attached as long as the volume is mounted.
    let device = match (&journal, set.journal) {
        (Some(journal), Some(block_size)) => {
            Some(mke2fs_with_journal(&image, IMAGE_SIZE, set.mke2fs, journal, block_size)?)
        }
        _ => image::mke2fs(&image, IMAGE_SIZE, set.mke2fs).map(|()| None)?,
    };
    let inner = Mount::new(&image, &bed.path("inner"), &format!("rw,commit=1{}", set.mount))?;

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
            let volume = Crashed::copy(&image, journal.as_deref(), bed, "crashed")?;
            let crash = Crash { bed, volume, root: inner.dir(), durable, at: SystemTime::now() };
            drop(frozen);
            dirty += u32::from(image::journal_is_dirty(crash.volume.log())?);
            crash.recover().with_context(|| format!("crash {round}"))?;
        }
        Ok(dirty)
    })?;
    inner.unmount()?;
    drop(device);
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

/// A volume, and its journal if that is on a device of its own.
struct Crashed {
    image: PathBuf,
    journal: Option<PathBuf>,
}

impl Crashed {
    /// Copies a volume to files whose names begin with `name`.
    fn copy(image: &Path, journal: Option<&Path>, bed: &TestBed, name: &str) -> Result<Self> {
        let copy =
            Self { image: bed.path(name), journal: journal.map(|_| bed.path(&format!("{name}-journal"))) };
        image::copy(image, &copy.image)?;
        if let (Some(from), Some(to)) = (journal, &copy.journal) {
            image::copy(from, to)?;
        }
        Ok(copy)
    }

    /// Returns the image that holds the log.
    fn log(&self) -> &Path {
        self.journal.as_ref().unwrap_or(&self.image)
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.image).chain(&self.journal)
    }

    fn check(&self) -> Result<()> {
        image::check_with(&self.image, self.journal.as_deref())
    }
}

/// A volume as a crash left it.
struct Crash<'a> {
    bed: &'a TestBed,
    volume: Crashed,
    /// Where the kernel had it mounted.
    root: &'a Path,
    /// The files that were synced before, as paths under `root`.
    durable: Vec<PathBuf>,
    at: SystemTime,
}

impl Crash<'_> {
    /// Recovers the volume in each way; all agree, e2fsck finds nothing, and the synced files are
    /// whole.
    fn recover(&self) -> Result<()> {
        journal_diff::same_as_e2fsck(self.bed, &self.volume.image, self.volume.journal.as_deref())?;
        let by_kernel = self.by_kernel().context("recovered by the kernel")?;

        let copy = self.copy()?;
        self.parext4("recover", &copy).arg(&copy.image).run()?;
        copy.check().context("after recovery by parext4")?;
        let by_parext4 = self.view(&copy, "ro").context("recovered by parext4")?;
        by_kernel.compare(&by_parext4).context("recovered by the kernel (wanted) and by parext4 (found)")?;

        let copy = self.copy()?;
        let by_reader = self.by_reader(&copy)?;
        by_kernel.compare(&by_reader).context("recovered by the kernel (wanted) and by a reader (found)")?;

        self.parext4("mkdir", &copy).arg(inside(&copy.image, "/opened-for-writing")).run()?;
        copy.check().context("after opening for writing")?;
        self.volume.files().chain(copy.files()).try_for_each(|image| remove(image))
    }

    fn copy(&self) -> Result<Crashed> {
        Crashed::copy(&self.volume.image, self.volume.journal.as_deref(), self.bed, "recovered")
    }

    /// Returns the command of parext4 for a volume.
    fn parext4(&self, words: &str, volume: &Crashed) -> Cmd {
        self.bed.parext4(words).option("--journal", volume.journal.as_deref())
    }

    fn by_kernel(&self) -> Result<Manifest> {
        let mut manifest = self.view(&self.copy()?, "rw")?;
        // The kernel gives a file whose truncation it completes the time of the recovery; parext4
        // does not.
        manifest.forget_times_after(self.at)?;
        Ok(manifest)
    }

    /// A reader replays in memory and leaves the volume as it is.
    fn by_reader(&self, copy: &Crashed) -> Result<Manifest> {
        let got = self.bed.path("got");
        self.parext4("get --quiet", copy).arg(inside(&copy.image, "/")).arg(&got).run()?;
        let manifest = Manifest::read(&got);
        remove(&got)?;
        for (before, after) in self.volume.files().zip(copy.files()) {
            cmd("cmp").arg(before).arg(after).run().context("a reader changed the volume")?;
        }
        manifest
    }

    /// The tree that the kernel shows of a recovered volume. The files that were synced are whole
    /// in it.
    fn view(&self, volume: &Crashed, options: &str) -> Result<Manifest> {
        let device = volume.journal.as_deref().map(Loop::attach).transpose()?;
        let journal = device.as_ref().map(|device| format!(",journal_path={}", device.device().display()));
        let options = format!("{options}{}", journal.unwrap_or_default());
        let mount = Mount::new(&volume.image, &self.bed.path("mount"), &options)?;
        let manifest = Manifest::read(mount.dir())?;
        for path in &self.durable {
            churn::check(&mount.dir().join(path.strip_prefix(self.root)?))?;
        }
        mount.unmount()?;
        Ok(manifest)
    }
}

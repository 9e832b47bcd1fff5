//! Copies files, trees and archives into a volume.

mod archive;
mod attributes;
mod destination;
mod durable;
mod file;
mod job;
mod manifest;
mod mode_rule;
mod rules;
mod single;
mod small;
mod target;
mod walk;
mod xattrs;

use std::num::NonZero;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result, refused};
use parext4::{Timestamp, Volume};

use crate::input::Input;
use crate::observer::Summary;
use crate::options::CopyOptions;
use crate::report::Report;
use crate::transfer;
use crate::volume_files::VolumeFiles;
use crate::volume_name::VolumeName;
use durable::Durable;
pub use mode_rule::ModeRule;
pub use rules::Rules;
use small::SmallFiles;
use walk::Walker;

/// A copy into a volume, which one of the methods [`copy`](Self::copy),
/// [`copy_input`](Self::copy_input) and [`unpack`](Self::unpack) makes.
///
/// The copy is durable when the method returns, also if it returns an error: then the files that
/// were complete before the error are durable. Existing files are replaced, and existing
/// directories merged.
pub struct Put<'a> {
    volume: &'a Volume,
    dest: PathBuf,
    options: CopyOptions<'a>,
    rules: Rules,
    manifest: Option<Input<'a>>,
    reproducible: Option<u32>,
    sync_every: Option<NonZero<usize>>,
    report_durable: bool,
}

/// State that all parts of a copy share.
struct Shared<'a> {
    /// The time of a reproducible copy: the same files are copied to the same bytes each time.
    reproducible: Option<u32>,
    report: Report<'a>,
    durable: Durable<'a>,
    name: VolumeName,
    /// The files that hold the volume.
    volume_files: VolumeFiles,
    rules: Rules,
}

impl Shared<'_> {
    /// Says that the copy ended before the file at `path` was complete.
    fn incomplete(&self, path: &Path) {
        self.report.error(refused!("{}: incomplete, because the copy ended", self.name.of(path)));
    }
}

impl<'a> Put<'a> {
    /// Begins a copy to the absolute path `dest` of `volume`.
    #[must_use]
    pub fn new(volume: &'a Volume, dest: impl Into<PathBuf>) -> Self {
        Self {
            volume,
            dest: dest.into(),
            options: CopyOptions::new(),
            rules: Rules::new(),
            manifest: None,
            reproducible: None,
            sync_every: None,
            report_durable: false,
        }
    }

    /// Sets the options that copies in both directions have.
    #[must_use]
    pub fn options(mut self, options: CopyOptions<'a>) -> Self {
        self.options = options;
        self
    }

    /// Sets rules for the attributes of the copies.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Applies a manifest to the destination after the copy, as [`apply_manifest`] does.
    #[must_use]
    pub fn manifest(mut self, manifest: impl Into<Option<Input<'a>>>) -> Self {
        self.manifest = manifest.into();
        self
    }

    /// Copies the same files into the same volume to the same bytes each time: one thread copies
    /// the entries of each directory in the order of their names, and the copies have this time of
    /// last access, in seconds since 1970. The volume must have a clock that stands still, and no
    /// timers for commits and write-back.
    #[must_use]
    pub fn reproducible(mut self, access_time: impl Into<Option<u32>>) -> Self {
        self.reproducible = access_time.into();
        self
    }

    /// Syncs the volume after every `files` files, besides the sync at the end.
    #[must_use]
    pub fn sync_every(mut self, files: impl Into<Option<NonZero<usize>>>) -> Self {
        self.sync_every = files.into();
        self
    }

    /// Calls [`Observer::durable`](crate::Observer::durable) after each sync. The copy has the
    /// paths of files that are not durable yet in memory.
    #[must_use]
    pub fn report_durable(mut self, report: bool) -> Self {
        self.report_durable = report;
        self
    }

    /// Copies files and trees by the rules of `cp -a`: into the destination if it is a directory,
    /// and else to the destination. A source that ends in `/.` means the contents of a directory.
    ///
    /// Keeps permissions, owners, times, extended attributes, hard links, symbolic links, special
    /// files and holes. A further source replaces the copies of an earlier one.
    ///
    /// # Errors
    /// An error that further files would meet, too, such as a full volume, or the error with which
    /// the observer ended the copy. [`Observer::failed`](crate::Observer::failed) gets the errors
    /// of single files.
    pub fn copy(self, sources: &[impl AsRef<Path>]) -> Result<Summary> {
        let (volume, dest) = (self.volume, self.dest.clone());
        let threads = self.options.thread_count();
        self.run(|shared| copy_trees(volume, sources, &dest, threads, shared))
    }

    /// Copies `input` to the file that the destination names, with the permissions 644 and the
    /// owner of the process.
    ///
    /// # Errors
    /// If the destination is a directory, or the error of reading `input` or of the volume.
    pub fn copy_input(self, input: Input<'_>) -> Result<Summary> {
        let (volume, dest) = (self.volume, self.dest.clone());
        self.run(|shared| single::put(volume, input, &dest, shared))
    }

    /// Unpacks tar archives (ustar, GNU, PAX), one after the other, into the destination, an
    /// existing directory. No name in an archive leads out of it.
    ///
    /// Members replace files, symbolic links and empty directories of their names, as with GNU tar.
    /// The whiteouts of layers of containers are not applied; each is the error of one file. Access
    /// control lists may be text; a user or group in them that has no number is one of this
    /// machine.
    ///
    /// # Errors
    /// As [`copy`](Self::copy), or an error of reading an archive. The members before it are
    /// unpacked.
    pub fn unpack<'i>(self, archives: impl IntoIterator<Item = Input<'i>>) -> Result<Summary> {
        let (volume, dest) = (self.volume, self.dest.clone());
        // Each archive builds on the ones before it.
        self.run(|shared| {
            archives.into_iter().try_for_each(|archive| archive::unpack(volume, archive, &dest, shared))
        })
    }

    /// Runs `copy`, applies the manifest, and makes the copies durable, also after an error or a
    /// cancellation.
    fn run(self, copy: impl FnOnce(&Shared<'_>) -> Result<()>) -> Result<Summary> {
        let Self { volume, dest, options, mut rules, manifest, reproducible, sync_every, report_durable } =
            self;
        rules.access_time = reproducible.map(|seconds| Timestamp { seconds: seconds.into(), nanoseconds: 0 });
        let durable = Durable::new(volume, options.observer, sync_every, report_durable);
        let report = Report::new(&options);
        let CopyOptions { name, volume_files, .. } = options;
        let shared = Shared { reproducible, report, durable, name, volume_files, rules };
        let copied = copy(&shared).and_then(|()| match manifest {
            Some(manifest) => manifest::apply(volume, manifest, &dest, &shared.name),
            None => Ok(()),
        });
        let durable = shared.durable.finish();
        let durable = durable.with_context(|| format!("{}: making the copy durable", shared.name.volume()));
        if copied.is_err() && durable.is_ok() && shared.report.is_cancelled() {
            return Err(Error::Cancelled { durable_files: Some(shared.report.summary().files) });
        }
        shared.report.end(copied.and(durable))
    }
}

/// Applies a manifest to the tree at `dest`: a text that sets owners, permissions and extended
/// attributes of existing files, and makes directories and special files, for people who cannot do
/// so outside.
///
/// The format is the device table of genext2fs, `makedevs` and `mkfs.jffs2 -D`, with a type `x` for
/// extended attributes:
///
/// ```text
/// # path     type  mode  uid  gid  major  minor  start  increment  count
/// /dev       d     755   0    0    -      -      -      -          -
/// /dev/tty   c     666   0    5    5      0      -      -          -
/// /dev/hda   b     640   0    6    3      1      1      1          4
/// /bin/ping  f     4755  0    0
/// /bin/ping  x     user.origin=build
/// ```
///
/// # Errors
/// The first line that is wrong or cannot be applied, with its number. The lines before it are
/// applied.
pub fn apply_manifest(volume: &Volume, dest: &Path, manifest: Input<'_>) -> Result<()> {
    manifest::apply(volume, manifest, dest, &VolumeName::default())
}

/// Copies files and trees from outside.
fn copy_trees<'a>(
    volume: &'a Volume,
    sources: &[impl AsRef<Path>],
    dest: &Path,
    threads: usize,
    shared: &'a Shared<'a>,
) -> Result<()> {
    let targets = target::find(volume, sources, dest, &shared.name)?;
    let mut walker = Walker::new(volume, shared);
    let state = || SmallFiles::new(volume, shared.reproducible.is_some());
    let mut copied = Ok(());
    // A source that may have names of the sources before it is copied after they are complete, and
    // so replaces their files.
    for part in targets.chunk_by(|(_, before), (_, after)| before.is_apart_from(after)) {
        walker.begin();
        let walk = |jobs: &transfer::Submit<'_, _>| {
            part.iter().try_for_each(|(source, target)| walker.copy(jobs, source, target))
        };
        copied = match shared.reproducible {
            Some(_) => transfer::run_in_order(&shared.report, state, walk),
            None => transfer::run(threads, &shared.report, state, walk),
        };
        copied = copied.and(walker.link());
        if copied.is_err() {
            break;
        }
    }
    // Also after an error that ended the copy.
    copied.and(walker.finish())
}

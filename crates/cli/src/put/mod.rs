//! `put`: copies files and trees into a volume.

mod archive;
mod attributes;
mod durable;
mod file;
mod job;
mod manifest;
mod place;
mod rules;
mod small;
mod stdin;
mod target;
mod walk;
mod xattrs;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use parext4::{Timestamp, Volume};
use parext4_storage::Location;

use crate::image_path::{ImagePath, PathInImage};
use crate::policy::PolicyArgs;
use crate::progress::{Progress, Summary};
use crate::volume_files::VolumeFiles;
use crate::{image, interrupt, json, on_error, source_date, transfer};
use durable::Durable;
use rules::RuleArgs;
use small::SmallFiles;
use walk::Walker;

/// Copy files and trees into a volume, like cp -a
///
/// Modes, owners, times, extended attributes, hard links, symbolic links, device nodes and holes are kept.
/// Existing files are replaced, also the copies of an earlier SRC, and existing directories merged; a copy has the owner of SRC, not that of the
/// file that it replaces, unless --owner says otherwise. SRC/. means the contents of SRC. SRC - alone is standard input, and DEST the name of
/// the file.
///
/// An error of one file, such as a file that may not be read or an attribute that does not fit, is reported, and the copy goes on with the next
/// file; the exit status is 1 then. A full volume ends the copy. Ctrl-C ends it, too, and closes the volume: the files that are complete
/// are durable, and the files that the copy had begun are named. A second Ctrl-C ends the command at once.
///
/// With --tar, SRC are archives, whose contents go into an existing directory; no name in an archive leads out of it. With
/// SOURCE_DATE_EPOCH in the environment, copies of the same files into the same volume give the same bytes each time: they are made in the
/// order of their names, by one thread, and all times that the files do not have are that time, in seconds since 1970.
///
/// The copies may use all free blocks, also the 2 % that a mounted volume keeps for metadata. Directories that grow while fewer than 4096
/// blocks are free get no index, as with mke2fs -d, because they need fewer blocks without one.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The files and trees to copy
    #[arg(required = true)]
    src: Vec<PathBuf>,
    /// An existing directory, or the path of the copy; the image alone means its root directory
    #[arg(value_name = "IMAGE[:/PATH]", value_parser = ImagePath::or_root())]
    dest: ImagePath,
    /// Number of threads; by default the number of cores
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Unpack tar archives (ustar, GNU, PAX; - is standard input) instead of copying files. As with GNU tar, members replace files, symbolic
    /// links and empty directories. A member that cannot be unpacked, a record that is not understood and a whiteout of a container layer,
    /// which is not applied, are reported, and the next member follows. Access control lists may be text; a name in them without a number
    /// is one of this machine. An archive that ends within a member is an error, and one without an end mark gives a warning; members before
    /// that point are unpacked
    #[arg(long)]
    tar: bool,
    #[command(flatten)]
    rules: RuleArgs,
    /// A text with owners, modes and special files, applied to DEST after the copy: lines PATH TYPE MODE UID GID MAJOR MINOR START
    /// INCREMENT COUNT, as in the device tables of genext2fs; - for none. TYPE is f, d, c, b, p, or x with NAME=VALUE for an extended
    /// attribute
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Sync the volume after every N files
    #[arg(long, value_name = "N")]
    sync_every: Option<NonZero<usize>>,
    /// Print a line `synced PATH` for each file when it is durable
    #[arg(long)]
    report: bool,
    /// Print a summary as JSON, with the fields that parext4-json(5) lists
    #[arg(long, conflicts_with = "report")]
    json: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// State that all parts of the copy share.
struct Shared {
    /// The time of `SOURCE_DATE_EPOCH`: the same files are copied to the same bytes each time.
    source_date: Option<u32>,
    progress: Progress,
    durable: Durable,
    /// The image that the files go into.
    image: PathBuf,
    /// The files that hold its volume.
    volume_files: VolumeFiles,
    rules: RuleArgs,
}

impl Shared {
    /// Says that the copy ended before the file at `path` was complete.
    fn incomplete(&self, path: &Path) {
        self.progress.error(&anyhow!("{}: incomplete, because the copy ended", self.name(path)));
    }

    /// Returns the name of a path inside the image, for messages.
    fn name(&self, path: &Path) -> String {
        PathInImage { image: &self.image, path }.to_string()
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let source_date = source_date::get()?;
    let mut options = args.policy.options().fill_completely(true);
    if let Some(seconds) = source_date {
        parext4::stop_clock(seconds);
        // No timer commits or writes back, so the order of all writes is the same each time.
        options = options.commit_interval(None).write_back_interval(None);
    }
    interrupt::install_unless_ignored()?;
    let summary = image::with_volume(&args.dest.image, &options, |volume| copy(volume, args, source_date))?;
    if args.json {
        json::print(&json::with_names(summary.to_json(), args.dest.names()))?;
    }
    on_error::end(&summary)
}

/// Unpacks an archive, or applies a manifest, into the root of a volume, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub fn put_bytes(volume: &Volume, bytes: Vec<u8>, is_manifest: bool) -> Result<()> {
    let dest = ImagePath { image: "image".into(), path: "/".into() };
    if is_manifest {
        return manifest::apply_lines(volume, &bytes[..], Path::new("manifest"), &dest);
    }
    let durable = Durable::new(volume.clone(), None, false);
    let (progress, rules, image) = (Progress::new(true), RuleArgs::default(), dest.image.clone());
    let volume_files = VolumeFiles::default();
    let shared = Arc::new(Shared { source_date: None, progress, durable, image, volume_files, rules });
    archive::unpack(volume, Box::new(std::io::Cursor::new(bytes)), Path::new("archive"), &dest, &shared)
}

/// Copies the files, and makes the copies durable, also after an error or an interrupt.
fn copy(volume: &Volume, args: &Args, source_date: Option<u32>) -> Result<Summary> {
    let durable = Durable::new(volume.clone(), args.sync_every, args.report);
    let (progress, mut rules) = (Progress::new(args.quiet), args.rules.clone());
    rules.access_time = source_date.map(|seconds| Timestamp { seconds: seconds.into(), nanoseconds: 0 });
    let (image, volume_files) = (args.dest.image.clone(), VolumeFiles::of(&args.dest.image));
    let shared = Arc::new(Shared { source_date, progress, durable, image, volume_files, rules });
    let copied = copy_sources(volume, args, &shared);
    let durable = shared
        .durable
        .finish()
        .with_context(|| format!("{}: making the copy durable", args.dest.image.display()));
    let summary = shared.progress.summary();
    // The process ends after this. Freeing the volume's memory for each file would take longer than closing it. A device on a
    // network must be dropped, which releases its lock.
    if Location::parse(&args.dest.image)?.path().is_some() {
        std::mem::forget(volume.clone());
    }
    // The progress bar leaves its line first.
    drop(shared);
    if copied.is_err() && durable.is_ok() && interrupt::requested() {
        bail!("interrupted; {} files are complete and durable", summary.files);
    }
    copied.and(durable)?;
    args.policy.report(volume);
    Ok(summary)
}

fn copy_sources(volume: &Volume, args: &Args, shared: &Arc<Shared>) -> Result<()> {
    if args.tar {
        // Each archive builds on the ones before it.
        args.src.iter().try_for_each(|archive| archive::put(volume, archive, &args.dest, shared))?;
    } else if args.src.iter().any(|source| stdin::is_meant(source)) {
        ensure!(args.src.len() == 1, "standard input (-) is a source alone; a file of this name is ./-");
        stdin::put(volume, &args.dest, shared)?;
    } else {
        copy_trees(volume, args, shared)?;
    }
    match &args.manifest {
        Some(manifest) => manifest::apply(volume, manifest, &args.dest),
        None => Ok(()),
    }
}

/// Copies files and trees from outside.
fn copy_trees(volume: &Volume, args: &Args, shared: &Arc<Shared>) -> Result<()> {
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let targets = target::find(volume, &args.src, &args.dest)?;
    let mut walker = Walker::new(volume.clone(), Arc::clone(shared));
    let state = || SmallFiles::new(volume, shared.source_date.is_some());
    let mut copied = Ok(());
    // A source that may have names of the sources before it is copied after they are complete, and so replaces their files.
    for part in targets.chunk_by(|(_, before), (_, after)| before.is_apart_from(after)) {
        walker.begin();
        let walk = |jobs: &transfer::Submit<'_, _>| {
            part.iter().try_for_each(|(source, target)| walker.copy(jobs, source, target))
        };
        copied = match shared.source_date {
            Some(_) => transfer::run_in_order(&shared.progress, state, walk),
            None => transfer::run(threads, &shared.progress, state, walk),
        };
        copied = copied.and(walker.link());
        if copied.is_err() {
            break;
        }
    }
    // Also after an error that ended the copy.
    copied.and(walker.finish())
}

//! `put`: copies files and trees into a volume.

mod rules;

use std::num::NonZero;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use parext4::{Clock, Volume};
use parext4_copy::{Input, Put, Summary};
use parext4_storage::Location;

use crate::image_path::ImagePath;
use crate::policy::PolicyArgs;
use crate::progress::{self, Progress};
use crate::{image, interrupt, json, source_date};
use rules::RuleArgs;

/// Copy files and trees into a volume, like cp -a
///
/// Modes, owners, times, extended attributes, hard links, symbolic links, device nodes and holes
/// are kept. Existing files are replaced, also the copies of an earlier SRC, and existing
/// directories merged; a copy has the owner of SRC, not that of the file that it replaces, unless
/// --owner says otherwise. SRC/. means the contents of SRC. SRC - alone is standard input, and DEST
/// the name of the file.
///
/// An error of one file, such as a file that may not be read or an attribute that does not fit, is
/// reported, and the copy goes on with the next file; the exit status is 1 then. A full volume ends
/// the copy. Ctrl-C ends it, too, and closes the volume: the files that are complete are durable,
/// and the files that the copy had begun are named. A second Ctrl-C ends the command at once.
///
/// With --tar, SRC are archives, whose contents go into an existing directory; no name in an
/// archive leads out of it. With SOURCE_DATE_EPOCH in the environment, copies of the same files
/// into the same volume give the same bytes each time: they are made in the order of their names,
/// by one thread, and all times that the files do not have are that time, in seconds since 1970.
///
/// The copies may use all free blocks, also the 2 % that a mounted volume keeps for metadata.
/// Directories that grow while fewer than 4096 blocks are free get no index, as with mke2fs -d,
/// because they need fewer blocks without one.
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
    /// Unpack tar archives (ustar, GNU, PAX; - is standard input) instead of copying files. As with
    /// GNU tar, members replace files, symbolic links and empty directories. A member that cannot
    /// be unpacked, a record that is not understood and a whiteout of a container layer, which is
    /// not applied, are reported, and the next member follows. Access control lists may be text; a
    /// name in them without a number is one of this machine. An archive that ends within a member
    /// is an error, and one without an end mark gives a warning; members before that point are
    /// unpacked
    #[arg(long)]
    tar: bool,
    #[command(flatten)]
    rules: RuleArgs,
    /// A text with owners, modes and special files, applied to DEST after the copy: lines PATH TYPE
    /// MODE UID GID MAJOR MINOR START INCREMENT COUNT, as in the device tables of genext2fs; - for
    /// none. TYPE is f, d, c, b, p, or x with NAME=VALUE for an extended attribute
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

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let source_date = source_date::get()?;
    let mut options = args.policy.options().fill_completely(true);
    if let Some(seconds) = source_date {
        // No timer commits or writes back, so the order of all writes is the same each time.
        options = options.clock(Clock::fixed(seconds)).commit_interval(None).write_back_interval(None);
    }
    interrupt::install_unless_ignored()?;
    let summary = image::with_volume(&args.dest.image, &options, |volume| copy(volume, args, source_date))?;
    if args.json {
        json::print(&json::with_names(progress::to_json(&summary), args.dest.names()))?;
    }
    progress::end(&summary)
}

/// Copies the files. Returns the counters of the summary.
fn copy(volume: &Volume, args: &Args, source_date: Option<u32>) -> Result<Summary> {
    let progress = Progress::new(args.quiet);
    let options = image::copy_options(&args.dest.image, &progress);
    let stdin = rustix::stdio::stdin();
    let put = Put::new(volume, &args.dest.path)
        .options(options.threads(args.threads).cancel(interrupt::flag()))
        .rules(args.rules.rules())
        .manifest(args.manifest.as_ref().map(Input::file))
        .reproducible(source_date)
        .sync_every(args.sync_every)
        .report_durable(args.report);
    let copied = if args.tar {
        put.unpack(args.src.iter().map(|archive| match is_stdin(archive) {
            true => Input::open(stdin.as_fd(), "-"),
            false => Input::file(archive),
        }))
    } else if args.src.iter().any(|source| is_stdin(source)) {
        ensure!(args.src.len() == 1, "standard input (-) is a source alone; a file of this name is ./-");
        put.copy_input(Input::open(stdin.as_fd(), "standard input"))
    } else {
        put.copy(&args.src)
    };
    // The process ends after this. Freeing the volume's memory for each file would take longer than
    // closing it. A device on a network must be dropped, which releases its lock.
    if Location::parse(&args.dest.image)?.path().is_some() {
        std::mem::forget(volume.clone());
    }
    // The progress bar leaves its line first.
    drop(progress);
    let summary = copied?;
    args.policy.report(volume);
    Ok(summary)
}

/// Returns true if `source` means standard input.
fn is_stdin(source: &Path) -> bool {
    source == Path::new("-")
}

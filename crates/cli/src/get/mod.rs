//! `get`: copies files and trees out of a volume.

mod archive;
mod attributes;
mod fail_stop;
mod file;
mod made;
mod once;
mod outside;
mod records;
mod runs;
mod walk;
mod xattrs;

use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use parext4::{FileType, Volume};

use crate::image_path::{ImagePath, PathInImage, means_contents};
use crate::progress::{Progress, Summary};
use crate::volume_files::VolumeFiles;
use crate::{image, json, on_error, transfer};
use once::DataLimit;
use walk::Walker;

/// Copy a file or tree out of a volume, like cp -a
///
/// Modes, times, hard links, symbolic links, holes, user's extended attributes and access control lists are kept;
/// owners, device nodes, set-ID bits and other extended attributes only if root runs the command. Existing files are
/// replaced, existing directories merged. IMAGE:/dir/. means the contents of /dir.
///
/// An error of one file, such as a damaged inode or an attribute that the file system refuses, is reported, and the copy goes on with the next
/// file; the exit status is 1 then. A full file system ends the copy. A copy has its full length only when it has all its data.
///
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file or tree to copy; the image alone means the contents of its root directory
    #[arg(value_name = "IMAGE[:/PATH]", value_parser = ImagePath::or_root())]
    src: ImagePath,
    /// An existing directory, or the path of the copy
    #[arg(required_unless_present = "tar", conflicts_with = "tar")]
    dest: Option<PathBuf>,
    /// Write a tar archive to FILE, or to standard output if that is -, with owners and all attributes, instead of files. A file that cannot
    /// be read is left out, or filled with zeros from the error on, as by GNU tar, and reported. If the command ends early, it leaves an archive
    /// that ends within a member, or an empty file, which GNU tar and put --tar refuse. A signal, or an error of standard output or of a
    /// FILE that is not a regular file, may end the archive anywhere
    #[arg(long, value_name = "FILE")]
    tar: Option<PathBuf>,
    /// Number of threads; by default the number of cores
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
    /// Print a summary as JSON, with the fields that parext4-json(5) lists
    #[arg(long)]
    json: bool,
}

/// State that all parts of the copy share.
struct Shared {
    progress: Progress,
    data_limit: DataLimit,
    /// Only root may change owners and make device nodes.
    is_root: bool,
    source: ImagePath,
    /// The files that `source` is in.
    volume_files: VolumeFiles,
    /// Where the copy of `source` goes.
    dest: PathBuf,
}

impl Shared {
    /// Returns the name of the file that is copied to `dest`, for messages.
    fn source_of(&self, dest: &Path) -> String {
        let below = dest.strip_prefix(&self.dest).unwrap_or(Path::new(""));
        // Joining nothing would add a slash.
        let path = if below.as_os_str().is_empty() {
            self.source.path.clone()
        } else {
            self.source.path.join(below)
        };
        PathInImage { image: &self.source.image, path: &path }.to_string()
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let is_mixed = args.json && args.tar.as_deref() == Some(Path::new("-"));
    ensure!(!is_mixed, "--json and the archive cannot both go to standard output");
    let summary = image::read(&args.src.image, |volume| match (&args.tar, &args.dest) {
        (Some(tar), _) => archive::get(volume, &args.src, tar, args.quiet),
        (None, dest) => copy(volume, args, dest.as_deref().unwrap_or(Path::new("."))),
    })?;
    if args.json {
        json::print(&json::with_names(summary.to_json(), args.src.names()))?;
    }
    on_error::end(&summary)
}

/// Copies the files. Returns the counters of the summary.
fn copy(volume: &Volume, args: &Args, dest: &Path) -> Result<Summary> {
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let is_root = rustix::process::geteuid().is_root();
    let path = &args.src.path;
    let node = if means_contents(path) { volume.resolve(path) } else { volume.resolve_no_follow(path) };
    let node = node.with_context(|| args.src.to_string())?;
    let dest = target(path, node.file_type(), dest)?;
    let (progress, source) = (Progress::new(args.quiet), args.src.clone());
    let data_limit = DataLimit::of(volume);
    let volume_files = VolumeFiles::of(&source.image);
    let shared = Arc::new(Shared { progress, data_limit, is_root, source, volume_files, dest: dest.clone() });
    let (mut walker, top) =
        Walker::new(volume, Arc::clone(&shared)).with_context(|| dest.display().to_string())?;
    let copied = transfer::run(threads, &shared.progress, || (), |jobs| walker.tree(jobs, node, top));
    // Also after an error that ended the copy.
    copied.and(walker.finish(volume))?;
    Ok(shared.progress.summary())
}

/// Returns the path of the copy, by the rules of cp.
fn target(source: &Path, file_type: FileType, dest: &Path) -> Result<PathBuf> {
    match source.file_name().filter(|_| !means_contents(source)) {
        Some(name) if dest.is_dir() => Ok(dest.join(name)),
        Some(_) => {
            let ends_in_slash = dest.as_os_str().as_bytes().ends_with(b"/");
            ensure!(
                !ends_in_slash || file_type == FileType::Directory,
                "{}: no such directory",
                dest.display()
            );
            Ok(dest.to_owned())
        }
        // The user means the directory that a symbolic link points to.
        None if dest.is_dir() => dest.canonicalize().with_context(|| dest.display().to_string()),
        None => Ok(dest.to_owned()),
    }
}

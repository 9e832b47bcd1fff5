//! Copies files and trees out of a volume.

mod archive;
mod attributes;
mod confined_path;
mod created_entry;
mod fail_stop;
mod file;
mod output;
mod records;
mod runs;
mod seen_inodes;
mod walk;
mod xattrs;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result, ensure};
use parext4::{FileType, InodeRef, Volume};

use crate::observer::Summary;
use crate::options::CopyOptions;
use crate::report::Report;
use crate::transfer;
use crate::volume_files::VolumeFiles;
use crate::volume_name::{VolumeName, means_contents};
pub use output::Output;
use seen_inodes::DataLimit;
use walk::Walker;

/// A copy out of a volume, which may be corrupt or hostile. One of the methods [`copy`](Self::copy)
/// and [`pack`](Self::pack) makes it.
///
/// The copies are not synced.
pub struct Get<'a> {
    volume: &'a Volume,
    source: PathBuf,
    options: CopyOptions<'a>,
}

/// State that all parts of a copy share.
struct Shared<'a> {
    report: Report<'a>,
    data_limit: DataLimit,
    /// Only root may change owners and make device nodes.
    is_root: bool,
    name: VolumeName,
    source: PathBuf,
    /// The files that hold the volume.
    volume_files: VolumeFiles,
    /// Where the copy of `source` goes.
    dest: PathBuf,
}

impl Shared<'_> {
    /// Returns the name of the file that is copied to `dest`, for messages.
    fn source_of(&self, dest: &Path) -> String {
        let below = dest.strip_prefix(&self.dest).unwrap_or(Path::new(""));
        // Joining nothing would add a slash.
        if below.as_os_str().is_empty() {
            self.name.of(&self.source)
        } else {
            self.name.of(&self.source.join(below))
        }
    }
}

impl<'a> Get<'a> {
    /// Begins a copy of the file or tree at the absolute path `source` of `volume`. A path that
    /// ends in `/.` means the contents of a directory.
    #[must_use]
    pub fn new(volume: &'a Volume, source: impl Into<PathBuf>) -> Self {
        Self { volume, source: source.into(), options: CopyOptions::new() }
    }

    /// Sets the options that copies in both directions have.
    #[must_use]
    pub fn options(mut self, options: CopyOptions<'a>) -> Self {
        self.options = options;
        self
    }

    /// Copies to the path `dest` by the rules of `cp -a`: into `dest` if that is a directory, and
    /// else to `dest`. Existing files are replaced, and existing directories merged.
    ///
    /// Keeps permissions, times, hard links, symbolic links, holes, and the extended attributes of
    /// the user and access control lists; owners, device nodes, set-ID bits and other extended
    /// attributes only if root runs the process. No name in the volume leads out of `dest`, also
    /// while other users change the directories there. A copy has its full length only when it has
    /// all its data.
    ///
    /// # Errors
    /// An error that further files would meet, too, such as a full file system, or the error with
    /// which the observer ended the copy. [`Observer::failed`](crate::Observer::failed) gets the
    /// errors of single files.
    pub fn copy(self, dest: &Path) -> Result<Summary> {
        let Self { volume, source, options } = self;
        let node = resolve(volume, &source).with_context(|| options.name.of(&source))?;
        let dest = target(&source, node.file_type(), dest)?;
        let (report, threads) = (Report::new(&options), options.thread_count());
        let (data_limit, is_root) = (DataLimit::of(volume), rustix::process::geteuid().is_root());
        let CopyOptions { name, volume_files, .. } = options;
        let shared = Shared { report, data_limit, is_root, name, source, volume_files, dest };
        let copied = copy_tree(volume, node, threads, &shared);
        outcome(shared.report, copied)
    }

    /// Writes a tar archive in the PAX format to `output`, with owners, extended attributes, access
    /// control lists and holes.
    ///
    /// A file that cannot be read is left out, or filled with zeros from the error on, and reported
    /// to the observer. A copy that fails leaves an archive that ends within a member, or an empty
    /// file, which GNU tar and [`Put::unpack`](crate::Put::unpack) refuse. If `output` itself
    /// fails, and is no file that the copy has opened, the archive may end anywhere.
    ///
    /// # Errors
    /// An error of `output`, or the error with which the observer ended the copy.
    pub fn pack(self, output: Output<'_>) -> Result<Summary> {
        let Self { volume, source, options } = self;
        let node = resolve(volume, &source).with_context(|| options.name.of(&source))?;
        let report = Report::new(&options);
        let written = archive::write(volume, node, &source, output, &options, &report);
        outcome(report, written)
    }
}

fn resolve(volume: &Volume, source: &Path) -> parext4::Result<InodeRef> {
    if means_contents(source) { volume.resolve(source) } else { volume.resolve_no_follow(source) }
}

/// Returns the outcome of a copy whose parts ended with `result`.
fn outcome(report: Report<'_>, result: Result<()>) -> Result<Summary> {
    if result.is_err() && report.is_cancelled() {
        return Err(Error::Cancelled { durable_files: None });
    }
    report.end(result)
}

/// Copies `node` and all below it to `shared.dest`.
fn copy_tree<'a>(volume: &Volume, node: InodeRef, threads: usize, shared: &'a Shared<'a>) -> Result<()> {
    let (mut walker, top) = Walker::new(volume, shared).with_context(|| shared.dest.display().to_string())?;
    let copied = transfer::run(threads, &shared.report, || (), |jobs| walker.tree(jobs, node, top));
    // Also after an error that ended the copy.
    copied.and(walker.finish(volume))
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

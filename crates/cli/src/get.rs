//! `get`: copies files and trees out of a volume.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use parext4_copy::{Get, Output};

use crate::image_path::ImagePath;
use crate::progress::{self, Progress};
use crate::{image, json, output};

/// Copy a file or tree out of a volume, like cp -a
///
/// Modes, times, hard links, symbolic links, holes, user's extended attributes and access control
/// lists are kept; owners, device nodes, set-ID bits and other extended attributes only if root
/// runs the command. Existing files are replaced, existing directories merged. IMAGE:/dir/. means
/// the contents of /dir.
///
/// An error of one file, such as a damaged inode or an attribute that the file system refuses, is
/// reported, and the copy goes on with the next file; the exit status is 1 then. A full file system
/// ends the copy. A copy has its full length only when it has all its data.
///
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file or tree to copy; the image alone means the contents of its root directory
    #[arg(value_name = "IMAGE[:/PATH]", value_parser = ImagePath::or_root())]
    src: ImagePath,
    /// An existing directory, or the path of the copy
    #[arg(required_unless_present = "tar", conflicts_with = "tar")]
    dest: Option<PathBuf>,
    /// Write a tar archive to FILE, or to standard output if that is -, with owners and all
    /// attributes, instead of files. A file that cannot be read is left out, or filled with zeros
    /// from the error on, as by GNU tar, and reported. If the command ends early, it leaves an
    /// archive that ends within a member, or an empty file, which GNU tar and put --tar refuse. A
    /// signal, or an error of standard output or of a FILE that is not a regular file, may end the
    /// archive anywhere
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

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let stdout = Path::new("-");
    let is_mixed = args.json && args.tar.as_deref() == Some(stdout);
    ensure!(!is_mixed, "--json and the archive cannot both go to standard output");
    let ImagePath { image, path } = &args.src;
    let summary = image::read(image, |volume| {
        let progress = Progress::new(args.quiet);
        let get = Get::new(volume, path).options(image::copy_options(image, &progress).threads(args.threads));
        Ok(match args.tar.as_deref() {
            Some(tar) if tar == stdout => get.pack(Output::writer(output::by_line(), "-")),
            Some(tar) => get.pack(Output::file(tar)),
            None => get.copy(args.dest.as_deref().unwrap_or(Path::new("."))),
        }?)
    })?;
    if args.json {
        json::print(&json::with_names(progress::to_json(&summary), args.src.names()))?;
    }
    progress::end(&summary)
}

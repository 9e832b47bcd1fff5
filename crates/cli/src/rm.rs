//! `rm`: removes files and trees.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use parext4::{FileType, Volume};

use crate::activity::Activity;
use crate::image;
use crate::image_path::ImagePath;

/// Remove files or trees from a volume
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Remove directories with all their entries
    #[arg(short, long)]
    recursive: bool,
    /// Do not fail for names that do not exist
    #[arg(short, long)]
    force: bool,
    /// The files or trees to remove
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = ImagePath::parser())]
    paths: Vec<ImagePath>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    for paths in args.paths.chunk_by(|a, b| a.image == b.image) {
        image::write(&paths[0].image, |volume| {
            let _activity = activity(volume);
            paths.iter().try_for_each(|path| match remove(volume, &path.path, args.recursive) {
                Err(error) if args.force && is_missing(&error) => Ok(()),
                removed => removed.with_context(|| path.to_string()),
            })
        })?;
    }
    Ok(())
}

fn is_missing(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(parext4::Error::NotFound(_)))
}

fn activity(volume: &Volume) -> Activity {
    let (volume, before) = (volume.clone(), volume.space().free_inodes);
    Activity::start(false, "removing", move || {
        format!("{} files", volume.space().free_inodes.saturating_sub(before))
    })
}

fn remove(volume: &Volume, path: &Path, recursive: bool) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("the root directory cannot be removed");
    };
    let parent = volume.resolve(parent)?;
    let node = parent.lookup(name.as_bytes())?;
    if node.file_type() != FileType::Directory {
        return Ok(parent.unlink(name.as_bytes())?);
    }
    if !recursive {
        bail!("is a directory; use -r to remove it and all that is in it");
    }
    Ok(volume.remove_dir_all(path)?)
}

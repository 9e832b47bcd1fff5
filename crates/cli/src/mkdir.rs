//! `mkdir`: makes directories.

use anyhow::{Context, Result};

use crate::image;
use crate::image_path::ImagePath;

/// Permissions of a new directory.
const MODE: u16 = 0o755;

/// Make directories in a volume
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Make missing parents too, and accept directories that exist
    #[arg(short, long)]
    parents: bool,
    /// The directories to make
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = ImagePath::parser())]
    paths: Vec<ImagePath>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    for paths in args.paths.chunk_by(|a, b| a.image == b.image) {
        image::write(&paths[0].image, |volume| {
            for path in paths {
                let made = if args.parents {
                    volume.create_dir_all(&path.path, MODE)
                } else {
                    volume.create_dir(&path.path, MODE)
                };
                made.with_context(|| path.to_string())?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

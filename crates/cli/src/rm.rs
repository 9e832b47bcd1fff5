//! `rm`: removes files and trees.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use parext4::{FileType, Node, Volume};

use crate::image;
use crate::image_path::ImagePath;
use crate::tree::{self, Visited};

/// Remove files or trees from a volume
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Remove directories with all their entries
    #[arg(short, long)]
    recursive: bool,
    /// The files or trees to remove
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = ImagePath::parser())]
    paths: Vec<ImagePath>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    for paths in args.paths.chunk_by(|a, b| a.image == b.image) {
        image::write(&paths[0].image, |volume| {
            paths.iter().try_for_each(|path| {
                remove(volume, &path.path, args.recursive).with_context(|| path.to_string())
            })
        })?;
    }
    Ok(())
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
    remove_tree(parent, name.as_bytes().to_vec(), node)
}

/// A directory that is being emptied; it is removed by `name` from `parent` when it is empty.
struct Level {
    parent: Node,
    name: Vec<u8>,
    dir: Node,
    /// Its subdirectories that are not removed yet.
    subdirs: Vec<(Vec<u8>, Node)>,
}

/// Removes directory `name` of `parent`. Does not recurse, because the image decides how deep the tree is.
fn remove_tree(parent: Node, name: Vec<u8>, dir: Node) -> Result<()> {
    let mut visited = Visited::default();
    let mut levels = vec![empty(&mut visited, parent, name, dir)?];
    while let Some(level) = levels.last_mut() {
        if let Some((name, dir)) = level.subdirs.pop() {
            let parent = level.dir.clone();
            levels.push(empty(&mut visited, parent, name, dir)?);
        } else if let Some(Level { parent, name, .. }) = levels.pop() {
            parent.rmdir(&name)?;
        }
    }
    Ok(())
}

/// Removes all entries of `dir` except subdirectories.
fn empty(visited: &mut Visited, parent: Node, name: Vec<u8>, dir: Node) -> Result<Level> {
    visited.enter(&dir)?;
    let mut subdirs = Vec::new();
    for item in tree::entries(&dir) {
        let item = item?;
        let node = dir.lookup(&item.name)?;
        if node.file_type() == FileType::Directory {
            subdirs.push((item.name, node));
        } else {
            dir.unlink(&item.name)?;
        }
    }
    Ok(Level { parent, name, dir, subdirs })
}

//! Finds the target of each source, by the rules of cp.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Context, Result, bail, ensure};
use parext4::{Error, FileType, InodeFlags, InodeRef, Volume};

use crate::volume_name::{VolumeName, means_contents};

/// The target of one source.
pub enum Target {
    /// The source becomes entry `name` of `parent`.
    Entry { parent: InodeRef, name: Vec<u8>, path: PathBuf },
    /// The entries of the source go into this directory.
    Contents { dir: InodeRef, path: PathBuf },
}

impl Target {
    /// Returns true if the two sources have no file of the same name in the volume: [`find`]
    /// refuses equal names, but not names that a directory that ignores case takes for equal.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        let (Self::Entry { parent, .. }, Self::Entry { .. }) = (self, other) else { return false };
        !parent.flags().contains(InodeFlags::CASEFOLD)
    }
}

/// Pairs the sources with their targets.
pub fn find<'a>(
    volume: &Volume,
    sources: &'a [impl AsRef<Path>],
    dest: &Path,
    name: &VolumeName,
) -> Result<Vec<(&'a Path, Target)>> {
    let into = match volume.resolve(dest) {
        Ok(node) if node.file_type() == FileType::Directory => Some(node),
        Ok(_) | Err(Error::NotFound(_)) => None,
        Err(error) => return Err(error).with_context(|| name.of(dest)),
    };
    if let Some(dir) = into {
        return into_directory(&dir, sources, dest);
    }
    let [source] = sources else {
        bail!("{}: not a directory, but there are several sources", name.of(dest))
    };
    let source = source.as_ref();
    let (Some(parent), Some(entry)) = (dest.parent(), dest.file_name()) else {
        bail!("{}: no such directory", name.of(dest));
    };
    let ends_in_slash = dest.as_os_str().as_bytes().ends_with(b"/");
    ensure!(!ends_in_slash || source.is_dir(), "{}: no such directory", name.of(dest));
    let parent = volume.resolve(parent).with_context(|| name.of(parent))?;
    let target = Target::Entry { parent, name: entry.as_bytes().to_vec(), path: dest.to_owned() };
    Ok(vec![(source, target)])
}

fn into_directory<'a>(
    dir: &InodeRef,
    sources: &'a [impl AsRef<Path>],
    dest: &Path,
) -> Result<Vec<(&'a Path, Target)>> {
    let mut names = HashSet::new();
    let mut targets = Vec::with_capacity(sources.len());
    for source in sources.iter().map(AsRef::as_ref) {
        let name = source.file_name().filter(|_| !means_contents(source));
        targets.push((
            source,
            match name {
                Some(name) => {
                    ensure!(names.insert(name), "two sources are named {}", name.display());
                    entry(dir, name, dest)
                }
                None => Target::Contents { dir: dir.clone(), path: dest.to_owned() },
            },
        ));
    }
    Ok(targets)
}

fn entry(dir: &InodeRef, name: &OsStr, dest: &Path) -> Target {
    Target::Entry { parent: dir.clone(), name: name.as_bytes().to_vec(), path: dest.join(name) }
}

//! Finds the directories that an archive names, inside the destination.
//!
//! The destination is the root of every name in the archive, as for chroot(2): symbolic links are
//! followed, absolute ones from that root, and no `..` leads above it. The name of a member with
//! `..` is refused.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{Context, Result, bail, ensure};
use parext4::{Error, FileType, InodeRef, NewInode};

use crate::put::Shared;
use crate::put::attributes::Attributes;
use crate::put::destination::{Destination, OtherKind};

/// Symbolic links that one name may lead through, as in the kernel.
const MOST_LINKS: usize = 40;

/// The longest name in an archive, in bytes: the longest path that a program can pass to the kernel
/// (`PATH_MAX` with its zero byte).
const MOST_NAME: usize = 4095;
/// The longest part of a name, in bytes (`NAME_MAX`).
const MOST_PART: usize = 255;

const LEADS_OUT: &str = "leads out of the destination";

/// What a walk does where a directory is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    IsMade,
    IsError,
}

/// The destination of an archive.
pub struct Inside<'a> {
    root: InodeRef,
    /// Its path, for messages.
    path: PathBuf,
    /// The directory that was found last, and its name in the archive.
    last: Option<(PathBuf, InodeRef)>,
    shared: &'a Shared<'a>,
}

impl<'a> Inside<'a> {
    pub fn new(root: InodeRef, path: PathBuf, shared: &'a Shared<'a>) -> Self {
        Self { root, path, last: None, shared }
    }

    /// Returns the place that the name of a member means; `None` for the destination itself. Makes
    /// directories that are missing above it.
    pub fn place(&mut self, name: &[u8]) -> Result<Option<Destination>> {
        let mut names = parts(name)?;
        ensure!(!names.iter().any(|name| is_parent(name)), "{LEADS_OUT}");
        let path = self.path.join(names.iter().collect::<PathBuf>());
        let Some(last) = names.pop_back() else { return Ok(None) };
        let parent = self.directory(names, Missing::IsMade)?;
        let name = last.as_os_str().as_bytes().to_vec();
        Ok(Some(Destination { parent, name, path, other_kind: OtherKind::IsReplaced }))
    }

    /// Finds the file that the target of a hard link names. The target may have `..`, but may not
    /// lead above the destination.
    pub fn find(&mut self, name: &[u8]) -> Result<InodeRef> {
        let mut names = parts(name)?;
        let mut depth = 0_usize;
        for name in &names {
            depth = if is_parent(name) { depth.checked_sub(1).context(LEADS_OUT)? } else { depth + 1 };
        }
        let last = names.pop_back().filter(|last| !is_parent(last)).context("is a directory")?;
        let parent = self.directory(names, Missing::IsError)?;
        Ok(parent.lookup(last.as_os_str().as_bytes())?)
    }

    /// Returns the destination.
    pub fn root(&self) -> &InodeRef {
        &self.root
    }

    /// Has the next look-up walk all names again, because one of them may lead elsewhere now.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// Walks from the destination to a directory.
    fn directory(&mut self, names: VecDeque<PathBuf>, missing: Missing) -> Result<InodeRef> {
        let path: PathBuf = names.iter().collect();
        if let Some((known, node)) = &self.last
            && *known == path
        {
            return Ok(node.clone());
        }
        let node = self.walk(names, missing).with_context(|| path.display().to_string())?;
        self.last = Some((path, node.clone()));
        Ok(node)
    }

    /// Makes a directory that the archive does not contain, or only after an entry of it.
    fn make(&self, parent: &InodeRef, name: &[u8]) -> Result<InodeRef> {
        let node = parent.mkdir(name, &NewInode::new().permissions(0o755))?;
        let attributes = self.shared.rules.applied(Attributes::of_copy(&node.metadata()), true);
        self.shared.rules.set_xattrs(&node)?;
        node.set_attributes(&attributes.all())?;
        Ok(node)
    }

    fn walk(&self, mut names: VecDeque<PathBuf>, missing: Missing) -> Result<InodeRef> {
        let mut above: Vec<InodeRef> = Vec::new();
        let mut dir = self.root.clone();
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            if is_parent(&name) {
                dir = above.pop().unwrap_or_else(|| self.root.clone());
                continue;
            }
            let bytes = name.as_os_str().as_bytes();
            let node = match dir.lookup(bytes) {
                Err(Error::NotFound(_)) if missing == Missing::IsMade => self.make(&dir, bytes)?,
                found => found?,
            };
            match node.file_type() {
                FileType::Directory => above.push(std::mem::replace(&mut dir, node)),
                FileType::Symlink => {
                    links += 1;
                    ensure!(links <= MOST_LINKS, "too many symbolic links");
                    let target = node.read_link()?;
                    if target.is_absolute() {
                        above.clear();
                        dir = self.root.clone();
                    }
                    for part in target.components().rev() {
                        match part {
                            Component::Normal(_) | Component::ParentDir => {
                                names.push_front(part.as_os_str().into());
                            }
                            _ => {}
                        }
                    }
                }
                _ => bail!("{} is not a directory", name.display()),
            }
        }
        Ok(dir)
    }
}

fn is_parent(name: &Path) -> bool {
    name.as_os_str() == ".."
}

/// Splits a name in an archive. Absolute names count from the destination. Refuses names that no
/// program could use.
fn parts(name: &[u8]) -> Result<VecDeque<PathBuf>> {
    ensure!(name.len() <= MOST_NAME, "a name of {} bytes; the longest has {MOST_NAME}", name.len());
    let shown = Path::new(OsStr::from_bytes(name));
    ensure!(!name.contains(&0), "{}: contains a zero byte", shown.display());
    let mut parts = VecDeque::new();
    for part in shown.components() {
        match part {
            Component::Normal(part) => {
                let (shown, len) = (part.display(), part.len());
                ensure!(len <= MOST_PART, "{shown}: a part of {len} bytes; the longest has {MOST_PART}");
                parts.push_back(part.into());
            }
            Component::ParentDir => parts.push_back("..".into()),
            _ => {}
        }
    }
    Ok(parts)
}

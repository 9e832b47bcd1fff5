//! A manifest: a text that sets owners and permissions of copied files, and makes directories and
//! special files, for people who cannot do so outside.
//!
//! The format is the device table of genext2fs, `makedevs` and `mkfs.jffs2 -D`, with a type `x` for
//! extended attributes:
//!
//! ```text
//! # path     type  mode  uid  gid  major  minor  start  increment  count
//! /dev       d     755   0    0    -      -      -      -          -
//! /dev/tty   c     666   0    5    5      0      -      -          -
//! /dev/hda   b     640   0    6    3      1      1      1          4
//! /bin/ping  f     4755  0    0
//! /bin/ping  x     user.origin=build
//! ```

use std::io::{BufRead, BufReader, Read};
use std::path::{Component, Path};

use crate::error::{Context, Result, bail, ensure};
use parext4::{Error, FileType, InodeRef, NewInode, SetAttributes, Special, Volume, XattrMode};

use super::destination::{Destination, OtherKind};
use crate::input::Input;
use crate::volume_name::VolumeName;

/// The largest number of nodes that one line makes, as many as there are minor numbers.
const MOST_NODES: u32 = 1 << 20;

/// Bytes of a line at most: a path of `PATH_MAX` bytes and the largest value of an attribute.
const MOST_LINE: usize = 80 << 10;

/// Bytes of a path at most, with the zero byte at its end.
const PATH_MAX: usize = 4096;

/// Characters of the manifest that a message has at most.
const SHOWN: usize = 64;

/// Applies the lines of a manifest to the tree at `dest`. Has one line in memory.
pub fn apply(volume: &Volume, manifest: Input<'_>, dest: &Path, name: &VolumeName) -> Result<()> {
    let (manifest, input) = manifest.into_reader(None)?;
    let mut input = BufReader::new(input);
    let root = volume.resolve(dest).with_context(|| name.of(dest))?;
    let mut line = Vec::new();
    for number in 1.. {
        let apply = |line: &[u8]| -> Result<()> {
            ensure!(line.len() <= MOST_LINE, "longer than {MOST_LINE} bytes");
            let line = str::from_utf8(line).context("is not UTF-8")?.trim();
            if line.is_empty() || line.starts_with('#') {
                return Ok(());
            }
            Line::parse(line)?.apply(&root, dest)
        };
        line.clear();
        let mut read = || (&mut input).take(MOST_LINE as u64 + 1).read_until(b'\n', &mut line);
        if read().with_context(|| manifest.clone())? == 0 {
            break;
        }
        apply(&line).with_context(|| format!("{manifest}: line {number}"))?;
    }
    Ok(())
}

/// Returns the beginning of `text`, quoted, for messages.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// A line of the manifest.
struct Line<'a> {
    path: &'a Path,
    kind: char,
    /// The third column: the mode, or an extended attribute.
    third: &'a str,
    /// Owner, group, major, minor, start, increment, count; `None` for `-`.
    numbers: [Option<u32>; 7],
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Result<Self> {
        let mut columns = line.split_whitespace();
        let path = Path::new(columns.next().unwrap_or_default());
        let kind = columns.next().context("no type")?;
        if kind == "x" {
            let rest =
                line.trim_start().split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start());
            let third = rest.strip_prefix('x').unwrap_or_default().trim();
            ensure!(!third.is_empty(), "no attribute");
            return Ok(Self { path, kind: 'x', third, numbers: [None; 7] });
        }
        let kind = kind.parse().ok().with_context(|| format!("unknown type {}", shown(kind)))?;
        let third = columns.next().context("no mode")?;
        let mut numbers = [None; 7];
        for number in &mut numbers {
            match columns.next() {
                None => break,
                Some("-") => {}
                Some(text) => {
                    *number = Some(text.parse().with_context(|| format!("{} is not a number", shown(text)))?);
                }
            }
        }
        ensure!(columns.next().is_none(), "more than ten columns");
        Ok(Self { path, kind, third, numbers })
    }

    fn apply(&self, root: &InodeRef, dest: &Path) -> Result<()> {
        let Some(place) = place(root, self.path, dest)? else {
            return self.change(root);
        };
        match self.kind {
            'd' => self.change(&place.directory(&self.new_inode()?)?.node),
            'c' | 'b' | 'p' => self.nodes(&place),
            'f' | 'x' => {
                let node =
                    place.parent.lookup(&place.name).with_context(|| place.path.display().to_string())?;
                self.change(&node)
            }
            kind => bail!("unknown type {kind:?}"),
        }
    }

    /// Sets the attributes of an existing file.
    fn change(&self, node: &InodeRef) -> Result<()> {
        if self.kind == 'x' {
            let (name, value) = self.third.split_once('=').context("expected NAME=VALUE")?;
            return Ok(node.set_xattr(name.as_bytes(), value.as_bytes(), XattrMode::Any)?);
        }
        let [uid, gid, ..] = self.numbers;
        let permissions = (node.file_type() != FileType::Symlink).then(|| self.mode()).transpose()?.flatten();
        Ok(node.set_attributes(&SetAttributes::new().permissions(permissions).uid(uid).gid(gid))?)
    }

    /// Makes one special file, or with a count files whose names end in a number.
    fn nodes(&self, place: &Destination) -> Result<()> {
        let [_, _, major, minor, start, increment, count] = self.numbers;
        let (major, minor) = (major.unwrap_or(0), minor.unwrap_or(0));
        let special = |minor| match self.kind {
            'c' => Special::CharDevice { major, minor },
            'b' => Special::BlockDevice { major, minor },
            _ => Special::Fifo,
        };
        let make = |place: &Destination, minor| -> Result<()> {
            let new = self.new_inode()?;
            let node = place.replace(|dir, name| dir.mknod(name, special(minor), &new))?.node;
            self.change(&node)
        };
        let Some(count) = count.filter(|&count| count > 0) else { return make(place, minor) };
        ensure!(count <= MOST_NODES, "more than {MOST_NODES} files");
        let (start, increment) = (start.unwrap_or(0), increment.unwrap_or(1));
        for index in 0..count {
            let number = start.checked_add(index).context("a number out of range")?;
            let minor = index.checked_mul(increment).and_then(|step| minor.checked_add(step));
            let name = [&place.name[..], number.to_string().as_bytes()].concat();
            let numbered =
                Destination { name, parent: place.parent.clone(), path: place.path.clone(), ..*place };
            make(&numbered, minor.context("a minor number out of range")?)?;
        }
        Ok(())
    }

    fn new_inode(&self) -> Result<NewInode> {
        let [uid, gid, ..] = self.numbers;
        let mode = self.mode()?.unwrap_or(0o755);
        Ok(NewInode::new().permissions(mode).uid(uid.unwrap_or(0)).gid(gid.unwrap_or(0)))
    }

    fn mode(&self) -> Result<Option<u16>> {
        if self.third == "-" {
            return Ok(None);
        }
        let mode = u16::from_str_radix(self.third, 8).ok().filter(|&mode| mode <= 0o7777);
        Ok(Some(mode.with_context(|| format!("{} is no mode in octal digits", shown(self.third)))?))
    }
}

/// Returns the place of a path below `root`; `None` for `root` itself. Follows no symbolic links.
fn place(root: &InodeRef, path: &Path, dest: &Path) -> Result<Option<Destination>> {
    let len = path.as_os_str().len();
    ensure!(len < PATH_MAX, "a path of {len} bytes; the longest has {}", PATH_MAX - 1);
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name.as_encoded_bytes()),
            Component::ParentDir => bail!("{}: leads out of the destination", path.display()),
            _ => {}
        }
    }
    let Some((name, above)) = names.split_last() else { return Ok(None) };
    let mut parent = root.clone();
    for dir in above {
        parent = match parent.lookup(dir) {
            Err(Error::NotFound(_)) => bail!("{}: its directory does not exist", path.display()),
            found => found?,
        };
        ensure!(
            parent.file_type() == FileType::Directory,
            "{}: its parent is not a directory",
            path.display()
        );
    }
    let path = dest.join(path.strip_prefix("/").unwrap_or(path));
    Ok(Some(Destination { parent, name: name.to_vec(), path, other_kind: OtherKind::Stays }))
}

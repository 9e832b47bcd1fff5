//! `ls`: lists directories.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use jiff::tz::TimeZone;
use parext4::{Error, FileType, Metadata, Node, NodeId, Timestamp, Volume};
use serde_json::{Value, json};

use crate::image;
use crate::image_path::{ImagePath, PathInImage};
use crate::output::{self, Output};
use crate::tree::{self, Entry, Visited};
use crate::{json, mode};

/// List a directory of a volume, sorted by name
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print mode, links, owner, size, time of modification, and the targets of symbolic links
    #[arg(short, long)]
    long: bool,
    /// List names that start with a dot, too
    #[arg(short, long)]
    all: bool,
    /// List subdirectories, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print all attributes as a JSON array, with the fields that docs/json.md lists
    #[arg(long)]
    json: bool,
    /// The directory or file; the image alone means its root directory
    #[arg(value_name = "IMAGE[:/PATH]", value_parser = ImagePath::or_root())]
    path: ImagePath,
}

/// The longest path of a directory below the listed one, in bytes, as for programs on a mounted volume (`PATH_MAX`). Bounds
/// the length of the output.
const MAX_PATH: usize = 4096;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    image::read(&args.path.image, |volume| {
        let mut lister = Lister::new(args);
        lister.run(volume)?;
        lister.end()
    })
}

/// An entry of the list.
struct Line {
    name: Vec<u8>,
    metadata: Metadata,
    /// The target of a symbolic link.
    target: Option<Vec<u8>>,
    /// The digest of a file that fs-verity protects; empty if its descriptor is not valid.
    verity: Option<String>,
}

impl Line {
    fn new(name: Vec<u8>, node: &Node) -> Result<Self> {
        let is_link = node.file_type() == FileType::Symlink;
        let target = is_link.then(|| node.read_link()).transpose()?;
        let verity = match node.verity() {
            Err(Error::Corrupt(_)) => Some(String::new()),
            verity => verity?.map(|verity| verity.to_string()),
        };
        Ok(Self { name, metadata: node.metadata(), target, verity })
    }
}

/// A directory that waits to be listed.
struct Waiting {
    /// Length of the path of the directory above.
    above: usize,
    /// Its name; empty for the directory where the listing begins.
    name: Vec<u8>,
    dir: NodeId,
}

impl Waiting {
    /// Returns its path. `path` is the path of the directory above, or continues it.
    fn path(&self, path: OsString) -> OsString {
        let mut bytes = path.into_vec();
        bytes.truncate(self.above);
        let mut path = PathBuf::from(OsString::from_vec(bytes));
        if !self.name.is_empty() {
            path.push(OsStr::from_bytes(&self.name));
        }
        path.into_os_string()
    }
}

struct Lister<'a> {
    args: &'a Args,
    out: Output,
    /// Replaces control characters in names: the output is a terminal.
    escape: bool,
    json: Vec<Value>,
}

impl<'a> Lister<'a> {
    fn new(args: &'a Args) -> Self {
        let out = output::lock();
        Self { args, escape: out.is_terminal(), out, json: Vec::new() }
    }

    fn run(&mut self, volume: &Volume) -> Result<()> {
        let path = &self.args.path.path;
        let node = volume.resolve_no_follow(path).with_context(|| self.args.path.to_string())?;
        // As ls does: a link to a directory lists the directory, unless details of the link are asked for.
        let node = match (node.file_type(), volume.resolve(path)) {
            (FileType::Symlink, Ok(target)) if !self.args.long && !self.args.json => target,
            _ => node,
        };
        if node.file_type() == FileType::Directory {
            return self.directories(volume, path.clone(), node.id());
        }
        let line = Line::new(path.as_os_str().as_bytes().to_vec(), &node)
            .with_context(|| self.args.path.to_string())?;
        self.print(path.parent().unwrap_or(Path::new("/")), &[line])
    }

    /// Lists a directory and, if asked, all directories below it. Does not recurse, because the image decides how deep the
    /// tree is. All directories that wait share one path.
    fn directories(&mut self, volume: &Volume, top: PathBuf, dir: NodeId) -> Result<()> {
        let mut visited = Visited::none(volume);
        let mut path = top.into_os_string();
        let mut waiting = vec![Waiting { above: path.len(), name: Vec::new(), dir }];
        let mut first = true;
        while let Some(next) = waiting.pop() {
            // The listed directory is below, or is, the directory above the next one.
            path = next.path(path);
            let path = Path::new(&path);
            let name = || PathInImage { image: &self.args.path.image, path }.to_string();
            let dir = volume.node(next.dir).with_context(name)?;
            visited.enter(&dir).with_context(name)?;
            if self.args.recursive && !self.args.json {
                let gap = if std::mem::take(&mut first) { "" } else { "\n" };
                write!(self.out, "{gap}")?;
                self.name(path.as_os_str().as_bytes())?;
                writeln!(self.out, ":")?;
            }
            let mut subdirs = Vec::new();
            let lines = self.read(path, &dir, &mut subdirs).with_context(name)?;
            self.print(path, &lines)?;
            waiting.extend(subdirs.into_iter().rev());
        }
        Ok(())
    }

    fn read(&self, path: &Path, dir: &Node, subdirs: &mut Vec<Waiting>) -> Result<Vec<Line>> {
        let above = path.as_os_str().len();
        let mut lines = Vec::new();
        for entry in tree::entries(dir)? {
            let Entry { name, node } = entry?;
            if !self.args.all && name.starts_with(b".") {
                continue;
            }
            let node = node?;
            if self.args.recursive && node.file_type() == FileType::Directory {
                let len = above + 1 + name.len();
                ensure!(len < MAX_PATH, "a path below it is longer than {MAX_PATH} bytes");
                subdirs.push(Waiting { above, name: name.clone(), dir: node.id() });
            }
            lines.push(Line::new(name, &node)?);
        }
        lines.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        subdirs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(lines)
    }

    fn print(&mut self, dir: &Path, lines: &[Line]) -> Result<()> {
        if self.args.json {
            self.json.extend(lines.iter().map(|line| to_json(dir, line)));
            return Ok(());
        }
        let widths = Widths::of(lines);
        for line in lines {
            if self.args.long {
                write!(self.out, "{} ", widths.details(&line.metadata))?;
            }
            self.name(&line.name)?;
            if let Some(target) = line.target.as_ref().filter(|_| self.args.long) {
                write!(self.out, " -> ")?;
                self.name(target)?;
            }
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn name(&mut self, name: &[u8]) -> Result<()> {
        if self.escape {
            write!(self.out, "{}", String::from_utf8_lossy(name).replace(char::is_control, "?"))?;
        } else {
            self.out.write_all(name)?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        if self.args.json {
            drop(self.out);
            return json::print(&Value::Array(self.json));
        }
        Ok(self.out.flush()?)
    }
}

/// Widths of the columns of the long format.
#[derive(Default)]
struct Widths {
    links: usize,
    uid: usize,
    gid: usize,
    size: usize,
}

impl Widths {
    fn of(lines: &[Line]) -> Self {
        lines.iter().fold(Self::default(), |widths, Line { metadata, .. }| Self {
            links: widths.links.max(metadata.links.to_string().len()),
            uid: widths.uid.max(metadata.uid.to_string().len()),
            gid: widths.gid.max(metadata.gid.to_string().len()),
            size: widths.size.max(size(metadata).len()),
        })
    }

    /// Returns the columns before the name. Owners are numbers, because the volume may come from a system with other
    /// users.
    fn details(&self, metadata: &Metadata) -> String {
        format!(
            "{} {:>links$} {:>uid$} {:>gid$} {:>size$} {}",
            mode::string(metadata.file_type, metadata.permissions),
            metadata.links,
            metadata.uid,
            metadata.gid,
            size(metadata),
            local_time(metadata.mtime),
            links = self.links,
            uid = self.uid,
            gid = self.gid,
            size = self.size,
        )
    }
}

/// Returns the size in bytes, or the major and minor number of a device node.
fn size(metadata: &Metadata) -> String {
    match metadata.rdev {
        Some((major, minor)) => format!("{major}, {minor}"),
        None => metadata.size.to_string(),
    }
}

fn instant(time: Timestamp) -> Option<jiff::Timestamp> {
    let nanoseconds = i32::try_from(time.nanoseconds).ok()?;
    jiff::Timestamp::new(time.seconds, nanoseconds).ok()
}

fn local_time(time: Timestamp) -> String {
    let Some(instant) = instant(time) else { return time.seconds.to_string() };
    instant.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string()
}

fn to_json(dir: &Path, line: &Line) -> Value {
    let metadata = &line.metadata;
    let path = dir.join(OsStr::from_bytes(&line.name));
    let time = |time: Timestamp| instant(time).map(|instant| instant.to_string());
    let value = json!({
        "inode": metadata.ino.get(),
        "type": mode::type_name(metadata.file_type),
        "mode": format!("{:04o}", metadata.permissions),
        "links": metadata.links,
        "uid": metadata.uid,
        "gid": metadata.gid,
        "size": metadata.size,
        "sectors": metadata.sectors,
        "atime": time(metadata.atime),
        "mtime": time(metadata.mtime),
        "ctime": time(metadata.ctime),
        "crtime": time(metadata.crtime),
        "rdev": metadata.rdev.map(|(major, minor)| [major, minor]),
        "target": null,
        "verity": line.verity,
    });
    let names = [("name", path.file_name().unwrap_or(path.as_os_str())), ("path", path.as_os_str())];
    let target = line.target.as_ref().map(|target| ("target", OsStr::from_bytes(target)));
    json::with_names(value, names.into_iter().chain(target))
}

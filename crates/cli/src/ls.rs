//! `ls`: lists directories.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use jiff::tz::TimeZone;
use parext4::{Error, FileType, InodeId, InodeNo, InodeRef, Metadata, Timestamp, Volume};
use parext4_copy::tree::{self, Entry, Visited};
use serde_json::{Value, json};

use crate::image;
use crate::image_path::{ImagePath, PathInImage};
use crate::output::{self, Output};
use crate::{error, json, mode};

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
    /// Print all attributes as a JSON array, with the fields that parext4-json(5) lists
    #[arg(long)]
    json: bool,
    /// The directory or file; the image alone means its root directory
    #[arg(value_name = "IMAGE[:/PATH]", value_parser = ImagePath::or_root())]
    path: ImagePath,
}

/// The longest path of a directory below the listed one, in bytes, as for programs on a mounted
/// volume (`PATH_MAX`). Bounds the length of the output.
const MAX_PATH: usize = 4096;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    image::look(&args.path.image, |volume| {
        output::print(|out| {
            let mut lister = Lister { args, escape: out.is_terminal(), out, json: Vec::new(), failed: 0 };
            lister.run(volume)?;
            lister.end()
        })
    })
}

/// An entry of the list.
struct Line {
    name: Vec<u8>,
    ino: InodeNo,
    file_type: FileType,
    /// What its inode says, or why the inode cannot be read.
    facts: std::result::Result<Facts, String>,
}

/// What an inode says.
struct Facts {
    metadata: Metadata,
    /// The target of a symbolic link.
    target: Option<Vec<u8>>,
    /// The digest of a file that fs-verity protects; empty if its descriptor is not valid.
    verity: Option<String>,
}

impl Facts {
    fn of(node: &InodeRef) -> Result<Self> {
        let is_link = node.file_type() == FileType::Symlink;
        let target = is_link.then(|| node.read_link()).transpose()?;
        let target = target.map(|target| target.into_os_string().into_vec());
        let verity = match node.verity() {
            Err(Error::Corrupt(_)) => Some(String::new()),
            verity => verity?.map(|verity| verity.to_string()),
        };
        Ok(Self { metadata: node.metadata(), target, verity })
    }
}

/// A directory that waits to be listed.
struct Waiting {
    /// Length of the path of the directory above.
    above: usize,
    /// Its name; empty for the directory where the listing begins.
    name: Vec<u8>,
    dir: InodeId,
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
    out: &'a mut Output,
    /// Replaces control characters in names: the output is a terminal.
    escape: bool,
    json: Vec<Value>,
    /// Number of errors that were reported.
    failed: u64,
}

impl Lister<'_> {
    fn run(&mut self, volume: &Volume) -> Result<()> {
        let path = &self.args.path.path;
        let node = volume.resolve_no_follow(path).with_context(|| self.args.path.to_string())?;
        // As ls does: a link to a directory lists the directory, unless details of the link are
        // asked for.
        let node = match (node.file_type(), volume.resolve(path)) {
            (FileType::Symlink, Ok(target)) if !self.args.long && !self.args.json => target,
            _ => node,
        };
        if node.file_type() == FileType::Directory {
            return self.directories(volume, path.clone(), node.id());
        }
        let facts = Facts::of(&node).with_context(|| self.args.path.to_string())?;
        let name = path.as_os_str().as_bytes().to_vec();
        let line = Line { name, ino: node.ino(), file_type: node.file_type(), facts: Ok(facts) };
        self.print(path.parent().unwrap_or(Path::new("/")), &[line])
    }

    /// Lists a directory and, if asked, all directories below it. Does not recurse, because the
    /// image decides how deep the tree is. All directories that wait share one path.
    fn directories(&mut self, volume: &Volume, top: PathBuf, dir: InodeId) -> Result<()> {
        let mut visited = Visited::none(volume);
        let mut path = top.into_os_string();
        let mut waiting = vec![Waiting { above: path.len(), name: Vec::new(), dir }];
        let mut first = true;
        while let Some(next) = waiting.pop() {
            // The listed directory is below, or is, the directory above the next one.
            path = next.path(path);
            let path = Path::new(&path);
            if self.args.recursive && !self.args.json {
                let gap = if std::mem::take(&mut first) { "" } else { "\n" };
                write!(self.out, "{gap}")?;
                self.name(path.as_os_str().as_bytes())?;
                writeln!(self.out, ":")?;
            }
            let (mut lines, mut subdirs) = (Vec::new(), Vec::new());
            let opened = volume.inode_ref(next.dir).map_err(anyhow::Error::from);
            let read = opened.and_then(|dir| {
                visited.enter(&dir)?;
                self.read(path, &dir, &mut lines, &mut subdirs)
            });
            if let Err(error) = read {
                if next.name.is_empty() && lines.is_empty() {
                    return Err(error.context(self.args.path.to_string()));
                }
                self.report(path, &error);
            }
            lines.sort_unstable_by(|a: &Line, b| a.name.cmp(&b.name));
            subdirs.sort_unstable_by(|a: &Waiting, b| b.name.cmp(&a.name));
            let is_too_long = |below: &Waiting| below.above + 1 + below.name.len() >= MAX_PATH;
            if subdirs.iter().any(is_too_long) {
                let name = PathInImage { image: &self.args.path.image, path };
                bail!("{name}: a path below it is longer than {MAX_PATH} bytes");
            }
            self.print(path, &lines)?;
            waiting.extend(subdirs);
        }
        Ok(())
    }

    /// Adds the entries of a directory, and the directories that will be listed after it. If it
    /// fails, they have what precedes the error.
    fn read(
        &mut self,
        path: &Path,
        dir: &InodeRef,
        lines: &mut Vec<Line>,
        subdirs: &mut Vec<Waiting>,
    ) -> Result<()> {
        let above = path.as_os_str().len();
        for entry in tree::entries(dir)? {
            let Entry { name, ino, file_type, node } = entry?;
            if !self.args.all && name.starts_with(b".") {
                continue;
            }
            let node = node.map_err(anyhow::Error::from);
            if let Ok(node) = &node
                && self.args.recursive
                && node.file_type() == FileType::Directory
            {
                subdirs.push(Waiting { above, name: name.clone(), dir: node.id() });
            }
            let facts = node.and_then(|node| Facts::of(&node)).map_err(|error| {
                self.report(&path.join(OsStr::from_bytes(&name)), &error);
                format!("{error:#}")
            });
            lines.push(Line { name, ino, file_type, facts });
        }
        Ok(())
    }

    /// Prints an error on stderr. The listing goes on.
    fn report(&mut self, path: &Path, error: &anyhow::Error) {
        let name = PathInImage { image: &self.args.path.image, path };
        error::say(&format!("{}: {}", error::printable(&name.to_string()), error::describe(error)));
        self.failed += 1;
    }

    fn print(&mut self, dir: &Path, lines: &[Line]) -> Result<()> {
        if self.args.json {
            self.json.extend(lines.iter().map(|line| to_json(dir, line)));
            return Ok(());
        }
        let widths = Widths::of(lines);
        for line in lines {
            if self.args.long {
                write!(self.out, "{} ", widths.details(line))?;
            }
            self.name(&line.name)?;
            let target = line.facts.as_ref().ok().and_then(|facts| facts.target.as_ref());
            if let Some(target) = target.filter(|_| self.args.long) {
                write!(self.out, " -> ")?;
                self.name(target)?;
            }
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        if self.args.json {
            writeln!(self.out, "{:#}", Value::Array(self.json))?;
        }
        match self.failed {
            0 => Ok(()),
            1 => bail!("{}: 1 error, named above", self.args.path),
            failed => bail!("{}: {failed} errors, named above", self.args.path),
        }
    }

    fn name(&mut self, name: &[u8]) -> Result<()> {
        if self.escape {
            write!(self.out, "{}", String::from_utf8_lossy(name).replace(char::is_control, "?"))?;
        } else {
            self.out.write_all(name)?;
        }
        Ok(())
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

/// Stands for what an inode does not say, as in the output of ls.
const UNKNOWN: &str = "?";
/// Width of a time in the long format.
const TIME: usize = "2025-01-31 12:00".len();

impl Widths {
    fn of(lines: &[Line]) -> Self {
        let known = lines.iter().filter_map(|line| line.facts.as_ref().ok());
        // A question mark has the width of a digit.
        let least = Self { links: 1, uid: 1, gid: 1, size: 1 };
        known.fold(least, |widths, Facts { metadata, .. }| Self {
            links: widths.links.max(metadata.links.to_string().len()),
            uid: widths.uid.max(metadata.uid.to_string().len()),
            gid: widths.gid.max(metadata.gid.to_string().len()),
            size: widths.size.max(size(metadata).len()),
        })
    }

    /// Returns the columns before the name. Owners are numbers, because the volume may come from a
    /// system with other users.
    fn details(&self, line: &Line) -> String {
        let Self { links, uid, gid, size: width } = *self;
        match &line.facts {
            Ok(Facts { metadata, .. }) => format!(
                "{} {:>links$} {:>uid$} {:>gid$} {:>width$} {}",
                mode::string(metadata.file_type, metadata.permissions),
                metadata.links,
                metadata.uid,
                metadata.gid,
                size(metadata),
                local_time(metadata.mtime),
            ),
            Err(_) => format!(
                "{} {UNKNOWN:>links$} {UNKNOWN:>uid$} {UNKNOWN:>gid$} {UNKNOWN:>width$} {UNKNOWN:>TIME$}",
                mode::unknown(line.file_type),
            ),
        }
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
    let path = dir.join(OsStr::from_bytes(&line.name));
    let facts = line.facts.as_ref().ok();
    let metadata = facts.map(|facts| &facts.metadata);
    let time = |time: fn(&Metadata) -> Timestamp| {
        metadata.and_then(|metadata| instant(time(metadata))).map(|instant| instant.to_string())
    };
    let value = json!({
        "inode": line.ino.get(),
        "type": mode::type_name(metadata.map_or(line.file_type, |metadata| metadata.file_type)),
        "mode": metadata.map(|metadata| format!("{:04o}", metadata.permissions)),
        "links": metadata.map(|metadata| metadata.links),
        "uid": metadata.map(|metadata| metadata.uid),
        "gid": metadata.map(|metadata| metadata.gid),
        "size": metadata.map(|metadata| metadata.size),
        "sectors": metadata.map(|metadata| metadata.sectors),
        "atime": time(|metadata| metadata.atime),
        "mtime": time(|metadata| metadata.mtime),
        "ctime": time(|metadata| metadata.ctime),
        "crtime": time(|metadata| metadata.crtime),
        "rdev": metadata.and_then(|metadata| metadata.rdev).map(|(major, minor)| [major, minor]),
        "target": null,
        "verity": facts.and_then(|facts| facts.verity.as_ref()),
        "error": line.facts.as_ref().err(),
    });
    let names = [("name", path.file_name().unwrap_or(path.as_os_str())), ("path", path.as_os_str())];
    let target = facts.and_then(|facts| facts.target.as_ref());
    let target = target.map(|target| ("target", OsStr::from_bytes(target)));
    json::with_names(value, names.into_iter().chain(target))
}

//! The attributes and contents of a tree of files that a copy must keep.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rustix::fs::{FileType, SeekFrom, seek};

use crate::interrupt;

/// Content is hashed in pieces of this many bytes; pieces of zeros only count as holes.
const PIECE: usize = 4096;
/// A difference shown names at most this many paths.
const SHOWN: usize = 8;
/// Blocks that map a file's data, in bytes, which `st_blocks` counts too.
const MAPPING_SLACK: u64 = 256 << 10;

/// A tree: its entries by path, relative to its root, which is the empty path.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    /// Seconds and nanoseconds; none where any time will do.
    modified: Option<(i64, i64)>,
    device: u64,
    /// The first path of the same file, if it has several.
    link_of: Option<PathBuf>,
    content: Content,
}

#[derive(Clone)]
enum Content {
    File {
        size: u64,
        hash: u64,
        data: u64,
        /// Number of runs of data between holes.
        runs: u64,
        allocated: u64,
    },
    Symlink(OsString),
    Other,
}

impl Manifest {
    /// Reads the tree at `root`.
    pub fn read(root: &Path) -> Result<Manifest> {
        let mut manifest = Manifest::default();
        let mut links = HashMap::new();
        let mut dirs = vec![PathBuf::new()];
        manifest.add(root, Path::new(""), &mut links)?;
        while let Some(dir) = dirs.pop() {
            interrupt::check()?;
            let at = root.join(&dir);
            let mut names = fs::read_dir(&at)
                .and_then(|entries| {
                    entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>()
                })
                .with_context(|| format!("listing {}", at.display()))?;
            names.sort();
            for name in names {
                let path = dir.join(name);
                if manifest.add(root, &path, &mut links)? {
                    dirs.push(path);
                }
            }
        }
        manifest.name_link_groups();
        Ok(manifest)
    }

    /// The number of entries, the root included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of entries that are not directories.
    pub fn files(&self) -> usize {
        let is_dir = |entry: &&Entry| FileType::from_raw_mode(entry.mode) == FileType::Directory;
        self.entries.len() - self.entries.values().filter(is_dir).count()
    }

    /// Replaces each modification time after `limit` by any time.
    pub fn forget_times_after(&mut self, limit: SystemTime) -> Result<()> {
        let limit = limit.duration_since(UNIX_EPOCH)?;
        let limit = (i64::try_from(limit.as_secs())?, i64::from(limit.subsec_nanos()));
        for entry in self.entries.values_mut() {
            entry.modified = entry.modified.filter(|time| *time <= limit);
        }
        Ok(())
    }

    /// Returns the same tree on a volume that allocates space in units of `unit` bytes: each run of
    /// data may begin and end within a unit.
    pub fn in_units(&self, unit: u64) -> Manifest {
        let mut manifest = self.clone();
        for entry in manifest.entries.values_mut() {
            if let Content::File { data, runs, allocated, .. } = &mut entry.content {
                *allocated = (*allocated).max(*data + 2 * unit * *runs);
            }
        }
        manifest
    }

    /// Replaces the modification time of each directory by any time.
    pub fn forget_times_of_dirs(&mut self) {
        let is_dir = |entry: &&mut Entry| FileType::from_raw_mode(entry.mode) == FileType::Directory;
        self.entries.values_mut().filter(is_dir).for_each(|entry| entry.modified = None);
    }

    /// Fails with the first differences if `other` is not the same tree.
    pub fn compare(&self, other: &Manifest) -> Result<()> {
        self.compare_paths(other, self.entries.keys().chain(other.entries.keys()))
    }

    /// Fails if one of `paths` is not the same in `other`. Link groups are left out: some of a
    /// file's names may be missing there.
    pub fn compare_some<'a>(
        &self,
        other: &Manifest,
        paths: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Result<()> {
        let (mut ours, mut theirs) = (Manifest::default(), Manifest::default());
        for path in paths {
            for (from, to) in [(self, &mut ours), (other, &mut theirs)] {
                if let Some(entry) = from.entries.get(path) {
                    to.entries.insert(path.clone(), Entry { link_of: None, ..entry.clone() });
                }
            }
            if !ours.entries.contains_key(path) {
                bail!("{} is not in the source", path.display());
            }
        }
        ours.compare_paths(&theirs, ours.entries.keys())
    }

    fn compare_paths<'a>(&self, other: &Manifest, paths: impl Iterator<Item = &'a PathBuf>) -> Result<()> {
        let mut different: Vec<_> =
            paths.filter(|path| !same(self.entries.get(*path), other.entries.get(*path))).collect();
        different.sort();
        different.dedup();
        if different.is_empty() {
            return Ok(());
        }
        let mut text = format!("{} paths differ", different.len());
        for path in different.iter().take(SHOWN) {
            let (ours, theirs) = (self.entries.get(*path), other.entries.get(*path));
            text += &format!("\n    {}\n      wanted {ours:?}\n      found  {theirs:?}", short(path));
        }
        bail!(text)
    }

    /// Adds one path; returns whether it is a directory.
    fn add(&mut self, root: &Path, path: &Path, links: &mut HashMap<(u64, u64), PathBuf>) -> Result<bool> {
        let at = if path.as_os_str().is_empty() { root.to_owned() } else { root.join(path) };
        let meta = fs::symlink_metadata(&at)
            .with_context(|| format!("reading the attributes of {}", at.display()))?;
        let kind = meta.file_type();
        let first = (!meta.is_dir() && meta.nlink() > 1)
            .then(|| links.entry((meta.dev(), meta.ino())).or_insert_with(|| path.to_owned()).clone());
        let content = match &first {
            Some(first) if first != path => self.entries[first].content.clone(),
            _ if kind.is_file() => {
                read_file(&at, &meta).with_context(|| format!("reading {}", at.display()))?
            }
            _ if kind.is_symlink() => Content::Symlink(fs::read_link(&at)?.into_os_string()),
            _ => Content::Other,
        };
        let is_device = kind.is_block_device() || kind.is_char_device();
        let entry = Entry {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            modified: Some((meta.mtime(), meta.mtime_nsec())),
            device: if is_device { meta.rdev() } else { 0 },
            link_of: first,
            content,
        };
        self.entries.insert(path.to_owned(), entry);
        Ok(meta.is_dir())
    }

    /// Names each link group by its least path, whatever the order of the walk was.
    fn name_link_groups(&mut self) {
        let mut least: HashMap<PathBuf, PathBuf> = HashMap::new();
        for (path, entry) in &self.entries {
            if let Some(first) = &entry.link_of {
                least.entry(first.clone()).or_insert_with(|| path.clone());
            }
        }
        for entry in self.entries.values_mut() {
            entry.link_of = entry.link_of.as_ref().map(|first| least[first].clone());
        }
    }
}

fn same(wanted: Option<&Entry>, found: Option<&Entry>) -> bool {
    match (wanted, found) {
        (Some(wanted), Some(found)) => wanted.is_kept_by(found),
        (None, None) => true,
        _ => false,
    }
}

impl Entry {
    fn is_kept_by(&self, found: &Entry) -> bool {
        self.mode == found.mode
            && self.owner == found.owner
            && (self.modified.is_none() || self.modified == found.modified)
            && self.device == found.device
            && self.link_of == found.link_of
            && self.content.is_kept_by(&found.content)
    }
}

impl Content {
    /// Returns true if `found` has the same content and has allocated little more than its data
    /// needs, or no more than `self`: a writer that was killed may have left blocks past the end.
    fn is_kept_by(&self, found: &Content) -> bool {
        match (self, found) {
            (
                Content::File { size, hash, data, allocated, .. },
                Content::File { size: size2, hash: hash2, allocated: allocated2, .. },
            ) => {
                let needed = data + data / 8 + MAPPING_SLACK;
                (size, hash) == (size2, hash2) && *allocated2 <= needed.max(*allocated)
            }
            (Content::Symlink(target), Content::Symlink(target2)) => target == target2,
            (Content::Other, Content::Other) => true,
            _ => false,
        }
    }
}

fn read_file(path: &Path, meta: &Metadata) -> Result<Content> {
    let file = File::open(path)?;
    let size = meta.size();
    let (mut hash, mut data, mut runs) = (DefaultHasher::new(), 0, 0);
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    while let Some((start, end)) = next_data(&file, offset, size)? {
        data += end - start;
        runs += 1;
        // A block size larger than a piece or smaller must not change what a piece is.
        offset = start - start % PIECE as u64;
        while offset < end {
            let wanted = end.next_multiple_of(PIECE as u64).min(size) - offset;
            let len = (buffer.len() as u64).min(wanted) as usize;
            file.read_exact_at(&mut buffer[..len], offset)?;
            hash_pieces(&mut hash, &buffer[..len], offset);
            offset += len as u64;
        }
    }
    Ok(Content::File { size, hash: hash.finish(), data, runs, allocated: meta.blocks() * 512 })
}

fn hash_pieces(hash: &mut DefaultHasher, bytes: &[u8], offset: u64) {
    static ZEROS: [u8; PIECE] = [0; PIECE];
    for (index, piece) in bytes.chunks(PIECE).enumerate() {
        if piece != &ZEROS[..piece.len()] {
            hash.write_u64(offset + (index * PIECE) as u64);
            hash.write(piece);
        }
    }
}

/// The first range of data at or after `offset`.
fn next_data(file: &File, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
    if offset >= size {
        return Ok(None);
    }
    match seek(file, SeekFrom::Data(offset)) {
        Ok(start) => Ok(Some((start, seek(file, SeekFrom::Hole(start))?.min(size)))),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::File { size, hash, data, allocated, .. } => {
                write!(f, "file of {size} bytes, hash {hash:016x}, {data} of data, {allocated} allocated")
            }
            Content::Symlink(target) => {
                write!(f, "symlink of {} bytes to {}", target.len(), short(Path::new(target)))
            }
            Content::Other => f.write_str("no content"),
        }
    }
}

/// A path cut to what a line can show.
fn short(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    match bytes.len() {
        0 => "(the root)".into(),
        1..=120 => path.display().to_string(),
        len => format!("{}...({len} bytes)", String::from_utf8_lossy(&bytes[..100])),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown};

    use super::*;
    use crate::tree::generate::{Plan, generate};

    fn tree(dir: &Path, name: &str) -> PathBuf {
        let root = dir.join(name);
        generate(&root, &Plan { files: 60, large: (1, 5_000), sparse: 1 << 30, large_dir: 10, seed: 7 })
            .unwrap();
        root
    }

    /// Every kind of damage to a copy is seen. Needs root, as a tree with device nodes does.
    #[test]
    fn a_difference_is_found() {
        if !crate::debian::is_root() {
            return;
        }
        let dir = crate::workspace::scratch().unwrap();
        let wanted = Manifest::read(&tree(dir.path(), "a")).unwrap();
        let damages: [fn(&Path); 9] = [
            |root| fs::remove_file(root.join("large0")).unwrap(),
            |root| fs::write(root.join("another"), "").unwrap(),
            |root| fs::write(root.join("large0"), vec![1; 5_000]).unwrap(),
            |root| fs::set_permissions(root.join("large0"), fs::Permissions::from_mode(0o4_711)).unwrap(),
            |root| lchown(root.join("symlink60"), Some(1), Some(2)).unwrap(),
            |root| fs::hard_link(root.join("large0"), root.join("link")).unwrap(),
            |root| File::options().write(true).open(root.join("time0")).unwrap().set_len(17).unwrap(),
            |root| File::open(root.join("large0")).unwrap().set_modified(UNIX_EPOCH).unwrap(),
            |root| {
                // The same content without its holes.
                let file = File::options().write(true).open(root.join("all-hole")).unwrap();
                let modified = file.metadata().unwrap().modified().unwrap();
                file.write_all_at(&vec![0; 4 << 20], 0).unwrap();
                file.set_modified(modified).unwrap();
            },
        ];
        for (index, damage) in damages.iter().enumerate() {
            let root = tree(dir.path(), &format!("b{index}"));
            damage(&root);
            assert!(wanted.compare(&Manifest::read(&root).unwrap()).is_err(), "damage {index}");
        }
    }

    #[test]
    fn a_tree_equals_itself() {
        let dir = crate::workspace::scratch().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/file"), "content").unwrap();
        let manifest = Manifest::read(dir.path()).unwrap();
        manifest.compare(&Manifest::read(dir.path()).unwrap()).unwrap();
        assert_eq!(manifest.files(), 1);
    }
}

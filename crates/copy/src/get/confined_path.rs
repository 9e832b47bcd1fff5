//! The directories outside of the volume that `get` copies into. They are used by descriptor and
//! not by path.
//!
//! Another user may own such a directory, and may replace it, or a file in it, at any time while
//! root copies. So
//!
//! 1. an operation names a file by an open directory and one name, and follows no symbolic link;
//! 2. a directory is opened by its name in its parent, and must be the directory that was made or
//!    found there at first ([`Identity`]);
//! 3. attributes are set by descriptor ([`CreatedEntry`](super::created_entry::Made));
//! 4. a file that cannot be opened when it is made, such as a device file or a symbolic link, is
//!    used only if it is owned by root and is of the kind, with the device or the target, that was
//!    made;
//! 5. a further name is given only to a file that is identified as the copy.
//!
//! An inode number does not suffice to identify a file: another user can remove the copy and get
//! its number for a new file. So an identity also has the time of birth, which no user can set, and
//! the owner. The clock of births may stand still for some milliseconds, but a file that another
//! user makes then has that user as its owner. If the copy belongs to that user, the user can
//! change its contents anyway.
//!
//! Only the path that the user typed is resolved with symbolic links, once. If another user puts a
//! directory there before `get` opens it for the first time, `get` copies into that directory, as
//! if it had been there before the command.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Result, bail, ensure};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, mkdirat, openat, statat, statx, unlinkat};
use rustix::io::Errno;

use crate::volume_files::VolumeFiles;

/// Number of directories that are kept open for further copies. A tree may be deeper.
const OPEN: usize = 64;
/// Flags to open a directory for copies in it, which needs no permission to read it.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Identifies a file outside of the volume, until its owner changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Major and minor number.
    device: (u32, u32),
    inode: u64,
    /// Seconds and nanoseconds of the time when the file was made; `None` if the file system has no
    /// such times.
    born: Option<(i64, u32)>,
    owner: u32,
}

impl Identity {
    /// Returns the identity of an open file.
    pub fn of(file: impl AsFd) -> Result<Self> {
        let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
        let born = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
        let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        Ok(Self {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            born: has_birth.then_some(born),
            owner: found.stx_uid,
        })
    }
}

/// An open directory.
pub type Dir = Arc<OwnedFd>;

/// Where a copy is made. Millions of copies together keep each name once.
#[derive(Debug)]
pub struct ConfinedPath {
    /// Index of the directory in [`Directories`]; `None` for the first copy.
    pub dir: Option<usize>,
    pub name: OsString,
}

/// All directories that were made, each after its parent.
pub struct Directories {
    /// The directory of the first copy, and its path.
    top: Dir,
    top_path: PathBuf,
    made: Vec<(ConfinedPath, Identity)>,
    /// The directories that are open, the last one used at the end.
    open: VecDeque<(usize, Dir)>,
}

impl Directories {
    /// Opens the directory in which `dest` is, or will be, the first copy. Returns the place of the
    /// first copy with it.
    pub fn above(dest: &Path) -> Result<(Self, ConfinedPath)> {
        let (top, name) = match (dest.parent(), dest.file_name()) {
            (Some(parent), Some(name)) if parent.as_os_str().is_empty() => (Path::new("."), name),
            (Some(parent), Some(name)) => (parent, name),
            _ => (dest, OsStr::new(".")),
        };
        let open = rustix::fs::open(top, DIRECTORY, Mode::empty())?;
        let (made, name) = (Vec::new(), name.to_owned());
        let directories = Self { top: Arc::new(open), top_path: top.to_owned(), made, open: VecDeque::new() };
        Ok((directories, ConfinedPath { dir: None, name }))
    }

    /// Makes a directory that only this user can read until it has its own attributes, unless there
    /// is one. Returns its index, and true if the directory is new.
    pub fn make(&mut self, place: ConfinedPath) -> Result<(usize, bool)> {
        let parent = self.open(place.dir)?;
        let is_new = match mkdirat(&*parent, &place.name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        // A symbolic link to a directory does not count: it may come from the image.
        let dir = match openat(&*parent, &place.name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                bail!("is not a directory, and would have to be replaced by one");
            }
            dir => Arc::new(dir?),
        };
        let index = self.made.len();
        self.made.push((place, Identity::of(&*dir)?));
        self.keep(index, dir);
        Ok((index, is_new))
    }

    /// Opens the copied directory with index `dir`, or, without an index, the directory that
    /// contains the first copy.
    ///
    /// # Errors
    /// If a directory was replaced since it was made.
    pub fn open(&mut self, dir: Option<usize>) -> Result<Dir> {
        let mut closed = Vec::new();
        let mut next = dir;
        let mut found = loop {
            let Some(index) = next else { break Arc::clone(&self.top) };
            if let Some(at) = self.open.iter().rposition(|(open, _)| *open == index) {
                break Arc::clone(&self.open[at].1);
            }
            closed.push(index);
            next = self.made[index].0.dir;
        };
        for index in closed.into_iter().rev() {
            let (place, identity) = &self.made[index];
            let dir = openat(&*found, &place.name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
            found = match dir {
                Ok(dir) if Identity::of(&dir)? == *identity => Arc::new(dir),
                Ok(_) | Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {
                    bail!("{} was replaced while it was copied", self.path(place).display());
                }
                Err(error) => return Err(error.into()),
            };
            self.keep(index, Arc::clone(&found));
        }
        Ok(found)
    }

    fn keep(&mut self, index: usize, dir: Dir) {
        if self.open.len() == OPEN {
            self.open.pop_front();
        }
        self.open.push_back((index, dir));
    }

    /// Returns the place of a directory.
    pub fn place(&self, index: usize) -> &ConfinedPath {
        &self.made[index].0
    }

    /// Returns the path of a copy, for messages.
    pub fn path(&self, place: &ConfinedPath) -> PathBuf {
        let above = |place: &&ConfinedPath| Some(&self.made.get(place.dir?)?.0);
        let names: Vec<_> =
            std::iter::successors(Some(place), above).map(|place| place.name.as_os_str()).collect();
        let below: PathBuf = names.into_iter().rev().collect();
        if self.top_path == Path::new(".") { below } else { self.top_path.join(below) }
    }
}

/// Makes a file with `make`, which fails if there is one; a file with that name is removed first,
/// unless it is one of `kept`.
pub fn replace<R>(
    kept: &VolumeFiles,
    dir: &Dir,
    name: &OsStr,
    make: impl Fn() -> rustix::io::Result<R>,
) -> Result<R> {
    match make() {
        Err(Errno::EXIST) => {}
        made => return Ok(made?),
    }
    let found = statat(&**dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    ensure!(
        !rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir(),
        "is a directory, and would have to be replaced by a file"
    );
    kept.refuse(found.st_dev, found.st_ino)?;
    unlinkat(&**dir, name, AtFlags::empty())?;
    Ok(make()?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Makes `dest/a/b` in a new directory, next to a directory `victim`. Returns both directories,
    /// and the place of a file in `b`.
    fn made(dir: &Path) -> (Directories, ConfinedPath) {
        fs::create_dir(dir.join("victim")).unwrap();
        let (mut directories, top) = Directories::above(&dir.join("dest")).unwrap();
        let (dest, _) = directories.make(top).unwrap();
        let (a, _) = directories.make(ConfinedPath { dir: Some(dest), name: "a".into() }).unwrap();
        let (b, _) = directories.make(ConfinedPath { dir: Some(a), name: "b".into() }).unwrap();
        (directories, ConfinedPath { dir: Some(b), name: "file".into() })
    }

    fn swap(dir: &Path, name: &str) {
        fs::rename(dir.join(name), dir.join("moved")).unwrap();
        symlink(dir.join("victim"), dir.join(name)).unwrap();
    }

    #[test]
    fn an_open_directory_is_used_wherever_it_is_moved() {
        let dir = tempfile::tempdir().unwrap();
        let (mut directories, place) = made(dir.path());
        swap(dir.path(), "dest");
        let open = directories.open(place.dir).unwrap();
        mkdirat(&*open, "made", Mode::RWXU).unwrap();
        assert!(dir.path().join("moved/a/b/made").is_dir());
        assert_eq!(fs::read_dir(dir.path().join("victim")).unwrap().count(), 0);
    }

    #[test]
    fn a_closed_directory_that_was_swapped_is_not_entered() {
        for name in ["dest", "dest/a", "dest/a/b"] {
            for is_link in [true, false] {
                let dir = tempfile::tempdir().unwrap();
                let (mut directories, place) = made(dir.path());
                directories.open.clear();
                fs::rename(dir.path().join(name), dir.path().join("moved")).unwrap();
                if is_link {
                    symlink(dir.path().join("victim"), dir.path().join(name)).unwrap();
                } else {
                    fs::create_dir_all(dir.path().join(name).join("a/b")).unwrap();
                }
                let error = directories.open(place.dir).unwrap_err().to_string();
                assert!(error.contains(name) && error.contains("was replaced"), "{error}");
                assert_eq!(fs::read_dir(dir.path().join("victim")).unwrap().count(), 0);
            }
        }
    }

    #[test]
    fn a_symbolic_link_is_no_directory_and_is_replaced_by_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (mut directories, place) = made(dir.path());
        symlink(dir.path().join("victim"), dir.path().join("dest/a/b/link")).unwrap();
        let link = ConfinedPath { dir: place.dir, name: "link".into() };
        assert!(directories.make(link).unwrap_err().to_string().contains("is not a directory"));
        let open = directories.open(place.dir).unwrap();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let name = OsStr::new("link");
        let kept = VolumeFiles::default();
        replace(&kept, &open, name, || openat(&*open, name, flags, Mode::RUSR)).unwrap();
        assert!(dir.path().join("dest/a/b/link").symlink_metadata().unwrap().is_file());
        assert!(
            replace(&kept, &directories.open(Some(1)).unwrap(), OsStr::new("b"), || {
                Err::<(), _>(Errno::EXIST)
            })
            .is_err()
        );
    }

    /// Another file with the number of a removed one is not the same file.
    #[test]
    fn a_file_with_a_recycled_inode_number_is_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let made = || Identity::of(fs::File::create_new(&path).unwrap()).unwrap();
        let first = made();
        assert_eq!(Identity::of(fs::File::open(&path).unwrap()).unwrap(), first);
        for _ in 0..20 {
            fs::remove_file(&path).unwrap();
            // Longer than the granularity of birth times.
            std::thread::sleep(std::time::Duration::from_millis(11));
            let second = made();
            if (second.device, second.inode) == (first.device, first.inode) && second.born.is_some() {
                return assert_ne!(second, first);
            }
        }
        testkit::skip_allowed("this file system uses no inode number again, or has no times of birth");
    }

    /// Within one tick of the clock of births, the owner distinguishes the files of other users.
    #[test]
    fn a_file_of_another_owner_is_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("file")).unwrap();
        let before = Identity::of(&file).unwrap();
        if std::os::unix::fs::fchown(&file, Some(1000), None).is_err() {
            return testkit::skipped("only root changes owners");
        }
        let after = Identity::of(&file).unwrap();
        assert_eq!((before.inode, before.born), (after.inode, after.born));
        assert_ne!(before, after);
    }

    #[test]
    fn more_directories_than_are_kept_open_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let (mut directories, mut place) = Directories::above(&dir.path().join("dest")).unwrap();
        for _ in 0..3 * OPEN {
            let (index, _) = directories.make(place).unwrap();
            place = ConfinedPath { dir: Some(index), name: "d".into() };
        }
        assert!(directories.open.len() <= OPEN);
        for index in [0, 1, OPEN, 3 * OPEN - 1] {
            let open = directories.open(Some(index)).unwrap();
            assert_eq!(Identity::of(&*open).unwrap(), directories.made[index].1);
        }
    }
}

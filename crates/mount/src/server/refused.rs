//! The write-back that the server has refused: counts it, and logs each file that has lost data
//! once, with its path.
//!
//! A request names a file by its number, and the volume does not store the names of a file with it.
//! So this module searches all directories for the names when the files are to be logged or
//! reported, within limits of time and memory.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use fuser::Errno;
use parext4::server::ServerVolume as _;
use parext4::{FileType, InodeId, InodeNo, Volume};
use parext4_sync::Mutex;

use crate::report::{LostData, RefusedWriteBack};

/// Limit of files that are listed. Further files are only counted.
const MAX_FILES: usize = 256;
/// Limit of files that a report names.
const MAX_NAMED: usize = 8;
/// Longest path in a report, in characters.
const MAX_PATH: usize = 300;
/// Limits of a search for names: its time, and the number of directories.
const SEARCHES_FOR: Duration = Duration::from_secs(5);
const MAX_DIRS: usize = 100_000;

/// The write-back that was refused since the volume was mounted.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<RefusedRequests>);

#[derive(Debug, Default)]
struct RefusedRequests {
    requests: u64,
    bytes: u64,
    files: BTreeMap<InodeNo, LostFile>,
    /// True if a file is missing in `files`, because they are too many.
    has_more: bool,
}

#[derive(Clone, Debug)]
struct LostFile {
    generation: u32,
    errno: Errno,
    /// Path of the file. `None` until it is searched for, or if it was not found.
    path: Option<Vec<u8>>,
    is_logged: bool,
}

impl Refused {
    /// Counts a request to write back `len` bytes of a file, which has failed with `errno`.
    pub fn note(&self, file: InodeId, errno: Errno, len: usize) {
        let mut state = self.0.lock();
        state.requests += 1;
        state.bytes += len as u64;
        let new = LostFile { generation: file.generation, errno, path: None, is_logged: false };
        match state.files.get(&file.ino) {
            Some(known) if known.generation == file.generation => {}
            None if state.files.len() >= MAX_FILES => state.has_more = true,
            _ => drop(state.files.insert(file.ino, new)),
        }
    }

    /// Forgets the loss of a file, because a program has truncated the file to nothing, or has
    /// learnt of the loss.
    pub fn forget(&self, file: InodeId) {
        let mut state = self.0.lock();
        if state.files.get(&file.ino).is_some_and(|known| known.generation == file.generation) {
            state.files.remove(&file.ino);
        }
    }

    /// Logs the files that have lost data and are not logged yet. Blocks on the device.
    pub fn log(&self, volume: &Volume) {
        let mut new = HashSet::new();
        for (ino, file) in &mut self.0.lock().files {
            if !std::mem::replace(&mut file.is_logged, true) {
                new.insert(*ino);
            }
        }
        if new.is_empty() {
            return;
        }
        let mut paths = find_paths(volume, &new);
        let mut state = self.0.lock();
        for ino in new {
            let Some(file) = state.files.get_mut(&ino) else { continue };
            file.path = paths.remove(&ino);
            let lost = file.describe(ino);
            log::error!("data of {} that was to be written back is lost: {}", lost.file, lost.error);
        }
    }

    /// Returns the counts, and with `names` the first files. Omits files that were deleted since.
    pub fn report(&self, volume: &Volume, names: bool) -> RefusedWriteBack {
        let (requests, bytes, files, has_more) = {
            let state = self.0.lock();
            (state.requests, state.bytes, state.files.clone(), state.has_more)
        };
        let exists = |ino: InodeNo, generation: u32| match volume.inode_by_number(ino) {
            Ok(node) => node.id().generation == generation,
            Err(error) => !matches!(error, parext4::Error::NotFound(_)),
        };
        let left: Vec<_> = files.iter().filter(|(ino, file)| exists(**ino, file.generation)).collect();
        let first = left.iter().take(if names { MAX_NAMED } else { 0 });
        let first = first.map(|(ino, file)| file.describe(**ino)).collect();
        RefusedWriteBack { requests, bytes, files: left.len() as u64 + u64::from(has_more), first }
    }
}

impl LostFile {
    fn describe(&self, ino: InodeNo) -> LostData {
        let path = self.path.as_ref().map(|path| String::from_utf8_lossy(path).escape_debug().to_string());
        let file = path.map_or_else(|| format!("inode {ino}"), |path| path.chars().take(MAX_PATH).collect());
        let error = io::Error::from_raw_os_error(self.errno.code()).to_string();
        // The number that the standard library appends is removed.
        let error = error.split(" (os error").next().unwrap_or_default().to_lowercase();
        LostData { file, error }
    }
}

/// Searches all directories for names of the files. Leaves out files that are not found within the
/// limits.
fn find_paths(volume: &Volume, files: &HashSet<InodeNo>) -> BTreeMap<InodeNo, Vec<u8>> {
    let mut found = BTreeMap::new();
    let Ok(root) = volume.root() else { return found };
    let deadline = Instant::now() + SEARCHES_FOR;
    // For each directory, the index of its parent, its number, and its name. Parents come first,
    // because directories are added in the order in which they are listed.
    let mut dirs: Vec<(usize, InodeNo, Vec<u8>)> = vec![(0, root.ino(), Vec::new())];
    // A damaged volume may have loops.
    let mut seen = HashSet::from([root.ino()]);
    let mut next = 0;
    while next < dirs.len() && found.len() < files.len() && Instant::now() < deadline {
        let Ok(dir) = volume.inode_by_number(dirs[next].1) else {
            next += 1;
            continue;
        };
        let mut after = 0;
        while let Ok(batch) = dir.read_dir_after(after)
            && let Some(last) = batch.last()
            && last.cookie() > after
            && Instant::now() < deadline
        {
            after = last.cookie();
            for entry in batch.iter().filter(|entry| !matches!(entry.name(), b"." | b"..")) {
                if files.contains(&entry.ino()) {
                    found.entry(entry.ino()).or_insert_with(|| path_of(&dirs, next, entry.name()));
                }
                if entry.file_type() == FileType::Directory
                    && dirs.len() < MAX_DIRS
                    && seen.insert(entry.ino())
                {
                    dirs.push((next, entry.ino(), entry.name().to_vec()));
                }
            }
        }
        next += 1;
    }
    found
}

/// Returns the path of a name in the directory with the index `dir`.
fn path_of(dirs: &[(usize, InodeNo, Vec<u8>)], mut dir: usize, name: &[u8]) -> Vec<u8> {
    let mut names = vec![name];
    while dir != 0 {
        let (parent, _, name) = &dirs[dir];
        names.push(name);
        dir = *parent;
    }
    names.iter().rev().flat_map(|name| [b"/", *name].concat()).collect()
}

#[cfg(test)]
mod tests {
    use parext4::VolumeOptions;
    use testkit::volume::Shape;

    use super::*;

    #[test]
    fn files_that_have_lost_data_are_named_until_they_are_deleted_or_truncated() {
        let device = std::sync::Arc::new(Shape::new(8, 1024, true).make());
        let volume = Volume::open_device(device, &VolumeOptions::new()).unwrap();
        volume.create_dir_all("/dir/sub", 0o755).unwrap();
        let file = |path: &str| {
            volume.write(path, "text").unwrap();
            volume.resolve(path).unwrap().id()
        };
        let (one, two) = (file("/dir/sub/one\n"), file("/two"));
        let refused = Refused::default();
        for (file, len) in [(one, 4096), (two, 100), (one, 1)] {
            refused.note(file, Errno::ENOSPC, len);
        }
        refused.log(&volume);
        let report = refused.report(&volume, true);
        assert_eq!((report.requests, report.bytes, report.files), (3, 4197, 2));
        let named: Vec<_> = report.first.iter().map(|lost| (&lost.file[..], &lost.error[..])).collect();
        let full = "no space left on device";
        assert!(named.contains(&("/dir/sub/one\\n", full)) && named.contains(&("/two", full)), "{named:?}");
        assert!(refused.report(&volume, false).first.is_empty());
        volume.remove_file("/two").unwrap();
        assert_eq!(refused.report(&volume, true).files, 1);
        refused.forget(one);
        assert_eq!(refused.report(&volume, true).files, 0);
    }

    #[test]
    fn many_files_are_counted_in_bounded_memory() {
        let refused = Refused::default();
        for ino in 1..=1000 {
            refused.note(InodeId { ino: InodeNo(ino), generation: 0 }, Errno::EIO, 1);
        }
        let state = refused.0.lock();
        assert_eq!((state.requests, state.files.len(), state.has_more), (1000, MAX_FILES, true));
    }
}

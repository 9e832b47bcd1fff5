//! `get` into directories that another user swaps for symbolic links meanwhile: no file elsewhere
//! is made, changed or given away.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use testkit::command::{ScratchImage, run, text};

const DIRECTORIES: u32 = 12;
const FILES: u32 = 8;
/// Duration of the swaps; a copy in progress ends then.
const SWAPPING: Duration = Duration::from_secs(1);

/// Makes a tree with all kinds of files, which belong to another user.
fn tree(root: &Path) {
    for dir in 0..DIRECTORIES {
        let dir = root.join(format!("dir{dir}")).join("below");
        fs::create_dir_all(&dir).unwrap();
        for file in 0..FILES {
            fs::write(dir.join(format!("file{file}")), "from the image").unwrap();
            symlink("nowhere", dir.join(format!("link{file}"))).unwrap();
            fs::hard_link(dir.join(format!("file{file}")), dir.join(format!("other{file}"))).unwrap();
        }
        rustix::fs::mknodat(CWD, dir.join("fifo"), rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    }
}

/// What must not change: names, contents, owners, permissions and times below a directory.
fn state(dir: &Path) -> Vec<String> {
    let mut state = Vec::new();
    let mut paths = vec![dir.to_owned()];
    while let Some(path) = paths.pop() {
        let data = path.symlink_metadata().unwrap();
        let contents = if data.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
        let times = (data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec());
        state.push(format!(
            "{path:?} {:o} {} {} {times:?} {contents}",
            data.mode(),
            data.uid(),
            data.nlink()
        ));
        if data.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|item| item.unwrap().path()));
        }
    }
    state.sort();
    state
}

/// Swaps each of `names` for a symbolic link to what lies under the same name in `victim`, and
/// back, until the time is up.
fn swap(dest: &Path, victim: &Path, names: &[String], stop: &AtomicBool) -> u32 {
    let (link, mut swaps) = (dest.parent().unwrap().join("link"), 0);
    while !stop.load(Ordering::Relaxed) {
        for name in names {
            let _ = fs::remove_file(&link);
            symlink(victim.join(name), &link).unwrap();
            let exchange = || renameat_with(CWD, &link, CWD, dest.join(name), RenameFlags::EXCHANGE);
            if exchange().is_ok() {
                swaps += 1;
                std::thread::sleep(Duration::from_micros(300));
                // A copy that replaces what it finds has removed the link, and has not yet made the
                // file.
                let back = exchange();
                assert!(matches!(back, Ok(()) | Err(Errno::NOENT)), "{name}: {back:?}");
            }
        }
    }
    swaps
}

#[test]
fn no_swap_leads_a_copy_elsewhere() {
    let scratch = ScratchImage::new(&[]);
    let (source, victim, dest) = (scratch.path("source"), scratch.path("victim"), scratch.path("at/dest"));
    tree(&source);
    scratch.ok(&[
        "put",
        "-q",
        "--owner",
        "12345:12345",
        "--mode",
        "D777,F666",
        &text(&source),
        &scratch.inside("/tree"),
    ]);
    // The same names, so that a copy that follows a link finds its directories.
    tree(&victim);
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o700)).unwrap();
    fs::create_dir_all(&dest).unwrap();
    let before = state(&victim);
    let directories = (0..DIRECTORIES).map(|nr| format!("dir{nr}"));
    let below = (0..DIRECTORIES).map(|nr| format!("dir{nr}/below"));
    let files = (0..DIRECTORIES).flat_map(|dir| {
        ["file0", "file5", "link1", "fifo", "other2"].map(|name| format!("dir{dir}/below/{name}"))
    });
    for names in [directories.collect::<Vec<_>>(), below.collect(), files.collect()] {
        let (stop, copies) = (AtomicBool::new(false), AtomicU32::new(0));
        let swaps = std::thread::scope(|scope| {
            let swapping = scope.spawn(|| swap(&dest, &victim, &names, &stop));
            let end = Instant::now() + SWAPPING;
            while Instant::now() < end {
                // It succeeds, or says what was replaced.
                let copied = run(&["get", "-q", &scratch.inside("/tree/."), &text(&dest)]);
                assert!(copied.status.success() || !copied.stderr.is_empty());
                copies.fetch_add(1, Ordering::Relaxed);
            }
            stop.store(true, Ordering::Relaxed);
            swapping.join().unwrap()
        });
        assert_eq!(state(&victim), before, "{} copies, {swaps} swaps of {}", copies.into_inner(), names[0]);
        scratch.ok(&["get", "-q", &scratch.inside("/tree/."), &text(&dest)]);
    }
}

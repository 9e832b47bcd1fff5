//! Writers that keep the kernel's journal busy with names, sizes and blocks, and sync some of their
//! files.

use std::fs::{self, File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use fastrand::Rng;

/// Names of a kind that one writer cycles through; bounds the space it takes.
const NAMES: u32 = 200;
/// Synced files that one writer makes at most; the volume must have inodes for all of them.
const SYNCED: u64 = 1_000;

/// Changes files in `dir` until `stop`; adds each file that is synced, and not touched again, to
/// `synced`.
pub fn run(dir: &Path, seed: u64, stop: &AtomicBool, synced: &Mutex<Vec<PathBuf>>) {
    let mut rng = Rng::with_seed(seed);
    let _ = fs::create_dir(dir);
    for step in 0_u64.. {
        // Relaxed: the flag publishes nothing but itself.
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // Half of the calls name what does not exist (any more), and the volume may be full: both
        // belong here.
        let _ = change(dir, &mut rng);
        if step % 64 == 0
            && step / 64 < SYNCED
            && let Ok(path) = write_synced(dir, step)
        {
            synced.lock().expect("no writer panics").push(path);
        }
    }
}

fn change(dir: &Path, rng: &mut Rng) -> Result<()> {
    let mut name = |kind: &str| dir.join(format!("{kind}{}", rng.u32(..NAMES)));
    let (file, file2, sub) = (name("file"), name("file"), name("dir"));
    match rng.u32(..12) {
        0..3 => fs::write(&file, vec![rng.u8(..); rng.usize(..40_000)]),
        3 => append(&file, rng.usize(..9_000)),
        4 => OpenOptions::new().write(true).open(&file)?.set_len(rng.u64(..200_000)),
        5 => OpenOptions::new().write(true).open(&file)?.write_all_at(b"in a hole", rng.u64(..2_000_000)),
        6 => fs::remove_file(&file),
        7 => fs::rename(&file, sub.join("moved")).or_else(|_| fs::rename(&file, &file2)),
        8 => fs::create_dir(&sub),
        9 => fs::remove_dir_all(&sub),
        10 => symlink("target".repeat(rng.usize(1..60)), &file).or_else(|_| fs::hard_link(&file, &file2)),
        _ => fs::set_permissions(&file, fs::Permissions::from_mode(rng.u32(..0o1000))),
    }
}

fn append(path: &Path, len: usize) -> Result<()> {
    OpenOptions::new().append(true).create(true).open(path)?.write_all(&vec![b'a'; len])
}

/// Writes a file whose content follows from its name, and makes it and its name durable.
fn write_synced(dir: &Path, step: u64) -> Result<PathBuf> {
    let path = dir.join(format!("synced{step}"));
    let file = File::create(&path)?;
    (&file).write_all(&content(&path))?;
    file.sync_all()?;
    Ok(path)
}

/// Checks that a file which was synced is whole.
pub fn check(path: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(path).with_context(|| format!("the synced file {}", path.display()))?;
    ensure!(bytes == content(path), "the synced file {} is not whole", path.display());
    Ok(())
}

fn content(path: &Path) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sum: usize = name.bytes().map(usize::from).sum();
    name.repeat(1 + sum * 7 % 2_000).into_bytes()
}

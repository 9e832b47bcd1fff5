//! A tree with everything that a copy may get wrong, the same for the same seed.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fastrand::Rng;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, makedev, mknodat, utimensat};

use crate::interrupt;

/// How much of each kind a tree has.
pub struct Plan {
    /// Small files, among them empty and sparse ones, symlinks and hard links.
    pub files: usize,
    /// Large files, and their size in bytes.
    pub large: (usize, usize),
    /// The size of a file that is nearly all hole, in bytes.
    pub sparse: u64,
    /// Entries of one directory, enough for a hashed tree.
    pub large_dir: usize,
    /// Seed of every choice.
    pub seed: u64,
}

impl Plan {
    /// 20,000 files, 100 MB files, one directory of 6,000 entries.
    pub fn full(seed: u64) -> Plan {
        Plan { files: 20_000, large: (2, 100_000_000), sparse: 1 << 40, large_dir: 6_000, seed }
    }

    /// A small tree with some of everything.
    pub fn small(seed: u64) -> Plan {
        Plan { files: 800, large: (1, 9_000_001), sparse: 1 << 33, large_dir: 500, seed }
    }
}

/// Makes the tree `root`, which must not exist.
pub fn generate(root: &Path, plan: &Plan) -> Result<()> {
    let mut tree = Tree { rng: Rng::with_seed(plan.seed), dirs: vec![root.into()], files: Vec::new() };
    fs::create_dir(root)?;
    tree.deep_path(root)?;
    tree.large_files(root, plan)?;
    tree.special_files(root)?;
    tree.large_dir(root, plan.large_dir)?;
    for index in 0..plan.files.saturating_sub(plan.large_dir) {
        if index % 256 == 0 {
            interrupt::check()?;
        }
        tree.one(index).with_context(|| format!("making file {index} of the tree"))?;
    }
    tree.finish_dirs()
}

struct Tree {
    rng: Rng,
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Tree {
    /// A path of nearly 3,000 bytes.
    fn deep_path(&mut self, root: &Path) -> Result<()> {
        let mut dir = root.join("deep");
        fs::create_dir(&dir)?;
        self.dirs.push(dir.clone());
        for level in 0..24 {
            dir.push(format!("{level:-<110}"));
            fs::create_dir(&dir)?;
            self.dirs.push(dir.clone());
        }
        fs::write(dir.join("bottom"), "the end of a deep path")?;
        Ok(())
    }

    fn large_files(&mut self, root: &Path, plan: &Plan) -> Result<()> {
        let (count, size) = plan.large;
        for index in 0..count {
            let file = File::create(root.join(format!("large{index}")))?;
            let mut bytes = vec![0; 1 << 20];
            let mut left = size;
            while left > 0 {
                interrupt::check()?;
                self.rng.fill(&mut bytes);
                let len = left.min(bytes.len());
                (&file).write_all(&bytes[..len])?;
                left -= len;
            }
        }
        let sparse = File::create(root.join("sparse"))?;
        for part in 0..8 {
            sparse.write_all_at(b"an island in a hole", plan.sparse / 8 * part + 12_345)?;
        }
        sparse.set_len(plan.sparse + 777)?;
        File::create(root.join("all-hole"))?.set_len(50_000_001)?;
        Ok(())
    }

    fn special_files(&mut self, root: &Path) -> Result<()> {
        let mode = Mode::from_raw_mode(0o640);
        mknodat(CWD, root.join("fifo"), FileType::Fifo, mode, 0)?;
        mknodat(CWD, root.join("char"), FileType::CharacterDevice, mode, makedev(1, 3))?;
        // Needs the new encoding of device numbers.
        mknodat(CWD, root.join("block"), FileType::BlockDevice, mode, makedev(300, 70_000))?;
        for len in [1, 59, 60, 61, 500, 1_000] {
            symlink("t".repeat(len), root.join(format!("symlink{len}")))?;
        }
        for (index, seconds) in
            [0, 1, -1, i64::from(i32::MIN), 1 << 31, 1 << 32, 15_032_385_535].iter().enumerate()
        {
            let path = root.join(format!("time{index}"));
            fs::write(&path, "a time to keep")?;
            set_modified(&path, *seconds, 999_999_999)?;
        }
        fs::create_dir(root.join("empty"))?;
        self.dirs.push(root.join("empty"));
        Ok(())
    }

    /// A directory of many entries with long names.
    fn large_dir(&mut self, root: &Path, count: usize) -> Result<()> {
        let dir = root.join("large_dir");
        fs::create_dir(&dir)?;
        for index in 0..count {
            let len = self.rng.usize(20..200);
            let name = format!("{index:-<len$}");
            self.files.push(dir.join(&name));
            File::create(dir.join(name))?;
        }
        self.dirs.push(dir);
        Ok(())
    }

    /// One entry of a random kind at a random place.
    fn one(&mut self, index: usize) -> Result<()> {
        let dir = &self.dirs[self.rng.usize(..self.dirs.len())];
        let mut path = dir.join(format!("n{index}"));
        match self.rng.u32(..100) {
            0..4 if dir.as_os_str().len() < 2_500 => {
                fs::create_dir(&path)?;
                self.dirs.push(path);
                return Ok(());
            }
            0..8 => symlink("x".repeat(self.rng.usize(1..200)), &path)?,
            8..14 => return Ok(fs::hard_link(self.pick_file()?, &path)?),
            14..20 => path = self.sparse_file(dir.join(format!("s{index}")))?,
            20..30 => drop(File::create(&path)?),
            30..34 => {
                path = dir.join(format!("{index:->255}"));
                fs::write(&path, "long name")?;
            }
            _ => {
                let most = self.small_size();
                let mut bytes = vec![0; self.rng.usize(1..most)];
                self.rng.fill(&mut bytes);
                fs::write(&path, bytes)?;
            }
        }
        self.set_attributes(&path)?;
        self.files.push(path);
        Ok(())
    }

    /// Mostly below a block, sometimes some dozen blocks.
    fn small_size(&mut self) -> usize {
        if self.rng.u32(..10) == 0 { 60_000 } else { 5_000 }
    }

    fn pick_file(&mut self) -> Result<&Path> {
        let index = self.rng.usize(..self.files.len());
        Ok(&self.files[index])
    }

    fn sparse_file(&mut self, path: PathBuf) -> Result<PathBuf> {
        let file = File::create(&path)?;
        for _ in 0..self.rng.usize(1..6) {
            file.write_all_at(path.as_os_str().as_bytes(), self.rng.u64(..4_000_000))?;
        }
        Ok(path)
    }

    /// Sets a random owner, mode and time.
    fn set_attributes(&mut self, path: &Path) -> Result<()> {
        lchown(path, Some(self.rng.u32(..200_000)), Some(self.rng.u32(..200_000)))?;
        if !path.is_symlink() {
            fs::set_permissions(path, fs::Permissions::from_mode(self.rng.u32(..0o10000)))?;
        }
        set_modified(path, self.rng.i64(0..4_000_000_000), self.rng.i64(0..1_000_000_000))
    }

    /// Directories last: each entry made in one changes its time.
    fn finish_dirs(&mut self) -> Result<()> {
        for dir in std::mem::take(&mut self.dirs).iter().rev() {
            self.set_attributes(dir)?;
        }
        Ok(())
    }
}

fn set_modified(path: &Path, seconds: i64, nanoseconds: i64) -> Result<()> {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

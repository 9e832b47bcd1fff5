//! Images with fast commits that the kernel wrote: parext4 recovers the tree as it was when the
//! kernel wrote the last of them.
//!
//! After a sync of every file, the fast commits hold all changes. So the live tree is the
//! reference: the replays of the kernel and of e2fsck 1.47 reject or lose some of these.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::command::cmd;
use crate::image;
use crate::kernel_mount::Mount;
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::{TestBed, inside, remove};
use crate::tree::manifest::Manifest;

const IMAGE_SIZE: u64 = 48 << 20;

const SETS: &[&str] = &[
    "-b 1024 -O fast_commit",
    "-b 4096 -O fast_commit,^metadata_csum,orphan_file",
    "-b 2048 -I 128 -O fast_commit,^64bit,^orphan_file",
    "-b 1024 -O fast_commit,inline_data",
    "-b 4096 -I 512 -O fast_commit,inline_data,encrypt,orphan_file",
    "-b 1024 -O fast_commit,^extent,^64bit",
];

/// Runs the campaign.
pub fn run(bed: &TestBed, scope: Scope, rng: &mut Rng, report: &mut Report) {
    for set in scope.first(SETS) {
        report.case(set, || {
            let fast: u32 = (0..scope.pick(2, 40)).map(|_| one_crash(bed, set, rng)).sum::<Result<u32>>()?;
            ensure!(fast > 0, "the kernel made no fast commit");
            Ok(())
        });
    }
}

/// Changes a volume of the kernel, and recovers a copy of it. Returns 1 if it had fast commits.
fn one_crash(bed: &TestBed, set: &str, rng: &mut Rng) -> Result<u32> {
    let seed = rng.u64(..);
    let (image, crashed, copy) = (bed.path("fast"), bed.path("crashed"), bed.path("recovered"));
    image::mke2fs(&image, IMAGE_SIZE, set)?;
    let mount = Mount::new(&image, &bed.path("inner"), "rw,noatime,commit=600")?;
    let mut tree = Tree::new(mount.dir(), seed, set.contains("inline_data"));
    tree.change(40);
    rustix::fs::sync();
    // The kernel makes a fast commit only after a full one.
    tree.sync_all()?;
    let at = SystemTime::now();
    for _ in 0..tree.rng.u32(1..5) {
        let most = [4, 12, 80][tree.rng.usize(..3)];
        let changes = tree.rng.u32(1..most);
        tree.change(changes);
        tree.sync_all()?;
    }
    image::copy(&image, &crashed)?;
    let mut live = Manifest::read(mount.dir())?;
    live.forget_times_after(at)?;
    // Fast commits do not log the attributes of directories.
    live.forget_times_of_dirs();
    drop(tree);
    mount.unmount()?;

    let recovered = || -> Result<()> {
        let compare = |found: Result<Manifest>, what: &'static str| -> Result<()> {
            let mut found = found.context(what)?;
            found.forget_times_after(at)?;
            found.forget_times_of_dirs();
            match live.compare(&found) {
                // The kernel logs contents that a write moves out of an inode as a block of
                // metadata, and does not revoke the block when it is freed. If a fast commit then
                // logs it as data of another file, any replay overwrites that file.
                Err(_) if set.contains("inline_data") => {
                    let mut wanted = recovered_by_e2fsck(bed, &crashed)?;
                    wanted.forget_times_after(at)?;
                    wanted.forget_times_of_dirs();
                    wanted
                        .compare(&found)
                        .with_context(|| format!("recovered by e2fsck (wanted), and {what} (found)"))
                }
                compared => compared.with_context(|| format!("live (wanted), and {what} (found)")),
            }
        };
        image::copy(&crashed, &copy)?;
        bed.parext4("recover").arg(&copy).run()?;
        image::check(&copy).context("after recovery")?;
        let mount = Mount::new(&copy, &bed.path("mount"), "rw")?;
        compare(Manifest::read(mount.dir()), "recovered")?;
        mount.unmount()?;

        image::copy(&crashed, &copy)?;
        let got = bed.path("got");
        bed.parext4("get --quiet").arg(inside(&copy, "/")).arg(&got).run()?;
        compare(Manifest::read(&got), "read")?;
        remove(&got)?;
        cmd("cmp").arg(&crashed).arg(&copy).run().context("a reader changed the image")?;

        bed.parext4("mkdir").arg(inside(&copy, "/opened-for-writing")).run()?;
        image::check(&copy).context("after opening for writing")
    };
    let fast = u32::from(has_fast_commits(&crashed)?);
    recovered().with_context(|| format!("seed {seed}"))?;
    [&image, &crashed, &copy].into_iter().try_for_each(|image| remove(image))?;
    Ok(fast)
}

/// Returns what a volume holds after e2fsck has replayed its log.
fn recovered_by_e2fsck(bed: &TestBed, crashed: &Path) -> Result<Manifest> {
    let image = bed.path("recovered-e2fsck");
    image::copy(crashed, &image)?;
    image::e2fsck_replay(&image, None)?;
    let mount = Mount::new(&image, &bed.path("mount-e2fsck"), "ro")?;
    let found = Manifest::read(mount.dir())?;
    mount.unmount()?;
    remove(&image)?;
    Ok(found)
}

/// Returns true if the log has a complete fast commit: a recovery by parext4 replays a transaction
/// more than the log has.
fn has_fast_commits(image: &Path) -> Result<bool> {
    let text = cmd("debugfs").args("-R").arg("logdump -S").arg(image).run()?;
    Ok(text.contains("Fast Commit") || text.lines().any(|line| line.contains("tag ")))
}

/// The files and directories of a mounted volume.
struct Tree {
    rng: Rng,
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// Open files without a name.
    unnamed: Vec<File>,
    next: u32,
    /// Contents may lie in inodes. The kernel does not log them in a fast commit when fallocate(2)
    /// moves them out, and writes bytes that a truncation has removed when a write moves them out.
    /// So there is neither.
    inline: bool,
}

impl Tree {
    fn new(root: &Path, seed: u64, inline: bool) -> Self {
        let rng = Rng::with_seed(seed);
        Self { rng, dirs: vec![root.into()], files: Vec::new(), unnamed: Vec::new(), next: 0, inline }
    }

    /// Makes changes. Some are impossible and have no effect.
    fn change(&mut self, changes: u32) {
        for _ in 0..changes {
            let _ = self.change_once();
            self.files.retain(|path| path.is_file());
        }
    }

    fn change_once(&mut self) -> io::Result<()> {
        let (new, file) = (self.new_name(), self.file());
        match (self.rng.u32(..16), file) {
            (0..4, _) => {
                fs::write(&new, vec![self.rng.u8(1..); [0, 10, 120, 5_000, 90_000][self.rng.usize(..5)]])?;
                self.files.push(new);
            }
            (4, _) => {
                fs::create_dir(&new)?;
                self.dirs.push(new);
            }
            (5, _) if self.dirs.len() > 1 => {
                let at = self.rng.usize(1..self.dirs.len());
                fs::remove_dir(&self.dirs[at])?;
                self.dirs.remove(at);
            }
            (6, Some(file)) => fs::remove_file(file)?,
            (7, Some(file)) => {
                self.unnamed.push(OpenOptions::new().write(true).open(&file)?);
                fs::remove_file(file)?;
            }
            (8, Some(file)) => {
                fs::hard_link(file, &new)?;
                self.files.push(new);
            }
            (9, Some(file)) => {
                let to = self.file().filter(|_| self.rng.bool()).unwrap_or(new);
                fs::rename(file, &to)?;
                self.files.push(to);
            }
            (10, Some(file)) => {
                let len = [0, 100, 4096, 50_000, 200_000][self.rng.usize(..5)];
                let len = if self.inline && len == 100 { 0 } else { len };
                OpenOptions::new().write(true).open(file)?.set_len(len)?;
            }
            (11 | 12, Some(file)) => {
                let bytes = vec![self.rng.u8(1..); [10, 9_000, 70_000][self.rng.usize(..3)]];
                OpenOptions::new().write(true).open(file)?.write_all_at(&bytes, self.rng.u64(..200_000))?;
            }
            (13, Some(file)) if !self.inline => {
                let mode = ["--keep-size", "--punch-hole", "--zero-range"][self.rng.usize(..3)];
                let (offset, length) = (self.rng.u32(..100_000), self.rng.u32(1..100_000));
                let range =
                    ["--offset", &offset.to_string(), "--length", &length.to_string()].map(String::from);
                Command::new("fallocate").arg(mode).args(range).arg(file).output()?;
            }
            (14, Some(file)) => {
                fs::set_permissions(file, fs::Permissions::from_mode(self.rng.u32(..0o1000)))?;
            }
            (_, Some(file)) => chown(file, Some(self.rng.u32(..9)), Some(self.rng.u32(..70_000)))?,
            _ => {}
        }
        if self.rng.u32(..6) == 0 {
            self.unnamed.pop();
        }
        Ok(())
    }

    fn new_name(&mut self) -> PathBuf {
        self.next += 1;
        let dir = &self.dirs[self.rng.usize(..self.dirs.len())];
        dir.join(format!("name{}{}", self.next, "x".repeat([0, 0, 40, 200][self.rng.usize(..4)])))
    }

    fn file(&mut self) -> Option<PathBuf> {
        let at = self.rng.usize(..self.files.len().max(1));
        self.files.get(at).cloned()
    }

    /// Makes all files durable, and a last change that reveals all names.
    fn sync_all(&mut self) -> io::Result<()> {
        for file in &self.files {
            File::open(file)?.sync_all()?;
        }
        let last = self.dirs[0].join("last");
        let file = OpenOptions::new().append(true).create(true).open(last)?;
        file.write_all_at(b"more", u64::from(self.next))?;
        file.sync_all()
    }
}

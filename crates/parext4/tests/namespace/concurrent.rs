//! Many threads in one directory and in several.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Error, Image, names, new, on_each_kind};
use parext4::{InodeRef, RenameMode};

const THREADS: u32 = 8;

/// A small random number generator, the same for the same seed (xorshift).
pub struct Random(u64);

impl Random {
    /// `seed` is not 0.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn a_listing_is_complete_while_threads_insert_and_remove() {
    on_each_kind(32, |volume| {
        let dir = volume.create_dir("/dir", 0o755).unwrap();
        let first = dir.create(b"stays-0", &new()).unwrap();
        for n in 1..150 {
            dir.link(format!("stays-{n}").as_bytes(), &first).unwrap();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..600 {
                    dir.link(format!("comes-{n}-{:0>90}", 0).as_bytes(), &first).unwrap();
                    if n % 3 == 0 {
                        dir.unlink(format!("comes-{n}-{:0>90}", 0).as_bytes()).unwrap();
                    }
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                let all = names(&dir);
                assert_eq!(all.iter().filter(|name| name.starts_with(b"stays")).count(), 150);
                assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "no name twice");
            }
        });
    });
}

#[test]
fn threads_in_one_directory() {
    on_each_kind(32, |volume| {
        let dir = volume.create_dir("/dir", 0o755).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let dir = &dir;
                scope.spawn(move || {
                    for n in 0..40 {
                        let name = |what: &str| format!("{what}-{thread}-{n}").into_bytes();
                        dir.create(&name("a"), &new()).unwrap();
                        dir.rename(&name("a"), dir, &name("b"), RenameMode::Replace).unwrap();
                        if n % 2 == 0 {
                            dir.unlink(&name("b")).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(names(&dir).len() as u32, THREADS * 20);
    });
}

/// Random operations on few names in few directories, which themselves move: nothing may deadlock,
/// and only the errors of a lost race may be returned.
fn hammer(dirs: &[InodeRef], seed: u64, rounds: u32) {
    let mut random = Random::new(seed);
    for _ in 0..rounds {
        let mut dir = || &dirs[usize::try_from(random.below(dirs.len() as u64)).unwrap()];
        let (from, to) = (dir(), dir());
        let [old, other] = [random.below(6), random.below(6)].map(|n| format!("n{n}").into_bytes());
        let result = match random.below(8) {
            0 => from.create(&old, &new()).map(drop),
            1 => from.mkdir(&old, &new()).map(drop),
            2 => from.unlink(&old),
            3 => from.rmdir(&old),
            4 => from.lookup(&old).and_then(|node| to.link(&other, &node)),
            5 => from.rename(&old, to, &other, RenameMode::NoReplace),
            6 => from.rename(&old, to, &other, RenameMode::Exchange),
            _ => from.rename(&old, to, &other, RenameMode::Replace),
        };
        match result {
            Ok(())
            | Err(
                Error::NotFound(_)
                | Error::Exists(_)
                | Error::IsDirectory(_)
                | Error::NotDirectory(_)
                | Error::NotEmpty(_)
                | Error::NotPermitted(_)
                | Error::Invalid(_),
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn threads_in_directories_that_move() {
    for options in [&["-b", "1024"][..], &["-b", "4096", "-O", "orphan_file"]] {
        let Some(image) = Image::mke2fs(32, options) else { return };
        let volume = image.open();
        let root = volume.root().unwrap();
        let mut dirs = vec![root.mkdir(b"d", &new()).unwrap()];
        // Names that the threads use too, so that these directories are moved and removed.
        for n in 0..4 {
            let parent = dirs[n / 2].clone();
            dirs.push(parent.mkdir(format!("n{n}").as_bytes(), &new()).unwrap());
        }
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let dirs = &dirs;
                scope.spawn(move || hammer(dirs, 0x9e37_79b9 + u64::from(thread) * 7919, 1500));
            }
        });
        drop((dirs, root));
        volume.close().unwrap();
        image.fsck();
    }
}

#[test]
fn opposite_moves_of_directories_make_no_cycle() {
    let Some(image) = Image::mke2fs(32, &["-b", "1024"]) else { return };
    let volume = image.open();
    let root = volume.root().unwrap();
    let [a, b] = [&b"a"[..], b"b"].map(|name| root.mkdir(name, &new()).unwrap());
    for _ in 0..200 {
        std::thread::scope(|scope| {
            scope.spawn(|| root.rename(b"a", &b, b"a", RenameMode::Replace));
            scope.spawn(|| root.rename(b"b", &a, b"b", RenameMode::Replace));
        });
        // One of the renames won, and the other would have made a cycle.
        let inside = a.rename(b"b", &root, b"b", RenameMode::Replace);
        let other = b.rename(b"a", &root, b"a", RenameMode::Replace);
        assert!(inside.is_ok() != other.is_ok(), "{inside:?} {other:?}");
    }
    drop((a, b, root));
    volume.close().unwrap();
    image.fsck();
}

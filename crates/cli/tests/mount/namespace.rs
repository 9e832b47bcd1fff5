//! Random operations on names and attributes, on a mount and on the kernel's ext4. They must return
//! the same errors and leave the same tree. One thread runs them, or eight, each in its own tree.
//! `PAREXT4_NAMES_OPS` sets the number of operations of each of the eight.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags,
    lgetxattr, llistxattr, lremovexattr, lsetxattr, makedev, mknodat, open, renameat_with, utimensat,
};
use testkit::rng::Rng;
use testkit::settings;

use testkit::fuse_mount::FuseMount;
use testkit::kernel_mount::KernelMount;

/// An operation below a root.
#[derive(Clone, Debug)]
enum Op {
    Create { path: String, mode: u32 },
    Mkdir { path: String, mode: u32 },
    Mknod { path: String, kind: u64 },
    Symlink { path: String, target: String },
    Link { path: String, to: String },
    Unlink { path: String },
    Rmdir { path: String },
    Rename { path: String, to: String, flags: RenameFlags },
    Chmod { path: String, mode: u32 },
    Chown { path: String, owner: u32, follow: bool },
    SetTimes { path: String, atime: i64, mtime: i64 },
    Truncate { path: String, size: u64 },
    Write { path: String, offset: u64, byte: u8, len: usize },
    SetXattr { path: String, name: &'static str, len: usize, flags: XattrFlags },
    RemoveXattr { path: String, name: &'static str },
    Hold { path: String },
    LetGo,
}

const XATTRS: [&str; 5] = ["user.a", "user.long", "trusted.t", "security.s", "strange.x"];

impl Op {
    fn random(rng: &mut Rng) -> Self {
        let path = random_path(rng);
        let pick = |rng: &mut Rng| usize::try_from(rng.below(XATTRS.len() as u64)).unwrap();
        match rng.below(24) {
            0..3 => {
                Self::Create { path, mode: [0o644, 0o6755, 0o600][usize::try_from(rng.below(3)).unwrap()] }
            }
            3..5 => {
                Self::Mkdir { path, mode: [0o755, 0o2775, 0o1777][usize::try_from(rng.below(3)).unwrap()] }
            }
            5 => Self::Mknod { path, kind: rng.below(4) },
            6 => Self::Symlink { path, target: "x".repeat(usize::try_from(1 + rng.below(200)).unwrap()) },
            7 => Self::Link { path, to: random_path(rng) },
            8..10 => Self::Unlink { path },
            10 => Self::Rmdir { path },
            11..14 => {
                let flags = [
                    RenameFlags::empty(),
                    RenameFlags::NOREPLACE,
                    RenameFlags::EXCHANGE,
                    RenameFlags::WHITEOUT,
                    RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
                ];
                Self::Rename {
                    path,
                    to: random_path(rng),
                    flags: flags[usize::try_from(rng.below(5)).unwrap()],
                }
            }
            14 => Self::Chmod { path, mode: u32::try_from(rng.below(0o10000)).unwrap() },
            15 => {
                Self::Chown { path, owner: u32::try_from(rng.below(3)).unwrap(), follow: rng.below(2) == 0 }
            }
            16 => {
                let mut time = || i64::try_from(rng.below(1 << 34)).unwrap() - (1 << 31);
                Self::SetTimes { path, atime: time(), mtime: time() }
            }
            17 => Self::Truncate { path, size: rng.below(20_000) },
            18..20 => {
                let (offset, len) = (rng.below(20_000), usize::try_from(1 + rng.below(9000)).unwrap());
                Self::Write { path, offset, byte: u8::try_from(1 + rng.below(255)).unwrap(), len }
            }
            20 => {
                let flags = [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE];
                let flags = flags[usize::try_from(rng.below(3)).unwrap()];
                Self::SetXattr {
                    path,
                    name: XATTRS[pick(rng)],
                    len: usize::try_from(rng.below(500)).unwrap(),
                    flags,
                }
            }
            21 => Self::RemoveXattr { path, name: XATTRS[pick(rng)] },
            22 => Self::Hold { path },
            _ => Self::LetGo,
        }
    }
}

/// Returns one of few paths, so that operations collide.
fn random_path(rng: &mut Rng) -> String {
    let depth = 1 + rng.below(3);
    let name = |rng: &mut Rng| match rng.below(40) {
        0 => "n".repeat(255),
        1 => "n".repeat(256),
        other => format!("n{}", other % 6),
    };
    (0..depth).map(|_| name(rng)).collect::<Vec<_>>().join("/")
}

/// A root, and open files below it.
struct Side {
    root: PathBuf,
    held: Vec<File>,
}

impl Side {
    fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), held: Vec::new() }
    }

    /// Runs an operation and returns its error number.
    fn run(&mut self, op: &Op) -> Result<(), i32> {
        self.try_run(op).map_err(|error| error.raw_os_error().unwrap_or(-1))
    }

    fn try_run(&mut self, op: &Op) -> std::io::Result<()> {
        let at = |path: &str| self.root.join(path);
        match op {
            Op::Create { path, mode } => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                drop(open(at(path), flags, Mode::from_raw_mode(*mode))?);
            }
            Op::Mkdir { path, mode } => rustix::fs::mkdir(at(path), Mode::from_raw_mode(*mode))?,
            Op::Mknod { path, kind } => {
                let mode = Mode::from_raw_mode(0o640);
                let (kind, device) = match kind {
                    0 => (FileType::Fifo, 0),
                    1 => (FileType::Socket, 0),
                    2 => (FileType::CharacterDevice, makedev(1, 3)),
                    _ => (FileType::BlockDevice, makedev(259, 70_000)),
                };
                mknodat(CWD, at(path), kind, mode, device)?;
            }
            Op::Symlink { path, target } => symlink(target, at(path))?,
            Op::Link { path, to } => std::fs::hard_link(at(path), at(to))?,
            Op::Unlink { path } => rustix::fs::unlink(at(path))?,
            Op::Rmdir { path } => rustix::fs::rmdir(at(path))?,
            Op::Rename { path, to, flags } => {
                let outcome = renameat_with(CWD, at(path), CWD, at(to), *flags);
                // The kernel's ext4 enters the whiteout before it finds that the target is not
                // empty, and takes it back. So it sets the directory's time, unlike here.
                if outcome == Err(rustix::io::Errno::NOTEMPTY) && flags.contains(RenameFlags::WHITEOUT) {
                    set_to_now(at(path).parent().expect("below the root"))?;
                }
                outcome?;
            }
            Op::Chmod { path, mode } => std::fs::set_permissions(at(path), Permissions::from_mode(*mode))?,
            Op::Chown { path, owner, follow: true } => chown(at(path), Some(*owner), Some(owner + 1))?,
            Op::Chown { path, owner, .. } => lchown(at(path), None, Some(*owner))?,
            Op::SetTimes { path, atime, mtime } => {
                let time = |seconds: i64| Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
                let times = Timestamps { last_access: time(*atime), last_modification: time(*mtime) };
                utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Op::Truncate { path, size } => self.open(path, OFlags::WRONLY)?.set_len(*size)?,
            Op::Write { path, offset, byte, len } => {
                self.open(path, OFlags::WRONLY)?.write_all_at(&vec![*byte; *len], *offset)?;
            }
            Op::SetXattr { path, name, len, flags } => lsetxattr(at(path), *name, &vec![7; *len], *flags)?,
            Op::RemoveXattr { path, name } => lremovexattr(at(path), *name)?,
            Op::Hold { path } => {
                let file = self.open(path, OFlags::RDWR)?;
                self.held.push(file);
            }
            Op::LetGo => drop(std::mem::take(&mut self.held)),
        }
        Ok(())
    }

    /// Opens a file, without blocking on the other end of a pipe.
    fn open(&self, path: &str, flags: OFlags) -> std::io::Result<File> {
        Ok(open(self.root.join(path), flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// Returns a description of the tree and of the open files, by path.
    fn look(&self) -> BTreeMap<String, String> {
        let mut seen = BTreeMap::new();
        look_below(&self.root, "", &mut seen);
        for (nth, file) in self.held.iter().enumerate() {
            let metadata = file.metadata().unwrap();
            let mut bytes = vec![0; usize::try_from(metadata.len()).unwrap()];
            if metadata.is_file() {
                file.read_exact_at(&mut bytes, 0).unwrap();
            }
            seen.insert(format!("held {nth}"), format!("{} links, {:x}", metadata.nlink(), sum(&bytes)));
        }
        seen
    }
}

fn set_to_now(path: &Path) -> rustix::io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn look_below(dir: &Path, prefix: &str, seen: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}/{}", entry.file_name().to_string_lossy());
        let metadata = std::fs::symlink_metadata(entry.path()).unwrap();
        assert_eq!(entry.file_type().unwrap(), metadata.file_type(), "{path}");
        if metadata.is_dir() {
            look_below(&entry.path(), &path, seen);
        }
        let contents = match metadata.file_type() {
            kind if kind.is_file() => format!("{:x}", sum(&std::fs::read(entry.path()).unwrap())),
            kind if kind.is_symlink() => format!("{:?}", std::fs::read_link(entry.path()).unwrap()),
            _ => String::new(),
        };
        let size = if metadata.is_dir() { 0 } else { metadata.len() };
        // Only times that were set: the rest depend on when the operation ran.
        let set = |seconds: i64, part: i64| if part == 123_456_789 { seconds } else { 0 };
        let text = format!(
            "{:o} {} {}:{} {size} {:x} {contents} {} {:?}",
            metadata.mode(),
            metadata.nlink(),
            metadata.uid(),
            metadata.gid(),
            metadata.rdev(),
            set(metadata.mtime(), metadata.mtime_nsec()),
            xattrs(&entry.path()),
        );
        seen.insert(path, text);
    }
}

fn sum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

fn xattrs(path: &Path) -> BTreeMap<String, usize> {
    let mut names = vec![0_u8; 4096];
    let len = llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| String::from_utf8(name.to_vec()).unwrap())
        .map(|name| {
            let mut value = vec![0_u8; 4096];
            let len = lgetxattr(path, &name, &mut value[..]).unwrap();
            (name, len)
        })
        .collect()
}

/// Asserts that both trees are the same.
fn same(ours: &Side, theirs: &Side, when: &str) {
    let (ours, theirs) = (ours.look(), theirs.look());
    for path in ours.keys().chain(theirs.keys()) {
        assert_eq!(ours.get(path), theirs.get(path), "{path}: {when}");
    }
}

fn same_as_the_kernel(block_size: &str, options: &str, seed: u64) {
    let Some(fuse) = FuseMount::mounted(&["--block-size", block_size], options) else { return };
    let Some(kernel) = KernelMount::mounted(&["-b", block_size], "noatime,nodev,nosuid") else { return };
    let mut rng = Rng::new(seed, 0);
    let (mut ours, mut theirs) = (Side::new(fuse.dir()), Side::new(&kernel.path()));
    for nth in 0..4000 {
        let op = Op::random(&mut rng);
        let (got, expected) = (ours.run(&op), theirs.run(&op));
        assert_eq!(got, expected, "{options}, seed {seed}, operation {nth}: {op:?}");
        if nth % 200 == 199 {
            same(&ours, &theirs, &format!("{options}, seed {seed}, after operation {nth}"));
        }
    }
    drop(ours.held);
    fuse.umount();
    fuse.scratch().fsck();
    fuse.mount(options);
    same(&Side::new(fuse.dir()), &Side::new(&kernel.path()), &format!("{options}, mounted again"));
    fuse.finish();
}

#[test]
fn operations_have_the_same_results_as_with_the_kernel() {
    same_as_the_kernel("4096", "cache=kernel", 1);
    same_as_the_kernel("1024", "cache=direct,threads=2", 2);
}

/// Number of concurrent threads.
const THREADS: u64 = 8;

/// Runs the operations of each thread below its own directory. Returns the error numbers by thread,
/// and the tree.
fn in_parallel(root: &Path, seed: u64) -> (Vec<Vec<Result<(), i32>>>, Vec<Side>) {
    let ops = settings::names_ops();
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            let dir = root.join(format!("tree{thread}"));
            std::fs::create_dir(&dir).unwrap();
            scope.spawn(move || {
                let (mut side, mut rng) = (Side::new(&dir), Rng::new(seed, thread));
                let outcomes = (0..ops).map(|_| side.run(&Op::random(&mut rng))).collect();
                (outcomes, side)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).unzip()
    })
}

fn trees_of_many_threads(block_size: &str, options: &str, seed: u64) {
    let Some(fuse) = FuseMount::mounted(&["--block-size", block_size], options) else { return };
    let Some(kernel) = KernelMount::mounted(&["-b", block_size], "noatime,nodev,nosuid") else { return };
    let (expected, theirs) = in_parallel(&kernel.path(), seed);
    let (got, ours) = in_parallel(fuse.dir(), seed);
    let when = format!("{options}, blocks of {block_size}, seed {seed}");
    for (thread, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let differs = got.iter().zip(expected).position(|(got, expected)| got != expected);
        if let Some(nth) = differs {
            let mut rng = Rng::new(seed, thread as u64);
            let op = (0..=nth).map(|_| Op::random(&mut rng)).last();
            panic!(
                "{when}, thread {thread}, operation {nth}, {op:?}: {:?}, not {:?}",
                got[nth], expected[nth]
            );
        }
    }
    for (ours, theirs) in ours.iter().zip(&theirs) {
        same(ours, theirs, &when);
    }
    drop((ours, theirs));
    fuse.umount();
    fuse.scratch().fsck();
    fuse.mount(options);
    same(&Side::new(fuse.dir()), &Side::new(&kernel.path()), &format!("{when}, mounted again"));
    fuse.finish();
}

#[test]
fn trees_of_many_threads_are_the_same_as_with_the_kernel() {
    let seed = settings::seed("trees_of_many_threads_are_the_same_as_with_the_kernel");
    for (block_size, options, stream) in
        [("4096", "cache=kernel", 0), ("1024", "cache=direct", 1), ("2048", "cache=writeback,threads=1", 2)]
    {
        trees_of_many_threads(block_size, options, seed.wrapping_add(stream));
    }
}

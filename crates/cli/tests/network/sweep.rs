//! The fault sweep through commands and a mount: the server refuses each request in turn.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use parext4::device::FaultKind;
use parext4::{MemDevice, Volume};
use testkit::command::{run, text};
use testkit::fault_sweep::{Devices, Family, FaultPoint, Manner, Resource, sweep_requests, sweep_shortages};
use testkit::fuse_mount::{errors, umount};
use testkit::nbd::{FakeServer, Kind, Offer, Reply};
use testkit::volume::{DirectFiles as _, Shape, assert_no_findings, recover, untimed};

use crate::node::Node;

const MIB: u64 = 8;
/// The number of EIO in the protocol.
const EIO: u32 = 5;
/// The files that are put, and their sizes.
const FILES: [(&str, usize); 4] =
    [("small", 100), ("dir/large", 300_000), ("dir/empty", 0), ("dir/other", 5000)];

const FAMILIES: [Family; 7] = [
    Family::new(FaultKind::Reads, Manner::Once, 3),
    Family::new(FaultKind::Reads, Manner::Sticky, 1),
    Family::new(FaultKind::Writes, Manner::Once, 3),
    Family::new(FaultKind::Writes, Manner::Sticky, 1),
    Family::new(FaultKind::Writes, Manner::Torn, 1),
    Family::new(FaultKind::Flushes, Manner::Once, 2),
    Family::new(FaultKind::Any, Manner::Sticky, 2),
];

/// A server that refuses the requests of a fault point.
struct Refusing {
    server: FakeServer,
    image: Vec<u8>,
    /// Number of requests of the point's kind.
    seen: Arc<AtomicU64>,
    /// Whether half a superblock was written. Its checksum is in the other half, so only e2fsck
    /// opens the volume, from a backup.
    is_superblock_torn: Arc<AtomicBool>,
}

impl Refusing {
    /// Serves an empty volume.
    fn new() -> Self {
        Self::with_image(Shape::new(MIB, 4096, true).make().snapshot())
    }

    fn with_image(image: Vec<u8>) -> Self {
        let server = FakeServer::start(MIB << 20, Offer::default());
        Self { server, image, seen: Arc::default(), is_superblock_torn: Arc::default() }
    }

    fn url(&self) -> String {
        self.server.url("")
    }

    /// Serves the volume again as it was, and counts the requests of the kind.
    fn count(&self, kind: FaultKind) {
        self.restore(&self.image);
        self.arm(kind, 0..=0, Reply::Answer);
    }

    fn restore(&self, image: &[u8]) {
        self.server.disk(|disk| {
            disk.write(0, image);
            disk.flush();
        });
    }

    /// Replies to the requests of the kind with these numbers as `reply` says.
    fn arm(&self, kind: FaultKind, numbers: RangeInclusive<u64>, reply: Reply) {
        self.seen.store(0, SeqCst);
        self.is_superblock_torn.store(false, SeqCst);
        let (seen, is_superblock_torn) = (Arc::clone(&self.seen), Arc::clone(&self.is_superblock_torn));
        self.server.rule(move |request| {
            let is_counted = match kind {
                FaultKind::Reads => request.kind == Kind::Read,
                FaultKind::Writes => matches!(request.kind, Kind::Write | Kind::WriteZeroes),
                FaultKind::Flushes => request.kind == Kind::Flush,
                FaultKind::Discards => request.kind == Kind::Trim,
                _ => true,
            };
            let number = if is_counted { seen.fetch_add(1, SeqCst) + 1 } else { 0 };
            if !numbers.contains(&number) {
                return Reply::Answer;
            }
            if matches!(reply, Reply::Torn(_)) && (request.offset, request.len) == (1024, 1024) {
                is_superblock_torn.store(true, SeqCst);
            }
            reply.clone()
        });
    }

    /// Refuses as a fault point says.
    fn arm_point(&self, point: FaultPoint) -> u64 {
        let FaultPoint::Request { kind, number, manner, .. } = point else { panic!("{point} of a server") };
        let last = if manner == Manner::Sticky { u64::MAX } else { number };
        let reply = if manner == Manner::Torn { Reply::Torn(EIO) } else { Reply::Refuse(EIO, "", None) };
        self.arm(kind, number..=last, reply);
        number
    }

    /// Answers all requests.
    fn answer(&self) {
        self.server.rule(|_| Reply::Answer);
    }

    fn bytes(&self) -> Vec<u8> {
        self.server.disk(|disk| disk.read(0, (MIB << 20) as u32).expect("the disk").to_vec())
    }

    /// Returns the volume as it is on the server, recovered and without findings. `None` if its
    /// superblock is torn.
    fn recovered(&self, what: &str) -> Option<Volume> {
        if self.is_superblock_torn.load(SeqCst) {
            return None;
        }
        let device = Arc::new(MemDevice::from_bytes(self.bytes()));
        recover(&device);
        assert_no_findings(&*device, what);
        Some(Volume::open_device(device, &untimed()).unwrap_or_else(|error| panic!("{what}: {error}")))
    }
}

/// Asserts that a command ended with an error message, and not otherwise.
fn assert_failed(output: &Output, what: &str) {
    let said = errors(output);
    assert_eq!(output.status.code(), Some(1), "{what}: {said}");
    assert!(
        said.lines().any(|line| line.starts_with("parext4: ")) && !said.contains("panicked"),
        "{what}: {said}"
    );
}

/// Returns true if failures of the requests of a point must be reported.
fn is_write(point: FaultPoint) -> bool {
    matches!(point, FaultPoint::Request { kind: FaultKind::Writes | FaultKind::Flushes, .. })
}

/// Returns true if all requests after the failed one succeed.
fn is_alone(point: FaultPoint) -> bool {
    !matches!(point, FaultPoint::Request { manner: Manner::Sticky, .. })
}

fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 512 + 1) as u8).collect()
}

fn make_tree(root: &Path) {
    for (path, len) in FILES {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).unwrap();
        fs::write(path, contents(len)).unwrap();
    }
}

/// Asserts that a volume has files only with a part of their contents; with `all`, that it has all
/// of them.
fn check_copy(volume: &Volume, all: bool, what: &str) {
    for (path, len) in FILES {
        match volume.read(format!("/copy/{path}")) {
            Ok(seen) if all => assert!(seen == contents(len), "{what}: {path}"),
            Ok(seen) => assert!(seen.len() <= len, "{what}: {path} has {} bytes", seen.len()),
            Err(error) => assert!(!all, "{what}: {path}: {error}"),
        }
    }
}

#[test]
fn put_of_a_tree() {
    let (refusing, scratch) = (Refusing::new(), tempfile::tempdir().unwrap());
    let tree = scratch.path().join("tree");
    make_tree(&tree);
    let put = || run(&["put", "--quiet", &text(&tree), &format!("{}:/copy", refusing.url())]);
    let count = |kind| {
        refusing.count(kind);
        let output = put();
        assert!(output.status.success(), "{}", errors(&output));
        refusing.seen.load(SeqCst)
    };
    sweep_requests("put_of_a_tree", &FAMILIES, count, |point| {
        refusing.restore(&refusing.image);
        let number = refusing.arm_point(point);
        let (output, what) = (put(), point.to_string());
        let is_hit = refusing.seen.load(SeqCst) >= number;
        refusing.answer();
        if is_write(point) && is_hit || !output.status.success() {
            assert_failed(&output, &what);
        }
        assert!(is_hit || output.status.success(), "{what}: {}", errors(&output));
        if let Some(volume) = refusing.recovered(&what) {
            check_copy(&volume, output.status.success(), &what);
            // The first write and the first flush are of the open, which records nothing.
            let must_record = is_write(point) && is_alone(point) && is_hit && number > 1;
            assert!(!must_record || volume.info().errors.is_some(), "{what}: no record of the error");
        }
        is_hit
    });
}

/// Puts a tree on volumes on which something runs out.
fn put_until(name: &'static str, resource: Resource, needed: u64, message: &str) {
    let (refusing, scratch) = (Refusing::new(), tempfile::tempdir().unwrap());
    let tree = scratch.path().join("tree");
    make_tree(&tree);
    let base = Devices::from(MemDevice::from_bytes(refusing.image.clone()));
    sweep_shortages(name, resource, &base, needed, |devices, point| {
        refusing.restore(&devices.volume.snapshot());
        let output = run(&["put", "--quiet", &text(&tree), &format!("{}:/copy", refusing.url())]);
        let (has_failed, what) = (!output.status.success(), point.to_string());
        if has_failed {
            assert_failed(&output, &what);
            assert!(errors(&output).contains(message), "{what}: {}", errors(&output));
        }
        assert_no_findings(&MemDevice::from_bytes(refusing.bytes()), &what);
        let volume = refusing.recovered(&what).expect("no superblock is torn");
        assert!(volume.info().errors.is_none(), "{what}: the volume was stopped");
        check_copy(&volume, !has_failed, &what);
        has_failed
    });
}

#[test]
fn put_without_free_blocks() {
    put_until("put_without_free_blocks", Resource::Blocks, 80, "no space left on the volume");
}

#[test]
fn put_without_free_inodes() {
    put_until("put_without_free_inodes", Resource::Inodes, 6, "no inodes left on the volume");
}

#[test]
fn get_of_a_tree() {
    let (mut refusing, scratch) = (Refusing::new(), tempfile::tempdir().unwrap());
    let tree = scratch.path().join("tree");
    make_tree(&tree);
    refusing.count(FaultKind::Any);
    let made = run(&["put", "--quiet", &text(&tree), &format!("{}:/copy", refusing.url())]);
    assert!(made.status.success(), "{}", errors(&made));
    refusing.image = refusing.bytes();
    let back = scratch.path().join("back");
    let get = || {
        let _ = fs::remove_dir_all(&back);
        run(&["get", "--quiet", &format!("{}:/copy", refusing.url()), &text(&back)])
    };
    let count = |kind| {
        refusing.count(kind);
        let output = get();
        assert!(output.status.success(), "{}", errors(&output));
        refusing.seen.load(SeqCst)
    };
    sweep_requests("get_of_a_tree", &FAMILIES, count, |point| {
        let number = refusing.arm_point(point);
        let (output, what) = (get(), point.to_string());
        let is_hit = refusing.seen.load(SeqCst) >= number;
        if output.status.success() {
            for (path, len) in FILES {
                assert!(fs::read(back.join(path)).unwrap() == contents(len), "{what}: {path}");
            }
        } else {
            assert!(is_hit, "{what}: {}", errors(&output));
            assert_failed(&output, &what);
        }
        is_hit
    });
}

/// Works on a mount. Returns the number of files that were synced, and the first error.
fn work(dir: &Path) -> (usize, io::Result<()>) {
    let mut synced = 0;
    let mut all = || {
        for (number, (_, len)) in FILES.iter().enumerate() {
            let path = dir.join(format!("file {number}"));
            let mut file = File::create(&path)?;
            file.write_all(&contents(*len))?;
            file.sync_all()?;
            synced = number + 1;
            fs::create_dir(dir.join(format!("dir {number}")))?;
            fs::rename(&path, dir.join(format!("dir {number}/file")))?;
            File::open(dir)?.sync_all()?;
        }
        let file = File::options().read(true).write(true).open(dir.join("dir 1/file"))?;
        file.write_all_at(&[7; 1000], 100_000)?;
        file.set_len(200_000)?;
        file.sync_data()?;
        fs::remove_file(dir.join("dir 3/file"))
    };
    let done = all();
    (synced, done)
}

#[test]
fn work_on_a_mount() {
    let refusing = Refusing::new();
    let Some(node) = Node::new(&refusing.url(), "mount") else { return };
    let session = || -> Option<(usize, io::Result<()>, Output)> {
        node.try_mount(&[]).status.success().then(|| {
            let (synced, done) = work(node.dir());
            (synced, done, umount(node.dir()))
        })
    };
    let count = |kind| {
        refusing.count(kind);
        let (_, done, ended) = session().expect("a mount");
        done.unwrap();
        assert!(ended.status.success(), "{}", errors(&ended));
        refusing.seen.load(SeqCst)
    };
    sweep_requests("work_on_a_mount", &FAMILIES, count, |point| {
        refusing.restore(&refusing.image);
        let number = refusing.arm_point(point);
        let (ended, what) = (session(), point.to_string());
        let is_hit = refusing.seen.load(SeqCst) >= number;
        refusing.answer();
        let Some((synced, done, ended)) = ended else {
            assert!(is_hit, "{what}: the mount failed without a fault");
            drop(refusing.recovered(&what));
            return true;
        };
        assert!(!node.is_mounted(), "{what}");
        let is_seen = done.is_err() || !ended.status.success();
        assert!(is_hit || !is_seen, "{what}: {done:?}, {}", errors(&ended));
        if let Err(error) = &done {
            let number = error.raw_os_error();
            assert!([libc::EIO, libc::EROFS].map(Some).contains(&number), "{what}: {error}");
        }
        let Some(volume) = refusing.recovered(&what) else { return true };
        if is_write(point) && is_alone(point) && done.is_err() {
            assert!(volume.info().errors.is_some(), "{what}: no record of the error");
        }
        if !is_seen {
            // The last flush concerns only the mark that the volume was closed.
            assert!(!volume.exists("/dir 3/file").unwrap(), "{what}: no program saw the error");
            assert_eq!(
                volume.metadata("/dir 1/file").unwrap().size,
                200_000,
                "{what}: no program saw the error"
            );
        }
        for (number, (_, len)) in FILES.iter().enumerate().take(synced.min(3)) {
            let names = [format!("/dir {number}/file"), format!("/file {number}")];
            let found = names.iter().find_map(|name| volume.read(name).ok());
            let found = found.unwrap_or_else(|| panic!("{what}: file {number} was synced"));
            // The work changes this file in the end.
            assert!(number == 1 || found == contents(*len), "{what}: file {number}");
        }
        is_hit
    });
}

/// Returns a volume as a crash left it: with a log to replay, and a removed file that was open.
fn crashed() -> Vec<u8> {
    let device = Arc::new(Shape::new(MIB, 4096, true).make());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<_>, &untimed()).unwrap();
    let removed = volume.create_direct("/removed").unwrap();
    removed.write_all_at(&contents(8192), 0).unwrap();
    volume.create_dir("/dir", 0o755).unwrap();
    volume.write("/dir/file", contents(5000)).unwrap();
    volume.sync().unwrap();
    volume.remove_file("/removed").unwrap();
    volume.sync().unwrap();
    device.snapshot()
}

#[test]
fn recovery_of_a_volume() {
    let refusing = Refusing::with_image(crashed());
    let recover = || run(&["recover", &refusing.url()]);
    let count = |kind| {
        refusing.count(kind);
        let output = recover();
        assert!(output.status.success(), "{}", errors(&output));
        refusing.seen.load(SeqCst)
    };
    sweep_requests("recovery_of_a_volume", &FAMILIES, count, |point| {
        refusing.restore(&refusing.image);
        let number = refusing.arm_point(point);
        let (output, what) = (recover(), point.to_string());
        let is_hit = refusing.seen.load(SeqCst) >= number;
        refusing.answer();
        let left = MemDevice::from_bytes(refusing.bytes());
        if let Some(volume) = refusing.recovered(&what) {
            assert!(volume.read("/dir/file").unwrap() == contents(5000), "{what}");
            assert!(!volume.exists("/removed").unwrap(), "{what}");
            // A read-only open deletes no orphan.
            let free = |volume: &Volume| volume.space().free_inodes;
            let seen = Volume::open_device(Arc::new(left.fork()), &untimed().read_only(true)).unwrap();
            let is_done = free(&seen) == free(&volume);
            assert!(is_done || !output.status.success(), "{what}: an orphan was left");
        }
        if output.status.success() {
            assert!(!(is_write(point) && is_hit), "{what}: the error was not reported");
            assert_no_findings(&left, &what);
        } else {
            assert!(is_hit, "{what}: {}", errors(&output));
            assert_failed(&output, &what);
        }
        is_hit
    });
}

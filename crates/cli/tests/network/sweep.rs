//! The fault sweep through commands and a mount: the server refuses each request in turn.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parext4::device::FaultKind;
use parext4::{MemDevice, Volume};
use testkit::command::{run, text};
use testkit::fault_sweep::{Family, FaultPoint, Manner, sweep_requests};
use testkit::fuse_mount::{errors, umount};
use testkit::nbd::{FakeServer, Kind, Offer, Reply};
use testkit::volume::{Shape, assert_no_findings, recover, untimed};

use crate::node::Node;

const MIB: u64 = 8;
/// The number of EIO in the protocol.
const EIO: u32 = 5;
/// The files that are put, and their sizes.
const FILES: [(&str, usize); 4] =
    [("small", 100), ("dir/large", 300_000), ("dir/empty", 0), ("dir/other", 5000)];

const FAMILIES: [Family; 6] = [
    Family::new(FaultKind::Reads, Manner::Once, 3),
    Family::new(FaultKind::Reads, Manner::Sticky, 1),
    Family::new(FaultKind::Writes, Manner::Once, 3),
    Family::new(FaultKind::Writes, Manner::Sticky, 1),
    Family::new(FaultKind::Flushes, Manner::Once, 2),
    Family::new(FaultKind::Any, Manner::Sticky, 2),
];

/// A server that refuses the requests of a fault point.
struct Refusing {
    server: FakeServer,
    image: Vec<u8>,
    /// Number of requests of the point's kind.
    seen: Arc<AtomicU64>,
}

impl Refusing {
    /// Serves an empty volume.
    fn new() -> Self {
        let image = Shape::new(MIB, 4096, true).make().snapshot();
        Self { server: FakeServer::start(MIB << 20, Offer::default()), image, seen: Arc::default() }
    }

    fn url(&self) -> String {
        self.server.url("")
    }

    /// Serves the empty volume again, and refuses the requests of the kind with the numbers `from` to `to`.
    fn refuse(&self, kind: FaultKind, from: u64, to: u64) {
        self.restore(&self.image);
        self.arm(kind, from, to);
    }

    fn restore(&self, image: &[u8]) {
        self.server.disk(|disk| {
            disk.write(0, image);
            disk.flush();
        });
    }

    fn arm(&self, kind: FaultKind, from: u64, to: u64) {
        self.seen.store(0, SeqCst);
        let seen = Arc::clone(&self.seen);
        self.server.rule(move |request| {
            let is_counted = match kind {
                FaultKind::Reads => request.kind == Kind::Read,
                FaultKind::Writes => matches!(request.kind, Kind::Write | Kind::WriteZeroes),
                FaultKind::Flushes => request.kind == Kind::Flush,
                FaultKind::Discards => request.kind == Kind::Trim,
                _ => true,
            };
            let number = if is_counted { seen.fetch_add(1, SeqCst) + 1 } else { 0 };
            if (from..=to).contains(&number) { Reply::Refuse(EIO, "", None) } else { Reply::Answer }
        });
    }

    /// Refuses as a fault point says.
    fn arm_point(&self, point: FaultPoint) -> u64 {
        let FaultPoint::Request { kind, number, manner, .. } = point else { panic!("{point} of a server") };
        let last = if manner == Manner::Sticky { u64::MAX } else { number };
        self.arm(kind, number, last);
        number
    }

    /// Answers all requests.
    fn answer(&self) {
        self.server.rule(|_| Reply::Answer);
    }

    /// Returns the volume as it is on the server, recovered and without findings.
    fn recovered(&self, what: &str) -> Volume {
        let bytes = self.server.disk(|disk| disk.read(0, (MIB << 20) as u32).expect("the disk").to_vec());
        let device = Arc::new(MemDevice::from_bytes(bytes));
        recover(&device);
        assert_no_findings(&*device, what);
        Volume::open_device(device, &untimed()).unwrap_or_else(|error| panic!("{what}: {error}"))
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

/// Asserts that a volume has files only with a part of their contents; with `all`, that it has all of them.
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
        refusing.refuse(kind, u64::MAX, u64::MAX);
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
        check_copy(&refusing.recovered(&what), output.status.success(), &what);
        is_hit
    });
}

#[test]
fn get_of_a_tree() {
    let (mut refusing, scratch) = (Refusing::new(), tempfile::tempdir().unwrap());
    let tree = scratch.path().join("tree");
    make_tree(&tree);
    refusing.refuse(FaultKind::Any, u64::MAX, u64::MAX);
    let made = run(&["put", "--quiet", &text(&tree), &format!("{}:/copy", refusing.url())]);
    assert!(made.status.success(), "{}", errors(&made));
    refusing.image =
        refusing.server.disk(|disk| disk.read(0, (MIB << 20) as u32).expect("the disk").to_vec());
    let back = scratch.path().join("back");
    let get = || {
        let _ = fs::remove_dir_all(&back);
        run(&["get", "--quiet", &format!("{}:/copy", refusing.url()), &text(&back)])
    };
    let count = |kind| {
        refusing.refuse(kind, u64::MAX, u64::MAX);
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
        refusing.refuse(kind, u64::MAX, u64::MAX);
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
        let volume = refusing.recovered(&what);
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

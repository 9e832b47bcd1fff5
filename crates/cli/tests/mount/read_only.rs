//! Read-only mounts that become writable, and images that cannot be written.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output};
use std::thread::JoinHandle;

use testkit::command::{run, text};
use testkit::fuse_mount::{FuseMount, errors, tool, umount};
use testkit::kernel_mount::KernelMount;
use testkit::poll::until;

fn remount(fuse: &FuseMount, options: &str) -> Output {
    run(&["mount", "-o", &format!("remount,{options}"), &text(&fuse.scratch().image()), &text(fuse.dir())])
}

fn becomes_writable(fuse: &FuseMount) {
    let output = remount(fuse, "rw");
    assert!(output.status.success(), "{}", errors(&output));
}

/// Leaves a volume as a crash does: the journal has a change, and a file that has lost its name is
/// an orphan.
fn crash(fuse: &FuseMount) {
    let mut server = fuse.serve("rw");
    std::fs::write(fuse.path("file"), "before the crash").unwrap();
    std::fs::write(fuse.path("orphan"), vec![7; 1 << 20]).unwrap();
    let open = File::open(fuse.path("orphan")).unwrap();
    std::fs::remove_file(fuse.path("orphan")).unwrap();
    File::open(fuse.dir()).unwrap().sync_all().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    drop(open);
    umount(fuse.dir());
}

#[test]
fn a_read_only_mount_becomes_writable_with_its_open_files() {
    for options in ["ro", "ro,cache=direct", "ro,threads=1"] {
        let Some(fuse) = FuseMount::new(&[]) else { return };
        crash(&fuse);
        fuse.mount(options);
        let before = std::fs::read(fuse.scratch().image()).unwrap();
        let free = rustix::fs::statvfs(fuse.dir()).unwrap().f_bfree;
        let mut open = File::open(fuse.path("file")).unwrap();
        let inode = open.metadata().unwrap().ino();
        let mut start = [0; 6];
        open.read_exact(&mut start).unwrap();
        assert_eq!(std::fs::read(fuse.scratch().image()).unwrap(), before, "{options}");
        becomes_writable(&fuse);
        // The orphan is deleted.
        let freed = rustix::fs::statvfs(fuse.dir()).unwrap().f_bfree - free;
        assert!(freed >= 250, "{options}: {freed} blocks");
        std::fs::write(fuse.path("new"), "after the remount").unwrap();
        let writer = File::options().write(true).open(fuse.path("file")).unwrap();
        writer.write_all_at(b"since", 0).unwrap();
        drop(writer);
        let mut rest = String::new();
        open.read_to_string(&mut rest).unwrap();
        assert_eq!((&start, &rest[..]), (b"before", " the crash"), "{options}");
        let mut all = vec![0; 16];
        open.read_exact_at(&mut all, 0).unwrap();
        assert_eq!(
            (&all[..], open.metadata().unwrap().ino()),
            (&b"sincee the crash"[..], inode),
            "{options}"
        );
        drop(open);
        // A second time the server is writable already.
        for change in ["ro", "rw", "ro"] {
            let output = remount(&fuse, change);
            assert!(output.status.success(), "{}", errors(&output));
        }
        assert!(std::fs::write(fuse.path("new"), "").is_err());
        fuse.umount();
        assert_eq!(fuse.scratch().ok(&["cat", &fuse.scratch().inside("/new")]), "after the remount");
        fuse.scratch().fsck();
    }
}

/// Threads read by old and new handles, buffered and directly, while the mount becomes writable
/// again and again.
#[test]
fn reads_do_not_fail_while_a_mount_becomes_writable() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let contents: Vec<u8> = (0..1_u32 << 16).flat_map(u32::to_le_bytes).collect();
    std::fs::write(fuse.path("file"), &contents).unwrap();
    fuse.umount();
    for round in 0..3 {
        fuse.mount("ro,cache=direct");
        let over = std::sync::atomic::AtomicBool::new(false);
        fuse.watched(|| {
            std::thread::scope(|scope| {
                for thread in 0..4_usize {
                    let (over, fuse, contents) = (&over, &fuse, &contents);
                    scope.spawn(move || {
                        let old = File::open(fuse.path("file")).unwrap();
                        while !over.load(std::sync::atomic::Ordering::Relaxed) {
                            let new = File::open(fuse.path("file")).unwrap();
                            for file in [&old, &new] {
                                let mut read = vec![0; 50_000];
                                file.read_exact_at(&mut read, thread as u64 * 50_000).unwrap();
                                assert!(read == contents[thread * 50_000..][..50_000]);
                            }
                            assert_eq!(std::fs::read_dir(fuse.dir()).unwrap().count(), 2);
                        }
                    });
                }
                becomes_writable(&fuse);
                std::fs::write(fuse.path("lost+found/new"), format!("{round}")).unwrap();
                over.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        });
        fuse.umount();
    }
    fuse.scratch().fsck();
}

#[test]
fn a_mount_that_cannot_become_writable_goes_on_as_it_is() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    std::fs::write(fuse.path("file"), "contents").unwrap();
    fuse.umount();
    fuse.mount("ro");
    let open = File::open(fuse.path("file")).unwrap();
    // Another process reads the image.
    let other = fuse.scratch().path("other");
    std::fs::create_dir(&other).unwrap();
    fuse.scratch().ok(&["mount", "-o", "ro", &text(&fuse.scratch().image()), &text(&other)]);
    let refused = |why: &str| {
        let output = remount(&fuse, "rw");
        let error = errors(&output);
        assert!(!output.status.success() && error.contains(why) && error.lines().count() == 1, "{error}");
        assert_eq!(std::fs::read_to_string(fuse.path("file")).unwrap(), "contents");
        let mut read = [0; 8];
        open.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"contents");
        assert!(std::fs::write(fuse.path("new"), "").is_err());
    };
    refused(&text(&other));
    assert!(umount(&other).status.success());
    // A program that does not lock the image changes it: the check of e2fsck notes the time.
    if tool(Command::new("e2fsck").arg("-fp").arg(fuse.scratch().image())).is_none() {
        return;
    }
    refused("has changed it since it was mounted");
    drop(open);
    umount(fuse.dir());
    fuse.scratch().fsck();
}

/// A process that may only read the image, and waits for its lock.
struct Waiting(JoinHandle<()>);

impl Waiting {
    fn start(image: &Path) -> Self {
        let file = File::open(image).unwrap();
        let inode = file.metadata().unwrap().ino();
        let waiting = Self(std::thread::spawn(move || file.lock().unwrap()));
        let is_listed = || {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains("-> FLOCK") && line.contains(&format!(":{inode} ")))
        };
        assert!(until(is_listed));
        waiting
    }

    fn is_waiting(&self) -> bool {
        !self.0.is_finished()
    }
}

#[test]
fn a_process_that_waits_for_the_lock_gets_it_when_the_mount_has_ended() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let image = fuse.scratch().image();
    for round in 0..10 {
        fuse.mount("ro");
        let reader = File::open(&image).unwrap();
        reader.lock_shared().unwrap();
        let waiting = Waiting::start(&image);
        let output = remount(&fuse, "rw");
        assert!(!output.status.success() && errors(&output).contains("in use"), "{}", errors(&output));
        assert!(fuse.path("lost+found").is_dir());
        drop(reader);
        becomes_writable(&fuse);
        std::fs::write(fuse.path("file"), format!("{round}")).unwrap();
        assert!(waiting.is_waiting());
        fuse.umount();
        waiting.0.join().unwrap();
        assert_eq!(fuse.scratch().ok(&["cat", &fuse.scratch().inside("/file")]), format!("{round}"));
    }
    fuse.scratch().fsck();
}

#[test]
fn a_volume_that_may_only_be_read_stays_so() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let set = Command::new("debugfs")
        .args(["-w", "-R", "feature FEATURE_R27"])
        .arg(fuse.scratch().image())
        .output();
    if !set.is_ok_and(|output| output.status.success()) {
        return testkit::skipped("no debugfs");
    }
    fuse.mount("ro");
    let error = errors(&remount(&fuse, "rw"));
    assert!(error.contains("can be read but not written"), "{error}");
    assert!(fuse.path("lost+found").is_dir());
    fuse.umount();
}

/// A loop device without write permission, for an image; detached when dropped.
struct Protected(String);

impl Protected {
    fn new(image: &std::path::Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--read-only", "--find", "--show"]).arg(image).output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            testkit::skipped("no loop devices");
            return None;
        };
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_write_protected_device_is_mounted_read_only_with_a_warning() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let Some(device) = Protected::new(&fuse.scratch().image()) else { return };
    let mount = run(&["mount", &device.0, &text(fuse.dir())]);
    let warning = format!("parext4: warning: {}: write-protected, mounted read-only\n", device.0);
    assert_eq!((mount.status.success(), errors(&mount)), (true, warning));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(mounts.lines().any(|line| line.contains(&text(fuse.dir())) && line.contains(" ro,")), "{mounts}");
    let error = std::fs::write(fuse.path("new"), "").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(30), "EROFS");
    let error = errors(&remount(&fuse, "rw"));
    assert!(error.contains("write-protected"), "{error}");
    umount(fuse.dir());
    // Other commands say why they fail.
    let error = fuse.scratch().fails(&["mkdir", &format!("{}:/new", device.0)]);
    assert!(error.contains("is write-protected"), "{error}");
    drop(device);
    fuse.scratch().fsck();
}

/// As `mount -o loop` does.
#[test]
fn an_image_on_a_read_only_file_system_is_mounted_read_only() {
    let Some(kernel) = KernelMount::mounted(&[], "") else { return };
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let image = text(&kernel.path().join("image"));
    fuse.scratch().ok(&["mkfs", &image, "--size", "8M"]);
    assert!(kernel.remount("ro").status.success());
    let mount = run(&["mount", &image, &text(fuse.dir())]);
    assert!(mount.status.success() && errors(&mount).contains("mounted read-only"), "{}", errors(&mount));
    umount(fuse.dir());
}

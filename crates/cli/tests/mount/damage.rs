//! Errors that users get from a volume that has stopped or is damaged.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, RawDir, XattrFlags, open, setxattr};

use crate::options::Needle;
use testkit::command::{run, text};
use testkit::fuse_mount::{FuseMount, errors, until};
use testkit::kernel_mount::KernelMount;

/// Runs a program that finds the directory `dir` corrupt and then tries every kind of change.
/// Returns the error numbers of the changes, 0 for success.
fn changes_after_damage(dir: &Path) -> Vec<(&'static str, i32)> {
    let file = dir.join("file");
    std::fs::write(&file, "contents").unwrap();
    std::fs::write(dir.join("other"), "").unwrap();
    let mut open = File::options().read(true).write(true).open(&file).unwrap();
    // The kernel's ext4 may still have the undamaged directory in memory, until its first look-up.
    assert!(std::fs::metadata(dir.join("dir/file")).is_err());
    // The kernel's ext4 stops shortly after it finds an error.
    until(|| std::fs::write(dir.join("other"), "").is_err());
    let number =
        |result: std::io::Result<()>| result.map_or_else(|error| error.raw_os_error().unwrap(), |()| 0);
    vec![
        ("write", number(open.write_all(b"new"))),
        ("truncate", number(open.set_len(100))),
        ("chmod", number(open.set_permissions(Permissions::from_mode(0o600)))),
        ("open", number(File::options().write(true).open(&file).map(drop))),
        ("create", number(File::create_new(dir.join("new")).map(drop))),
        ("mkdir", number(std::fs::create_dir(dir.join("newdir")))),
        ("unlink", number(std::fs::remove_file(dir.join("other")))),
        ("rename", number(std::fs::rename(dir.join("other"), dir.join("moved")))),
        ("link", number(std::fs::hard_link(&file, dir.join("second")))),
        ("symlink", number(std::os::unix::fs::symlink("x", dir.join("symlink")))),
        ("setxattr", number(setxattr(&file, "user.a", b"x", XattrFlags::empty()).map_err(Into::into))),
        ("read", number(std::fs::read(&file).map(drop))),
        ("readdir", number(std::fs::read_dir(dir).map(drop))),
    ]
}

#[test]
fn a_stopped_volume_refuses_changes_as_the_kernels_ext4() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let needle = Needle::hide(&fuse);
    let kernel = KernelMount::with_copy_of(&fuse.scratch().image(), "errors=remount-ro");
    fuse.mount("cache=direct,errors=remount-ro");
    let ours = changes_after_damage(fuse.dir());
    for &(what, number) in &ours {
        let expected = if what.starts_with("read") { 0 } else { 30 };
        assert_eq!(number, expected, "EROFS: {what}");
    }
    if let Some(kernel) = kernel {
        assert_eq!(ours, changes_after_damage(&kernel.path()));
    }
    let file = File::open(fuse.path("file")).unwrap();
    assert!(file.sync_all().is_err(), "the file is not durable");
    drop(file);
    let error = fuse.umount_loses_changes();
    assert!(error.contains("lost: corrupt volume"), "{error}");
    needle.put_back(&fuse);
    fuse.scratch().ok(&["recover", &text(&fuse.scratch().image())]);
    fuse.scratch().fsck();
}

#[test]
fn names_before_a_damaged_block_are_listed() {
    for options in ["cache=direct", "cache=kernel"] {
        let Some(fuse) = FuseMount::new(&["--block-size", "1024"]) else { return };
        let image = text(&fuse.scratch().image());
        // The names are in the order in which they were made.
        let mut tune2fs = std::process::Command::new("/usr/sbin/tune2fs");
        if testkit::fuse_mount::tool(tune2fs.args(["-O", "^dir_index", &image])).is_none() {
            return;
        }
        let needle = Needle::hide_after(&fuse, 40);
        fuse.mount(options);
        for _ in 0..2 {
            let mut listing = std::fs::read_dir(fuse.path("dir")).unwrap();
            let names = listing.by_ref().map_while(Result::ok).count();
            assert_eq!(names, 20, "the first block");
            drop(listing);
            let error = std::fs::read_dir(fuse.path("dir")).unwrap().find_map(Result::err);
            assert_eq!(error.and_then(|error| error.raw_os_error()), Some(117), "EUCLEAN");
        }
        fuse.umount();
        needle.put_back(&fuse);
        fuse.scratch().ok(&["recover", &image]);
        fuse.scratch().fsck();
    }
}

/// Replaces bytes of an image wherever they are.
fn replace(image: &Path, old: &[u8], new: &[u8]) {
    let bytes = std::fs::read(image).unwrap();
    let found: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(old)).collect();
    assert!(!found.is_empty());
    let image = File::options().write(true).open(image).unwrap();
    found.into_iter().for_each(|at| image.write_all_at(new, at as u64).unwrap());
}

#[test]
fn a_file_that_could_not_be_read_is_listed_and_read_later() {
    // The first fields of the inode: mode, user and size.
    const INODE: [u8; 8] = [0xa0, 0x81, 0xed, 0x5e, 0x39, 0x30, 0, 0];
    const DAMAGED: [u8; 8] = [0xa0, 0x81, 0xee, 0x5e, 0x39, 0x30, 0, 0];
    let Some(fuse) = FuseMount::mounted(&["--block-size", "1024"], "rw") else { return };
    let (dir, path, image) = (fuse.path("dir"), fuse.path("dir/file"), fuse.scratch().image());
    std::fs::create_dir(&dir).unwrap();
    (0..20).for_each(|nth| std::fs::write(fuse.path(&format!("before{nth}")), "").unwrap());
    std::fs::write(&path, [7; 12_345]).unwrap();
    chown(&path, Some(0x5eed), None).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    (0..20).for_each(|nth| std::fs::write(fuse.path(&format!("after{nth}")), "").unwrap());
    let ino = std::fs::metadata(&path).unwrap().ino();
    fuse.umount();
    // Metadata soon leaves the memory.
    fuse.mount("ro,metadata_cache=1K");
    let evict = || {
        // A thread of the server that has answered may still refer to what it has read, which then
        // stays.
        for _ in 0..3 {
            (0..20).for_each(|nth| drop(File::open(fuse.path(&format!("after{nth}"))).unwrap()));
            sleep(Duration::from_millis(100));
        }
    };
    // The second time the kernel knows the inode, and does not forget it, because it is open.
    let mut known = None;
    for expected in [Err(Some(117)), Ok(12_345)] {
        replace(&image, &INODE, &DAMAGED);
        evict();
        let listed = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap();
        assert_eq!(listed.ino(), ino);
        assert!(listed.file_name() == "file" && listed.file_type().unwrap().is_file());
        let size = std::fs::metadata(&path).map(|metadata| metadata.len());
        assert_eq!(size.map_err(|error| error.raw_os_error()), expected, "EUCLEAN, or the size");
        replace(&image, &DAMAGED, &INODE);
        evict();
        assert_eq!(std::fs::read(&path).unwrap(), [7; 12_345]);
        assert_eq!(std::fs::metadata(&path).unwrap().uid(), 0x5eed);
        known.get_or_insert_with(|| open(&path, OFlags::PATH, Mode::empty()).unwrap());
    }
    drop(known);
    fuse.finish();
}

#[test]
fn a_listing_of_equal_names_ends() {
    const NAMES: usize = 15;
    let Some(fuse) = FuseMount::mounted(&["--block-size", "4096", "-O", "^metadata_csum"], "rw") else {
        return;
    };
    std::fs::create_dir(fuse.path("dir")).unwrap();
    let start = "equal".repeat(50);
    (0..NAMES).for_each(|nth| std::fs::write(fuse.path(&format!("dir/{start}{nth:0>5}")), "").unwrap());
    fuse.umount();
    let mut image = std::fs::read(fuse.scratch().image()).unwrap();
    // Also in the journal, where the change does no harm.
    let is_name = |at: &usize| image[*at..].starts_with(start.as_bytes());
    let found: Vec<_> = (0..image.len()).filter(is_name).map(|at| at + start.len()).collect();
    assert!(found.len() >= NAMES);
    found.into_iter().for_each(|end| image[end..end + 5].fill(b'x'));
    std::fs::write(fuse.scratch().image(), image).unwrap();
    for options in ["cache=kernel", "cache=direct"] {
        fuse.mount(options);
        let dir = File::open(fuse.path("dir")).unwrap();
        // The kernel asks for as much as fits this buffer.
        let mut buf = [std::mem::MaybeUninit::uninit(); 4096];
        let mut listing = RawDir::new(&dir, &mut buf);
        let mut names = 0;
        while let Some(entry) = listing.next().transpose().unwrap() {
            names += usize::from(entry.file_name().to_bytes().starts_with(start.as_bytes()));
            assert!(names <= NAMES, "{options}: the listing does not end");
        }
        assert_eq!(names, NAMES, "{options}");
        assert_eq!(std::fs::read_dir(fuse.path("dir")).unwrap().count(), NAMES, "{options}");
        drop(dir);
        fuse.umount();
    }
}

#[test]
fn a_volume_with_recorded_errors_is_mounted_with_a_warning() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let image = text(&fuse.scratch().image());
    let set = |field: &str, value: &str| {
        let request = format!("set_super_value {field} {value}");
        let mut debugfs = std::process::Command::new("/usr/sbin/debugfs");
        testkit::fuse_mount::tool(debugfs.args(["-w", "-R", &request, &image])).is_some()
    };
    // The superblock's state as the kernel leaves it: valid, with errors.
    let fields = [
        ("state", "3"),
        ("error_count", "2"),
        ("last_error_func", "ext4_find_extent"),
        ("last_error_line", "944"),
        ("last_error_ino", "12"),
    ];
    if !fields.iter().all(|(field, value)| set(field, value)) {
        return;
    }
    let text_of_errors = "2 errors on record, the last on ";
    for options in ["rw", "ro"] {
        let output = run(&fuse.mount_command(options));
        let said = errors(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.starts_with("parext4: warning: ") && said.contains(text_of_errors), "{said}");
        assert!(said.contains("ext4_find_extent:944, inode 12; run e2fsck"), "{said}");
        assert!(fuse.is_mounted());
        fuse.umount();
    }
    assert!(fuse.scratch().ok(&["info", &image]).contains(text_of_errors));
    // Only e2fsck clears the recorded errors.
    let mut e2fsck = std::process::Command::new("/usr/sbin/e2fsck");
    e2fsck.args(["-f", "-p", &image]).output().unwrap();
    fuse.scratch().ok(&fuse.mount_command("rw"));
    fuse.finish();
}

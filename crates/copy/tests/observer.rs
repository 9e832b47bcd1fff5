//! What a caller of the library sees of a copy: counters, errors, cancellation, durable files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parext4::Volume;
use parext4_copy::{CopyOptions, Error, Get, Input, Observer, Output, Put, Summary, apply_manifest};
use tempfile::TempDir;

/// Records all calls, and has the copy go on after errors.
#[derive(Default)]
struct Record {
    expected: AtomicU64,
    copied: AtomicU64,
    errors: Mutex<Vec<String>>,
    durable: Mutex<Vec<PathBuf>>,
    /// Set when the first file is complete.
    cancel: AtomicBool,
}

impl Observer for Record {
    fn expect(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Ordering::Relaxed);
    }

    fn copied(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }

    fn file_done(&self, files: u64) {
        assert!(files > 0);
        self.cancel.store(true, Ordering::Relaxed);
    }

    fn failed(&self, error: Error) -> Result<(), Error> {
        self.errors.lock().unwrap().push(format!("{error:#}"));
        Ok(())
    }

    fn durable(&self, paths: &[PathBuf]) -> Result<(), Error> {
        self.durable.lock().unwrap().extend_from_slice(paths);
        Ok(())
    }
}

/// Makes a tree `t` of a directory, two files of 3 and 5 bytes, and a symbolic link.
fn tree() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("t");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("three"), "abc").unwrap();
    fs::write(tree.join("d/five"), "abcde").unwrap();
    std::os::unix::fs::symlink("three", tree.join("link")).unwrap();
    (dir, tree)
}

fn counts(summary: Summary) -> [u64; 4] {
    [summary.files, summary.bytes, summary.warnings, summary.errors]
}

fn assert_copied(volume: &Volume, tree: &str) {
    assert_eq!(volume.read(format!("{tree}/three")).unwrap(), b"abc");
    assert_eq!(volume.read(format!("{tree}/d/five")).unwrap(), b"abcde");
    assert_eq!(volume.resolve(format!("{tree}/link")).unwrap().metadata().size, 3);
}

#[test]
fn progress_is_what_the_summary_counts() {
    let (dir, tree) = tree();
    let volume = testkit::volume::scratch();
    let record = Record::default();
    let options = CopyOptions::new().observer(&record);
    let put = Put::new(&volume, "/").options(options.clone()).report_durable(true).copy(&[&tree]).unwrap();
    assert_eq!(counts(put), [3, 8, 0, 0]);
    assert_eq!(record.expected.load(Ordering::Relaxed), 8);
    assert_eq!(record.copied.load(Ordering::Relaxed), 8);
    assert_copied(&volume, "/t");
    let mut durable = record.durable.lock().unwrap().clone();
    durable.sort_unstable();
    assert_eq!(durable, ["/t/d/five", "/t/link", "/t/three"].map(PathBuf::from));

    let back = dir.path().join("back");
    let get = Get::new(&volume, "/t").options(options).copy(&back).unwrap();
    assert_eq!(counts(get), [3, 8, 0, 0]);
    assert_eq!(fs::read(back.join("d/five")).unwrap(), b"abcde");
}

#[test]
fn an_archive_goes_through_memory() {
    let (_dir, tree) = tree();
    let volume = testkit::volume::scratch();
    Put::new(&volume, "/").copy(&[tree]).unwrap();
    let mut archive = Vec::new();
    let packed = Get::new(&volume, "/t").pack(Output::writer(&mut archive, "memory")).unwrap();
    assert_eq!(counts(packed), [3, 8, 0, 0]);
    volume.create_dir("/copy", 0o755).unwrap();
    let unpacked = Put::new(&volume, "/copy").unpack([Input::reader(&archive[..], "memory")]).unwrap();
    assert_eq!(counts(unpacked), [3, 8, 0, 0]);
    assert_copied(&volume, "/copy/t");

    let cut = Input::reader(&archive[..archive.len() / 2], "cut");
    let error = Put::new(&volume, "/copy").unpack([cut]).unwrap_err();
    assert!(format!("{error:#}").starts_with("cut: "), "{error:#}");
}

#[test]
fn a_reader_becomes_a_file_and_a_manifest_sets_its_owner() {
    let volume = testkit::volume::scratch();
    Put::new(&volume, "/f").copy_input(Input::reader(&b"text"[..], "input")).unwrap();
    assert_eq!(volume.read("/f").unwrap(), b"text");
    apply_manifest(&volume, Path::new("/"), Input::reader(&b"/f f 4711 7 8\n"[..], "table")).unwrap();
    let metadata = volume.resolve("/f").unwrap().metadata();
    assert_eq!((metadata.permissions, metadata.uid, metadata.gid), (0o4711, 7, 8));
    let wrong = apply_manifest(&volume, Path::new("/"), Input::reader(&b"\n/f ? 0\n"[..], "table"));
    assert!(format!("{:#}", wrong.unwrap_err()).starts_with("table: line 2: unknown type"));
}

#[test]
fn the_observer_decides_if_a_copy_goes_on() {
    let (dir, tree) = tree();
    let missing = dir.path().join("missing");
    let volume = testkit::volume::scratch();
    let error = Put::new(&volume, "/").copy(&[&missing, &tree]).unwrap_err();
    assert!(matches!(error.root(), Error::Io(_)), "{error:#}");
    assert!(volume.resolve("/t").is_err());

    let record = Record::default();
    let options = CopyOptions::new().observer(&record);
    let summary = Put::new(&volume, "/").options(options).copy(&[&missing, &tree]).unwrap();
    assert_eq!(counts(summary), [3, 8, 0, 1]);
    assert!(record.errors.lock().unwrap()[0].contains("missing"));
}

#[test]
fn a_flag_ends_a_copy() {
    let (dir, tree) = tree();
    let volume = testkit::volume::scratch();
    let record = Record::default();
    // The thread of a reproducible copy copies one file after the other.
    let options = CopyOptions::new().observer(&record).cancel(&record.cancel);
    let put = Put::new(&volume, "/").options(options.clone()).reproducible(0).copy(&[&tree]);
    assert!(matches!(put.unwrap_err(), Error::Cancelled { durable_files: Some(1) }));
    assert_eq!(volume.read("/t/d/five").unwrap(), b"abcde");
    let get = Get::new(&volume, "/t").options(options.clone()).copy(&dir.path().join("back"));
    assert!(matches!(get.unwrap_err(), Error::Cancelled { durable_files: None }));
    let pack = Get::new(&volume, "/t").options(options).pack(Output::writer(Vec::new(), "memory"));
    assert!(matches!(pack.unwrap_err(), Error::Cancelled { durable_files: None }));
}

#[test]
fn a_file_that_holds_the_volume_is_not_copied() {
    let (_dir, tree) = tree();
    let volume = testkit::volume::scratch();
    let files = parext4_copy::VolumeFiles::at([tree.join("three")]);
    let options = CopyOptions::new().volume_name("disk.img").volume_files(files);
    let error = Put::new(&volume, "/").options(options).copy(&[&tree]).unwrap_err();
    assert!(format!("{error:#}").ends_with("three: this file holds the volume itself"), "{error:#}");
}

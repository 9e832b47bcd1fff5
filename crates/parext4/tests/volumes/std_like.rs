//! Makes the same calls on a file of the system, by the standard library, and on a file of a
//! volume, and compares the results.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::{Duration, UNIX_EPOCH};

use parext4::{Error, FileTimes, OpenOptions, RenameMode};
use testkit::volume::scratch;

/// Reads, writes and seeks. Returns what was read and the positions.
fn script<F: Read + Write + Seek>(file: &mut F, other: &mut F) -> (Vec<u8>, Vec<u64>) {
    let mut positions = Vec::new();
    file.write_all(b"0123456789").unwrap();
    positions.push(other.stream_position().unwrap());
    positions.push(other.seek(SeekFrom::Start(2)).unwrap());
    let mut bytes = vec![0; 3];
    file.read_exact(&mut bytes).unwrap();
    positions.push(other.seek(SeekFrom::Current(2)).unwrap());
    file.write_all(b"X").unwrap();
    positions.push(file.seek(SeekFrom::End(3)).unwrap());
    other.write_all(b"end").unwrap();
    assert!(file.seek(SeekFrom::Current(-100)).is_err());
    positions.push(file.stream_position().unwrap());
    file.rewind().unwrap();
    other.read_to_end(&mut bytes).unwrap();
    (bytes, positions)
}

#[test]
fn handles_that_were_cloned_share_a_position() {
    let (volume, dir) = (scratch(), tempfile::tempdir().unwrap());
    let mut options = fs::OpenOptions::new();
    for append in [false, true] {
        options.read(true).write(true).append(append).create(true);
        let mut theirs = options.open(dir.path().join("file")).unwrap();
        let mut other = theirs.try_clone().unwrap();
        let expected = script(&mut theirs, &mut other);
        let ours = OpenOptions::read_write().append(append).create(true);
        let mut ours = volume.open_file("/file", &ours).unwrap();
        let mut other = ours.try_clone().unwrap();
        assert_eq!(script(&mut ours, &mut other), expected, "append {append}");
        fs::remove_file(dir.path().join("file")).unwrap();
        volume.remove_file("/file").unwrap();
    }
}

#[test]
fn times_are_those_that_the_system_stores() {
    let (volume, dir) = (scratch(), tempfile::tempdir().unwrap());
    let theirs = fs::File::create(dir.path().join("file")).unwrap();
    let ours = volume.create_file("/file").unwrap();
    for time in [UNIX_EPOCH, UNIX_EPOCH - Duration::new(5, 7), UNIX_EPOCH + Duration::new(2_000_000_000, 123)]
    {
        theirs.set_times(fs::FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
        ours.set_times(FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
        let (theirs, ours) = (theirs.metadata().unwrap(), ours.metadata());
        assert_eq!(theirs.modified().unwrap(), ours.mtime.into());
        assert_eq!(theirs.accessed().unwrap(), ours.atime.into());
    }
    let before = ours.metadata();
    volume.set_times("/file", FileTimes::new().set_modified(UNIX_EPOCH)).unwrap();
    assert_eq!(ours.metadata().atime, before.atime, "a time that is not given stays");
}

#[test]
fn owners_and_permissions_are_set_through_links_or_not() {
    let volume = scratch();
    volume.write("/file", "text").unwrap();
    volume.symlink("/link", "file").unwrap();
    volume.set_permissions("/link", 0o4711).unwrap();
    volume.chown("/link", None, Some(7)).unwrap();
    volume.lchown("/link", Some(8), None).unwrap();
    let (file, link) = (volume.metadata("/file").unwrap(), volume.symlink_metadata("/link").unwrap());
    assert_eq!((file.permissions, file.uid, file.gid), (0o711, 0, 7), "a new group clears the set-ID bits");
    assert_eq!((link.uid, link.gid), (8, 0));
}

/// Compares with the errors that renameat2(2) documents.
#[test]
fn a_rename_replaces_refuses_or_exchanges() {
    let volume = scratch();
    volume.write("/file", "text").unwrap();
    volume.create_dir("/dir", 0o755).unwrap();
    let rename = |from, to, mode| volume.rename_with(from, to, mode);
    assert!(matches!(rename("/file", "/dir", RenameMode::NoReplace), Err(Error::Exists(_))));
    assert!(matches!(rename("/file", "/missing", RenameMode::Exchange), Err(Error::NotFound(_))));
    assert!(matches!(rename("/file", "/dir", RenameMode::Replace), Err(Error::IsDirectory(_))));
    rename("/file", "/dir/", RenameMode::Exchange).unwrap();
    assert_eq!(volume.read("/dir").unwrap(), b"text");
    assert!(matches!(rename("/file", "/dir/", RenameMode::Exchange), Err(Error::NotDirectory(_))));
    rename("/file/", "/other/", RenameMode::NoReplace).unwrap();
    assert!(volume.exists("/other").unwrap());
}

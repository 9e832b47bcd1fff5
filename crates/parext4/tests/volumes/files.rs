//! Files by path: how they are opened, created and copied, what handles may do, cursors, and walks
//! of trees.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parext4::server::{PageFault, ServerFile};
use parext4::{
    DirectFile, Error, File, FileSize, FileType, IoFlags, IoQueue, IoRequest, OpenOptions, Volume,
};
use testkit::volume::{Shape, untimed};

fn volume() -> Volume {
    Volume::open_device(Arc::new(Shape::new(16, 4096, true).make()), &untimed()).unwrap()
}

fn read() -> OpenOptions {
    OpenOptions::new().read(true)
}

fn write() -> OpenOptions {
    OpenOptions::new().write(true)
}

/// Asserts that an expression is an error of a variant.
macro_rules! fails {
    ($result:expr, $variant:ident) => {
        assert!(matches!($result, Err(Error::$variant { .. })), stringify!($result))
    };
}

#[test]
fn options_create_truncate_and_find_as_in_the_standard_library() {
    let volume = volume();
    fails!(volume.open_file("/f", &write()), NotFound);
    fails!(volume.open_file("/f", &OpenOptions::new()), Invalid);
    fails!(volume.open_file("/f", &read().create(true)), Invalid);
    fails!(volume.open_file("/f", &read().truncate(true)), Invalid);
    fails!(volume.open_file("/f", &OpenOptions::new().append(true).truncate(true)), Invalid);
    assert!(!volume.exists("/f").unwrap());

    let file = volume.open_file("/f", &write().create(true).mode(0o604)).unwrap();
    file.write_all_at(b"contents", 0).unwrap();
    assert_eq!(file.metadata().permissions, 0o604);
    fails!(volume.open_file("/f", &write().create_new(true)), Exists);
    assert_eq!(volume.open_file("/f", &write().create(true)).unwrap().size(), 8);
    assert_eq!(volume.create_file("/f").unwrap().size(), 0);
    assert_eq!(file.metadata().permissions, 0o604, "a file that exists keeps its permissions");

    volume.create_dir("/dir", 0o755).unwrap();
    fails!(volume.open_file("/dir", &read()), IsDirectory);
    fails!(volume.create_file("/dir/"), IsDirectory);
    fails!(volume.open_file("/none/f", &write().create(true)), NotFound);
    for direct in [OpenOptions::new().append(true), write().sync(parext4::SyncMode::Data)] {
        fails!(volume.open_direct("/f", &direct), Invalid);
    }
}

#[test]
fn a_link_at_the_end_of_a_path_leads_to_the_file_that_is_created() {
    let volume = volume();
    volume.create_dir_all("/a/b", 0o755).unwrap();
    volume.symlink("/first", "a/second").unwrap();
    volume.symlink("/a/second", "../a/b/target").unwrap();
    volume.write("/first", "text").unwrap();
    assert_eq!(volume.read_to_string("/a/b/target").unwrap(), "text");
    assert_eq!(volume.symlink_metadata("/first").unwrap().file_type, FileType::Symlink);

    fails!(volume.open_file("/first", &write().create_new(true)), Exists);
    volume.symlink("/loop", "loop").unwrap();
    fails!(volume.open_file("/loop", &write().create(true)), Loop);
}

#[test]
fn a_handle_reads_or_writes_as_it_was_opened() {
    let volume = volume();
    volume.write("/f", vec![7; 8192]).unwrap();
    volume.sync().unwrap();
    let mut buf = [0; 4096];

    let file = volume.open_file("/f", &OpenOptions::read_only()).unwrap();
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 4096);
    fails!(file.write_all_at(&buf, 0), NotOpenFor);
    fails!(file.append(&buf), NotOpenFor);
    fails!(file.set_len(0), NotOpenFor);
    fails!(file.fault(0, PageFault::Store), NotOpenFor);
    fails!(file.direct().write_all_at(&buf, 0), NotOpenFor);
    fails!(file.punch_hole(0..4096), NotOpenFor);
    file.sync_all().unwrap();

    let file = volume.open_file("/f", &write()).unwrap();
    file.write_all_at(&buf, 0).unwrap();
    fails!(file.read_at(&mut buf, 0), NotOpenFor);
    fails!(file.fault(0, PageFault::Load), NotOpenFor);
    fails!(file.direct().read_at(&mut buf, 0), NotOpenFor);

    let direct = volume.open_direct("/f", &read()).unwrap();
    assert_eq!(direct.read_at(&mut buf, 0).unwrap(), 4096);
    fails!(direct.write_all_at(&buf, 0), NotOpenFor);
    fails!(direct.buffered().unwrap().write_all_at(&buf, 0), NotOpenFor);
    fails!(direct.allocate(0..4096, FileSize::Extend), NotOpenFor);
    assert_eq!(Error::NotOpenFor("writing").to_errno(), 9, "EBADF");

    let mut queue = volume.io_queue(4);
    let buf = || parext4::AlignedBuf::zeroed(4096);
    let writing = IoRequest::Write { buf: buf(), len: 4096, offset: 0 };
    fails!(one(&mut queue, &direct, writing), NotOpenFor);
    let reading = || IoRequest::Read { buf: buf(), len: 4096, offset: 0 };
    assert_eq!(one(&mut queue, &direct, reading()).unwrap(), 4096);
    fails!(one(&mut queue, &volume.open_direct("/f", &write()).unwrap(), reading()), NotOpenFor);
}

/// Executes one operation in a queue.
fn one(queue: &mut IoQueue, file: &DirectFile, request: IoRequest) -> parext4::Result<u64> {
    queue.submit(file, request, 0, IoFlags::new());
    let mut done = Vec::new();
    queue.harvest(&mut done).unwrap();
    done.remove(0).result
}

#[test]
fn a_file_to_write_does_not_open_on_a_read_only_volume() {
    let device = Arc::new(Shape::new(16, 4096, true).make());
    let first = Volume::open_device(Arc::clone(&device) as _, &untimed()).unwrap();
    first.write("/f", "text").unwrap();
    first.close().unwrap();
    let volume = untimed().read_only(true).open_device(device).unwrap();
    assert!(volume.is_read_only());
    fails!(volume.open_file("/f", &write()), ReadOnly);
    fails!(volume.create_file("/g"), ReadOnly);
    assert_eq!(volume.read("/f").unwrap(), b"text");
}

#[test]
fn a_cursor_reads_writes_and_seeks() {
    let volume = volume();
    let file = volume.open_file("/f", &OpenOptions::read_write().create(true)).unwrap();
    let mut cursor = file.cursor();
    assert_eq!(cursor.write(b"0123456789").unwrap(), 10);
    cursor.flush().unwrap();
    assert_eq!(cursor.seek(SeekFrom::End(-4)).unwrap(), 6);
    let mut text = String::new();
    cursor.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), cursor.position()), ("6789", 10));
    assert_eq!(cursor.seek(SeekFrom::Current(-9)).unwrap(), 1);
    assert_eq!(cursor.seek(SeekFrom::Current(-2)).unwrap_err().kind(), ErrorKind::InvalidInput);
    cursor.write_all(b"ab").unwrap();
    assert_eq!(volume.read("/f").unwrap(), b"0ab3456789");

    // Two cursors of one file have positions of their own.
    let (mut one, mut other) = (file.cursor(), File::clone(&file).into_cursor());
    let mut byte = [0];
    one.seek(SeekFrom::Start(9)).unwrap();
    one.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"9");
    other.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"0");
    assert_eq!(one.read_exact(&mut byte).unwrap_err().kind(), ErrorKind::UnexpectedEof);

    // In append mode the position of a write is the end of the file.
    let log = volume.open_file("/f", &OpenOptions::new().append(true)).unwrap();
    let mut cursor = log.into_cursor();
    cursor.write_all(b"!").unwrap();
    assert_eq!(cursor.position(), 11);
    let refused = cursor.read(&mut byte).unwrap_err();
    assert!(refused.get_ref().and_then(|e| e.downcast_ref()).is_some_and(|e: &Error| e.to_errno() == 9));
}

#[test]
fn an_exact_read_fails_at_the_end_of_the_file() {
    let volume = volume();
    volume.write("/f", [1; 4096]).unwrap();
    let mut buf = [0; 1000];
    let file = volume.open_file("/f", &OpenOptions::read_only()).unwrap();
    file.read_exact_at(&mut buf, 3096).unwrap();
    fails!(file.read_exact_at(&mut buf, 3097), UnexpectedEof);
    let direct = volume.open_direct("/f", &OpenOptions::read_write()).unwrap();
    direct.write_all_at(&[2; 4096], 0).unwrap();
    direct.read_exact_at(&mut [0; 4096], 0).unwrap();
    fails!(direct.read_exact_at(&mut [0; 8192], 0), UnexpectedEof);
}

#[test]
fn whole_files_are_read_written_and_copied() {
    let volume = volume();
    // Lengths around the chunks of a copy.
    for len in [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1] {
        let bytes: Vec<u8> = (0..len).map(|at: usize| (at % 251) as u8).collect();
        volume.write("/from", &bytes).unwrap();
        assert!(volume.read("/from").unwrap() == bytes);
        assert_eq!(volume.copy("/from", "/to").unwrap(), len as u64);
        assert!(volume.read("/to").unwrap() == bytes);
    }
    let options = write().create_new(true).mode(0o750);
    volume.open_file("/program", &options).unwrap().write_all_at(b"#!", 0).unwrap();
    assert_eq!(volume.copy("/program", "/to").unwrap(), 2);
    assert_eq!(volume.read("/to").unwrap(), b"#!");
    assert_eq!(volume.metadata("/to").unwrap().permissions, 0o750);

    volume.hard_link("/to", "/again").unwrap();
    fails!(volume.copy("/to", "/again"), Invalid);
    assert_eq!(volume.read("/to").unwrap(), b"#!");
    volume.write("/binary", [0xff]).unwrap();
    fails!(volume.read_to_string("/binary"), Invalid);
}

/// Makes a tree of three levels, with links.
fn tree(volume: &Volume) -> BTreeSet<PathBuf> {
    volume.create_dir_all("/top/dir/deep", 0o755).unwrap();
    volume.create_dir("/outside", 0o755).unwrap();
    volume.write("/outside/kept", "kept").unwrap();
    for file in ["/top/a", "/top/dir/b", "/top/dir/deep/c"] {
        volume.write(file, file).unwrap();
    }
    volume.symlink("/top/dir/up", "/top").unwrap();
    volume.symlink("/top/out", "/outside").unwrap();
    let below = ["a", "dir", "dir/b", "dir/deep", "dir/deep/c", "dir/up", "out"];
    below.into_iter().map(|name| Path::new("/top").join(name)).collect()
}

#[test]
fn a_walk_meets_each_entry_once_and_follows_no_link() {
    let volume = volume();
    let expected = tree(&volume);
    let mut seen = BTreeSet::new();
    for entry in volume.walk("/top").unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.path(), entry.dir_path().join(entry.file_name()));
        assert_eq!(entry.metadata().unwrap().file_type, entry.file_type());
        assert_eq!(entry.metadata().unwrap().ino, entry.ino());
        assert!(entry.dir_path() == Path::new("/top") || seen.contains(&entry.dir_path()), "depth first");
        assert!(seen.insert(entry.path()));
    }
    assert_eq!(seen, expected);
    fails!(volume.walk("/top/a"), NotDirectory);
    let names: BTreeSet<_> =
        volume.read_dir("/top").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a", "dir", "out"].map(Into::into).into());
}

#[test]
fn a_walk_goes_on_while_directories_are_removed() {
    let volume = volume();
    tree(&volume);
    let mut seen = 0;
    for entry in volume.walk("/top").unwrap() {
        let entry = entry.unwrap();
        if entry.file_type() == FileType::Directory {
            volume.remove_dir_all(entry.path()).unwrap();
        }
        seen += 1;
    }
    assert_eq!(seen, 3);
}

#[test]
fn a_removed_tree_leaves_what_its_links_lead_to() {
    let volume = volume();
    tree(&volume);
    fails!(volume.remove_dir_all("/top/a"), NotDirectory);
    fails!(volume.remove_dir_all("/top/out"), NotDirectory);
    volume.remove_dir_all("/top").unwrap();
    assert!(!volume.exists("/top").unwrap());
    assert_eq!(volume.read("/outside/kept").unwrap(), b"kept");
    fails!(volume.remove_dir_all("/top"), NotFound);
}

//! Queues on plain files that grow, and properties of files that other devices lack.

use super::*;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Runs `test` on a queue on a new, empty file, through the page cache and directly.
fn on_files(test: impl Fn(&mut dyn Queue, &Path)) {
    for direct in [false, true] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("file");
        match open_file_queue(open(&path), 4, direct) {
            Ok(mut queue) => test(&mut *queue, &path),
            Err(error) => device_testkit::skip_allowed(&format!("with direct {direct}: {error}")),
        }
    }
}

#[test]
fn a_file_grows_with_its_writes() {
    on_files(|queue, path| {
        for token in (0..64).rev() {
            queue.submit(write(token, token * 8192, &pattern(token as u8, 8192)));
        }
        finish(queue).into_iter().for_each(|done| done.result.unwrap());
        succeed(queue, flush(1));
        assert_eq!(path.metadata().unwrap().len(), 64 * 8192);
        for token in 0..64 {
            assert!(bytes(&one(queue, read(token, token * 8192, 8192))) == &pattern(token as u8, 8192)[..]);
        }
    });
}

#[test]
fn a_read_past_the_end_of_a_file_fails() {
    on_files(|queue, path| {
        let kind = |done: Done| done.result.unwrap_err().kind();
        assert_eq!(kind(one(queue, read(1, 0, 4096))), ErrorKind::UnexpectedEof);
        for len in [4096, 5000] {
            open(path).set_len(len).unwrap();
            succeed(queue, read(1, 0, 4096));
            assert_eq!(kind(one(queue, read(1, 0, 8192))), ErrorKind::UnexpectedEof);
            assert_eq!(kind(one(queue, read(1, 8192, 4096))), ErrorKind::UnexpectedEof);
        }
    });
}

#[test]
fn through_the_page_cache_bytes_are_the_unit() {
    let dir = TempDir::new().unwrap();
    let mut queue = open_file_queue(open(&dir.path().join("file")), 4, false).unwrap();
    let segment = Segment { buf: Arc::new(pattern(1, 512)), start: 3, len: 100 };
    let want = segment.bytes().unwrap().to_vec();
    let op = Op::Write { offset: 7, segments: [segment].into_iter().collect() };
    succeed(&mut *queue, Request { token: 1, op });
    assert_eq!(bytes(&one(&mut *queue, read(2, 7, 100))), want);
}

#[test]
fn a_read_only_file_is_not_written() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    let device = FileDevice::open(&path, &DeviceOptions::new().read_only(true)).unwrap();
    let mut queue = open_queue(&(Arc::new(device) as Arc<dyn Device>), 4);
    let error = one(&mut *queue, write(1, 0, &[1; 4096])).result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    succeed(&mut *queue, flush(2));
    succeed(&mut *queue, read(3, 0, 4096));
}

#[test]
fn a_volume_inside_a_file_stays_there() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    let device = FileDevice::open(&path, &DeviceOptions::new().offset(64 << 10).len(64 << 10)).unwrap();
    let mut queue = open_queue(&(Arc::new(device) as Arc<dyn Device>), 4);
    succeed(&mut *queue, write(1, (64 << 10) - 4096, &[1; 4096]));
    assert!(one(&mut *queue, write(1, 64 << 10, &[1; 4096])).result.is_err());
    assert!(bytes(&one(&mut *queue, read(1, (64 << 10) - 4096, 4096))) == [1; 4096]);
    drop(queue);
    let bytes = std::fs::read(&path).unwrap();
    let written: Vec<usize> = (0..bytes.len()).filter(|&index| bytes[index] != 0).collect();
    assert_eq!((written[0], written.len()), ((128 << 10) - 4096, 4096));
}

#[test]
fn a_file_truncated_by_another_program_is_an_error() {
    let (dir, device) = image(Direct::Never).unwrap();
    let mut queue = open_queue(&device, 4);
    open(&dir.path().join("image")).set_len(8192).unwrap();
    let error = one(&mut *queue, read(1, 4096, 8192)).result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_volume_can_be_opened_again_after_its_queue_was_dropped() {
    let again = |path: &Path| {
        for round in 0..50 {
            let device: Arc<dyn Device> = Arc::new(FileDevice::open(path, &DeviceOptions::new()).unwrap());
            let mut queue = open_queue(&device, 8);
            (0..4).for_each(|token| queue.submit(write(token, token * 4096, &pattern(round, 4096))));
            (4..8).for_each(|token| queue.submit(flush(token)));
            if round % 2 == 0 {
                finish(&mut *queue);
            }
        }
    };
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    again(&path);
    if let Some(lo) = Loop::attach(SIZE) {
        again(Path::new(&lo.path));
    }
}

//! Queues of operations on files whose contents lie in the inode.

use std::sync::Arc;

use parext4::device::AlignedBuf;
use parext4::{Completion, Error, IoFlags, IoQueue, IoRequest};
use testkit::volume::{DirectFiles as _, assert_clean};

use super::{new_volume, open};

const ALL: u64 = 200;

fn buf(byte: u8, len: usize) -> AlignedBuf {
    AlignedBuf::from_slice(&vec![byte; len])
}

fn harvest(queue: &mut IoQueue) -> Vec<Completion> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.harvest(&mut done).unwrap();
    }
    done
}

#[test]
fn appends_keep_their_order_while_the_contents_move() {
    let device = Arc::new(new_volume(1024));
    let volume = open(&device);
    let file = volume.create_direct("/file").unwrap();
    let mut queue = volume.io_queue(32);
    for token in 0..ALL {
        let byte = u8::try_from(token % 250 + 1).unwrap();
        queue.submit(&file, IoRequest::Append { buf: buf(byte, 512), len: 512 }, token, IoFlags::new());
    }
    let done = harvest(&mut queue);
    for Completion { token, result, .. } in done {
        assert_eq!(result.unwrap(), token * 512);
    }
    drop((queue, file));
    let contents = volume.read("/file").unwrap();
    for (token, sector) in (0..ALL).zip(contents.chunks(512)) {
        assert!(sector.iter().all(|&byte| u64::from(byte) == token % 250 + 1), "{token}");
    }
    volume.close().unwrap();
    assert_clean(&device, "appends");
}

#[test]
fn small_writes_stay_in_the_inode() {
    let device = Arc::new(new_volume(256));
    let volume = open(&device);
    let file = volume.create_direct("/file").unwrap();
    let mut queue = volume.io_queue(4);
    let write = |len| IoRequest::Write { buf: buf(7, 512), len, offset: 0 };
    queue.submit(&file, write(100), 1, IoFlags::new().nowait(true));
    assert!(matches!(harvest(&mut queue)[0].result, Err(Error::WouldBlock(_))));
    queue.submit(&file, write(100), 2, IoFlags::new());
    let done = harvest(&mut queue);
    assert_eq!((*done[0].result.as_ref().unwrap(), done[0].buf.as_ref().unwrap().len()), (100, 512));
    assert!(file.fiemap(0..1).unwrap()[0].inline);
    for nowait in [false, true] {
        let read = IoRequest::Read { buf: buf(0, 512), len: 512, offset: 0 };
        queue.submit(&file, read, 3, IoFlags::new().nowait(nowait));
        let done = harvest(&mut queue);
        assert_eq!(*done[0].result.as_ref().unwrap(), 100);
        assert_eq!(done[0].buf.as_ref().unwrap()[..100], [7; 100]);
    }
    queue.submit(&file, write(512), 4, IoFlags::new());
    queue.submit(&file, IoRequest::SyncAll, 5, IoFlags::new());
    assert!(harvest(&mut queue).iter().all(|completion| completion.result.is_ok()));
    assert!(!file.fiemap(0..1).unwrap()[0].inline);
    // A queue that is dropped with writes in flight leaves a sound volume.
    let other = volume.create_direct("/other").unwrap();
    for token in 0..8 {
        queue.submit(&other, write(50), token, IoFlags::new());
    }
    drop((queue, file, other));
    assert_eq!(volume.read("/file").unwrap(), [7; 512]);
    volume.close().unwrap();
    assert_clean(&device, "writes");
}

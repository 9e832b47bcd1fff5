//! The operations of queues, on every back end.

use std::sync::Arc;

use parext4::{DirectFile, FileSize, IoQueue, IoRequest};
use testkit::device::RemoteDevice;

use super::test_volume::{Kind, TestVolume, WAIT, append, contents, harvest_all, one, read, write};
use testkit::rng::Rng;
use testkit::volume::DirectFiles as _;

const BLOCK: usize = 4096;

/// Writes with many operations in flight. Each completion returns the operation's own buffer,
/// unchanged.
fn write_pieces(queue: &mut IoQueue, file: &DirectFile, pieces: &[(u64, Vec<u8>)]) {
    let mut addresses = Vec::new();
    for (token, (offset, bytes)) in (0..).zip(pieces) {
        let request = write(bytes, *offset);
        if let IoRequest::Write { buf, .. } = &request {
            addresses.push(buf.as_ptr().addr());
        }
        queue.submit(file, request, token, WAIT);
    }
    assert_eq!(queue.in_flight(), pieces.len());
    let done = harvest_all(queue);
    assert_eq!(done.len(), pieces.len());
    for ((completion, (_, bytes)), address) in done.iter().zip(pieces).zip(addresses) {
        assert_eq!(*completion.result.as_ref().unwrap(), bytes.len() as u64);
        let buf = completion.buf.as_ref().unwrap();
        assert_eq!((buf.as_ptr().addr(), &buf[..bytes.len()]), (address, &bytes[..]));
    }
}

/// Returns pieces that do not overlap, in random order, some shorter than a block.
fn pieces(rng: &mut Rng) -> Vec<(u64, Vec<u8>)> {
    let mut pieces = Vec::new();
    let mut sector = 0;
    for number in 1..=60_u8 {
        sector += rng.below(6);
        let sectors = rng.log_uniform(40);
        pieces.push((sector * 512, vec![number; usize::try_from(sectors * 512).unwrap()]));
        sector += sectors;
    }
    for last in (1..pieces.len()).rev() {
        pieces.swap(last, usize::try_from(rng.below(last as u64 + 1)).unwrap());
    }
    pieces
}

fn model(pieces: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut model = Vec::new();
    for (offset, bytes) in pieces {
        let offset = usize::try_from(*offset).unwrap();
        model.resize(model.len().max(offset + bytes.len()), 0);
        model[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    model
}

#[test]
fn many_operations_are_in_flight_at_once() {
    for (kind, block_size) in Kind::ALL.into_iter().zip([1024, 4096, 2048, 4096, 1024]) {
        let mut test = TestVolume::new(kind, block_size);
        let file = test.volume.create_direct("/file").unwrap();
        let mut queue = test.volume.io_queue(8);
        let pieces = pieces(&mut Rng::new(7, 0));
        write_pieces(&mut queue, &file, &pieces);
        let want = model(&pieces);
        assert!(contents(&file) == want, "{kind:?}: the blocking read finds something else");

        for (token, (offset, bytes)) in (0..).zip(&pieces) {
            queue.submit(&file, read(bytes.len(), *offset), token, WAIT);
        }
        for (completion, (_, bytes)) in harvest_all(&mut queue).iter().zip(&pieces) {
            assert_eq!(*completion.result.as_ref().unwrap(), bytes.len() as u64);
            assert!(completion.buf.as_ref().unwrap()[..bytes.len()] == bytes[..], "{kind:?}: a read");
        }
        assert_eq!(one(&mut queue, &file, IoRequest::SyncData, WAIT).result.unwrap(), 0);
        assert_eq!(one(&mut queue, &file, IoRequest::SyncAll, WAIT).result.unwrap(), 0);
        drop((queue, file));
        test.reopen();
        assert!(contents(&test.volume.direct_file("/file").unwrap()) == want, "{kind:?}: another open");
        test.close();
    }
}

#[test]
fn a_device_outside_its_crate_serves_operations_by_its_own_queue() {
    let mut device = None;
    let test = TestVolume::under(4096, |memory| {
        let remote = Arc::new(RemoteDevice::new(memory));
        device.insert(remote).clone()
    });
    let device = device.unwrap();
    let file = test.volume.create_direct("/file").unwrap();
    let mut queue = test.volume.io_queue(8);
    let before = device.queued();
    write_pieces(&mut queue, &file, &[(0, vec![1; BLOCK]), (1 << 20, vec![2; BLOCK])]);
    assert_eq!(device.queued() - before, 2);
    drop((queue, file));
    test.close();
}

#[test]
fn appends_follow_each_other_in_the_order_of_submission() {
    for kind in Kind::ALL {
        let test = TestVolume::new(kind, 1024);
        let file = test.volume.create_direct("/file").unwrap();
        let mut queue = test.volume.io_queue(4);
        let records: Vec<Vec<u8>> =
            (1..=40_u8).map(|number| vec![number; 512 * (1 + usize::from(number % 5))]).collect();
        for (token, record) in (0..).zip(&records) {
            queue.submit(&file, append(record), token, WAIT);
        }
        let mut end = 0;
        for (completion, record) in harvest_all(&mut queue).iter().zip(&records) {
            assert_eq!(*completion.result.as_ref().unwrap(), end, "{kind:?}");
            assert!(completion.buf.as_ref().unwrap()[..] == record[..]);
            end += record.len() as u64;
        }
        assert!(contents(&file) == records.concat(), "{kind:?}");
        drop((queue, file));
        test.close();
    }
}

/// Returns the byte that fills all of `bytes`.
fn only(bytes: &[u8]) -> u8 {
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "bytes of two writes");
    bytes[0]
}

#[test]
fn overlapping_operations_take_effect_in_order() {
    for kind in Kind::ALL {
        let test = TestVolume::new(kind, 4096);
        let file = test.volume.create_direct("/file").unwrap();
        let mut queue = test.volume.io_queue(16);
        let len = 16 * BLOCK;
        one(&mut queue, &file, write(&vec![1; len], 0), WAIT).result.unwrap();
        for round in 0..10_u8 {
            for number in 0..8 {
                queue.submit(&file, write(&vec![1 + round * 8 + number; len], 0), 0, WAIT);
                queue.submit(&file, read(len, 0), 1, WAIT);
                // These partly overlap the earlier ones.
                queue.submit(&file, write(&vec![200; 512], (len + 512) as u64), 0, WAIT);
            }
            for completion in harvest_all(&mut queue) {
                completion.result.unwrap();
                only(&completion.buf.unwrap());
            }
            assert_eq!(only(&contents(&file)[..len]), 8 + round * 8, "{kind:?}: the last submitted");
        }
        drop((queue, file));
        test.close();
    }
}

#[test]
fn one_request_covers_many_extents() {
    for kind in Kind::ALL {
        let test = TestVolume::new(kind, 1024);
        let (file, other) =
            (test.volume.create_direct("/a").unwrap(), test.volume.create_direct("/b").unwrap());
        // Blocks far apart, of alternating states.
        for block in (0..24_u64).rev() {
            if block % 3 != 0 {
                file.allocate(block * 1024..block * 1024 + 1024, FileSize::Extend).unwrap();
            }
            other.append(&[9; 1024]).unwrap();
            if block % 3 == 2 {
                file.write_all_at(&[5; 1024], block * 1024).unwrap();
            }
        }
        let mut want: Vec<u8> = (0..24 * 1024).map(|at| if at / 1024 % 3 == 2 { 5 } else { 0 }).collect();
        let mut queue = test.volume.io_queue(4);
        let seen = one(&mut queue, &file, read(want.len(), 0), WAIT);
        assert_eq!(seen.result.unwrap(), want.len() as u64);
        assert!(seen.buf.unwrap()[..] == want[..], "{kind:?}: read");

        let bytes: Vec<u8> = (0..20 * 1024).map(|at: usize| 100 + (at / 512) as u8).collect();
        let done = one(&mut queue, &file, write(&bytes, 512), WAIT);
        assert_eq!(done.result.unwrap(), bytes.len() as u64);
        assert!(done.buf.unwrap()[..] == bytes[..]);
        want[512..512 + bytes.len()].copy_from_slice(&bytes);
        assert!(contents(&file) == want, "{kind:?}: written");
        drop((queue, file, other));
        test.close();
    }
}

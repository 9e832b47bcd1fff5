//! Requests that begin or end inside blocks and sectors, on a device full of stale bytes.

use parext4::{FileSize, IoRequest, device::AlignedBuf};

use super::test_volume::{Kind, TestVolume, WAIT, append, buffer, contents, harvest_all, one, read, write};
use testkit::volume::DirectFiles as _;

#[test]
fn reads_cross_holes_unwritten_blocks_and_the_end_inside_a_sector() {
    for kind in Kind::ALL {
        let test = TestVolume::new(kind, 1024);
        let file = test.volume.create_direct("/file").unwrap();
        file.write_all_at(&[1; 1024], 0).unwrap();
        file.allocate(2048..3072, FileSize::Extend).unwrap();
        file.write_all_at(&[3; 1024 + 700], 3072).unwrap();
        let mut want = vec![1; 1024];
        want.extend([0; 2048]);
        want.extend([3; 1724]);
        assert_eq!(file.size(), want.len() as u64);

        let mut queue = test.volume.io_queue(16);
        for (token, sector) in (0..10).enumerate() {
            for len in [512, 700, 1024, 1724, 3072, 4096, 4796, 5120, 8192] {
                queue.submit(&file, read(len, sector * 512), (token * 10_000 + len) as u64, WAIT);
            }
        }
        for completion in harvest_all(&mut queue) {
            let token = usize::try_from(completion.token).unwrap();
            let (start, len) = (token / 10_000 * 512, token % 10_000);
            let end = want.len().min(start + len);
            let buf = completion.buf.unwrap();
            if start + len < want.len() && len % 512 != 0 {
                assert!(
                    matches!(completion.result, Err(parext4::Error::Invalid(_))),
                    "{kind:?}: {start} {len}"
                );
                continue;
            }
            assert_eq!(
                completion.result.unwrap(),
                (end.max(start) - start) as u64,
                "{kind:?}: {start} {len}"
            );
            assert!(buf[..end - start] == want[start..end], "{kind:?}: bytes {start}, {len}");
            let behind = &buf[end - start..];
            assert!(
                behind.iter().all(|byte| [0, 0xee].contains(byte)),
                "{kind:?}: {start} {len}: stale bytes past the end"
            );
        }
        drop((queue, file));
        test.close();
    }
}

/// A read returns none of the device's bytes past the end, whether it stops at the end of the file
/// or past it.
#[test]
fn a_read_of_an_odd_length_leaves_the_rest_of_the_buffer_alone() {
    for kind in Kind::ALL {
        let test = TestVolume::new(kind, 4096);
        let file = test.volume.create_direct("/file").unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        // The rest of the sector keeps its old contents.
        file.set_len(4096).unwrap();
        file.write_all_at(&[2; 8192], 4096).unwrap();
        let mut queue = test.volume.io_queue(4);
        file.set_len(4096 + 100).unwrap();
        for len in [4096 + 100, 100] {
            let mut buf = AlignedBuf::from_slice(&[0xee; 8192]);
            buf[..len].fill(0);
            let offset = 4196 - len as u64;
            let done = one(&mut queue, &file, IoRequest::Read { buf, len, offset }, WAIT);
            assert_eq!(done.result.unwrap(), len as u64);
            let buf = done.buf.unwrap();
            assert!(buf[len..].iter().all(|byte| [0, 0xee].contains(byte)), "{kind:?}: {len}");
            assert!(buf[len.next_multiple_of(512)..].iter().all(|&byte| byte == 0xee), "{kind:?}: {len}");
        }
        drop((queue, file));
        test.close();
    }
}

#[test]
fn writes_end_the_file_anywhere() {
    for kind in Kind::ALL {
        for block_size in [1024, 4096] {
            let test = TestVolume::new(kind, block_size);
            let mut queue = test.volume.io_queue(8);
            for (number, (offset, len)) in
                [(0, 1), (512, 513), (1536, 700), (512, 5000), (3072, 4099)].into_iter().enumerate()
            {
                let file = test.volume.create_direct(format!("/{number}")).unwrap();
                let done = one(&mut queue, &file, write(&vec![7; len], offset), WAIT);
                assert_eq!(done.result.unwrap(), len as u64);
                let mut want = vec![0; usize::try_from(offset).unwrap()];
                want.extend(vec![7; len]);
                assert!(contents(&file) == want, "{kind:?}: {offset} {len}");
                // Past the end every reader finds zeros.
                let size = want.len().next_multiple_of(512) + 512;
                file.set_len(size as u64).unwrap();
                want.resize(size, 0);
                assert!(contents(&file) == want, "{kind:?}: {offset} {len}, longer");
                one(&mut queue, &file, append(&[8; 300]), WAIT).result.unwrap();
                want.extend([8; 300]);
                assert!(contents(&file) == want, "{kind:?}: {offset} {len}, appended to");
            }
            drop(queue);
            test.close();
        }
    }
}

/// A buffer may be longer than the part of it that is written.
#[test]
fn only_the_first_bytes_of_a_buffer_count() {
    let test = TestVolume::new(Kind::Threads, 1024);
    let file = test.volume.create_direct("/file").unwrap();
    let mut queue = test.volume.io_queue(2);
    let mut bytes = vec![4; 4096];
    bytes[1500..].fill(6);
    let done = one(&mut queue, &file, IoRequest::Write { buf: buffer(&bytes), len: 1500, offset: 512 }, WAIT);
    assert!(done.result.is_ok() && done.buf.unwrap()[..] == bytes[..]);
    let done = one(&mut queue, &file, IoRequest::Append { buf: buffer(&[5; 512]), len: 0 }, WAIT);
    assert_eq!(done.result.unwrap(), 2012);
    assert!(contents(&file)[512..] == [4; 1500]);
    drop((queue, file));
    test.close();
}

//! Files whose contents lie in the inode, while they change there and move to a block.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use parext4::fault::Fault;
use parext4::{Device, FileSize, MemDevice, MkfsOptions, mkfs};

use super::support::*;
use testkit::volume::DirectFiles as _;

/// Returns a volume with inline_data on a device of stale bytes.
fn inline_image() -> MemDevice {
    let device = MemDevice::new(4 << 20);
    device.write_at(0, &[IoSlice::new(&vec![STALE; 4 << 20])]).expect("memory takes writes");
    mkfs(&device, &MkfsOptions::new().block_size(1024).features("inline_data").expect("a feature"))
        .expect("mkfs");
    device
}

#[test]
fn a_read_sees_contents_in_the_inode_whole() {
    let image = inline_image();
    check(200, &[Fault::InlineUnheld], move |_| {
        let volume = volume(&image);
        let file = volume.create_direct("/f").unwrap();
        file.buffered().unwrap().write_all_at(&[1; 40], 0).unwrap();
        race(
            &file,
            |f| {
                let f = f.buffered().unwrap();
                f.write_all_at(&[2; 40], 0).unwrap();
                // The inode has room for 128 bytes.
                f.write_all_at(&[3; 400], 0).unwrap();
            },
            |f| {
                let f = f.buffered().unwrap();
                for _ in 0..3 {
                    let (mut one, mut two) = ([0; 20], [0; 20]);
                    let read =
                        f.read_vectored_at(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)], 0);
                    assert_eq!(read.unwrap(), 40);
                    let all = [one, two].concat();
                    assert!(matches!(all[0], 1..=3) && all.iter().all(|&byte| byte == all[0]), "{all:?}");
                }
            },
        );
    });
}

#[test]
fn contents_that_leave_the_inode_are_in_their_block() {
    let image = inline_image();
    check(100, &[Fault::MovedUnwritten], move |_| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        file.buffered().unwrap().write_all_at(&[1; 40], 0).unwrap();
        race(&file, |f| f.allocate(0..4096, FileSize::Keep).unwrap(), |f| f.set_len(30).unwrap());
        file.sync_all().unwrap();
        let (_volume, file) = after_crash(&device, "/f");
        let mut bytes = [0; 512];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 30);
        assert_eq!(bytes[..30], [1; 30]);
    });
}

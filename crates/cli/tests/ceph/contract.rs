//! The contracts of `Device` and `Queue`, on images.

use std::num::NonZeroU64;

use parext4::device::Sharing;
use parext4::device::open_queue;
use testkit::device_contract::{
    QUEUE_CHECKS, SIZE, pattern, refuses_bad_requests, threads_do_not_disturb_each_other,
};

use super::*;

#[test]
fn queues_keep_their_contract() {
    let Some(cluster) = running() else { return };
    for (name, check) in QUEUE_CHECKS {
        let device = cluster.create(name, SIZE);
        assert!(format!("{:?}", open_queue(&device, 1)).starts_with("RbdQueue"));
        check(&device);
    }
}

#[test]
fn devices_keep_their_contract() {
    let Some(cluster) = running() else { return };
    let device = cluster.create("contract", 16 << 20);
    assert_eq!((device.size(), device.sector_size(), device.read_only()), (16 << 20, 512, false));
    assert_eq!((device.sharing(), device.object_size()), (Sharing::Fenced, NonZeroU64::new(4 << 20)));
    refuses_bad_requests(&*device);
    threads_do_not_disturb_each_other(&*device);
    // A request across objects, in buffers of odd lengths.
    let data = pattern(3, 6 << 20);
    let (first, rest) = data.split_at((1 << 20) + 13);
    device.write_at(3 << 20, &[IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(rest)]).unwrap();
    device.flush().unwrap();
    assert!(read(&*device, 3 << 20, 6 << 20).unwrap() == data[..]);
    device.discard(4 << 20, 4 << 20).unwrap();
    assert!(read(&*device, 4 << 20, 4 << 20).unwrap().iter().all(|&byte| byte == 0));
    let reader = cluster.reader("contract");
    assert!(read(&*reader, 3 << 20, 1 << 20).unwrap() == data[..1 << 20]);
    assert_eq!(write(&*reader, 0, &[0; 512]).unwrap_err().raw_os_error(), Some(30));
    assert_eq!(reader.sharing(), Sharing::Unfenced);
}

#[test]
fn a_part_of_an_image_is_a_device() {
    let Some(cluster) = running() else { return };
    let whole = cluster.create("part", 16 << 20);
    write(&*whole, 1 << 20, &[7; 4096]).unwrap();
    drop(whole);
    let part =
        |offset, len| open_device(cluster.tenant("part"), &DeviceOptions::new().offset(offset).len(len));
    let device = part(1 << 20, Some(4 << 20)).unwrap();
    assert_eq!((device.size(), device.object_size()), (4 << 20, None));
    assert!(read(&*device, 0, 4096).unwrap().iter().all(|&byte| byte == 7));
    drop(device);
    for (offset, len) in [(100, None), (32 << 20, None), (1 << 20, Some(16 << 20))] {
        assert_eq!(part(offset, len).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn striped_images_report_the_stripe_unit() {
    let Some(cluster) = running() else { return };
    let words = "create striped --size 16M --object-size 4M --stripe-unit 65536 --stripe-count 4";
    cluster.rbd(&words.split(' ').collect::<Vec<_>>()).unwrap();
    let device = cluster.open("striped").unwrap();
    assert_eq!(device.object_size(), NonZeroU64::new(65536));
    let data = pattern(1, 1 << 20);
    write(&*device, 4096, &data).unwrap();
    assert!(read(&*device, 4096, 1 << 20).unwrap() == data[..]);
}

#[test]
fn errors_name_the_image_and_what_to_do() {
    let Some(cluster) = running() else { return };
    drop(cluster.create("exists", 8 << 20));
    let options = DeviceOptions::new();
    let cases = [
        (
            cluster.tenant("none"),
            options.clone(),
            io::ErrorKind::NotFound,
            "`parext4 mkfs --size` creates one",
        ),
        (
            cluster.tenant("exists"),
            options.clone().create(16 << 20),
            io::ErrorKind::AlreadyExists,
            "8388608 bytes, fewer than 16777216",
        ),
        (
            cluster.tenant("exists@no"),
            options.clone(),
            io::ErrorKind::ReadOnlyFilesystem,
            "open it read-only",
        ),
        (
            cluster.url_of_user("exists", "stranger"),
            options.clone(),
            io::ErrorKind::PermissionDenied,
            "keyring",
        ),
        ("rbd:a/b?conf=/none".to_owned(), options, io::ErrorKind::NotFound, "cannot read /none"),
    ];
    for (url, options, kind, hint) in cases {
        let error = open_device(&url, &options).unwrap_err();
        let text = error.to_string();
        assert!(error.kind() == kind && text.starts_with(&url) && text.contains(hint), "{kind}: {text}");
    }
}

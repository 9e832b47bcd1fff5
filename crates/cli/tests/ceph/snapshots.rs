//! Snapshots and clones, opened read-only while the owner of the image writes.

use std::time::Duration;

use parext4::device::Sharing;
use parext4::mmp::MmpOptions;
use parext4::{MkfsOptions, Volume, VolumeOptions, mkfs};

use super::*;

#[test]
fn what_does_not_exist_is_named() {
    let Some(cluster) = running() else { return };
    drop(cluster.create("named", 16 << 20));
    let reader = DeviceOptions::new().read_only(true);
    let cases = [
        ("named@monday", &reader, "no snapshot \"monday\""),
        ("nowhere/named", &reader, "no namespace \"nowhere\""),
        ("nowhere/named", &DeviceOptions::new().create(16 << 20), "no namespace \"nowhere\""),
        ("unnamed@monday", &reader, "no such image"),
        ("unnamed", &reader, "no such image"),
    ];
    for (image, options, expected) in cases {
        let error = open_device(cluster.tenant(image), options).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains(expected), "{image}: {error}");
    }
    let keyring = cluster.dir().join("none.keyring");
    let url = format!("{}&keyring={}", cluster.tenant("named"), keyring.display());
    let error = open_device(url, &reader).unwrap_err().to_string();
    assert!(error.contains(&format!("is the user's key in {}?", keyring.display())), "{error}");
}

#[test]
fn a_snapshot_and_a_clone_are_read_while_the_owner_writes() {
    let Some(cluster) = running() else { return };
    let device = cluster.create("live", 64 << 20);
    mkfs(&*device, &MkfsOptions::new()).unwrap();
    let volume = Volume::open_device(Arc::clone(&device), &VolumeOptions::new()).unwrap();
    volume.write("/before", "one").unwrap();
    volume.sync().unwrap();
    cluster.rbd(&["snap", "create", "live@monday"]).unwrap();
    cluster.rbd(&["snap", "protect", "live@monday"]).unwrap();
    cluster.rbd(&["clone", "live@monday", "copy"]).unwrap();
    for round in 0..20 {
        volume.write("/before", format!("two {round}")).unwrap();
        volume.write(format!("/after-{round}"), vec![round; 100_000]).unwrap();
        volume.sync().unwrap();
        if round % 5 == 0 {
            for (image, sharing) in [("live@monday", Sharing::Immutable), ("copy", Sharing::Unfenced)] {
                // A clone may have an owner of its own. The test knows that it has none.
                let waits = MmpOptions::new().second(Duration::from_millis(10));
                let options = VolumeOptions::new().read_only(true).mmp(waits);
                let reader = cluster.reader(image);
                assert_eq!(reader.sharing(), sharing, "{image}");
                let past = Volume::open_device(reader, &options).unwrap();
                assert_eq!(past.read("/before").unwrap(), b"one", "{image}");
                assert!(past.read("/after-0").is_err(), "{image}");
            }
        }
    }
    volume.close().unwrap();
    drop(device);
    cluster.export("live");
    // A clone is an image of its own, with a lock of its own.
    let copy = Volume::open_device(cluster.open("copy").unwrap(), &VolumeOptions::new()).unwrap();
    copy.write("/copied", "three").unwrap();
    copy.close().unwrap();
    cluster.export("copy");
}

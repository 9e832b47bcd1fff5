//! Images that are resized while they are open.

use testkit::poll::until;

use super::*;

#[test]
fn a_device_keeps_its_size_and_fails_requests_past_a_shrunk_image() {
    let Some(cluster) = running() else { return };
    let device = cluster.create("resized", 16 << 20);
    write(&*device, 12 << 20, &[1; 4096]).unwrap();
    cluster.rbd(&["resize", "resized", "--size", "32M"]).unwrap();
    assert_eq!(device.size(), 16 << 20);
    write(&*device, (16 << 20) - 4096, &[1; 4096]).unwrap();
    cluster.rbd(&["resize", "resized", "--size", "8M", "--allow-shrink"]).unwrap();
    assert!(until(|| read(&*device, 12 << 20, 4096).is_err()), "the device did not notice");
    assert_eq!(device.size(), 16 << 20);
    for result in [read(&*device, 8 << 20, 512).map(drop), write(&*device, (8 << 20) - 512, &[0; 1024])] {
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("the image was shrunk to 8388608 bytes"), "{error}");
    }
    write(&*device, (8 << 20) - 512, &[2; 512]).unwrap();
    device.flush().unwrap();
    drop(device);
    assert_eq!(cluster.open("resized").unwrap().size(), 8 << 20);
}

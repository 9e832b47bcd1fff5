//! Charges of one inode, whose owner changes meanwhile.

use parext4::fault::Fault;
use parext4::{MemDevice, QuotaKind, SetAttributes};

use super::support::*;
use testkit::Image;
use testkit::volume::DirectFiles as _;

/// H37: the space that a file gets while its owner changes is charged to one owner, and is charged whole.
#[test]
fn space_moves_with_its_owner() {
    let options = ["-b", "1024", "-O", "quota"];
    let Some(image) = Image::mke2fs(4, &options) else { return };
    let image = MemDevice::from_bytes(std::fs::read(image.path()).unwrap());
    check_on(image, 100, &[Fault::TransferUnlocked], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        let before = used_by(&volume, 0);
        race(
            &file,
            |f| (0..4).for_each(|block| f.allocate(block * BLOCK as u64, BLOCK as u64, false).unwrap()),
            |f| f.node().set_attributes(&SetAttributes::new().uid(7)).unwrap(),
        );
        assert_eq!(used_by(&volume, 7), (4 * BLOCK as u64, 1));
        assert_eq!(used_by(&volume, 0), (before.0, before.1 - 1));
    });
}

fn used_by(volume: &parext4::Volume, id: u32) -> (u64, u64) {
    let users = volume.quotas(QuotaKind::User).unwrap().unwrap();
    users.iter().find(|user| user.id == id).map_or((0, 0), |user| (user.space, user.inodes))
}

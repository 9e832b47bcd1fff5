//! Charges of one inode, whose owner changes meanwhile, and limits of writes under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parext4::fault::Fault;
use parext4::{
    Credentials, DirectFile, Error, FileSize, MemDevice, NewInode, QuotaKind, QuotaKinds, QuotaLimits,
    SetAttributes, Volume,
};

use super::support::*;
use testkit::Image;
use testkit::volume::DirectFiles as _;

/// H37: the space that a file gets while its owner changes is charged to one owner, and is charged
/// whole.
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
            |f| {
                (0..4).for_each(|block| {
                    f.allocate(block * BLOCK as u64..block * BLOCK as u64 + BLOCK as u64, FileSize::Extend)
                        .unwrap()
                })
            },
            |f| f.inode_ref().set_attributes(&SetAttributes::new().uid(7)).unwrap(),
        );
        assert_eq!(used_by(&volume, 7), (4 * BLOCK as u64, 1));
        assert_eq!(used_by(&volume, 0), (before.0, before.1 - 1));
    });
}

/// H39: two threads fill a hole each of a file without extents, and one block is allowed. One write
/// is refused.
#[test]
fn writes_under_way_stay_within_the_limit() {
    let Some(image) = Image::mke2fs(4, &["-b", "1024", "-O", "quota,^extent,^64bit"]) else { return };
    let image = MemDevice::from_bytes(std::fs::read(image.path()).unwrap());
    check_on(image, 100, &[Fault::ChargeUnlocked], |image| {
        let users = QuotaKinds { user: true, ..QuotaKinds::default() };
        let volume = Volume::open_device(Arc::new(image.fork()), &options().enforced_quotas(users)).unwrap();
        let limits = QuotaLimits { space_hard: BLOCK as u64, ..QuotaLimits::default() };
        volume.set_quota_limits(QuotaKind::User, 7, &limits).unwrap();
        volume.root().unwrap().create(b"f", &NewInode::new().uid(7)).unwrap();
        let file = volume.clone().with_credentials(Credentials::user()).direct_file("/f").unwrap();
        file.set_len(2 * BLOCK as u64).unwrap();
        let refused = Arc::new(AtomicU32::new(0));
        let write = |block: usize| {
            let refused = Arc::clone(&refused);
            move |file: &DirectFile| {
                // So that one write begins while another one completes.
                yield_randomly(400);
                match file.write_all_at(&[1; BLOCK], (block * BLOCK) as u64) {
                    Ok(_) => {}
                    Err(Error::QuotaExceeded(_)) => _ = refused.fetch_add(1, Ordering::Relaxed),
                    Err(error) => panic!("{error}"),
                }
            }
        };
        race(&file, write(0), write(1));
        assert_eq!(refused.load(Ordering::Relaxed), 1);
        assert_eq!(used_by(&volume, 7), (BLOCK as u64, 1));
    });
}

fn used_by(volume: &parext4::Volume, id: u32) -> (u64, u64) {
    let users = volume.quotas(QuotaKind::User).unwrap().unwrap();
    users.iter().find(|user| user.id == id).map_or((0, 0), |user| (user.space, user.inodes))
}

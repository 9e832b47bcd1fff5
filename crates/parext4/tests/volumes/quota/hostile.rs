//! Damaged quota files: a volume opens only read-only, with the reason, and nothing panics.

use std::sync::Arc;

use parext4::{
    Credentials, Error, InodeId, MemDevice, NewInode, QuotaKind, QuotaLimits, SetAttributes, Volume,
};
use parext4_format::superblock::Superblock;
use testkit::Image;
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{findings, untimed};

use super::{ALL, make, open, open_limited, open_with, quota, usage};

/// Returns the offsets of the blocks that begin with the magic number of a quota file.
fn headers(bytes: &[u8]) -> Vec<usize> {
    let magics = [0xd9c0_1f11_u32, 0xd9c0_1927, 0xd9c0_3f14].map(u32::to_le_bytes);
    let found =
        bytes.chunks(1024).enumerate().filter(|(_, block)| magics.iter().any(|magic| block[..4] == *magic));
    found.map(|(index, _)| index * 1024).collect()
}

/// Uses a volume, if it opens.
fn use_volume(device: &Arc<MemDevice>) -> Result<(), Error> {
    let volume = open_with(device, &untimed())?;
    let root = volume.root()?;
    for id in [0, 1, 500, 90_000] {
        let node = root.create(format!("f{id}").as_bytes(), &NewInode::new().uid(id).gid(id))?;
        node.set_project(id)?;
    }
    volume.quotas(QuotaKind::User)?;
    volume.close()
}

#[test]
fn a_damaged_file_is_named_and_the_volume_can_be_read() {
    let Some(device) = make(16, &["-b", "1024"]) else { return };
    open(&device).create_dir("/dir", 0o755).unwrap();
    for header in headers(&device.snapshot()) {
        let mut bytes = device.snapshot().clone();
        bytes[header + 4] = 9;
        let damaged = Arc::new(MemDevice::from_bytes(bytes));
        let found = findings(&*damaged);
        let is_named = |line: &String| line.contains("dqh_version") && line.contains("PR_6_UPDATE_QUOTAS");
        assert!(found.iter().any(is_named), "{found:?}");
        match open_with(&damaged, &untimed()) {
            Err(Error::ReadOnly(why)) => assert!(why.contains("dqh_version"), "{why}"),
            other => panic!("{other:?}"),
        }
        let volume: Volume = open_with(&damaged, &untimed().read_only(true)).unwrap();
        assert!(volume.exists("/dir").unwrap());
        let damaged = QuotaKind::ALL.iter().filter(|&&kind| volume.quotas(kind).is_err()).count();
        assert!(damaged > 0);
    }
}

#[test]
fn any_bytes_in_a_quota_file_lead_to_errors() {
    let Some(device) = make(16, &["-b", "1024"]) else { return };
    // Later the log has copies.
    let headers = headers(&device.snapshot());
    assert_eq!(headers.len(), 3);
    let volume = open(&device);
    let root = volume.root().unwrap();
    for id in 0..40_u32 {
        root.create(id.to_string().as_bytes(), &NewInode::new().uid(id * 77).gid(id)).unwrap();
    }
    drop(root);
    volume.close().unwrap();
    let good = device.snapshot().clone();
    let mut rng = Rng::new(settings::seed("hostile quotas"), 0);
    for _ in 0..if settings::all() { 4000 } else { 250 } {
        let mut bytes = good.clone();
        for _ in 0..=rng.below(2) {
            let header = headers[usize::try_from(rng.below(3)).unwrap()];
            let at = header + usize::try_from(rng.log_uniform(8 << 10)).unwrap();
            bytes[at] = u8::try_from(rng.log_uniform(255)).unwrap();
        }
        let device = Arc::new(MemDevice::from_bytes(bytes));
        let _ = findings(&*device);
        let _ = use_volume(&device);
    }
}

/// The largest numbers as usage: enforced limits forbid more, and usage that ends does not wrap.
#[test]
fn enforced_limits_bear_any_usage() {
    let Some(device) = make(16, &["-b", "1024", "-O", "^has_journal"]) else { return };
    let limits = QuotaLimits { space_hard: 1 << 40, inodes_hard: 1000, ..QuotaLimits::default() };
    let volume = open(&device);
    volume.set_quota_limits(QuotaKind::User, 7, &limits).unwrap();
    volume.root().unwrap().create(b"file", &NewInode::new().uid(7)).unwrap();
    volume.write("/file", vec![1; 10_000]).unwrap();
    volume.close().unwrap();
    let mut bytes = device.snapshot().clone();
    let limit = (1_u64 << 30).to_le_bytes();
    // The limit of space lies 8 bytes after the inodes in use, and 16 bytes before the space in
    // use.
    let found: Vec<usize> =
        (0..bytes.len() - 64).step_by(8).filter(|&at| bytes[at..at + 8] == limit).collect();
    for at in found {
        bytes[at - 8..at].fill(0xff);
        bytes[at + 16..at + 24].fill(0xff);
    }
    let device = Arc::new(MemDevice::from_bytes(bytes));
    let volume = open_limited(&device);
    let used = quota(&volume, QuotaKind::User, 7).unwrap();
    assert_eq!((used.space, used.inodes), (i64::MAX as u64, i64::MAX as u64));
    let user = volume.clone().with_credentials(Credentials::user());
    for volume in [&user, &volume] {
        let _ = volume.write("/file", vec![2; 50_000]);
        let _ = volume.root().unwrap().create(b"other", &NewInode::new().uid(7));
        volume.sync().unwrap();
    }
    let node = volume.resolve("/file").unwrap();
    for uid in [8, 7, 8] {
        node.set_attributes(&SetAttributes::new().uid(uid)).unwrap();
    }
    drop((node, user));
    volume.remove_file("/file").unwrap();
    volume.close().unwrap();
}

/// A directory entry and the list of orphans name the quota file of projects: no operation frees
/// its blocks.
#[test]
fn no_name_and_no_orphan_is_the_quota_file_of_projects() {
    let Some(image) = Image::mke2fs(16, &[&ALL[..], &["-b", "1024", "-O", "^metadata_csum"]].concat()) else {
        return;
    };
    let bytes = std::fs::read(image.path()).unwrap();
    let superblock = Superblock::parse(&bytes[1024..2048]).unwrap();
    let ino = superblock.quota_inode(QuotaKind::Project).unwrap().unwrap();
    image.debugfs_write(&format!("ln <{ino}> /name"));
    image.debugfs_write(&format!("ssv last_orphan {ino}"));
    let device = Arc::new(image.load());
    let volume = open(&device);
    for result in [
        volume.remove_file("/name"),
        volume.write("/name", b"data"),
        volume.rename("/name", "/other"),
        volume.inode_ref(InodeId { ino, generation: 0 }).map(drop),
    ] {
        assert!(matches!(result, Err(Error::Corrupt(_) | Error::NotFound(_))), "{result:?}");
    }
    volume.root().unwrap().create(b"file", &NewInode::new()).unwrap().set_project(99).unwrap();
    assert_eq!(usage(&volume, QuotaKind::Project, 99).1, 1);
    volume.close().unwrap();
    let volume = open(&device);
    assert!(volume.info().errors.is_some());
    assert_eq!(usage(&volume, QuotaKind::Project, 99).1, 1);
}

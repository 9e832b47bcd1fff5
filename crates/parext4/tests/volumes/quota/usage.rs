//! Usage is right after any changes: e2fsck compares it.

use std::sync::Arc;

use parext4::{MemDevice, MkfsOptions, NewInode, QuotaKind, QuotaKinds, SetAttributes, mkfs};
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{assert_clean, assert_no_findings};

use super::{make, open, usage, workload};

/// Formats that charge in different ways: sizes of blocks, maps of files, contents in inodes,
/// values in inodes.
pub(super) const FORMATS: [&[&str]; 6] = [
    &["-b", "1024", "-O", "ea_inode"],
    &["-b", "4096", "-O", "ea_inode,inline_data"],
    &["-b", "1024", "-O", "^extent,^64bit,^flex_bg"],
    &["-b", "2048", "-O", "^has_journal,ea_inode"],
    &["-b", "4096", "-O", "orphan_file,^metadata_csum"],
    &["-b", "1024", "-O", "bigalloc,ea_inode", "-C", "8192"],
];

#[test]
fn random_changes_leave_the_usage_right() {
    let seed = settings::seed("quota");
    for (format, options) in (0..).zip(FORMATS) {
        let Some(device) = make(24, options) else { return };
        let mut rng = Rng::new(seed, format);
        workload::begin(&open(&device));
        for round in 0..3 {
            let volume = open(&device);
            for _ in 0..200 {
                workload::change(&volume, &mut rng);
            }
            volume.close().unwrap();
            let what = format!("{options:?}, round {round}");
            assert_clean(&device, &what);
            assert_no_findings(&*device, &what);
        }
    }
}

/// A volume of this mkfs counts its first directories, in all formats.
#[test]
fn mkfs_makes_quota_files() {
    let all = QuotaKinds { user: true, group: true, project: true };
    for (features, inode_size) in [
        ("quota,project", 256),
        ("quota", 128),
        ("quota,project,^extent,^metadata_csum", 256),
        ("quota,project,orphan_file,inline_data", 256),
        ("quota,project,^resize_inode,^flex_bg", 1024),
    ] {
        for (block_size, owner) in [(1024, (0, 0)), (4096, (1000, 70_000))] {
            let device = Arc::new(MemDevice::new(16 << 20));
            let options = MkfsOptions::new().features(features).unwrap().owner(owner.0, owner.1);
            let options = options.block_size(block_size).inode_size(inode_size);
            mkfs(&*device, &options).unwrap();
            let what = format!("{features}, {block_size} bytes");
            assert_clean(&device, &what);
            let volume = open(&device);
            assert_eq!(volume.quotas(QuotaKind::Project).unwrap().is_some(), features.contains("project"));
            assert_eq!(usage(&volume, QuotaKind::Group, owner.1).1, if owner.1 == 0 { 2 } else { 1 });
            volume.create_dir("/dir", 0o755).unwrap();
            volume.close().unwrap();
            assert_clean(&device, &what);
        }
    }
    let wrong = MkfsOptions::new().features("quota").unwrap().quotas(all);
    assert!(mkfs(&MemDevice::new(16 << 20), &wrong).is_err(), "projects without the feature");
}

#[test]
fn an_owner_is_charged_for_its_files_and_no_more() {
    let Some(device) = make(16, &["-b", "1024"]) else { return };
    let volume = open(&device);
    let before = usage(&volume, QuotaKind::User, 0);
    assert_eq!(before.1, 2, "the root directory and lost+found");
    let root = volume.root().unwrap();
    let node = root.create(b"file", &NewInode::new().uid(1000).gid(100)).unwrap();
    let file = volume.open_file("/file", &parext4::OpenOptions::read_write()).unwrap();
    file.write_all_at(&[1; 10_000], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    for (kind, id) in [(QuotaKind::User, 1000), (QuotaKind::Group, 100)] {
        assert_eq!(usage(&volume, kind, id), (10 << 10, 1));
    }
    assert_eq!(usage(&volume, QuotaKind::User, 0), before);
    node.set_attributes(&SetAttributes::new().uid(2000)).unwrap();
    node.set_project(9).unwrap();
    assert_eq!(usage(&volume, QuotaKind::User, 1000), (0, 0));
    assert_eq!(usage(&volume, QuotaKind::User, 2000), (10 << 10, 1));
    assert_eq!(usage(&volume, QuotaKind::Group, 100), (10 << 10, 1));
    assert_eq!(usage(&volume, QuotaKind::Project, 9), (10 << 10, 1));
    drop(node);
    volume.remove_file("/file").unwrap();
    assert_eq!(usage(&volume, QuotaKind::User, 2000), (0, 0));
    volume.close().unwrap();
    assert_clean(&device, "without the file");
}

/// Threads write to one file whose owner changes: no charge goes to an owner that the file no
/// longer has.
#[test]
fn threads_change_a_file_and_its_owner() {
    let Some(device) = make(64, &["-b", "1024"]) else { return };
    let volume = open(&device);
    let root = volume.root().unwrap();
    let node = root.create(b"file", &NewInode::new().uid(1)).unwrap();
    let file = volume.open_file("/file", &parext4::OpenOptions::read_write()).unwrap();
    let direct = volume.open_direct("/file", &parext4::OpenOptions::read_write()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (file, direct) = (&file, &direct);
            scope.spawn(move || {
                for round in 0..60_u64 {
                    match (round + thread) % 4 {
                        0 => file.append(&[1; 5000]).map(drop),
                        1 => file.write_all_at(&[2; 3000], round * 7000).map(drop),
                        2 => direct.punch_hole(round * 3000..round * 3000 + 9000),
                        _ => file.set_len(round * 5000),
                    }
                    .unwrap();
                }
            });
        }
        for round in 0..100 {
            node.set_attributes(&SetAttributes::new().uid(round % 5).gid(round % 3)).unwrap();
            node.set_project(round % 4).unwrap();
        }
    });
    drop((file, direct, node));
    volume.close().unwrap();
    assert_clean(&device, "after all threads");
}

/// Each project that has files gets an entry, so the quota file grows.
#[test]
fn many_ids_get_entries() {
    for block_size in ["1024", "4096"] {
        let Some(device) = make(24, &["-b", block_size, "-N", "4096"]) else { return };
        let volume = open(&device);
        let root = volume.root().unwrap();
        for id in (0..1500_u32).map(|nth| nth.wrapping_mul(0x9e37_79b9)) {
            root.create(id.to_string().as_bytes(), &NewInode::new().uid(id)).unwrap();
        }
        volume.close().unwrap();
        assert_clean(&device, "with many users");
        let volume = open(&device);
        let users = volume.quotas(QuotaKind::User).unwrap().unwrap();
        assert_eq!(users.iter().filter(|quota| quota.inodes == 1).count(), 1499);
        volume.close().unwrap();
    }
}

/// Blocks of 64 KiB have room for entries after the end of a new quota file: the file has all
/// entries when it is opened again.
#[test]
fn entries_in_the_rest_of_a_large_block_are_found_again() {
    let all = QuotaKinds { user: true, group: true, project: true };
    let made = Arc::new(MemDevice::new(192 << 20));
    let features = MkfsOptions::new().features("quota,project").unwrap();
    mkfs(&*made, &features.quotas(all).block_size(65_536)).unwrap();
    for device in [Some(made), make(192, &["-b", "65536"])].into_iter().flatten() {
        for id in [77, 70_000, 1 << 24] {
            let volume = open(&device);
            let new = NewInode::new().uid(id).gid(id);
            let node = volume.root().unwrap().create(id.to_string().as_bytes(), &new).unwrap();
            node.set_project(id).unwrap();
            drop(node);
            volume.close().unwrap();
            assert_clean(&device, "with one more id");
        }
        let volume = open(&device);
        for kind in QuotaKind::ALL {
            assert_eq!(usage(&volume, kind, 70_000), (0, 1));
        }
    }
}

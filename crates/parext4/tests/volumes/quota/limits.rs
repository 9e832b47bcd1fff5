//! Limits: enforced when a volume is opened so, for ordinary users, at the change that would exceed
//! them.

use std::time::Duration;

use parext4::{
    Credentials, Error, FileSize, InodeFlags, NewInode, OpenOptions, QuotaGraces, QuotaKind, QuotaLimits,
    SetAttributes, Volume,
};
use testkit::volume::assert_clean;

use super::{make, open, open_limited, quota, usage};

fn limits(space_soft: u64, space_hard: u64, inodes_soft: u64, inodes_hard: u64) -> QuotaLimits {
    QuotaLimits { space_hard, space_soft, inodes_hard, inodes_soft }
}

fn exceeded<T>(result: parext4::Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::QuotaExceeded(_)) => true,
        Err(error) => panic!("{error}"),
    }
}

fn for_user(volume: &Volume) -> Volume {
    volume.clone().with_credentials(Credentials::user())
}

#[test]
fn writes_stop_at_the_hard_limit() {
    let Some(device) = make(16, &["-b", "1024"]) else { return };
    open(&device).set_quota_limits(QuotaKind::User, 1000, &limits(0, 100 << 10, 0, 3)).unwrap();
    let volume = open_limited(&device);
    let user = for_user(&volume);
    let root = user.root().unwrap();
    let new = NewInode::new().permissions(0o666).uid(1000);
    for name in ["/a", "/b", "/c"] {
        root.create(&name.as_bytes()[1..], &new).unwrap();
    }
    assert!(exceeded(root.create(b"d", &new)));
    let file = user.open_file("/a", &OpenOptions::read_write()).unwrap();
    // Dirty pages count before they have blocks.
    file.write_all_at(&[1; 90 << 10], 0).unwrap();
    assert!(exceeded(file.write_all_at(&[1; 20 << 10], 90 << 10)));
    let direct = user.open_direct("/b", &OpenOptions::read_write()).unwrap();
    assert!(exceeded(direct.write_all_at(&[1; 16 << 10], 0)));
    assert!(exceeded(direct.allocate(0..64 << 10, FileSize::Extend)));
    file.sync_all().unwrap();
    assert!(exceeded(file.append(&[1; 20 << 10])));
    file.set_len(0).unwrap();
    direct.write_all_at(&[1; 16 << 10], 0).unwrap();
    // Root may exceed the limits, unless it acts within quotas.
    let by_root = direct.clone().with_credentials(Credentials::root());
    by_root.write_all_at(&[1; 200 << 10], 0).unwrap();
    let within = direct.clone().with_credentials(Credentials::root().within_quotas());
    assert!(exceeded(within.write_all_at(&[1; 16 << 10], 300 << 10)));
    let taken = root.create(b"other", &NewInode::new().uid(7)).unwrap();
    assert!(exceeded(taken.set_attributes(&SetAttributes::new().uid(1000))));
    drop((file, direct, by_root, within, taken, root, user));
    volume.close().unwrap();
    assert_clean(&device, "after the limits");

    // Without enforcement, usage only counts.
    let volume = open(&device);
    for_user(&volume).root().unwrap().create(b"d", &new).unwrap();
    assert_eq!(usage(&volume, QuotaKind::User, 1000).1, 4);
}

#[test]
fn soft_limits_have_a_grace() {
    let Some(device) = make(16, &["-b", "1024"]) else { return };
    let volume = open_limited(&device);
    set_grace(&volume, 1000);
    let time = Duration::from_secs(1000);
    let graces = QuotaGraces { space: time, inodes: time };
    assert_eq!(volume.quota_graces(QuotaKind::Group).unwrap(), Some(graces));
    volume.set_quota_limits(QuotaKind::Group, 5, &limits(10 << 10, 0, 0, 0)).unwrap();
    let user = for_user(&volume);
    let new = NewInode::new().permissions(0o666).gid(5);
    user.root().unwrap().create(b"file", &new).unwrap();
    let file = user.open_file("/file", &OpenOptions::read_write()).unwrap();
    file.write_all_at(&[1; 20 << 10], 0).unwrap();
    file.sync_all().unwrap();
    assert!(quota(&volume, QuotaKind::Group, 5).unwrap().space_until.is_some());
    file.write_all_at(&[1; 20 << 10], 20 << 10).unwrap();
    file.set_len(1000).unwrap();
    assert_eq!(quota(&volume, QuotaKind::Group, 5).unwrap().space_until, None);
    set_grace(&volume, 0);
    assert!(exceeded(file.write_all_at(&[1; 20 << 10], 0)), "a grace of no time ends with the first page");
}

#[test]
fn new_files_inherit_the_project_of_their_directory() {
    let Some(device) = make(16, &["-b", "1024"]) else { return };
    let volume = open_limited(&device);
    for (dir, project) in [("/a", 1), ("/b", 2)] {
        let node = volume.create_dir(dir, 0o777).unwrap();
        node.set_project(project).unwrap();
        node.set_flags(node.flags() | InodeFlags::PROJINHERIT).unwrap();
    }
    volume.set_quota_limits(QuotaKind::Project, 1, &limits(0, 0, 0, 3)).unwrap();
    let user = for_user(&volume);
    let file = user.open_file("/a/file", &OpenOptions::read_write().create(true)).unwrap();
    let sub = user.create_dir("/a/sub", 0o777).unwrap();
    assert_eq!((file.inode_ref().project(), sub.project()), (1, 1));
    assert!(sub.flags().contains(InodeFlags::PROJINHERIT));
    assert!(exceeded(user.create_dir("/a/more", 0o777)));
    // A directory that passes on its project accepts no names of other projects.
    for moved in [user.rename("/a/file", "/b/file"), user.hard_link("/a/file", "/b/file")] {
        assert!(matches!(moved, Err(Error::OtherProject(_))));
    }
    user.rename("/a/file", "/file").unwrap();
    assert_eq!(usage(&volume, QuotaKind::Project, 1).1, 3, "a file keeps its project");
}

/// Sets `seconds` as the time for which groups may exceed their soft limits.
fn set_grace(volume: &Volume, seconds: u64) {
    let time = Duration::from_secs(seconds);
    volume.set_quota_graces(QuotaKind::Group, QuotaGraces { space: time, inodes: time }).unwrap();
}

#[test]
fn setting_the_same_owner_again_leaves_its_grace() {
    let Some(device) = make(16, &["-b", "1024"]) else { return };
    let volume = open_limited(&device);
    set_grace(&volume, 1000);
    volume.set_quota_limits(QuotaKind::Group, 5, &limits(10 << 10, 0, 0, 0)).unwrap();
    let node = volume.root().unwrap().create(b"file", &NewInode::new().gid(5)).unwrap();
    volume.write("/file", vec![1; 20 << 10]).unwrap();
    volume.sync().unwrap();
    let before = quota(&volume, QuotaKind::Group, 5).unwrap();
    assert!(before.space_until.is_some());
    set_grace(&volume, 2000);
    node.set_attributes(&SetAttributes::new().gid(5)).unwrap();
    assert_eq!(quota(&volume, QuotaKind::Group, 5), Some(before));
}

#[test]
fn a_grace_ends_with_the_last_dirty_page_above_the_limit() {
    let Some(device) = make(16, &["-b", "1024"]) else { return };
    let volume = open_limited(&device);
    set_grace(&volume, 1000);
    volume.set_quota_limits(QuotaKind::Group, 5, &limits(10 << 10, 0, 0, 0)).unwrap();
    let new = NewInode::new().gid(5);
    let file = volume.open_file("/file", &OpenOptions::read_write().create(true)).unwrap();
    file.inode_ref().set_attributes(&SetAttributes::new().gid(5)).unwrap();
    let until = || quota(&volume, QuotaKind::Group, 5).unwrap().space_until;
    file.write_all_at(&[1; 20 << 10], 0).unwrap();
    assert!(until().is_some());
    // No page has been written back.
    file.set_len(0).unwrap();
    assert_eq!(until(), None);
    // Pages keep the grace of blocks that are freed.
    file.write_all_at(&[1; 20 << 10], 0).unwrap();
    file.sync_all().unwrap();
    let since = until();
    assert!(since.is_some());
    volume.root().unwrap().create(b"other", &new).unwrap();
    let other = volume.open_file("/other", &OpenOptions::read_write()).unwrap();
    other.write_all_at(&[1; 20 << 10], 0).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(until(), since);
    other.set_len(0).unwrap();
    assert_eq!(until(), None);
}

#[test]
fn new_limits_renew_or_end_the_grace() {
    let Some(device) = make(16, &["-b", "1024"]) else { return };
    let volume = open_limited(&device);
    set_grace(&volume, 1000);
    volume.root().unwrap().create(b"file", &NewInode::new().gid(5)).unwrap();
    volume.write("/file", vec![1; 20 << 10]).unwrap();
    volume.sync().unwrap();
    let until_with = |soft: u64, inodes: u64| {
        volume.set_quota_limits(QuotaKind::Group, 5, &limits(soft, 0, inodes, 0)).unwrap();
        let now = quota(&volume, QuotaKind::Group, 5).unwrap();
        assert_eq!(now.inodes_until, None);
        now.space_until
    };
    let first = until_with(10 << 10, 1).unwrap();
    set_grace(&volume, 2000);
    assert!(until_with(12 << 10, 1).unwrap() >= first + 1000);
    assert_eq!(until_with(20 << 10, 0), None);
    assert!(until_with(10 << 10, 0).is_some());
    assert_eq!(until_with(0, 1), None);
}

/// Contents that leave the inode need a block, which the limits may forbid. Then they stay where
/// they are.
#[test]
fn contents_leave_the_inode_within_the_limits() {
    for options in ["inline_data", "inline_data,^extent,^64bit"] {
        let Some(device) = make(16, &["-b", "1024", "-O", options]) else { return };
        let volume = open_limited(&device);
        let root = volume.root().unwrap();
        let new = NewInode::new().permissions(0o777).uid(1000);
        root.mkdir(b"dir", &new).unwrap();
        root.create(b"file", &new).unwrap();
        root.create(b"large", &new).unwrap();
        volume.write("/file", b"contents").unwrap();
        let large = volume.open_file("/large", &OpenOptions::read_write()).unwrap();
        large.write_all_at(&[1; 8 << 10], 0).unwrap();
        large.sync_all().unwrap();
        assert_eq!(usage(&volume, QuotaKind::User, 1000).0, 8 << 10);
        volume.set_quota_limits(QuotaKind::User, 1000, &limits(0, 8 << 10, 0, 0)).unwrap();

        let user = for_user(&volume);
        let file = user.open_file("/file", &OpenOptions::read_write()).unwrap();
        let direct = user.open_direct("/file", &OpenOptions::read_write()).unwrap();
        assert!(exceeded(file.write_all_at(&[2; 500], 0)));
        assert!(exceeded(file.append(&[2; 500])));
        assert!(exceeded(file.set_len(500)));
        assert!(exceeded(direct.punch_hole(0..4)));
        assert_eq!(user.read("/file").unwrap(), b"contents");
        let dir = user.resolve("/dir").unwrap();
        let name = |nth: usize| format!("{nth}{}", "x".repeat(100)).into_bytes();
        let made = (0..8).find(|&nth| exceeded(dir.create(&name(nth), &NewInode::new()))).unwrap();
        assert_eq!(user.read_dir("/dir").unwrap().count(), made);
        assert_eq!(usage(&volume, QuotaKind::User, 1000).0, 8 << 10);

        large.set_len(0).unwrap();
        file.append(&[2; 500]).unwrap();
        dir.create(&name(made), &NewInode::new()).unwrap();
        file.sync_all().unwrap();
        assert_eq!(usage(&volume, QuotaKind::User, 1000).0, 2 << 10);
        drop((file, direct, large, dir, root, user));
        volume.close().unwrap();
        assert_clean(&device, options);
    }
}

/// Threads fill holes of one file without extents at once. The blocks of each write are reserved
/// from its claim to its completion, so no sum exceeds the limit, and no write is refused while
/// there is room.
#[test]
fn writes_under_way_without_extents_stay_within_the_limit() {
    const LIMIT: u64 = 100 << 10;
    let Some(device) = make(16, &["-b", "1024", "-O", "^extent,^64bit"]) else { return };
    open(&device).set_quota_limits(QuotaKind::User, 1000, &limits(0, LIMIT, 0, 0)).unwrap();
    let volume = open_limited(&device);
    volume.root().unwrap().create(b"f", &NewInode::new().permissions(0o666).uid(1000)).unwrap();
    let user = for_user(&volume);
    let file = user.open_direct("/f", &OpenOptions::read_write()).unwrap();
    for round in 0..20 {
        // The pointer block counts, but is never refused. It exists before the threads begin.
        file.write_all_at(&[1; 1024], 20 << 10).unwrap();
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|thread| {
                    let file = &file;
                    let blocks = (0..200).filter(move |block| block % 4 == thread && *block != 20);
                    scope.spawn(move || {
                        blocks.filter(|block| exceeded(file.write_all_at(&[1; 1024], block << 10))).count()
                    })
                })
                .collect();
            while !writers.iter().all(|writer| writer.is_finished()) {
                let (space, _) = usage(&volume, QuotaKind::User, 1000);
                assert!(space <= LIMIT, "round {round}: {space} bytes");
            }
            let refused: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
            assert_eq!(refused, 101, "round {round}");
        });
        assert_eq!(usage(&volume, QuotaKind::User, 1000).0, LIMIT);
        file.set_len(0).unwrap();
        assert_eq!(usage(&volume, QuotaKind::User, 1000).0, 0);
    }
    drop((file, user));
    volume.close().unwrap();
    assert_clean(&device, "after the limit");
}

//! Blocks that are reserved for root, and which users may allocate them.

use std::sync::Arc;

use parext4::{
    AlignedBuf, Credentials, Device, Error, FileSize, IoFlags, IoRequest, MemDevice, OpenOptions, Result,
    Volume, XattrMode,
};

use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

const PIECE: usize = 64 << 10;

/// A way to use up space, a piece at a time.
type Way = fn(&Volume, u64) -> Result<()>;

const WAYS: [(&str, Way); 6] = [
    ("append", |volume, _| volume.direct_file("/file").and_then(|file| file.append(&[7; PIECE]).map(drop))),
    ("buffered", |volume, nth| {
        let file = volume.direct_file("/file")?.buffered()?;
        file.write_all_at(&[7; PIECE], nth * PIECE as u64).map(drop)
    }),
    ("allocate", |volume, nth| {
        volume
            .direct_file("/file")?
            .allocate(nth * PIECE as u64..nth * PIECE as u64 + PIECE as u64, FileSize::Extend)
    }),
    ("mkdir", |volume, nth| volume.create_dir(format!("/dir{nth}"), 0o755).map(drop)),
    ("symlink", |volume, nth| volume.symlink(format!("/link{nth}"), "x".repeat(100)).map(drop)),
    ("set_xattr", |volume, nth| {
        let options = OpenOptions::read_write().create(true);
        let file = volume.open_direct(format!("/with{nth}"), &options)?;
        file.inode_ref().set_xattr(b"user.large", &[7; 1000], XattrMode::Any)
    }),
];

fn make() -> (Arc<MemDevice>, Volume) {
    let shape = Shape { inode_ratio: Some(4096), ..Shape::new(16, 4096, true) };
    let device = Arc::new(shape.make());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    volume.create_direct("/file").unwrap();
    (device, volume)
}

/// Repeats until there is no space. Returns the number of repetitions.
fn use_up(volume: &Volume, way: Way, from: u64) -> u64 {
    for nth in from.. {
        match way(volume, nth) {
            Ok(()) => {}
            Err(Error::NoSpace) => return nth - from,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

#[test]
fn users_leave_the_blocks_reserved_for_root() {
    for (name, way) in WAYS {
        let (device, volume) = make();
        let for_user = volume.clone().with_credentials(Credentials::user());
        let reserved = volume.space().reserved_blocks;
        assert!(reserved > 100);
        let went = use_up(&for_user, way, 0);
        assert!(went > 10, "{name}");
        volume.sync().unwrap();
        let space = volume.space();
        let a_few = 2 * (PIECE as u64 / 4096);
        assert!(space.free_blocks >= reserved, "{name}: {space:?}");
        assert!(space.available_blocks < a_few, "{name}: {space:?}");
        // All users can overwrite data, and root can still allocate.
        let file = for_user.direct_file("/file").unwrap();
        if file.size() > 0 {
            file.write_all_at(&[8; 4096], 4096).unwrap();
        }
        assert!(use_up(&volume, way, went) > 0, "{name}");
        volume.sync().unwrap();
        let space = volume.space();
        assert!(space.free_blocks < reserved && space.available_blocks == 0, "{name}: {space:?}");
        drop((file, for_user));
        volume.close().unwrap();
        assert_clean(&device, name);
    }
}

/// Returns whether a write succeeded. It may lack only space.
fn had_space<T>(result: Result<T>) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::NoSpace) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn handles_of_one_file_act_for_their_callers_whichever_thread_uses_them() {
    let (device, volume) = make();
    let root = volume.direct_file("/file").unwrap();
    let user = root.clone().with_credentials(Credentials::user());
    while had_space(user.append(&[7; 4096])) {}
    let mut holes = (root.size()..1 << 30).step_by(8192);
    let mut hole = || holes.next().unwrap();
    root.set_len(1 << 30).unwrap();

    let block = [8; 4096];
    let bytes_at = |hole| hole..hole + 4096;
    for _ in 0..4 {
        assert!(
            had_space(root.write_all_at(&block, hole())) && !had_space(user.write_all_at(&block, hole()))
        );
        assert!(
            had_space(root.allocate(bytes_at(hole()), FileSize::Extend))
                && !had_space(user.allocate(bytes_at(hole()), FileSize::Extend))
        );
    }
    let (buffered_root, buffered_user) = (root.buffered().unwrap(), user.buffered().unwrap());
    for _ in 0..4 {
        let [by_root, by_user] =
            [&buffered_root, &buffered_user].map(|file| had_space(file.write_all_at(&block, hole())));
        assert!(by_root && !by_user);
    }
    let becomes_user = buffered_root.with_credentials(Credentials::user());
    assert!(!had_space(becomes_user.write_all_at(&block, hole())));

    // In one queue, and at the same time.
    let mut queue = volume.io_queue(8);
    for token in 0..8 {
        let file = if token % 2 == 0 { &root } else { &user };
        let request = IoRequest::Write { buf: AlignedBuf::from_slice(&block), len: 4096, offset: hole() };
        queue.submit(file, request, token, IoFlags::default());
    }
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.harvest(&mut done).unwrap();
    }
    assert_eq!(done.len(), 8);
    for completion in done {
        assert_eq!(had_space(completion.result), completion.token % 2 == 0, "{}", completion.token);
    }

    // What a handle reaches acts for the same caller.
    assert!(!had_space(user.inode_ref().set_xattr(b"user.large", &[7; 1000], XattrMode::Any)));
    assert!(had_space(root.inode_ref().set_xattr(b"user.large", &[7; 1000], XattrMode::Any)));

    drop((queue, root, user, becomes_user, buffered_user));
    volume.close().unwrap();
    assert_clean(&device, "handles");
}

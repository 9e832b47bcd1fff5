//! Superblocks with changed fields of geometry: an open returns an error or a volume that can be
//! used, and ends in time.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use parext4::{Device, MemDevice, NewInode, Volume};
use parext4_format::superblock::Superblock;
use testkit::damage::SUPERBLOCK;
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{Shape, untimed};

/// Superblocks of each shape.
const CASES: u64 = 800;

#[test]
fn superblocks_of_any_geometry_cause_no_panic() {
    let groups = Shape { blocks_per_group: Some(512), ..Shape::new(6, 1024, true) };
    let shapes = [
        Shape { features: "meta_bg,^resize_inode,^filetype", ..groups },
        Shape { features: "sparse_super2,^resize_inode,^64bit,^metadata_csum,uninit_bg", ..groups },
        Shape { features: "none,extent", inode_size: 128, journal: false, ..groups },
        Shape { inode_ratio: Some(64 << 10), ..Shape::new(24, 16384, false) },
        Shape { inode_ratio: Some(64 << 10), features: "^64bit,uninit_bg", ..Shape::new(48, 65536, false) },
        Shape { blocks_per_group: Some(256), ..Shape::new(8, 1024, true).with_clusters(4) },
    ];
    for (shape, seed) in shapes.into_iter().zip(1..) {
        let sound = shape.make();
        let mut rng = Rng::new(settings::fixed_seed("hostile", seed), 0);
        let opened = (0..CASES).filter(|_| exercise(&sound.fork(), &mut rng)).count();
        eprintln!("{}: {opened} of {CASES} could be opened", shape.features);
    }
}

/// Changes fields of the superblock, and uses the volume. Returns true if it could be opened.
fn exercise(device: &MemDevice, rng: &mut Rng) -> bool {
    let mut block = vec![0; 1024];
    device.read_at(1024, &mut [IoSliceMut::new(&mut block)]).unwrap();
    for _ in 0..=rng.below(3) {
        let (at, len) = SUPERBLOCK[usize::try_from(rng.below(SUPERBLOCK.len() as u64)).unwrap()];
        let mut field = [0; 8];
        field[..len].copy_from_slice(&block[at..at + len]);
        let old = u64::from_le_bytes(field);
        let new = match rng.below(6) {
            0 => old ^ 1 << rng.below(8 * len as u64),
            1 => old.wrapping_add(1),
            2 => old.wrapping_sub(1),
            3 => rng.log_uniform(1 << 40),
            4 => u64::MAX,
            _ => 0,
        };
        block[at..at + len].copy_from_slice(&new.to_le_bytes()[..len]);
    }
    Superblock::seal(&mut block);
    device.write_at(1024, &[IoSlice::new(&block)]).unwrap();
    let device = Arc::new(device.fork());
    let Ok(volume) = Volume::open_device(device, &untimed()) else { return false };
    let used = volume.root().and_then(|root| {
        let dir = root.mkdir(b"dir", &NewInode::new())?;
        for n in 0..30 {
            dir.create(format!("{n:0>40}").as_bytes(), &NewInode::new())?;
        }
        let mut after = 0;
        while let Some(last) = root.read_dir_after(after)?.last() {
            after = last.cookie();
        }
        volume.write("/file", vec![7; 50_000])
    });
    let _ = (used, volume.space(), volume.info());
    let _ = volume.close();
    true
}

//! Preallocated blocks of files that are open and idle are available to other files.

use std::sync::Arc;

use parext4::{Device, DirectFile, Error, Volume};

use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

const PIECE: usize = 4096;

/// Returns the bytes of all files that are mapped but not written.
fn unused(files: &[DirectFile]) -> u64 {
    let surplus = |file: &DirectFile| (512 * file.inode_ref().metadata().sectors).saturating_sub(file.size());
    files.iter().map(surplus).sum()
}

/// Fills the volume with one file, a piece at a time, by `write`. Returns the number of bytes
/// written.
fn fill(volume: &Volume, name: &str, mut write: impl FnMut(&DirectFile) -> parext4::Result<()>) -> u64 {
    let ballast = volume.create_direct(name).unwrap();
    loop {
        match write(&ballast) {
            Ok(()) => {}
            Err(Error::NoSpace) => return ballast.size(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn preallocated_blocks_of_idle_files_are_freed_before_space_runs_out() {
    let device = Arc::new(Shape::new(64, 1024, true).make());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    let files: Vec<_> = (0..100).map(|nth| volume.create_direct(format!("/{nth}")).unwrap()).collect();
    for nth in 0..20 {
        for file in &files {
            assert_eq!(file.append(&[1; PIECE]).unwrap(), nth * PIECE as u64);
        }
    }
    let ahead = unused(&files);
    assert!(ahead > 1 << 20, "only {ahead} bytes are preallocated");
    let free = volume.space().available_blocks * 1024;
    let piece = vec![2; PIECE];
    let filled = fill(&volume, "/ballast", |file| file.append(&piece).map(drop));
    // A leaf of an extent tree may keep bytes of each file.
    assert!(unused(&files) < 100 * 2048, "{} bytes are still preallocated", unused(&files));
    assert!(filled > free + ahead / 2, "{filled} bytes went in, {free} were free, {ahead} preallocated");
    // The files can grow again once there is space.
    volume.remove_file("/ballast").unwrap();
    for file in &files {
        assert_eq!(file.append(&[1; PIECE]).unwrap(), 20 * PIECE as u64);
        let mut seen = vec![0; 21 * PIECE];
        assert_eq!(file.read_at(&mut seen, 0).unwrap(), seen.len());
        assert!(seen.iter().all(|&byte| byte == 1));
    }
    drop(files);
    volume.close().unwrap();
    assert_clean(&device, "filled");
}

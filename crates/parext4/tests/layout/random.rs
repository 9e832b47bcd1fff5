//! Random changes. After each, the file matches the model.

use std::sync::Arc;

use parext4::{Device, DirectFile, Volume};

use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

use super::model::{Change, Model};

/// Makes a file of which every other block is written, so that no blocks are contiguous.
pub fn chessboard(file: &DirectFile, model: &mut Model, blocks: u64) {
    let block = model.block as u64;
    for at in (0..blocks).step_by(2) {
        let byte = 1 + u8::try_from(at % 255).unwrap();
        let change = Change::Write { offset: at * block, len: block, byte };
        change.make(file).unwrap();
        model.make(change);
    }
}

/// Applies `count` random changes to a file of `span` blocks. With `pieces`, the file starts with
/// many extents.
fn changes(name: &str, shape: Shape, span: u64, count: u32, pieces: bool) {
    let seed = settings::seed(name);
    let device = Arc::new(shape.make_poisoned());
    let mut volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    let mut file = volume.create_direct("/file").unwrap();
    let mut model = Model::new(shape.block_size as usize);
    let mut rng = Rng::new(seed, 0);
    if pieces {
        chessboard(&file, &mut model, span);
    }
    for nth in 0..count {
        let change = Change::random(&mut rng, shape.block_size.into(), file.size(), span);
        let context = |error: &str| panic!("seed {seed}, change {nth}, {change:x?}: {error}");
        change.make(&file).unwrap_or_else(|e| context(&e.to_string()));
        model.make(change);
        model.check(&file).unwrap_or_else(|e| context(&e));
        if rng.chance(2) {
            volume.sync().unwrap();
        }
        if rng.chance(2) {
            drop(file);
            volume.close().unwrap();
            assert_clean(&device, &format!("seed {seed}, after change {nth}, {change:x?}"));
            volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
            file = volume.direct_file("/file").unwrap();
        }
    }
    drop(file);
    volume.remove_file("/file").unwrap();
    volume.close().unwrap();
    assert_clean(&device, &format!("seed {seed}, in the end"));
}

#[test]
fn changes_1k() {
    changes("changes_1k", Shape::new(24, 1024, true), 64, 250, false);
}

#[test]
fn changes_2k_no_journal() {
    changes("changes_2k_no_journal", Shape::new(24, 2048, false), 64, 250, false);
}

#[test]
fn changes_4k() {
    changes("changes_4k", Shape::new(32, 4096, true), 64, 250, false);
}

#[test]
fn changes_of_a_file_in_many_pieces_1k() {
    changes("changes_of_a_file_in_many_pieces_1k", Shape::new(24, 1024, true), 700, 60, true);
}

#[test]
fn changes_of_a_file_in_many_pieces_2k() {
    changes("changes_of_a_file_in_many_pieces_2k", Shape::new(32, 2048, true), 1400, 30, true);
}

//! Random changes. After each, the file matches the model.

use std::sync::Arc;

use parext4::{Device, Volume};

use testkit::ops::{Content, FileHandles, FileModel, FileOp, FileOps, Shape as FileShape, Way, Weights};
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{DirectFiles as _, Shape, assert_clean, untimed};

/// Returns random changes within about the first `bytes` bytes of a file, each in one of `ways`.
pub fn changes_within(bytes: u64, block: u64, ways: &'static [Way]) -> FileOps {
    let weights = Weights {
        read: 0,
        write: 35,
        append: 0,
        set_len: 6,
        allocate: 7,
        punch: 20,
        zero: 12,
        collapse: 10,
        insert: 10,
        sync_range: 0,
        sync_data: 0,
        sync_all: 0,
    };
    let most_moved = bytes / block / 4;
    FileOps { weights, max_size: 2 * bytes, longest: bytes / 2, most_moved, unit: 1, often: 1, ways }
}

/// Returns a random byte to write, which is not zero.
pub fn content(rng: &mut Rng) -> Content {
    Content::Byte(1 + u8::try_from(rng.below(255)).unwrap())
}

/// A file that is changed only directly, and its model.
pub struct Tested {
    pub handles: FileHandles,
    pub model: FileModel,
}

impl Tested {
    pub fn create(volume: &Volume, block: u64) -> Self {
        let handles = FileHandles::new(volume, volume.create_direct("/file").unwrap()).unwrap();
        Self { handles, model: FileModel::with_blocks(block) }
    }

    /// Makes a file of which every other block is written, so that no blocks are contiguous.
    pub fn chessboard(&mut self, block: u64, blocks: u64) {
        for at in (0..blocks).step_by(2) {
            let byte = 1 + u8::try_from(at % 255).unwrap();
            let write = FileOp::Write { way: Way::Direct, offset: at * block, len: block };
            self.apply(write, Content::Byte(byte)).unwrap();
        }
    }

    /// Changes the file and the model.
    pub fn apply(&mut self, op: FileOp, content: Content) -> parext4::Result<()> {
        let outcome = self.handles.run(op, content)?;
        self.model.follow(op, content, &outcome).unwrap_or_else(|error| panic!("{op:x?}: {error}"));
        Ok(())
    }

    /// Compares size, bytes and written blocks with the model.
    pub fn check(&self) -> Result<(), String> {
        let (size, file) = (self.model.size(), &self.handles.direct);
        if file.size() != size {
            return Err(format!("{} bytes, not {size}", file.size()));
        }
        let mut bytes = vec![0xee; self.model.bytes().len()];
        let count = file.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
        self.model.compare(&bytes[..count], 0, size)?;
        let (seen, data) = (self.handles.data().map_err(|e| e.to_string())?, self.model.data());
        if seen == data { Ok(()) } else { Err(format!("data at {seen:?}, not {data:?}")) }
    }
}

/// Applies `count` random changes to a file of `span` blocks. With `pieces`, the file starts with
/// many extents.
fn changes(name: &str, shape: Shape, span: u64, count: u32, pieces: bool) {
    let seed = settings::seed(name);
    let device = Arc::new(shape.make_poisoned());
    let mut volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    let block = u64::from(shape.block_size);
    let mut tested = Tested::create(&volume, block);
    let mut rng = Rng::new(seed, 0);
    if pieces {
        tested.chessboard(block, span);
    }
    let ops = changes_within(span * block, block, &[Way::Direct, Way::Queued]);
    for nth in 0..count {
        let change = ops.random(&mut rng, &FileShape { size: tested.model.size(), block });
        let context = |error: &str| panic!("seed {seed}, change {nth}, {change:x?}: {error}");
        let applied = tested.apply(change, content(&mut rng));
        applied.unwrap_or_else(|e| context(&e.to_string()));
        tested.check().unwrap_or_else(|e| context(&e));
        if rng.chance(2) {
            volume.sync().unwrap();
        }
        if rng.chance(2) {
            let model = tested.model;
            drop(tested.handles);
            volume.close().unwrap();
            assert_clean(&device, &format!("seed {seed}, after change {nth}, {change:x?}"));
            volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
            let handles = FileHandles::new(&volume, volume.direct_file("/file").unwrap()).unwrap();
            tested = Tested { handles, model };
        }
    }
    drop(tested);
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

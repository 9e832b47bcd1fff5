//! The allocator against a model, and against hints and counts that mislead it.

use proptest::prelude::*;

use super::{
    ALLOCATE_CREDITS, AllocMode, BlockRequest, BlockSource, FREE_CREDITS, FileWindows, Growth, Neighbours,
    Run,
};
use crate::engine::Engine;
use crate::memory::Evict;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;
use crate::{Credentials, Error, MemDevice, MkfsOptions, OpenOptions, Volume, VolumeOptions, mkfs};
use parext4_format::{BlockRange, FileBlock, FsBlock, InodeNo};

/// A volume of four groups, of which the last is short.
pub(crate) fn volume() -> Volume {
    let device = Arc::new(MemDevice::new(28 << 20));
    let options = MkfsOptions::new().block_size(1024).device_is_zero(true);
    mkfs(&*device, &options).unwrap();
    let options = VolumeOptions::new().commit_interval(None);
    Volume::open_device(device, &options).unwrap()
}

/// The map of a file without blocks.
struct EmptyFile;

impl Neighbours for EmptyFile {
    fn is_empty(&self) -> bool {
        true
    }

    fn goal(&self, _: FileBlock) -> Option<FsBlock> {
        None
    }

    fn hole_before(&self, low: FileBlock, _: FileBlock) -> FileBlock {
        low
    }

    fn run_len(&self, _: FileBlock, most: u32) -> u32 {
        most
    }
}

pub(super) fn allocate(inner: &Engine, goal: u64, want: u32) -> Result<Vec<Run>, Error> {
    inner.transact(ALLOCATE_CREDITS, |handle| {
        let windows = FileWindows::new();
        let holes = &[BlockRange::with_len(FileBlock::ZERO, want).unwrap()];
        let (growth, goal) = (Growth::Exact, FsBlock(goal));
        let request = BlockRequest { growth, windows: &windows, map: &EmptyFile, holes, goal };
        let source = &mut BlockSource::Free(Credentials::root());
        inner.allocator().allocate(AllocMode::InUse(handle), &request, source).map(|runs| runs.to_vec())
    })
}

fn free(inner: &Engine, run: Run) {
    let mut left = run.len;
    while left > 0 {
        let len = inner.allocator().freeable_tail(run.start, left);
        left -= len;
        let start = run.start + u64::from(left);
        inner.transact(FREE_CREDITS, |handle| inner.allocator().free_data(handle, start, len)).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64, u32),
    /// Of the runs that are held, this one, from this many thousandths on.
    Free(prop::sample::Index, u32),
    Commit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let want = prop_oneof![4 => 1_u32..20, 2 => 20_u32..2000, 1 => 2000_u32..30_000];
    let step = prop_oneof![
        6 => (0_u64..40_000, want).prop_map(|(goal, want)| Step::Allocate(goal, want)),
        5 => (any::<prop::sample::Index>(), 0_u32..1000).prop_map(|(run, cut)| Step::Free(run, cut)),
        1 => Just(Step::Commit),
    ];
    prop::collection::vec(step, 1..120)
}

/// Which blocks are handed out, or freed and held until a commit.
struct Model {
    taken: Vec<bool>,
    held: Vec<Run>,
    used: u64,
}

impl Model {
    fn set(&mut self, run: Run, taken: bool) {
        let start = usize::try_from(run.start.get()).unwrap();
        for block in &mut self.taken[start..start + run.len as usize] {
            assert_ne!(*block, taken, "a block is handed out twice, or freed twice");
            *block = taken;
        }
    }

    fn committed(&mut self) {
        for run in std::mem::take(&mut self.held) {
            self.set(run, false);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_block_is_handed_out_twice_and_all_are_counted(steps in steps()) {
        let volume = volume();
        let inner = &volume.engine;
        let free_at_first = inner.counts().free_blocks();
        let taken = vec![false; usize::try_from(inner.layout().blocks_count).unwrap()];
        let mut model = Model { taken, held: Vec::new(), used: 0 };
        let mut runs: Vec<Run> = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(goal, want) => match allocate(inner, goal, want) {
                    Ok(got) => {
                        let sum: u32 = got.iter().map(|run| run.len).sum();
                        prop_assert!((1..=want).contains(&sum));
                        for &run in &got {
                            inner.layout().check_data_range(run.start, u64::from(run.len)).unwrap();
                            model.set(run, true);
                        }
                        model.used += u64::from(sum);
                        runs.extend(got);
                    }
                    Err(error) => {
                        prop_assert!(matches!(error, Error::NoSpace));
                        let held: u64 = model.held.iter().map(|run| u64::from(run.len)).sum();
                        let pool = u64::try_from(inner.allocator().pool).unwrap();
                        prop_assert!(free_at_first < model.used + held + u64::from(want) + pool);
                    }
                },
                Step::Free(index, cut) if !runs.is_empty() => {
                    let run = runs.swap_remove(index.index(runs.len()));
                    let keep = u32::try_from(u64::from(run.len) * u64::from(cut) / 1000).unwrap();
                    if keep > 0 {
                        runs.push(Run { start: run.start, len: keep });
                    }
                    let rest = Run { start: run.start + u64::from(keep), len: run.len - keep };
                    free(inner, rest);
                    model.used -= u64::from(rest.len);
                    model.held.push(rest);
                }
                Step::Free(..) => {}
                Step::Commit => {
                    volume.sync().unwrap();
                    model.committed();
                }
            }
            prop_assert_eq!(inner.counts().free_blocks(), free_at_first - model.used);
        }
        for run in runs {
            free(inner, run);
            model.held.push(run);
        }
        volume.sync().unwrap();
        model.committed();
        prop_assert_eq!(inner.counts().free_blocks(), free_at_first);
        let unclaimed = inner.allocator().unclaimed.load(Ordering::Relaxed);
        prop_assert_eq!(u64::try_from(unclaimed).unwrap(), free_at_first);
        prop_assert!(!model.taken.contains(&true));
        volume.close().unwrap();
    }
}

#[test]
fn blocks_that_no_hint_shows_are_found() {
    let volume = volume();
    let inner = &volume.engine;
    for group in &inner.allocator().groups {
        group.largest_hint.store(0, Ordering::Relaxed);
    }
    assert_eq!(allocate(inner, 0, 1).unwrap().len(), 1);
    for group in &inner.allocator().groups {
        group.largest_hint.store(0, Ordering::Relaxed);
    }
    let mut reservation = inner.allocator().reserve(1).unwrap();
    let block = inner.transact(ALLOCATE_CREDITS, |handle| {
        inner.allocator().allocate_metadata(handle, FsBlock(9000), &mut reservation)
    });
    block.unwrap();
}

#[test]
fn blocks_counted_that_are_in_no_group_are_corruption() {
    let volume = volume();
    let inner = &volume.engine;
    inner.allocator().unclaim(5000);
    let error = loop {
        if let Err(error) = allocate(inner, 0, 500) {
            break error;
        }
    };
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

#[test]
fn groups_that_are_evicted_come_back_as_they_were() {
    let device = Arc::new(MemDevice::new(28 << 20));
    // Without a journal, a commit writes the bitmaps home.
    let options = MkfsOptions::new().block_size(1024).journal(false);
    mkfs(&*device, &options).unwrap();
    let options = VolumeOptions::new().commit_interval(None);
    let volume = Volume::open_device(Arc::clone(&device) as _, &options).unwrap();
    let inner = &volume.engine;
    let allocator = inner.allocator();
    let evict_all = || (0..allocator.groups.len()).for_each(|_| Evict::evict(&**allocator));
    let loaded = || allocator.groups.iter().filter(|group| group.is_loaded()).count();
    let mut held = Vec::new();
    for round in 0..40 {
        let runs = allocate(inner, round * 997 % 28_000, 200).unwrap();
        held.extend(runs);
        evict_all();
        assert!(loaded() > 0, "what a transaction holds stays");
        if round % 3 == 0 {
            free(inner, held.swap_remove(0));
            evict_all();
        }
        inner.journal().commit_all().unwrap();
        evict_all();
        assert_eq!(loaded(), 0);
    }
    let offered = InodeNo(1000);
    assert!(!allocator.offers_inode(offered).unwrap(), "the bitmap was never read");
    assert!(!allocator.inode_in_use(offered).unwrap() && allocator.offers_inode(offered).unwrap());
    evict_all();
    assert_eq!(loaded(), 0);
    assert!(allocator.offers_inode(offered).unwrap(), "a new inode may have the number");
    // A window keeps its group's free extents in memory, as its blocks are free in the bitmap.
    let file = volume.open_direct("/f", &OpenOptions::read_write().create_new(true)).unwrap();
    for nth in 0..20 {
        assert_eq!(file.append(&[1; 1024]).unwrap(), nth * 1024);
    }
    inner.journal().commit_all().unwrap();
    evict_all();
    assert!(loaded() > 0);
    drop(file);
    held.drain(..).for_each(|run| free(inner, run));
    inner.journal().commit_all().unwrap();
    evict_all();
    let free = |inner: &Engine| inner.counts().free_blocks();
    let before = free(inner);
    volume.close().unwrap();
    let volume = Volume::open_device(device, &VolumeOptions::new().read_only(true)).unwrap();
    assert_eq!(free(&volume.engine), before);
    // The checksums of the bitmaps are right, and so are their counts.
    for group in &volume.engine.allocator().groups {
        group.keep_for_window(volume.engine.cache(), |_| None).unwrap();
    }
}

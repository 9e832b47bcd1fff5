//! Conversions that are marked in leaves while the leaves are filled, split, folded, encoded and
//! removed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use parext4::fault::Fault;
use parext4::models::{limit_nodes, nodes_fit};
use parext4::{DirectFile, FileExtent, FileSize, MemDevice, SplitAt, Volume};
use shuttle::rand::Rng;

use super::support::*;
use testkit::volume::DirectFiles as _;

/// Blocks of the file that are allocated before the race.
const BLOCKS: u64 = 32;
/// Entries of a leaf: few enough that it fills and splits early, and enough that marks have room.
const ENTRIES: usize = 12;

/// Makes a file of unwritten blocks in a tree of small leaves, and writes blocks 0, 2 and 4.
fn with_marks(device: &Arc<MemDevice>) -> (Volume, DirectFile) {
    let volume = open_quiet(Arc::clone(device), SplitAt::Completion);
    let file = volume.create_direct("/f").unwrap();
    limit_nodes(&file, ENTRIES).unwrap();
    file.allocate(0..BLOCKS * BLOCK as u64, FileSize::Extend).unwrap();
    for block in [0, 2, 4] {
        write_block(&file, 1, block);
    }
    (volume, file)
}

/// Writes blocks, and asserts that they read as written at once.
fn write_and_look(file: &DirectFile, blocks: &[u64]) {
    for &block in blocks {
        write_block(file, 1, block);
        let seen = read(file, BLOCK / SECTOR, block * BLOCK as u64);
        assert!(seen.iter().all(|&byte| byte == 1), "block {block} no longer reads as written");
    }
}

/// Returns whether each block of the file is written. A written block must hold ones, any other
/// block zeros.
fn written(file: &DirectFile) -> Vec<bool> {
    let blocks = usize::try_from(file.size()).unwrap() / BLOCK;
    let is_written = |byte: u8| {
        assert!(byte <= 1, "bytes that no thread wrote are visible: {byte:#x}");
        byte == 1
    };
    blocks_of(file, blocks).into_iter().map(is_written).collect()
}

/// Like `written`, after a crash at this moment.
fn written_after_crash(device: &MemDevice) -> Vec<bool> {
    let (_volume, file) = after_crash(device, "/f");
    written(&file)
}

/// The blocks whose writes have returned, and which of them a sync made durable.
#[derive(Clone, Default)]
pub struct Acknowledged(Arc<Mutex<Vec<u64>>>);

impl Acknowledged {
    pub fn write(&self, file: &DirectFile, blocks: &[u64]) {
        for &block in blocks {
            write_and_look(file, &[block]);
            self.0.lock().unwrap().push(block);
        }
    }

    /// Syncs, crashes, and checks that the blocks acknowledged before the sync are written.
    pub fn sync(&self, file: &DirectFile, device: &MemDevice) {
        let before = self.0.lock().unwrap().clone();
        file.sync_data().unwrap();
        let after = written_after_crash(device);
        for block in before {
            assert!(after[usize::try_from(block).unwrap()], "block {block} is lost");
        }
    }
}

#[test]
fn marks_survive_commits() {
    let faults = [Fault::MarkAnyTransaction, Fault::EncodeUnfolded];
    check(1500, &faults, |image| {
        let device = Arc::new(image.fork());
        let (_volume, file) = with_marks(&device);
        let done = Acknowledged::default();
        if shuttle::rand::thread_rng().gen_bool(0.5) {
            // The leaf stays registered for marks in the transaction that ends here.
            file.sync_data().unwrap();
        }
        let syncer = {
            let (done, device) = (done.clone(), Arc::clone(&device));
            spawn(&file, move |f| {
                done.sync(f, &device);
                done.sync(f, &device);
            })
        };
        let (one, other) = (done.clone(), done.clone());
        race(&file, move |f| one.write(f, &[8]), move |f| other.write(f, &[16]));
        syncer.join().unwrap();
        done.sync(&file, &device);
    });
}

#[test]
fn marks_survive_a_leaf_that_fills_and_splits() {
    let faults = [
        Fault::FoldUnretired,
        Fault::LeafListFirst,
        Fault::MarksWithoutRoom,
        Fault::MarkNotInView,
        Fault::BitsCopied,
    ];
    check(1500, &faults, |image| {
        let device = Arc::new(image.fork());
        let (_volume, file) = with_marks(&device);
        // Fills holes past the end in no particular order while the other threads convert.
        let filler = spawn(&file, |f| {
            for block in [40, 36, 44] {
                write_and_look(f, &[block]);
            }
        });
        let syncer = spawn(&file, |f| {
            yield_randomly(300);
            f.sync_data().unwrap();
            assert!(nodes_fit(f).unwrap(), "a leaf has more entries than its capacity");
        });
        race(&file, |f| write_and_look(f, &[8, 14, 28]), |f| write_and_look(f, &[18, 11, 24]));
        filler.join().unwrap();
        syncer.join().unwrap();
        let want = [0, 2, 4, 8, 14, 28, 18, 11, 24, 40, 36, 44];
        let is_wanted = |seen: Vec<bool>| {
            let found: Vec<usize> = (0..seen.len()).filter(|&block| seen[block]).collect();
            let mut want = want.to_vec();
            want.sort_unstable();
            assert_eq!(found, want);
        };
        is_wanted(written(&file));
        file.sync_data().unwrap();
        is_wanted(written_after_crash(&device));
    });
}

/// Two threads change one leaf and three show changes of one region, in a transaction that has
/// registered the leaf.
fn fill_holes_of_one_leaf(image: &MemDevice) {
    let device = Arc::new(image.fork());
    let (_volume, file) = with_marks(&device);
    file.set_len(64 * BLOCK as u64).unwrap();
    // Registers the leaf, and shows the region after it.
    write_and_look(&file, &[36]);
    let converter = spawn(&file, |f| write_and_look(f, &[8, 14, 28]));
    race(&file, |f| write_and_look(f, &[40, 48]), |f| write_and_look(f, &[44, 42]));
    converter.join().unwrap();
    let want = [0, 2, 4, 8, 14, 28, 36, 40, 42, 44, 48];
    let is_wanted = |seen: Vec<bool>| {
        let found: Vec<usize> = (0..seen.len()).filter(|&block| seen[block]).collect();
        assert_eq!(found, want);
    };
    is_wanted(written(&file));
    file.sync_data().unwrap();
    is_wanted(written_after_crash(&device));
}

#[test]
fn holes_of_one_leaf_are_filled_in_parallel() {
    check(1500, &[Fault::LeafUnlocked], fill_holes_of_one_leaf);
    check_stopping(500, &[Fault::PublishUnchecked], fill_holes_of_one_leaf);
}

#[test]
fn marks_are_dropped_with_truncated_blocks() {
    check(1500, &[Fault::FoldUnretired], |image| {
        let device = Arc::new(image.fork());
        let (_volume, file) = with_marks(&device);
        let cutter = spawn(&file, |f| {
            f.set_len(16 * BLOCK as u64).unwrap();
            f.set_len(BLOCKS * BLOCK as u64).unwrap();
        });
        let syncer = spawn(&file, |f| f.sync_data().unwrap());
        race(
            &file,
            |f| {
                write_and_look(f, &[8]);
                write_block(f, 1, 24);
            },
            |f| {
                write_block(f, 1, 20);
                write_and_look(f, &[12]);
            },
        );
        cutter.join().unwrap();
        syncer.join().unwrap();
        let check = |seen: Vec<bool>| {
            let kept: Vec<usize> = (0..16).filter(|&block| seen[block]).collect();
            assert_eq!(kept, [0, 2, 4, 8, 12]);
            let behind: Vec<usize> = (16..seen.len()).filter(|&block| seen[block]).collect();
            assert!(behind.iter().all(|block| [20, 24].contains(block)), "{behind:?}");
        };
        check(written(&file));
        file.sync_data().unwrap();
        check(written_after_crash(&device));
    });
}

#[test]
fn a_first_read_of_a_region_sees_concurrent_conversions() {
    check(400, &[Fault::ViewUnlocked], |image| {
        let device = Arc::new(image.fork());
        let (_volume, file) = with_marks(&device);
        for block in 3..16 {
            write_block(&file, 1, 2 * block);
        }
        file.sync_data().unwrap();
        // No thread has read this one yet.
        let (_again, file) = after_crash(&device, "/f");
        let look = |f: &DirectFile| {
            yield_randomly(300);
            assert!(read(f, 1, 0).iter().all(|&byte| byte == 1));
        };
        race(&file, look, |f| f.allocate(40 * BLOCK as u64..41 * BLOCK as u64, FileSize::Extend).unwrap());
        // The commit asserts that the shown regions agree with the leaves.
        write_and_look(&file, &[1]);
        file.sync_data().unwrap();
        write_and_look(&file, &[40]);
        let found: Vec<usize> = (0..41).filter(|&block| written(&file)[block]).collect();
        assert!(found.into_iter().eq([0, 1].into_iter().chain((2..32).step_by(2)).chain([40])));
    });
}

#[test]
fn reallocated_blocks_are_unwritten() {
    check(300, &[Fault::StaleWrittenBits], |image| {
        let device = Arc::new(image.fork());
        let (_volume, file) = with_marks(&device);
        let cutter = spawn(&file, |f| {
            write_and_look(f, &[18, 21]);
            f.set_len(16 * BLOCK as u64).unwrap();
            f.allocate(16 * BLOCK as u64..32 * BLOCK as u64, FileSize::Extend).unwrap();
        });
        race(&file, |f| write_and_look(f, &[8]), |f| write_and_look(f, &[12]));
        cutter.join().unwrap();
        let check = |seen: Vec<bool>| {
            let found: Vec<usize> = (0..seen.len()).filter(|&block| seen[block]).collect();
            assert_eq!(found, [0, 2, 4, 8, 12]);
        };
        check(written(&file));
        file.sync_data().unwrap();
        check(written_after_crash(&device));
    });
}

#[test]
fn marks_survive_a_tree_that_grows_out_of_its_inode() {
    check(1500, &[], |image| {
        let device = Arc::new(image.fork());
        let volume = open_quiet(Arc::clone(&device), SplitAt::Completion);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..8 * BLOCK as u64, FileSize::Extend).unwrap();
        let syncer = spawn(&file, |f| f.sync_data().unwrap());
        race(&file, |f| write_and_look(f, &[2, 7]), |f| write_and_look(f, &[4, 5]));
        syncer.join().unwrap();
        let want = [false, false, true, false, true, true, false, true];
        assert_eq!(written(&file), want);
        file.sync_data().unwrap();
        assert_eq!(written_after_crash(&device), want);
    });
}

#[test]
fn commits_race_with_conversions() {
    check(150, &[], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..8192, FileSize::Extend).unwrap();
        let syncer = spawn(&file, |f| f.sync_all().unwrap());
        race(&file, |f| write(f, 1, 2, 1024), |f| write(f, 2, 3, 4096));
        syncer.join().unwrap();
        file.sync_data().unwrap();
        let (_volume, after) = after_crash(&device, "/f");
        let seen = sectors(&read(&after, 16, 0));
        assert_eq!(seen, [0, 0, 1, 1, 0, 0, 0, 0, 2, 2, 2, 0, 0, 0, 0, 0]);
    });
}

/// Cells of four blocks. The first block is written; each of the other blocks belongs to one
/// thread.
const CELLS: u64 = 16;

/// Runs one thread of [`leaf_updates_race_with_splits_and_holes`]. Most operations are writes.
/// `want` records the expected contents.
fn change_own_blocks(file: &DirectFile, own: u64, want: &Mutex<Vec<u8>>) {
    for _ in 0..6 {
        let mut random = shuttle::rand::thread_rng();
        let block = 4 * random.gen_range(0..CELLS) + 1 + own;
        let byte = match random.gen_range(0..8) {
            0 => {
                file.punch_hole(block * BLOCK as u64..block * BLOCK as u64 + BLOCK as u64).unwrap();
                0
            }
            1 => {
                file.zero_range(block * BLOCK as u64..block * BLOCK as u64 + BLOCK as u64, FileSize::Keep)
                    .unwrap();
                0
            }
            2 => {
                file.sync_data().unwrap();
                continue;
            }
            _ => {
                write_and_look(file, &[block]);
                1
            }
        };
        want.lock().unwrap()[usize::try_from(block).unwrap()] = byte;
    }
}

/// Runs fills and conversions in leaves against splits, punched holes, zeroed ranges and commits,
/// in a file of which half is allocated.
fn leaf_updates_race_with_all_else(image: &MemDevice, split_at: SplitAt, entries: usize) {
    let device = Arc::new(image.fork());
    let volume = open_quiet(Arc::clone(&device), split_at);
    let file = volume.create_direct("/f").unwrap();
    limit_nodes(&file, entries).unwrap();
    file.set_len(4 * CELLS * BLOCK as u64).unwrap();
    let want = Arc::new(Mutex::new([1, 0, 0, 0].repeat(usize::try_from(CELLS).unwrap())));
    for cell in 0..CELLS {
        write_and_look(&file, &[4 * cell]);
        if cell < CELLS / 2 {
            file.allocate(
                (4 * cell + 1) * BLOCK as u64..(4 * cell + 1) * BLOCK as u64 + 3 * BLOCK as u64,
                FileSize::Extend,
            )
            .unwrap();
        }
    }
    let change = |own| {
        let want = Arc::clone(&want);
        spawn(&file, move |f| change_own_blocks(f, own, &want))
    };
    [0, 1, 2].map(change).into_iter().for_each(|thread| thread.join().unwrap());
    let want = want.lock().unwrap();
    assert_eq!(blocks_of(&file, want.len()), *want);
    assert!(nodes_fit(&file).unwrap(), "a leaf has more entries than its capacity");
    file.sync_all().unwrap();
    let (_volume, after) = after_crash(&device, "/f");
    assert_eq!(blocks_of(&after, want.len()), *want);
    let extents = after.fiemap(0..after.size()).unwrap();
    let blocks =
        |extent: &FileExtent| (extent.device_offset..extent.device_offset + extent.len).step_by(BLOCK);
    let places: Vec<u64> = extents.iter().flat_map(blocks).collect();
    assert_eq!(places.len(), places.iter().collect::<BTreeSet<_>>().len(), "a block is mapped twice");
}

#[test]
fn leaf_updates_race_with_splits_and_holes() {
    check(1500, &[Fault::LeafUnlocked], |image| {
        leaf_updates_race_with_all_else(image, SplitAt::Completion, 12);
    });
}

#[test]
fn leaf_updates_race_with_extents_split_in_advance() {
    check(1500, &[], |image| leaf_updates_race_with_all_else(image, SplitAt::Submission, 16));
}

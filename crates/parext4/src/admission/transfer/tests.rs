//! Checks the steps of one operation alone, without a driver.

use super::*;
use crate::sync::{Arc, Rank, hold};
use crate::{DirectFile, FileSize, MemDevice, MkfsOptions, OpenOptions, Volume, VolumeOptions, mkfs};

const BLOCK: u64 = 4096;

fn volume() -> Volume {
    let device = Arc::new(MemDevice::new(16 << 20));
    mkfs(&*device, &MkfsOptions::new().block_size(4096).device_is_zero(true)).unwrap();
    Volume::open_device(device, &VolumeOptions::new().commit_interval(None)).unwrap()
}

/// Creates a file of two written blocks, a hole, and four unwritten blocks.
fn create(volume: &Volume) -> DirectFile {
    let file = volume.open_direct("/file", &OpenOptions::read_write().create_new(true)).unwrap();
    file.write_all_at(&[1; 2 * BLOCK as usize], 0).unwrap();
    file.allocate(3 * BLOCK..7 * BLOCK, FileSize::Extend).unwrap();
    file
}

fn write(offset: u64, end: u64) -> Transfer {
    Transfer::extending(Operation::Write { offset, end }, end)
}

/// Returns the operation for which a range is requested.
fn request(transfer: &mut Transfer, node: &InodeRef) -> Option<Operation> {
    transfer.request(node, |request| Ok(request.operation)).unwrap()
}

/// Requests the range of an operation and grants it all of the file.
fn grant(transfer: &mut Transfer, node: &InodeRef, coherent: Result<bool>) -> Result<Option<Granted>> {
    request(transfer, node).expect("it begins before the end");
    let _held = hold(Rank::Range);
    let hold = Hold::new(node.inode.ranges.exclusive(ByteRange::ALL));
    transfer.granted(node, &hold, |_, _, _| coherent)
}

fn is_idle(node: &InodeRef) -> bool {
    let tail = node.inode.tail.lock();
    tail.is_idle() && tail.end() == node.inode.size()
}

#[test]
fn a_read_whose_end_moves_again_and_again_holds_its_whole_range() {
    let volume = volume();
    let file = create(&volume);
    let (node, wanted) = (file.inode_ref(), 100 * BLOCK);
    let mut read = Transfer::reading(Operation::Read { offset: 0, end: wanted });
    for _ in 0..READ_ATTEMPTS {
        assert_eq!(request(&mut read, node), Some(Operation::Read { offset: 0, end: node.inode.size() }));
    }
    assert_eq!(request(&mut read, node), Some(Operation::Read { offset: 0, end: wanted }));
}

#[test]
fn a_read_of_all_of_a_file_needs_one_attempt() {
    let volume = volume();
    let file = create(&volume);
    let node = file.inode_ref();
    let size = node.inode.size();
    let mut read = Transfer::reading(Operation::Read { offset: BLOCK, end: 100 * BLOCK });
    assert!(grant(&mut read, node, Ok(false)).unwrap().is_some());
    assert_eq!((read.attempts, read.size(), read.end()), (1, size, size));
}

#[test]
fn a_write_announces_only_an_end_past_the_end() {
    let volume = volume();
    let file = create(&volume);
    let node = file.inode_ref();
    let size = node.inode.size();
    for (end, announces) in [(size, false), (size + 1, true)] {
        let mut write = write(0, end);
        request(&mut write, node);
        assert_eq!(matches!(write.claim, EndClaim::Announced(announced) if announced == end), announces);
        assert_eq!(is_idle(node), !announces);
        write.withdraw(node);
        assert!(is_idle(node));
    }
}

#[test]
fn an_operation_that_fails_leaves_no_end() {
    let volume = volume();
    let file = create(&volume);
    let node = file.inode_ref();
    let size = node.inode.size();
    let append = Transfer::appending(Operation::Write { offset: 0, end: 0 }, 100);
    for mut transfer in [append, write(0, size + 1)] {
        assert!(grant(&mut transfer, node, Err(Error::NoSpace)).is_err());
        assert!(is_idle(node));
    }
}

#[test]
fn an_append_is_overtaken_if_it_would_fill_a_sector_that_others_have_written() {
    let volume = volume();
    let file = create(&volume);
    let node = file.inode_ref();
    let size = node.inode.size();
    let mut append = Transfer::appending(Operation::Write { offset: 0, end: 0 }, 100);
    assert!(grant(&mut append, node, Ok(false)).unwrap().is_some());
    assert_eq!((append.attempts, append.offset(), append.end()), (0, size, size + 100));
    let grown = |at| node.inode.set_size(at);
    grown(size + 101);
    assert!(!append.is_overtaken(node), "it has not queued again");
    append.attempts = 1;
    assert!(append.is_overtaken(node));
    grown(size + 100);
    assert!(!append.is_overtaken(node), "nothing follows it");
    grown(size + 101);
    append.operation = append.operation.at(size, size + 512);
    assert!(!append.is_overtaken(node), "it fills no sector");
    append.operation = Operation::BufferedWrite { offset: size, end: size + 100 };
    assert!(!append.is_overtaken(node), "the page cache keeps what later appends have written");
    append.operation = Operation::Write { offset: size, end: size + 100 };
    assert!(append.is_overtaken(node));
    grown(size);
    append.withdraw(node);
    assert!(!append.is_overtaken(node), "it has no claim");
    assert!(is_idle(node));
}

#[test]
fn a_write_is_widened_to_the_unwritten_extent_around_it() {
    let volume = volume();
    let file = create(&volume);
    let node = file.inode_ref();
    let mut inside = write(4 * BLOCK, 5 * BLOCK);
    inside.widen(node).unwrap();
    let wide = ByteRange::new(3 * BLOCK, 7 * BLOCK);
    assert_eq!(inside.widened(), Some(wide));
    assert_eq!(request(&mut inside, node), Some(widening(wide)));
    assert!(matches!(inside.widen(node), Err(Error::NoSpace)), "it was in vain");
}

#[test]
fn a_write_that_is_not_widened_ends() {
    let volume = volume();
    let file = create(&volume);
    let node = file.inode_ref();
    let mut overwrite = write(0, BLOCK);
    for _ in 0..WIDEN_ATTEMPTS {
        overwrite.widen(node).unwrap();
    }
    assert!(matches!(overwrite.widen(node), Err(Error::NoSpace)));
    let mut of_hole = write(2 * BLOCK, 3 * BLOCK);
    assert!(matches!(of_hole.widen(node), Err(Error::NoSpace)), "it has no block");
    let mut append = Transfer::appending(Operation::Write { offset: 0, end: 0 }, 100);
    assert!(matches!(append.widen(node), Err(Error::NoSpace)), "it has no extent");
    let mut read = Transfer::extending(Operation::Read { offset: 0, end: BLOCK }, 0);
    assert!(matches!(read.widen(node), Err(Error::NoSpace)), "it is no write");
    let past_end = volume.open_direct("/past end", &OpenOptions::read_write().create_new(true)).unwrap();
    past_end.allocate(0..4 * BLOCK, FileSize::Keep).unwrap();
    past_end.set_len(2 * BLOCK).unwrap();
    let mut first = write(0, BLOCK);
    assert!(matches!(first.widen(past_end.inode_ref()), Err(Error::NoSpace)), "it would extend the file");
}

#[test]
fn a_widened_write_announces_its_end_only_after_a_truncation() {
    let volume = volume();
    let file = create(&volume);
    let node = file.inode_ref();
    let size = node.inode.size();
    let mut last = write(5 * BLOCK, size);
    last.claim = EndClaim::Announced(size);
    node.inode.tail.lock().announce(size);
    last.widen(node).unwrap();
    assert!(is_idle(node), "a widened write lies within the file");
    assert!(last.widened().is_some());
    file.set_len(size - 1).unwrap();
    assert_eq!(request(&mut last, node), Some(last.operation));
    assert!(last.widened().is_none() && matches!(last.claim, EndClaim::Announced(_)));
    last.withdraw(node);
    assert!(is_idle(node));
}

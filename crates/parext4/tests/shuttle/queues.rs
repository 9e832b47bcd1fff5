//! Queues of operations: parked, refused, cancelled and dropped operations, and the order of
//! ranges.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use parext4::fault::Fault;
use parext4::{
    AlignedBuf, Completion, DirectFile, Error, FileSize, IoFlags, IoQueue, IoRequest, MemDevice, SplitAt,
    Volume,
};

use shuttle::rand::Rng;
use shuttle::sync::atomic::AtomicBool;

use super::support::*;
use testkit::volume::DirectFiles as _;

const NOWAIT: IoFlags = IoFlags::new().nowait(true);

fn buf(byte: u8, len: usize) -> AlignedBuf {
    AlignedBuf::from_slice(&vec![byte; len])
}

/// Starts writes of blocks.
fn submit_write(queue: &mut IoQueue, file: &DirectFile, byte: u8, block: u64, blocks: usize, token: u64) {
    let len = blocks * BLOCK;
    let request = IoRequest::Write { buf: buf(byte, len), len, offset: block * BLOCK as u64 };
    queue.submit(file, request, token, IoFlags::new());
}

fn submit_append(queue: &mut IoQueue, file: &DirectFile, byte: u8, token: u64, flags: IoFlags) {
    queue.submit(file, IoRequest::Append { buf: buf(byte, BLOCK), len: BLOCK }, token, flags);
}

/// Blocks until all operations have completed.
fn finish(queue: &mut IoQueue) -> Vec<Completion> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.harvest(&mut done).unwrap();
    }
    done
}

fn finish_well(queue: &mut IoQueue) {
    for completion in finish(queue) {
        completion.result.unwrap();
    }
}

/// Reads up to `len` bytes from the start of the file.
fn read_queued(queue: &mut IoQueue, file: &DirectFile, len: usize) -> Vec<u8> {
    queue.submit(file, IoRequest::Read { buf: buf(0xee, len), len, offset: 0 }, 1, IoFlags::new());
    let completion = finish(queue).pop().unwrap();
    let count = usize::try_from(completion.result.unwrap()).unwrap();
    completion.buf.unwrap()[..count].to_vec()
}

/// Runs `work` with a queue in a new thread.
fn with_queue(
    volume: &Volume,
    file: &DirectFile,
    work: impl FnOnce(&mut IoQueue, &DirectFile) + Send + 'static,
) -> shuttle::thread::JoinHandle<()> {
    let volume = volume.clone();
    spawn(file, move |f| work(&mut volume.io_queue(4), f))
}

#[test]
fn a_parked_queue_thread_is_woken() {
    check(300, &[Fault::SleepUnchecked], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..4096, FileSize::Extend).unwrap();
        let write = |byte: u8| {
            move |queue: &mut IoQueue, file: &DirectFile| {
                submit_write(queue, file, byte, 0, 2, 1);
                finish_well(queue);
                submit_write(queue, file, byte, 1, 2, 2);
                finish_well(queue);
            }
        };
        let threads = [with_queue(&volume, &file, write(1)), with_queue(&volume, &file, write(2))];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let seen = blocks_of(&file, 4);
        assert!(seen[1] == seen[2] && seen[3] == 0, "{seen:?}");
    });
}

#[test]
fn a_queue_thread_that_is_woken_returns() {
    check(300, &[Fault::SleepUnchecked], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..4096, FileSize::Extend).unwrap();
        // Held until it is harvested, which happens after the other queue is dropped.
        let mut holder = volume.io_queue(1);
        submit_write(&mut holder, &file, 1, 0, 1, 1);
        let mut queue = volume.io_queue(1);
        let (waker, told) = (queue.waker(), Arc::new(AtomicBool::new(false)));
        let sleeper = {
            let told = Arc::clone(&told);
            spawn(&file, move |f| {
                submit_write(&mut queue, f, 2, 0, 1, 2);
                while !told.load(Ordering::SeqCst) {
                    queue.harvest(&mut Vec::new()).unwrap();
                }
            })
        };
        yield_randomly(100);
        told.store(true, Ordering::SeqCst);
        waker.wake();
        sleeper.join().unwrap();
        finish_well(&mut holder);
        assert_eq!(blocks_of(&file, 1), [1]);
    });
}

#[test]
fn a_truncation_races_with_a_write_of_a_queue() {
    check(300, &[Fault::ReleaseAtSubmission], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..4096, FileSize::Extend).unwrap();
        let writer = with_queue(&volume, &file, |queue, file| {
            submit_write(queue, file, 2, 2, 2, 1);
            yield_randomly(10);
            finish_well(queue);
        });
        let cutter = spawn(&file, |f| f.set_len(1024).unwrap());
        writer.join().unwrap();
        cutter.join().unwrap();
        match file.size() {
            1024 => {}
            4096 => assert_eq!(blocks_of(&file, 4), [0, 0, 2, 2]),
            size => panic!("size {size}"),
        }
        volume.sync().unwrap();
    });
}

/// The read writes a dirty page back before it reads the extent map. Meanwhile a write extends the
/// file past the range that the read holds.
#[test]
fn a_read_of_a_queue_ends_where_its_range_does() {
    check(200, &[Fault::ReadPastRange], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        let buffered = file.buffered().unwrap();
        buffered.write_all_at(&[1; 4096], 0).unwrap();
        let reader = with_queue(&volume, &file, |queue, file| {
            let seen = sectors(&read_queued(queue, file, 8192));
            let (before, after) = seen.split_at(8);
            assert_eq!(before, [1; 8]);
            assert!(after.is_empty() || after == [2; 2], "bytes that the write did not write: {after:?}");
        });
        let writer = spawn(&file, move |_| {
            yield_randomly(10);
            buffered.write_all_at(&[2; 2 * SECTOR], 4096).unwrap();
        });
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

/// As `sizes::a_reader_within_the_size_sees_the_data`, with a read of a queue.
#[test]
fn a_read_of_a_queue_within_the_size_sees_the_data() {
    check(300, &[Fault::StaleSize], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 1, 1, 0);
        let reader = with_queue(&volume, &file, |queue, file| {
            let size = file.size();
            let seen = sectors(&read_queued(queue, file, 4 * SECTOR));
            assert!((seen.len() * SECTOR) as u64 >= size, "data that was visible is gone");
            assert!(seen == [1] || seen == [7; 4], "half of a write is seen: {seen:?}");
        });
        let writer = spawn(&file, |file| write(file, 7, 4, 0));
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

/// As `appends::an_append_whose_block_is_punched_leaves_no_gap`, with an append of a queue.
#[test]
fn an_append_of_a_queue_whose_block_is_punched_leaves_no_gap() {
    check(300, &[Fault::ClaimAgain], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write(&file, 9, 1, 0);
        let appends = [1, 3].map(|byte| {
            with_queue(&volume, &file, move |queue, file| {
                let request = IoRequest::Append { buf: buf(byte, SECTOR), len: SECTOR };
                queue.submit(file, request, 1, IoFlags::new());
                finish_well(queue);
            })
        });
        let punch = spawn(&file, |file| file.punch_hole(0..BLOCK as u64).unwrap());
        appends.into_iter().chain([punch]).for_each(|thread| thread.join().unwrap());
        let seen = sectors(&read(&file, 8, 0));
        let appended = [[1, 3], [3, 1], [0, 1], [0, 3]].contains(&[seen[1], seen[2]]);
        assert!(seen.len() == 3 && appended, "{seen:?}");
    });
}

#[test]
fn a_refused_operation_has_no_effect() {
    check(300, &[Fault::NowaitClaims], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        write_block(&file, 1, 0);
        let refused = with_queue(&volume, &file, |queue, file| {
            submit_append(queue, file, 7, 1, NOWAIT);
            let done = finish(queue);
            assert!(matches!(done[0].result, Err(Error::WouldBlock(_))), "{done:?}");
        });
        let end = file.append(&[2; BLOCK]).unwrap();
        refused.join().unwrap();
        assert_eq!((end, blocks_of(&file, 4)), (1024, vec![1, 2]));
    });
}

/// The blocks of the refused append are mapped, but the page cache holds the page in which it would
/// begin.
#[test]
fn an_operation_refused_for_cached_pages_has_no_effect() {
    check(300, &[Fault::NowaitPagesLate], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..4096, FileSize::Keep).unwrap();
        let buffered = file.buffered().unwrap();
        buffered.write_all_at(&[1; BLOCK], 0).unwrap();
        let refused = with_queue(&volume, &file, |queue, file| {
            submit_append(queue, file, 7, 1, NOWAIT);
            let done = finish(queue);
            assert!(matches!(done[0].result, Err(Error::WouldBlock(_))), "{done:?}");
        });
        let end = buffered.append(&[2; BLOCK]).unwrap();
        refused.join().unwrap();
        assert_eq!((end, blocks_of(&file, 4)), (1024, vec![1, 2]));
    });
}

/// One operation holds blocks, further operations wait for them, and some of the waiting operations
/// are cancelled.
fn give_up(image: &MemDevice, how: fn(IoQueue)) {
    let volume = volume(image);
    let file = volume.create_direct("/f").unwrap();
    file.allocate(0..2048, FileSize::Extend).unwrap();
    let gives_up = {
        let volume = volume.clone();
        spawn(&file, move |f| {
            let mut queue = volume.io_queue(4);
            if shuttle::rand::thread_rng().gen_bool(0.5) {
                submit_write(&mut queue, f, 7, 0, 4, 1);
            } else {
                submit_append(&mut queue, f, 7, 1, IoFlags::new());
            }
            how(queue);
        })
    };
    race(&file, |f| write_block(f, 1, 0), |f| f.set_len(2048).unwrap());
    gives_up.join().unwrap();
    let size = file.size();
    assert!([2048, 3072, 4096].contains(&size), "size {size}");
    let seen = blocks_of(&file, 8);
    assert!([1, 7].contains(&seen[0]) && seen[1..].iter().all(|byte| [0, 7].contains(byte)), "{seen:?}");
    assert_eq!(file.append(&[2; BLOCK]).unwrap(), size, "a cancelled operation left its claim");
}

#[test]
fn cancelled_operations_leave_no_trace() {
    check(300, &[Fault::ClaimLeaked], |image| {
        give_up(image, |mut queue| {
            queue.cancel(1);
            for completion in finish(&mut queue) {
                assert!(matches!(completion.result, Ok(_) | Err(Error::Cancelled)), "{completion:?}");
            }
        });
    });
}

#[test]
fn a_dropped_queue_leaves_no_trace() {
    check(300, &[Fault::ClaimLeaked], |image| give_up(image, drop));
}

#[test]
fn a_close_races_with_a_queue() {
    check(300, &[Fault::QueueWhileClosing], |image| {
        let device = Arc::new(image.fork());
        let volume = open(Arc::clone(&device));
        let file = volume.create_direct("/f").unwrap();
        // The file has preallocated blocks, which closing the volume frees.
        for _ in 0..17 {
            file.append(&[7; BLOCK]).unwrap();
        }
        // The times at which the volume was closed, and at which the queue was about to be dropped.
        // Its operation had begun before.
        let clock = Arc::new(AtomicU32::new(0));
        let closed = Arc::new(Mutex::new(None));
        let done = Arc::new(Mutex::new(None));
        let writer = {
            let (clock, done) = (Arc::clone(&clock), Arc::clone(&done));
            with_queue(&volume, &file, move |queue, file| {
                submit_append(queue, file, 7, 1, IoFlags::new());
                let succeeded = finish(queue)[0].result.is_ok();
                yield_randomly(4000);
                *done.lock().unwrap() = succeeded.then(|| clock.fetch_add(1, Ordering::SeqCst));
            })
        };
        let closer = {
            let (clock, closed) = (Arc::clone(&clock), Arc::clone(&closed));
            let volume = volume.clone();
            spawn(&file, move |_| match volume.close() {
                Ok(()) => *closed.lock().unwrap() = Some(clock.fetch_add(1, Ordering::SeqCst)),
                Err(error) => assert!(matches!(error, Error::Busy(_)), "{error}"),
            })
        };
        writer.join().unwrap();
        closer.join().unwrap();
        let (closed, done) = (*closed.lock().unwrap(), *done.lock().unwrap());
        if closed.is_some() {
            assert!(done.is_none_or(|done| Some(done) < closed), "the volume was closed under a queue");
            let (_volume, after) = after_crash(&device, "/f");
            let want = 17 + usize::from(done.is_some());
            assert_eq!(
                blocks_of(&after, 32),
                vec![7; want],
                "an operation that completed before the close is lost"
            );
        }
    });
}

/// One close waits for a write, the write for the range of a queue, and the thread of the queue for
/// the close.
#[test]
fn a_close_does_not_wait_for_the_range_of_a_queue() {
    check_stopping(300, &[Fault::QueueWhileClosing], |image| {
        let volume = open_quiet(Arc::new(image.fork()), SplitAt::default());
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..4096, FileSize::Extend).unwrap();
        let close = |volume: &Volume| match volume.clone().close() {
            Ok(()) => {}
            Err(error) => assert!(matches!(error, Error::Busy(_)), "{error}"),
        };
        let queued = {
            let closed = volume.clone();
            with_queue(&volume, &file, move |queue, file| {
                submit_write(queue, file, 1, 0, 1, 1);
                close(&closed);
                finish(queue);
            })
        };
        let writer = spawn(&file, |file| match file.write_all_at(&[2; BLOCK], 0) {
            Ok(()) => {}
            Err(error) => assert!(matches!(error, Error::Stopped(_)), "{error}"),
        });
        close(&volume);
        queued.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
fn a_waiting_operation_blocks_only_overlapping_ranges() {
    check(100, &[Fault::HoldWholeFile], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..8192, FileSize::Extend).unwrap();
        let mut queue = volume.io_queue(4);
        // This operation holds its blocks until it is harvested.
        submit_write(&mut queue, &file, 1, 0, 1, 1);
        let waits = spawn(&file, |f| write(f, 2, 4, 0));
        spawn(&file, |f| write_block(f, 3, 4)).join().unwrap();
        finish_well(&mut queue);
        waits.join().unwrap();
        assert_eq!(blocks_of(&file, 8), [2, 2, 0, 0, 3, 0, 0, 0]);
    });
}

#[test]
fn small_ranges_do_not_overtake_a_waiting_large_range() {
    check(100, &[Fault::PassWaiters], |image| {
        let volume = volume(image);
        let file = volume.create_direct("/f").unwrap();
        file.allocate(0..8192, FileSize::Extend).unwrap();
        let mut queue = volume.io_queue(4);
        submit_write(&mut queue, &file, 1, 0, 1, 1);
        // Waits for the first. Later operations that overlap it wait, too.
        submit_write(&mut queue, &file, 2, 0, 8, 2);
        let late = spawn(&file, |f| write_block(f, 3, 4));
        yield_randomly(100);
        finish_well(&mut queue);
        late.join().unwrap();
        assert_eq!(blocks_of(&file, 8), [2, 2, 2, 2, 3, 2, 2, 2], "the late write came before the early one");
    });
}

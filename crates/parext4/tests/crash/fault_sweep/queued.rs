//! Queues of operations.

use parext4::{AlignedBuf, Completion, DirectFile, Error, IoFlags, IoQueue, IoRequest, Result, Volume};
use testkit::volume::{DirectFiles as _, untimed};

use super::{LARGE, SMALL, bytes, with_file, workload};

/// The operation returned its buffer, and its result is passed on.
fn result(completion: Completion) -> Result<u64> {
    completion.result
}

fn buffer(tag: u8, len: usize) -> AlignedBuf {
    AlignedBuf::from_slice(&bytes(tag, len))
}

/// Waits for all operations. Returns the first error, after all have ended.
fn finish(queue: &mut IoQueue) -> Result<()> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.harvest(&mut done)?;
    }
    let refused =
        |completion: &Completion| matches!(completion.result, Err(Error::Cancelled | Error::WouldBlock(_)));
    done.into_iter()
        .filter(|completion| !refused(completion))
        .try_for_each(|completion| result(completion).map(drop))
}

/// Runs operations on a queue of their own, so that the volume can be closed after an error.
fn queued(volume: &Volume, submit: impl FnOnce(&mut IoQueue)) -> Result<()> {
    let mut queue = volume.io_queue(8);
    submit(&mut queue);
    finish(&mut queue)
}

fn write(queue: &mut IoQueue, file: &DirectFile, tag: u8, len: usize, offset: u64) {
    let request = IoRequest::Write { buf: buffer(tag, len), len, offset };
    queue.submit(file, request, offset, IoFlags::new());
}

workload!(queued_writes, with_file(LARGE, 64 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("overwrite", |volume| {
        queued(volume, |queue| (0..6).for_each(|nth| write(queue, &file, 2, 8192, nth * 8192)))
    })?;
    run.step("extend", |volume| {
        queued(volume, |queue| {
            (0..4).for_each(|nth| write(queue, &file, 3, 10 << 10, (64 << 10) + nth * (10 << 10)));
        })
    })?;
    run.file_step("sync", "/file", |volume| {
        queued(volume, |queue| queue.submit(&file, IoRequest::SyncAll, 1, IoFlags::new()))
    })?;
    run.step("write past a hole", |volume| queued(volume, |queue| write(queue, &file, 4, 512, 300 << 10)))?;
    run.file_step("sync the data", "/file", |volume| {
        queued(volume, |queue| queue.submit(&file, IoRequest::SyncData, 1, IoFlags::new()))
    })
});

workload!(queued_appends, with_file(SMALL, 4096), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("append", |volume| {
        queued(volume, |queue| {
            // The same bytes, because the appends after one that fails begin at its offset.
            for nth in 0..6 {
                let request =
                    IoRequest::Append { buf: AlignedBuf::from_slice(&[0x77; 3 << 10]), len: 3 << 10 };
                queue.submit(&file, request, nth, IoFlags::new());
            }
        })
    })?;
    run.sync()?;
    run.step("append one", |volume| {
        queued(volume, |queue| {
            queue.submit(&file, IoRequest::Append { buf: buffer(9, 512), len: 512 }, 1, IoFlags::new());
        })
    })?;
    run.file_step("sync", "/file", |_| file.sync_all())
});

workload!(queued_reads, with_file(LARGE, 256 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.look("read", |volume| {
        let mut queue = volume.io_queue(4);
        for nth in 0..8 {
            let request = IoRequest::Read {
                buf: AlignedBuf::zeroed(16 << 10),
                len: 16 << 10,
                offset: nth * (32 << 10),
            };
            queue.submit(&file, request, nth, IoFlags::new());
        }
        let (mut done, all) = (Vec::new(), bytes(1, 256 << 10));
        while queue.in_flight() > 0 {
            queue.harvest(&mut done)?;
        }
        for Completion { token, buf, result, .. } in done {
            let from = usize::try_from(token).expect("a small number") * (32 << 10);
            assert_eq!(result?, 16 << 10);
            assert!(buf.expect("a read returns its buffer")[..] == all[from..from + (16 << 10)], "at {from}");
        }
        Ok(())
    })
});

// Operations that may not wait, and operations that are cancelled.
workload!(queued_operations_that_do_not_wait, with_file(LARGE, 32 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("write at once", |volume| {
        queued(volume, |queue| {
            for nth in 0..4 {
                let request = IoRequest::Write { buf: buffer(2, 4096), len: 4096, offset: nth * 4096 };
                queue.submit(&file, request, nth, IoFlags::new().nowait(true));
            }
            let request = IoRequest::Append { buf: buffer(3, 4096), len: 4096 };
            queue.submit(&file, request, 9, IoFlags::new());
        })
    })?;
    run.step("cancel", |volume| {
        queued(volume, |queue| {
            // The same bytes, wherever they overlap.
            (0..3).for_each(|nth| write(queue, &file, 4 + 2 * nth, 4096, 8192 + u64::from(nth) * 1024));
            queue.cancel(9216);
        })
    })?;
    run.file_step("sync", "/file", |_| file.sync_all())
});

//! A thread of the stress on one file that has many operations in flight.

use std::time::Instant;

use parext4::device::AlignedBuf;
use parext4::{Completion, Error, FileSize, IoFlags, IoQueue, IoRequest};

use super::one_file::{FILE, LONGEST, ROUND, ROUND_OPERATIONS, Run, SPAN, bytes, offset, place};
use testkit::history::{Effect, Log};
use testkit::rng::Rng;
use testkit::sector::{SECTOR, Stamp, fill, fill_append};

const DEPTH: usize = 8;

/// An operation in flight, by its token.
#[derive(Clone, Copy, Debug)]
struct Begun {
    what: What,
    start: u64,
    nowait: bool,
    /// Whether it may be cancelled. A cancelled operation that extends the file leaves a gap
    /// between appends.
    cancellable: bool,
    cancelled: bool,
}

/// Offsets in sectors.
#[derive(Clone, Copy, Debug)]
enum What {
    Read { first: u64, wanted: u64 },
    Write { first: u64, end: u64, stamp: Stamp },
    Append { sectors: u64, stamp: Stamp },
    Sync,
}

/// One thread in one round.
pub(crate) struct Queued<'a> {
    run: &'a Run<'a>,
    thread: usize,
    rng: Rng,
    cuts: bool,
    queue: IoQueue,
    begun: [Option<Begun>; DEPTH],
    buffers: Vec<AlignedBuf>,
    done: Vec<Completion>,
    log: Log,
}

impl<'a> Queued<'a> {
    pub(crate) fn new(run: &'a Run<'a>, thread: usize, rng: Rng, cuts: bool) -> Self {
        Self {
            run,
            thread,
            rng,
            cuts,
            queue: run.volume.io_queue(u32::try_from(DEPTH).unwrap()),
            begun: [None; DEPTH],
            buffers: (0..DEPTH).map(|_| AlignedBuf::zeroed(bytes(LONGEST))).collect(),
            done: Vec::new(),
            log: Log::default(),
        }
    }

    pub(crate) fn work(mut self) -> Log {
        let deadline = Instant::now() + ROUND;
        for _ in 0..ROUND_OPERATIONS {
            if Instant::now() >= deadline {
                break;
            }
            let run = self.run;
            run.watchdog.watch(self.thread, || self.operation());
        }
        let run = self.run;
        run.watchdog.watch(self.thread, || self.drain());
        self.log
    }

    fn operation(&mut self) {
        match self.rng.below(100) {
            0..34 => self.read(),
            34..66 => self.write(),
            66..80 => self.append(),
            80..84 => self.allocate(),
            84..88 if self.cuts => self.set_len(),
            88..91 => self.submit(IoRequest::SyncAll, What::Sync),
            91..94 => self.submit(IoRequest::SyncData, What::Sync),
            _ => self.cancel(),
        }
        let wait = self.queue.in_flight() == DEPTH || self.rng.chance(20);
        self.harvest(wait);
    }

    fn submit(&mut self, request: IoRequest, what: What) {
        let token = self.begun.iter().position(Option::is_none).expect("a free token");
        let nowait = self.rng.chance(30);
        let cancellable = match what {
            What::Read { .. } => true,
            What::Write { end, .. } => !self.cuts && offset(end) <= self.run.file.size(),
            What::Append { .. } | What::Sync => false,
        };
        let start = self.run.clock.tick();
        self.begun[token] = Some(Begun { what, start, nowait, cancellable, cancelled: false });
        self.queue.submit(self.run.file, request, token as u64, IoFlags::new().nowait(nowait));
    }

    fn read(&mut self) {
        let (first, wanted) = place(&mut self.rng);
        let buf = self.buffers.pop().expect("a buffer");
        let request = IoRequest::Read { buf, len: bytes(wanted - first), offset: offset(first) };
        self.submit(request, What::Read { first, wanted });
    }

    fn write(&mut self) {
        let (first, end) = place(&mut self.rng);
        let (stamp, len) = (self.run.stamp(self.thread), bytes(end - first));
        let mut buf = self.buffers.pop().expect("a buffer");
        fill(&mut buf[..len], first, stamp);
        self.submit(IoRequest::Write { buf, len, offset: offset(first) }, What::Write { first, end, stamp });
    }

    fn append(&mut self) {
        let sectors = self.rng.log_uniform(LONGEST / 16);
        let (stamp, len) = (self.run.stamp(self.thread), bytes(sectors));
        let mut buf = self.buffers.pop().expect("a buffer");
        fill_append(&mut buf[..len], stamp);
        self.submit(IoRequest::Append { buf, len }, What::Append { sectors, stamp });
    }

    /// Blocking calls could wait for ranges that only this thread can release.
    fn allocate(&mut self) {
        self.drain();
        let (first, end) = place(&mut self.rng);
        let start = self.run.clock.tick();
        if !self.run.extents {
            return;
        }
        self.run.file.allocate(offset(first)..offset(end), FileSize::Extend).expect("allocate");
        self.log.changed(start, self.run.clock.tick(), Effect::Allocate { end });
    }

    fn set_len(&mut self) {
        self.drain();
        let size = self.rng.below(SPAN);
        let start = self.run.clock.tick();
        self.run.file.set_len(offset(size)).expect("set_len");
        self.log.changed(start, self.run.clock.tick(), Effect::SetLen { size });
    }

    fn cancel(&mut self) {
        let token = usize::try_from(self.rng.below(DEPTH as u64)).unwrap();
        if let Some(begun) = self.begun[token].as_mut().filter(|begun| begun.cancellable) {
            begun.cancelled = self.queue.cancel(token as u64);
        }
    }

    fn drain(&mut self) {
        while self.queue.in_flight() > 0 {
            self.harvest(true);
        }
    }

    fn harvest(&mut self, wait: bool) {
        let mut done = std::mem::take(&mut self.done);
        let harvested = if wait { self.queue.harvest(&mut done) } else { self.queue.try_harvest(&mut done) };
        harvested.expect("harvest");
        let end = self.run.clock.tick();
        done.drain(..).for_each(|completion| self.over(completion, end));
        self.done = done;
    }

    fn over(&mut self, completion: Completion, end: u64) {
        let token = usize::try_from(completion.token).unwrap();
        let begun = self.begun[token].take().expect("it was in flight");
        match completion.result {
            Ok(result) => self.took_effect(&begun, result, completion.buf.as_deref().unwrap_or(&[]), end),
            // Neither has any effect: no read may return its data.
            Err(Error::WouldBlock(_)) if begun.nowait => {}
            Err(Error::Cancelled) if begun.cancelled => {}
            Err(error) => panic!("seed {}: {begun:?}: {error}", self.run.seed),
        }
        self.buffers.extend(completion.buf);
    }

    fn took_effect(&mut self, begun: &Begun, result: u64, buf: &[u8], end: u64) {
        let count = usize::try_from(result).unwrap();
        self.log.way = if begun.nowait { "queued, not waiting," } else { "queued" };
        match begun.what {
            What::Read { first, wanted } => {
                let saw = self.log.saw((begun.start, end), FILE, (first, wanted), &buf[..count]);
                saw.unwrap_or_else(|e| {
                    panic!("seed {}: a read of sectors {first}..{wanted}: {e}", self.run.seed)
                });
            }
            What::Write { first, end: last, stamp } => {
                assert_eq!(count, bytes(last - first));
                let effect = Effect::Write { first, end: last, stamp, append: false };
                self.log.changed(begun.start, end, effect);
            }
            What::Append { sectors, stamp } => {
                let first = result / SECTOR as u64;
                let stamp = Stamp { origin: first, ..stamp };
                let effect = Effect::Write { first, end: first + sectors, stamp, append: true };
                self.log.changed(begun.start, end, effect);
            }
            What::Sync => {}
        }
    }
}

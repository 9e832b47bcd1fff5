//! The load of a machine: direct writes with many in flight, and changes of names with syncs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use parext4::{AlignedBuf, DirectFile, IoFlags, IoRequest, OpenOptions, Result, Volume};

use crate::FILE;
use crate::block::{BLOCK, BLOCKS, fill};

/// Threads that write blocks, and operations of each in flight.
const THREADS: u64 = 3;
const DEPTH: usize = 16;

/// Writes all blocks once, and then at random until `ended` returns or a write fails.
pub fn run(volume: &Volume, name: char, ended: impl FnOnce() + Send + 'static) -> Result<()> {
    let file = volume.open_direct(FILE, &OpenOptions::read_write().create(true))?;
    let load = Load { volume, file, name, sequence: AtomicU64::new(0), stop: AtomicBool::new(false) };
    load.write(&mut (0..BLOCKS))?;
    load.file.sync_all()?;
    println!("covered");
    let (end, is_ended) = std::sync::mpsc::channel();
    let failed = end.clone();
    // Not joined: a machine that fails ends while this thread reads.
    thread::spawn(move || {
        ended();
        let _ = end.send(());
    });
    thread::scope(|scope| {
        let (load, mut threads) = (&load, Vec::new());
        for thread in 0..=THREADS {
            let failed = failed.clone();
            threads.push(scope.spawn(move || {
                let done = match thread {
                    THREADS => load.change_names(),
                    _ => load.write(&mut load.random(thread)),
                };
                let _ = failed.send(());
                done
            }));
        }
        let _ = is_ended.recv();
        // Relaxed: the flag publishes nothing but itself.
        load.stop.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().expect("no writer panics"))
    })
}

struct Load<'a> {
    volume: &'a Volume,
    file: DirectFile,
    name: char,
    /// Number of the next write.
    sequence: AtomicU64,
    stop: AtomicBool,
}

impl Load<'_> {
    /// Writes blocks, with [`DEPTH`] in flight, until there are no more or the load stops.
    fn write(&self, blocks: &mut dyn Iterator<Item = u64>) -> Result<()> {
        let mut queue = self.volume.io_queue(DEPTH as u32);
        let mut free: Vec<AlignedBuf> = (0..DEPTH).map(|_| AlignedBuf::zeroed(BLOCK)).collect();
        let mut done = Vec::new();
        loop {
            while let Some(mut buf) = free.pop()
                && !self.stop.load(Ordering::Relaxed)
                && let Some(number) = blocks.next()
            {
                fill(&mut buf, self.name, number, self.sequence.fetch_add(1, Ordering::Relaxed));
                let request = IoRequest::Write { buf, len: BLOCK, offset: number * BLOCK as u64 };
                queue.submit(&self.file, request, number, IoFlags::new());
            }
            if queue.in_flight() == 0 {
                return Ok(());
            }
            queue.harvest(&mut done)?;
            for completion in done.drain(..) {
                completion.result?;
                free.extend(completion.buf);
            }
        }
    }

    /// Returns numbers of blocks at random, without an end.
    fn random(&self, seed: u64) -> impl Iterator<Item = u64> {
        let mut state = seed + 1;
        std::iter::from_fn(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some((state >> 33) % BLOCKS)
        })
    }

    /// Creates, renames and removes files, and makes some of it durable.
    fn change_names(&self) -> Result<()> {
        for number in 0_u64.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let (new, old) = (format!("/{}-new", self.name), format!("/{}-{}", self.name, number % 100));
            self.volume.write(&new, number.to_string().repeat(100))?;
            self.volume.rename(&new, &old)?;
            if number % 10 == 0 {
                self.volume.remove_file(&old)?;
                self.volume.sync()?;
            }
        }
        Ok(())
    }
}

//! Runs a job: threads that keep their lanes full, and count.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use rustix::time::{ClockId, clock_gettime};

use super::job::{Files, Job, PUNCHED};
use super::lane::Lane;
use super::order::{Io, Kind, Order};
use super::outcome::{Outcome, Tally};
use super::step::{Pace, Steps};
use super::target::{Laid, Punch};
use crate::interrupt;

/// A thread's work.
struct Worker {
    lane: Box<dyn Lane>,
    order: Order,
    depth: usize,
}

/// What the threads of a run share.
struct Run<'a> {
    job: &'a Job,
    /// Set to end the run before its time.
    stop: AtomicBool,
}

/// Runs `job` on files laid out for it.
pub fn run(job: &Job, laid: &dyn Laid) -> Result<Outcome> {
    let workers = workers(job, laid)?;
    let run = Run { job, stop: AtomicBool::new(false) };
    let steps = job.in_step.then(|| Steps::new(workers.len()));
    let ready = Barrier::new(workers.len() + 1);
    let punchers = punchers(job, laid)?;
    let (tallies, cpu) = std::thread::scope(|scope| {
        let run = &run;
        let punching: Vec<_> =
            punchers.into_iter().map(|puncher| scope.spawn(|| run.stop_if_err(puncher.drive(run)))).collect();
        let threads: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(nth, worker)| {
                let ready = &ready;
                let pace = steps.as_ref().map(|steps| steps.pace(nth));
                // Named, so that a profiler can tell what is measured from its preparation.
                let thread = std::thread::Builder::new().name("job".into());
                let work = move || {
                    ready.wait();
                    run.stop_if_err(worker.drive(run, pace))
                };
                thread.spawn_scoped(scope, work).expect("a thread starts")
            })
            .collect();
        let mut cpu = cpu_time();
        ready.wait();
        if !job.ramp.is_zero() {
            std::thread::sleep(job.ramp);
            cpu = cpu_time();
        }
        let tallies: Vec<Result<(Tally, Range<Instant>)>> = threads.into_iter().map(joined).collect();
        run.stop();
        let punched: Result<Vec<()>> = punching.into_iter().map(joined).collect();
        let tallies = punched.and(tallies.into_iter().collect::<Result<Vec<_>>>());
        (tallies, cpu_time().saturating_sub(cpu))
    });
    interrupt::check()?;
    let (mut tally, mut elapsed, mut job_rates) = (Tally::new()?, Duration::ZERO, Vec::new());
    let tallies = tallies?;
    // This thread may have woken after those that it let go.
    let start = tallies.iter().map(|(_, time)| time.start).min();
    for (one, time) in &tallies {
        tally.merge(one)?;
        let took = start.map_or(Duration::ZERO, |start| time.end - start);
        job_rates.push(one.ops as f64 / took.as_secs_f64());
        elapsed = elapsed.max(took);
    }
    ensure!(tally.ops > 0, "no operation ended within the time measured; give it a longer --runtime");
    Ok(Outcome { tally, elapsed, job_rates, cpu, extents: None })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the run panicked")))
}

/// What punches holes into each file, if the job wants it.
fn punchers(job: &Job, laid: &dyn Laid) -> Result<Vec<Puncher>> {
    let files = if job.punch { job.file_count() } else { 0 };
    let puncher = |file| Ok(Puncher { way: laid.punch(job, file)?, start: job.file_size() - PUNCHED });
    (0..files).map(puncher).collect()
}

/// A worker for each job.
fn workers(job: &Job, laid: &dyn Laid) -> Result<Vec<Worker>> {
    let sharers = job.numjobs / job.file_count();
    let orders: Vec<Order> = (0..job.file_count()).map(|_| Order::new(job, sharers)).collect();
    let worker = |nth: u32| {
        let file = nth % job.file_count();
        let order = orders[file as usize].clone();
        let depth = job.iodepth;
        Ok(Worker { lane: laid.lane(job, file, depth)?, order, depth: depth as usize })
    };
    (0..job.numjobs).map(worker).collect()
}

/// A thread that changes the layout of the end of a file, from `start` on.
struct Puncher {
    way: Box<dyn Punch>,
    start: u64,
}

impl Puncher {
    /// Punches holes and allocates them again until the run is over.
    fn drive(mut self, run: &Run<'_>) -> Result<()> {
        const HOLE: u64 = 1 << 20;
        let places = (0..PUNCHED / HOLE).map(|nth| self.start + nth * HOLE);
        for offset in places.cycle() {
            // Relaxed: publishes nothing but itself.
            if run.stop.load(Ordering::Relaxed) || interrupt::requested() {
                break;
            }
            self.way.punch(offset, HOLE)?;
            self.way.allocate(offset, HOLE)?;
        }
        Ok(())
    }
}

impl Run<'_> {
    fn stop(&self) {
        // Relaxed: publishes nothing but itself.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Where each job has its own file, the first that is full ends the run: all that is counted was done by
    /// all of them. Those that share one are done at about the same time.
    fn file_is_full(&self) {
        if self.job.files == Files::PerJob {
            self.stop();
        }
    }

    fn is_over(&self, now: Instant, end: Instant) -> bool {
        now >= end || self.stop.load(Ordering::Relaxed) || interrupt::requested()
    }

    fn stop_if_err<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.stop();
        }
        result
    }
}

impl Worker {
    /// Keeps the lane full until the run is over. Returns what was done after the ramp, and from when to when.
    /// The clock is read once for each batch that the lane gives back.
    fn drive(mut self, run: &Run<'_>, mut pace: Option<Pace<'_>>) -> Result<(Tally, Range<Instant>)> {
        let mut tally = Tally::new()?;
        let mut now = Instant::now();
        let begin = now + run.job.ramp;
        let end = begin + run.job.runtime;
        let mut free: Vec<usize> = (0..self.depth).rev().collect();
        let mut started = vec![(now, 0); self.depth];
        let mut in_flight = 0;
        let mut over = false;
        loop {
            while !over && let Some(slot) = free.pop() {
                let Some(io) = self.order.next() else {
                    free.push(slot);
                    run.file_is_full();
                    over = true;
                    break;
                };
                self.lane.submit(slot, &io)?;
                started[slot] = (now, io.len);
                in_flight += 1;
            }
            if in_flight == 0 {
                if run.job.end_fsync {
                    self.sync(&mut free)?;
                    now = Instant::now();
                }
                return Ok((tally, begin..now.max(begin)));
            }
            let old = free.len();
            self.lane.harvest(&mut free)?;
            now = Instant::now();
            in_flight -= free.len() - old;
            if now >= begin {
                for &slot in &free[old..] {
                    let (start, len) = started[slot];
                    tally.add(len, now - start);
                }
            }
            if pace.as_mut().is_some_and(|pace| pace.advance(free.len() - old)) {
                now = Instant::now();
            }
            over = over || run.is_over(now, end);
        }
    }
}

impl Worker {
    /// Makes durable what was written; nothing is in flight.
    fn sync(&mut self, free: &mut Vec<usize>) -> Result<()> {
        if let Some(slot) = free.pop() {
            self.lane.submit(slot, &Io { kind: Kind::Sync, offset: 0, len: 0 })?;
            self.lane.harvest(free)?;
        }
        Ok(())
    }
}

/// Of this process, user and system.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

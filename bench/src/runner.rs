//! Runs a job: its threads keep their slots full and count operations.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use parext4_cli::interrupt;
use rustix::time::{ClockId, clock_gettime};

use super::access_order::{AccessOrder, Io, Kind};
use super::job::{Files, Job, PUNCHED};
use super::job_files::{HolePuncher, JobFiles};
use super::lockstep::{Lockstep, Member};
use super::outcome::{OpStats, Outcome};
use super::submitter::Submitter;

/// The work of a thread.
struct Worker {
    submitter: Box<dyn Submitter>,
    order: AccessOrder,
    depth: usize,
}

/// The state that the threads of a run share.
struct Run<'a> {
    job: &'a Job,
    /// Set to end the run early.
    stop: AtomicBool,
}

/// Runs `job` on its files.
pub fn run(job: &Job, files: &dyn JobFiles) -> Result<Outcome> {
    let workers = workers(job, files)?;
    let run = Run { job, stop: AtomicBool::new(false) };
    let lockstep = job.in_step.then(|| Lockstep::new(workers.len()));
    let ready = Barrier::new(workers.len() + 1);
    let punchers = punchers(job, files)?;
    let (per_thread, cpu) = std::thread::scope(|scope| {
        let run = &run;
        let punching: Vec<_> =
            punchers.into_iter().map(|puncher| scope.spawn(|| run.stop_if_err(puncher.drive(run)))).collect();
        let threads: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(nth, worker)| {
                let ready = &ready;
                let member = lockstep.as_ref().map(|lockstep| lockstep.member(nth));
                // The name lets a profiler tell the measured threads from the preparation.
                let thread = std::thread::Builder::new().name("job".into());
                let work = move || {
                    ready.wait();
                    run.stop_if_err(worker.drive(run, member))
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
        let per_thread: Vec<Result<(OpStats, Range<Instant>)>> = threads.into_iter().map(joined).collect();
        run.stop();
        let punched: Result<Vec<()>> = punching.into_iter().map(joined).collect();
        let per_thread = punched.and(per_thread.into_iter().collect::<Result<Vec<_>>>());
        (per_thread, cpu_time().saturating_sub(cpu))
    });
    interrupt::check()?;
    let (mut stats, mut elapsed, mut job_rates) = (OpStats::new()?, Duration::ZERO, Vec::new());
    let per_thread = per_thread?;
    // This thread may wake from the barrier after the workers.
    let start = per_thread.iter().map(|(_, time)| time.start).min();
    for (one, time) in &per_thread {
        stats.merge(one)?;
        let took = start.map_or(Duration::ZERO, |start| time.end - start);
        job_rates.push(one.ops as f64 / took.as_secs_f64());
        elapsed = elapsed.max(took);
    }
    ensure!(stats.ops > 0, "no operation ended within the time measured; give it a longer --runtime");
    Ok(Outcome { stats, elapsed, job_rates, cpu, extents: None })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of the run panicked")))
}

/// Returns a puncher for each file, if the job asks for holes.
fn punchers(job: &Job, files: &dyn JobFiles) -> Result<Vec<Puncher>> {
    let count = if job.punch { job.file_count() } else { 0 };
    let puncher =
        |file| Ok(Puncher { file: files.hole_puncher(job, file)?, start: job.file_size() - PUNCHED });
    (0..count).map(puncher).collect()
}

/// Returns a worker for each job.
fn workers(job: &Job, files: &dyn JobFiles) -> Result<Vec<Worker>> {
    let sharers = job.numjobs / job.file_count();
    let orders: Vec<AccessOrder> = (0..job.file_count()).map(|_| AccessOrder::new(job, sharers)).collect();
    let worker = |nth: u32| {
        let file = nth % job.file_count();
        let order = orders[file as usize].clone();
        let depth = job.iodepth;
        Ok(Worker { submitter: files.submitter(job, file, depth)?, order, depth: depth as usize })
    };
    (0..job.numjobs).map(worker).collect()
}

/// Punches holes into a file from byte `start` on.
struct Puncher {
    file: Box<dyn HolePuncher>,
    start: u64,
}

impl Puncher {
    /// Punches holes and allocates them again until the run is over.
    fn drive(mut self, run: &Run<'_>) -> Result<()> {
        const HOLE: u64 = 1 << 20;
        let places = (0..PUNCHED / HOLE).map(|nth| self.start + nth * HOLE);
        for offset in places.cycle() {
            if run.is_stopped() {
                break;
            }
            self.file.punch(offset, HOLE)?;
            self.file.allocate(offset, HOLE)?;
        }
        Ok(())
    }
}

impl Run<'_> {
    fn stop(&self) {
        // Relaxed: the flag publishes no other data.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the run if each job has its own file. So all jobs work during the whole time measured.
    /// Jobs that share a file end at about the same time anyway.
    fn file_is_full(&self) {
        if self.job.files == Files::PerJob {
            self.stop();
        }
    }

    /// Returns true if the run ends before its time.
    fn is_stopped(&self) -> bool {
        // Relaxed: the flag publishes no other data.
        self.stop.load(Ordering::Relaxed) || interrupt::requested()
    }

    fn stop_if_err<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.stop();
        }
        result
    }
}

impl Worker {
    /// Keeps all slots full until the run is over. Returns the operations after the ramp, and their
    /// time. Reads the clock once for each batch of completed operations.
    fn drive(mut self, run: &Run<'_>, mut member: Option<Member<'_>>) -> Result<(OpStats, Range<Instant>)> {
        let mut stats = OpStats::new()?;
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
                self.submitter.submit(slot, &io)?;
                started[slot] = (now, io.len);
                in_flight += 1;
            }
            if in_flight == 0 {
                if run.job.end_fsync {
                    self.sync(&mut free)?;
                    now = Instant::now();
                }
                return Ok((stats, begin..now.max(begin)));
            }
            let old = free.len();
            self.submitter.harvest(&mut free)?;
            now = Instant::now();
            in_flight -= free.len() - old;
            if now >= begin {
                for &slot in &free[old..] {
                    let (start, len) = started[slot];
                    stats.add(len, now - start);
                }
            }
            if member.as_mut().is_some_and(|member| member.advance(free.len() - old)) {
                now = Instant::now();
            }
            // A job that waited for the slowest job from the ramp until after the end has counted
            // no operation yet. It runs on until it has, so that each job has a rate.
            over = over || run.is_stopped() || (now >= end && stats.ops > 0);
        }
    }
}

impl Worker {
    /// Syncs the file. No operation is in flight.
    fn sync(&mut self, free: &mut Vec<usize>) -> Result<()> {
        if let Some(slot) = free.pop() {
            self.submitter.submit(slot, &Io { kind: Kind::Sync, offset: 0, len: 0 })?;
            self.submitter.harvest(free)?;
        }
        Ok(())
    }
}

/// Returns the CPU time of this process, user and system.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

//! The measurement: short rounds of both layouts in turn, so that whatever else the machine does meets both.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parext4::{File, Volume};

use super::lane::Lane;
use super::{BLOCK, THREADS};
use crate::median::median;

/// Rounds in which all blocks are written once.
const ROUNDS: u32 = 4;
/// Passes over the written blocks, at least.
const OVERWRITES: u32 = 2;
/// Writes for a first guess at the disk's speed, per thread.
const PROBE: u32 = 512;

/// What both layouts reached with one kind of write: writes per second, medians.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// All threads in one file.
    pub one: f64,
    /// A file for each thread.
    pub each: f64,
}

/// The result.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Bytes of the one file, and of all the others together.
    pub bytes: u64,
    /// First writes into allocated blocks.
    pub fill: Pair,
    /// Writes over written blocks.
    pub overwrite: Pair,
    /// Rounds of each layout over written blocks.
    pub overwrite_rounds: usize,
}

/// One way to spread the threads over files.
struct Layout {
    /// The file of each lane.
    files: Vec<File>,
    lanes: Vec<Lane>,
}

impl Layout {
    /// One file in which the threads' blocks alternate.
    fn one(volume: &Volume, path: &str, lane_blocks: u32) -> Result<Self> {
        let file = allocated(volume, path, lane_blocks * THREADS as u32)?;
        let lanes = (0..THREADS as u32)
            .map(|writer| Lane::new(PathBuf::from(path), writer, writer, THREADS as u32, lane_blocks));
        Ok(Self { files: vec![file; THREADS], lanes: lanes.collect() })
    }

    /// A file for each thread.
    fn each(volume: &Volume, lane_blocks: u32) -> Result<Self> {
        let mut layout = Self { files: Vec::new(), lanes: Vec::new() };
        for writer in 0..THREADS as u32 {
            let path = format!("/each-{writer}");
            layout.files.push(allocated(volume, &path, lane_blocks)?);
            layout.lanes.push(Lane::new(path.into(), 100 + writer, 0, 1, lane_blocks));
        }
        Ok(layout)
    }

    /// Every lane writes `count` blocks, all at once. Returns writes per second.
    fn round(&mut self, count: u32) -> Result<f64> {
        let started = Instant::now();
        std::thread::scope(|scope| {
            let writers: Vec<_> = self
                .lanes
                .iter_mut()
                .zip(&self.files)
                .map(|(lane, file)| scope.spawn(move || lane.write(file, count as usize)))
                .collect();
            writers
                .into_iter()
                .try_for_each(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
        .map(|()| f64::from(count * THREADS as u32) / started.elapsed().as_secs_f64())
    }
}

/// A new file of so many blocks, which are allocated but not written.
fn allocated(volume: &Volume, path: &str, blocks: u32) -> Result<File> {
    let make = || {
        let file = volume.create(path, 0o644)?;
        file.allocate(0, u64::from(blocks) * BLOCK as u64, false)?;
        Ok::<_, parext4::Error>(file)
    };
    make().with_context(|| format!("making {path}"))
}

/// Measures for about `time`, if that is enough for the least work. Returns what is now in the files.
pub fn measure(volume: &Volume, time: Duration) -> Result<(Measured, Vec<Lane>)> {
    let lane_blocks = lane_blocks(volume, time)?;
    let mut one = Layout::one(volume, "/one", lane_blocks)?;
    let mut each = Layout::each(volume, lane_blocks)?;
    volume.sync()?;
    let started = Instant::now();
    let fill = pass(&mut one, &mut each, lane_blocks)?;
    volume.sync()?;
    let mut overwrite = (Vec::new(), Vec::new());
    for done in 0.. {
        if done >= OVERWRITES && started.elapsed() > time / 2 {
            break;
        }
        let rounds = pass(&mut one, &mut each, lane_blocks)?;
        overwrite.0.extend(rounds.0);
        overwrite.1.extend(rounds.1);
    }
    volume.sync()?;
    let measured = Measured {
        bytes: u64::from(lane_blocks) * (THREADS * BLOCK) as u64,
        overwrite_rounds: overwrite.0.len(),
        fill: medians(fill),
        overwrite: medians(overwrite),
    };
    one.lanes.append(&mut each.lanes);
    Ok((measured, one.lanes))
}

/// Writes every block of both layouts once, in rounds that take turns.
fn pass(one: &mut Layout, each: &mut Layout, lane_blocks: u32) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut rates = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Who goes first takes turns too.
        if round % 2 == 0 {
            rates.0.push(one.round(lane_blocks / ROUNDS)?);
            rates.1.push(each.round(lane_blocks / ROUNDS)?);
        } else {
            rates.1.push(each.round(lane_blocks / ROUNDS)?);
            rates.0.push(one.round(lane_blocks / ROUNDS)?);
        }
    }
    Ok(rates)
}

/// Blocks for each lane: a sixth of the volume for each layout, or what the disk can do in the time.
fn lane_blocks(volume: &Volume, time: Duration) -> Result<u32> {
    let path = "/probe";
    let mut probe = Layout::one(volume, path, PROBE)?;
    let rate = probe.round(PROBE)?;
    drop(probe);
    volume.remove_file(path)?;
    let space = volume.space();
    let most = space.blocks / 6 / THREADS as u64;
    // Both layouts are filled once and overwritten twice; a third of the time is left for all else.
    let passes = f64::from(2 * (1 + OVERWRITES));
    let affordable = rate * time.as_secs_f64() * 2.0 / 3.0 / passes / THREADS as f64;
    let blocks = (affordable as u64).clamp(u64::from(PROBE), most.max(u64::from(PROBE)));
    let blocks = u32::try_from(blocks).unwrap_or(PROBE);
    Ok(blocks - blocks % ROUNDS)
}

fn medians((one, each): (Vec<f64>, Vec<f64>)) -> Pair {
    Pair { one: median(&one), each: median(&each) }
}

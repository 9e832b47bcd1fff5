//! Measures both layouts in short alternating rounds, so that other work of the machine affects
//! both.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parext4::{DirectFile, FileSize, OpenOptions, Volume};

use super::writer::Writer;
use super::{BLOCK, THREADS};
use crate::median::median;

/// Rounds of a pass, which writes all blocks once.
const ROUNDS: u32 = 4;
/// Smallest number of passes over written blocks.
const OVERWRITES: u32 = 2;
/// Writes of each thread to estimate the speed of the disk.
const PROBE: u32 = 512;

/// Median writes per second of both layouts with one kind of write.
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
    /// Bytes of the shared file, and of the files of the threads together.
    pub bytes: u64,
    /// First writes into allocated blocks.
    pub fill: Pair,
    /// Writes over written blocks.
    pub overwrite: Pair,
    /// Rounds of each layout over written blocks.
    pub overwrite_rounds: usize,
}

/// A distribution of the threads over files.
struct Layout {
    /// The file of each writer.
    files: Vec<DirectFile>,
    writers: Vec<Writer>,
}

impl Layout {
    /// Makes one file in which the blocks of the threads alternate.
    fn one(volume: &Volume, path: &str, blocks_per_writer: u32) -> Result<Self> {
        let file = allocated(volume, path, blocks_per_writer * THREADS as u32)?;
        let writers = (0..THREADS as u32).map(|writer| {
            Writer::new(PathBuf::from(path), writer, writer, THREADS as u32, blocks_per_writer)
        });
        Ok(Self { files: vec![file; THREADS], writers: writers.collect() })
    }

    /// Makes a file for each thread.
    fn each(volume: &Volume, blocks_per_writer: u32) -> Result<Self> {
        let mut layout = Self { files: Vec::new(), writers: Vec::new() };
        for writer in 0..THREADS as u32 {
            let path = format!("/each-{writer}");
            layout.files.push(allocated(volume, &path, blocks_per_writer)?);
            layout.writers.push(Writer::new(path.into(), 100 + writer, 0, 1, blocks_per_writer));
        }
        Ok(layout)
    }

    /// Lets all writers write `count` blocks in parallel. Returns the writes per second.
    fn round(&mut self, count: u32) -> Result<f64> {
        let started = Instant::now();
        std::thread::scope(|scope| {
            let writers: Vec<_> = self
                .writers
                .iter_mut()
                .zip(&self.files)
                .map(|(writer, file)| scope.spawn(move || writer.write(file, count as usize)))
                .collect();
            writers
                .into_iter()
                .try_for_each(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
        .map(|()| f64::from(count * THREADS as u32) / started.elapsed().as_secs_f64())
    }
}

/// Makes a file of `blocks` blocks, allocated but not written.
fn allocated(volume: &Volume, path: &str, blocks: u32) -> Result<DirectFile> {
    let make = || {
        let file = volume.open_direct(path, &OpenOptions::read_write().create_new(true))?;
        file.allocate(0..u64::from(blocks) * BLOCK as u64, FileSize::Extend)?;
        Ok::<_, parext4::Error>(file)
    };
    make().with_context(|| format!("making {path}"))
}

/// Measures for about `time`, or longer if the smallest amount of work takes longer. Returns the
/// result and the writers, which know what the files must hold.
pub fn measure(volume: &Volume, time: Duration) -> Result<(Measured, Vec<Writer>)> {
    let blocks_per_writer = blocks_per_writer(volume, time)?;
    let mut one = Layout::one(volume, "/one", blocks_per_writer)?;
    let mut each = Layout::each(volume, blocks_per_writer)?;
    volume.sync()?;
    let started = Instant::now();
    let fill = pass(&mut one, &mut each, blocks_per_writer)?;
    volume.sync()?;
    let mut overwrite = (Vec::new(), Vec::new());
    for done in 0.. {
        if done >= OVERWRITES && started.elapsed() > time / 2 {
            break;
        }
        let rounds = pass(&mut one, &mut each, blocks_per_writer)?;
        overwrite.0.extend(rounds.0);
        overwrite.1.extend(rounds.1);
    }
    volume.sync()?;
    let measured = Measured {
        bytes: u64::from(blocks_per_writer) * (THREADS * BLOCK) as u64,
        overwrite_rounds: overwrite.0.len(),
        fill: medians(fill),
        overwrite: medians(overwrite),
    };
    one.writers.append(&mut each.writers);
    Ok((measured, one.writers))
}

/// Writes every block of both layouts once, in alternating rounds.
fn pass(one: &mut Layout, each: &mut Layout, blocks_per_writer: u32) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut rates = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The layout that goes first alternates, too.
        if round % 2 == 0 {
            rates.0.push(one.round(blocks_per_writer / ROUNDS)?);
            rates.1.push(each.round(blocks_per_writer / ROUNDS)?);
        } else {
            rates.1.push(each.round(blocks_per_writer / ROUNDS)?);
            rates.0.push(one.round(blocks_per_writer / ROUNDS)?);
        }
    }
    Ok(rates)
}

/// Returns the blocks of each writer: as many as the disk can write in the time, at most a sixth of
/// the volume for each layout.
fn blocks_per_writer(volume: &Volume, time: Duration) -> Result<u32> {
    let path = "/probe";
    let mut probe = Layout::one(volume, path, PROBE)?;
    let rate = probe.round(PROBE)?;
    drop(probe);
    volume.remove_file(path)?;
    let space = volume.space();
    let most = space.blocks / 6 / THREADS as u64;
    // Both layouts are filled once and overwritten twice. A third of the time is left for other
    // work.
    let passes = f64::from(2 * (1 + OVERWRITES));
    let affordable = rate * time.as_secs_f64() * 2.0 / 3.0 / passes / THREADS as f64;
    let blocks = (affordable as u64).clamp(u64::from(PROBE), most.max(u64::from(PROBE)));
    let blocks = u32::try_from(blocks).unwrap_or(PROBE);
    Ok(blocks - blocks % ROUNDS)
}

fn medians((one, each): (Vec<f64>, Vec<f64>)) -> Pair {
    Pair { one: median(&one), each: median(&each) }
}

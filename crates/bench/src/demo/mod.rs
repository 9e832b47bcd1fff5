//! `demo`: shows on this machine that threads inside one file do not queue, and that nothing breaks by it.

mod check;
mod lane;
mod measure;
mod pattern;
mod place;
mod report;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parext4::device::open_device;
use parext4::{DeviceOptions, MkfsOptions, OpenOptions, Volume};

use crate::explain;
use lane::Lane;
use measure::Measured;
use place::Place;
use report::Report;

/// Settings of the demo.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Path of the image, which must not exist. `None`: in a temporary directory.
    pub image: Option<PathBuf>,
    /// Keeps the image.
    pub keep: bool,
    /// Bytes of the image. `None`: 1.5 GiB, or less if the disk is nearly full.
    pub size: Option<u64>,
    /// Approximate duration of the measurement.
    pub time: Duration,
    /// Prints the result as JSON.
    pub json: bool,
    /// How to open the volume. With `explain`, counters and waits are printed on standard error.
    pub options: OpenOptions,
}

/// Threads, whatever the number of cores: they mostly wait for the disk.
pub const THREADS: usize = 8;
/// Bytes of one write.
pub const BLOCK: usize = 4096;

impl Demo {
    /// Makes a volume, measures, reads every block back, runs e2fsck, and prints the report.
    ///
    /// # Errors
    /// If the image cannot be made or used, or a block or the volume is not as it should be.
    pub fn run(&self) -> Result<()> {
        let place = Place::new(self.image.as_deref(), self.size, self.keep)?;
        let started = Instant::now();
        let (measured, lanes) = self.measure_on(&place)?;
        let checked = check::check(place.image(), &lanes, place.is_direct())?;
        let policy = self.options.policy;
        let report = Report { measured, checked, place: &place, policy, took: started.elapsed() };
        if self.json {
            report.print_json()?
        } else {
            report.print()?
        }
        if !report.checked.is_clean() {
            bail!("the volume is wrong: {}", report.checked);
        }
        Ok(())
    }

    /// Makes a volume, measures on it, and closes it. Returns what was measured, and what must now be in the files.
    fn measure_on(&self, place: &Place) -> Result<(Measured, Vec<Lane>)> {
        let device = open_device(place.image(), &DeviceOptions::new().direct(place.direct()))?;
        let options = MkfsOptions { block_size: Some(4096), label: "demo".into(), ..MkfsOptions::default() };
        parext4::mkfs(&*device, &options)?;
        let volume = Volume::open(device, &self.options)?;
        let measured = measure::measure(&volume, self.time);
        if self.options.explain {
            eprint!("{}", explain::describe(&volume));
        }
        let closed = volume.close();
        let (measured, lanes) = measured?;
        closed.context("closing the volume")?;
        Ok((measured, lanes))
    }
}

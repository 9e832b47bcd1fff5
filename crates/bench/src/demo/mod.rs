//! The demo: shows on this machine that threads do not wait for each other inside one file, and that the data is intact.

mod check;
mod image;
mod measure;
mod pattern;
mod report;
mod writer;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parext4::{DeviceOptions, MkfsOptions, Volume, VolumeOptions};
use parext4_storage::open_device;

use crate::explain;
use image::Image;
use measure::Measured;
use report::Report;
use writer::Writer;

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
    pub options: VolumeOptions,
}

/// Number of threads. It does not depend on the number of cores, because the threads mostly wait for the disk.
pub const THREADS: usize = 8;
/// Bytes of one write.
pub const BLOCK: usize = 4096;

impl Demo {
    /// Makes a volume, measures, reads every block back, runs e2fsck, and prints the report to `out`.
    ///
    /// # Errors
    /// If the image cannot be made or used, or a block or the volume is not as it should be.
    pub fn run(&self, out: &mut impl Write) -> Result<()> {
        let image = Image::new(self.image.as_deref(), self.size, self.keep)?;
        let started = Instant::now();
        let (measured, writers) = self.measure_on(&image)?;
        let checked = check::check(image.path(), &writers, image.is_direct())?;
        let policy = self.options.research.policy;
        let report = Report { measured, checked, image: &image, policy, took: started.elapsed() };
        let printed = if self.json { report.print_json(out) } else { report.print(out) };
        if !report.checked.is_clean() {
            bail!("the volume is wrong: {}", report.checked);
        }
        printed
    }

    /// Makes a volume, measures on it, and closes it. Returns the result and the writers.
    fn measure_on(&self, image: &Image) -> Result<(Measured, Vec<Writer>)> {
        let device = open_device(image.path(), &DeviceOptions::new().direct(image.direct()))?;
        let options = MkfsOptions::new().block_size(4096).label("demo");
        parext4::mkfs(&*device, &options)?;
        let volume = Volume::open_device(device, &self.options)?;
        let measured = measure::measure(&volume, self.time);
        if self.options.explain {
            eprint!("{}", explain::describe(&volume));
        }
        let closed = volume.close();
        let (measured, writers) = measured?;
        closed.context("closing the volume")?;
        Ok((measured, writers))
    }
}

//! Prints the result of the demo.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use indicatif::BinaryBytes;
use parext4::Policy;
use serde_json::{Value, json};

use super::check::{Checked, Fsck};
use super::image::Image;
use super::measure::{Measured, Pair};
use super::{BLOCK, THREADS};

/// The result of the demo.
pub struct Report<'a> {
    pub measured: Measured,
    pub checked: Checked,
    pub image: &'a Image,
    pub policy: Policy,
    pub took: Duration,
}

impl Report<'_> {
    /// Prints the result as text.
    pub fn print(&self, out: &mut impl Write) -> Result<()> {
        let Measured { bytes, fill, overwrite, .. } = self.measured;
        let (image, dir) = (BinaryBytes(self.image.size()), self.image.path().parent());
        let dir = dir.map(|dir| dir.display().to_string()).unwrap_or_default();
        let cache = if self.image.is_direct() { "direct I/O" } else { "through the page cache" };
        writeln!(out, "ext4 image of {image} in {dir}, {cache}, policy {}", self.policy)?;
        let (all, part) = (BinaryBytes(bytes), BinaryBytes(bytes / THREADS as u64));
        writeln!(
            out,
            "{THREADS} threads, random writes of 4 KiB: one file of {all} | {THREADS} files of {part}"
        )?;
        writeln!(out)?;
        writeln!(out, "{:22}{:>26}{:>26}   ratio", "", "one file", "a file per thread")?;
        for (name, pair) in [("first write of a block", fill), ("overwrite", overwrite)] {
            writeln!(out, "{name:22}{:>26}{:>26}{:>8.2}", rate(pair.one), rate(pair.each), ratio(pair))?;
        }
        writeln!(out)?;
        let blocks = self.checked.blocks;
        match self.checked.wrong {
            0 => writeln!(
                out,
                "read back after reopening: all {blocks} blocks are as last written, none torn"
            )?,
            wrong => writeln!(out, "read back after reopening: {wrong} of {blocks} blocks are WRONG")?,
        }
        match &self.checked.fsck {
            Fsck::Clean => writeln!(out, "e2fsck -fn: clean")?,
            Fsck::Faults(output) => writeln!(out, "e2fsck -fn: FAULTS\n{}", output.trim_end())?,
            Fsck::NotInstalled => writeln!(out, "e2fsck: not installed, so not run")?,
        }
        writeln!(out, "\n{}", self.conclusion())?;
        if self.image.is_kept() {
            writeln!(out, "kept: {}", self.image.path().display())?;
        }
        writeln!(out, "took {:.1} s", self.took.as_secs_f64())?;
        Ok(())
    }

    /// Returns the conclusion from what was measured.
    fn conclusion(&self) -> String {
        let Measured { fill, overwrite, .. } = self.measured;
        // Rounds differ by up to 10 percent.
        const EVEN: f64 = 0.9;
        let (first, over) = (ratio(fill), ratio(overwrite));
        let verdict = if first.min(over) >= EVEN {
            "Threads that share one file were as fast as threads with a file each".to_owned()
        } else if over >= EVEN {
            let percent = 100.0 * first;
            format!(
                "Threads that share one file overwrote it as fast as a file each; first writes reached {percent:.0} %"
            )
        } else {
            "Threads that share one file were slower here than threads with a file each".to_owned()
        };
        let why = if self.policy.locks_whole_file() {
            "This policy locks the whole file as kernel ext4 does or did; without --policy they wait for each other\n\
             only where their bytes overlap."
        } else {
            "They wait for each other only where their bytes overlap. The ext4 of Linux 6.18 locks the whole file for appends,\n\
             for writes into holes and for every buffered write, so threads in one file queue there."
        };
        format!("{verdict}.\n{why}")
    }

    /// Prints the result as JSON.
    pub fn print_json(&self, out: &mut impl Write) -> Result<()> {
        let Measured { bytes, fill, overwrite, overwrite_rounds } = self.measured;
        let (fsck, fsck_output) = match &self.checked.fsck {
            Fsck::Clean => ("clean", None),
            Fsck::Faults(output) => ("faults", Some(output)),
            Fsck::NotInstalled => ("not installed", None),
        };
        let value = json!({
            "image": self.image.path().to_string_lossy(),
            "image_size": self.image.size(),
            "direct": self.image.is_direct(),
            "policy": self.policy.name(),
            "threads": THREADS,
            "write_size": BLOCK,
            "bytes": bytes,
            "fill": to_json(fill),
            "overwrite": to_json(overwrite),
            "overwrite_rounds": overwrite_rounds,
            "blocks_verified": self.checked.blocks,
            "blocks_wrong": self.checked.wrong,
            "e2fsck": fsck,
            "e2fsck_output": fsck_output,
            "seconds": self.took.as_secs_f64(),
        });
        writeln!(out, "{value:#}")?;
        Ok(())
    }
}

fn ratio(pair: Pair) -> f64 {
    pair.one / pair.each
}

fn mib_per_second(writes: f64) -> f64 {
    writes * BLOCK as f64 / f64::from(1 << 20)
}

fn rate(writes: f64) -> String {
    format!("{:.1} MiB/s {writes:.0} IOPS", mib_per_second(writes))
}

fn to_json(pair: Pair) -> Value {
    let side = |writes: f64| json!({ "iops": writes, "mib_per_s": mib_per_second(writes) });
    json!({ "one_file": side(pair.one), "file_per_thread": side(pair.each), "ratio": ratio(pair) })
}

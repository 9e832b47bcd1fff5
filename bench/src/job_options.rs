//! The command line of one job.

use std::time::Duration;

use clap::ArgAction::Set;
use clap::builder::BoolishValueParser;
use parext4::{Policy, SplitAt};
use parext4_storage::parse_size;

use crate::duration;
use crate::engine::Engine;
use crate::job::{BlockSize, Files, IoEngine, Job, Layout, Rw};
use crate::single::SingleRun;
use crate::target::TargetSpec;

/// One job.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// What to do
    #[arg(long, value_enum, default_value = "randwrite")]
    rw: Rw,
    /// Bytes of each operation, or MIN-MAX
    #[arg(long, default_value = "4k", value_parser = block_size)]
    bs: BlockSize,
    /// Threads
    #[arg(long, default_value_t = 10)]
    numjobs: u32,
    /// Operations that each thread keeps in flight
    #[arg(long, default_value_t = 10)]
    iodepth: u32,
    /// Calls that access the files
    #[arg(long, value_enum, default_value = "auto")]
    ioengine: IoEngine,
    /// 1: bypass the page cache; 0: use it
    #[arg(long, default_value = "1", action = Set, value_parser = BoolishValueParser::new())]
    direct: bool,
    /// Fill the page cache before the run. Sequential reads start with an empty cache otherwise;
    /// for --direct=0
    #[arg(long, alias = "pre_read")]
    pre_read: bool,
    /// Largest number of visits to each block
    #[arg(long)]
    loops: Option<u32>,
    /// Keep the jobs in step, as fio's flow=1 does: jobs that are ahead wait for the slowest job
    #[arg(long)]
    in_step: bool,
    /// Bytes of the file, or of all files together
    #[arg(long, default_value = "512m", value_parser = parse_size)]
    size: u64,
    /// Duration of the measurement; runs on new blocks, and sequential reads through a cache, also
    /// end with the file
    #[arg(long, default_value = "5s", value_parser = duration::parse)]
    runtime: Duration,
    /// Duration of the run before the measurement
    #[arg(long, alias = "ramp_time", default_value = "0", value_parser = duration::parse)]
    ramp_time: Duration,
    /// Contents of the files at the start; written unless --rw=append
    #[arg(long, value_enum)]
    layout: Option<Layout>,
    /// 1: all jobs share a file; per-job: each has its own
    #[arg(long, default_value = "1", value_parser = Files::parse)]
    files: Files,
    /// Offsets are multiples of this; the largest block by default
    #[arg(long, alias = "blockalign", value_parser = parse_size)]
    offset_align: Option<u64>,
    /// Move all offsets up by half a block (of --bs)
    #[arg(long)]
    unaligned: bool,
    /// Sync the files at the end, within the time measured
    #[arg(long, alias = "end_fsync")]
    end_fsync: bool,
    /// During the run, punch holes into the last 32 MiB of each file and allocate them again; not
    /// for raw: and copy
    #[arg(long)]
    punch: bool,
    /// Percent of reads in --rw=randrw
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    rwmixread: u8,
    /// Operations on one file that exclude each other: range, shared-overwrite or exclusive
    #[arg(long, default_value_t)]
    policy: Policy,
    /// When unwritten extents are split: completion or submission
    #[arg(long, default_value_t)]
    split_at: SplitAt,
    /// Requests of at least this many blocks allocate all their blocks in one step; or none
    #[arg(long, value_name = "BLOCKS", default_value = "0", value_parser = threshold)]
    serialize_allocation_from: Threshold,
    /// Bytes of the library's page cache, for --direct=0
    #[arg(long, default_value = "2g", value_parser = parse_size)]
    cache_size: u64,
    /// Target: lib:IMAGE, raw:DEVICE, dir:PATH, sim:LATENCY,PARALLEL, mem or copy
    ///
    /// lib: the library on an image or device; an image that does not exist is made, and removed
    /// after the run. raw: the device or image itself. dir: a directory of any mounted file system.
    /// sim: the library on a device in memory that takes LATENCY for each request and serves
    /// PARALLEL requests at a time. mem: the library on a device in memory. copy: plain copies out
    /// of an array.
    #[arg(long, default_value = "mem", verbatim_doc_comment)]
    target: TargetSpec,
    /// Print counters and the causes of waits on standard error at the end; for lib:, sim: and mem
    #[arg(long)]
    explain: bool,
    /// Let raw: overwrite a device or file that exists, whose contents are lost
    #[arg(long)]
    destroy: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// Returns the run that the options describe.
    pub fn single_run(&self) -> SingleRun {
        SingleRun {
            job: self.job(),
            target: self.target.clone(),
            engine: self.engine(),
            destroy: self.destroy,
        }
    }

    fn job(&self) -> Job {
        Job {
            rw: self.rw,
            layout: self.layout.unwrap_or(match self.rw {
                Rw::Append => Layout::Append,
                _ => Layout::Written,
            }),
            files: self.files,
            size: self.size,
            block: self.bs,
            align: self.offset_align.unwrap_or(self.bs.max),
            shift: if self.unaligned { self.bs.min / 2 } else { 0 },
            read_percent: self.rwmixread,
            numjobs: self.numjobs,
            iodepth: self.iodepth,
            ioengine: self.ioengine,
            direct: self.direct,
            pre_read: self.pre_read,
            loops: self.loops,
            in_step: self.in_step,
            runtime: self.runtime,
            ramp: self.ramp_time,
            end_fsync: self.end_fsync,
            punch: self.punch,
        }
    }

    fn engine(&self) -> Engine {
        Engine {
            policy: self.policy,
            split_at: self.split_at,
            serialize_from: self.serialize_allocation_from.0,
            cache_size: self.cache_size,
            explain: self.explain,
        }
    }
}

/// Smallest number of blocks, or none.
#[derive(Clone, Copy, Debug)]
struct Threshold(Option<u32>);

fn threshold(text: &str) -> Result<Threshold, String> {
    match text {
        "none" => Ok(Threshold(None)),
        _ => {
            text.parse().map(|blocks| Threshold(Some(blocks))).map_err(|_| "expected a number or none".into())
        }
    }
}

/// Parses `4k` or `4k-1024k`.
fn block_size(text: &str) -> Result<BlockSize, String> {
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    BlockSize::new(parse_size(min)?, parse_size(max)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_parsed() {
        assert_eq!(block_size("4k"), Ok(BlockSize { min: 4096, max: 4096 }));
        assert_eq!(block_size("4k-1m"), Ok(BlockSize { min: 4096, max: 1 << 20 }));
        for text in ["", "0", "8k-4k", "4k-", "3k-4k", "128m"] {
            assert!(block_size(text).is_err(), "{text}");
        }
    }
}

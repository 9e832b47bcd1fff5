//! Formats a report as text.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::time::Duration;

use parext4_mount::report::{Operations, RefusedWriteBack, Report};

use crate::error::printable;
use crate::size;

/// Formats a report. With an earlier one, `before`, adds rates per second.
pub fn describe(now: &Report, before: Option<&Report>) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, now, before);
    text
}

fn write(f: &mut String, now: &Report, before: Option<&Report>) -> fmt::Result {
    facts(f, now)?;
    table(f, now, before)?;
    operations(f, &now.operations, now.mount.locks_whole_file)?;
    let rates = Rates::new(now, before);
    let requests = &now.requests;
    writeln!(
        f,
        "requests: {} received{}; {} in flight: {} in threads, {} in workers, {} in queues of the device, \
         {} wait for the kernel",
        requests.received,
        rates.of(|report| report.requests.received),
        requests.in_flight(),
        requests.in_threads,
        requests.in_workers,
        requests.in_queues,
        requests.in_kernel,
    )?;
    now.slow_requests.iter().try_for_each(|request| writeln!(f, "* in flight: {}", printable(request)))?;
    let cache = &now.cache;
    writeln!(
        f,
        "cache: {} of {}, {} of it dirty, in {} of memory; {} hits{}, {} misses{}",
        size::display(cache.bytes),
        size::display(cache.budget),
        size::display(cache.dirty_bytes),
        size::display(cache.memory),
        cache.hits,
        rates.of(|report| report.cache.hits),
        cache.misses,
        rates.of(|report| report.cache.misses),
    )?;
    let metadata = &now.metadata;
    writeln!(
        f,
        "metadata: {} of {}; {} inodes and {} blocks in memory, {} inodes known to the kernel",
        size::display(metadata.bytes),
        size::display(metadata.budget),
        metadata.inodes,
        metadata.blocks,
        metadata.known_inodes,
    )?;
    device(f, &now.device)?;
    writeln!(f, "journal: {} commits{}", now.journal_commits, rates.of(|report| report.journal_commits))?;
    now.waits.iter().try_for_each(|wait| writeln!(f, "* {}", wait.escape_debug()))?;
    refused(f, &now.refused)?;
    if !now.mount.log.is_empty() {
        writeln!(f, "log: {}", now.mount.log.escape_debug())?;
    }
    now.log.iter().try_for_each(|line| writeln!(f, "  {}", printable(line)))
}

/// Formats the write-back that was refused, and the files that have lost data.
fn refused(f: &mut String, refused: &RefusedWriteBack) -> fmt::Result {
    if refused.requests == 0 {
        return Ok(());
    }
    let (requests, bytes) = (refused.requests, size::display(refused.bytes));
    writeln!(
        f,
        "write-back refused: {requests} requests of {bytes}; {} files have lost data",
        refused.files
    )?;
    // The server has escaped the paths.
    refused
        .first
        .iter()
        .try_for_each(|lost| writeln!(f, "* {}: {}", printable(&lost.file), printable(&lost.error)))
}

/// Formats the counters of the device, whose names say which of them are in bytes.
fn device(f: &mut String, counters: &BTreeMap<String, u64>) -> fmt::Result {
    let value = |(name, value): (&String, &u64)| match name.strip_suffix("_bytes") {
        Some(name) => format!("{} {}", size::display(*value), name.escape_debug()),
        None => format!("{value} {}", name.escape_debug()),
    };
    let values: Vec<_> = counters.iter().map(value).map(|value| value.replace('_', " ")).collect();
    if values.is_empty() { Ok(()) } else { writeln!(f, "device: {}", values.join(", ")) }
}

fn facts(f: &mut String, now: &Report) -> fmt::Result {
    let (mount, volume) = (&now.mount, &now.volume);
    let bytes = |blocks: u64| size::display(blocks.saturating_mul(volume.block_size.into()));
    let mounted_for = indicatif::HumanDuration(Duration::from_millis(mount.mounted_for_ms));
    writeln!(f, "{}: mounted for {mounted_for} by process {}", mount.image.escape_debug(), mount.pid)?;
    writeln!(f, "  options   {}", mount.options.escape_debug())?;
    if !volume.label.is_empty() {
        writeln!(f, "  label     {}", volume.label.escape_debug())?;
    }
    let (free, available) = (bytes(volume.free_blocks), bytes(volume.available_blocks));
    writeln!(f, "  space     {}, {free} free, {available} for ordinary users", bytes(volume.blocks))?;
    if let Some(why) = &mount.stopped {
        writeln!(f, "  stopped   the volume takes no changes: {}", why.escape_debug())?;
    }
    let held = if mount.locks_whole_file { "the whole file" } else { "their own range" };
    writeln!(f, "policy {}: operations hold {held}", mount.policy.escape_debug())
}

/// Formats the operations by kind, with rates in a column of their own.
fn table(f: &mut String, now: &Report, before: Option<&Report>) -> fmt::Result {
    let line = |f: &mut String, what: &str, shared: &dyn Display, alone: &dyn Display, rate: &dyn Display| {
        write!(f, "{what:52}{shared:>10}{alone:>10}")?;
        if before.is_some() { writeln!(f, "{rate:>10}") } else { writeln!(f) }
    };
    let rates = Rates::new(now, before);
    line(f, "operations, by what they do", &"shared", &"exclusive", &"/s")?;
    let (mut shared, mut alone) = (0, 0);
    for row in &now.operations.admissions {
        let total = |report: &Report| {
            let same = report.operations.admissions.iter().find(|other| other.reason == row.reason);
            same.map_or(0, |row| row.shared.saturating_add(row.exclusive))
        };
        let what = format!("  {}", row.reason.escape_debug());
        line(f, &what, &row.shared, &row.exclusive, &rates.number(total))?;
        (shared, alone) = (row.shared.saturating_add(shared), row.exclusive.saturating_add(alone));
    }
    let total = |report: &Report| {
        let rows = report.operations.admissions.iter();
        rows.fold(0_u64, |sum, row| sum.saturating_add(row.shared).saturating_add(row.exclusive))
    };
    line(f, "  all", &shared, &alone, &rates.number(total))
}

fn operations(f: &mut String, done: &Operations, locks_whole_file: bool) -> fmt::Result {
    let (total, longest) = (Duration::from_nanos(done.waited_ns), Duration::from_nanos(done.longest_wait_ns));
    writeln!(f, "waits for other operations: {}, {total:.1?} in all, {longest:.1?} at most", done.waits)?;
    if locks_whole_file {
        writeln!(f, "times that ext4 would have waited for all I/O on the file: {}", done.drains)?;
    }
    writeln!(
        f,
        "blocks converted to written: {}, by {} writes, of which {} shared one change of the map",
        done.blocks_converted, done.conversions, done.conversions_merged
    )?;
    if done.zero_outs > 0 {
        writeln!(f, "blocks zeroed because the map could not grow: {} times", done.zero_outs)?;
    }
    writeln!(f, "zeros written around data: {}", size::display(done.bytes_zeroed))
}

/// Rates of counters between two reports.
struct Rates<'a> {
    now: &'a Report,
    before: Option<&'a Report>,
}

impl<'a> Rates<'a> {
    fn new(now: &'a Report, before: Option<&'a Report>) -> Self {
        Self { now, before }
    }

    /// Returns the change per second, rounded up; 0 without an earlier report.
    fn number(&self, counter: impl Fn(&Report) -> u64) -> u64 {
        let Some(before) = self.before else { return 0 };
        let change = u128::from(counter(self.now).saturating_sub(counter(before)));
        let time = self.now.mount.mounted_for_ms.saturating_sub(before.mount.mounted_for_ms).max(1);
        u64::try_from((change * 1000).div_ceil(time.into())).unwrap_or(u64::MAX)
    }

    /// Returns the rate in parentheses; an empty string without an earlier report.
    fn of(&self, counter: impl Fn(&Report) -> u64) -> String {
        self.before.map_or_else(String::new, |_| format!(" ({}/s)", self.number(counter)))
    }
}

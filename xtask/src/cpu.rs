//! Processor time, of which a step uses less than its duration if it waits, and more if it runs on
//! several processors.

use std::time::Duration;

/// The times in `/proc/self/stat`, counted from the state of the process: by the process itself and
/// by its children, each outside and inside the kernel.
const TIMES: std::ops::Range<usize> = 11..15;

/// Returns the processor time that this process and its children, and theirs, have used. A child
/// counts when it has ended. A server that has left the process tree is not among them.
pub fn used() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = rustix::param::clock_ticks_per_second();
    Duration::from_millis(ticks_used(&stat) * 1000 / ticks.max(1))
}

/// Sums up the times. The name of the process, in parentheses, may have spaces.
fn ticks_used(stat: &str) -> u64 {
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    fields.take(TIMES.end).skip(TIMES.start).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::ticks_used;

    #[test]
    fn times_of_the_process_and_of_its_children() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 200 0 0 1 20 300 4000 20 0 1 0 5 6 7";
        assert_eq!(ticks_used(stat), 4321);
        assert_eq!(ticks_used(""), 0);
    }
}

//! The counters of a volume, and why operations on it waited, as text.

use std::fmt::Write as _;

use parext4::Volume;

/// Kinds of waits printed. The list is sorted by time, longest first.
const MAX_WAITS: usize = 12;

/// Returns the counters, and the waits that took the most time, one per line.
pub fn describe(volume: &Volume) -> String {
    let mut text = format!("{}\n", volume.stats());
    let waits = volume.explain();
    for wait in waits.iter().take(MAX_WAITS) {
        let _ = writeln!(text, "* {wait}");
    }
    if waits.len() > MAX_WAITS {
        let times: u64 = waits[MAX_WAITS..].iter().map(|wait| wait.times).sum();
        let _ = writeln!(text, "* and {times} shorter waits of {} kinds", waits.len() - MAX_WAITS);
    }
    text
}

//! Measures how much memory a call needs. Other threads of the process must not allocate meanwhile.

use std::fs;

/// Returns the result of a call, and by how many bytes the resident memory of the process grew at
/// most.
///
/// # Panics
/// If the kernel has no `/proc`.
pub fn measured<R>(call: impl FnOnce() -> R) -> (R, u64) {
    // Resets the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    let result = call();
    (result, status("VmHWM:").saturating_sub(before))
}

/// Returns a line of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

//! Returns memory of the heap to the system after a load.
//!
//! The allocator of the C library keeps freed memory in each of its arenas: hundreds of MiB after a
//! load of many threads or many files.
#![allow(unsafe_code)]

/// The number of requests in one interval below which the server counts as idle.
const FEW: u64 = 100;
/// The number of idle intervals after which the memory is returned.
const INTERVALS: u32 = 6;

/// Decides when to return memory. The watchdog calls it at regular intervals.
#[derive(Debug, Default)]
pub(crate) struct IdleHeap {
    /// Number of requests at the last check.
    received: u64,
    /// Number of idle intervals since the last load.
    idle: u32,
}

impl IdleHeap {
    /// Returns memory to the system if the server has been idle for `INTERVALS` checks, once after
    /// each load.
    pub fn check(&mut self, received: u64) {
        if self.is_due(received) {
            trim();
        }
    }

    fn is_due(&mut self, received: u64) -> bool {
        let is_idle = received - self.received < FEW;
        self.received = received;
        self.idle = if is_idle { self.idle.saturating_add(1) } else { 0 };
        self.idle == INTERVALS
    }
}

/// Returns free pages of all arenas to the system.
#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: any thread may call this at any time. It changes no memory that is in use.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Does nothing, because other C libraries have no such call.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the memory of this process, in bytes.
    #[cfg(target_env = "gnu")]
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix(" kB"));
        kib.unwrap().trim().parse::<usize>().unwrap() << 10
    }

    #[test]
    fn memory_is_returned_once_after_a_load() {
        let mut heap = IdleHeap::default();
        assert!(!heap.is_due(10_000), "a load");
        assert!((1..INTERVALS).all(|_| !heap.is_due(10_001)));
        assert!(heap.is_due(10_002), "idle for long");
        assert!((0..100).all(|_| !heap.is_due(10_003)), "only once");
        assert!(!heap.is_due(20_000), "the next load");
        assert!((1..INTERVALS).all(|_| !heap.is_due(20_000)));
        assert!(heap.is_due(20_000));
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn freed_memory_is_returned() {
        const SIZE: usize = 128 << 20;
        // What stays is at the end, so that the C library does not return the rest on its own.
        let mut pieces: Vec<Vec<u8>> = (0..SIZE / 1024).map(|_| vec![1; 1000]).collect();
        let last = pieces.pop();
        drop(pieces);
        let before = resident();
        trim();
        assert!(before.saturating_sub(resident()) > SIZE / 2, "{before} bytes before");
        drop(last);
    }
}

//! The hash of a run: of each step of each thread, and of each request of the device with its time.

use std::cell::Cell;

// One thread of the system runs all threads of a simulation.
thread_local! {
    static HASH: Cell<u64> = const { Cell::new(0) };
}

/// Begins a trace.
pub fn begin() {
    HASH.set(0xcbf2_9ce4_8422_2325);
}

/// Adds a number to the trace.
pub fn add(number: u64) {
    HASH.set((HASH.get() ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(23));
}

/// Adds bytes to the trace.
pub fn add_bytes(bytes: &[u8]) {
    for word in bytes.chunks(8) {
        let mut number = [0; 8];
        number[..word.len()].copy_from_slice(word);
        add(u64::from_le_bytes(number));
    }
}

/// Returns the hash of what was added.
pub fn hash() -> u64 {
    HASH.get()
}

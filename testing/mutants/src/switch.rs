//! The switch that selects one mutant while a test program runs. Every mutated crate gets a copy of
//! this file.
//!
//! `PAREXT4_MUTANT` has the number of the mutant. With `PAREXT4_MUTANTS_REACHED`, the program
//! appends to that file the number of each mutant that it reaches.

use std::fs::File;
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest number of a mutant, plus one.
pub const CAPACITY: usize = 1 << 13;

struct Switch {
    /// 0: the program as it is.
    active: u32,
    /// The file for the numbers of mutants that are reached.
    reached: Option<File>,
}

static SWITCH: LazyLock<Switch> = LazyLock::new(|| Switch {
    active: std::env::var("PAREXT4_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0),
    reached: std::env::var_os("PAREXT4_MUTANTS_REACHED")
        .and_then(|path| File::options().create(true).append(true).open(path).ok()),
});

/// One bit for each mutant whose number was written.
static SEEN: [AtomicU64; CAPACITY / 64] = [const { AtomicU64::new(0) }; CAPACITY / 64];

/// Returns true if mutant `number` is selected.
#[inline(always)]
pub fn is(number: u32) -> bool {
    let switch = &*SWITCH;
    if let Some(file) = &switch.reached {
        note(file, number);
    }
    switch.active == number
}

#[cold]
fn note(mut file: &File, number: u32) {
    let bit = 1 << (number % 64);
    if SEEN[number as usize / 64].fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        // A number that is not recorded counts as not reached, so the run reports its mutant as
        // missed.
        let _ = file.write_all(format!("{number}\n").as_bytes());
    }
}

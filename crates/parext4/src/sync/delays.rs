//! Random delays at the steps that the model checker schedules: accesses to atomics and words, and
//! acquisitions of locks.
//!
//! Stress tests turn them on to meet interleavings that need a thread to stop between two certain
//! steps. Only builds with debug assertions have them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Number of steps of which one is delayed; 0 if none is.
static ONE_IN: AtomicU32 = AtomicU32::new(0);
/// Number of delays of which one is a sleep. The others let another thread run.
const SLEEP_ONE_IN: u64 = 30;
/// Limit of a sleep, microseconds.
const MAX_SLEEP: u64 = 500;

/// Delays one in `one_in` steps of all threads of the process from now on; none if it is 0.
pub fn delay_steps(one_in: u32) {
    ONE_IN.store(one_in, Ordering::Relaxed);
}

/// Delays this thread at random steps, if a test has asked for it.
#[inline]
pub(super) fn step() {
    let one_in = ONE_IN.load(Ordering::Relaxed);
    if one_in > 0 {
        delay(one_in.into());
    }
}

#[cold]
fn delay(one_in: u64) {
    let random = random();
    if !random.is_multiple_of(one_in) {
        return;
    }
    let random = random / one_in;
    if random.is_multiple_of(SLEEP_ONE_IN) {
        std::thread::sleep(Duration::from_micros(random / SLEEP_ONE_IN % MAX_SLEEP));
    } else {
        std::thread::yield_now();
    }
}

/// Returns the thread's next random number (Marsaglia's xorshift).
fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    static NEXT_SEED: AtomicU64 = AtomicU64::new(1);
    let mut state = STATE.get();
    if state == 0 {
        state = NEXT_SEED.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.set(state);
    state >> 16
}

/// The atomics of [`std::sync::atomic`], each access of which is a step.
pub(crate) mod atomic {
    use std::ops::Deref;
    pub(crate) use std::sync::atomic::{Ordering, fence};

    macro_rules! delayed {
        ($($name:ident: $value:ty),*) => {$(
            #[derive(Debug, Default)]
            pub(crate) struct $name(std::sync::atomic::$name);

            impl $name {
                pub(crate) const fn new(value: $value) -> Self {
                    Self(std::sync::atomic::$name::new(value))
                }
            }

            impl Deref for $name {
                type Target = std::sync::atomic::$name;
                #[inline]
                fn deref(&self) -> &Self::Target {
                    super::step();
                    &self.0
                }
            }
        )*};
    }

    delayed!(AtomicBool: bool, AtomicU8: u8, AtomicU32: u32, AtomicU64: u64, AtomicI64: i64, AtomicUsize: usize);
}

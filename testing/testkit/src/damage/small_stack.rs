//! A thread with a small stack.

use std::thread::{self, Builder};

/// Bytes of the stack. Recursion as deep as an image chooses would not fit.
const STACK: usize = 512 << 10;

/// Runs `using` in a thread with a small stack, and returns its result.
///
/// # Errors
/// The panic of `using`.
pub fn on_small_stack<R: Send>(using: impl FnOnce() -> R + Send) -> thread::Result<R> {
    thread::scope(|scope| {
        let thread = Builder::new().stack_size(STACK).spawn_scoped(scope, using);
        thread.expect("a thread").join()
    })
}

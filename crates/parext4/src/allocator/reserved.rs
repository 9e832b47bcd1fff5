//! The blocks reserved for root: whether the calling thread may use them.

use std::cell::Cell;

// The standard library's type, in shuttle models as well: no model uses it.
thread_local! {
    static UNPRIVILEGED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` for a user who may not use the blocks reserved for root ([`Space::reserved_blocks`](crate::Space)). An operation in
/// `work` that needs blocks fails with [`Error::NoSpace`](crate::Error) when only reserved blocks are left. Applies to this thread
/// until `work` returns. Data that is written back later has its space already.
pub fn without_reserved_blocks<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            UNPRIVILEGED.with(|flag| flag.set(self.0));
        }
    }
    let _restore = Restore(UNPRIVILEGED.with(|flag| flag.replace(true)));
    work()
}

/// Returns true if this thread may not use the reserved blocks.
pub(super) fn is_unprivileged() -> bool {
    UNPRIVILEGED.with(Cell::get)
}

//! Who asks for blocks: some are reserved for root.

use std::cell::Cell;

// The standard library's also where models are checked: none uses it.
thread_local! {
    static UNPRIVILEGED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on behalf of somebody who may not use the blocks that are reserved for root
/// ([`Space::reserved_blocks`](crate::Space)): what needs blocks fails with [`Error::NoSpace`](crate::Error) when only
/// those are left. It counts for what this thread does meanwhile; data that is written back later has its space already.
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

/// Whether this thread works for such a one.
pub(super) fn is_unprivileged() -> bool {
    UNPRIVILEGED.with(Cell::get)
}

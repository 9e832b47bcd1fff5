//! Limits the memory of requests that wait in the server's queues.
//!
//! The thread that has read a request reserves the memory of its data before it passes the request
//! on. While the budget is used up that thread blocks, so further requests stay in the kernel, and
//! the programs that have sent them wait.
//!
//! Invariant: a reservation ends when its request has been carried out, and before the request is
//! handed to a thread that blocks on the kernel. To carry out a request needs no other request that
//! the kernel has yet to send. So reservations end even if no thread reads requests.

use std::sync::Arc;

use parext4_sync::{Condvar, Mutex};

/// Limit of the memory of queued requests, in bytes.
const LIMIT: usize = 256 << 20;

/// The memory that requests have reserved.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: usize,
    reserved: Mutex<usize>,
    freed: Condvar,
}

/// Memory that a request has reserved. Dropping it frees the memory.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::with_limit(LIMIT)
    }
}

impl MemoryBudget {
    /// Returns a budget of `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self { limit, reserved: Mutex::new(0), freed: Condvar::new() }
    }

    /// Reserves memory, and blocks until less than the limit is reserved. The last reservation may
    /// exceed the limit, so no request is too large.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Reservation {
        let mut reserved = self.reserved.lock();
        while *reserved >= self.limit {
            self.freed.wait(&mut reserved);
        }
        *reserved += bytes;
        Reservation { budget: Arc::clone(self), bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = self.budget.reserved.lock();
        *reserved -= self.bytes;
        drop(reserved);
        self.budget.freed.notify_all();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reservation_waits_while_the_budget_is_used_up() {
        let budget = Arc::new(MemoryBudget::with_limit(100));
        let (first, large) = (budget.reserve(99), budget.reserve(1000));
        let (reserved, is_reserved) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for bytes in [1, 100] {
                    reserved.send(budget.reserve(bytes)).unwrap();
                }
            });
            drop(first);
            assert!(is_reserved.recv_timeout(Duration::from_millis(50)).is_err(), "1000 bytes are reserved");
            drop(large);
            let reservations = (is_reserved.recv().unwrap(), is_reserved.recv().unwrap());
            assert_eq!(*budget.reserved.lock(), 101);
            drop(reservations);
        });
        assert_eq!(*budget.reserved.lock(), 0);
    }
}

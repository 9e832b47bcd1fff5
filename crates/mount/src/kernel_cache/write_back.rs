//! Runs actions after the write-back requests of an inode that the server has begun are answered.
//!
//! Linux before 6.16 copies a page to write it back, and marks it clean before the server has
//! answered. So with these versions a notification that makes the kernel drop its pages does not
//! wait for write-back requests. This module does not know requests that the kernel has not sent
//! yet, or that no thread has begun.
//!
//! The requests are grouped by the waits that begin while the requests are in progress. Each
//! request holds the group that was current when the request arrived. A wait ends the current
//! group, which runs the action once this group and all earlier groups are released. So a wait ends
//! even if later requests keep arriving.

use std::fmt;
use std::sync::Arc;

use parext4_sync::Mutex;

type Action = Box<dyn FnOnce() + Send>;

/// The write-back requests of one inode.
#[derive(Debug, Default)]
pub(crate) struct WriteBack {
    current: Mutex<Arc<Group>>,
}

/// The requests that have arrived between two waits. Each holds a reference.
#[derive(Default)]
struct Group {
    end: Mutex<Option<End>>,
}

/// The action at the end of a group, when all its requests are answered.
struct End {
    action: Action,
    /// The group of later requests. This reference keeps that group from ending before this one.
    next: Arc<Group>,
}

/// A write-back request, which counts from its arrival until this value is dropped.
#[derive(Debug)]
#[must_use]
pub struct WriteBackRequest(#[expect(dead_code, reason = "held until it is dropped")] Arc<Group>);

impl WriteBack {
    /// Counts a request that has arrived.
    pub fn start(&self) -> WriteBackRequest {
        WriteBackRequest(Arc::clone(&self.current.lock()))
    }

    /// Returns true if all requests that have arrived are answered.
    pub fn is_idle(&self) -> bool {
        // Each request has a reference to its group, and a group that has not ended has a reference
        // to the next group.
        Arc::strong_count(&self.current.lock()) == 1
    }

    /// Runs `action`, which must not block, once all requests that have arrived are answered. It
    /// runs in the calling thread, or in the thread that answers the last request.
    pub fn after_current(&self, action: impl FnOnce() + Send + 'static) {
        let next = Arc::<Group>::default();
        let ended = std::mem::replace(&mut *self.current.lock(), Arc::clone(&next));
        *ended.end.lock() = Some(End { action: Box::new(action), next });
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut end = self.end.lock().take();
        while let Some(End { action, next }) = end {
            // The next group ends, too, if all of its requests are answered. A loop is used, so
            // that many groups need little stack.
            end = Arc::into_inner(next).and_then(|group| group.end.lock().take());
            action();
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn an_action_waits_for_the_requests_before_it_and_for_no_later_one() {
        let write_back = WriteBack::default();
        let (sender, actions) = channel();
        let wait = |name| {
            let sender = sender.clone();
            write_back.after_current(move || sender.send(name).unwrap());
        };
        let ran = || actions.try_iter().collect::<Vec<_>>();
        assert!(write_back.is_idle());
        wait("idle");
        assert_eq!(ran(), ["idle"]);
        let (first, second) = (write_back.start(), write_back.start());
        wait("both");
        assert!(!write_back.is_idle(), "an earlier group has requests");
        let third = write_back.start();
        wait("all");
        let later = write_back.start();
        drop((first, third));
        assert!(ran().is_empty());
        drop(second);
        assert_eq!(ran(), ["both", "all"]);
        assert!(!write_back.is_idle());
        drop(later);
        assert!(write_back.is_idle());
    }
}

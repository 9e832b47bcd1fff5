//! The event that a thread of a connection blocks on, together with the socket if the thread leads.

#[cfg(shuttle)]
pub(crate) mod model;

#[cfg(shuttle)]
pub(crate) use model::{Event, Socket};
#[cfg(not(shuttle))]
pub(crate) use system::{Event, Socket};

#[cfg(not(shuttle))]
mod system {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::time::Duration;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};

    use crate::socket::poll_for;

    /// A socket, and the poll events that a thread waits for.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Socket<'a>(BorrowedFd<'a>, PollFlags);

    /// An eventfd(2).
    #[derive(Debug)]
    pub(crate) struct Event(OwnedFd);

    impl<'a> Socket<'a> {
        pub(crate) fn new(socket: &'a impl AsFd, wanted: PollFlags) -> Self {
            Self(socket.as_fd(), wanted)
        }
    }

    impl Event {
        /// Creates an event that is not set.
        ///
        /// # Errors
        /// The process has too many files open.
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        /// Ends the present wait, or else the next one.
        pub(crate) fn set(&self) {
            // The write fails only if the counter would overflow, and then the event is readable.
            let _ = rustix::io::write(self.0.as_fd(), &1u64.to_ne_bytes());
        }

        /// Blocks until the event is set, the socket is ready, or `time` has passed. Clears the
        /// event. May return early.
        ///
        /// # Errors
        /// Errors of poll(2).
        pub(crate) fn wait(&self, socket: Option<Socket<'_>>, time: Option<Duration>) -> io::Result<()> {
            let event = PollFd::new(&self.0, PollFlags::IN);
            let is_set = match socket {
                None => {
                    let mut fds = [event];
                    poll_for(&mut fds, time)?;
                    !fds[0].revents().is_empty()
                }
                Some(Socket(socket, wanted)) => {
                    let mut fds = [event, PollFd::from_borrowed_fd(socket, wanted)];
                    poll_for(&mut fds, time)?;
                    !fds[0].revents().is_empty()
                }
            };
            if is_set {
                // The read fails only if another call has made the event unreadable.
                let _ = rustix::io::read(&self.0, &mut [0; 8]);
            }
            Ok(())
        }
    }
}

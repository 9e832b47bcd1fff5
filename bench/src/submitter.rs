//! How a thread submits operations to a target.

use anyhow::Result;

use super::access_order::Io;

/// Submits the operations of one thread. Each operation in flight occupies a slot.
///
/// Slots have buffers from the start, so that an operation allocates no memory.
pub trait Submitter: Send {
    /// Starts an operation in a free slot.
    fn submit(&mut self, slot: usize, io: &Io) -> Result<()>;

    /// Blocks until at least one operation has completed, and adds the slots of all completed
    /// operations to `free`.
    ///
    /// # Errors
    /// The error of the first operation that failed.
    fn harvest(&mut self, free: &mut Vec<usize>) -> Result<()>;
}

/// A submitter whose operations have completed when `submit` returns.
pub struct Blocking<F> {
    call: F,
    done: Vec<usize>,
}

impl<F: FnMut(&Io) -> Result<()> + Send> Blocking<F> {
    /// Returns a submitter that performs each operation by `call`.
    pub fn new(call: F) -> Self {
        Self { call, done: Vec::with_capacity(1) }
    }
}

impl<F: FnMut(&Io) -> Result<()> + Send> Submitter for Blocking<F> {
    fn submit(&mut self, slot: usize, io: &Io) -> Result<()> {
        (self.call)(io)?;
        self.done.push(slot);
        Ok(())
    }

    fn harvest(&mut self, free: &mut Vec<usize>) -> Result<()> {
        free.append(&mut self.done);
        Ok(())
    }
}

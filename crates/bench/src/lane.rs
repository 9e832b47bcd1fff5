//! How a thread gives operations to whatever is measured.

use anyhow::Result;

use super::order::Io;

/// One thread's way to the files: operations are submitted into slots, which come back when they are done.
///
/// Each slot has its buffer from the start, so that an operation costs no allocation.
pub trait Lane: Send {
    /// Starts an operation in a slot that is free.
    fn submit(&mut self, slot: usize, io: &Io) -> Result<()>;

    /// Waits until at least one operation is done and adds the slots of those that are to `free`. The first
    /// operation that failed is the error.
    fn harvest(&mut self, free: &mut Vec<usize>) -> Result<()>;
}

/// A lane whose operations are done when `submit` returns.
pub struct Sync<F> {
    call: F,
    done: Vec<usize>,
}

impl<F: FnMut(&Io) -> Result<()> + Send> Sync<F> {
    /// A lane that does each operation by `call`.
    pub fn new(call: F) -> Self {
        Self { call, done: Vec::with_capacity(1) }
    }
}

impl<F: FnMut(&Io) -> Result<()> + Send> Lane for Sync<F> {
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

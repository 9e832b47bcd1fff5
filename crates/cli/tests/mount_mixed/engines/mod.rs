//! Asynchronous I/O: Linux's native interface, as libaio has it, and io_uring.

mod aio;
mod ring;

use std::fs::File;
use std::io;
use std::sync::Arc;

use parext4::device::AlignedBuf;

use self::aio::Aio;
use self::ring::Ring;

/// The interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Aio,
    Ring,
}

/// A request. The buffer is at least as long as the transfer.
#[derive(Debug)]
pub struct Transfer {
    pub file: Arc<File>,
    pub writes: bool,
    pub offset: u64,
    pub buf: AlignedBuf,
    pub len: usize,
}

/// A completed transfer, with the kernel's result: bytes, or a negative error number.
#[derive(Debug)]
pub struct Done {
    pub id: u64,
    pub transfer: Transfer,
    pub result: i64,
}

/// A queue of one thread.
#[derive(Debug)]
pub enum Engine {
    Aio(Aio),
    Ring(Box<Ring>),
}

impl Engine {
    /// A queue of at most `depth` transfers.
    pub fn new(kind: Kind, depth: u32) -> io::Result<Self> {
        match kind {
            Kind::Aio => Ok(Self::Aio(Aio::new(depth)?)),
            Kind::Ring => Ok(Self::Ring(Box::new(Ring::new(depth)?))),
        }
    }

    /// Submits a transfer. No other transfer in flight has its `id`. After an error, it is not in
    /// flight.
    pub fn submit(&mut self, id: u64, transfer: Transfer) -> Result<(), Done> {
        match self {
            Self::Aio(aio) => aio.submit(id, transfer),
            Self::Ring(ring) => ring.submit(id, transfer),
        }
    }

    /// Waits for at least `least` transfers, which must be in flight, and returns all that are
    /// over.
    pub fn reap(&mut self, least: usize) -> io::Result<Vec<Done>> {
        match self {
            Self::Aio(aio) => aio.reap(least),
            Self::Ring(ring) => ring.reap(least),
        }
    }

    /// Returns the number of transfers in flight.
    pub fn under_way(&self) -> usize {
        match self {
            Self::Aio(aio) => aio.under_way(),
            Self::Ring(ring) => ring.under_way(),
        }
    }
}

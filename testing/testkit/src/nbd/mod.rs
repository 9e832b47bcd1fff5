//! NBD servers for tests: a server in this process whose answers a test chooses, and nbdkit and
//! qemu-nbd as processes.

mod disk;
mod fake;
mod negotiation;
mod programs;
mod relay;
mod request;

pub use disk::VolatileDisk;
pub use fake::{FakeServer, Rule};
pub use negotiation::Offer;
pub use programs::{Nbdkit, QemuNbd, Running, Server};
pub use relay::Relay;
pub use request::{Kind, Reply, Seen};

/// Flags of an export, as the protocol names them.
pub mod flags {
    #![allow(missing_docs, reason = "the protocol names them")]
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

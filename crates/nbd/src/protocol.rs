//! The NBD protocol: numbers and structures as they are on the wire, in network byte order.
//!
//! This module knows no sockets. Names follow the protocol's specification (`doc/proto.md` of the
//! NBD project).

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes that a server sends.
pub(crate) const INIT_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Next bytes of a server with the new negotiation, and first bytes of each option.
pub(crate) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Next bytes of a server with the old negotiation.
pub(crate) const OLD_MAGIC: u64 = 0x0000_4202_8186_1253;
/// First bytes of the reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First bytes of a request.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First bytes of a simple reply.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First bytes of a chunk of a structured reply.
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Flags of the server and of the client in the negotiation.
pub(crate) mod handshake {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1;
    pub(crate) const NO_ZEROES: u16 = 2;
}

/// Options of the negotiation.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
}

/// Types of replies to options.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const INFO: u32 = 3;
    /// Bit that all errors have.
    pub(crate) const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR | 1;
    pub(crate) const POLICY: u32 = ERROR | 2;
    pub(crate) const TLS_REQUIRED: u32 = ERROR | 5;
    pub(crate) const UNKNOWN: u32 = ERROR | 6;
    pub(crate) const SHUTDOWN: u32 = ERROR | 7;
}

/// Types of information in a reply to [`option::GO`].
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
pub(crate) mod transmission {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Types of requests.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    /// Flag: the server makes the write durable before it answers.
    pub(crate) const FUA: u16 = 1;
    /// Flag of [`WRITE_ZEROES`]: the range stays allocated.
    pub(crate) const NO_HOLE: u16 = 1 << 1;
}

/// Flags and types of chunks of structured replies.
pub(crate) mod chunk {
    /// Flag: the last chunk of the reply.
    pub(crate) const DONE: u16 = 1;
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    /// Bit of all error chunks.
    pub(crate) const ERROR_BIT: u16 = 1 << 15;
    pub(crate) const ERROR_OFFSET: u16 = ERROR_BIT | 2;
}

/// Error number of a server that is about to stop.
pub(crate) const ESHUTDOWN: u32 = 108;

/// Greeting of a server, without the handshake flags.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Greeting {
    pub(crate) init: U64,
    pub(crate) style: U64,
}

/// Head of an option.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OptionHead {
    pub(crate) magic: U64,
    pub(crate) option: U32,
    pub(crate) len: U32,
}

/// Head of a reply to an option.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OptionReply {
    pub(crate) magic: U64,
    pub(crate) option: U32,
    pub(crate) kind: U32,
    pub(crate) len: U32,
}

/// Size and flags of an export: the end of [`info::EXPORT`], and the reply to
/// [`option::EXPORT_NAME`].
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ExportInfo {
    pub(crate) size: U64,
    pub(crate) flags: U16,
}

/// End of [`info::BLOCK_SIZE`], bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BlockSizeInfo {
    pub(crate) minimum: U32,
    pub(crate) preferred: U32,
    pub(crate) maximum: U32,
}

/// Head of a request. The bytes of a write follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RequestHead {
    pub(crate) magic: U32,
    pub(crate) flags: U16,
    pub(crate) kind: U16,
    pub(crate) cookie: U64,
    pub(crate) offset: U64,
    pub(crate) len: U32,
}

/// A simple reply. The bytes of a read that succeeded follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SimpleReply {
    pub(crate) magic: U32,
    pub(crate) error: U32,
    pub(crate) cookie: U64,
}

/// Head of a chunk of a structured reply.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ChunkHead {
    pub(crate) magic: U32,
    pub(crate) flags: U16,
    pub(crate) kind: U16,
    pub(crate) cookie: U64,
    pub(crate) len: U32,
}

/// Contents of [`chunk::OFFSET_HOLE`].
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct HoleChunk {
    pub(crate) offset: U64,
    pub(crate) len: U32,
}

/// Beginning of an error chunk. The message follows, and with [`chunk::ERROR_OFFSET`] an offset.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ErrorChunk {
    pub(crate) error: U32,
    pub(crate) message_len: U16,
}

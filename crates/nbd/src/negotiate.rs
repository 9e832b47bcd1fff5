//! Negotiation with a server: the fixed newstyle, or its subset that older servers know.
//!
//! 1. The server greets. The client answers with the flags that both know.
//! 2. The client asks for TLS if the URL says so, and for structured replies.
//! 3. It asks for the export with `NBD_OPT_GO`. A server that does not know this option, or lacks
//!    the fixed newstyle, gets `NBD_OPT_EXPORT_NAME`.
//!
//! Invariant: whatever the server sends, the client stores at most [`LONGEST_REPLY`] bytes of it,
//! and ends by the deadline.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::error::{against_protocol, message};
use crate::export::Export;
use crate::guard::{Changes, Guard};
use crate::protocol::{
    BlockSizeInfo, ExportInfo, Greeting, INIT_MAGIC, OLD_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHead,
    OptionReply, handshake, info, option, reply,
};
use crate::socket::{Timed, connect};
use crate::tls;
use crate::url::NbdUrl;

/// Longest reply to an option, bytes.
const LONGEST_REPLY: u32 = 64 << 10;
/// Largest number of replies to one option.
const MOST_REPLIES: usize = 64;

/// A socket on which the export accepts requests.
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub(crate) socket: OwnedFd,
    /// The socket to the server, if `socket` leads to a thread that encrypts; see
    /// [`tls`].
    pub(crate) encrypted: Option<Arc<OwnedFd>>,
    pub(crate) changes: Arc<Changes>,
    pub(crate) export: Export,
    /// Whether replies may have several chunks.
    pub(crate) structured: bool,
}

/// Connects to the server of `url` and negotiates, before the deadline. The guard is not asked:
/// negotiations change nothing.
///
/// # Errors
/// - `NotFound` if the server has no such export;
/// - `InvalidData` if the server does not keep the protocol;
/// - `Unsupported` if client and server have no negotiation or TLS in common;
/// - errors of the system.
pub(crate) fn negotiate(url: &NbdUrl, guard: &Arc<Guard>, until: Instant) -> io::Result<Negotiated> {
    let changes = Arc::new(Changes::new(Arc::clone(guard)));
    let mut encrypted = None;
    let mut socket = connect(&url.server, until)?;
    let mut talk = Talk(Timed { socket: &socket, until });
    let flags = talk.greet()?;
    let is_fixed = flags & handshake::FIXED_NEWSTYLE != 0;
    let has_zeroes = flags & handshake::NO_ZEROES == 0;
    if let Some(files) = &url.tls {
        if !is_fixed {
            return Err(unsupported("the server has no TLS; use nbd:// if the network is trusted"));
        }
        talk.start_tls()?;
        let wire = Arc::new(socket);
        socket = tls::wrap(&wire, files, &changes, until)?;
        encrypted = Some(wire);
        talk = Talk(Timed { socket: &socket, until });
    }
    let structured = is_fixed && talk.ask_structured()?;
    let export = match is_fixed {
        true => talk.go(&url.export)?,
        false => None,
    };
    let export = match export {
        Some(export) => export,
        None => talk.export_name(&url.export, has_zeroes)?,
    };
    Ok(Negotiated { socket, encrypted, changes, export, structured })
}

/// One side of the negotiation.
struct Talk<'a>(Timed<'a>);

impl Talk<'_> {
    /// Reads the greeting and answers it. Returns the flags that both sides know.
    fn greet(&mut self) -> io::Result<u16> {
        let greeting: Greeting = self.read()?;
        match (greeting.init.get(), greeting.style.get()) {
            (INIT_MAGIC, OPTION_MAGIC) => {}
            (INIT_MAGIC, OLD_MAGIC) => {
                return Err(unsupported("the server has only the old negotiation, which names no export"));
            }
            _ => return Err(against_protocol("the server does not speak NBD")),
        }
        let flags: zerocopy::byteorder::network_endian::U16 = self.read()?;
        let common = flags.get() & (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        self.0.write_all(&u32::from(common).to_be_bytes())?;
        Ok(common)
    }

    fn start_tls(&mut self) -> io::Result<()> {
        self.send(option::STARTTLS, &[])?;
        let (kind, data) = self.reply(option::STARTTLS)?;
        match kind {
            reply::ACK => Ok(()),
            reply::UNSUPPORTED | reply::POLICY => {
                Err(unsupported("the server has no TLS; use nbd:// if the network is trusted"))
            }
            _ => Err(refusal(kind, &data)),
        }
    }

    /// Asks for structured replies, and returns whether the server supports them.
    fn ask_structured(&mut self) -> io::Result<bool> {
        self.send(option::STRUCTURED_REPLY, &[])?;
        let (kind, data) = self.reply(option::STRUCTURED_REPLY)?;
        match kind {
            reply::ACK => Ok(true),
            reply::TLS_REQUIRED | reply::SHUTDOWN => Err(refusal(kind, &data)),
            kind if kind & reply::ERROR != 0 => Ok(false),
            _ => Err(against_protocol("unexpected reply to NBD_OPT_STRUCTURED_REPLY")),
        }
    }

    /// Asks for the export and begins the transmission. Returns `None` if the server does not know
    /// the option.
    fn go(&mut self, name: &[u8]) -> io::Result<Option<Export>> {
        let mut request = Vec::with_capacity(name.len() + 8);
        request.extend(length(name.len())?.to_be_bytes());
        request.extend(name);
        request.extend(1u16.to_be_bytes());
        request.extend(info::BLOCK_SIZE.to_be_bytes());
        self.send(option::GO, &request)?;
        let (mut export, mut sizes) = (None, None);
        for _ in 0..MOST_REPLIES {
            let (kind, data) = self.reply(option::GO)?;
            match kind {
                reply::ACK => {
                    let ExportInfo { size, flags } =
                        export.ok_or_else(|| against_protocol("NBD_OPT_GO gave no size"))?;
                    let export = Export::new(size.get(), flags.get(), sizes.as_ref());
                    return export.map(Some).map_err(|why| against_protocol(&why));
                }
                reply::INFO => {
                    let (kind, data) =
                        data.split_at_checked(2).ok_or_else(|| against_protocol("a short NBD_REP_INFO"))?;
                    match u16::from_be_bytes([kind[0], kind[1]]) {
                        info::EXPORT => export = Some(parse::<ExportInfo>(data)?),
                        info::BLOCK_SIZE => sizes = Some(parse::<BlockSizeInfo>(data)?),
                        _ => {}
                    }
                }
                reply::UNSUPPORTED => return Ok(None),
                _ => return Err(refusal(kind, &data)),
            }
        }
        Err(against_protocol("NBD_OPT_GO has no end of replies"))
    }

    /// Asks for the export in the way of old servers, which close the connection if they have no
    /// such export.
    fn export_name(&mut self, name: &[u8], has_zeroes: bool) -> io::Result<Export> {
        self.send(option::EXPORT_NAME, name)?;
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => io::Error::new(
                io::ErrorKind::NotFound,
                "the server closed the connection: it may have no such export",
            ),
            _ => error,
        };
        let export: ExportInfo = self.read().map_err(refused)?;
        if has_zeroes {
            self.0.read_exact(&mut [0; 124])?;
        }
        Export::new(export.size.get(), export.flags.get(), None).map_err(|why| against_protocol(&why))
    }

    fn send(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let len = length(data.len())?;
        let head = OptionHead { magic: OPTION_MAGIC.into(), option: option.into(), len: len.into() };
        self.0.write_all(&[head.as_bytes(), data].concat())
    }

    /// Reads a reply to `option` and returns its type and its data.
    fn reply(&mut self, option: u32) -> io::Result<(u32, Vec<u8>)> {
        let head: OptionReply = self.read()?;
        if head.magic.get() != OPTION_REPLY_MAGIC || head.option.get() != option {
            return Err(against_protocol("a reply to an option that was not sent"));
        }
        if head.len.get() > LONGEST_REPLY {
            return Err(against_protocol("a reply to an option is too long"));
        }
        let mut data = vec![0; head.len.get() as usize];
        self.0.read_exact(&mut data)?;
        Ok((head.kind.get(), data))
    }

    fn read<T: FromBytes + IntoBytes + FromZeros>(&mut self) -> io::Result<T> {
        let mut value = T::new_zeroed();
        self.0.read_exact(value.as_mut_bytes())?;
        Ok(value)
    }
}

fn length(len: usize) -> io::Result<u32> {
    u32::try_from(len).map_err(|_| against_protocol("the name of the export is too long"))
}

fn parse<T: FromBytes>(data: &[u8]) -> io::Result<T> {
    T::read_from_bytes(data).map_err(|_| against_protocol("an NBD_REP_INFO of the wrong length"))
}

/// Returns the error for a refusal, with the server's message.
fn refusal(kind: u32, data: &[u8]) -> io::Error {
    let (error, why) = match kind {
        reply::POLICY => (io::ErrorKind::PermissionDenied, "the server's policy forbids it"),
        reply::TLS_REQUIRED => (io::ErrorKind::Unsupported, "the server requires TLS: use nbds://"),
        reply::UNKNOWN => (io::ErrorKind::NotFound, "the server has no such export"),
        reply::SHUTDOWN => (io::ErrorKind::ConnectionAborted, "the server is shutting down"),
        _ if kind & reply::ERROR != 0 => (io::ErrorKind::Other, "the server refused the export"),
        _ => (io::ErrorKind::InvalidData, "the server sent an unexpected reply"),
    };
    let message = message(data);
    let text = if message.is_empty() { why.to_owned() } else { format!("{why} ({message})") };
    io::Error::new(error, text)
}

fn unsupported(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

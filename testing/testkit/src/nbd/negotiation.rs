//! The server's side of the negotiation.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use super::flags;

/// What a fake server offers.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Flags of the export.
    pub flags: u16,
    /// Whether the server knows options other than the name of the export.
    pub fixed: bool,
    /// Whether the server knows `NBD_OPT_GO`.
    pub go: bool,
    /// Whether the server has structured replies.
    pub structured: bool,
    /// Minimum, preferred and maximum block size in bytes, if the server states them.
    pub sizes: Option<(u32, u32, u32)>,
}

impl Default for Offer {
    /// A server with all that the client uses.
    fn default() -> Self {
        let flags = flags::HAS_FLAGS
            | flags::SEND_FLUSH
            | flags::SEND_FUA
            | flags::SEND_TRIM
            | flags::SEND_WRITE_ZEROES
            | flags::CAN_MULTI_CONN;
        Self { flags, fixed: true, go: true, structured: true, sizes: None }
    }
}

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const ACK: u32 = 1;
const INFO: u32 = 3;
const UNSUPPORTED: u32 = 1 << 31 | 1;

/// Negotiates with a client. Returns whether replies to reads are structured.
///
/// # Errors
/// The client is gone, or does not keep the protocol.
pub(super) fn negotiate(stream: &mut UnixStream, offer: &Offer, size: u64) -> io::Result<bool> {
    stream.write_all(b"NBDMAGIC")?;
    stream.write_all(OPTION_MAGIC)?;
    stream.write_all(&(2 + u16::from(offer.fixed)).to_be_bytes())?;
    let client_flags = number(stream)?;
    assert_eq!(client_flags, 2 + u32::from(offer.fixed), "the client repeats the flags that it knows");
    let mut structured = false;
    loop {
        let mut magic = [0; 8];
        stream.read_exact(&mut magic)?;
        assert_eq!(&magic, OPTION_MAGIC);
        let (option, len) = (number(stream)?, number(stream)?);
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data)?;
        match option {
            1 => {
                stream.write_all(&size.to_be_bytes())?;
                stream.write_all(&offer.flags.to_be_bytes())?;
                return Ok(structured);
            }
            7 if offer.go => {
                let export = [&[0, 0][..], &size.to_be_bytes(), &offer.flags.to_be_bytes()].concat();
                reply(stream, option, INFO, &export)?;
                if let Some((minimum, preferred, maximum)) = offer.sizes {
                    let sizes = [minimum, preferred, maximum].map(u32::to_be_bytes).concat();
                    reply(stream, option, INFO, &[&[0, 3][..], &sizes].concat())?;
                }
                reply(stream, option, ACK, &[])?;
                return Ok(structured);
            }
            8 if offer.structured => {
                structured = true;
                reply(stream, option, ACK, &[])?;
            }
            _ => reply(stream, option, UNSUPPORTED, b"not here")?,
        }
    }
}

fn number(stream: &mut UnixStream) -> io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn reply(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let len = u32::try_from(data.len()).expect("a reply is short");
    let mut bytes = REPLY_MAGIC.to_be_bytes().to_vec();
    [option, kind, len].iter().for_each(|number| bytes.extend(number.to_be_bytes()));
    bytes.extend(data);
    stream.write_all(&bytes)
}

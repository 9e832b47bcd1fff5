//! Requests that a fake server has seen, and its replies to them.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::disk::VolatileDisk;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Type of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the protocol names them")]
pub enum Kind {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
}

/// A request that the server has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number of times that the server was restarted before.
    pub run: u64,
    /// Number of the connection.
    pub connection: u64,
    /// Type.
    pub kind: Kind,
    /// Flags of the request.
    pub flags: u16,
    /// Cookie of the request.
    pub cookie: u64,
    /// Offset, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub len: u32,
    /// First byte of a write.
    pub byte: u8,
}

/// The server's treatment of a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Performs it and answers.
    Answer,
    /// Performs it and answers after this time. Other connections are served meanwhile.
    Late(Duration),
    /// Performs it and does not answer.
    OwnerEvidence,
    /// Closes the connection without performing it.
    Close,
    /// Restarts the server without performing it.
    Restart,
    /// Refuses it with an error number and a message. With an offset, structured replies name it.
    Refuse(u32, &'static str, Option<u64>),
    /// Performs the first half of the sectors of a write, and refuses the request with an error
    /// number.
    Torn(u32),
    /// Refuses it with an error number after this time. Other connections are served meanwhile.
    LateRefusal(Duration, u32),
    /// Sends these bytes without performing it.
    Bytes(Vec<u8>),
    /// Sends these bytes and then closes the connection.
    BytesAndClose(Vec<u8>),
}

/// Reads a request and the bytes of a write.
pub(super) fn read(stream: &mut UnixStream, run: u64, connection: u64) -> io::Result<(Seen, Vec<u8>)> {
    let mut head = [0; 28];
    stream.read_exact(&mut head)?;
    let number =
        |from: usize, to: usize| head[from..to].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    if number(0, 4) != u64::from(REQUEST_MAGIC) {
        return Err(wrong());
    }
    let kind = match number(6, 8) {
        0 => Kind::Read,
        1 => Kind::Write,
        2 => Kind::Disconnect,
        3 => Kind::Flush,
        4 => Kind::Trim,
        6 => Kind::WriteZeroes,
        _ => return Err(wrong()),
    };
    let len = u32::try_from(number(24, 28)).map_err(|_| wrong())?;
    let mut bytes = vec![0; if kind == Kind::Write { len as usize } else { 0 }];
    stream.read_exact(&mut bytes)?;
    let flags = u16::try_from(number(4, 6)).map_err(|_| wrong())?;
    let byte = bytes.first().copied().unwrap_or(0);
    let (cookie, offset) = (number(8, 16), number(16, 24));
    Ok((Seen { run, connection, kind, flags, cookie, offset, len, byte }, bytes))
}

/// Performs a request on a disk and returns the bytes that it reads, or the number of an error.
pub(super) fn perform(disk: &mut VolatileDisk, seen: &Seen, bytes: &[u8]) -> Result<Vec<u8>, u32> {
    const EINVAL: u32 = 22;
    let done = match seen.kind {
        Kind::Read => return disk.read(seen.offset, seen.len).map(<[u8]>::to_vec).ok_or(EINVAL),
        Kind::Write => disk.write(seen.offset, bytes),
        Kind::WriteZeroes => disk.write(seen.offset, &vec![0; seen.len as usize]),
        Kind::Flush => {
            disk.flush();
            Some(())
        }
        Kind::Trim | Kind::Disconnect => Some(()),
    };
    if seen.flags & 1 != 0 {
        disk.flush();
    }
    done.map(|()| Vec::new()).ok_or(EINVAL)
}

/// Returns the bytes of an answer.
pub(super) fn answer(seen: &Seen, structured: bool, data: &[u8]) -> Vec<u8> {
    if !structured || seen.kind != Kind::Read {
        return [&simple(seen.cookie, 0)[..], data].concat();
    }
    // Two chunks, the second half first. A half of zeros is a hole.
    let half = data.len() / 2;
    let mut answer = Vec::new();
    for (start, bytes, flags) in [(half, &data[half..], 0), (0, &data[..half], 1)] {
        let offset = (seen.offset + start as u64).to_be_bytes();
        if bytes.iter().all(|&byte| byte == 0) && !bytes.is_empty() {
            let len = u32::try_from(bytes.len()).expect("a request is short").to_be_bytes();
            answer.extend(chunk(seen.cookie, flags, 2, &[&offset[..], &len].concat()));
        } else if !bytes.is_empty() {
            answer.extend(chunk(seen.cookie, flags, 1, &[&offset[..], bytes].concat()));
        } else if flags == 1 {
            answer.extend(chunk(seen.cookie, flags, 0, &[]));
        }
    }
    answer
}

/// Returns the bytes of a refusal.
pub(super) fn refusal(
    seen: &Seen,
    structured: bool,
    (number, text, at): (u32, &str, Option<u64>),
) -> Vec<u8> {
    if !structured {
        return simple(seen.cookie, number);
    }
    let len = u16::try_from(text.len()).expect("a message is short").to_be_bytes();
    let mut content = [&number.to_be_bytes()[..], &len, text.as_bytes()].concat();
    content.extend(at.into_iter().flat_map(u64::to_be_bytes));
    chunk(seen.cookie, 1, if at.is_some() { 0x8002 } else { 0x8001 }, &content)
}

/// Returns a simple reply.
fn simple(cookie: u64, error: u32) -> Vec<u8> {
    [&SIMPLE_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

/// Returns a chunk of a structured reply.
fn chunk(cookie: u64, flags: u16, kind: u16, content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).expect("a chunk is short");
    let mut bytes = CHUNK_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend(content);
    bytes
}

/// Sends bytes to the client.
pub(super) fn send(stream: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)
}

//! Error numbers of the protocol as errors of the system.

use std::io;

/// Returns the error for a number of the protocol, with the server's message if there is one.
pub(crate) fn server_error(number: u32, text: &[u8]) -> io::Error {
    let code = match number {
        1 | 5 | 12 | 22 | 28 | 75 | 95 => number.cast_signed(),
        // The protocol asks clients to treat other numbers as EINVAL.
        _ => 22,
    };
    let plain = io::Error::from_raw_os_error(code);
    let text = message(text);
    if text.is_empty() {
        return plain;
    }
    io::Error::new(plain.kind(), format!("NBD server: {text} ({plain})"))
}

/// Returns a copy of an error, for another request.
pub(crate) fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Returns the error of a server that breaks the protocol.
pub(crate) fn against_protocol(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("against the NBD protocol: {why}"))
}

/// Returns the printable part of a server's message, at most 200 characters.
pub(crate) fn message(data: &[u8]) -> String {
    let text = String::from_utf8_lossy(&data[..data.len().min(1000)]);
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

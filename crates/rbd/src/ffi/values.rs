//! Return values and strings of the libraries.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::ptr::null;

use rustix::io::Errno;

use crate::errno::errno;

/// Converts a negative return value to an error.
pub(super) fn check(code: c_int) -> Result<(), Errno> {
    if code < 0 { Err(errno(code as isize)) } else { Ok(()) }
}

/// Returns the text up to the first zero byte.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Copies a text and adds a zero byte. Fails if the text contains a zero byte.
pub(super) fn c_string(text: &str) -> io::Result<CString> {
    Ok(CString::new(text)?)
}

/// Returns the address of a text, or null.
pub(super) fn pointer(text: Option<&CStr>) -> *const c_char {
    text.map_or(null(), CStr::as_ptr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_at_the_first_zero_byte() {
        assert_eq!((text(b"a\0b"), text(b"ab"), text(b"")), ("a".into(), "ab".into(), String::new()));
        assert_eq!(c_string("a\0b").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn negative_values_are_errors() {
        check(0).unwrap();
        check(7).unwrap();
        assert_eq!(check(-2), Err(Errno::NOENT));
        check(c_int::MIN).unwrap_err();
    }
}

//! The error numbers of librados and librbd.

use rustix::io::Errno;

/// Largest error number.
const MAX: isize = 4095;

/// Converts a negative return value to an error; a number that no error has becomes `EIO`.
pub(crate) fn errno(code: isize) -> Errno {
    match code.checked_neg() {
        // The pattern has checked the range.
        Some(number @ 1..=MAX) => Errno::from_raw_os_error(number as i32),
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_no_errors_become_input_output_errors() {
        assert_eq!((errno(-2), errno(-4095)), (Errno::NOENT, Errno::from_raw_os_error(4095)));
        for code in [0, 1, -4096, isize::MIN, isize::MAX] {
            assert_eq!(errno(code), Errno::IO);
        }
    }
}

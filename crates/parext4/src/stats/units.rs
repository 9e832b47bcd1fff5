//! Display of sizes and times for people.

use std::fmt;
use std::time::Duration;

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// An offset or length in bytes. It is displayed exactly, in the largest unit that needs no
/// fraction except a half.
pub(super) struct Exact(pub u64);

/// A number of bytes, displayed with one decimal digit.
pub(super) struct About(pub u64);

/// A time, displayed in the unit that leaves up to four digits.
pub(super) struct Time(pub Duration);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&&(_, unit): &&(&str, u64)| self.0 >= unit && self.0.is_multiple_of(unit.div_ceil(2));
        let (name, unit) = *UNITS.iter().find(fits).unwrap_or(&("B", 1));
        let half = if self.0.is_multiple_of(unit) { "" } else { ".5" };
        write!(f, "{}{half} {name}", self.0 / unit)
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = *UNITS.iter().find(|(_, unit)| self.0 >= *unit).unwrap_or(&("B", 1));
        let decimals = usize::from(!self.0.is_multiple_of(unit));
        write!(f, "{:.decimals$} {name}", self.0 as f64 / unit as f64)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match self.0.as_micros() {
            0..1_000 => write!(f, "{} us", self.0.as_micros()),
            1_000..1_000_000 => write!(f, "{:.1} ms", seconds * 1e3),
            _ => write!(f, "{seconds:.1} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_exact() {
        let cases = [
            (0, "0 B"),
            (512, "512 B"),
            (1536, "1.5 KiB"),
            (14 << 10, "14 KiB"),
            ((14 << 10) + 1, "14337 B"),
            ((1 << 30) + 4096, "1048580 KiB"),
            (5 << 29, "2.5 GiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Exact(bytes).to_string(), text);
        }
    }

    #[test]
    fn amounts_are_short() {
        assert_eq!(About(1000).to_string(), "1000 B");
        assert_eq!(About((3 << 20) + 150_000).to_string(), "3.1 MiB");
        assert_eq!(About(2 << 30).to_string(), "2 GiB");
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        assert_eq!(Time(Duration::from_micros(230)).to_string(), "230 us");
        assert_eq!(Time(Duration::from_micros(1250)).to_string(), "1.2 ms");
        assert_eq!(Time(Duration::from_secs(61)).to_string(), "61.0 s");
    }
}

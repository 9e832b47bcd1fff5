//! Sizes in bytes that a user types: 512, 64K, 1.5G, 4GB.

/// Parses a number of bytes with an optional unit of any case, by the rules of the GNU core
/// utilities: `K`, `M`, `G` and `T`, also with `iB`, are powers of 1024; `kB`, `MB`, `GB` and `TB`
/// are powers of 1000. A number with a unit may have a fraction; the size is rounded down to whole
/// bytes.
///
/// # Errors
/// A message for the user that says what is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = unit(&text[number.len()..])?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    let has_digits = !whole.is_empty() && fraction.is_empty() != number.contains('.');
    if !has_digits || !is_number(whole) || !is_number(fraction) || (unit == 1 && !fraction.is_empty()) {
        return Err("expected a size like 512, 64K, 1.5G or 4GB".to_owned());
    }
    let too_large = || "the size is too large".to_owned();
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let part = fraction_of(unit, fraction);
    whole.checked_mul(unit).and_then(|bytes| bytes.checked_add(part)).ok_or_else(too_large)
}

/// Returns the bytes of a unit.
fn unit(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let (base, power) = match lower.as_str() {
        "" | "b" => return Ok(1),
        "k" | "kib" => (1024, 1),
        "m" | "mib" => (1024, 2),
        "g" | "gib" => (1024, 3),
        "t" | "tib" => (1024, 4),
        "kb" => (1000, 1),
        "mb" => (1000, 2),
        "gb" => (1000, 3),
        "tb" => (1000, 4),
        _ => {
            return Err(format!(
                "unknown unit {text:?}: use K, M, G or T for powers of 1024, KB, MB, GB or TB for powers of 1000"
            ));
        }
    };
    Ok(u64::pow(base, power))
}

/// Returns the bytes of a fraction of a unit, rounded down. `digits` are the decimals.
fn fraction_of(unit: u64, digits: &str) -> u64 {
    // Evaluates the decimals from the last to the first: each step is a tenth of the sum of the
    // digit and the previous step. Rounding twice gives the same result as rounding once.
    let tenths = |rest: u128, digit: u8| (u128::from(digit - b'0') * (u128::from(unit) << 64) + rest) / 10;
    let fraction = digits.bytes().rev().fold(0, tenths);
    u64::try_from(fraction >> 64).unwrap_or(unit)
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_are_parsed() {
        let cases = [
            ("512", 512),
            ("64K", 64 << 10),
            ("64kib", 64 << 10),
            ("4M", 4 << 20),
            ("4MiB", 4 << 20),
            ("1g", 1 << 30),
            ("2T", 2 << 40),
            ("0", 0),
            ("100b", 100),
            ("1.5G", 3 << 29),
            ("0.25k", 256),
            ("4GB", 4_000_000_000),
            ("1.5mb", 1_500_000),
            ("0.3K", 307),
            ("1.999999999999999999999999999999999T", (2 << 40) - 1),
            ("0.1TB", 100_000_000_000),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        let texts = [
            "",
            "K",
            "-1",
            "1.5",
            "1.5b",
            "1.G",
            ".5G",
            "1.5.5G",
            "1,5G",
            "1.-5G",
            "1X",
            "4 M",
            "+1",
            "1e3",
            "18446744073709551615K",
            "99999999999999999999",
        ];
        for text in texts {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}

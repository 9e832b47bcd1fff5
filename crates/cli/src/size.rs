//! Parses and formats sizes in bytes: 512, 64K, 4M, 1G, 1T.

/// Parses a number of bytes with an optional binary suffix: `K`, `KiB`, `M`, `MiB`, `G`, `GiB`, `T`, `TiB`, of
/// any case.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| "expected a size like 512, 64K, 4M, 1G or 1T".to_owned())?;
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        other => return Err(format!("unknown unit {other:?}: use K, M, G or T")),
    };
    number.checked_mul(1 << shift).ok_or_else(|| "the size is too large".to_owned())
}

/// Formats a number of bytes in the largest unit that leaves a number of at least 1.
pub fn display(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::parse;

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
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "K", "-1", "1.5G", "4MB", "1X", "4 M", "18446744073709551615K", "99999999999999999999"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

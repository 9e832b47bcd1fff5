//! Percent-encoding of URLs.

/// Replaces each `%` and the two hexadecimal digits after it by the byte that they name.
///
/// # Errors
/// A message, if two digits do not follow a `%`.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            decoded.push(first);
            continue;
        }
        let digits = after.split_at_checked(2).and_then(|(digits, after)| {
            rest = after;
            Some(digit(digits[0])? << 4 | digit(digits[1])?)
        });
        decoded.push(digits.ok_or_else(|| format!("a % without two hexadecimal digits in {text:?}"))?);
    }
    Ok(decoded)
}

fn digit(byte: u8) -> Option<u8> {
    u8::try_from(char::from(byte).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn bytes_are_decoded() {
        assert_eq!(decode("a%2Fb%ff+").unwrap(), b"a/b\xff+");
        assert_eq!(decode("").unwrap(), b"");
        for wrong in ["%", "a%2", "%g0", "%+1", "%é"] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
    }
}

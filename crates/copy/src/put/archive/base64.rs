//! Base64 without line ends, as libarchive writes the values of attributes.

/// Returns the bytes of a text, whose padding may be missing; `None` if it is malformed.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for &letter in group {
            bits = bits << 6 | digit(letter)?;
        }
        // Two letters are a byte and four bits of filling, three are two bytes and two bits.
        let whole = match group.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        let filled = bits << (6 * (4 - group.len()));
        bytes.extend_from_slice(&filled.to_be_bytes()[1..=whole]);
    }
    Some(bytes)
}

fn digit(letter: u8) -> Option<u32> {
    Some(u32::from(match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn padding_may_be_missing() {
        for (text, bytes) in
            [("", ""), ("aA", "h"), ("aA==", "h"), ("aGk", "hi"), ("aGk=", "hi"), ("aGVs", "hel")]
        {
            assert_eq!(decode(text.as_bytes()).unwrap(), bytes.as_bytes(), "{text}");
        }
        assert_eq!(decode(b"+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
        for text in ["a", "aGVsa", "a GV", "aG-_", "=", "===="] {
            assert!(decode(text.as_bytes()).is_none_or(|bytes| text == "=" && bytes.is_empty()), "{text}");
        }
    }
}

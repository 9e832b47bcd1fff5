//! No-key names, which stand for encrypted names while the key is missing (`struct
//! fscrypt_nokey_name`).
//!
//! A no-key name is base64url, without padding, of the two directory hashes of the encrypted name,
//! its first 149 bytes, and if it is longer the SHA-256 of the rest. So each encrypted name has a
//! no-key name, and a look-up by that name finds the entry. Source: kernel documentation,
//! "Filesystem-level encryption (fscrypt)", and `fs/crypto/fname.c`.

use data_encoding::BASE64URL_NOPAD;

use crate::verity::sha256;

/// Length of the shortest encrypted name: one block of the cipher (`FSCRYPT_FNAME_MIN_MSG_LEN`).
pub const MIN_ENCRYPTED: usize = 16;

/// Bytes of a SHA-256.
const SHA256_LEN: usize = 32;
/// Bytes of the directory hashes.
const HASHES: usize = 8;
/// Bytes of an encrypted name that its no-key name contains.
const PREFIX: usize = 149;
/// Bytes of the longest no-key name before it is encoded.
const MAX_LEN: usize = HASHES + PREFIX + SHA256_LEN;

/// A decoded no-key name, which identifies an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoKeyName {
    /// The major and minor hash of the encrypted name. Both are 0 in some listings of directories
    /// without an index.
    pub hash: (u32, u32),
    /// The encrypted name, or its first bytes.
    prefix: Vec<u8>,
    /// The digest of the remaining bytes.
    rest: Option<[u8; SHA256_LEN]>,
}

impl NoKeyName {
    /// Decodes a no-key name. `None` if no encrypted name has it.
    #[must_use]
    pub fn decode(name: &[u8]) -> Option<Self> {
        let bytes = BASE64URL_NOPAD.decode(name).ok()?;
        let (hashes, stored) = bytes.split_first_chunk::<HASHES>()?;
        let [a, b, c, d, e, f, g, h] = *hashes;
        let hash = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if stored.len() < MIN_ENCRYPTED {
            return None;
        }
        let (prefix, rest) = stored.split_at(stored.len().min(PREFIX));
        let rest = if rest.is_empty() { None } else { Some(rest.try_into().ok()?) };
        Some(Self { hash, prefix: prefix.to_vec(), rest })
    }

    /// Returns the encrypted name, if the no-key name contains all of it.
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        self.rest.is_none().then_some(&self.prefix)
    }

    /// Returns true if this is the no-key name of the encrypted name `stored`. Does not compare the
    /// hashes, as in the kernel.
    #[must_use]
    pub fn matches(&self, stored: &[u8]) -> bool {
        let Some(rest) = &self.rest else { return stored == self.prefix };
        stored.len() > PREFIX && stored.starts_with(&self.prefix) && sha256(&stored[PREFIX..]) == *rest
    }
}

/// Returns the no-key name of an encrypted name with this major and minor hash.
#[must_use]
pub fn encode((major, minor): (u32, u32), stored: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAX_LEN);
    bytes.extend_from_slice(&major.to_le_bytes());
    bytes.extend_from_slice(&minor.to_le_bytes());
    match stored.split_at_checked(PREFIX) {
        Some((prefix, rest)) if !rest.is_empty() => {
            bytes.extend_from_slice(prefix);
            bytes.extend_from_slice(&sha256(rest));
        }
        _ => bytes.extend_from_slice(stored),
    }
    BASE64URL_NOPAD.encode(&bytes).into_bytes()
}

/// Returns the length of the no-key name of an encrypted name of `len` bytes.
#[must_use]
pub fn encoded_len(len: usize) -> usize {
    BASE64URL_NOPAD.encode_len(if len > PREFIX { MAX_LEN } else { HASHES + len })
}

#[cfg(all(test, feature = "sha2"))]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lengths_come_back() {
        for len in MIN_ENCRYPTED..=255 {
            let stored: Vec<u8> = (0..len).map(|at| (at * 7 % 256) as u8).collect();
            let name = encode((2, 0xffff_fff1), &stored);
            assert!(name.len() <= 252 && name.len() == encoded_len(len));
            let decoded = NoKeyName::decode(&name).unwrap();
            assert_eq!((decoded.hash, decoded.whole().is_some()), ((2, 0xffff_fff1), len <= 149));
            assert!(decoded.matches(&stored));
            let mut other = stored.clone();
            other[len - 1] ^= 1;
            assert!(!decoded.matches(&other) && !decoded.matches(&stored[1..]));
        }
    }

    #[test]
    fn other_names_are_refused() {
        let long = vec![b'A'; 211];
        let bad: [&[u8]; 7] =
            [b"", b"name", b"AAAAAAAAAAA", b"AAAAAAAAAAAA==", b"AAAAAAAAAAA/AAAA", b"AAAAAAAAAAAAB", &long];
        for name in bad {
            assert_eq!(NoKeyName::decode(name), None, "{}", String::from_utf8_lossy(name));
        }
    }
}

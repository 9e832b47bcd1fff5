//! The directory hashes of the htree: legacy, half MD4 and TEA, over signed or unsigned characters.
//!
//! Source: kernel documentation, "ext4: Hash Tree Directories"; the algorithms of `ext4fs_dirhash`.
//! They are part of the on-disk format: with a different result names cannot be found.

use crate::{FormatError, Result};

/// The hash function of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HashVersion {
    /// `DX_HASH_LEGACY`
    Legacy,
    /// `DX_HASH_HALF_MD4`
    HalfMd4,
    /// `DX_HASH_TEA`
    Tea,
}

/// The hash function of one directory with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirHash {
    /// The function.
    pub version: HashVersion,
    /// True if the bytes of a name are unsigned. The volume records whether `char` was unsigned on
    /// the machine that made it.
    pub unsigned: bool,
    /// `s_hash_seed`; all zero means the initial values of MD4.
    pub seed: [u32; 4],
}

/// The initial state of MD4 (RFC 1320).
const MD4_INIT: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
/// The end marker of a directory position (`EXT4_HTREE_EOF_32BIT << 1`), which no name may hash to.
const HTREE_EOF: u32 = 0x7fff_ffff << 1;

impl DirHash {
    /// Returns the hash of a directory. `version` is the `hash_version` of its `dx_root` (or
    /// `s_def_hash_version`), `seed` is `s_hash_seed`, and `sb_unsigned` is true if the superblock
    /// has the flag `EXT2_FLAGS_UNSIGNED_HASH`.
    ///
    /// # Errors
    /// [`FormatError`] for an unknown version.
    pub fn from_disk(version: u8, sb_unsigned: bool, seed: [u32; 4]) -> Result<Self> {
        let unusable = |problem: String| FormatError::new("dx_root", "hash_version", problem);
        let (version, unsigned) = match version {
            0 => (HashVersion::Legacy, sb_unsigned),
            1 => (HashVersion::HalfMd4, sb_unsigned),
            2 => (HashVersion::Tea, sb_unsigned),
            3 => (HashVersion::Legacy, true),
            4 => (HashVersion::HalfMd4, true),
            5 => (HashVersion::Tea, true),
            6 => return Err(unusable("siphash (encrypt with casefold) needs a key".to_owned())),
            _ => return Err(unusable(format!("{version} is unknown"))),
        };
        Ok(Self { version, unsigned, seed })
    }

    /// Returns the major and minor hash of `name`. The major hash is even, because bit 0 of an
    /// index entry is a flag: names with its hash continue from the previous block.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> (u32, u32) {
        let mut state = if self.seed == [0; 4] { MD4_INIT } else { self.seed };
        let (major, minor) = match self.version {
            HashVersion::Legacy => (legacy(name, self.unsigned), 0),
            HashVersion::HalfMd4 => {
                for words in self.words::<8>(name) {
                    half_md4(&mut state, &words);
                }
                (state[1], state[2])
            }
            HashVersion::Tea => {
                for words in self.words::<4>(name) {
                    tea(&mut state, &words);
                }
                (state[0], state[1])
            }
        };
        let major = major & !1;
        (if major == HTREE_EOF { HTREE_EOF - 2 } else { major }, minor)
    }

    /// Returns the name as blocks of `N` words (`str2hashbuf`), each padded with the remaining
    /// length of the name.
    fn words<const N: usize>(&self, name: &[u8]) -> impl Iterator<Item = [u32; N]> {
        let unsigned = self.unsigned;
        name.chunks(N * 4).enumerate().map(move |(index, chunk)| {
            // Names on disk are at most 255 bytes.
            let left = u32::try_from(name.len() - index * N * 4).unwrap_or(u32::MAX);
            let pad = left | (left << 8);
            let pad = pad | (pad << 16);
            let mut words = [pad; N];
            for (word, bytes) in words.iter_mut().zip(chunk.chunks(4)) {
                *word = bytes.iter().fold(pad, |word, &byte| (word << 8).wrapping_add(widen(byte, unsigned)));
            }
            words
        })
    }
}

/// Converts a character to `int` as the C code does.
fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned { byte.into() } else { i32::from(byte.cast_signed()).cast_unsigned() }
}

/// Returns the legacy hash of a name (`dx_hack_hash`).
fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut current, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let mut next = before.wrapping_add(current ^ widen(byte, unsigned).wrapping_mul(7_152_373));
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        (before, current) = (current, next);
    }
    current << 1
}

/// Sixteen rounds of the Tiny Encryption Algorithm, with the name as the key.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut x, mut y, mut sum) = (state[0], state[1], 0_u32);
    let mix = |v: u32, sum: u32, k0: u32, k1: u32| {
        (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        x = x.wrapping_add(mix(y, sum, key[0], key[1]));
        y = y.wrapping_add(mix(x, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

/// The word of the input that each step of each round adds. Half MD4 has eight words of input.
const HALF_MD4_ORDER: [[usize; 8]; 3] =
    [[0, 1, 2, 3, 4, 5, 6, 7], [1, 3, 5, 7, 0, 2, 4, 6], [3, 7, 2, 6, 1, 5, 0, 4]];
/// The rotations of four consecutive steps of each round.
const HALF_MD4_SHIFT: [[u32; 4]; 3] = [[3, 7, 11, 19], [3, 5, 9, 13], [3, 9, 11, 15]];
/// The constants of MD4's rounds (RFC 1320).
const HALF_MD4_ADD: [u32; 3] = [0, 0x5a82_7999, 0x6ed9_eba1];

/// Mixes eight words of input into the state (`half_md4_transform`).
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    let [mut a, mut b, mut c, mut d] = *state;
    for (round, order) in HALF_MD4_ORDER.iter().enumerate() {
        for (step, &word) in order.iter().enumerate() {
            let mixed = match round {
                0 => d ^ (b & (c ^ d)),
                1 => (b & c).wrapping_add((b ^ c) & d),
                _ => b ^ c ^ d,
            };
            let sum = a.wrapping_add(mixed).wrapping_add(input[word]).wrapping_add(HALF_MD4_ADD[round]);
            // The four variables rotate: (a, b, c, d), (d, a, b, c), ...
            (a, b, c, d) = (d, sum.rotate_left(HALF_MD4_SHIFT[round][step % 4]), b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let hash = |version, unsigned| DirHash::from_disk(version, unsigned, [0; 4]);
        assert_eq!(hash(1, false).unwrap().version, HashVersion::HalfMd4);
        assert!(!hash(1, false).unwrap().unsigned);
        assert!(hash(2, true).unwrap().unsigned);
        assert!(hash(5, false).unwrap().unsigned);
        assert!(hash(6, false).unwrap_err().to_string().contains("siphash"));
        assert!(hash(7, false).is_err());
    }

    #[test]
    fn a_zero_seed_means_md4s_own() {
        for version in 0..3 {
            let zero = DirHash::from_disk(version, false, [0; 4]).unwrap();
            let named = DirHash::from_disk(version, false, MD4_INIT).unwrap();
            assert_eq!(zero.hash(b"lost+found"), named.hash(b"lost+found"));
        }
    }
}

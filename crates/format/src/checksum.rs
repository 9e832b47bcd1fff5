//! The checksums of ext4: crc32c for `metadata_csum` and jbd2, crc16 for `gdt_csum`.
//!
//! The kernel passes the raw CRC register from call to call (`ext4_chksum`), without the final
//! inversion. The functions here do the same, so that a seed continues from one field to the next.
//! Source: kernel documentation, "ext4: Checksums".

/// Returns the crc32c of `bytes`, continuing from the raw register `seed` (`~0` to start afresh).
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// Returns the crc16 of `bytes` (the reflected polynomial 0x8005, as `lib/crc16.c`), continuing
/// from `seed`.
#[must_use]
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    // CRC-16/ARC starts from zero; its register after `bytes` is what the kernel's function
    // returns.
    const ARC: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_ARC);
    // `digest_with_initial` takes the initial value before reflection.
    let mut digest = ARC.digest_with_initial(seed.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

/// The seed of the metadata checksums of a volume or of one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumSeed(pub u32);

impl ChecksumSeed {
    /// Returns the seed of a volume without `metadata_csum_seed`: crc32c of its UUID.
    #[must_use]
    pub fn from_uuid(uuid: &[u8; 16]) -> Self {
        Self(crc32c(!0, uuid))
    }

    /// Returns the seed of one inode's structures (the inode, its extent blocks and its directory
    /// blocks).
    #[must_use]
    pub fn inode(self, ino: crate::InodeNo, generation: u32) -> Self {
        Self(self.of(&ino.get().to_le_bytes())).then(&generation.to_le_bytes())
    }

    /// Returns the seed that continues after `bytes`.
    #[must_use]
    pub fn then(self, bytes: &[u8]) -> Self {
        Self(self.of(bytes))
    }

    /// Returns the checksum of `bytes` from this seed.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> u32 {
        crc32c(self.0, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
        assert_eq!(crc16(crc16(0xffff, b"1234"), b"56789"), crc16(0xffff, b"123456789"));
    }
}

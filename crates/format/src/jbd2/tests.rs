//! Tests of journal blocks.

use proptest::prelude::*;

use super::*;
use crate::FsBlock;

const UUID: [u8; 16] = *b"0123456789abcdef";
const SEED: u32 = 0x1234;

fn formats() -> impl Iterator<Item = TagFormat> {
    [(false, false), (true, false), (false, true)]
        .into_iter()
        .flat_map(|(csum_v2, csum_v3)| [false, true].map(|bit64| TagFormat { bit64, csum_v2, csum_v3 }))
}

#[test]
fn a_superblock_comes_back() {
    let mut superblock = JournalSuperblock::new(1024, 2048, 1, &UUID);
    superblock.set_incompat(JournalIncompat::REVOKE | JournalIncompat::CSUM_V3);
    superblock.set_start(5);
    superblock.set_sequence(9);
    superblock.set_errno(-5);
    let mut bytes = vec![0; 1024];
    superblock.encode(&mut bytes);
    let again = JournalSuperblock::parse(&bytes).unwrap();
    assert_eq!((again.maxlen(), again.first(), again.start(), again.sequence()), (2048, 1, 5, 9));
    assert_eq!((again.errno(), again.uuid(), again.unsupported()), (-5, UUID, None));
    assert_eq!(again.check(1024, 2048), Ok(()));
    assert_eq!(again.check(4096, 2048).unwrap_err().field, "s_blocksize");
    assert_eq!(again.check(1024, 2047).unwrap_err().field, "s_maxlen");
    bytes[0x50] = 1;
    assert_eq!(JournalSuperblock::parse(&bytes).unwrap_err().field, "s_checksum_type");
    bytes[0x50] = 4;
    bytes[0x17] ^= 1;
    assert_eq!(JournalSuperblock::parse(&bytes).unwrap_err().field, "checksum");
}

#[test]
fn superblock_checks() {
    let field = |superblock: &JournalSuperblock| superblock.check(1024, 1 << 20).unwrap_err().field;
    let mut superblock = JournalSuperblock::new(1024, 2000, 1, &UUID);
    superblock.set_start(2000);
    assert_eq!(field(&superblock), "s_start");
    assert_eq!(field(&JournalSuperblock::new(1024, 2000, 2000, &UUID)), "s_first");
    assert_eq!(JournalSuperblock::new(1024, 1024, 1, &UUID).check(1024, 1 << 20), Ok(()));
    assert_eq!(field(&JournalSuperblock::new(1024, 1023, 1, &UUID)), "s_maxlen");
    assert_eq!(field(&JournalSuperblock::new(1024, 1024, 2, &UUID)), "s_maxlen");
    superblock.set_compat(JournalCompat::CHECKSUM);
    assert_eq!(superblock.compat(), JournalCompat::CHECKSUM);
    superblock.set_incompat(JournalIncompat::FAST_COMMIT);
    assert_eq!((superblock.unsupported(), superblock.log_end()), (None, 1744));
    assert_eq!(superblock.fast_commit_blocks(), 1745..2000);
    superblock.set_incompat(JournalIncompat::from_bits_retain(0x80));
    assert_eq!(superblock.unsupported().unwrap(), "journal incompat 0x80");
    superblock.set_incompat(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3);
    let mut bytes = vec![0; 1024];
    superblock.encode(&mut bytes);
    assert_eq!(JournalSuperblock::parse(&bytes).unwrap_err().field, "s_feature_incompat");
    // A superblock of version 1 has no features.
    bytes[7] = 3;
    let mut first = JournalSuperblock::parse(&bytes).unwrap();
    assert_eq!(
        (first.incompat(), first.compat(), first.uuid()),
        (JournalIncompat::empty(), JournalCompat::empty(), [0; 16])
    );
    // The bytes after the fields of version 1 have no meaning, so version 2 begins with zeros
    // there.
    first.set_incompat(JournalIncompat::REVOKE);
    first.encode(&mut bytes);
    let second = JournalSuperblock::parse(&bytes).unwrap();
    assert_eq!(
        (second.incompat(), second.compat(), second.uuid()),
        (JournalIncompat::REVOKE, JournalCompat::empty(), [0; 16])
    );
    assert_eq!((second.maxlen(), bytes[0x43], &bytes[0x44..0x400]), (2000, 1, &[0; 0x3bc][..]));
    bytes[7] = 2;
    assert_eq!(JournalSuperblock::parse(&bytes).unwrap_err().field, "h_blocktype");
}

#[test]
fn room_in_blocks() {
    let v3 = TagFormat { bit64: true, csum_v2: false, csum_v3: true };
    assert_eq!(tags_per_descriptor(4096, v3), (4096 - 4 - 12 - 16) / 16);
    assert_eq!(revokes_per_block(4096, v3), (4096 - 4 - 16) / 8);
    assert_eq!(tags_per_descriptor(1024, TagFormat::default()), (1024 - 12 - 16) / 8);
    assert_eq!(revokes_per_block(1024, TagFormat::default()), (1024 - 16) / 4);
}

#[test]
fn commit_blocks() {
    for format in formats() {
        let mut block = vec![0xff; 1024];
        encode_commit(&mut block, format, 7, SEED, 1_700_000_000, 42);
        assert_eq!(header(&block), Some((BlockType::Commit, 7)));
        assert_eq!(commit_time(&block), Some((1_700_000_000, 42)));
        assert_eq!(commit_crc32_matches(&block, 1), !format.has_checksums());
        if format.has_checksums() {
            assert_eq!(verify_commit(SEED, &block), Ok(()));
            assert_eq!(verify_commit(SEED + 1, &block).unwrap_err().field, "checksum");
            let mut torn = block.clone();
            torn[512..].fill(0xee);
            assert_eq!(verify_commit(SEED, &torn), Ok(()));
            torn[50] ^= 1;
            assert_eq!(verify_commit(SEED, &torn).unwrap_err().field, "checksum");
        }
        block[16..20].copy_from_slice(&[1, 2, 3, 4]);
        assert!(!commit_crc32_matches(&block, 0x0102_0304));
        block[12..14].copy_from_slice(&[1, 4]);
        assert!(commit_crc32_matches(&block, 0x0102_0304));
        assert!(!commit_crc32_matches(&block, 0x0102_0305));
        // MD5.
        block[12] = 2;
        assert!(!commit_crc32_matches(&block, 0x0102_0304));
    }
    // The check value of CRC-32/MPEG-2, in one piece and in two.
    assert_eq!(crc32_be(!0, b"123456789"), 0x0376_e6e7);
    assert_eq!(crc32_be(crc32_be(!0, b"1234"), b"56789"), 0x0376_e6e7);
}

#[test]
fn escapes() {
    assert!(needs_escape(&[0xc0, 0x3b, 0x39, 0x98, 1]));
    assert!(!needs_escape(&[0xc0, 0x3b, 0x39]));
    assert_eq!(header(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 6, 0, 0, 0, 0]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn descriptors_round_trip(
        raw in prop::collection::vec((any::<u32>(), any::<u32>(), any::<bool>(), any::<bool>()), 1..125),
        sequence: u32,
    ) {
        for format in formats() {
            let mut block = vec![0; 1024];
            let mut tags: Vec<_> = raw
                .iter()
                .map(|&(number, checksum, escaped, deleted)| Tag {
                    block: FsBlock(if format.bit64 { u64::from(number) << 20 } else { number.into() }),
                    escaped,
                    deleted,
                    checksum: if format.csum_v3 {
                        checksum
                    } else if format.csum_v2 {
                        checksum & 0xffff
                    } else {
                        0
                    },
                })
                .collect();
            tags.truncate(tags_per_descriptor(block.len(), format));
            encode_descriptor(&mut block, format, sequence, SEED, &UUID, &tags);
            prop_assert_eq!(header(&block), Some((BlockType::Descriptor, sequence)));
            prop_assert_eq!(parse_descriptor(&block, format), Ok(tags));
            if format.has_checksums() {
                prop_assert_eq!(verify_descriptor(SEED, &block), Ok(()));
                block[100] ^= 1;
                prop_assert!(verify_descriptor(SEED, &block).is_err());
            }
        }
    }

    #[test]
    fn revokes_round_trip(raw in prop::collection::vec(any::<u32>(), 0..127)) {
        for format in formats() {
            let mut block = vec![0; 1024];
            let shift = if format.bit64 { 30 } else { 0 };
            let mut blocks: Vec<_> = raw.iter().map(|&number| FsBlock(u64::from(number) << shift)).collect();
            blocks.truncate(revokes_per_block(block.len(), format));
            encode_revoke(&mut block, format, 3, SEED, &blocks);
            prop_assert_eq!(parse_revoke(&block, format), Ok(blocks));
            if format.has_checksums() {
                prop_assert_eq!(verify_revoke(SEED, &block), Ok(()));
            }
        }
    }

    #[test]
    fn data_checksums_match_their_tags(data in prop::collection::vec(any::<u8>(), 64), sequence: u32) {
        for format in formats() {
            let checksum = data_checksum(SEED, sequence, &data);
            let mut block = vec![0; 1024];
            let tag = Tag { block: FsBlock(1), escaped: false, deleted: false, checksum };
            encode_descriptor(&mut block, format, sequence, SEED, &UUID, &[tag]);
            let tag = parse_descriptor(&block, format).unwrap()[0];
            prop_assert!(tag_checksum_matches(&tag, format, SEED, sequence, &data));
            let other = tag_checksum_matches(&tag, format, SEED, sequence.wrapping_add(1), &data);
            prop_assert_eq!(other, !format.has_checksums());
        }
    }
}

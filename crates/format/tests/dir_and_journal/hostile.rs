//! Arbitrary bytes make no parser panic (I9).

use parext4_format::jbd2::{self, JournalSuperblock, TagFormat};
use parext4_format::xattr::acl::Acl;
use parext4_format::{ChecksumSeed, FsBlock, InodeNo, dir_entry, htree, orphan_file, xattr};
use proptest::prelude::*;

const SEED: ChecksumSeed = ChecksumSeed(3);

/// Calls every reader on the bytes, and every writer that changes existing bytes.
fn feed(bytes: &[u8]) {
    for has_tail in [false, true] {
        let _ = dir_entry::entries(bytes, has_tail).count();
        let _ = dir_entry::find(bytes, has_tail, b"name");
        let _ = dir_entry::is_empty_dir_block(bytes, has_tail);
        let _ = dir_entry::find_room(bytes, has_tail, 4);
        let mut copy = bytes.to_vec();
        let _ = dir_entry::insert(&mut copy, has_tail, InodeNo(1), 1, b"name");
        let _ = dir_entry::set_inode(&mut copy, has_tail, b"a", InodeNo(1), 1);
        let _ = dir_entry::remove(&mut copy, has_tail, b"a");
        for offset in 0..bytes.len().min(64) {
            let _ = dir_entry::insert_at(&mut bytes.to_vec(), has_tail, offset, InodeNo(1), 1, b"name");
            let position = dir_entry::EntryPosition { offset, previous: offset.checked_sub(12) };
            let _ = dir_entry::remove_at(&mut bytes.to_vec(), has_tail, position, b"a");
        }
        let _ = htree::parse_root(bytes, has_tail);
        let _ = htree::parse_node(bytes, has_tail);
    }
    let _ = dir_entry::verify_tail(SEED, bytes);
    let _ = (htree::verify(SEED, bytes), htree::is_dx_block(bytes), htree::parent_of_root(bytes));
    let _ = (xattr::parse_block(bytes, FsBlock(1), None), xattr::parse_block(bytes, FsBlock(1), Some(SEED)));
    let _ = (xattr::parse_ibody(bytes), xattr::refcount(bytes));
    let _ = (Acl::from_disk(bytes), Acl::from_xattr(bytes));
    let _ = (orphan_file::parse_block(bytes, None, FsBlock(1)), orphan_file::get_slot(bytes, 3));
    feed_journal(bytes);
}

fn feed_journal(bytes: &[u8]) {
    if let Ok(superblock) = JournalSuperblock::parse(bytes) {
        let _ = (superblock.check(1024, 100), superblock.unsupported(), format!("{superblock:?}"));
    }
    for bits in 0..8 {
        let format = TagFormat { bit64: bits & 1 != 0, csum_v2: bits & 2 != 0, csum_v3: bits & 4 != 0 };
        let _ = jbd2::parse_descriptor(bytes, format);
        let _ = jbd2::parse_revoke(bytes, format);
    }
    let _ = (jbd2::header(bytes), jbd2::needs_escape(bytes));
    let _ = (jbd2::verify_descriptor(1, bytes), jbd2::verify_revoke(1, bytes), jbd2::verify_commit(1, bytes));
    let _ = (jbd2::commit_time(bytes), jbd2::commit_crc32_matches(bytes, 1));
}

/// Returns valid blocks, so that damage to them passes the first checks.
fn valid(kind: u8) -> Vec<u8> {
    let mut block = vec![0; 1024];
    let list: Vec<_> =
        (0..9).map(|n| htree::DxEntry { hash: n * 2, block: parext4_format::FileBlock(n) }).collect();
    let format = TagFormat { bit64: true, csum_v2: false, csum_v3: true };
    match kind % 8 {
        0 => {
            dir_entry::init_dot_block(&mut block, true, InodeNo(3), InodeNo(2));
            for name in [b"a".as_slice(), b"bcdef", b"name"] {
                dir_entry::insert(&mut block, true, InodeNo(9), 1, name).unwrap();
            }
        }
        1 => htree::init_root(&mut block, true, InodeNo(3), InodeNo(2), 1, 0, &list),
        2 => htree::encode_node(&mut block, true, &list),
        3 => {
            let tag = jbd2::Tag { block: FsBlock(9), escaped: true, deleted: false, checksum: 4 };
            jbd2::encode_descriptor(&mut block, format, 1, 1, &[0; 16], &[tag; 20]);
        }
        4 => jbd2::encode_revoke(&mut block, format, 1, 1, &[FsBlock(4); 9]),
        5 => jbd2::encode_commit(&mut block, format, 1, 1, 2, 3),
        6 => JournalSuperblock::new(1024, 100, 1, &[1; 16]).encode(&mut block),
        _ => {
            // An attribute `user.k` with a value of 4 bytes at the end.
            block[..12].copy_from_slice(&[0, 0, 2, 0xea, 1, 0, 0, 0, 1, 0, 0, 0]);
            block[32..44].copy_from_slice(&[1, 1, 0xfc, 3, 0, 0, 0, 0, 4, 0, 0, 0]);
            block[48] = b'k';
        }
    }
    block
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        feed(&bytes);
    }

    #[test]
    fn damaged_blocks(
        kind: u8,
        damage in prop::collection::vec((prop_oneof![0..64_usize, 0..1024_usize], any::<u8>()), 0..6),
        length in prop_oneof![Just(1024_usize), 0..1024_usize],
    ) {
        let mut block = valid(kind);
        for (at, value) in damage {
            block[at] = value;
        }
        block.truncate(length);
        feed(&block);
    }
}

//! Tests of hash tree blocks.

use proptest::prelude::*;

use super::*;

const DIR: InodeNo = InodeNo(11);
const SEED: ChecksumSeed = ChecksumSeed(77);

fn some_entries(count: u32) -> Vec<DxEntry> {
    (0..count).map(|n| DxEntry { hash: n * 1000, block: FileBlock(n + 1) }).collect()
}

#[test]
fn limits_are_those_of_the_kernel() {
    assert_eq!((root_limit(1024, false), root_limit(1024, true)), (124, 123));
    assert_eq!((node_limit(1024, false), node_limit(1024, true)), (127, 126));
    assert_eq!((root_limit(4096, false), root_limit(4096, true)), (508, 507));
    assert_eq!((node_limit(4096, false), node_limit(4096, true)), (511, 510));
    assert_eq!(root_limit(0, true), 0);
}

#[test]
fn a_root_comes_back() {
    let mut block = vec![0xee; 1024];
    init_root(&mut block, true, DIR, InodeNo::ROOT, 1, 0, &some_entries(3));
    seal(SEED, &mut block);
    assert_eq!(verify(SEED, &block), Ok(()));
    assert!(is_dx_block(&block));
    let root = parse_root(&block, true).unwrap();
    assert_eq!((root.hash_version, root.indirect_levels, root.limit), (1, 0, 123));
    assert_eq!(root.entries, some_entries(3));
    assert_eq!(parse_root(&block, false).unwrap_err().field, "limit");

    set_parent(&mut block, InodeNo(50));
    set_levels(&mut block, 1);
    encode_root_entries(&mut block, true, &some_entries(123));
    assert_eq!(verify(SEED, &block).unwrap_err().field, "checksum");
    seal(SEED, &mut block);
    assert_eq!(parent_of_root(&block), InodeNo(50));
    let root = parse_root(&block, true).unwrap();
    assert_eq!((root.indirect_levels, root.entries), (1, some_entries(123)));
}

#[test]
fn linear_blocks_are_told_apart() {
    let mut block = vec![0; 1024];
    for has_tail in [false, true] {
        crate::dir_entry::init_block(&mut block, has_tail);
        assert!(!is_dx_block(&block));
        crate::dir_entry::init_dot_block(&mut block, has_tail, DIR, DIR);
        assert!(!is_dx_block(&block));
        assert!(parse_root(&block, has_tail).is_err());
        encode_node(&mut block, has_tail, &some_entries(2));
        assert!(is_dx_block(&block));
        assert_eq!(parse_node(&block, has_tail), Ok(some_entries(2)));
    }
    assert!(verify(SEED, &[0; 1024]).is_err());
}

#[test]
fn each_check_names_its_field() {
    let error = |at: usize, value: u8| {
        let mut block = vec![0; 1024];
        init_root(&mut block, true, DIR, DIR, 1, 0, &some_entries(3));
        block[at] = value;
        parse_root(&block, true).unwrap_err().field
    };
    assert_eq!(error(8, b'x'), "dot");
    assert_eq!(error(20, b'x'), "dotdot");
    assert_eq!(error(16, 0), "dotdot_rec_len");
    assert_eq!(error(24, 1), "reserved_zero");
    assert_eq!(error(29, 7), "info_length");
    assert_eq!(error(30, 3), "indirect_levels");
    assert_eq!(error(32, 0), "limit");
    assert_eq!(error(34, 0), "count");
    assert_eq!(error(34, 124), "count");
    // Slot 1 (at 40) beyond slot 2.
    assert_eq!(error(43, 1), "hash");
}

#[test]
fn search_finds_the_last_entry_not_above() {
    let entries = some_entries(4);
    let found: Vec<_> = [0, 999, 1000, 2999, 3000, !0].iter().map(|&hash| search(&entries, hash)).collect();
    assert_eq!(found, [0, 0, 1, 2, 3, 3]);
    assert_eq!(search(&[], 5), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nodes_round_trip(mut hashes in prop::collection::vec(any::<u32>(), 1..127), has_tail: bool) {
        hashes.sort_unstable();
        hashes.truncate(node_limit(1024, has_tail));
        hashes[0] = 0;
        let list: Vec<_> =
            hashes.iter().map(|&hash| DxEntry { hash, block: FileBlock(hash & BLOCK_MASK) }).collect();
        let mut block = vec![0; 1024];
        encode_node(&mut block, has_tail, &list);
        if has_tail {
            seal(SEED, &mut block);
            prop_assert_eq!(verify(SEED, &block), Ok(()));
        }
        prop_assert_eq!(parse_node(&block, has_tail), Ok(list));
    }
}

//! Descriptors that fsverity(1) writes, and damaged ones.

use super::*;

/// Returns the descriptor that `fsverity digest` makes of a file of 700,000 bytes, with SHA-256,
/// blocks of 1 KiB and a salt.
fn descriptor() -> Vec<u8> {
    let raw = RawDescriptor {
        version: 1,
        hash_algorithm: 1,
        log_blocksize: 10,
        salt_size: 4,
        sig_size: U32::ZERO,
        data_size: U64::new(700_000),
        root_hash: [0; 64],
        salt: [0; 32],
        reserved: [0; 144],
    };
    let mut bytes = raw.as_bytes().to_vec();
    let root = "521331859905 5134b84b45728f85f5d082ef4d5de00a606ace7b20c54932da99".replace(' ', "");
    for (at, pair) in root.as_bytes().chunks(2).enumerate() {
        bytes[16 + at] = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    bytes[80..84].copy_from_slice(&[0, 0x11, 0x22, 0x33]);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the root of the tree over `data`, built level by level.
fn root_of(tree: &MerkleTree, data: &[u8]) -> Vec<u8> {
    let mut level = data.to_vec();
    loop {
        let hashes: Vec<_> = level.chunks(tree.block_size()).map(|block| tree.hash(block)).collect();
        if let [root] = &hashes[..] {
            return root.as_ref().to_vec();
        }
        level = hashes.iter().flat_map(|hash| hash.as_ref().to_vec()).collect();
    }
}

#[test]
fn the_digest_and_the_root_are_those_of_fsverity() {
    let tree = MerkleTree::parse(&descriptor(), 700_000, 12).unwrap();
    assert_eq!(hex(tree.digest()), "003bae7c646e35188ea572383ab4707557cd225b829c63bbb2be042dfc448cce");
    let data: Vec<u8> = (0..700_000_u32).map(|at| ((at * 7 + at / 4096) % 256) as u8).collect();
    assert_eq!(root_of(&tree, &data), tree.root());
    assert_eq!((tree.len(), tree.salt(), tree.signature()), (23552, &[0, 0x11, 0x22, 0x33][..], &[][..]));
}

#[test]
fn a_place_leads_from_a_block_to_the_root() {
    let tree = MerkleTree::parse(&descriptor(), 700_000, 12).unwrap();
    // 684 blocks of the file, 22 blocks of hashes, and the root's.
    let place = tree.place(0, 683).unwrap();
    assert_eq!(place, HashPlace { block: 1 + 21, index: 21, bytes: 11 * 32..12 * 32 });
    assert_eq!(tree.place(1, 21).unwrap(), HashPlace { block: 0, index: 0, bytes: 21 * 32..22 * 32 });
    assert_eq!(tree.place(2, 0), None);
}

#[test]
fn empty_and_small_files_have_no_tree() {
    for size in [0, 1, 1024] {
        let mut bytes = descriptor();
        bytes[8..16].copy_from_slice(&u64::to_le_bytes(size));
        let tree = MerkleTree::parse(&bytes, size, 12).unwrap();
        assert!(tree.is_empty() && tree.place(0, 0).is_none());
    }
}

#[test]
fn damaged_descriptors_are_refused() {
    let refused = |change: fn(&mut Vec<u8>), field| {
        let mut bytes = descriptor();
        change(&mut bytes);
        let size = u64::from_le_bytes(*bytes[8..].first_chunk().unwrap());
        let size = if field == "data_size" && size < 1 << 40 { 700_000 } else { size };
        assert_eq!(MerkleTree::parse(&bytes, size, 12).unwrap_err().field, field);
    };
    refused(|bytes| bytes[0] = 2, "version");
    refused(|bytes| bytes[1] = 0, "hash_algorithm");
    refused(|bytes| bytes[1] = 3, "hash_algorithm");
    refused(|bytes| bytes[2] = 9, "log_blocksize");
    refused(|bytes| bytes[2] = 13, "log_blocksize");
    refused(|bytes| bytes[2] = 255, "log_blocksize");
    refused(|bytes| bytes[3] = 33, "salt_size");
    refused(|bytes| bytes[4] = 1, "sig_size");
    refused(|bytes| bytes[4..8].fill(255), "sig_size");
    refused(|bytes| bytes[8] ^= 1, "data_size");
    // 2^63 bytes in blocks of 1 KiB with 32 hashes each need 11 levels.
    refused(|bytes| bytes[8..16].copy_from_slice(&(1_u64 << 63).to_le_bytes()), "data_size");
    refused(|bytes| bytes[255] = 1, "reserved");
    let size = MerkleTree::parse(&descriptor()[..255], 700_000, 12).unwrap_err();
    assert_eq!((size.field, tree_offset(u64::MAX)), ("size", None));
}

#[test]
fn a_tree_of_the_longest_file_has_a_length() {
    let mut bytes = descriptor();
    bytes[2] = 12;
    bytes[8..16].copy_from_slice(&i64::MAX.to_le_bytes());
    let tree = MerkleTree::parse(&bytes, i64::MAX as u64, 12).unwrap();
    assert!(tree.len() > 1 << 55 && tree.place(7, 1).is_some() && tree.place(8, 0).is_none());
}

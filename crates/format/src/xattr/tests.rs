//! Blocks and inodes with attributes, sound and damaged.

use super::*;

/// Returns a block with `user.a` = "hello" and `security.bb` = "".
fn sample() -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4] = 3;
    bytes[8] = 1;
    put(&mut bytes, 32, (1, b"a"), (1016, 5));
    put(&mut bytes, 52, (6, b"bb"), (0, 0));
    bytes[1016..1021].copy_from_slice(b"hello");
    bytes
}

fn put(bytes: &mut [u8], at: usize, (index, name): (u8, &[u8]), (offs, size): (u16, u32)) {
    let entry = RawEntry {
        e_name_len: u8::try_from(name.len()).unwrap(),
        e_name_index: index,
        e_value_offs: U16::new(offs),
        e_value_inum: U32::ZERO,
        e_value_size: U32::new(size),
        e_hash: U32::ZERO,
    };
    bytes[at..at + 16].copy_from_slice(entry.as_bytes());
    bytes[at + 16..at + 16 + name.len()].copy_from_slice(name);
}

#[test]
fn a_block_and_its_checksum() {
    let (seed, at) = (ChecksumSeed(7), FsBlock(99));
    let mut bytes = sample();
    assert_eq!(refcount(&bytes), 3);
    set_refcount(&mut bytes, 0);
    assert_eq!(parse_block(&bytes, at, None).unwrap_err().field, "h_refcount");
    set_refcount(&mut bytes, 2);
    assert_eq!(refcount(&bytes), 2);
    assert_eq!(parse_block(&bytes, at, Some(seed)).unwrap_err().field, "checksum");
    seal_block(seed, at, &mut bytes);
    let list = parse_block(&bytes, at, Some(seed)).unwrap();
    let names: Vec<_> = list.iter().map(|xattr| full_name(xattr).unwrap()).collect();
    assert_eq!(names, [b"user.a".to_vec(), b"security.bb".to_vec()]);
    assert_eq!(
        (&list[0].value, &list[1].value),
        (&Value::Bytes(b"hello".to_vec()), &Value::Bytes(Vec::new()))
    );
    assert!(parse_block(&bytes, FsBlock(98), Some(seed)).is_err());
}

#[test]
fn each_check_names_its_field() {
    let broken = |at: usize, value: u8| {
        let mut bytes = sample();
        bytes[at] = value;
        parse_block(&bytes, FsBlock(1), None).unwrap_err().field
    };
    assert_eq!(broken(3, 0), "h_magic");
    assert_eq!(broken(8, 2), "h_blocks");
    assert_eq!(broken(40, 9), "e_value_size");
    assert_eq!(broken(32, 2), "e_name");
    let mut bytes = sample();
    bytes[34..36].copy_from_slice(&[72, 0]);
    assert_eq!(parse_block(&bytes, FsBlock(1), None).unwrap_err().field, "e_value_offs");
}

#[test]
fn inside_the_inode_offsets_count_from_the_first_entry() {
    let mut area = vec![0; 96];
    assert_eq!(parse_ibody(&area), Ok(Vec::new()));
    area[..4].copy_from_slice(&MAGIC.to_le_bytes());
    put(&mut area, 4, (1, b"k"), (88, 4));
    area[92..].copy_from_slice(b"yes!");
    assert_eq!(parse_ibody(&area).unwrap()[0].value, Value::Bytes(b"yes!".to_vec()));
    area.truncate(95);
    assert_eq!(parse_ibody(&area).unwrap_err().field, "e_value_size");
}

fn xattr(name_index: u8, name: &[u8], value: &[u8]) -> Xattr {
    Xattr { name_index, name: name.to_vec(), value: value.to_vec().into() }
}

/// Returns the bytes that Linux 6.18 wrote for these attributes.
#[test]
fn a_block_as_the_kernel_writes_it() {
    let list = [
        xattr(1, b"\xc3\xa9\xff", b"1"),
        xattr(1, b"bb", b"12345"),
        xattr(1, b"c", b""),
        xattr(4, b"c", b"777"),
    ];
    let block = encode_block(&list, 1024).unwrap();
    let hashes: Vec<u32> = [0x0c, 0x2c, 0x40, 0x54, 0x68]
        .iter()
        .map(|&at| u32::from_le_bytes(block[at..at + 4].try_into().unwrap()))
        .collect();
    assert_eq!(hashes, [0x3234_16cc, 0x63, 0x3231_3824, 0x19df_0032, 0x0054_3737]);
    let mut parsed = parse_block(&block, FsBlock(1), None).unwrap();
    assert_eq!(parsed.iter().map(|xattr| xattr.name.len()).collect::<Vec<_>>(), [1, 2, 3, 1]);
    parsed.sort_by_key(|xattr| list.iter().position(|other| other == xattr));
    assert_eq!(parsed, list);
    assert_eq!(refcount(&block), 1);
}

#[test]
fn what_fits_comes_back_and_what_does_not_is_refused() {
    let none = encode_ibody(&[], 96).unwrap();
    assert_eq!((none.as_slice(), parse_ibody(&none)), (&[0; 96][..], Ok(Vec::new())));
    // Header, entry, end of the list: 4 + 20 + 4 bytes.
    let largest = [xattr(1, b"name", &[7; 68])];
    assert_eq!(parse_ibody(&encode_ibody(&largest, 96).unwrap()).unwrap(), largest);
    assert_eq!(encode_ibody(&[xattr(1, b"name", &[7; 69])], 96), None);
    assert_eq!(encode_ibody(&largest, 0), None);
    let largest = [xattr(1, b"name", &[7; 1024 - 32 - 20 - 4])];
    assert_eq!(parse_block(&encode_block(&largest, 1024).unwrap(), FsBlock(1), None).unwrap(), largest);
    assert_eq!(encode_block(&[xattr(1, b"names", &[7; 1024 - 32 - 20 - 4])], 1024), None);
    let too_long = [xattr(1, &[b'n'; 256], b"")];
    assert_eq!(encode_block(&too_long, 1024), None);
}

#[test]
fn values_in_inodes_come_back() {
    let hash = ValueInode::hash(ChecksumSeed(5), b"value");
    let value = ValueInode::new(InodeNo(12), b"big", 5, hash);
    assert!(
        value.has_hash(b"big", hash) && !value.has_hash(b"bag", hash) && !value.has_hash(b"big", hash ^ 1)
    );
    let list = [Xattr { name_index: 1, name: b"big".to_vec(), value: Value::Inode(value) }];
    let block = encode_block(&list, 1024).unwrap();
    assert_eq!(parse_block(&block, FsBlock(1), None).unwrap(), list);
    assert_eq!(parse_ibody(&encode_ibody(&list, 96).unwrap()).unwrap(), list);
}

#[test]
fn names_have_a_known_first_part() {
    for (full, split) in [
        (&b"user.comment"[..], Some((USER, &b"comment"[..]))),
        (b"trusted.", Some((TRUSTED, b""))),
        (b"system.posix_acl_access", Some((ACL_ACCESS, b""))),
        (b"system.posix_acl_access.x", None),
        (b"system.data", None),
        (b"user", None),
        (b"", None),
    ] {
        assert_eq!(split_name(full), split);
    }
    assert_eq!(full_name(&xattr(ACL_DEFAULT, b"", b"")).unwrap(), b"system.posix_acl_default");
    assert_eq!(full_name(&xattr(7, b"data", b"")), None);
    assert_eq!(full_name(&xattr(ACL_ACCESS, b"x", b"")), None);
}

/// In a block of 64 KiB, 1637 entries with one value would become 51 MiB.
#[test]
fn values_that_need_more_bytes_than_there_are_overlap() {
    for (len, entries, size) in [(65536_usize, 1637, 32760_usize), (1024, 2, 481), (1024, 36, 5)] {
        let mut bytes = vec![0; len];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        set_refcount(&mut bytes, 1);
        bytes[8] = 1;
        let offset = u16::try_from(len - size.next_multiple_of(4)).unwrap();
        let mut at = size_of::<RawHeader>();
        for _ in 0..entries {
            put(&mut bytes, at, (1, b"abcd"), (offset, u32::try_from(size).unwrap()));
            at += 20;
        }
        let error = parse_block(&bytes, FsBlock(1), None).unwrap_err();
        assert_eq!((error.field, error.to_string().contains("overlap")), ("e_value_size", true), "{error}");
    }
}

/// Four zeros end the list. e2fsck accepts such an entry in an inode.
#[test]
fn an_entry_without_a_name_ends_no_list() {
    let nameless = |value: Value| Xattr { name_index: 0, name: Vec::new(), value };
    let other = Xattr { name_index: 1, name: b"a".to_vec(), value: vec![7; 5].into() };
    let in_inode = ValueInode { ino: InodeNo(12), size: 5, entry_hash: 9 };
    for value in [Vec::new().into(), vec![1].into(), Value::Inode(in_inode)] {
        let list = vec![nameless(value), other.clone()];
        let area = encode_ibody(&list, 96).unwrap();
        assert_eq!(parse_ibody(&area).unwrap(), list);
    }
}

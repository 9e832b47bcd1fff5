//! Values of attributes in inodes of their own (`ea_inode`).

use parext4::XattrMode;
use testkit::Image;

use super::{BLOCK, assert_found, check, inode_offset};

/// Offset of the first entry in an inode of 256 bytes.
const ENTRY: u64 = 164;

#[test]
fn references_to_values_in_inodes_are_checked() {
    let options = ["-b", "1024", "-I", "256", "-O", "ea_inode,^metadata_csum,^has_journal"];
    let Some(image) = Image::mke2fs(16, &options) else { return };
    let volume = image.open();
    volume.write("/in-inode", "x").unwrap();
    volume.write("/in-block", "x").unwrap();
    let set = |path: &str, name: &str, len| {
        let node = volume.resolve(path).unwrap();
        node.set_xattr(name.as_bytes(), &vec![b'v'; len], XattrMode::Create).unwrap();
    };
    set("/in-inode", "user.value", 3000);
    set("/in-block", "user.filler", 70);
    set("/in-block", "user.value", 2000);
    let value = volume.resolve("/in-block").unwrap().ino().get() + 1;
    volume.close().unwrap();
    let (is_clean, printed) = check(&image.path());
    assert!(is_clean, "{printed}");

    let entry = inode_offset(&image, "/in-inode", BLOCK) + ENTRY;
    let number = |number: u32| number.to_le_bytes();
    assert_found(&image, entry + 4, &number(77), "PR_1_ATTR_VALUE_EA_INODE");
    assert_found(&image, entry + 4, &number(0x7fff_ffff), "PR_1_ATTR_VALUE_EA_INODE");
    assert_found(&image, entry + 8, &number(2000), "PR_1_BAD_I_BLOCKS");
    assert_found(&image, entry + 8, &number(5000), "PR_1_BAD_I_BLOCKS");
    assert_found(&image, entry + 12, &number(1), "PR_1_ATTR_HASH");
    // The list of entries loses its magic number.
    assert_found(&image, entry - 4, &number(0), "PR_4_UNATTACHED_INODE");
    let inode = inode_offset(&image, &format!("<{value}>"), BLOCK);
    // Without the flag of values.
    assert_found(&image, inode + 32, &0x80000_u32.to_le_bytes(), "PR_1_ATTR_SET_EA_INODE_FL");
    assert_found(&image, inode + 32, &0x80000_u32.to_le_bytes(), "PR_1_ATTR_NO_EA_INODE_FL");
    assert_found(&image, inode + 12, &number(7), "PR_4_EA_INODE_REF_COUNT");
    assert_found(&image, inode + 36, &number(7), "PR_4_EA_INODE_REF_COUNT");
    assert_found(&image, inode + 26, &[2, 0], "PR_4_BAD_REF_COUNT");
}

#[test]
fn an_entry_with_the_inode_of_a_value_needs_the_feature() {
    let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", "^metadata_csum,^has_journal"]) else { return };
    let volume = image.open();
    volume.write("/file", "x").unwrap();
    volume.resolve("/file").unwrap().set_xattr(b"user.value", b"v", XattrMode::Create).unwrap();
    volume.close().unwrap();
    let entry = inode_offset(&image, "/file", BLOCK) + ENTRY;
    assert_found(&image, entry + 4, &12_u32.to_le_bytes(), "PR_1_ATTR_VALUE_EA_INODE");
}

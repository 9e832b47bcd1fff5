//! Fields of the superblock, and the structures to which they lead.

use std::fs;

use testkit::Image;

use super::{assert_found, check};

const SUPERBLOCK: u64 = 1024;

#[test]
fn the_block_of_multi_mount_protection_is_checked() {
    const NUMBER: u64 = SUPERBLOCK + 0x168;
    for (features, after_damage) in
        [("mmp,metadata_csum", "PR_0_MMP_CSUM_INVALID"), ("mmp,^metadata_csum", "PR_0_MMP_INVALID_MAGIC")]
    {
        let Some(image) = Image::mke2fs(16, &["-b", "4096", "-O", features]) else { return };
        let (is_clean, printed) = check(&image.path());
        assert!(is_clean, "{printed}");
        let bytes = fs::read(image.path()).unwrap();
        let number = bytes[NUMBER as usize..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).unwrap();
        let damaged = if after_damage == "PR_0_MMP_CSUM_INVALID" { 20 } else { 0 };
        assert_found(&image, number * 4096 + damaged, &[0xff], after_damage);
        assert_found(&image, number * 4096, &[0xff; 1024], "PR_0_MMP_INVALID_MAGIC");
        if features.contains('^') {
            assert_found(&image, NUMBER, &[0; 8], "PR_0_MMP_INVALID_BLK");
        }
    }
}

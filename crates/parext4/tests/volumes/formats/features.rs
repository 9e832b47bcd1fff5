//! Features that a volume gets with the first use.

use parext4::{FileSize, XattrMode};
use testkit::Image;
use testkit::volume::DirectFiles as _;

/// Returns the features as dumpe2fs prints them.
fn features(image: &Image) -> String {
    let text = image.debugfs("stats -h");
    text.lines().find(|line| line.starts_with("Filesystem features:")).unwrap_or_default().to_owned()
}

/// `ext4_do_update_inode` and `ext4_xattr_update_super_block` of the kernel.
#[test]
fn features_are_set_on_first_use() {
    let options = ["-b", "1024", "-O", "none,extent,filetype,has_journal"];
    let Some(image) = Image::mke2fs(8, &options) else { return };
    let has = |name: &str| features(&image).split_whitespace().any(|feature| feature == name);
    if features(&image).is_empty() {
        return;
    }
    let volume = image.open();
    let file = volume.create_direct("/file").unwrap();
    file.set_len(0x7fff_ffff).unwrap();
    volume.sync().unwrap();
    drop(file);
    volume.close().unwrap();
    assert!(!has("large_file") && !has("ext_attr"));
    for grow in 0..3 {
        let Some(image) = Image::mke2fs(8, &options) else { return };
        let volume = image.open();
        let file = volume.create_direct("/file").unwrap();
        match grow {
            0 => file.set_len(1 << 31).unwrap(),
            1 => file.write_all_at(&[1; 512], (1 << 31) - 512).unwrap(),
            _ => file.allocate((1 << 31) - 1024..1 << 31, FileSize::Extend).unwrap(),
        }
        file.inode_ref().set_xattr(b"user.a", b"b", XattrMode::Any).unwrap();
        drop(file);
        volume.close().unwrap();
        image.fsck();
        let features = features(&image);
        assert!(features.contains("large_file") && features.contains("ext_attr"), "{grow}: {features}");
    }
}

/// Without `huge_file`, `i_blocks` counts sectors in 32 bits.
#[test]
fn files_are_as_large_as_their_block_count_holds() {
    for (block_size, limit) in [("1024", (1_u64 << 41) - 1024), ("4096", (1 << 41) - 4096)] {
        let options = ["-b", block_size, "-O", "^huge_file,^metadata_csum"];
        let Some(image) = Image::mke2fs(16, &options) else { return };
        let volume = image.open();
        let file = volume.create_direct("/file").unwrap();
        assert!(matches!(file.set_len(limit + 1), Err(parext4::Error::FileTooLarge)));
        file.set_len(limit).unwrap();
        drop(file);
        volume.close().unwrap();
        image.fsck();
        image.with_kernel(|root| {
            let file = std::fs::File::options().write(true).open(root.join("file")).unwrap();
            assert_eq!(file.metadata().unwrap().len(), limit);
            assert!(file.set_len(limit + 1).is_err());
        });
    }
}

//! Attribute blocks and orphan file blocks of real images.

use parext4_format::{FsBlock, orphan_file, xattr};

use crate::image::{BLOCK, Image};

#[test]
fn attribute_block_of_debugfs() {
    let Some(image) = Image::new(&[]) else { return };
    let value = "v".repeat(300);
    let path = image.scratch("value");
    std::fs::write(&path, &value).unwrap();
    image.debugfs(&format!("mkdir /d\nea_set -f {} /d user.large\n", path.display()));
    let block = FsBlock(image.stat("/d", "File ACL: "));
    let mut bytes = image.read_block(block.get());
    let list = xattr::parse_block(&bytes, block, Some(image.seed())).unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(xattr::full_name(&list[0]).unwrap(), b"user.large");
    assert_eq!(list[0].value, value.as_bytes().to_vec().into());
    assert_eq!(xattr::refcount(&bytes), 1);
    let original = bytes.clone();
    xattr::set_refcount(&mut bytes, 2);
    xattr::set_refcount(&mut bytes, 1);
    xattr::seal_block(image.seed(), block, &mut bytes);
    assert_eq!(bytes, original);
}

#[test]
fn orphan_file_of_mke2fs() {
    let Some(image) = Image::new(&["-O", "orphan_file"]) else { return };
    let name = format!("<{}>", u32::from_le_bytes(image.superblock(0x280)));
    let seed = image.inode_seed(&name);
    let text = image.debugfs(&format!("stat {name}\n"));
    assert!(text.contains("regular"), "{text}");
    let block = FsBlock(image.blocks(&name)[0]);
    let bytes = image.read_block(block.get());
    let slots = orphan_file::parse_block(&bytes, Some(seed), block).unwrap();
    assert_eq!(slots.len(), orphan_file::slots_per_block(BLOCK));
    assert!(slots.iter().all(|slot| slot.get() == 0));
    let mut again = vec![0xff; BLOCK];
    orphan_file::init_block(&mut again);
    orphan_file::seal_block(seed, block, &mut again);
    assert_eq!(again, bytes);
}

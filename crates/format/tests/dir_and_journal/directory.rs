//! Directory blocks of real images.

use std::fs;

use parext4_format::hash::DirHash;
use parext4_format::htree::{self, DxEntry};
use parext4_format::{FileBlock, InodeNo, dir_entry};

use crate::image::{BLOCK, Image};

/// Number of files whose names of 200 bytes need a tree of two levels in blocks of 1 KiB.
const FILES: usize = 600;

/// An image with a directory `big`, and `small` with three files.
fn image(options: &[&str]) -> Option<Image> {
    let source = tempfile::tempdir().unwrap();
    for directory in ["big", "small"] {
        fs::create_dir(source.path().join(directory)).unwrap();
    }
    let first = source.path().join("big/first");
    fs::write(&first, b"x").unwrap();
    for number in 0..FILES {
        fs::hard_link(&first, source.path().join(format!("big/{number:0>200}"))).unwrap();
    }
    for name in ["one", "two", "three"] {
        fs::write(source.path().join("small").join(name), name).unwrap();
    }
    Image::new(&[options, &["-d", source.path().to_str().unwrap()]].concat())
}

fn dir_hash(image: &Image, version: u8) -> DirHash {
    let seed = image.superblock::<16>(0xec);
    let (words, _) = seed.as_chunks::<4>();
    let seed = std::array::from_fn(|at| u32::from_le_bytes(words[at]));
    let flags = u32::from_le_bytes(image.superblock(0x160));
    DirHash::from_disk(version, flags & 2 != 0, seed).unwrap()
}

fn block_of(content: &[u8], block: FileBlock) -> &[u8] {
    let at = block.get() as usize * BLOCK;
    &content[at..at + BLOCK]
}

#[test]
fn linear_blocks_of_mke2fs() {
    for (features, has_tail) in [("metadata_csum", true), ("^metadata_csum", false)] {
        let Some(image) = image(&["-O", features]) else { return };
        let (content, seed) = (image.contents("/big"), image.inode_seed("/big"));
        let mut names = 0;
        for block in content.chunks(BLOCK) {
            assert!(!htree::is_dx_block(block));
            let entries = dir_entry::entries(block, has_tail).map(|entry| entry.unwrap());
            names += entries.filter(|entry| entry.ino.get() != 0).count();
            if has_tail {
                dir_entry::verify_tail(seed, block).unwrap();
                let mut again = block.to_vec();
                dir_entry::seal_tail(seed, &mut again);
                assert_eq!(again, block);
            }
        }
        assert_eq!(names, FILES + 3);
    }
}

#[test]
fn e2fsck_accepts_a_changed_block() {
    let Some(image) = image(&[]) else { return };
    let (at, seed) = (image.blocks("/small")[0], image.inode_seed("/small"));
    let mut block = image.read_block(at);
    dir_entry::verify_tail(seed, &block).unwrap();
    let ino = dir_entry::remove(&mut block, true, b"two").unwrap().unwrap();
    assert!(dir_entry::insert(&mut block, true, ino, 1, &[b'n'; 255]).unwrap());
    dir_entry::seal_tail(seed, &mut block);
    image.write_block(at, &block);
    image.assert_clean();
    let list = image.debugfs("ls -p /small\n");
    assert!(list.contains(&"n".repeat(255)) && !list.contains("two"), "{list}");
}

/// A directory that `e2fsck -D` made into a tree: each index block is encoded to the same bytes,
/// and each name is in the leaf of its hash.
#[test]
fn trees_of_e2fsck() {
    for (features, has_tail) in [("metadata_csum", true), ("^metadata_csum", false)] {
        let Some(image) = image(&["-O", features]) else { return };
        image.optimize_directories();
        let tree = Tree { content: image.contents("/big"), has_tail, image: &image };
        let root = htree::parse_root(block_of(&tree.content, FileBlock(0)), has_tail).unwrap();
        assert_eq!(root.indirect_levels, 1);
        tree.check_root(&root);
        let hash = dir_hash(&image, root.hash_version);
        let mut names = 0;
        for node in &root.entries {
            for leaf in &tree.check_node(*node) {
                names += tree.check_leaf(*leaf, &root.entries, hash);
            }
        }
        assert_eq!(names, FILES + 1);
    }
}

struct Tree<'a> {
    content: Vec<u8>,
    has_tail: bool,
    image: &'a Image,
}

impl Tree<'_> {
    fn check_same(&self, again: &mut [u8], block: &[u8]) {
        assert!(htree::is_dx_block(block));
        if self.has_tail {
            let seed = self.image.inode_seed("/big");
            htree::verify(seed, block).unwrap();
            htree::seal(seed, again);
        }
        assert!(again == block, "an index block is encoded otherwise");
    }

    fn check_root(&self, root: &htree::DxRoot) {
        let block = block_of(&self.content, FileBlock(0));
        let ino = InodeNo(u32::try_from(self.image.stat("/big", "Inode: ")).unwrap());
        assert_eq!(htree::parent_of_root(block), InodeNo::ROOT);
        let mut again = vec![0; BLOCK];
        let (version, levels) = (root.hash_version, root.indirect_levels);
        htree::init_root(&mut again, self.has_tail, ino, InodeNo::ROOT, version, levels, &root.entries);
        self.check_same(&mut again, block);
    }

    fn check_node(&self, node: DxEntry) -> Vec<DxEntry> {
        let block = block_of(&self.content, node.block);
        let entries = htree::parse_node(block, self.has_tail).unwrap();
        let mut again = vec![0; BLOCK];
        htree::encode_node(&mut again, self.has_tail, &entries);
        self.check_same(&mut again, block);
        entries
    }

    /// Returns how many names the leaf holds.
    fn check_leaf(&self, leaf: DxEntry, root: &[DxEntry], hash: DirHash) -> usize {
        let block = block_of(&self.content, leaf.block);
        assert!(!htree::is_dx_block(block));
        if self.has_tail {
            dir_entry::verify_tail(self.image.inode_seed("/big"), block).unwrap();
        }
        let entries: Vec<_> = dir_entry::entries(block, self.has_tail).map(Result::unwrap).collect();
        for entry in &entries {
            let (major, _) = hash.hash(entry.name);
            let node = root[htree::search(root, major)].block;
            let leaves = htree::parse_node(block_of(&self.content, node), self.has_tail).unwrap();
            assert_eq!(leaves[htree::search(&leaves, major)].block, leaf.block);
        }
        entries.len()
    }
}

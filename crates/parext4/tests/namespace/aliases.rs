//! Structures that lead to one block, or to one directory, on several paths. Each is refused where
//! a walk could otherwise go on for ever or list more than the volume holds. Without checksums, so
//! that only the checks of the structure apply.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use parext4::device::MemDevice;
use parext4::{Error, FileType, InodeRef, RenameMode, Volume, VolumeOptions};
use parext4_format::htree::{self, DxEntry};
use parext4_format::{FileBlock, InodeNo, dir_entry, extent};

use super::{Image, assert_fails, new};
use testkit::volume::DirectFiles as _;

const BLOCK: usize = 1024;
/// Offsets of `i_size_lo` and `i_block` in an inode.
const SIZE: usize = 0x04;
const MAP: usize = 0x28;

/// The bytes of a volume with 1 KiB blocks, and the offsets of some of its structures.
struct Hostile {
    image: Image,
    bytes: Vec<u8>,
}

impl Hostile {
    /// Makes a volume and fills it with `fill`.
    fn new(fill: impl FnOnce(&Volume)) -> Option<Self> {
        let image = Image::mke2fs(16, &["-b", "1024", "-N", "512", "-O", "^metadata_csum,^uninit_bg"])?;
        let volume = image.open();
        fill(&volume);
        volume.close().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        (!image.debugfs("stats").is_empty()).then_some(Self { image, bytes })
    }

    /// Returns the blocks of a file of the original volume.
    fn blocks(&self, path: &str) -> Vec<usize> {
        let list = self.image.debugfs(&format!("blocks {path}"));
        list.split_whitespace().map(|block| block.parse().unwrap()).collect()
    }

    fn block(&mut self, n: usize) -> &mut [u8] {
        &mut self.bytes[n * BLOCK..(n + 1) * BLOCK]
    }

    /// Returns the fields of an inode, at the offset that debugfs prints.
    fn inode(&mut self, path: &str) -> &mut [u8] {
        let place = self.image.debugfs(&format!("imap {path}"));
        let (block, offset) =
            place.split_once("located at block ").unwrap().1.split_once(", offset 0x").unwrap();
        let offset = usize::from_str_radix(offset.trim(), 16).unwrap();
        let at = block.parse::<usize>().unwrap() * BLOCK + offset;
        &mut self.bytes[at..at + 128]
    }

    /// Maps a file by `extents`: `(first block of the file, blocks, first block of the volume)`.
    fn map(&mut self, path: &str, extents: &[(u32, u32, usize)]) {
        let extents: Vec<_> = extents
            .iter()
            .map(|&(logical, len, physical)| extent::Extent {
                logical: FileBlock(logical),
                physical: parext4_format::FsBlock(physical as u64),
                len,
                unwritten: false,
            })
            .collect();
        extent::encode_leaf(&mut self.inode(path)[MAP..MAP + extent::ROOT_SIZE], &extents);
    }

    fn set_size(&mut self, path: &str, blocks: usize) {
        let size = u32::try_from(blocks * BLOCK).unwrap();
        self.inode(path)[SIZE..SIZE + 4].copy_from_slice(&size.to_le_bytes());
    }

    fn try_open(&self, options: VolumeOptions) -> Result<Volume, Error> {
        Volume::open_device(Arc::new(MemDevice::from_bytes(self.bytes.clone())), &options)
    }

    fn open(&self) -> Volume {
        self.try_open(VolumeOptions::new().commit_interval(None)).unwrap()
    }

    fn open_read_only(&self) -> Volume {
        self.try_open(VolumeOptions::new().read_only(true)).unwrap()
    }
}

fn fill_dir(volume: &Volume, path: &str, names: u32) {
    let dir = volume.create_dir(path, 0o755).unwrap();
    let file = dir.create(b"file", &new()).unwrap();
    for n in 0..names {
        dir.link(format!("{n:0>100}").as_bytes(), &file).unwrap();
    }
}

/// Returns how many names a listing returns until it ends, or the error.
fn listed(dir: &InodeRef) -> Result<usize, Error> {
    let (mut after, mut count) = (0, 0);
    loop {
        let batch = dir.read_dir_after(after)?;
        let Some(last) = batch.last() else { return Ok(count) };
        after = last.cookie();
        count += batch.len();
        assert!(count < 100_000, "the listing ends");
    }
}

/// Returns index entries that all name `block`. Their hashes all say that the names of one hash
/// continue there.
fn entries(count: usize, block: u32) -> Vec<DxEntry> {
    vec![DxEntry { hash: 0x1001, block: FileBlock(block) }; count]
}

#[test]
fn a_hash_tree_leads_to_no_block_twice() {
    let Some(mut hostile) = Hostile::new(|volume| fill_dir(volume, "/dir", 200)) else { return };
    let blocks = hostile.blocks("/dir");
    let (root, node, other) = (blocks[0], blocks[2], blocks[3]);
    let (fits_root, fits_node) = (htree::root_limit(BLOCK, false), htree::node_limit(BLOCK, false));
    let sound = hostile.bytes.clone();
    // Every entry of the root leads to one node, each entry of that node to one leaf.
    htree::set_levels(hostile.block(root), 1);
    htree::encode_root_entries(hostile.block(root), false, &entries(fits_root, 2));
    htree::encode_node(hostile.block(node), false, &entries(fits_node, 1));
    let mut images = vec![hostile.bytes.clone()];
    // The entries of two nodes lead to one leaf, and to each other.
    let two = [2, 3].map(|block| DxEntry { hash: 0x1001, block: FileBlock(block) });
    htree::encode_root_entries(hostile.block(root), false, &two);
    htree::encode_node(hostile.block(node), false, &entries(1, 1));
    htree::encode_node(hostile.block(other), false, &entries(1, 1));
    images.push(hostile.bytes.clone());
    htree::encode_node(hostile.block(node), false, &entries(1, 3));
    images.push(hostile.bytes.clone());
    // A root without nodes whose entries all lead to one leaf.
    hostile.bytes.clone_from(&sound);
    htree::encode_root_entries(hostile.block(root), false, &entries(fits_root, 1));
    images.push(hostile.bytes.clone());
    for bytes in images {
        hostile.bytes = bytes;
        for volume in [hostile.open(), hostile.open_read_only()] {
            let dir = volume.resolve("/dir").unwrap();
            assert_fails!(listed(&dir), Corrupt);
        }
    }
}

/// The hashes of the index do not match the leaves of the names, so each batch would begin at the
/// first leaf.
#[test]
fn a_listing_does_not_pass_over_many_listed_leaves_in_every_batch() {
    let Some(mut hostile) = Hostile::new(|volume| fill_dir(volume, "/dir", 700)) else { return };
    let blocks = hostile.blocks("/dir");
    let leaves = u32::try_from(blocks.len()).unwrap();
    assert!((80..124).contains(&leaves), "{leaves}");
    let index: Vec<_> = (1..leaves).map(|n| DxEntry { hash: u32::MAX - 1, block: FileBlock(n) }).collect();
    htree::encode_root_entries(hostile.block(blocks[0]), false, &index);
    let dir = hostile.open().resolve("/dir").unwrap();
    assert_fails!(listed(&dir), Corrupt);
}

#[test]
fn a_directory_is_not_larger_than_the_volume() {
    let Some(mut hostile) = Hostile::new(|volume| fill_dir(volume, "/dir", 5)) else { return };
    let first = hostile.blocks("/dir")[0];
    // Past the journal, which is in the middle of the volume, all blocks are free.
    let start = hostile.blocks("<8>").into_iter().max().unwrap() + 1;
    let free = start..start + 5600;
    for block in free.clone() {
        dir_entry::init_block(hostile.block(block), false);
        dir_entry::insert(hostile.block(block), false, InodeNo(12), 1, b"name").unwrap();
    }
    let run = u32::try_from(free.len()).unwrap();
    let twice = |n: u32| (1 + n * run, run, free.start);
    hostile.map("/dir", &[(0, 1, first), twice(0), twice(1), twice(2)]);
    hostile.set_size("/dir", 1 + 3 * free.len());
    let refusal = |hostile: &Hostile| {
        listed(&hostile.open_read_only().resolve("/dir").unwrap()).unwrap_err().to_string()
    };
    let error = refusal(&hostile);
    assert!(error.contains("more blocks than the volume has"), "{error}");
    hostile.map("/dir", &[(0, 1, first), twice(0)]);
    let error = refusal(&hostile);
    assert!(error.contains("i_size"), "{error}");
}

/// A block that one file maps twice would be freed twice and written through two offsets, so
/// changes are refused. A read-only volume can still be read, as the kernel does.
#[test]
fn the_blocks_of_one_file_are_different_ones() {
    let fill = |volume: &Volume| {
        let file = volume.create_direct("/file").unwrap();
        file.write_all_at(&[7; 4 * BLOCK], 0).unwrap();
    };
    let Some(mut hostile) = Hostile::new(fill) else { return };
    let first = hostile.blocks("/file")[0];
    hostile.map("/file", &[(0, 2, first), (2, 2, first + 1)]);
    let mut bytes = [0; 4 * BLOCK];
    let volume = hostile.open();
    let file = volume.direct_file("/file").unwrap();
    assert_fails!(file.read_at(&mut bytes, 0), Corrupt);
    assert_fails!(file.set_len(0), Corrupt);
    assert!(volume.stopped().is_none(), "nothing was changed");
    drop(file);
    volume.close().unwrap();
    let volume = hostile.open_read_only();
    let file = volume.direct_file("/file").unwrap();
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    assert!(bytes.iter().all(|&byte| byte == 7));
}

#[test]
fn a_block_belongs_to_one_directory() {
    let fill = |volume: &Volume| {
        fill_dir(volume, "/one", 5);
        fill_dir(volume, "/two", 5);
    };
    let Some(mut hostile) = Hostile::new(fill) else { return };
    let block = hostile.blocks("/one")[0];
    hostile.map("/two", &[(0, 1, block)]);
    let volume = hostile.open();
    let (one, two) = (volume.resolve("/one").unwrap(), volume.resolve("/two").unwrap());
    listed(&one).unwrap();
    assert_fails!(listed(&two), Corrupt);
    assert_fails!(two.create(b"new", &new()), Corrupt);
}

#[test]
fn metadata_blocks_of_the_volume_belong_to_no_file() {
    let fill = |volume: &Volume| drop(volume.create_direct("/file").unwrap());
    let Some(mut hostile) = Hostile::new(fill) else { return };
    let journal = hostile.blocks("<8>")[3];
    hostile.map("/file", &[(0, 1, journal)]);
    hostile.set_size("/file", 1);
    let volume = hostile.open();
    assert_fails!(volume.direct_file("/file").unwrap().read_at(&mut [0; BLOCK], 0), Corrupt);
    drop(volume);
    // The inode bitmap of one group is another group's, its inode table, or in the journal.
    for place in ["bg 0 inode_bitmap", "bg 0 inode_table", "journal"] {
        let block = match place {
            "journal" => journal,
            _ => {
                let groups = hostile.image.debugfs("stats");
                let group = groups.lines().find(|line| line.trim_start().starts_with("Group  0:")).unwrap();
                let what = place.strip_prefix("bg 0 ").unwrap().replace('_', " ");
                let at = group.split(&format!("{what} at ")).nth(1).unwrap();
                at.split([',', ' ']).next().unwrap().parse().unwrap()
            }
        };
        hostile.image.debugfs_write(&format!("set_bg 1 inode_bitmap {block}"));
        hostile.bytes = std::fs::read(hostile.image.path()).unwrap();
        assert_fails!(hostile.try_open(VolumeOptions::new()), Corrupt);
    }
}

/// A directory that contains itself, its parent, the root, or a directory that has another name
/// too.
#[test]
fn directories_with_several_names() {
    let fill = |volume: &Volume| {
        volume.create_dir("/a", 0o755).unwrap();
        volume.create_dir("/a/b", 0o755).unwrap();
        volume.create_dir("/a/b/c", 0o755).unwrap();
        volume.create_dir("/d", 0o755).unwrap();
    };
    let Some(mut hostile) = Hostile::new(fill) else { return };
    for (target, name) in [("/a/b", "self"), ("/a", "parent"), ("/", "root"), ("/d", "other")] {
        hostile.image.debugfs_write(&format!("link {target} /a/b/{name}"));
    }
    hostile.bytes = std::fs::read(hostile.image.path()).unwrap();
    const NAMES: [&str; 5] = ["self", "parent", "root", "other", "c"];
    for old in NAMES {
        for new_name in NAMES.into_iter().chain(["new"]) {
            for mode in [RenameMode::Replace, RenameMode::Exchange] {
                let volume = hostile.open();
                let (b, root) = (volume.resolve("/a/b").unwrap(), volume.root().unwrap());
                for to in ["/a/b", "/", "/d", "/a/b/c"] {
                    let to = volume.resolve(to);
                    let Ok(to) = to else { continue };
                    let _ = b.rename(old.as_bytes(), &to, new_name.as_bytes(), mode);
                }
                let _ = root.rename(b"a", &b, new_name.as_bytes(), mode);
                let _ = b.rmdir(old.as_bytes());
                let _ = b.lookup(new_name.as_bytes()).and_then(|dir| dir.rmdir(b"c"));
                let _ = listed(&b);
                drop((b, root));
                let _ = volume.close();
            }
        }
    }
}

#[test]
fn a_name_that_is_there_twice_leads_to_the_inode_that_its_removal_removes() {
    let made = Hostile::new(|volume| {
        volume.create_dir("/dir", 0o755).unwrap();
        ["/dir/one", "/dir/two"].iter().for_each(|path| drop(volume.create_file(path).unwrap()));
    });
    let Some(mut hostile) = made else { return };
    let n = hostile.blocks("/dir")[0];
    let block = hostile.block(n);
    let at = block.windows(3).position(|bytes| bytes == b"two").unwrap();
    block[at..at + 3].copy_from_slice(b"one");
    let volume = hostile.open();
    let dir = volume.resolve("/dir").unwrap();
    let batch = dir.read_dir_after(0).unwrap();
    let twice: Vec<_> = (0..batch.len()).filter(|&nth| batch[nth].name() == b"one").collect();
    assert_eq!(twice.len(), 2);
    let first = dir.lookup(b"one").unwrap();
    for nth in twice {
        assert_eq!(batch[nth].inode_ref().unwrap().ino(), first.ino());
    }
    for entry in volume.read_dir("/dir").unwrap() {
        assert_eq!(entry.unwrap().inode_ref().unwrap().ino(), first.ino());
    }
    dir.unlink(b"one").unwrap();
    assert_eq!(first.metadata().links, 0);
}

#[test]
fn a_walk_reports_a_directory_that_contains_itself() {
    let Some(mut hostile) = Hostile::new(|volume| {
        volume.create_dir_all("/a/b/c", 0o755).unwrap();
        volume.write("/a/b/file", "text").unwrap();
    }) else {
        return;
    };
    let ino = hostile.open_read_only().metadata("/a").unwrap().ino;
    let block = hostile.blocks("/a/b")[0];
    dir_entry::set_inode(hostile.block(block), false, b"c", ino, FileType::Directory.dirent_type()).unwrap();
    let volume = hostile.open();
    let (found, failed): (Vec<_>, Vec<_>) = volume.walk("/a").unwrap().partition(|entry| entry.is_ok());
    let paths: BTreeSet<_> = found.into_iter().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(paths, ["/a/b", "/a/b/file"].map(PathBuf::from).into());
    assert!(matches!(&failed[..], [Err(Error::Loop(path))] if path.starts_with("/a/b/c:")), "{failed:?}");
    assert_fails!(volume.remove_dir_all("/a"), Loop);
}

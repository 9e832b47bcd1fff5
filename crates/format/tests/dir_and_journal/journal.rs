//! Journals that `debugfs` writes, and one that this crate writes and `debugfs` reads.

use parext4_format::FsBlock;
use parext4_format::jbd2::{self, BlockType, JournalSuperblock, Tag, TagFormat};

use crate::image::{BLOCK, Image};

/// `jo` takes `-c -v N` for checksums.
const OPEN: [&str; 3] = ["jo", "jo -c -v 2", "jo -c -v 3"];
/// The inode of the journal.
const JOURNAL: &str = "<8>";

/// An image with one transaction in its journal: two data blocks, the second to be escaped, and a
/// revoke.
fn image(open: &str) -> Option<(Image, [Vec<u8>; 2])> {
    let image = Image::new(&[])?;
    let plain = vec![0x5a; BLOCK];
    let escaped = [&jbd2::MAGIC.to_be_bytes()[..], &[7; BLOCK - 4]].concat();
    let data = image.scratch("data");
    std::fs::write(&data, [plain.clone(), escaped.clone()].concat()).unwrap();
    image.debugfs(&format!("{open}\njw -b 5000,5001 {}\njw -r 6000,6001\njc\n", data.display()));
    Some((image, [plain, escaped]))
}

#[test]
fn journals_of_debugfs() {
    for open in OPEN {
        let Some((image, data)) = image(open) else { return };
        let journal = image.contents(JOURNAL);
        let blocks: Vec<&[u8]> = journal.chunks(BLOCK).collect();
        let superblock = JournalSuperblock::parse(blocks[0]).unwrap();
        superblock.check(1024, blocks.len() as u64).unwrap();
        assert_eq!(superblock.unsupported(), None);
        let mut again = vec![0; BLOCK];
        superblock.encode(&mut again);
        assert!(again == blocks[0], "{open}: the superblock is encoded otherwise");
        let log = &blocks[superblock.start() as usize..];
        check_log(log, &superblock, &data);
    }
}

/// Checks the two transactions of the log, and encodes their blocks again.
fn check_log(log: &[&[u8]], superblock: &JournalSuperblock, data: &[Vec<u8>; 2]) {
    let (format, seed) = (TagFormat::from(superblock), superblock.checksum_seed());
    let sequence = superblock.sequence();
    let (mut tags, mut revoked, mut commits) = (Vec::new(), Vec::new(), 0);
    let mut at = 0;
    while let Some((kind, found)) = jbd2::header(log[at]) {
        let block = log[at];
        at += 1;
        assert_eq!(found, sequence + commits);
        match kind {
            BlockType::Descriptor => {
                let list = jbd2::parse_descriptor(block, format).unwrap();
                for (tag, data) in list.iter().zip(data) {
                    check_data(log[at], data, tag, format, (seed, found));
                    at += 1;
                }
                check_descriptor(block, format, (seed, found), &list);
                tags.extend(list.into_iter().map(|tag| tag.block.get()));
            }
            BlockType::Revoke => {
                let list = jbd2::parse_revoke(block, format).unwrap();
                let mut again = vec![0; BLOCK];
                jbd2::encode_revoke(&mut again, format, found, seed, &list);
                assert!(again == block, "{format:?}: the revoke block is encoded otherwise");
                revoked.extend(list);
            }
            BlockType::Commit => {
                let (seconds, nanos) = jbd2::commit_time(block).unwrap();
                let mut again = vec![0; BLOCK];
                jbd2::encode_commit(&mut again, format, found, seed, seconds, nanos);
                assert!(again == block, "{format:?}: the commit block is encoded otherwise");
                commits += 1;
            }
            other => panic!("{other:?} in the log"),
        }
    }
    assert_eq!(tags, [5000, 5001]);
    assert_eq!(revoked, [FsBlock(6000), FsBlock(6001)]);
    assert_eq!(commits, 2);
}

/// Checks a descriptor without the UUID, which `debugfs` writes after the last tag instead of the
/// first.
fn check_descriptor(block: &[u8], format: TagFormat, (seed, sequence): (u32, u32), tags: &[Tag]) {
    let mut again = vec![0; BLOCK];
    jbd2::encode_descriptor(&mut again, format, sequence, seed, &[0; 16], tags);
    let end = BLOCK - again.iter().rev().skip(4).position(|&byte| byte != 0).unwrap() - 4;
    assert!(end > 12 + 16 + 2 * 8);
    assert_eq!(again[..end], block[..end], "{format:?}");
    if format.has_checksums() {
        jbd2::verify_descriptor(seed, block).unwrap();
    }
}

fn check_data(logged: &[u8], data: &[u8], tag: &Tag, format: TagFormat, (seed, sequence): (u32, u32)) {
    assert_eq!(tag.escaped, jbd2::needs_escape(data));
    let expected = if tag.escaped { [&[0; 4], &data[4..]].concat() } else { data.to_vec() };
    assert!(logged == expected);
    assert!(jbd2::tag_checksum_matches(tag, format, seed, sequence, logged));
}

#[test]
fn an_area_of_fast_commits_before_the_first_block_leaves_no_room() {
    for (first, has_room) in [(1, true), (1073, true), (1074, false), (3000, false)] {
        let mut block = vec![0; 1024];
        // Magic, type, blocksize, maxlen, first, sequence; s_num_fc_blocks.
        let fields =
            [(0, 0xc03b_3998_u32), (4, 4), (12, 1024), (16, 4096), (20, first), (24, 1), (0x54, 2000)];
        for (at, value) in fields {
            block[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        let superblock = JournalSuperblock::parse(&block).unwrap();
        assert_eq!(superblock.has_room_for_fast_commits(), has_room, "{first}");
    }
}

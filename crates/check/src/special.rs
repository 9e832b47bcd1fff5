//! Devices, FIFOs and sockets: they have no size and no blocks.

use std::ops::Range;

use parext4_format::InodeNo;
use parext4_format::inode::{FileType, Inode, InodeFlags};

use crate::entries::Walk;
use crate::problem::{
    PR_1_SET_NONZSIZE, PR_1_TREAT_AS_DIRECTORY, PR_2_BAD_BLOCK_DEV, PR_2_BAD_CHAR_DEV, PR_2_BAD_FIFO,
    PR_2_BAD_SOCKET, PR_2_READ_DIRBLOCK, Problem,
};
use crate::volume::Volume;

/// Bytes of `i_block` after the numbers of a device.
const AFTER_DEVICE: Range<usize> = 16..60;
/// Bytes of `i_size_high`.
const SIZE_HIGH: Range<usize> = 108..112;

/// Returns true for a file that has no contents.
pub(crate) fn is_special(inode: &Inode) -> bool {
    !matches!(inode.file_type(), FileType::Regular | FileType::Directory | FileType::Symlink)
}

/// Checks a special file, whose bytes in the table are `bytes`. Passes each wrong field to `fail`.
pub(crate) fn check(
    volume: &Volume<'_>,
    ino: InodeNo,
    inode: &Inode,
    bytes: &[u8],
    fail: &dyn Fn(&'static str, String, Problem),
) {
    let is_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    if inode.size != 0 || !is_zero(&bytes[SIZE_HIGH]) {
        fail("i_size", format!("{} in a special file", inode.size), PR_1_SET_NONZSIZE);
    }
    let has_flag_of_files = inode.flags.intersects(InodeFlags::INDEX | InodeFlags::EXTENTS);
    // The kernel does not clear the rest of `i_block`, but nothing can set these flags of a special
    // file.
    let is_flagged = inode.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
    let has_blocks = is_flagged && !is_zero(&inode.block[AFTER_DEVICE]);
    if has_flag_of_files || has_blocks {
        let problem = match inode.file_type() {
            FileType::CharDevice => PR_2_BAD_CHAR_DEV,
            FileType::BlockDevice => PR_2_BAD_BLOCK_DEV,
            FileType::Fifo => PR_2_BAD_FIFO,
            _ => PR_2_BAD_SOCKET,
        };
        fail("i_block", "has blocks of a file".to_owned(), problem);
    }
    if is_directory(volume, ino, inode) {
        fail("i_mode", "a special file with the blocks of a directory".to_owned(), PR_1_TREAT_AS_DIRECTORY);
    }
}

/// Returns true if the first block begins with `.` of this inode, and `..`. The number of a device
/// may look like that of a block.
fn is_directory(volume: &Volume<'_>, ino: InodeNo, inode: &Inode) -> bool {
    let words: Vec<u64> = inode
        .block
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]).into())
        .collect();
    let block = if inode.flags.contains(InodeFlags::EXTENTS) {
        // The first extent of a root that is a leaf.
        if inode.block[..2] == [0x0a, 0xf3] { words[5] } else { 0 }
    } else {
        let is_device = matches!(inode.file_type(), FileType::CharDevice | FileType::BlockDevice);
        let may_be_numbers = is_device && inode.links == 1 && words[4..].iter().all(|&word| word == 0);
        let all_exist = words.iter().all(|&word| word == 0 || volume.has_blocks(word, 1));
        if may_be_numbers || !all_exist { 0 } else { words[0] }
    };
    if block == 0 || !volume.has_blocks(block, 1) {
        return false;
    }
    let mut buf = volume.buffer(1);
    if !volume.read(block, &mut buf, "directory block", PR_2_READ_DIRBLOCK) {
        return false;
    }
    let mut entries = Walk::new(&buf, volume.block_size);
    let dot = entries.next().and_then(Result::ok);
    let dotdot = entries.next().and_then(Result::ok);
    dot.is_some_and(|entry| entry.name == b"." && entry.ino == ino)
        && dotdot.is_some_and(|entry| entry.name == b"..")
}

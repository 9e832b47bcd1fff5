//! Finds the structures of a log.

use parext4_format::jbd2::{JournalSuperblock, TagFormat};

use super::fields;
use super::finder::Finder;
use super::holder::{Holder, Tag};
use super::seal::Seal;
use super::structure::Class;

/// The header of each block of a log but the logged ones.
const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
/// Types in the header.
const DESCRIPTOR: u8 = 1;
const COMMIT: u8 = 2;
/// The most bytes of fast commits.
const MOST: usize = 256 << 10;

/// Adds the structures of the journal in `blocks`. Copies are added of the structures that were
/// found before.
pub fn add(finder: &mut Finder<'_>, blocks: &[u64]) {
    let Some((at, first)) = blocks.first().and_then(|block| finder.block(*block)) else { return };
    let Ok(superblock) = JournalSuperblock::parse(first) else { return };
    finder.add(Class::Journal, at, 1024, fields::journal_superblock(), Seal::JournalSuperblock);
    let seed = superblock.checksum_seed();
    for (nth, block) in blocks.iter().enumerate().skip(1) {
        let Some((at, bytes)) = finder.block(*block) else { continue };
        if bytes[..4] != MAGIC {
            continue;
        }
        let seal = if bytes[7] == COMMIT { Seal::Commit(seed) } else { Seal::JournalTail(seed) };
        finder.add(Class::Journal, at, bytes.len(), fields::journal_block(), seal);
        if bytes[7] == DESCRIPTOR {
            logged(finder, TagFormat::from(&superblock), seed, at, &blocks[nth + 1..]);
        }
    }
    let area = superblock.fast_commit_blocks();
    let Some((at, first)) = blocks.get(area.start as usize).and_then(|block| finder.block(*block)) else {
        return;
    };
    let len = (area.len() * first.len()).min(MOST);
    if let Some(bytes) = finder.image.get(at..at + len) {
        finder.add(Class::FastCommit, at, len, fields::fast_commits(bytes), Seal::FastCommit);
    }
}

/// Adds the copies in the blocks of the log after the descriptor at `descriptor`.
fn logged(finder: &mut Finder<'_>, format: TagFormat, seed: u32, descriptor: usize, after: &[u64]) {
    let len = finder.block_size();
    let bytes = &finder.image[descriptor..descriptor + len];
    let sequence = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    for ((offset, home), copy) in fields::tags(bytes, format).into_iter().zip(after) {
        let (Some((home, _)), Some((copy, _))) = (finder.block(home), finder.block(*copy)) else { continue };
        let (at, descriptor) = ((copy as u64, len), descriptor as u64);
        finder.add_copies(home, copy, &Holder::Tag(Tag { at, descriptor, offset, format, seed, sequence }));
    }
}

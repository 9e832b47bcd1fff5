//! Finds the structures of a log.

use parext4_format::jbd2::JournalSuperblock;

use super::fields;
use super::finder::Finder;
use super::seal::Seal;
use super::structure::Class;

/// The header of each block of a log but the logged ones.
const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
/// The most bytes of fast commits.
const MOST: usize = 256 << 10;

/// Adds the structures of the journal in `blocks`.
pub fn add(finder: &mut Finder<'_>, blocks: &[u64]) {
    let Some((at, first)) = blocks.first().and_then(|block| finder.block(*block)) else { return };
    let Ok(superblock) = JournalSuperblock::parse(first) else { return };
    finder.add(Class::Journal, at, 1024, fields::journal_superblock(), Seal::JournalSuperblock);
    let seed = superblock.checksum_seed();
    for (at, bytes) in blocks.iter().skip(1).filter_map(|block| finder.block(*block)).collect::<Vec<_>>() {
        if bytes[..4] == MAGIC {
            let seal = if bytes[7] == 2 { Seal::Commit(seed) } else { Seal::JournalTail(seed) };
            finder.add(Class::Journal, at, bytes.len(), fields::journal_block(), seal);
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

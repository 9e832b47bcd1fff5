//! Recovery from logs that this program does not write: of old journals, and hostile ones. The logs
//! are built by hand, and none may do harm (I9).

use std::process::Command;
use std::sync::Arc;

use parext4::{Device, Error, FileSize, MemDevice, Volume, VolumeOptions, replay_journal};
use parext4_format::extent::{self, Extent};
use parext4_format::features::{Incompat, RoCompat};
use parext4_format::group_desc::GroupDesc;
use parext4_format::inode::Inode;
use parext4_format::jbd2::{self, JournalCompat, JournalIncompat, JournalSuperblock, Tag, TagFormat};
use parext4_format::superblock::Superblock;
use parext4_format::{FileBlock, FsBlock, GroupNo, InodeNo};

use testkit::volume::{DirectFiles as _, Shape, assert_clean, journal_offset, recover, untimed};
use testkit::{Image, tool};

const BLOCK: usize = 4096;
/// Blocks of the volumes.
const BLOCKS: u64 = 4096;
/// A free block of the volume.
const FREE: u64 = BLOCKS - 2;

/// Defects of a superblock.
type Change = fn(&mut Superblock);

/// A volume whose log is being built.
struct Log {
    image: Vec<u8>,
    superblock: Superblock,
    journal: JournalSuperblock,
    /// The journal's first block on the volume. Its blocks are contiguous.
    at: usize,
    /// The next block of the log.
    head: usize,
    sequence: u32,
    /// [`jbd2::crc32_be`] of the transaction so far.
    crc32: u32,
}

impl Log {
    /// Makes an empty log of a journal with the first kind of checksum.
    fn new() -> Self {
        let image = Shape::new(16, 4096, true).make().snapshot();
        let superblock = Superblock::parse(&image[1024..2048]).unwrap();
        let is_superblock = |block: &[u8]| block[..8] == [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
        let at = image.chunks(BLOCK).position(is_superblock).unwrap();
        let mut journal = JournalSuperblock::parse(&image[at * BLOCK..]).unwrap();
        journal.set_incompat(JournalIncompat::REVOKE);
        journal.set_compat(JournalCompat::CHECKSUM);
        let (head, sequence) = (journal.first() as usize, journal.sequence());
        Self { image, superblock, journal, at, head, sequence, crc32: !0 }
    }

    fn block(&self, number: u64) -> &[u8] {
        &self.image[usize::try_from(number).unwrap() * BLOCK..][..BLOCK]
    }

    fn append(&mut self, block: &[u8]) {
        let at = (self.at + self.head) * BLOCK;
        self.image[at..at + BLOCK].copy_from_slice(block);
        self.head += 1;
    }

    /// Logs new contents of a block of the volume.
    fn log(&mut self, number: u64, contents: &[u8]) {
        let mut descriptor = vec![0; BLOCK];
        let tag = Tag { block: FsBlock(number), escaped: false, deleted: false, checksum: 0 };
        let format = TagFormat::default();
        jbd2::encode_descriptor(&mut descriptor, format, self.sequence, 0, &self.journal.uuid(), &[tag]);
        for block in [&descriptor, contents] {
            self.append(block);
            self.crc32 = jbd2::crc32_be(self.crc32, block);
        }
    }

    /// Ends the transaction.
    fn commit(&mut self) {
        self.commit_at(1, 0);
    }

    /// Ends the transaction at a time in seconds, with a checksum that is off by `wrong`.
    fn commit_at(&mut self, seconds: u64, wrong: u32) {
        let mut commit = vec![0; BLOCK];
        jbd2::encode_commit(&mut commit, TagFormat::default(), self.sequence, 0, seconds, 0);
        commit[12..14].copy_from_slice(&[1, 4]);
        commit[16..20].copy_from_slice(&(self.crc32 ^ wrong).to_be_bytes());
        self.append(&commit);
        self.sequence += 1;
        self.crc32 = !0;
    }

    /// Returns the volume as a crash leaves it.
    fn finish(mut self, sequence: u32) -> Arc<MemDevice> {
        self.journal.set_start(self.journal.first());
        self.journal.set_sequence(sequence);
        self.journal.encode(&mut self.image[self.at * BLOCK..]);
        self.superblock.set_incompat(self.superblock.incompat() | Incompat::RECOVER);
        self.superblock.encode(&mut self.image[1024..2048]);
        Arc::new(MemDevice::from_bytes(self.image))
    }
}

fn open(device: &Arc<MemDevice>, options: &VolumeOptions) -> Result<Volume, Error> {
    Volume::open_device(Arc::new(device.fork()) as Arc<dyn Device>, options)
}

/// Returns the result of opening, which must be the same with a replay in memory.
fn refusal(device: &Arc<MemDevice>) -> String {
    let [error, read_only] =
        [untimed(), VolumeOptions::new().read_only(true)].map(|options| match open(device, &options) {
            Ok(_) => panic!("the volume opens: {options:?}"),
            Err(error) => error.to_string(),
        });
    assert_eq!(read_only, error);
    error
}

/// Returns a log whose second transaction has a bad checksum, and further ones none.
fn with_bad_crc32(seconds: u64, features: JournalIncompat, further: u64) -> Arc<MemDevice> {
    let mut log = Log::new();
    log.journal.set_incompat(log.journal.incompat() | features);
    let first = log.sequence;
    log.log(FREE, &[1; BLOCK]);
    log.log(FREE + 1, &[1; BLOCK]);
    log.commit_at(10, 0);
    log.log(FREE, &[2; BLOCK]);
    log.commit_at(seconds, 1);
    for nth in 0..further {
        log.log(FREE, &[3; BLOCK]);
        log.commit_at(seconds + nth, 0);
    }
    log.finish(first)
}

/// The first case is a block of an older log, and the second a crash, as jbd2 assumes.
#[test]
fn the_log_ends_where_an_old_or_interrupted_transaction_has_a_bad_crc32() {
    let none = JournalIncompat::empty();
    for (seconds, features, further) in [(9, none, 2), (10, JournalIncompat::ASYNC_COMMIT, 0)] {
        let device = with_bad_crc32(seconds, features, further);
        drop(open(&device, &VolumeOptions::new().read_only(true)).unwrap());

        let done = replay_journal(Arc::clone(&device) as Arc<dyn Device>).unwrap();
        assert_eq!((done.transactions, done.blocks), (1, 2));
        let home = usize::try_from(FREE).unwrap() * BLOCK;
        let image = device.snapshot();
        assert_eq!(image[home..home + 2 * BLOCK], [1; 2 * BLOCK]);
        // No later recovery may continue with a block of the old log.
        let at = usize::try_from(journal_offset(&device)).unwrap();
        let next = JournalSuperblock::parse(&image[at..]).unwrap().sequence();
        let mut headers = image[at + BLOCK..].chunks(BLOCK).map_while(jbd2::header);
        assert!(headers.all(|(_, sequence)| sequence + 1 < next), "{next}");
    }
}

/// As in jbd2. Without `ASYNC_COMMIT` the blocks of a transaction are durable before its commit
/// block is written.
#[test]
fn a_bad_crc32_that_no_crash_leaves_is_refused() {
    let none = JournalIncompat::empty();
    for (features, further) in [(none, 0), (none, 1), (JournalIncompat::ASYNC_COMMIT, 1)] {
        let device = with_bad_crc32(10, features, further);
        let before = device.snapshot();
        assert!(refusal(&device).contains("bad checksum"), "{features:?} {further}");
        assert!(replay_journal(Arc::clone(&device) as Arc<dyn Device>).is_err());
        assert!(device.snapshot() == before, "{features:?} {further}: something was written");
    }
}

/// jbd2 refuses a journal with two kinds of checksum.
#[test]
fn a_journal_ends_up_with_one_kind_of_checksum() {
    let log = Log::new();
    let (first, at) = (log.sequence, log.at * BLOCK);
    let device = log.finish(first);
    recover(&device);
    let journal = JournalSuperblock::parse(&device.snapshot()[at..]).unwrap();
    assert!(journal.incompat().contains(JournalIncompat::CSUM_V3));
    assert!(journal.compat().is_empty());
    assert_clean(&device, "after recovery");
}

#[test]
fn a_log_that_writes_over_itself_is_refused() {
    for block in [0, 1, 5, 1023] {
        let mut log = Log::new();
        let first = log.sequence;
        log.log(FREE, &[1; BLOCK]);
        log.log(log.at as u64 + block, &[1; BLOCK]);
        log.commit();
        let device = log.finish(first);
        let before = device.snapshot();
        assert!(refusal(&device).contains("the journal's own"), "block {block}");
        assert!(replay_journal(Arc::clone(&device) as Arc<dyn Device>).is_err());
        assert!(device.snapshot() == before, "block {block}: something was written");
    }
}

#[test]
fn a_journal_whose_extents_overlap_is_refused() {
    let mut log = Log::new();
    let first = log.sequence;
    let desc = GroupDesc::parse(log.block(1), &log.superblock, GroupNo(0)).unwrap();
    let size = usize::from(log.superblock.inode_size());
    let at = usize::try_from(desc.inode_table.get()).unwrap() * BLOCK + 7 * size;
    let mut inode = Inode::parse(&log.image[at..at + size], &log.superblock, InodeNo::JOURNAL).unwrap();
    let extent = |logical, physical: usize, len| Extent {
        logical: FileBlock(logical),
        physical: FsBlock(physical as u64),
        len,
        unwritten: false,
    };
    extent::encode_leaf(&mut inode.block, &[extent(0, log.at, 600), extent(600, log.at + 599, 424)]);
    inode.encode(&mut log.image[at..at + size], &log.superblock, InodeNo::JOURNAL);
    assert!(refusal(&log.finish(first)).contains("appears twice"));
}

#[test]
fn a_journal_too_short_for_jbd2_is_refused() {
    let mut log = Log::new();
    let first = log.sequence;
    log.journal = JournalSuperblock::new(4096, 1023, 1, &log.journal.uuid());
    assert!(refusal(&log.finish(first)).contains("s_maxlen"));
}

/// A crash during an online resize by the kernel, before the superblock is logged.
#[test]
fn blocks_past_the_end_of_the_volume_are_replayed_if_the_device_has_them() {
    let mut log = Log::new();
    let first = log.sequence;
    let past = log.image.len();
    log.image.resize(past + 2 * BLOCK, 0);
    log.log(BLOCKS + 1, &[1; BLOCK]);
    log.commit();
    let device = log.finish(first);
    drop(open(&device, &VolumeOptions::new().read_only(true)).unwrap());
    recover(&device);
    assert_eq!(device.snapshot()[past..], [[0; BLOCK], [1; BLOCK]].concat());

    let mut log = Log::new();
    log.log(BLOCKS, &[1; BLOCK]);
    log.commit();
    assert!(refusal(&log.finish(first)).contains("out of range"));
}

/// The log of a crash after an online resize: all blocks that resize2fs changes, and the home
/// blocks are the old ones.
#[test]
fn a_volume_grows_by_a_replay() {
    let mut log = Log::new();
    let first = log.sequence;
    log.image.resize(136 << 20, 0);
    let old = log.image.clone();
    let image = Image::of(&MemDevice::from_bytes(old.clone()));
    let Some(resized) = tool(Command::new("resize2fs").arg("-f").arg(image.path())) else { return };
    assert!(resized.status.success(), "{resized:?}");
    let mut grown = image.load().snapshot();
    let mut superblock = Superblock::parse(&grown[1024..2048]).unwrap();
    superblock.set_incompat(superblock.incompat() | Incompat::RECOVER);
    superblock.encode(&mut grown[1024..2048]);
    for (number, (old, new)) in (0..).zip(old.chunks(BLOCK).zip(grown.chunks(BLOCK))) {
        if old != new {
            log.log(number, new);
        }
    }
    log.commit();
    let device = log.finish(first);
    let space = open(&device, &VolumeOptions::new().read_only(true)).unwrap().space();
    recover(&device);
    assert_eq!(open(&device, &untimed()).unwrap().space(), space);
    let recovered = Superblock::parse(&device.snapshot()[1024..2048]).unwrap();
    assert_eq!(recovered.blocks_count(), (136 << 20) / BLOCK as u64);
    assert_clean(&device, "after the replay");
}

/// A log may hold the superblock. A hostile log may hold one that opening would have refused.
#[test]
fn a_logged_superblock_is_checked_like_any_superblock() {
    let changes: [(&str, Change); 4] = [
        ("0x80000000", |sb| sb.set_incompat(sb.incompat() | Incompat::from_bits_retain(1 << 31))),
        ("its device only", |sb| sb.raw_mut().s_blocks_count_lo.set(8000)),
        ("s_blocks_count", |sb| sb.raw_mut().s_blocks_count_lo.set(4000)),
        ("s_journal_inum", |sb| sb.raw_mut().s_journal_inum.set(0)),
    ];
    for (expected, change) in changes {
        let error = refusal(&with_logged_superblock(change));
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let device = with_logged_superblock(|sb| sb.set_ro_compat(sb.ro_compat() | RoCompat::READONLY));
    assert!(matches!(open(&device, &untimed()), Err(Error::ReadOnly(_))));
    assert!(open(&device, &VolumeOptions::new().read_only(true)).is_ok());
}

fn with_logged_superblock(change: Change) -> Arc<MemDevice> {
    let mut log = Log::new();
    let first = log.sequence;
    let mut superblock = log.superblock.clone();
    superblock.set_incompat(superblock.incompat() | Incompat::RECOVER);
    change(&mut superblock);
    let mut block = log.block(0).to_vec();
    superblock.encode(&mut block[1024..2048]);
    log.log(0, &block);
    log.commit();
    log.finish(first)
}

/// A crash under the kernel leaves stale sums in the superblock.
#[test]
fn stale_totals_are_summed_up_anew() {
    let sound = Shape::new(16, 4096, true).make();
    let space = open(&Arc::new(sound.fork()), &untimed()).unwrap().space();
    for (blocks, inodes) in [(0, 0), (1, 1), (space.blocks, space.inodes)] {
        let mut image = sound.snapshot();
        let mut superblock = Superblock::parse(&image[1024..2048]).unwrap();
        superblock.set_free_blocks(blocks);
        superblock.set_free_inodes(inodes);
        superblock.encode(&mut image[1024..2048]);
        let device = Arc::new(MemDevice::from_bytes(image));
        assert_eq!(open(&device, &VolumeOptions::new().read_only(true)).unwrap().space(), space);
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
        assert_eq!(volume.space(), space);
        volume.create_direct("/file").unwrap().allocate(0..1 << 20, FileSize::Extend).unwrap();
        let left = volume.space();
        assert_eq!((left.free_blocks, left.free_inodes), (space.free_blocks - 256, space.free_inodes - 1));
        volume.close().unwrap();
        assert_clean(&device, "with totals that were stale");
    }
}

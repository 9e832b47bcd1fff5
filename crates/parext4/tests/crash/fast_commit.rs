//! Fast commits, built by hand: crashes while they are replayed, and hostile ones (I9).

use std::sync::Arc;

use parext4::device::RecordingDevice;
use parext4::{Device, Error, FileType, MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs, replay_journal};
use parext4_format::checksum::crc32c;
use parext4_format::features::Compat;
use parext4_format::group_desc::GroupDesc;
use parext4_format::inode::{Inode, InodeFlags};
use parext4_format::jbd2::{JournalIncompat, JournalSuperblock};
use parext4_format::superblock::Superblock;
use parext4_format::{GroupNo, InodeNo};

use testkit::crash_states::{CrashState, for_each_crash_state};
use testkit::rng::Rng;
use testkit::volume::{assert_clean, journal_offset, untimed};

const BLOCK: usize = 4096;
const JOURNAL: u32 = 1100;
/// Blocks for fast commits.
const AREA: u32 = 64;
/// A block and inodes that are free on the volume.
const FREE: u32 = 4000;
const NEW_FILE: u32 = 200;
const NEW_DIR: u32 = 201;

// The types of tags.
const ADD_RANGE: u16 = 1;
const DEL_RANGE: u16 = 2;
const CREATE: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// A volume that crashed with a log, and its area of fast commits as it is being written.
struct Area {
    image: Vec<u8>,
    /// The volume after the log is replayed.
    replayed: Vec<u8>,
    superblock: Superblock,
    journal_at: usize,
    /// The transaction after the last one of the log.
    tid: u32,
    area: Vec<u8>,
    /// The start of the fast commit.
    start: usize,
    /// Inodes of the volume: `/kept`, `/gone` and `/cut`, which has two blocks.
    files: [u32; 3],
}

impl Area {
    fn new() -> Self {
        let device = MemDevice::new(16 << 20);
        mkfs(&device, &MkfsOptions::new().block_size(4096).journal_blocks(JOURNAL).device_is_zero(true))
            .unwrap();
        let journal_at = usize::try_from(journal_offset(&device)).unwrap();
        let mut image = device.snapshot();
        let mut superblock = Superblock::parse(&image[1024..2048]).unwrap();
        superblock.set_compat(superblock.compat() | Compat::FAST_COMMIT);
        superblock.encode(&mut image[1024..2048]);
        let mut journal = JournalSuperblock::parse(&image[journal_at..]).unwrap();
        journal.set_fast_commit_blocks(AREA);
        journal.encode(&mut image[journal_at..]);

        let device = Arc::new(MemDevice::from_bytes(image));
        let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
        let files = ["/kept", "/gone", "/cut"].map(|path| {
            volume.write(path, [7; 2 * BLOCK]).unwrap();
            volume.metadata(path).unwrap().ino.get()
        });
        volume.sync().unwrap();
        volume.abort().unwrap();
        drop(volume);
        let replayed = Arc::new(device.fork());
        let transactions = replay_journal(Arc::clone(&replayed) as Arc<dyn Device>).unwrap().transactions;
        let (image, replayed) = (device.snapshot(), replayed.snapshot());
        let tid = JournalSuperblock::parse(&image[journal_at..]).unwrap().sequence() + transactions;
        let (area, start) = (Vec::new(), 0);
        let mut area = Self { image, replayed, superblock, journal_at, tid, area, start, files };
        area.tag(HEAD, &[0, tid].map(u32::to_le_bytes).concat());
        area
    }

    fn tag(&mut self, kind: u16, value: &[u8]) {
        self.area.extend(kind.to_le_bytes());
        self.area.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
        self.area.extend(value);
    }

    fn numbers(&mut self, kind: u16, numbers: &[u32]) {
        let value: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.tag(kind, &value);
    }

    fn name(&mut self, kind: u16, parent: u32, ino: u32, name: &[u8]) {
        self.tag(kind, &[&parent.to_le_bytes()[..], &ino.to_le_bytes(), name].concat());
    }

    /// Logs an inode: of an existing one the attributes that change, or a new one.
    fn inode(&mut self, ino: u32, mode: u16, size: u64, links: u16) {
        let desc = GroupDesc::parse(&self.replayed[BLOCK..2 * BLOCK], &self.superblock, GroupNo(0)).unwrap();
        let table = usize::try_from(desc.inode_table.get()).unwrap() * BLOCK;
        let found = (1..1000).contains(&ino).then(|| table + (ino as usize - 1) * 256);
        let found = found
            .and_then(|at| Inode::parse(&self.replayed[at..at + 256], &self.superblock, InodeNo(ino)).ok());
        let mut inode = found.unwrap_or_else(|| Inode::new(mode, &self.superblock));
        (inode.mode, inode.size, inode.links, inode.flags) = (mode, size, links, InodeFlags::EXTENTS);
        let mut bytes = vec![0; 256];
        inode.encode(&mut bytes, &self.superblock, InodeNo(ino));
        self.tag(INODE, &[&ino.to_le_bytes()[..], &bytes[..160]].concat());
    }

    fn add_range(&mut self, ino: u32, logical: u32, len: u16, physical: u32) {
        self.numbers(ADD_RANGE, &[ino, logical, len.into(), physical]);
    }

    /// Ends the fast commit and its block.
    fn tail(&mut self) {
        let rest = BLOCK - self.area.len() % BLOCK - 4;
        self.area.extend(TAIL.to_le_bytes());
        self.area.extend(u16::try_from(rest).unwrap().to_le_bytes());
        self.area.extend(self.tid.to_le_bytes());
        let crc = crc32c(0, &self.area[self.start..]);
        self.area.extend(crc.to_le_bytes());
        self.area.resize(self.area.len().next_multiple_of(BLOCK), 0);
        self.start = self.area.len();
    }

    /// Returns the volume as a crash leaves it.
    fn finish(mut self) -> MemDevice {
        // One block between the log and the area is not used.
        let at = self.journal_at + (JOURNAL - AREA + 1) as usize * BLOCK;
        self.image[at..at + self.area.len()].copy_from_slice(&self.area);
        MemDevice::from_bytes(self.image)
    }

    /// Two fast commits with changes of every kind.
    fn all_kinds() -> MemDevice {
        let mut area = Self::new();
        let [kept, gone, cut] = area.files;
        for block in 0..2 {
            let at = (FREE + block) as usize * BLOCK;
            area.image[at..at + BLOCK].fill(b'a');
        }
        area.inode(NEW_FILE, 0o100_640, 2 * BLOCK as u64, 1);
        area.add_range(NEW_FILE, 0, 2, FREE);
        area.name(CREATE, 2, NEW_FILE, b"new");
        area.inode(NEW_DIR, 0o040_755, BLOCK as u64, 2);
        area.name(CREATE, 2, NEW_DIR, b"dir");
        area.name(UNLINK, 2, gone, b"gone");
        area.tail();
        area.name(LINK, NEW_DIR, kept, b"link");
        area.numbers(DEL_RANGE, &[cut, 1, 100]);
        area.inode(cut, 0o100_600, BLOCK as u64, 1);
        area.inode(kept, 0o100_755, 2 * BLOCK as u64, 2);
        area.tail();
        // Not complete.
        area.name(UNLINK, 2, kept, b"kept");
        area.finish()
    }
}

fn open(image: &MemDevice, options: &VolumeOptions) -> Result<Volume, Error> {
    Volume::open_device(Arc::new(image.fork()) as Arc<dyn Device>, options)
}

fn assert_replayed(volume: &Volume, what: &str) {
    let mode = |path| volume.metadata(path).map(|found| (found.permissions, found.links, found.size));
    let all = (mode("/new"), mode("/kept"), mode("/dir/link"), mode("/cut"), mode("/gone").is_err());
    let (new, kept, link, cut, gone) = all;
    assert_eq!(new.unwrap(), (0o640, 1, 2 * BLOCK as u64), "{what}");
    assert_eq!(kept.unwrap(), (0o755, 2, 2 * BLOCK as u64), "{what}");
    assert_eq!(link.unwrap(), (0o755, 2, 2 * BLOCK as u64), "{what}");
    assert_eq!(cut.unwrap(), (0o600, 1, BLOCK as u64), "{what}");
    assert!(gone, "{what}");
    for (path, len, byte) in [("/new", 2 * BLOCK, b'a'), ("/kept", 2 * BLOCK, 7), ("/cut", BLOCK, 7)] {
        let contents = volume.read(path).unwrap();
        let other = contents.iter().position(|&found| found != byte);
        assert_eq!((contents.len(), other), (len, None), "{what}: {path}");
    }
    assert_eq!(volume.metadata("/").unwrap().links, 4, "{what}: /, lost+found and /dir");
    assert_eq!(volume.metadata("/dir").unwrap().file_type, FileType::Directory, "{what}");
}

#[test]
fn fast_commits_are_replayed_after_every_crash_of_the_replay() {
    let base = Area::all_kinds();
    assert_replayed(&open(&base, &VolumeOptions::new().read_only(true)).unwrap(), "in memory");
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    replay_journal(Arc::clone(&device) as Arc<dyn Device>).unwrap();
    Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap().close().unwrap();
    let mut count = 0;
    for_each_crash_state(&device, &base, &mut Rng::new(1, 1), |CrashState { image, what, .. }| {
        count += 1;
        assert_replayed(&open(&image, &VolumeOptions::new().read_only(true)).unwrap(), &what);
        let image = Arc::new(image);
        let volume = Volume::open_device(Arc::clone(&image) as Arc<dyn Device>, &untimed()).unwrap();
        assert_replayed(&volume, &what);
        volume.close().unwrap();
        if count % 8 == 1 {
            assert_clean(&image, &what);
        }
    });
    assert!(count > 10, "only {count} states");
}

/// The log of a volume that is written ends before the area, and no fast commit of an older transaction is replayed.
#[test]
fn the_area_is_kept_and_ignored_by_full_commits() {
    let device = Arc::new(Area::all_kinds());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    let at = usize::try_from(journal_offset(&device)).unwrap();
    let area = at + (JOURNAL - AREA) as usize * BLOCK..at + JOURNAL as usize * BLOCK;
    let before = device.snapshot()[area.clone()].to_vec();
    // The log wraps around several times.
    for round in 0..700_u32 {
        volume.write("/kept", round.to_le_bytes()).unwrap();
        volume.remove_file("/new").or_else(|_| volume.write("/new", "text")).unwrap();
        volume.sync().unwrap();
    }
    assert!(device.snapshot()[area] == before, "the area was overwritten");
    let journal = |device: &MemDevice| JournalSuperblock::parse(&device.snapshot()[at..]).unwrap();
    assert!(journal(&device).incompat().contains(JournalIncompat::FAST_COMMIT));
    let crashed = device.fork();
    let again = open(&crashed, &untimed()).unwrap();
    assert_eq!(again.read("/kept").unwrap(), 699_u32.to_le_bytes());
    drop(again);
    volume.close().unwrap();
    assert!(!journal(&device).incompat().contains(JournalIncompat::FAST_COMMIT));
    assert_clean(&device, "after full commits");
}

/// A hostile fast commit: what it is, and the tags.
type Hostile = (&'static str, fn(&mut Area));

#[test]
fn impossible_changes_are_refused() {
    let cases: [Hostile; 12] = [
        ("a block past the volume", |area| area.add_range(area.files[0], 9, 1, 99_999)),
        ("blocks that pass the volume's end", |area| area.add_range(area.files[0], 9, 100, 4090)),
        ("the superblock", |area| area.add_range(area.files[0], 9, 1, 0)),
        ("the journal", |area| {
            let block = u32::try_from(area.journal_at / BLOCK).unwrap();
            area.add_range(area.files[0], 9, 1, block + 5);
        }),
        ("an extent of no blocks", |area| area.add_range(area.files[0], 9, 0, FREE)),
        ("blocks past the largest file", |area| area.add_range(area.files[0], u32::MAX, 2, FREE)),
        ("blocks of a directory", |area| area.add_range(2, 9, 1, FREE)),
        ("an inode of the file system", |area| area.add_range(8, 9, 1, FREE)),
        ("an inode past the last", |area| area.inode(1 << 30, 0o100_644, 0, 1)),
        ("an inode without a type", |area| area.inode(NEW_FILE, 0, 0, 1)),
        ("a name with a slash", |area| area.name(LINK, 2, area.files[0], b"a/b")),
        ("a name in a file", |area| area.name(LINK, area.files[1], area.files[0], b"name")),
    ];
    for (what, change) in cases {
        let mut area = Area::new();
        change(&mut area);
        area.tail();
        let device = area.finish();
        for options in [untimed(), VolumeOptions::new().read_only(true)] {
            match open(&device, &options) {
                Err(Error::Corrupt(_)) => {}
                other => panic!("{what}: {other:?}"),
            }
        }
    }
}

/// As for the kernel, changes of what does not exist have no effect.
#[test]
fn changes_of_inodes_that_do_not_exist_are_ignored() {
    let mut area = Area::new();
    area.add_range(NEW_FILE, 0, 3, FREE);
    area.numbers(DEL_RANGE, &[NEW_FILE, 0, 9]);
    area.name(LINK, 2, NEW_FILE, b"name");
    area.name(UNLINK, NEW_DIR, area.files[0], b"kept");
    area.name(UNLINK, 2, area.files[0], b"other");
    area.inode(NEW_DIR, 0o100_644, 0, 0);
    area.tail();
    let device = Arc::new(area.finish());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    assert!(volume.exists("/kept").unwrap() && !volume.exists("/name").unwrap());
    volume.close().unwrap();
    assert_clean(&device, "after changes of nothing");
}

/// Random changes with a valid checksum: an error, or a volume that can be used.
#[test]
fn random_changes_do_no_harm() {
    let mut opened = 0;
    for seed in 0..if testkit::settings::all() { 3000 } else { 100 } {
        let mut rng = Rng::new(seed, 1);
        let mut area = Area::new();
        for _ in 0..rng.below(12) {
            random_change(&mut area, &mut rng);
        }
        area.tail();
        let device = area.finish();
        let options = if rng.chance(50) { untimed() } else { VolumeOptions::new().read_only(true) };
        let Ok(volume) = open(&device, &options) else { continue };
        opened += 1;
        for item in volume.walk("/").unwrap() {
            let Ok(item) = item else { break };
            let _ = volume.read(item.path());
        }
        if !volume.is_read_only() {
            let _ = volume.write("/new", "text");
            let _ = volume.remove_dir_all("/");
        }
        let _ = volume.close();
    }
    assert!(opened > 20, "only {opened} volumes were opened");
}

fn random_change(area: &mut Area, rng: &mut Rng) {
    let files = [area.files[0], area.files[1], area.files[2], 2, 11, NEW_FILE, NEW_DIR, NEW_DIR + 1];
    let mut small = |most: u64| u32::try_from(rng.below(most)).unwrap();
    let (ino, parent) = (files[small(8) as usize], files[small(8) as usize]);
    let (block, len) = (small(12), small(5));
    let name = [&b"kept"[..], b"gone", b"cut", b"new", b"dir", b"a"][small(6) as usize];
    let mode = [0o100_644, 0o040_755, 0o120_777][small(3) as usize];
    match small(7) {
        0 => area.add_range(ino, block, u16::try_from(len + 1).unwrap(), FREE + small(20)),
        1 => area.add_range(ino, block, 0x8000 + u16::try_from(len + 1).unwrap(), FREE + small(20)),
        2 => area.numbers(DEL_RANGE, &[ino, block, len]),
        3 => area.inode(ino, mode, u64::from(small(40_000)), u16::try_from(small(3)).unwrap()),
        4 => area.name(CREATE, parent, ino, name),
        5 => area.name(LINK, parent, ino, name),
        _ => area.name(UNLINK, parent, ino, name),
    }
}

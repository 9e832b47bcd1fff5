//! Fast commits, built by hand: crashes while they are replayed, and hostile ones (I9).

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use parext4::device::RecordingDevice;
use parext4::{Device, Error, FileType, MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs, replay_journal};
use parext4_format::features::{Compat, Incompat};
use parext4_format::group_desc::GroupDesc;
use parext4_format::inode::{Inode, InodeFlags};
use parext4_format::jbd2::{JournalIncompat, JournalSuperblock};
use parext4_format::quota::QuotaKind;
use parext4_format::superblock::Superblock;
use parext4_format::{GroupNo, InodeNo};

use testkit::crash_states::{CrashState, for_each_crash_state};
use testkit::fast_commit_tags::{ADD_RANGE, CREATE, DEL_RANGE, INODE, LINK, Tags, UNLINK};
use testkit::rng::Rng;
use testkit::volume::{assert_clean, journal_offset, untimed};
use testkit::{Image, encrypted, tool};

const BLOCK: usize = 4096;
const JOURNAL: u32 = 1100;
/// Blocks for fast commits.
const AREA: u32 = 64;
/// A block and inodes that are free on the volume.
const FREE: u32 = 4000;
const NEW_FILE: u32 = 200;
const NEW_DIR: u32 = 201;

/// A volume that crashed with a log, and its area of fast commits as it is being written.
struct Area {
    image: Vec<u8>,
    /// The volume after the log is replayed.
    replayed: Vec<u8>,
    superblock: Superblock,
    journal_at: usize,
    tags: Tags,
    /// Inodes of the volume: `/kept`, `/gone` and `/cut`, which has two blocks.
    files: [u32; 3],
    /// `/small` and `/grows`, of 8 bytes.
    small: [u32; 2],
}

impl Area {
    fn new() -> Self {
        Self::with("")
    }

    /// Returns an area on a volume with these features besides the usual ones.
    fn with(features: &str) -> Self {
        Self::on(MkfsOptions::new().features(features).unwrap())
    }

    fn on(options: MkfsOptions) -> Self {
        let device = MemDevice::new(16 << 20);
        let options = options.block_size(4096).journal_blocks(JOURNAL);
        mkfs(&device, &options.device_is_zero(true)).unwrap();
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
        let small = ["/small", "/grows"].map(|path| {
            volume.write(path, "contents").unwrap();
            volume.metadata(path).unwrap().ino.get()
        });
        volume.sync().unwrap();
        volume.abort().unwrap();
        drop(volume);
        let replayed = Arc::new(device.fork());
        let transactions = replay_journal(Arc::clone(&replayed) as Arc<dyn Device>).unwrap().transactions;
        let (image, replayed) = (device.snapshot(), replayed.snapshot());
        let tid = JournalSuperblock::parse(&image[journal_at..]).unwrap().sequence() + transactions;
        // The transaction after the last one of the log.
        let tags = Tags::new(BLOCK, tid);
        Self { image, replayed, superblock, journal_at, tags, files, small }
    }

    fn name(&mut self, kind: u16, parent: u32, ino: u32, name: &[u8]) {
        self.tags.add(kind, &[&parent.to_le_bytes()[..], &ino.to_le_bytes(), name].concat());
    }

    /// Logs an inode: of an existing one the attributes that change, or a new one.
    fn inode(&mut self, ino: u32, mode: u16, size: u64, links: u16) {
        self.inode_with(ino, mode, size, links, |_| {});
    }

    /// Logs a new inode of a number that another one had.
    fn next_inode(&mut self, ino: u32, mode: u16, size: u64, links: u16) {
        self.inode_with(ino, mode, size, links, |inode| {
            inode.generation += 1;
            inode.crtime.seconds += 1;
        });
    }

    fn inode_with(&mut self, ino: u32, mode: u16, size: u64, links: u16, change: impl FnOnce(&mut Inode)) {
        let desc = GroupDesc::parse(&self.replayed[BLOCK..2 * BLOCK], &self.superblock, GroupNo(0)).unwrap();
        let table = usize::try_from(desc.inode_table.get()).unwrap() * BLOCK;
        let found = (1..1000).contains(&ino).then(|| table + (ino as usize - 1) * 256);
        let found = found
            .and_then(|at| Inode::parse(&self.replayed[at..at + 256], &self.superblock, InodeNo(ino)).ok());
        let mut inode = found.unwrap_or_else(|| Inode::new(mode, &self.superblock));
        (inode.mode, inode.size, inode.links) = (mode, size, links);
        let has_extents = self.superblock.incompat().contains(Incompat::EXTENTS);
        inode.flags = if has_extents { InodeFlags::EXTENTS } else { InodeFlags::empty() };
        if !has_extents {
            // Pointers of the kernel, to blocks that only its log would have.
            inode.block.fill(9);
        }
        change(&mut inode);
        let mut bytes = vec![0; 256];
        inode.encode(&mut bytes, &self.superblock, InodeNo(ino));
        self.tags.add(INODE, &[&ino.to_le_bytes()[..], &bytes[..160]].concat());
    }

    /// Logs an inode with contents in it, as the kernel does: all of it.
    fn inline(&mut self, ino: u32, mode: u16, contents: &[u8]) {
        let mut inode = Inode::new(mode, &self.superblock);
        (inode.size, inode.links) = (contents.len() as u64, 1);
        assert!(inode.make_inline(contents, &[]));
        let mut bytes = vec![0; 256];
        inode.encode(&mut bytes, &self.superblock, InodeNo(ino));
        // The same inode as on the volume: it has the generation 0 and no other time of creation.
        self.tags.add(INODE, &[&ino.to_le_bytes()[..], &bytes].concat());
    }

    /// Returns the volume as a crash leaves it.
    fn finish(mut self) -> MemDevice {
        // One block between the log and the area is not used.
        let at = self.journal_at + (JOURNAL - AREA + 1) as usize * BLOCK;
        let area = self.tags.bytes();
        self.image[at..at + area.len()].copy_from_slice(area);
        MemDevice::from_bytes(self.image)
    }

    /// Two fast commits with changes of every kind.
    fn all_kinds(features: &str) -> MemDevice {
        let mut area = Self::with(features);
        let [kept, gone, cut] = area.files;
        for block in 0..2 {
            let at = (FREE + block) as usize * BLOCK;
            area.image[at..at + BLOCK].fill(b'a');
        }
        area.inode(NEW_FILE, 0o100_640, 2 * BLOCK as u64, 1);
        area.tags.add_range(NEW_FILE, 0, 2, FREE);
        area.name(CREATE, 2, NEW_FILE, b"new");
        area.inode(NEW_DIR, 0o040_755, BLOCK as u64, 2);
        area.name(CREATE, 2, NEW_DIR, b"dir");
        area.name(UNLINK, 2, gone, b"gone");
        area.tags.tail();
        area.name(LINK, NEW_DIR, kept, b"link");
        area.tags.numbers(DEL_RANGE, &[cut, 1, 100]);
        area.inode(cut, 0o100_600, BLOCK as u64, 1);
        area.inode(kept, 0o100_755, 2 * BLOCK as u64, 2);
        area.tags.tail();
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

/// Kinds of volumes, by features beside the usual ones.
const KINDS: [&str; 4] = ["", "inline_data", "^extent", "inline_data,encrypt,^extent"];

#[test]
fn fast_commits_are_replayed_after_every_crash_of_the_replay() {
    for features in ["", "^extent"] {
        assert_replayed_after_crashes(&Area::all_kinds(features), assert_replayed);
    }
}

/// Contents that lie in inodes: they change, they move there and away, and new inodes have some.
#[test]
fn contents_in_inodes_are_replayed() {
    for features in ["inline_data", "inline_data,encrypt,^extent"] {
        let mut area = Area::with(features);
        let ([kept, ..], [small, grows]) = (area.files, area.small);
        for block in 0..2 {
            let at = (FREE + block) as usize * BLOCK;
            area.image[at..at + BLOCK].fill(b'a');
        }
        area.inline(small, 0o100_644, &[b's'; 120]);
        area.tags.add_range(grows, 0, 2, FREE);
        area.inode(grows, 0o100_644, 2 * BLOCK as u64, 1);
        area.inline(kept, 0o100_644, b"in the inode");
        area.inline(NEW_FILE, 0o100_640, b"new");
        area.name(CREATE, 2, NEW_FILE, b"new");
        area.inline(NEW_DIR, 0o040_755, &[2, 0, 0, 0, 0, 0, 0, 0, 56, 0, 0, 0]);
        area.name(CREATE, 2, NEW_DIR, b"dir");
        area.name(LINK, NEW_DIR, small, b"a-name-in-the-directory");
        area.inline(NEW_DIR + 1, 0o120_777, &[b't'; 100]);
        area.name(CREATE, NEW_DIR, NEW_DIR + 1, b"link");
        // Of no effect, because the file has no blocks.
        area.tags.numbers(DEL_RANGE, &[small, 0, 9]);
        area.tags.tail();
        assert_replayed_after_crashes(&area.finish(), |volume, what| {
            let read = |path| volume.read(path).unwrap();
            assert_eq!(read("/small"), [b's'; 120], "{what}");
            assert_eq!(read("/dir/a-name-in-the-directory"), [b's'; 120], "{what}");
            assert_eq!(read("/grows"), vec![b'a'; 2 * BLOCK], "{what}");
            assert_eq!((read("/kept"), read("/new")), (b"in the inode".to_vec(), b"new".to_vec()), "{what}");
            assert_eq!(volume.read_link("/dir/link").unwrap(), Path::new(&"t".repeat(100)), "{what}");
            assert_eq!(volume.metadata("/kept").unwrap().sectors, 1, "{what}: its blocks are free");
            assert_eq!(volume.metadata("/").unwrap().links, 4, "{what}");
        });
    }
}

/// The kernel logs changes of files in encrypted directories, but none of their names.
#[test]
fn files_of_encrypted_directories_are_replayed_without_keys() {
    let Some(image) = Image::mke2fs(32, &["-b", "1024", "-O", "encrypt,fast_commit"]) else { return };
    let mut crashed = None;
    image.with_kernel(|root| {
        if !encrypted::make(root, 0) {
            return;
        }
        tool(Command::new("sync").arg("-f").arg(root));
        let append = |path: &str, len: usize| {
            let mut file = File::options().append(true).create(true).open(root.join(path)).unwrap();
            file.write_all(&vec![7; len]).unwrap();
            file.sync_all().unwrap();
        };
        // The kernel makes a fast commit only after a full one.
        append("plain", 10);
        append("enc/nnnnn", 5000);
        std::fs::hard_link(root.join("enc/n"), root.join("out")).unwrap();
        append("enc/n", 70_000);
        append("plain", 10);
        crashed = Some((std::fs::read(image.path()).unwrap(), encrypted::show(root)));
    });
    let Some((crashed, shown)) = crashed else { return };
    let device = Arc::new(MemDevice::from_bytes(crashed));
    let volume = open(&device, &VolumeOptions::new().read_only(true)).unwrap();
    let out = volume.metadata("/out").unwrap();
    assert_eq!((out.size, out.links, volume.metadata("/plain").unwrap().size), (70_001, 2, 20));
    assert!(matches!(volume.read("/out"), Err(Error::NoKey(_))));
    replay_journal(Arc::clone(&device) as Arc<dyn Device>).unwrap();
    let recovered = Image::of(&device);
    recovered.fsck();
    recovered.with_kernel(|root| assert!(encrypted::show(root) == shown));
}

fn assert_replayed_after_crashes(base: &MemDevice, assert_replayed: impl Fn(&Volume, &str)) {
    assert_replayed(&open(base, &VolumeOptions::new().read_only(true)).unwrap(), "in memory");
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    replay_journal(Arc::clone(&device) as Arc<dyn Device>).unwrap();
    Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap().close().unwrap();
    let mut count = 0;
    for_each_crash_state(&device, base, &mut Rng::new(1, 1), |CrashState { image, what, .. }| {
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

/// The log of a volume that is written ends before the area, and no fast commit of an older
/// transaction is replayed.
#[test]
fn the_area_is_kept_and_ignored_by_full_commits() {
    let device = Arc::new(Area::all_kinds(""));
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
    let cases: [Hostile; 18] = [
        ("a block past the volume", |area| area.tags.add_range(area.files[0], 9, 1, 99_999)),
        ("blocks that pass the volume's end", |area| area.tags.add_range(area.files[0], 9, 100, 4090)),
        ("the superblock", |area| area.tags.add_range(area.files[0], 9, 1, 0)),
        ("the journal", |area| {
            let block = u32::try_from(area.journal_at / BLOCK).unwrap();
            area.tags.add_range(area.files[0], 9, 1, block + 5);
        }),
        ("an extent of no blocks", |area| area.tags.add_range(area.files[0], 9, 0, FREE)),
        ("blocks past the largest file", |area| area.tags.add_range(area.files[0], u32::MAX, 2, FREE)),
        ("the block after the last of the largest file", |area| {
            area.tags.add_range(area.files[0], u32::MAX, 1, FREE);
        }),
        ("blocks of a directory", |area| area.tags.add_range(2, 9, 1, FREE)),
        ("the first block of the root", |area| area.tags.numbers(DEL_RANGE, &[2, 0, 1])),
        ("the number of a device for a block", |area| {
            area.inode(NEW_FILE, 0o060_644, 0, 1);
            area.name(CREATE, 2, NEW_FILE, b"device");
            area.tags.numbers(DEL_RANGE, &[NEW_FILE, 0, 1]);
        }),
        ("an inode of the file system", |area| area.tags.add_range(8, 9, 1, FREE)),
        ("an inode past the last", |area| area.inode(1 << 30, 0o100_644, 0, 1)),
        ("an inode without a type", |area| area.inode(NEW_FILE, 0, 0, 1)),
        ("contents in an inode of a volume that has none there", |area| {
            area.inline(NEW_FILE, 0o100_644, b"a");
        }),
        ("contents in a device", |area| area.inline(NEW_FILE, 0o020_644, b"a")),
        ("a block that pointers cannot map", |area| {
            area.tags.numbers(ADD_RANGE, &[area.files[0], 9, 0x1_0001, FREE]);
        }),
        ("a name with a slash", |area| area.name(LINK, 2, area.files[0], b"a/b")),
        ("a name in a file", |area| area.name(LINK, area.files[1], area.files[0], b"name")),
    ];
    for (what, change) in cases {
        let mut area = Area::new();
        change(&mut area);
        area.tags.tail();
        let device = area.finish();
        for options in [untimed(), VolumeOptions::new().read_only(true)] {
            match open(&device, &options) {
                Err(Error::Corrupt(_)) => {}
                other => panic!("{what}: {other:?}"),
            }
        }
    }
}

/// The quota file of projects has a number like that of a file.
#[test]
fn changes_of_the_quota_file_of_projects_are_refused() {
    let mut area = Area::with("quota,project");
    let file = area.superblock.quota_inode(QuotaKind::Project).unwrap().unwrap();
    area.tags.add_range(file.get(), 9, 1, FREE);
    area.tags.tail();
    let opened = open(&area.finish(), &untimed());
    assert!(matches!(opened, Err(Error::Corrupt(_))), "{opened:?}");
}

/// A damaged quota file forbids to write fast commits to the volume, but not to read it as they
/// leave it.
#[test]
fn fast_commits_of_a_volume_with_a_damaged_quota_file_can_be_read() {
    // Without checksums, the log may have the damage too.
    let mut area = Area::with("quota,project,^metadata_csum");
    area.inode(area.files[0], 0o100_600, 5, 1);
    area.tags.tail();
    let magic = 0xd9c0_1f11_u32.to_le_bytes();
    area.image.chunks_mut(BLOCK).filter(|block| block[..4] == magic).for_each(|block| block[4] = 9);
    let device = area.finish();
    let opened = open(&device, &untimed());
    assert!(matches!(opened, Err(Error::ReadOnly(_))), "{opened:?}");
    let volume = open(&device, &VolumeOptions::new().read_only(true)).unwrap();
    assert_eq!(volume.metadata("/kept").unwrap().size, 5);
}

/// As for the kernel, changes of what does not exist have no effect.
#[test]
fn changes_of_inodes_that_do_not_exist_are_ignored() {
    let mut area = Area::new();
    area.tags.add_range(NEW_FILE, 0, 3, FREE);
    area.tags.numbers(DEL_RANGE, &[NEW_FILE, 0, 9]);
    area.name(LINK, 2, NEW_FILE, b"name");
    area.name(UNLINK, NEW_DIR, area.files[0], b"kept");
    area.name(UNLINK, 2, area.files[0], b"other");
    area.inode(NEW_DIR, 0o100_644, 0, 0);
    area.tags.tail();
    let device = Arc::new(area.finish());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    assert!(volume.exists("/kept").unwrap() && !volume.exists("/name").unwrap());
    volume.close().unwrap();
    assert_clean(&device, "after changes of nothing");
}

/// The kernel logs names and ranges of a file that was created without a name before its fields.
#[test]
fn files_that_were_created_without_a_name_keep_name_and_data() {
    let mut area = Area::new();
    let gone = area.files[1];
    for block in 0..5 {
        let at = (FREE + block) as usize * BLOCK;
        area.image[at..at + BLOCK].fill(b'a' + u8::try_from(block).unwrap());
    }
    let size = 2 * BLOCK as u64;
    area.name(LINK, 2, NEW_FILE, b"linked");
    area.tags.add_range(NEW_FILE, 0, 2, FREE);
    area.inode(NEW_FILE, 0o100_640, size, 1);
    // Synced first, and then linked.
    area.tags.add_range(NEW_DIR, 0, 2, FREE + 2);
    area.inode(NEW_DIR, 0o100_600, size, 0);
    area.tags.tail();
    area.name(LINK, 2, NEW_DIR, b"synced");
    area.name(LINK, 2, NEW_DIR, b"second");
    area.name(LINK, 2, NEW_DIR, b"third");
    area.name(UNLINK, 2, NEW_DIR, b"third");
    area.inode(NEW_DIR, 0o100_600, size, 2);
    // With the number of a file that was deleted.
    area.name(UNLINK, 2, gone, b"gone");
    area.name(LINK, 2, gone, b"again");
    area.tags.add_range(gone, 0, 1, FREE + 4);
    area.next_inode(gone, 0o100_600, BLOCK as u64, 1);
    let (cut, kept) = (area.files[2], area.files[0]);
    // With the number of a file that was deleted, and removed while it was open.
    area.name(UNLINK, 2, cut, b"cut");
    area.name(LINK, 2, cut, b"removed");
    area.name(UNLINK, 2, cut, b"removed");
    area.next_inode(cut, 0o100_600, BLOCK as u64, 0);
    // Removed and closed: its number went to a file that was created with a name.
    area.name(UNLINK, 2, kept, b"kept");
    area.name(LINK, 2, kept, b"removed");
    area.name(UNLINK, 2, kept, b"removed");
    area.next_inode(kept, 0o100_600, 0, 1);
    area.name(CREATE, 2, kept, b"created");
    // Never linked, or not any more.
    area.tags.add_range(NEW_DIR + 1, 0, 1, FREE + 5);
    area.inode(NEW_DIR + 1, 0o100_600, BLOCK as u64, 0);
    area.name(LINK, 2, NEW_DIR + 2, b"removed");
    area.name(UNLINK, 2, NEW_DIR + 2, b"removed");
    area.inode(NEW_DIR + 2, 0o100_600, BLOCK as u64, 0);
    area.tags.tail();
    assert_replayed_after_crashes(&area.finish(), |volume, what| {
        let data = |path: &str| (volume.read(path).unwrap(), volume.metadata(path).unwrap().links);
        let filled = |bytes: [u8; 2]| bytes.map(|byte| [byte; BLOCK]).concat();
        assert_eq!(data("/linked"), (filled(*b"ab"), 1), "{what}");
        assert_eq!(data("/synced"), (filled(*b"cd"), 2), "{what}");
        assert_eq!(data("/second"), (filled(*b"cd"), 2), "{what}");
        assert_eq!(data("/again"), (vec![b'e'; BLOCK], 1), "{what}");
        assert_eq!(data("/created"), (Vec::new(), 1), "{what}");
        for path in ["/gone", "/cut", "/kept", "/third", "/removed"] {
            assert!(!volume.exists(path).unwrap(), "{what}: {path}");
        }
    });
}

/// The blocks of an inode that did not survive lie in many groups, and are freed in several steps.
#[test]
fn blocks_of_many_groups_are_freed_again() {
    let options = MkfsOptions::new().features("sparse_super2").unwrap();
    let mut area = Area::on(options.blocks_per_group(Some(256)));
    area.tags.add_range(NEW_FILE, 0, 1000, 700);
    // Commits the transaction that has claimed the blocks, because the first change frees some that
    // the second one might map.
    area.tags.numbers(DEL_RANGE, &[area.files[2], 1, 1]);
    area.tags.add_range(area.files[0], 9, 1, 600);
    area.inode(area.files[0], 0o100_644, 10 * BLOCK as u64, 1);
    area.tags.tail();
    let device = Arc::new(area.finish());
    let volume = Volume::open_device(Arc::clone(&device) as Arc<dyn Device>, &untimed()).unwrap();
    volume.close().unwrap();
    assert_clean(&device, "after a file that did not survive");
}

/// A log gives two files one block, or a file a block of another file, of a directory or of a map.
#[test]
fn no_two_files_get_one_block() {
    let [block_of_file, block_of_root] = ["/cut", "/"].map(|path| {
        let image = Image::of(&MemDevice::from_bytes(Area::new().replayed));
        image
            .debugfs(&format!("blocks {path}"))
            .split_whitespace()
            .next()
            .and_then(|block| block.parse().ok())
    });
    let (Some(block_of_file), Some(block_of_root)) = (block_of_file, block_of_root) else { return };
    for features in ["", "^extent"] {
        // The places in `/kept`, and in `/cut`.
        for (what, kept, cut) in [
            ("one block for two files", vec![(9, 2, FREE)], vec![(9, 2, FREE + 1)]),
            ("one block twice in a file", vec![(9, 1, FREE), (20, 1, FREE)], vec![]),
            ("a block of another file", vec![(9, 1, block_of_file)], vec![]),
            ("a block of a directory", vec![(9, 1, block_of_root)], vec![]),
        ] {
            let mut area = Area::with(features);
            for (file, ranges) in [(area.files[0], kept), (area.files[2], cut)] {
                for (logical, len, physical) in ranges {
                    area.tags.add_range(file, logical, len, physical);
                }
            }
            area.tags.tail();
            match open(&area.finish(), &untimed()) {
                Err(Error::Unsupported(_) | Error::Corrupt(_)) => {}
                other => panic!("{what}, {features}: {other:?}"),
            }
        }
    }
}

/// The pointers of a logged symbolic link lead to blocks that the replay frees, because the range
/// comes before the inode.
#[test]
fn a_logged_symbolic_link_keeps_no_pointers() {
    let mut area = Area::with("^extent");
    area.tags.add_range(NEW_FILE, 0, 1, FREE);
    area.inode(NEW_FILE, 0o120_777, 100, 1);
    area.name(LINK, 2, NEW_FILE, b"link");
    area.tags.tail();
    let device = area.finish();
    let volume = open(&device, &untimed()).unwrap();
    assert!(matches!(volume.read_link("/link"), Err(Error::Corrupt(_))));
    volume.remove_file("/link").unwrap();
    volume.close().unwrap();
}

/// Random changes with a valid checksum: an error, or a volume that can be used.
#[test]
fn random_changes_do_no_harm() {
    let mut opened = 0;
    for seed in 0..if testkit::settings::all() { 3000 } else { 100 } {
        let mut rng = Rng::new(seed, 1);
        let mut area = Area::with(KINDS[usize::try_from(seed).unwrap() % KINDS.len()]);
        for _ in 0..rng.below(12) {
            random_change(&mut area, &mut rng);
        }
        area.tags.tail();
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
    let [kept, gone, cut] = area.files;
    let files = [kept, gone, cut, 2, 11, NEW_FILE, NEW_DIR, NEW_DIR + 1, area.small[0], area.small[1]];
    let mut small = |most: u64| u32::try_from(rng.below(most)).unwrap();
    let (ino, parent) = (files[small(10) as usize], files[small(10) as usize]);
    let (block, len) = (small(12), small(5));
    let name = [&b"kept"[..], b"gone", b"cut", b"new", b"dir", b"a"][small(6) as usize];
    let mode = [0o100_644, 0o040_755, 0o120_777][small(3) as usize];
    match small(8) {
        0 => area.tags.add_range(ino, block, u16::try_from(len + 1).unwrap(), FREE + small(20)),
        1 => area.tags.add_range(ino, block, 0x8000 + u16::try_from(len + 1).unwrap(), FREE + small(20)),
        2 => area.tags.numbers(DEL_RANGE, &[ino, block, len]),
        3 => area.inode(ino, mode, u64::from(small(40_000)), u16::try_from(small(3)).unwrap()),
        4 => area.name(CREATE, parent, ino, name),
        5 => area.name(LINK, parent, ino, name),
        6 => area.inline(ino, mode, &vec![7; small(120) as usize]),
        _ => area.name(UNLINK, parent, ino, name),
    }
}

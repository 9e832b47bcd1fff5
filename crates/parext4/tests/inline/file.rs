//! Random operations of every kind on small files, buffered and direct, against a model in memory.

use parext4::{Error, FileSize, NewInode, Volume, XattrMode};
use testkit::ops::content::index;
use testkit::ops::{Content, FileHandles, FileModel, FileOp, Way};
use testkit::rng::Rng;
use testkit::volume::DirectFiles as _;
use testkit::{Image, settings};

use super::{KINDS, is_inline, room};

const FILES: u64 = 60;
const OPS: u64 = 25;
const SECTOR: u64 = 512;

struct Tested {
    handles: FileHandles,
    model: FileModel,
    last: Vec<FileOp>,
    what: String,
}

/// Returns a size or an offset near one at which contents leave the inode.
fn place(rng: &mut Rng, room: u64) -> u64 {
    match rng.below(6) {
        0 => 0,
        1 => 56 + rng.below(9),
        2 | 3 => room - 8 + rng.below(17),
        4 => rng.below(room),
        _ => rng.below(9000),
    }
}

fn random_op(rng: &mut Rng, size: u64, room: u64, block: u64) -> FileOp {
    let way = if rng.chance(60) { Way::Buffered } else { Way::Direct };
    let (offset, len) = (place(rng, room), 1 + rng.below(room + 20));
    match rng.below(40) {
        0..8 => FileOp::Read { way: Way::Buffered, offset, len },
        8..18 => match way {
            Way::Buffered if rng.chance(70) => {
                let offset = rng.below(size.min(room) + 1);
                FileOp::Write { way, offset, len: 1 + place(rng, room).saturating_sub(offset) }
            }
            Way::Buffered | Way::Synced => FileOp::Write { way, offset, len },
            Way::Direct | Way::Queued => {
                FileOp::Write { way, offset: offset - offset % SECTOR, len: size + rng.below(40) + 1 }
            }
        },
        18..24 => match way {
            Way::Direct if size.is_multiple_of(SECTOR) => FileOp::Append { way, len: SECTOR },
            _ => FileOp::Append { way: Way::Buffered, len: 1 + rng.below(50) },
        },
        24..32 => FileOp::SetLen { size: place(rng, room) },
        32 => FileOp::Allocate { offset, len, keep_size: rng.chance(50) },
        33 => FileOp::PunchHole { offset, len },
        34 => FileOp::ZeroRange { offset, len, keep_size: rng.chance(50) },
        35 if size > block => FileOp::CollapseRange { offset: 0, len: block },
        36 if size > 0 => FileOp::InsertRange { offset: 0, len: block },
        37 => FileOp::SyncAll { way },
        _ => FileOp::Seek { offset },
    }
}

impl Tested {
    fn create(volume: &Volume, path: &str, what: String) -> Self {
        let handles = FileHandles::new(volume, volume.create_direct(path).unwrap()).unwrap();
        Self { handles, model: FileModel::default(), last: Vec::new(), what }
    }

    fn apply(&mut self, op: FileOp, nth: u64) {
        self.last.push(op);
        let content = Content::Pattern(nth);
        match self.handles.run(op, content) {
            // A file without extents cannot be changed so.
            Err(Error::Unsupported(_)) if self.what.contains("^extent") => {}
            Err(error) => self.fail(&error.to_string()),
            Ok(outcome) => {
                let followed = self.model.follow(op, content, &outcome);
                followed.unwrap_or_else(|error| self.fail(&error));
            }
        }
        let size = self.handles.direct.size();
        if size != self.model.size() {
            self.fail(&format!("the size is {size}, not {}", self.model.size()));
        }
    }

    /// Compares the whole file, both buffered and direct, and its extents with its size.
    fn check(&mut self) {
        let len = (self.model.size() + 1).next_multiple_of(SECTOR);
        for way in [Way::Buffered, Way::Direct] {
            self.apply(FileOp::Read { way, offset: 0, len }, 0);
        }
        let extents = self.handles.direct.fiemap(0..u64::MAX).unwrap();
        if let [extent, rest @ ..] = extents.as_slice()
            && extent.inline
        {
            let place = (extent.offset, extent.len, extent.last);
            assert!(place == (0, self.model.size(), true) && rest.is_empty(), "{}: {extents:?}", self.what);
            // More if the inode has a block of attributes.
            let sectors = self.handles.direct.metadata().sectors;
            assert!(sectors >= self.model.size().div_ceil(512), "{}: {sectors}", self.what);
        }
    }

    fn fail(&self, why: &str) -> ! {
        panic!("{}: {why} after {:?}", self.what, self.last)
    }
}

#[test]
fn files_keep_their_contents() {
    let seed = settings::seed("inline: file");
    for (stream, &(inode_size, kind)) in (0..).zip(KINDS) {
        let Some(image) = Image::mke2fs(16, kind) else { return };
        let mut rng = Rng::new(seed, stream);
        let mut volume = image.open();
        let mut kept = Vec::new();
        for number in 0..FILES {
            let path = format!("/file{number}");
            let mut tested = Tested::create(&volume, &path, format!("{kind:?}, {path}"));
            for nth in 0..OPS {
                let block = u64::from(volume.info().block_size);
                let op = random_op(&mut rng, tested.model.size(), room(inode_size), block);
                tested.apply(op, number * OPS + nth);
                if rng.chance(10) {
                    let note = vec![b'n'; index(rng.below(60))];
                    tested.handles.direct.inode_ref().set_xattr(b"user.note", &note, XattrMode::Any).unwrap();
                }
                tested.check();
            }
            kept.push((path, tested.model));
            drop(tested.handles);
            if number % 20 == 19 {
                volume.close().unwrap();
                image.fsck();
                volume = image.open();
                for (path, model) in &kept {
                    let contents = volume.read(path).unwrap();
                    model.compare(&contents, 0, model.size() + 1).unwrap_or_else(|e| panic!("{path}: {e}"));
                }
            }
        }
        volume.close().unwrap();
    }
}

/// The sizes at which contents leave the inode are the kernel's.
#[test]
fn contents_leave_the_inode_when_they_do_not_fit() {
    for &(inode_size, kind) in KINDS {
        let Some(image) = Image::mke2fs(16, kind) else { return };
        let room = index(room(inode_size));
        let volume = image.open();
        let sizes = [0, 1, 60, 61, room, room + 1];
        for size in sizes {
            volume.write(format!("/ours{size}"), vec![b'x'; size]).unwrap();
        }
        let noted = volume.create_file("/noted").unwrap();
        noted.inode_ref().set_xattr(b"user.note", &[1; 20], XattrMode::Any).unwrap();
        noted.append(&vec![b'x'; room - 64]).unwrap();
        noted.append(&[b'x'; 64]).unwrap();
        drop(noted);
        volume.close().unwrap();
        image.fsck();
        image.with_kernel(|root| {
            for size in sizes {
                assert_eq!(std::fs::read(root.join(format!("ours{size}"))).unwrap(), vec![b'x'; size]);
                std::fs::write(root.join(format!("theirs{size}")), vec![b'x'; size]).unwrap();
            }
            assert_eq!(std::fs::read(root.join("noted")).unwrap(), vec![b'x'; room]);
            // Larger than the inode, without leaving it.
            std::fs::write(root.join("grown"), b"short").unwrap();
            let grown = std::fs::OpenOptions::new().write(true).open(root.join("grown")).unwrap();
            grown.set_len(9000).unwrap();
        });
        if image.debugfs("stat /ours1").is_empty() {
            return;
        }
        for size in sizes {
            assert_eq!(is_inline(&image, &format!("/ours{size}")), size <= room, "{kind:?}: {size}");
            let theirs = image.debugfs(&format!("stat /theirs{size}"));
            let is_there = theirs.contains("Type: regular");
            // The kernel moves the contents of a new file into the inode with the first write.
            assert!(!is_there || size == 0 || theirs.contains("inline data") == (size <= room), "{size}");
        }
        assert!(!is_inline(&image, "/noted"));
        let volume = image.open();
        if let Ok(grown) = volume.direct_file("/grown") {
            let mut expected = b"short".to_vec();
            expected.resize(9000, 0);
            assert_eq!(volume.read("/grown").unwrap(), expected);
            assert_eq!((grown.seek_data(0).unwrap(), grown.size()), (0, 9000));
            grown.buffered().unwrap().write_all_at(b"S", 0).unwrap();
            expected[0] = b'S';
            assert_eq!(volume.read("/grown").unwrap(), expected);
        }
        volume.close().unwrap();
        image.fsck();
    }
}

/// Without a free block, contents grow in the inode as far as it has room, and then stay as they
/// are.
#[test]
fn a_full_volume_keeps_contents_in_their_inodes() {
    let (inode_size, kind) = KINDS[0];
    let Some(image) = Image::mke2fs(16, kind) else { return };
    let room = index(room(inode_size));
    let volume = image.open();
    let file = volume.create_file("/file").unwrap();
    let dir = volume.create_dir("/dir", 0o755).unwrap();
    let ballast = volume.create_direct("/ballast").unwrap();
    for blocks in [256, 16, 1] {
        while ballast.allocate(ballast.size()..ballast.size() + (blocks << 12), FileSize::Extend).is_ok() {}
    }
    file.append(&vec![1; room]).unwrap();
    assert!(matches!(file.append(&[2; 1]), Err(Error::NoSpace)));
    assert!(matches!(file.allocate(0..1, FileSize::Extend), Err(Error::NoSpace)));
    file.write_all_at(&[3; 10], 0).unwrap();
    let names = |from: u32| (from..).map(|number| format!("name{number}"));
    let created = names(0).take_while(|name| dir.create(name.as_bytes(), &NewInode::new()).is_ok()).count();
    assert!((5..12).contains(&created), "{created}");
    let mut expected = vec![1; room];
    expected[..10].fill(3);
    assert_eq!(volume.read("/file").unwrap(), expected);
    assert_eq!(volume.read_dir("/dir").unwrap().count(), created);
    ballast.set_len(0).unwrap();
    file.append(&[2; 1]).unwrap();
    expected.push(2);
    assert_eq!(volume.read("/file").unwrap(), expected);
    dir.create(b"another", &NewInode::new()).unwrap();
    drop((file, dir, ballast));
    volume.close().unwrap();
    image.fsck();
}

/// An open file without a name is deleted, and a truncation that another driver began is finished.
#[test]
fn orphans_are_deleted_or_cut() {
    let (_, kind) = KINDS[0];
    let Some(image) = Image::mke2fs(16, kind) else { return };
    let volume = image.open();
    volume.write("/cut", [1; 120]).unwrap();
    let nameless = volume.create_file("/nameless").unwrap();
    nameless.append(&[2; 100]).unwrap();
    volume.remove_file("/nameless").unwrap();
    nameless.append(&[2; 10]).unwrap();
    assert_eq!(nameless.size(), 110);
    drop(nameless);
    let ino = volume.metadata("/cut").unwrap().ino;
    volume.close().unwrap();
    image.fsck();
    image.debugfs_write("sif /cut size 3");
    image.debugfs_write(&format!("ssv last_orphan {ino}"));
    if !image.debugfs("stat /cut").contains("Size of inline data: 120") {
        return;
    }
    let volume = image.open();
    assert_eq!(volume.read("/cut").unwrap(), [1; 3]);
    volume.close().unwrap();
    image.fsck();
    assert!(image.debugfs("stat /cut").contains("Size of inline data: 60"), "the rest is gone");
}

//! The same files through the kernel and through parext4.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use parext4::{FileSize, NewInode, Special, Volume};
use testkit::image::Image;
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::DirectFiles as _;

use super::sparse::{KernelFile, Sparse};

const FEATURES: [&[&str]; 4] = [
    &["-t", "ext3", "-b", "1024"],
    &["-O", "^extent,^64bit", "-b", "1024"],
    &["-O", "^extent,^64bit,^huge_file", "-b", "2048"],
    &["-t", "ext3", "-b", "4096"],
];
const ENTRIES: usize = 800;
const CHANGES: usize = 120;

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).expect("open")
}

fn long_target() -> String {
    "target/".repeat(30)
}

/// Makes a large directory, links and a special file.
fn populate(root: &Path) {
    std::fs::create_dir(root.join("dir")).unwrap();
    for n in 0..ENTRIES {
        File::create(root.join(format!("dir/a-rather-long-name-{n}"))).unwrap();
    }
    std::os::unix::fs::symlink("short", root.join("short")).unwrap();
    std::os::unix::fs::symlink(long_target(), root.join("long")).unwrap();
    std::process::Command::new("mknod").arg(root.join("null")).args(["c", "1", "3"]).status().unwrap();
}

/// Checks what [`populate`] made, then makes the like of it and removes a part.
fn repopulate(volume: &Volume) {
    assert_eq!(volume.read_dir("/dir").unwrap().count(), ENTRIES);
    assert_eq!(volume.resolve_no_follow("/short").unwrap().read_link().unwrap(), Path::new("short"));
    assert_eq!(volume.resolve_no_follow("/long").unwrap().read_link().unwrap(), Path::new(&long_target()));
    assert_eq!(volume.resolve("/null").unwrap().metadata().rdev, Some((1, 3)));
    volume.create_dir("/ours", 0o755).unwrap();
    for n in 0..ENTRIES {
        volume.create_direct(format!("/ours/a-rather-long-name-{n}")).unwrap();
        if n % 2 == 0 {
            volume.remove_file(format!("/dir/a-rather-long-name-{n}")).unwrap();
        }
    }
    volume.symlink("/our-long", long_target()).unwrap();
    volume.remove_file("/long").unwrap();
    let root = volume.root().unwrap();
    let special = Special::CharDevice { major: 1, minor: 5 };
    root.mknod(b"zero", special, &NewInode::new()).unwrap();
}

fn check_names(root: &Path) {
    let count = |dir: &str| std::fs::read_dir(root.join(dir)).unwrap().count();
    assert_eq!((count("dir"), count("ours")), (ENTRIES / 2, ENTRIES));
    assert_eq!(std::fs::read_link(root.join("our-long")).unwrap(), Path::new(&long_target()));
}

/// A file is changed by the kernel, then by parext4, and read equal by both after each.
#[test]
fn files_are_equal_through_the_kernel() {
    for options in FEATURES {
        let Some(image) = Image::mke2fs(40, options) else { return };
        let mut rng = Rng::new(settings::seed("indirect kernel"), 0);
        let block: u64 = options[3].parse().unwrap();
        let mut model = Sparse::new(block);
        let mut mounted = false;
        image.with_kernel(|root| {
            mounted = true;
            let path = root.join("file");
            let file = open(&path);
            (0..CHANGES).for_each(|_| model.change(&mut rng, &KernelFile(&file, &path)));
            populate(root);
        });
        if !mounted {
            return;
        }
        let volume = image.open();
        let file = volume.direct_file("/file").unwrap();
        model.check_file("written by the kernel", &file);
        for n in 0..CHANGES {
            model.change(&mut rng, &file);
            if n % 40 == 0 {
                model.check_file("while it is changed", &file);
            }
        }
        repopulate(&volume);
        model.check_file("changed", &file);
        drop(file);
        volume.close().unwrap();
        image.fsck();
        image.with_kernel(|root| {
            let path = root.join("file");
            let file = open(&path);
            assert_eq!(file.metadata().unwrap().len(), model.blocks * block);
            model.check("read by the kernel", |bytes, at| file.read_exact_at(bytes, at).unwrap());
            check_names(root);
            (0..CHANGES / 4).for_each(|_| model.change(&mut rng, &KernelFile(&file, &path)));
        });
        let volume = image.open();
        model.check_file("changed by the kernel", &volume.direct_file("/file").unwrap());
        volume.remove_file("/file").unwrap();
        volume.close().unwrap();
        image.fsck();
    }
}

/// A file that debugfs has written to an ext2 volume, without a journal.
#[test]
fn files_of_debugfs_are_read_and_changed() {
    let Some(image) = Image::mke2fs(8, &["-t", "ext2", "-b", "2048"]) else { return };
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let source = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(source.path(), &content).unwrap();
    image.debugfs_write(&format!("write {} file", source.path().display()));
    let volume = image.open();
    let Ok(file) = volume.direct_file("/file") else { return };
    let mut bytes = vec![0; content.len()];
    file.buffered().unwrap().read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == content, "read");
    file.set_len(1_500_000).unwrap();
    file.punch_hole(100_000..1100000).unwrap();
    drop(file);
    volume.close().unwrap();
    image.fsck();
    let (mut wanted, copy) = (content[..1_500_000].to_vec(), source.path().with_extension("copy"));
    wanted[100_000..1_100_000].fill(0);
    image.debugfs(&format!("dump file {}", copy.display()));
    let read = std::fs::read(&copy).unwrap();
    std::fs::remove_file(copy).unwrap();
    assert!(read == wanted, "read by debugfs");
}

/// In a volume that was converted to extents, old files keep their indirect blocks, and new files
/// have extents.
#[test]
fn one_volume_has_files_of_both_kinds() {
    let Some(image) = Image::mke2fs(16, &["-t", "ext3", "-b", "1024"]) else { return };
    let content = |byte: u8| vec![byte; 600 << 10];
    let write = |name: &str, byte: u8| {
        let volume = image.open();
        let file = volume.create_direct(name).unwrap();
        file.write_all_at(&content(byte), 0).unwrap();
        drop(file);
        volume.close().unwrap();
    };
    write("/old", 1);
    if !image.tune2fs(&["-O", "extent"]) {
        return;
    }
    write("/new", 2);
    let volume = image.open();
    let (old, new) = (volume.direct_file("/old").unwrap(), volume.direct_file("/new").unwrap());
    let allocated = old.allocate(0..4096, FileSize::Keep).map_err(|error| error.to_errno());
    assert_eq!(allocated, Err(libc::EOPNOTSUPP));
    new.allocate(1 << 20..(1 << 20) + 4096, FileSize::Keep).unwrap();
    for (file, byte) in [(&old, 1), (&new, 2)] {
        file.append(&content(byte + 2)).unwrap();
        let mut bytes = content(0);
        file.read_exact_at(&mut bytes, 300 << 10).unwrap();
        let (head, tail) = bytes.split_at(300 << 10);
        assert!(head.iter().all(|&seen| seen == byte) && tail.iter().all(|&seen| seen == byte + 2));
    }
    drop((old, new));
    volume.close().unwrap();
    image.fsck();
    assert!(image.debugfs("stat /old").contains("(IND)"));
    assert!(image.debugfs("stat /new").contains("EXTENTS"));
}

/// The operations that need extents, and sizes past the limit, fail as in the kernel.
#[test]
fn errors_are_those_of_the_kernel() {
    let Some(image) = Image::mke2fs(16, &["-t", "ext3", "-b", "4096"]) else { return };
    let largest = 2_196_873_666_560;
    let all = [vec![], vec!["-n"], vec!["-z"], vec!["-c"], vec!["-i"]];
    image.with_kernel(|root| {
        let path = root.join("file");
        let file = open(&path);
        file.write_all_at(&[1; 16384], 0).unwrap();
        for options in &all {
            let mut command = std::process::Command::new("fallocate");
            command.args(options).args(["-o", "4096", "-l", "4096"]).arg(&path);
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(text.contains("not supported") || text.contains("unsupported"), "{command:?}: {text}");
        }
        assert_eq!(file.set_len(largest + 1).unwrap_err().raw_os_error(), Some(libc::EFBIG));
        assert_eq!(file.write_at(b"x", largest).unwrap_err().raw_os_error(), Some(libc::EFBIG));
        file.write_all_at(b"x", largest - 1).unwrap();
    });
    let volume = image.open();
    let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true)).unwrap();
    let errno = |result: parext4::Result<()>| result.unwrap_err().to_errno();
    file.write_all_at(&[1; 16384], 0).unwrap();
    assert_eq!(errno(file.allocate(4096..8192, FileSize::Extend)), libc::EOPNOTSUPP);
    assert_eq!(errno(file.allocate(4096..8192, FileSize::Keep)), libc::EOPNOTSUPP);
    assert_eq!(errno(file.zero_range(4096..8192, FileSize::Extend)), libc::EOPNOTSUPP);
    assert_eq!(errno(file.collapse_range(4096..8192)), libc::EOPNOTSUPP);
    assert_eq!(errno(file.insert_range(4096..8192)), libc::EOPNOTSUPP);
    assert_eq!(errno(file.set_len(largest + 1)), libc::EFBIG);
    assert_eq!(errno(file.write_all_at(&[1; 4096], largest)), libc::EFBIG);
    file.write_all_at(&[1; 4096], largest - 4096).unwrap();
    assert_eq!(file.seek_data(16384).unwrap(), largest - 4096);
    file.punch_hole(4096..4096 + (1 << 43)).unwrap();
    assert_eq!(file.size(), largest);
    assert!(file.seek_data(4096).is_err());
    drop(file);
    volume.close().unwrap();
    image.fsck();
}

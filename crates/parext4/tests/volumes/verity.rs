//! Files that fs-verity protects: reads are verified, changes refused, and other programs agree.

use std::io::IoSliceMut;
use std::sync::Arc;

use parext4::device::AlignedBuf;
use parext4::server::{PageFault, ServerFile};
use parext4::{
    Device, DirectFile, Error, File, FileSize, IoFlags, IoRequest, MemDevice, OpenOptions, RenameMode,
    SetAttributes, Volume, VolumeOptions, XattrMode,
};
use testkit::rng::Rng;
use testkit::skip_allowed;
use testkit::tool::text;
use testkit::verity::{self, Protection};
use testkit::volume::{assert_no_findings, findings, untimed};
use testkit::{Image, tool};

/// Sizes of blocks of the volume, and how files on it are protected.
const KINDS: &[(usize, Protection)] = &[
    (4096, Protection::DEFAULT),
    (4096, Protection { sha512: true, block_size: 1024, salt: b"salt" }),
    (1024, Protection { sha512: false, block_size: 1024, salt: &[7; 32] }),
    (2048, Protection { sha512: true, block_size: 2048, salt: &[] }),
];

/// Lengths of files, with trees of no level to three.
const LENGTHS: [usize; 7] = [0, 1, 1024, 4096, 4097, 70_000, 1_100_000];

fn data(len: usize) -> Vec<u8> {
    // With a hole, which is hashed as zeros.
    (0..len)
        .map(|at| if (8192..16384).contains(&at) { 0 } else { (at % 251 + at / 4096) as u8 | 1 })
        .collect()
}

fn path(len: usize) -> String {
    format!("/f{len}")
}

/// Makes a volume with a protected file of each length.
fn image(block_size: usize, protection: Protection, lengths: &[usize]) -> Option<Image> {
    tool(std::process::Command::new("debugfs").arg("-V"))?;
    let image = Image::mke2fs(16, &["-b", &block_size.to_string(), "-O", "verity"])?;
    let volume = image.open();
    for &len in lengths {
        let data = data(len);
        verity::write(&volume, &path(len), &data, &protection.of(&data).stored(block_size));
    }
    volume.close().unwrap();
    lengths.iter().for_each(|&len| verity::set_size(&image.path(), &path(len), len as u64, true));
    Some(image)
}

fn load(image: &Image) -> Arc<MemDevice> {
    Arc::new(MemDevice::from_bytes(std::fs::read(image.path()).unwrap()))
}

fn contents(device: &MemDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size()).unwrap()];
    device.read_at(0, &mut [IoSliceMut::new(&mut bytes)]).unwrap();
    bytes
}

fn open(device: &Arc<MemDevice>) -> Volume {
    Volume::open_device(Arc::clone(device) as Arc<dyn Device>, &untimed()).unwrap()
}

fn open_direct(volume: &Volume, path: &str) -> Result<DirectFile, Error> {
    volume.open_direct(path, &OpenOptions::new().read(true))
}

/// Reads `len` bytes from `offset` on by a queue.
fn read_queued(volume: &Volume, file: &DirectFile, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    let mut queue = volume.io_queue(4);
    let buf = AlignedBuf::zeroed(len);
    queue.submit(file, IoRequest::Read { buf, len, offset }, 0, IoFlags::new());
    let mut done = Vec::new();
    queue.harvest(&mut done).unwrap();
    let completion = done.pop().unwrap();
    let count = usize::try_from(completion.result?).unwrap();
    Ok(completion.buf.unwrap()[..count].to_vec())
}

/// Reads up to `len` bytes at `offset`, a multiple of 4 KiB, in every way. Returns the results in
/// the order direct, queued, buffered, mapped.
fn read_all_ways(volume: &Volume, path: &str, offset: u64, len: usize) -> [Result<Vec<u8>, Error>; 4] {
    let file = open_direct(volume, path).unwrap();
    let mut direct = AlignedBuf::zeroed(len);
    let direct = file.read_at(&mut direct, offset).map(|count| direct[..count].to_vec());
    let read = |file: &File| {
        let mut bytes = vec![0; len];
        file.read_at(&mut bytes, offset).map(|count| bytes[..count].to_vec())
    };
    let buffered = read(&file.buffered().unwrap());
    let mapped = volume.open_file(path, &OpenOptions::read_only()).unwrap();
    let faulted = match (offset..mapped.size()).is_empty() {
        true => Ok(()),
        false => mapped.fault(offset, PageFault::Load),
    };
    let queued = read_queued(volume, &file, offset, len);
    [direct, queued, buffered, faulted.and_then(|()| read(&mapped))]
}

#[test]
fn every_kind_of_read_returns_the_contents() {
    for &(block_size, protection) in KINDS {
        let Some(image) = image(block_size, protection, &LENGTHS) else { return };
        image.fsck();
        let device = load(&image);
        let volume = open(&device);
        for len in LENGTHS {
            let data = data(len);
            let node = volume.resolve(path(len)).unwrap();
            let verity = node.verity().unwrap().unwrap();
            assert_eq!(verity.to_string(), protection.digest(&data), "{len}, {protection:?}");
            assert_eq!(volume.read(path(len)).unwrap(), data);
            for read in read_all_ways(&volume, &path(len), 0, 2 << 20) {
                assert_eq!(read.unwrap(), data, "{len}, {protection:?}");
            }
            if len > 65536 {
                let mut bytes = [0; 5000];
                volume
                    .open_file(path(len), &OpenOptions::read_only())
                    .unwrap()
                    .read_exact_at(&mut bytes, 60_001)
                    .unwrap();
                assert_eq!(bytes, data[60_001..65_001]);
            }
        }
        volume.close().unwrap();
    }
}

#[test]
fn the_digest_is_that_of_fsverity() {
    let dir = tempfile::tempdir().unwrap();
    for (&(_, protection), len) in KINDS.iter().zip([0, 5000, 70_000, 1_100_000]) {
        let (data, file) = (data(len), dir.path().join("file"));
        std::fs::write(&file, &data).unwrap();
        let mut command = std::process::Command::new("fsverity");
        command.args(["digest", "--compact"]).arg(format!("--block-size={}", protection.block_size));
        command.arg(if protection.sha512 { "--hash-alg=sha512" } else { "--hash-alg=sha256" });
        if !protection.salt.is_empty() {
            let salt: String = protection.salt.iter().map(|byte| format!("{byte:02x}")).collect();
            command.arg(format!("--salt={salt}"));
        }
        let (tree, descriptor) = (dir.path().join("tree"), dir.path().join("descriptor"));
        command.arg(format!("--out-merkle-tree={}", tree.display()));
        command.arg(format!("--out-descriptor={}", descriptor.display())).arg(&file);
        let Some(output) = tool(&mut command) else { return };
        assert!(output.status.success(), "{}", text(&output));
        assert!(protection.digest(&data).ends_with(text(&output).trim()), "{protection:?}");
        let metadata = protection.of(&data);
        assert_eq!(metadata.tree, std::fs::read(&tree).unwrap());
        assert_eq!(metadata.descriptor, std::fs::read(&descriptor).unwrap());
    }
}

#[test]
fn contents_cannot_change_and_all_else_can() {
    let Some(image) = image(1024, KINDS[2].1, &[0, 70_000]) else { return };
    let volume = image.open();
    let before = volume.space();
    for len in [0, 70_000] {
        let name = path(len);
        let file = volume.open_file(&name, &OpenOptions::read_write()).unwrap();
        let direct = file.direct();
        let block = AlignedBuf::zeroed(4096);
        let attempts = [
            file.write_all_at(b"new", 0),
            file.append(b"new").map(drop),
            file.fault(0, PageFault::Store),
            file.set_len(0),
            file.set_len(1 << 20),
            direct.write_all_at(&block, 0),
            direct.append(&block).map(drop),
            direct.allocate(0..4096, FileSize::Keep),
            direct.punch_hole(0..4096),
            direct.zero_range(0..4096, FileSize::Keep),
            direct.collapse_range(0..1024),
            direct.insert_range(0..1024),
            volume.create_file(&name).map(drop),
        ];
        for (at, attempt) in attempts.into_iter().enumerate() {
            assert!(matches!(attempt, Err(Error::NotPermitted(_))), "{name}, attempt {at}: {attempt:?}");
        }
        let mut queue = volume.io_queue(1);
        queue.submit(direct, IoRequest::Append { buf: block, len: 4096 }, 0, IoFlags::new());
        let mut done = Vec::new();
        queue.harvest(&mut done).unwrap();
        assert!(matches!(done[0].result, Err(Error::NotPermitted(_))));

        let node = file.inode_ref();
        node.set_attributes(&SetAttributes::new().permissions(0o600).uid(7)).unwrap();
        node.set_xattr(b"user.a", b"value", XattrMode::Any).unwrap();
        let flags = node.flags();
        node.set_flags(flags | parext4::InodeFlags::NODUMP).unwrap();
        assert!(node.flags().contains(parext4::InodeFlags::VERITY));
        let root = volume.root().unwrap();
        root.rename(&name.as_bytes()[1..], &root, b"renamed", RenameMode::Replace).unwrap();
        root.link(b"second", node).unwrap();
        assert_eq!(volume.read("/second").unwrap(), data(len));
        volume.remove_file("/renamed").unwrap();
        volume.remove_file("/second").unwrap();
        assert_eq!(volume.read(&name).unwrap_err().to_errno(), 2);
    }
    volume.close().unwrap();
    image.fsck();
    let volume = image.open();
    assert!(volume.space().free_blocks > before.free_blocks, "{before:?}");
}

#[test]
fn changed_bytes_are_found_in_every_kind_of_read() {
    for &(block_size, protection) in KINDS {
        let len = 1_100_000;
        let Some(image) = image(block_size, protection, &[len]) else { return };
        let sound = load(&image);
        let places = {
            let volume = open(&sound);
            let file = open_direct(&volume, &path(len)).unwrap();
            let tree = verity::offset(len);
            // A block of data, the end of the file, the root block of the tree, and the block with
            // the hashes of the first block.
            let lowest = protection.of(&data(len)).tree.len().div_ceil(protection.block_size) as u64;
            let per_block = protection.block_size / if protection.sha512 { 64 } else { 32 };
            let lowest = lowest - (len.div_ceil(protection.block_size).div_ceil(per_block)) as u64;
            let at = |offset: u64| file.device_range(offset).unwrap().unwrap().start;
            [at(4096), at(len as u64 - 1), at(tree), at(tree + lowest * protection.block_size as u64)]
        };
        for (number, place) in places.into_iter().enumerate() {
            let mut bytes = contents(&sound);
            bytes[usize::try_from(place).unwrap()] ^= 1;
            let device = Arc::new(MemDevice::from_bytes(bytes));
            let volume = open(&device);
            let (bad, good) = match number {
                0 => (4096, Some(0)),
                1 => (len as u64 / 4096 * 4096, Some(0)),
                2 => (0, None),
                _ => (0, Some(len as u64 / 8192 * 4096)),
            };
            for read in read_all_ways(&volume, &path(len), bad, 4096) {
                let error = read.unwrap_err();
                assert!(matches!(error, Error::Unverified(_)), "{number}, {protection:?}: {error}");
                assert_eq!(error.to_errno(), 5);
            }
            for read in good.into_iter().flat_map(|at| read_all_ways(&volume, &path(len), at, 4096)) {
                read.unwrap();
            }
            assert!(volume.info().errors.is_none(), "the volume itself is sound");
            volume.close().unwrap();
        }
    }
}

#[test]
fn a_hole_in_place_of_data_is_found() {
    let Some(image) = image(4096, Protection::DEFAULT, &[70_000]) else { return };
    image.debugfs_write("punch /f70000 1 1");
    let volume = open(&load(&image));
    for read in read_all_ways(&volume, "/f70000", 4096, 4096) {
        assert!(matches!(read, Err(Error::Unverified(_))), "{read:?}");
    }
    let file = open_direct(&volume, "/f70000").unwrap();
    assert_eq!(file.data_range(0).unwrap(), Some(0..70_000), "holes are read, too");
}

/// The check reads no contents, so it finds a missing block of the tree, but none of the data.
#[test]
fn the_check_finds_a_tree_that_lacks_a_block() {
    let Some(image) = image(1024, KINDS[2].1, &LENGTHS) else { return };
    assert_no_findings(&image.load(), "sound trees");
    image.debugfs_write("punch /f1100000 1 1");
    assert_eq!(findings(&image.load()), [] as [&str; 0]);
    let tree = verity::offset(1_100_000) / 1024;
    image.debugfs_write(&format!("punch /f1100000 {tree} {tree}"));
    let found = findings(&image.load());
    assert!(
        found.iter().any(|line| line.contains("verity descriptor: data_size: the tree has")),
        "{found:?}"
    );
}

/// Descriptors, their sizes and sizes of the file that no kernel writes: an error, but no panic and
/// no large allocation.
#[test]
fn arbitrary_descriptors_cause_no_panic() {
    let len = 70_000;
    let Some(image) = image(1024, KINDS[2].1, &[len]) else { return };
    let sound = load(&image);
    let last = {
        let volume = open(&sound);
        let file = open_direct(&volume, &path(len)).unwrap();
        let tree = KINDS[2].1.of(&data(len)).tree.len() as u64;
        let place = file.device_range(verity::offset(len) + tree).unwrap().unwrap();
        usize::try_from(place.start).unwrap()
    };
    let mut rng = Rng::new(11, 0);
    let read = |bytes: Vec<u8>| {
        let device: Arc<dyn Device> = Arc::new(MemDevice::from_bytes(bytes));
        let volume = Volume::open_device(Arc::clone(&device), &VolumeOptions::new().read_only(true)).unwrap();
        let verity = volume.resolve(path(len)).and_then(|node| node.verity());
        let read = volume.read(path(len));
        assert!(verity.is_ok() || read.is_err());
        drop(volume);
        let findings = findings(&*device);
        assert_eq!(verity.is_ok(), findings.is_empty(), "{verity:?}: {findings:?}");
        read
    };
    assert_eq!(read(contents(&sound)).unwrap(), data(len));
    for size in [0, 3, 255, 1021, 1025, 16385, 70_000, 1 << 30, u32::MAX] {
        let mut bytes = contents(&sound);
        bytes[last + 1020..last + 1024].copy_from_slice(&size.to_le_bytes());
        assert!(matches!(read(bytes), Err(Error::Corrupt(_))), "{size}");
    }
    for _ in 0..300 {
        let mut bytes = contents(&sound);
        for _ in 0..=rng.below(2) {
            let at = match rng.below(4) {
                0 => 1020 + rng.below(4),
                1 => rng.below(256),
                _ => rng.below(16),
            };
            bytes[last + usize::try_from(at).unwrap()] = u8::try_from(rng.below(256)).unwrap();
        }
        let _ = read(bytes);
    }
    for size in [1, 69_999, 70_001, 1 << 20, 1 << 41, (1_u64 << 43) - 1] {
        verity::set_size(&image.path(), &path(len), size, true);
        let error = read(std::fs::read(image.path()).unwrap()).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{size}: {error}");
    }
    // Neither a body without extents nor a volume without blocks of the file has a descriptor.
    verity::set_size(&image.path(), &path(len), len as u64, true);
    image.debugfs_write(&format!("set_inode_field {} flags 0x100000", path(len)));
    read(std::fs::read(image.path()).unwrap()).unwrap_err();
}

/// The kernel adds the file to the orphans before it writes the tree, and sets the flag when it
/// removes it.
#[test]
fn recovery_removes_the_tree_of_an_interrupted_enable() {
    for features in ["verity,^orphan_file", "verity,^orphan_file,^has_journal"] {
        let Some(image) = Image::mke2fs(16, &["-b", "1024", "-O", features]) else { return };
        let data = data(70_000);
        let volume = image.open();
        volume.write("/other", &data).unwrap();
        let used = volume.space().free_blocks;
        verity::write(&volume, "/file", &data, &Protection::DEFAULT.of(&data).stored(1024));
        let ino = volume.resolve("/file").unwrap().ino();
        let whole = used - volume.space().free_blocks;
        volume.close().unwrap();
        verity::set_size(&image.path(), "/file", 70_000, false);
        image.debugfs_write(&format!("set_super_value last_orphan {ino}"));

        let volume = image.open();
        assert_eq!(volume.read("/file").unwrap(), data);
        let left = used - volume.space().free_blocks;
        assert!(left < whole && left < 70, "{left} of {whole} blocks are left");
        volume.close().unwrap();
        image.fsck();
    }
}

/// A kernel without fs-verity can neither read these files nor change their attributes, but renames
/// and removes them.
#[test]
fn the_kernel_and_parext4_rename_and_remove_each_others_files() {
    let Some(image) = image(4096, Protection::DEFAULT, &LENGTHS) else { return };
    image.with_kernel(|root| {
        std::fs::rename(root.join("f4097"), root.join("renamed")).unwrap();
        std::fs::remove_file(root.join("f70000")).unwrap();
    });
    image.fsck();
    let volume = image.open();
    assert_eq!(volume.read("/renamed").unwrap(), data(4097));
    volume.rename("/renamed", "/again").unwrap();
    volume.remove_file(path(1_100_000)).unwrap();
    volume.close().unwrap();
    image.fsck();
    image.with_kernel(|root| {
        assert_eq!(std::fs::metadata(root.join("again")).unwrap().len(), 4097);
        assert!(!root.join("f1100000").exists());
        match std::fs::read(root.join("again")) {
            Ok(bytes) => assert_eq!(bytes, data(4097)),
            Err(error) => skip_allowed(&format!("the kernel has no fs-verity: {error}")),
        }
    });
}

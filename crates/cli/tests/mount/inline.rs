//! Files whose contents lie in their inodes: each way to write them, here and on the kernel's ext4.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use testkit::fuse_mount::{FuseMount, tool};
use testkit::kernel_mount::KernelMount;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Changes files around the size at which contents leave the inode. Returns what they contain after
/// each change.
fn scenario(dir: &Path) -> Vec<(String, Vec<u8>, u64)> {
    let mut seen = Vec::new();
    let mut look = |what: &str, path: &Path| {
        let metadata = std::fs::metadata(path).unwrap();
        seen.push((what.to_owned(), std::fs::read(path).unwrap(), metadata.len()));
    };
    let path = dir.join("file");
    std::fs::write(&path, [1; 30]).unwrap();
    look("written", &path);
    let file = open(&path);
    file.write_all_at(&[2; 20], 40).unwrap();
    look("written with a gap", &path);
    file.set_len(35).unwrap();
    file.set_len(50).unwrap();
    look("cut and extended", &path);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(&[3; 60]).unwrap();
    look("appended", &path);
    assert_eq!(seek(&file, SeekFrom::Data(0)).unwrap(), 0);
    assert_eq!(seek(&file, SeekFrom::Hole(0)).unwrap(), 110);
    file.sync_all().unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(&[4; 60]).unwrap();
    look("appended past the inode", &path);
    file.set_len(10).unwrap();
    look("cut", &path);
    let other = dir.join("other");
    std::fs::write(&other, [5; 100]).unwrap();
    fallocate(open(&other), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 10, 20).unwrap();
    look("punched", &other);
    let allocated = dir.join("allocated");
    std::fs::write(&allocated, [6; 100]).unwrap();
    fallocate(open(&allocated), FallocateFlags::empty(), 0, 8192).unwrap();
    look("allocated", &allocated);
    let mapped = dir.join("mapped");
    std::fs::write(&mapped, [7; 100]).unwrap();
    // A program that writes through a mapping of the file.
    let script = "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\nm[50:60]=b'0123456789'\nm.flush()";
    tool(Command::new("python3").args(["-c", script]).arg(&mapped));
    look("mapped", &mapped);
    for number in 0..12 {
        std::fs::create_dir(dir.join(format!("directory{number}"))).unwrap();
    }
    for number in 0..11 {
        std::fs::rename(dir.join(format!("directory{number}")), dir.join(format!("directory11/d{number}")))
            .unwrap();
    }
    let mut names: Vec<_> =
        std::fs::read_dir(dir.join("directory11")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    seen.push((format!("{names:?}"), Vec::new(), names.len() as u64));
    seen
}

#[test]
fn small_files_behave_as_on_the_kernels_ext4() {
    let kernel = KernelMount::mounted(&["-I", "256", "-O", "inline_data"], "defaults");
    let expected = kernel.as_ref().map(|kernel| scenario(&kernel.path()));
    for options in ["cache=kernel", "cache=direct", "cache=writeback,threads=1"] {
        let Some(fuse) = FuseMount::mounted(&["-O", "inline_data"], options) else { return };
        let seen = scenario(fuse.dir());
        if let Some(expected) = &expected {
            for (seen, expected) in seen.iter().zip(expected) {
                assert_eq!(seen, expected, "{options}");
            }
        }
        let small = fuse.path("small");
        std::fs::write(&small, [1; 30]).unwrap();
        File::open(&small).unwrap().sync_all().unwrap();
        assert_eq!(std::fs::metadata(&small).unwrap().blocks(), 1, "{options}: not a hole for programs");
        fuse.umount();
        fuse.scratch().fsck();
    }
}

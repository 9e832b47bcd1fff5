//! Files that fs-verity protects, through a mount: reads, mappings, the ioctls, and attempts to
//! write.

use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;

use parext4::{DeviceOptions, FileDevice, OpenOptions, Volume, VolumeOptions};
use testkit::command::text;
use testkit::fuse_mount::{FuseMount, tool};
use testkit::verity::{self, Protection};

/// Prints what each operation returns, or its error number.
const SCRIPT: &str = r#"
import ctypes, errno, fcntl, hashlib, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
root = sys.argv[1]

def attempt(what, operation):
    try:
        print(what, operation())
    except OSError as error:
        print(what, errno.errorcode[error.errno])

def measure(path, room):
    fd = os.open(path, os.O_RDONLY)
    buffer = ctypes.create_string_buffer(struct.pack("HH", 0, room), 4 + room)
    failed = libc.ioctl(fd, ctypes.c_ulong(0xc0046686), buffer) < 0
    os.close(fd)
    if failed:
        raise OSError(ctypes.get_errno(), "")
    algorithm, size = struct.unpack("HH", buffer.raw[:4])
    return "%d %d %s" % (algorithm, size, buffer.raw[4:4 + size].hex())

def mapped(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as map:
        return hashlib.sha256(map).hexdigest()

def direct(path, offset):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    map = mmap.mmap(-1, 4096)
    return os.preadv(fd, [map], offset)

good, bad = (os.path.join(root, name) for name in ("good", "bad"))
print("contents", hashlib.sha256(open(good, "rb").read()).hexdigest())
print("mapped", mapped(good))
attempt("measure", lambda: measure(good, 64))
attempt("measure exactly", lambda: measure(good, 32))
attempt("measure short", lambda: measure(good, 31))
attempt("measure plain", lambda: measure(os.path.join(root, "plain"), 64))
for what, command, size in (("enable", 0x40806685, 128), ("metadata", 0xc0286687, 40)):
    attempt(what, lambda: fcntl.ioctl(os.open(good, os.O_RDONLY), command, bytes(size)))
for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
    attempt("open %x" % flags, lambda: os.open(good, flags))
attempt("truncate", lambda: os.truncate(good, 5))
attempt("truncate to the same size", lambda: os.truncate(good, os.stat(good).st_size))
attempt("chmod", lambda: os.chmod(good, 0o640))
attempt("xattr", lambda: os.setxattr(good, "user.a", b"1"))
attempt("utime", lambda: os.utime(good, (1, 2)))
attempt("rename", lambda: os.rename(good, good + "2"))
fd = os.open(bad, os.O_RDONLY)
attempt("sound block", lambda: len(os.pread(fd, 4096, 0)))
attempt("changed block", lambda: len(os.pread(fd, 4096, 4096)))
attempt("direct, sound", lambda: direct(bad, 8192))
attempt("direct, changed", lambda: direct(bad, 4096))
attempt("unlink", lambda: os.unlink(good + "2"))
"#;

#[test]
fn a_mount_verifies_and_never_writes() {
    let Some(fuse) = FuseMount::new(&["--block-size", "4096"]) else { return };
    let image = fuse.scratch().image();
    if tool(Command::new("tune2fs").args(["-O", "verity"]).arg(&image)).is_none() {
        return;
    }
    let data: Vec<u8> = (0..300_000_u32).map(|at| (at % 253) as u8).collect();
    let stored = Protection::DEFAULT.of(&data).stored(4096);
    let place = {
        let device = FileDevice::open(&image, &DeviceOptions::new()).unwrap();
        let volume = Volume::open_device(Arc::new(device), &VolumeOptions::new()).unwrap();
        volume.write("/plain", "text").unwrap();
        ["/good", "/bad"].iter().for_each(|path| verity::write(&volume, path, &data, &stored));
        let file = volume.open_file("/bad", &OpenOptions::read_only()).unwrap();
        let place = file.device_range(4096).unwrap().unwrap().start;
        drop(file);
        volume.close().unwrap();
        place
    };
    ["/good", "/bad"].iter().for_each(|path| verity::set_size(&image, path, data.len() as u64, true));
    std::fs::File::options().write(true).open(&image).unwrap().write_all_at(&[0xff; 7], place + 5).unwrap();

    let digest = Protection::DEFAULT.digest(&data);
    let measured = format!("1 32 {}", digest.strip_prefix("sha256:").unwrap());
    for options in ["cache=kernel", "cache=direct"] {
        fuse.mount(options);
        if let Some(flags) = tool(Command::new("lsattr").arg(fuse.path("good"))) {
            assert!(flags.split(' ').next().unwrap().contains('V'), "{flags}");
        }
        let Some(printed) = tool(Command::new("python3").args(["-c", SCRIPT]).arg(fuse.dir())) else {
            return;
        };
        let lines: Vec<_> = printed.lines().collect();
        let hash = lines[0].strip_prefix("contents ").unwrap();
        assert_eq!(lines[1], format!("mapped {hash}"));
        let expected = [
            format!("measure {measured}"),
            format!("measure exactly {measured}"),
            "measure short EOVERFLOW".into(),
            "measure plain ENODATA".into(),
            "enable ENOTSUP".into(),
            "metadata ENOTSUP".into(),
            "open 1 EPERM".into(),
            "open 2 EPERM".into(),
            "open 200 EPERM".into(),
            "open 401 EPERM".into(),
            "truncate EPERM".into(),
            "truncate to the same size EPERM".into(),
            "chmod None".into(),
            "xattr None".into(),
            "utime None".into(),
            "rename None".into(),
            "sound block 4096".into(),
            "changed block EIO".into(),
            "direct, sound 4096".into(),
            "direct, changed EIO".into(),
            "unlink None".into(),
        ];
        assert_eq!(lines[2..], expected, "{options}");
        std::fs::write(fuse.path("good"), "").unwrap();
        fuse.umount();
        let listed = fuse.scratch().ok(&["ls", "--json", &text(&image)]);
        assert!(listed.contains(&digest), "{listed}");
        let failed = fuse.scratch().fails(&["cat", &fuse.scratch().inside("/bad")]);
        assert!(failed.contains("fs-verity: the hash does not match: inode "), "{failed}");
        fuse.scratch().fails(&["get", &fuse.scratch().inside("/bad"), &text(&fuse.scratch().path("out"))]);
        if options == "cache=kernel" {
            let device = FileDevice::open(&image, &DeviceOptions::new()).unwrap();
            let volume = Volume::open_device(Arc::new(device), &VolumeOptions::new()).unwrap();
            volume.remove_file("/good").unwrap();
            verity::write(&volume, "/good", &data, &stored);
            volume.close().unwrap();
            verity::set_size(&image, "/good", data.len() as u64, true);
        }
    }
    fuse.scratch().fsck();
}

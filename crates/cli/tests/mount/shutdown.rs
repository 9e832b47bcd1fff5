//! Calls on a volume that was shut down (`EXT4_IOC_SHUTDOWN`), on a mount and on the kernel's ext4.

use std::path::Path;
use std::process::Command;

use testkit::fuse_mount::{FuseMount, tool, umount};
use testkit::kernel_mount::KernelMount;

/// Shuts the volume of a directory down with an argument, and prints the error number of each call.
/// The kernel has pages of `f`.
const SCRIPT: &str = r"
import fcntl, mmap, os, struct, sys
path, flag = sys.argv[1], int(sys.argv[2])
name = lambda last: os.path.join(path, last)
fd = os.open(name('f'), os.O_RDWR | os.O_CREAT)
os.write(fd, b'x' * 4096)
os.fsync(fd)
os.pread(fd, 4096, 0)
dir = os.open(path, os.O_RDONLY)
shut_down = lambda: fcntl.ioctl(dir, 0x8004587d, struct.pack('I', flag))
calls = [
    ('shutdown', shut_down),
    ('fsync', lambda: os.fsync(fd)),
    ('fdatasync', lambda: os.fdatasync(fd)),
    ('fsync of a directory', lambda: os.fsync(dir)),
    ('write', lambda: os.pwrite(fd, b'y', 0)),
    ('read', lambda: os.pread(fd, 10, 0)),
    ('mkdir', lambda: os.mkdir(name('d'))),
    ('create', lambda: os.open(name('new'), os.O_WRONLY | os.O_CREAT)),
    ('truncate', lambda: os.ftruncate(fd, 1)),
    ('chmod', lambda: os.fchmod(fd, 0o600)),
    ('utime', lambda: os.utime(fd)),
    ('link', lambda: os.link(name('f'), name('l'))),
    ('rename', lambda: os.rename(name('f'), name('g'))),
    ('unlink', lambda: os.unlink(name('f'))),
    ('setxattr', lambda: os.setxattr(fd, 'user.a', b'1')),
    ('fallocate', lambda: os.posix_fallocate(fd, 0, 100000)),
    ('open for writing', lambda: os.open(name('f'), os.O_RDWR)),
    ('open', lambda: os.open(name('f'), os.O_RDONLY)),
    ('listdir', lambda: os.listdir(path)),
    ('stat', lambda: os.stat(name('f'))),
    ('statfs', lambda: os.statvfs(path)),
    ('second shutdown', shut_down),
]
for what, call in calls:
    try:
        call()
        print(what, 'ok')
    except OSError as error:
        print(what, error.errno)
";

fn errnos(dir: &Path, argument: &str) -> Option<String> {
    tool(Command::new("python3").args(["-c", SCRIPT]).arg(dir).arg(argument))
}

#[test]
fn calls_after_a_shutdown_fail_as_on_the_kernels_ext4() {
    // The argument selects whether the kernel makes all data durable first, or only its journal, or
    // neither.
    for argument in ["0", "1", "2"] {
        let Some(kernel) = KernelMount::mounted(&[], "") else { return };
        let Some(fuse) = FuseMount::mounted(&[], "") else { return };
        let Some(ours) = fuse.watched(|| errnos(fuse.dir(), argument)) else { return };
        assert_eq!(ours, errnos(&kernel.path(), argument).unwrap(), "argument {argument}");
        umount(fuse.dir());
        fuse.scratch().ok(&["recover", fuse.scratch().image().to_str().unwrap()]);
        fuse.scratch().fsck();
    }
}

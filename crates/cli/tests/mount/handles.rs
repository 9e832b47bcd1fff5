//! Open files whose flags change, and handles that race, on a mount and on the kernel's ext4.

use std::path::Path;
use std::process::Command;

use testkit::fuse_mount::{FuseMount, tool};
use testkit::kernel_mount::KernelMount;

const SCRIPT: &str = include_str!("handles.py");

fn run(dir: &Path) -> Option<String> {
    tool(Command::new("python3").args(["-c", SCRIPT]).arg(dir))
}

/// A write of one large folio to a volume without room for all of it fails as a whole in the
/// kernel, which depends on the version.
const DIFFERS: &str = "append_that_fits_in_part";

#[test]
fn handles_behave_as_on_the_kernels_ext4() {
    let Some(kernel) = KernelMount::mounted(&[], "") else { return };
    let Some(theirs) = run(&kernel.path()) else { return };
    for cache in ["cache=kernel", "cache=writeback", "cache=direct", "cache=kernel,threads=1"] {
        let Some(fuse) = FuseMount::mounted(&[], cache) else { return };
        let Some(ours) = fuse.watched(|| run(fuse.dir())) else { return };
        let lines = |of: &str| -> Vec<_> {
            of.lines().filter(|line| !line.starts_with(DIFFERS)).map(str::to_owned).collect()
        };
        assert_eq!(lines(&ours), lines(&theirs), "{cache} (left), and ext4");
        assert!(ours.contains(&format!("{DIFFERS} True")), "{cache}: {ours}");
        fuse.finish();
    }
}

/// Stores to a mapping of an append-only file, as large as write-back that bypasses the volume's
/// page cache.
const STORE: &str = "
import errno, mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_APPEND)
os.write(file, b'x')
try:
    memory = mmap.mmap(file, 512 << 10)
    memory[:] = b'2' * (512 << 10)
    memory.flush()
    print('stored')
except OSError as error:
    print(errno.errorcode[error.errno])
except PermissionError as error:
    print(errno.errorcode[error.errno])
";

#[test]
fn a_mapping_of_an_append_only_file_stores_nothing_with_one_thread_either() {
    for threads in [1, 4] {
        let Some(fuse) = FuseMount::mounted(&[], &format!("threads={threads}")) else { return };
        let path = fuse.path("log");
        std::fs::write(&path, vec![b'1'; 512 << 10]).unwrap();
        if tool(Command::new("chattr").arg("+a").arg(&path)).is_none() {
            return;
        }
        let stored = fuse.watched(|| tool(Command::new("python3").args(["-c", STORE]).arg(&path)));
        tool(Command::new("chattr").arg("-a").arg(&path));
        let Some(stored) = stored else { return };
        match stored.trim() {
            "EPERM" => assert!(fuse.umount_loses_changes().contains("/log")),
            _ => fuse.umount(),
        }
        fuse.mount("");
        let contents = std::fs::read(&path).unwrap();
        assert!(["EPERM", "EACCES"].contains(&stored.trim()), "{threads} threads: {stored}");
        assert!(contents[..512 << 10].iter().all(|&byte| byte == b'1'), "{threads} threads");
        fuse.finish();
    }
}

//! Files opened by handle (name_to_handle_at(2), open_by_handle_at(2)), as NFS exports do, on a
//! mount and on the kernel's ext4.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{PoisonError, RwLock};

use testkit::fuse_mount::{FuseMount, tool};
use testkit::kernel_mount::KernelMount;

/// `name DIR PATH...` prints a handle for each path in DIR; `open DIR HANDLE...` opens each and
/// prints its path in DIR, if it is a directory, or its contents.
const SCRIPT: &str = r#"
import ctypes, os, struct, stat, sys
libc = ctypes.CDLL(None, use_errno=True)
NAME_TO_HANDLE_AT, OPEN_BY_HANDLE_AT, AT_FDCWD = 303, 304, -100

def name(path):
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 8 + 128)
    mount = ctypes.c_int()
    if libc.syscall(NAME_TO_HANDLE_AT, AT_FDCWD, path.encode(), handle, ctypes.byref(mount), 0) < 0:
        return "errno %d" % ctypes.get_errno()
    size, _ = struct.unpack_from("Ii", handle.raw)
    return handle.raw[:8 + size].hex()

def show(top, handle):
    mount = os.open(top, os.O_RDONLY)
    fd = libc.syscall(OPEN_BY_HANDLE_AT, mount, bytes.fromhex(handle), os.O_RDONLY | os.O_NONBLOCK)
    error = ctypes.get_errno()
    os.close(mount)
    if fd < 0:
        return "errno %d" % error
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        seen = "dir " + os.path.relpath(os.readlink("/proc/self/fd/%d" % fd), top)
    else:
        seen = "file " + os.read(fd, 100).decode()
    os.close(fd)
    return seen

what, top, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
for argument in arguments:
    print(name(os.path.join(top, argument)) if what == "name" else show(top, argument))
"#;

const ESTALE: &str = "errno 116";

fn script(what: &str, top: &Path, arguments: &[impl AsRef<str>]) -> Vec<String> {
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT, what]).arg(top).args(arguments.iter().map(AsRef::as_ref));
    tool(&mut command).unwrap().lines().map(str::to_owned).collect()
}

/// Held for reading by a test that needs the kernel's caches to stay, and for writing while a test
/// has the kernel drop them.
pub static KERNEL_CACHES: RwLock<()> = RwLock::new(());

/// Has the kernel forget all unused inodes.
fn forget() {
    let _dropping = KERNEL_CACHES.write().unwrap_or_else(PoisonError::into_inner);
    std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

const PATHS: [&str; 6] = [".", "a", "a/b/c", "a/b/c/file", "gone", "gone-dir"];

fn prepare(top: &Path) -> Vec<String> {
    for dir in ["a/b/c", "gone-dir", "elsewhere"] {
        std::fs::create_dir_all(top.join(dir)).unwrap();
    }
    for file in ["a/b/c/file", "gone"] {
        std::fs::write(top.join(file), file).unwrap();
    }
    script("name", top, &PATHS)
}

/// Returns what the handles open: at first, after the kernel has forgotten the inodes, after
/// another mount, after renames, and after removal.
fn lives(top: &Path, mount_again: &dyn Fn()) -> BTreeMap<&'static str, Vec<String>> {
    let handles = prepare(top);
    let open = || script("open", top, &handles);
    let mut seen = BTreeMap::from([("at first", open())]);
    forget();
    seen.insert("forgotten", open());
    mount_again();
    seen.insert("mounted again", open());
    forget();
    std::fs::rename(top.join("a/b"), top.join("elsewhere/b")).unwrap();
    std::fs::remove_file(top.join("gone")).unwrap();
    std::fs::remove_dir(top.join("gone-dir")).unwrap();
    forget();
    seen.insert("renamed and removed", open());
    // The numbers of the removed inodes are reused.
    (0..10).for_each(|nth| std::fs::write(top.join(format!("new{nth}")), "new").unwrap());
    forget();
    seen.insert("reused", open());
    seen
}

#[test]
fn handles_open_the_same_files_as_on_ext4() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let Some(kernel) = KernelMount::mounted(&["-b", "4096"], "rw") else { return };
    let ours = fuse.watched(|| {
        lives(fuse.dir(), &|| {
            fuse.umount();
            fuse.mount("rw");
        })
    });
    assert_eq!(ours, lives(&kernel.path(), &|| kernel.mount_again()));
    let opened = ["dir .", "dir a", "dir a/b/c", "file a/b/c/file", "file gone", "dir gone-dir"];
    let left = ["dir .", "dir a", "dir elsewhere/b/c", "file a/b/c/file", ESTALE, ESTALE];
    for (when, expected) in [("forgotten", opened), ("mounted again", opened), ("reused", left)] {
        assert_eq!(ours[when], expected, "{when}");
    }
    fuse.finish();
}

/// Returns a handle as the kernel makes it for FUSE: of type `FILEID_INO64_GEN`, with the upper
/// half of the number first.
fn made_up(ino: u64, generation: u32) -> String {
    let (upper, lower) = ((ino >> 32) as u32, ino as u32);
    let words = [12, 0x81, upper, lower, generation];
    words.iter().flat_map(|word: &u32| word.to_ne_bytes()).map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn handles_of_no_file_are_stale() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    std::fs::write(fuse.path("file"), "contents").unwrap();
    let handle = &script("name", fuse.dir(), &["file"])[0];
    let number = u64::from(u32::from_str_radix(&handle[24..32], 16).unwrap().swap_bytes());
    let generation = u32::from_str_radix(&handle[32..40], 16).unwrap().swap_bytes();
    assert_eq!(*handle, made_up(number, generation));
    fuse.umount();
    fuse.mount("rw");
    fuse.watched(|| {
        // Reserved inodes, from the root under its number in the volume to the journal; 0; free
        // numbers; too large numbers.
        let numbers = [0, 2, 3, 4, 5, 6, 7, 8, 9, 10, number + 1, u64::from(u32::MAX), (1 << 32) + number];
        let mut handles: Vec<_> = numbers.iter().map(|&ino| made_up(ino, 0)).collect();
        handles.push(made_up(number, generation ^ 1));
        let seen = script("open", fuse.dir(), &handles);
        assert!(seen.iter().all(|seen| seen == ESTALE), "{handles:?}: {seen:?}");
        let good = [made_up(1, 0), made_up(11, 0), made_up(number, generation)];
        assert_eq!(script("open", fuse.dir(), &good), ["dir .", "dir lost+found", "file contents"]);
    });
    fuse.finish();
}

//! Encrypted directories, which the kernel's ext4 makes and reads with a key.

use std::path::Path;
use std::process::Command;

use crate::skip::skip_allowed;
use crate::tool::{text, tool};

/// Adds the key to the file system that the first argument is the root of. With `make`, creates the
/// directories `enc`, with names padded to 32 bytes, and `tight`, with names padded to 4 bytes,
/// whose subdirectory `big` has as many names as the third argument says. With `show`, prints the
/// names below both and the sizes of the files that could be read.
const SCRIPT: &str = r#"
import fcntl, os, struct, sys
root, command = sys.argv[1:3]
fd = os.open(root, os.O_RDONLY)
key = bytearray(struct.pack("II32xII32x", 2, 0, 64, 0) + bytes(range(64)))
try:
    # FS_IOC_ADD_ENCRYPTION_KEY
    fcntl.ioctl(fd, 0xC0506617, key)
except OSError:
    sys.exit(3)

def fill(path):
    for n in (1, 5, 16, 17, 31, 32, 33, 100, 140, 149, 150, 160, 200, 255):
        with open(os.path.join(path, "n" * n), "w") as file:
            file.write("x" * n)
    os.mkdir(os.path.join(path, "empty"))
    os.mkdir(os.path.join(path, "sub"))
    open(os.path.join(path, "sub", "inner"), "w").close()
    for n in (1, 10, 40, 57, 58, 59, 60, 100, 200, 1000):
        os.symlink("t" * n, os.path.join(path, "link-%d" % n))
    os.mknod(os.path.join(path, "socket"), 0o140644)

if command == "make":
    for name, padding in (("enc", 3), ("tight", 0)):
        path = os.path.join(root, name)
        os.mkdir(path)
        dir = os.open(path, os.O_RDONLY)
        # FS_IOC_SET_ENCRYPTION_POLICY: version 2, AES-256-XTS, AES-256-CTS
        fcntl.ioctl(dir, 0x800C6613, struct.pack("BBBBB3x16s", 2, 1, 4, padding, 0, bytes(key[8:24])))
        os.close(dir)
        fill(path)
    big = os.path.join(root, "tight", "big")
    os.mkdir(big)
    for n in range(int(sys.argv[3])):
        os.link(os.path.join(root, "tight", "n"), os.path.join(big, "%d-" % n + "b" * (n % 200)))
else:
    for name in ("enc", "tight"):
        for path, dirs, files in os.walk(os.path.join(root, name)):
            for file in sorted(files):
                path_of = os.path.join(path, file)
                size = len(open(path_of).read()) if os.path.isfile(path_of) else -1
                print(os.path.relpath(path_of, root), size)
"#;

fn run(arguments: &[&str], root: &Path) -> Option<String> {
    let output = tool(Command::new("python3").args(["-c", SCRIPT]).arg(root).args(arguments))?;
    if output.status.code() == Some(3) {
        skip_allowed("the kernel's ext4 has no encryption here");
        return None;
    }
    assert!(output.status.success(), "{}", text(&output));
    Some(text(&output))
}

/// Makes encrypted directories on a mounted volume: `enc`, and `tight` with a subdirectory of
/// `names` names. Returns false, after a call of [`skipped`](crate::skipped), if that is not
/// possible here. The key is gone once the volume is unmounted.
pub fn make(root: &Path, names: u32) -> bool {
    run(&["make", &names.to_string()], root).is_some()
}

/// Returns the paths and the lengths of the files that the kernel finds with the key.
pub fn show(root: &Path) -> String {
    run(&["show"], root).unwrap_or_default()
}

//! Encrypted directories without the key: on a mount and on the kernel's ext4, the same operations
//! have the same results.

use std::path::Path;
use std::process::Command;

use testkit::fuse_mount::{FuseMount, tool};
use testkit::kernel_mount::KernelMount;
use testkit::{Image, encrypted};

/// Prints the error number of each operation, or what it returned. Entries are named by their
/// order.
const SCRIPT: &str = r#"
import errno, os, stat, sys
root = sys.argv[1]
os.chdir(root)
open("plain", "w").close()
names = sorted(os.listdir("enc"))
by_type = lambda test: [n for n in names if test(os.lstat("enc/" + n).st_mode)]
files, dirs, links = (by_type(test) for test in (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK))
full, empty = sorted(dirs, key=lambda n: -len(os.listdir("enc/" + n)))
print(names)

def attempt(what, operation):
    try:
        print(what, operation())
    except OSError as error:
        print(what, errno.errorcode[error.errno])

for n in names:
    s = os.lstat("enc/" + n)
    print(n, oct(s.st_mode), s.st_nlink, s.st_size, s.st_blocks)
for n in links:
    attempt("readlink", lambda: os.readlink("enc/" + n))
    attempt("follow", lambda: os.stat("enc/" + n))
file = "enc/" + files[0]
for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_RDONLY | os.O_CREAT, os.O_CREAT | os.O_EXCL):
    attempt("open %x" % flags, lambda: os.close(os.open(file, flags)))
    attempt("open new %x" % flags, lambda: os.close(os.open("enc/new", flags)))
attempt("truncate", lambda: os.truncate(file, 0))
attempt("truncate more", lambda: os.truncate(file, 1 << 20))
attempt("mkdir", lambda: os.mkdir("enc/new"))
attempt("mkdir old", lambda: os.mkdir("enc/" + full))
attempt("symlink", lambda: os.symlink("target", "enc/new"))
attempt("mknod", lambda: os.mknod("enc/new", 0o10644))
attempt("link in", lambda: os.link("plain", "enc/new"))
attempt("link out", lambda: os.link(file, "out"))
attempt("links", lambda: os.stat("out").st_nlink)
attempt("open out", lambda: open("out"))
attempt("unlink out", lambda: os.unlink("out"))
attempt("rename within", lambda: os.rename(file, "enc/new"))
attempt("rename over", lambda: os.rename(file, "enc/" + files[1]))
attempt("rename itself", lambda: os.rename(file, file))
attempt("rename out", lambda: os.rename(file, "out"))
attempt("rename in", lambda: os.rename("plain", "enc/new"))
attempt("rename in over", lambda: os.rename("plain", file))
attempt("rename none", lambda: os.rename("enc/none", "enc/new"))
attempt("rename top", lambda: os.rename("enc", "top"))
os.rename("top", "enc")
attempt("chmod", lambda: os.chmod(file, 0o604))
attempt("chown", lambda: os.chown(file, 7, 8))
attempt("utime", lambda: os.utime(file, (5, 6)))
attempt("setxattr", lambda: os.setxattr(file, "user.a", b"value" * 40))
attempt("listxattr", lambda: os.listxattr(file))
attempt("getxattr", lambda: os.getxattr(file, "user.a"))
attempt("stat", lambda: tuple(os.stat(file))[:1] + tuple(os.stat(file))[3:9])
attempt("rmdir full", lambda: os.rmdir("enc/" + full))
attempt("rmdir empty", lambda: os.rmdir("enc/" + empty))
attempt("unlink dir", lambda: os.unlink("enc/" + full))
attempt("unlink", lambda: os.unlink(file))
attempt("unlink again", lambda: os.unlink(file))
attempt("stat again", lambda: os.stat(file))
for n in links:
    attempt("unlink link", lambda: os.unlink("enc/" + n))
print(sorted(os.listdir("enc")))
"#;

fn results(root: &Path) -> Option<String> {
    tool(Command::new("python3").args(["-c", SCRIPT]).arg(root))
}

#[test]
fn operations_without_the_key_are_those_of_the_kernel() {
    let Some(image) = Image::mke2fs(64, &["-O", "encrypt"]) else { return };
    let mut is_made = false;
    image.with_kernel(|root| is_made = encrypted::make(root, 10));
    if !is_made {
        return;
    }
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let Some(kernel) = KernelMount::with_copy_of(&image.path(), "") else { return };
    std::fs::copy(image.path(), fuse.scratch().image()).unwrap();
    fuse.mount("");
    let (expected, found) = (results(&kernel.path()).unwrap(), results(fuse.dir()).unwrap());
    for (expected, found) in expected.lines().zip(found.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
    std::fs::remove_dir_all(fuse.path("enc")).unwrap();
    std::fs::remove_dir_all(fuse.path("tight")).unwrap();
    fuse.umount();
    fuse.scratch().fsck();
}

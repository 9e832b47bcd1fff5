//! The operations of cases. Each is a line of words: the operation and its arguments. Paths are
//! below the case's directory.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, accessat, chmod, chownat, copy_file_range, fallocate, fchmod,
    fchown, ftruncate, futimens, linkat, lsetxattr, makedev, mkdir, mknodat, open, readlink, renameat_with,
    rmdir, stat, symlink, unlink, utimensat,
};
use rustix::io::Errno;
use rustix::process::umask;

use crate::{ALSO_GROUP, USER};

/// An access control list in the form of the system call: version 2, then tag, permissions and user
/// of each entry. It does not fit in permission bits.
const LIST: &[u8] = b"\x02\0\0\0\
    \x01\0\x06\0\xff\xff\xff\xff\
    \x02\0\x04\0\xe9\x03\0\0\
    \x04\0\x06\0\xff\xff\xff\xff\
    \x10\0\x06\0\xff\xff\xff\xff\
    \x20\0\x04\0\xff\xff\xff\xff";

/// The result of an operation: an error number, or 0 for success.
pub type Outcome = i32;

/// Runs an operation of the setup. Panics if it fails.
pub fn run_as_root(operation: &str, dir: &Path) {
    let outcome = run(operation, dir);
    assert_eq!(outcome, 0, "{operation}: {}", std::io::Error::from_raw_os_error(outcome));
}

/// Runs an operation.
pub fn run(operation: &str, dir: &Path) -> Outcome {
    let words: Vec<_> = operation.split(' ').filter(|word| !word.is_empty()).collect();
    match try_run(&words, dir) {
        Ok(()) => 0,
        Err(error) => error.raw_os_error(),
    }
}

fn try_run(words: &[&str], dir: &Path) -> Result<(), Errno> {
    let at = |word: &str| path(dir, word);
    match *words {
        ["make", "file", name] => write(at(name), b"contents"),
        ["make", "dir", name] => mkdir(at(name), mode("755")),
        ["make", "symlink", name] => symlink("nothing", at(name)),
        ["make", kind, name] => mknod(kind, &at(name), "644"),
        ["create", name, bits] => drop_file(open(at(name), OFlags::CREATE | OFlags::WRONLY, mode(bits))),
        ["mkdir", name, bits] => mkdir(at(name), mode(bits)),
        ["mknod", kind, name, bits] => mknod(kind, &at(name), bits),
        ["symlink", target, name] => symlink(long(target), at(name)),
        ["link", from, to] => linkat(CWD, at(from), CWD, at(to), AtFlags::empty()),
        ["link-followed", from, to] => linkat(CWD, at(from), CWD, at(to), AtFlags::SYMLINK_FOLLOW),
        ["rename", from, to] => renameat_with(CWD, at(from), CWD, at(to), RenameFlags::empty()),
        ["rename-new", from, to] => renameat_with(CWD, at(from), CWD, at(to), RenameFlags::NOREPLACE),
        ["exchange", from, to] => renameat_with(CWD, at(from), CWD, at(to), RenameFlags::EXCHANGE),
        ["unlink", name] => unlink(at(name)),
        ["rmdir", name] => rmdir(at(name)),
        ["chmod", name, bits] => chmod(at(name), mode(bits)),
        ["fchmod", name, bits] => fchmod(opened(at(name), "r")?, mode(bits)),
        ["chown", name, uid, gid] => chownat(CWD, at(name), user(uid), group(gid), AtFlags::empty()),
        ["lchown", name, uid, gid] => {
            chownat(CWD, at(name), user(uid), group(gid), AtFlags::SYMLINK_NOFOLLOW)
        }
        ["fchown", name, uid, gid] => fchown(opened(at(name), "r")?, user(uid), group(gid)),
        ["truncate", name, size] => nix::unistd::truncate(&at(name), number(size).cast_signed())
            .map_err(|e| Errno::from_raw_os_error(e as i32)),
        ["ftruncate", name, flags, size] => ftruncate(opened(at(name), flags)?, number(size)),
        ["open", name, flags] => drop_file(opened(at(name), flags)),
        ["open", name, flags, bits] => drop_file(open(at(name), open_flags(flags), mode(bits))),
        ["open-unlinked", name, bits] => unlinked(&at(name), mode(bits)),
        ["allocate", name, flags, offset, len] => {
            fallocate(opened(at(name), flags)?, FallocateFlags::empty(), number(offset), number(len))
        }
        ["punch", name, flags, offset, len] => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(opened(at(name), flags)?, mode, number(offset), number(len))
        }
        ["zero", name, flags, offset, len] => {
            fallocate(opened(at(name), flags)?, FallocateFlags::ZERO_RANGE, number(offset), number(len))
        }
        ["copy", from, to] => {
            copy_file_range(opened(at(from), "r")?, None, opened(at(to), "w")?, None, 100).map(drop)
        }
        ["acl", name] => lsetxattr(at(name), "system.posix_acl_access", LIST, XattrFlags::empty()),
        ["default-acl", name] => lsetxattr(at(name), "system.posix_acl_default", LIST, XattrFlags::empty()),
        ["utimes", name, atime, mtime] => utimensat(CWD, at(name), &times(atime, mtime), AtFlags::empty()),
        ["lutimes", name, atime, mtime] => {
            utimensat(CWD, at(name), &times(atime, mtime), AtFlags::SYMLINK_NOFOLLOW)
        }
        ["futimes", name, flags, atime, mtime] => futimens(opened(at(name), flags)?, &times(atime, mtime)),
        ["write", name, flags, text] => {
            let mut file = File::from(opened(at(name), flags)?);
            errno(file.write_all(text.as_bytes()))
        }
        ["read", name] => errno(File::from(opened(at(name), "r")?).read(&mut [0; 100]).map(drop)),
        ["list", name] => errno(std::fs::read_dir(at(name)).map(Iterator::count).map(drop)),
        ["readlink", name] => readlink(at(name), Vec::new()).map(drop),
        ["stat", name] => stat(at(name)).map(drop),
        ["access", name, what] => accessat(CWD, at(name), access(what), AtFlags::empty()),
        ["setxattr", name, attribute, value] => {
            lsetxattr(at(name), attribute, value.as_bytes(), XattrFlags::empty())
        }
        ["umask", bits] => {
            umask(mode(bits));
            Ok(())
        }
        _ => panic!("no operation: {words:?}"),
    }
}

/// Returns a path below the case's directory. `@255` stands for a name of 255 bytes, `@deep` for a
/// path that is too long, `''` for an empty path.
fn path(dir: &Path, word: &str) -> PathBuf {
    match word {
        "." => dir.to_owned(),
        "''" => PathBuf::new(),
        _ => PathBuf::from(format!("{}/{}", dir.display(), long(word))),
    }
}

fn long(word: &str) -> String {
    let part = |part: &str| match part.strip_prefix('@') {
        Some("deep") => "x/".repeat(2100),
        Some(len) => "n".repeat(len.parse().unwrap()),
        None => part.to_owned(),
    };
    word.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn mode(bits: &str) -> Mode {
    Mode::from_raw_mode(u32::from_str_radix(bits, 8).unwrap())
}

fn number(word: &str) -> u64 {
    word.parse::<i64>().unwrap().cast_unsigned()
}

/// Parses a user or group: `r` is root, `u` the user, `g` the user's supplementary group, `o`
/// another user, `-` no change.
fn id(word: &str) -> Option<u32> {
    match word {
        "r" => Some(0),
        "u" => Some(USER),
        "g" => Some(ALSO_GROUP),
        "o" => Some(1001),
        "-" => None,
        _ => panic!("no user is called {word}"),
    }
}

fn user(word: &str) -> Option<Uid> {
    id(word).map(Uid::from_raw)
}

fn group(word: &str) -> Option<Gid> {
    id(word).map(Gid::from_raw)
}

fn mknod(kind: &str, path: &Path, bits: &str) -> Result<(), Errno> {
    let (kind, device) = match kind {
        "file" => (FileType::RegularFile, 0),
        "fifo" => (FileType::Fifo, 0),
        "socket" => (FileType::Socket, 0),
        "char" => (FileType::CharacterDevice, makedev(1, 3)),
        "block" => (FileType::BlockDevice, makedev(259, 70_000)),
        _ => panic!("no kind of file is called {kind}"),
    };
    mknodat(CWD, path, kind, mode(bits), device)
}

/// Parses open flags such as `r+creat+excl`. Adds `O_NONBLOCK`, so that opening a pipe does not
/// block.
fn open_flags(text: &str) -> OFlags {
    let flag = |word: &str| match word {
        "r" => OFlags::RDONLY,
        "w" => OFlags::WRONLY,
        "rw" => OFlags::RDWR,
        "creat" => OFlags::CREATE,
        "excl" => OFlags::EXCL,
        "trunc" => OFlags::TRUNC,
        "append" => OFlags::APPEND,
        "nofollow" => OFlags::NOFOLLOW,
        "directory" => OFlags::DIRECTORY,
        "path" => OFlags::PATH,
        "noatime" => OFlags::NOATIME,
        "tmpfile" => OFlags::TMPFILE,
        _ => panic!("no flag is called {word}"),
    };
    text.split('+').map(flag).fold(OFlags::NONBLOCK | OFlags::CLOEXEC, OFlags::union)
}

fn opened(path: PathBuf, flags: &str) -> Result<OwnedFd, Errno> {
    open(path, open_flags(flags), Mode::empty())
}

fn drop_file(file: Result<OwnedFd, Errno>) -> Result<(), Errno> {
    file.map(drop)
}

/// Opens a file, unlinks it, changes its permissions, and reads the data that it has written.
fn unlinked(path: &Path, bits: Mode) -> Result<(), Errno> {
    let file = open(path, OFlags::RDWR, Mode::empty())?;
    unlink(path)?;
    fchmod(&file, bits)?;
    ftruncate(&file, 3)?;
    let stat = rustix::fs::fstat(&file)?;
    let is_right = stat.st_nlink == 0 && stat.st_size == 3 && stat.st_mode & 0o7777 == bits.bits();
    is_right.then_some(()).ok_or(Errno::PROTO)
}

fn write(path: PathBuf, bytes: &[u8]) -> Result<(), Errno> {
    errno(std::fs::write(path, bytes))
}

fn errno<T>(result: std::io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::PROTO))
}

fn access(what: &str) -> Access {
    let bit = |letter: char| match letter {
        'r' => Access::READ_OK,
        'w' => Access::WRITE_OK,
        'x' => Access::EXEC_OK,
        _ => Access::EXISTS,
    };
    what.chars().map(bit).fold(Access::empty(), Access::union)
}

/// Parses a time: seconds, optionally with a fraction (`1.5`), `now`, or `omit`.
fn times(atime: &str, mtime: &str) -> Timestamps {
    let time = |word: &str| match word {
        "now" => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        "omit" => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        _ => {
            let (seconds, part) = word.split_once('.').unwrap_or((word, "0"));
            Timespec { tv_sec: seconds.parse().unwrap(), tv_nsec: part.parse().unwrap() }
        }
    };
    Timestamps { last_access: time(atime), last_modification: time(mtime) }
}

//! A change of its contents removes set-ID bits and file capabilities from a file, and the kernel
//! sees that.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, OFlags, XattrFlags, copy_file_range, fallocate, setxattr};

use crate::user::as_unprivileged;
use testkit::fuse_mount::{FuseMount, as_user, errors, tool, until};
use testkit::kernel_mount::KernelMount;

/// Returns a mount that all users may use and on which set-ID bits take effect.
fn trusting(cache: &str) -> Option<FuseMount> {
    let fuse = FuseMount::mounted(&[], &format!("allow_other,suid,{cache}"))?;
    std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
    Some(fuse)
}

/// Creates a program of root that all users may write, and that prints its effective user. The
/// kernel has cached its mode.
fn program(fuse: &FuseMount, name: &str) -> Option<std::path::PathBuf> {
    let path = fuse.path(name);
    std::fs::copy("/usr/bin/id", &path).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o6777);
    assert_eq!(effective(&path)?, "0");
    Some(path)
}

/// Returns the effective user of the program when another user runs it.
fn effective(path: &Path) -> Option<String> {
    // While another test starts a program, the forked process may hold a writable handle of this
    // file.
    let run = || as_user(65534, &[path.to_str().unwrap()]).arg("-u").env("LC_ALL", "C").output().unwrap();
    assert!(until(|| !errors(&run()).contains("Text file busy")));
    Some(tool(as_user(65534, &[path.to_str().unwrap()]).arg("-u"))?.trim_end().to_owned())
}

fn open(path: &Path, flags: OFlags) -> File {
    File::options().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path).unwrap()
}

/// Returns the first block of the program, in memory aligned for direct I/O.
fn block(path: &Path) -> Vec<u8> {
    let mut block = vec![0; 4096];
    File::open(path).unwrap().read_exact_at(&mut block, 0).unwrap();
    block
}

#[test]
fn set_id_bits_do_not_outlive_a_change_of_the_contents() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 7] = [
        ("written", |path| open(path, OFlags::empty()).write_all_at(&block(path), 0).unwrap()),
        ("written directly", |path| open(path, OFlags::DIRECT).write_all_at(&block(path), 0).unwrap()),
        ("truncated", |path| {
            let size = std::fs::metadata(path).unwrap().len();
            nix::unistd::truncate(path, i64::try_from(size).unwrap()).unwrap();
        }),
        ("extended", |path| open(path, OFlags::empty()).set_len(1 << 20).unwrap()),
        ("allocated", |path| {
            fallocate(open(path, OFlags::empty()), FallocateFlags::empty(), 0, 4096).unwrap();
        }),
        ("punched", |path| {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(open(path, OFlags::empty()), mode, 1 << 20, 4096).unwrap();
        }),
        ("copied to", |path| {
            let (from, to) = (File::open(path).unwrap(), open(path, OFlags::empty()));
            assert_eq!(copy_file_range(from, Some(&mut 0), to, Some(&mut (1 << 20)), 4096), Ok(4096));
        }),
    ];
    for cache in ["cache=kernel", "cache=writeback", "cache=direct", "idmap"] {
        let Some(fuse) = trusting(cache) else { return };
        for (what, change) in changes {
            let Some(path) = program(&fuse, what) else { return };
            as_unprivileged(|| change(&path));
            // Before any stat(2), after which the kernel would have the new mode.
            assert_eq!(effective(&path).unwrap(), "65534", "{cache}, {what}");
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o777, "{cache}, {what}");
        }
        fuse.finish();
    }
}

/// A handle that has removed file capabilities also removes capabilities that are set later.
#[test]
fn capabilities_do_not_outlive_a_write_by_an_old_handle() {
    for cache in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = trusting(cache) else { return };
        let path = fuse.path("file");
        std::fs::write(&path, [1; 4096]).unwrap();
        for flags in [OFlags::empty(), OFlags::DIRECT] {
            let file = open(&path, flags);
            let write = || file.write_all_at(&block(&path), 0).unwrap();
            write();
            // Version 2, CAP_NET_RAW.
            let value = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            setxattr(&path, "security.capability", &value, XattrFlags::empty()).unwrap();
            write();
            let left = tool(Command::new("getcap").arg(&path)).unwrap_or_default();
            assert_eq!(left, "", "{cache}, {flags:?}");
        }
        fuse.finish();
    }
}

/// An append that would have to clear set-ID bits of an append-only file fails, as on the kernel's
/// ext4, because the mode cannot be changed. An append that keeps the bits, or only removes
/// capabilities, succeeds.
#[test]
fn an_append_that_would_clear_set_id_bits_of_an_append_only_file_is_refused() {
    for cache in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = trusting(cache) else { return };
        let Some(path) = program(&fuse, "log") else { return };
        let value = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        setxattr(&path, "security.capability", &value, XattrFlags::empty()).unwrap();
        let before = std::fs::metadata(&path).unwrap();
        tool(Command::new("chattr").arg("+a").arg(&path));
        as_unprivileged(|| {
            let mut file = File::options().append(true).open(&path).unwrap();
            assert_eq!(file.write_all(b"more").unwrap_err().kind(), ErrorKind::PermissionDenied, "{cache}");
            assert!(File::options().write(true).truncate(true).open(&path).is_err());
        });
        // The refused append removes nothing.
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(
            (metadata.mode() & 0o7777, metadata.len()),
            (before.mode() & 0o7777, before.len()),
            "{cache}"
        );
        assert_ne!(tool(Command::new("getcap").arg(&path)).unwrap_or_default(), "", "{cache}");
        // CAP_FSETID keeps set-ID bits. Every write removes capabilities.
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.len()), (before.mode() & 0o7777, before.len() + 4));
        assert_eq!(tool(Command::new("getcap").arg(&path)).unwrap_or_default(), "", "{cache}");
        std::fs::set_permissions(&path, Permissions::from_mode(0o4777)).unwrap_err();
        tool(Command::new("chattr").arg("-a").arg(&path));
        std::fs::set_permissions(&path, Permissions::from_mode(0o4777)).unwrap();
        tool(Command::new("chattr").arg("+i").arg(&path));
        as_unprivileged(|| nix::unistd::truncate(&path, 0).unwrap_err());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o4777, "{cache}");
        tool(Command::new("chattr").arg("-i").arg(&path));
        fuse.finish();
    }
}

/// Files with each combination of set-ID bits: another user than the owner calls chown(2) with no
/// owner and no group.
fn chown_to_nobody(dir: &Path, mount_again: impl FnOnce()) -> Vec<(u32, Option<i32>, u32)> {
    let modes = [0o755, 0o4755, 0o2755, 0o2745, 0o6755];
    for mode in modes {
        let path = dir.join(format!("{mode:o}"));
        std::fs::write(&path, "contents").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    // Afterwards no handle is open for writing: the kernel may close one after close(2) has
    // returned.
    mount_again();
    let call = |mode| {
        let path = dir.join(format!("{mode:o}"));
        let error = as_unprivileged(|| chown(&path, None, None)).err();
        let errno = error.map(|error| error.raw_os_error().unwrap());
        (mode, errno, std::fs::metadata(&path).unwrap().mode() & 0o7777)
    };
    modes.map(call).to_vec()
}

#[test]
fn only_the_owner_may_remove_set_id_bits_by_chown() {
    let Some(kernel) = KernelMount::mounted(&[], "") else { return };
    std::fs::set_permissions(kernel.path().join(".."), Permissions::from_mode(0o755)).unwrap();
    let expected = chown_to_nobody(&kernel.path(), || kernel.mount_again());
    for cache in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = trusting(cache) else { return };
        let mount_again = || {
            fuse.umount();
            fuse.mount(&format!("allow_other,suid,{cache}"));
        };
        assert_eq!(chown_to_nobody(fuse.dir(), mount_again), expected, "{cache}");
        fuse.finish();
    }
}

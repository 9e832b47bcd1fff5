//! Options for owners, read-ahead, the journal, and corruption.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::user::{as_unprivileged, as_unprivileged_of};
use testkit::command::text;
use testkit::fuse_mount::{FuseMount, as_user, tool};
use testkit::kernel_mount::KernelMount;

const OWNER: u32 = 1000;
/// `cap_setuid`, permitted and effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn all_files_have_the_owner_of_the_options() {
    let options = format!("allow_other,uid={OWNER},gid={}", OWNER + 1);
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
    std::fs::write(fuse.path("old"), "old").unwrap();
    std::fs::set_permissions(fuse.path("old"), Permissions::from_mode(0o600)).unwrap();
    fuse.umount();
    fuse.mount(&options);
    let owner = |name: &str| {
        let metadata = std::fs::metadata(fuse.path(name)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    assert_eq!((owner("."), owner("old")), ((OWNER, OWNER + 1), (OWNER, OWNER + 1)));
    std::fs::write(fuse.path("new"), "new").unwrap();
    std::fs::create_dir(fuse.path("dir")).unwrap();
    assert_eq!(owner("new"), (OWNER, OWNER + 1));
    // The kernel checks permissions by that owner.
    let script = format!("cd {} && cat old && echo more >> old && touch his", text(fuse.dir()));
    let does = tool(&mut as_user(OWNER, &["sh", "-ec", &script]));
    // A file cannot be given to another user.
    assert_eq!(chown(fuse.path("old"), Some(0), None).unwrap_err().raw_os_error(), Some(1));
    chown(fuse.path("old"), Some(OWNER), Some(OWNER + 1)).unwrap();
    assert_eq!(chown(fuse.path("old"), None, Some(7)).unwrap_err().raw_os_error(), Some(1));
    fuse.umount();
    fuse.scratch().fsck();

    // In the image, new files have that owner, and old files keep theirs.
    fuse.mount("rw");
    assert_eq!((owner("old"), owner("."), owner("new")), ((0, 0), (0, 0), (OWNER, OWNER + 1)));
    assert_eq!(owner("dir"), (OWNER, OWNER + 1));
    if does.is_some() {
        assert_eq!(owner("his"), (OWNER, OWNER + 1));
        assert_eq!(std::fs::read_to_string(fuse.path("old")).unwrap(), "oldmore\n");
    }
    fuse.finish();
}

/// Stores through a shared mapping, and waits for the write-back.
fn store_through_mapping(path: &std::path::Path) {
    let code = "import mmap, os, sys; fd = os.open(sys.argv[1], os.O_RDWR); m = mmap.mmap(fd, 4); m[:] = b'EVIL'; m.flush()";
    let status = Command::new("python3").args(["-c", code]).arg(path).status().unwrap();
    assert!(status.success(), "{}", path.display());
}

#[test]
fn owners_of_the_options_get_no_set_id_bits_of_others() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let mode = |name: &str| std::fs::metadata(fuse.path(name)).unwrap().mode() & 0o7777;
    let chmod = |name: &str, mode| {
        std::fs::set_permissions(fuse.path(name), Permissions::from_mode(mode)).unwrap();
    };
    let create = |name: &str, mode| {
        std::fs::File::options().write(true).create_new(true).mode(mode).open(fuse.path(name)).unwrap();
    };
    std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
    for name in ["kernel", "writeback", "direct", "kept", "closed"] {
        std::fs::write(fuse.path(name), "contents").unwrap();
        chown(fuse.path(name), Some(7), Some(OWNER + 1)).unwrap();
        chmod(name, if name == "kept" { 0o6755 } else { 0o4755 });
    }
    chmod("closed", 0o4600);
    for cache in ["kernel", "writeback", "direct"] {
        let mapped = format!("mapped-{cache}");
        std::fs::write(fuse.path(&mapped), "contents").unwrap();
        chmod(&mapped, 0o4755);
        setxattr(fuse.path(&mapped), "security.capability", &CAPABILITY, XattrFlags::empty()).unwrap();
    }
    std::fs::create_dir(fuse.path("group")).unwrap();
    chown(fuse.path("group"), None, Some(7)).unwrap();
    chmod("group", 0o2777);
    fuse.umount();

    for cache in ["kernel", "writeback", "direct"] {
        fuse.mount(&format!("allow_other,suid,cache={cache},uid={OWNER},gid={}", OWNER + 1));
        assert_eq!(
            (mode("kept"), mode("group")),
            (0o2755, 0o2777),
            "{cache}: of user 7 and of the shown group"
        );
        // A chmod(2) does not set what the file does not show.
        chmod("kept", 0o4711);
        assert_eq!(mode("kept"), 0o711, "{cache}");
        chmod("kept", 0o2755);
        // Its caller does not see that it is a set-ID program.
        chmod("closed", 0o700);
        store_through_mapping(&fuse.path(&format!("mapped-{cache}")));
        // The write-back of older data does not remove the capability.
        let mut capable = std::fs::File::create(fuse.path("capable")).unwrap();
        std::io::Write::write_all(&mut capable, b"contents").unwrap();
        setxattr(fuse.path("capable"), "security.capability", &CAPABILITY, XattrFlags::empty()).unwrap();
        capable.sync_all().unwrap();
        drop(capable);
        getxattr(fuse.path("capable"), "security.capability", &mut [0; 64]).unwrap();
        std::fs::remove_file(fuse.path("capable")).unwrap();
        chmod(".", 0o777);
        as_unprivileged_of(OWNER + 1, || ["own", "group/file"].map(|name| create(name, 0o6777)));
        let write = format!("echo more >> {}", text(&fuse.path(cache)));
        if tool(&mut as_user(OWNER, &["sh", "-ec", &write])).is_none() {
            return;
        }
        assert_eq!((mode("own") & 0o6000, mode("group/file") & 0o6000), (0o2000, 0), "{cache}");
        // Root may create such files.
        create("roots", 0o4700);
        assert_eq!(mode("roots"), 0o4700, "{cache}");
        fuse.umount();

        fuse.mount("rw");
        assert_eq!((mode("kept"), mode("closed"), mode(cache)), (0o2755, 0o700, 0o755), "{cache}");
        let mapped = format!("mapped-{cache}");
        assert_eq!(mode(&mapped), 0o755, "{cache}");
        assert!(getxattr(fuse.path(&mapped), "security.capability", &mut [0; 64]).is_err(), "{cache}");
        let created = ["own", "group/file", "roots"];
        assert_eq!(created.map(|name| mode(name) & 0o6000), [0o2000, 0, 0o4000], "{cache}");
        created.iter().for_each(|name| std::fs::remove_file(fuse.path(name)).unwrap());
        fuse.umount();
    }

    // With another group than the caller's, from the option and from the directory.
    for options in ["uid=1000,gid=1001", "grpid"] {
        fuse.mount(&format!("allow_other,suid,{options}"));
        as_unprivileged(|| create("file", 0o6777));
        let left = if options == "grpid" { 0o4000 } else { 0 };
        assert_eq!(mode("file") & 0o6000, left, "{options}");
        std::fs::remove_file(fuse.path("file")).unwrap();
        fuse.umount();
    }
    fuse.scratch().fsck();
}

#[test]
fn mounts_by_root_have_a_larger_read_ahead() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let device = std::fs::metadata(fuse.dir()).unwrap().dev();
    let bdi = format!("/sys/class/bdi/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let ahead = std::path::Path::new(&bdi).join("read_ahead_kb");
    // Without permission to set the read-ahead, the mount still succeeds.
    if std::fs::File::options().write(true).open(&ahead).is_ok() {
        assert_eq!(std::fs::read_to_string(&ahead).unwrap(), "4096\n");
    }
    fuse.finish();
}

#[test]
fn the_journal_is_left_alone_on_request() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let mut server = fuse.serve("rw");
    std::fs::write(fuse.path("file"), "contents").unwrap();
    std::fs::File::open(fuse.path("file")).unwrap().sync_all().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    fuse.umount();
    let image = std::fs::read(fuse.scratch().image()).unwrap();
    let error = fuse.scratch().fails(&fuse.mount_command("norecovery"));
    assert!(error.contains("the journal needs recovery"), "{error}");
    for (options, there) in [("ro,norecovery", false), ("noload,ro", false), ("ro", true)] {
        fuse.mount(options);
        assert_eq!(fuse.path("file").exists(), there, "{options}");
        assert!(std::fs::write(fuse.path("other"), "").is_err(), "{options}");
        fuse.umount();
        assert!(std::fs::read(fuse.scratch().image()).unwrap() == image, "{options}");
    }
    fuse.scratch().ok(&["recover", &text(&fuse.scratch().image())]);
    fuse.scratch().fsck();
    assert_eq!(fuse.scratch().ok(&["cat", &fuse.scratch().inside("/file")]), "contents");

    // A clean journal can be ignored, as by the kernel's ext4.
    fuse.mount("rw,noload");
    std::fs::write(fuse.path("second"), "more").unwrap();
    fuse.umount();
    fuse.scratch().fsck();
    assert_eq!(fuse.scratch().ok(&["cat", &fuse.scratch().inside("/second")]), "more");
}

#[test]
fn options_of_ext4_have_their_effects() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let blocks = |dir: &std::path::Path| rustix::fs::statvfs(dir).unwrap().f_blocks;
    std::fs::create_dir(fuse.path("dir")).unwrap();
    chown(fuse.path("dir"), None, Some(77)).unwrap();
    fuse.umount();
    for df in ["bsddf", "minixdf"] {
        fuse.mount(&format!("defaults,nodiratime,data=ordered,grpid,fsname=disk,{df}"));
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let line = format!("disk {} fuse.parext4 ", text(fuse.dir()));
        assert!(mounts.contains(&line), "{mounts}");
        let ours = blocks(fuse.dir());
        let file = fuse.path(&format!("dir/{df}"));
        std::fs::write(&file, "contents").unwrap();
        assert_eq!(std::fs::metadata(file).unwrap().gid(), 77, "as its directory");
        let accessed = || std::fs::metadata(fuse.path("dir")).unwrap().atime_nsec();
        let before = accessed();
        assert!(std::fs::read_dir(fuse.path("dir")).unwrap().count() > 0);
        assert_eq!(accessed(), before);
        fuse.umount();
        let Some(kernel) = KernelMount::with_copy_of(&fuse.scratch().image(), df) else { continue };
        assert_eq!(ours, blocks(&kernel.path()), "{df}");
    }
    fuse.scratch().fsck();
}

/// A name that was changed in the image without its directory's checksum.
pub struct Needle(Vec<usize>);

impl Needle {
    const NAME: &[u8] = b"needle-in-a-directory";

    /// Creates the directory `dir` and corrupts it.
    pub fn hide(fuse: &FuseMount) -> Self {
        Self::hide_after(fuse, 0)
    }

    /// Creates the directory `dir` with `names` other names before the needle, and corrupts the
    /// block that has the needle.
    pub fn hide_after(fuse: &FuseMount, names: usize) -> Self {
        fuse.mount("rw");
        std::fs::create_dir(fuse.path("dir")).unwrap();
        (0..names).for_each(|nth| std::fs::write(fuse.path(&format!("dir/{nth:0>40}")), "").unwrap());
        std::fs::write(fuse.path("dir").join(str::from_utf8(Self::NAME).unwrap()), "").unwrap();
        fuse.umount();
        let image = std::fs::read(fuse.scratch().image()).unwrap();
        // The name also occurs in the journal, where the change does no harm.
        let found = image.windows(Self::NAME.len()).enumerate().filter(|(_, bytes)| *bytes == Self::NAME);
        let needle = Self(found.map(|(at, _)| at).collect());
        assert!(!needle.0.is_empty());
        needle.write(fuse, b'N');
        needle
    }

    /// Repairs the directory. The journal may have other blocks now where the name was.
    pub fn put_back(&self, fuse: &FuseMount) {
        let image = std::fs::read(fuse.scratch().image()).unwrap();
        let is_there = |&&at: &&usize| image[at + 1..].starts_with(&Self::NAME[1..]);
        Self(self.0.iter().filter(is_there).copied().collect()).write(fuse, b'n');
    }

    fn write(&self, fuse: &FuseMount, first: u8) {
        let image = std::fs::File::options().write(true).open(fuse.scratch().image()).unwrap();
        for &at in &self.0 {
            std::os::unix::fs::FileExt::write_all_at(&image, &[first], at as u64).unwrap();
        }
    }
}

#[test]
fn corruption_stops_the_volume_if_the_options_say_so() {
    let cases = [
        ("rw", None, false),
        ("errors=continue", None, false),
        ("errors=remount-ro", None, true),
        ("rw", Some("remount-ro"), true),
        ("errors=continue", Some("remount-ro"), false),
    ];
    for (options, superblock, stops) in cases {
        let Some(fuse) = FuseMount::new(&[]) else { return };
        if let Some(behaviour) = superblock {
            let mut command = Command::new("tune2fs");
            if tool(command.args(["-e", behaviour]).arg(fuse.scratch().image())).is_none() {
                continue;
            }
        }
        let needle = Needle::hide(&fuse);
        fuse.mount(options);
        std::fs::write(fuse.path("before"), "contents").unwrap();
        let error = std::fs::metadata(fuse.path("dir/file")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(117), "EUCLEAN: {error}");
        let made = std::fs::create_dir(fuse.path("after"));
        assert_eq!(made.is_err(), stops, "{options}, {superblock:?}");
        assert!(std::fs::read_dir(fuse.dir()).unwrap().count() > 0);
        let said = fuse.scratch().ok(&["stat", &text(fuse.dir())]);
        assert_eq!(said.contains("the volume takes no changes: corrupt volume"), stops, "{said}");
        if stops {
            let error = fuse.umount_loses_changes();
            assert!(error.contains("corrupt volume"), "{error}");
        } else {
            fuse.umount();
        }
        assert!(!fuse.is_mounted());
        needle.put_back(&fuse);
        fuse.scratch().ok(&["recover", &text(&fuse.scratch().image())]);
        fuse.scratch().fsck();
    }
}

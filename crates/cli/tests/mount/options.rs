//! Options for owners, read-ahead, the journal, and corruption.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

use testkit::command::text;
use testkit::fuse_mount::{Bed, as_user, tool};
use testkit::kernel_mount::Kernel;

const OWNER: u32 = 1000;

#[test]
fn all_files_show_one_owner() {
    let options = format!("allow_other,uid={OWNER},gid={}", OWNER + 1);
    let Some(bed) = Bed::mounted(&[], "rw") else { return };
    std::fs::set_permissions(bed.bench().path("."), Permissions::from_mode(0o755)).unwrap();
    std::fs::write(bed.path("old"), "old").unwrap();
    std::fs::set_permissions(bed.path("old"), Permissions::from_mode(0o600)).unwrap();
    bed.umount();
    bed.mount(&options);
    let owner = |name: &str| {
        let metadata = std::fs::metadata(bed.path(name)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    assert_eq!((owner("."), owner("old")), ((OWNER, OWNER + 1), (OWNER, OWNER + 1)));
    std::fs::write(bed.path("new"), "new").unwrap();
    std::fs::create_dir(bed.path("dir")).unwrap();
    assert_eq!(owner("new"), (OWNER, OWNER + 1));
    // The kernel checks permissions by that owner.
    let script = format!("cd {} && cat old && echo more >> old && touch his", text(bed.dir()));
    let does = tool(&mut as_user(OWNER, &["sh", "-ec", &script]));
    // A file cannot be given to another user.
    assert_eq!(chown(bed.path("old"), Some(0), None).unwrap_err().raw_os_error(), Some(1));
    chown(bed.path("old"), Some(OWNER), Some(OWNER + 1)).unwrap();
    assert_eq!(chown(bed.path("old"), None, Some(7)).unwrap_err().raw_os_error(), Some(1));
    bed.umount();
    bed.bench().fsck();

    // In the image, new files have that owner, and old files keep theirs.
    bed.mount("rw");
    assert_eq!((owner("old"), owner("."), owner("new")), ((0, 0), (0, 0), (OWNER, OWNER + 1)));
    assert_eq!(owner("dir"), (OWNER, OWNER + 1));
    if does.is_some() {
        assert_eq!(owner("his"), (OWNER, OWNER + 1));
        assert_eq!(std::fs::read_to_string(bed.path("old")).unwrap(), "oldmore\n");
    }
    bed.finish();
}

#[test]
fn the_kernel_reads_further_ahead_where_root_mounts() {
    let Some(bed) = Bed::mounted(&[], "rw") else { return };
    let device = std::fs::metadata(bed.dir()).unwrap().dev();
    let bdi = format!("/sys/class/bdi/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let ahead = std::path::Path::new(&bdi).join("read_ahead_kb");
    // Without permission to set the read-ahead, the mount still succeeds.
    if std::fs::File::options().write(true).open(&ahead).is_ok() {
        assert_eq!(std::fs::read_to_string(&ahead).unwrap(), "4096\n");
    }
    bed.finish();
}

#[test]
fn the_journal_is_left_alone_on_request() {
    let Some(bed) = Bed::new(&[]) else { return };
    let mut server = bed.serve("rw");
    std::fs::write(bed.path("file"), "contents").unwrap();
    std::fs::File::open(bed.path("file")).unwrap().sync_all().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    bed.umount();
    let image = std::fs::read(bed.bench().image()).unwrap();
    let error = bed.bench().fails(&bed.mount_command("norecovery"));
    assert!(error.contains("the journal needs recovery"), "{error}");
    for (options, there) in [("ro,norecovery", false), ("noload,ro", false), ("ro", true)] {
        bed.mount(options);
        assert_eq!(bed.path("file").exists(), there, "{options}");
        assert!(std::fs::write(bed.path("other"), "").is_err(), "{options}");
        bed.umount();
        assert!(std::fs::read(bed.bench().image()).unwrap() == image, "{options}");
    }
    bed.bench().ok(&["recover", &text(&bed.bench().image())]);
    bed.bench().fsck();
    assert_eq!(bed.bench().ok(&["cat", &bed.bench().inside("/file")]), "contents");

    // A clean journal can be ignored, as by the kernel's ext4.
    bed.mount("rw,noload");
    std::fs::write(bed.path("second"), "more").unwrap();
    bed.umount();
    bed.bench().fsck();
    assert_eq!(bed.bench().ok(&["cat", &bed.bench().inside("/second")]), "more");
}

#[test]
fn options_of_ext4_have_their_effects() {
    let Some(bed) = Bed::mounted(&[], "rw") else { return };
    let blocks = |dir: &std::path::Path| rustix::fs::statvfs(dir).unwrap().f_blocks;
    std::fs::create_dir(bed.path("dir")).unwrap();
    chown(bed.path("dir"), None, Some(77)).unwrap();
    bed.umount();
    for df in ["bsddf", "minixdf"] {
        bed.mount(&format!("defaults,nodiratime,data=ordered,grpid,fsname=disk,{df}"));
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let line = format!("disk {} fuse.parext4 ", text(bed.dir()));
        assert!(mounts.contains(&line), "{mounts}");
        let ours = blocks(bed.dir());
        let file = bed.path(&format!("dir/{df}"));
        std::fs::write(&file, "contents").unwrap();
        assert_eq!(std::fs::metadata(file).unwrap().gid(), 77, "as its directory");
        let accessed = || std::fs::metadata(bed.path("dir")).unwrap().atime_nsec();
        let before = accessed();
        assert!(std::fs::read_dir(bed.path("dir")).unwrap().count() > 0);
        assert_eq!(accessed(), before);
        bed.umount();
        let Some(kernel) = Kernel::with_copy_of(&bed.bench().image(), df) else { continue };
        assert_eq!(ours, blocks(&kernel.path()), "{df}");
    }
    bed.bench().fsck();
}

/// A name that was changed in the image without its directory's checksum.
pub struct Needle(Vec<usize>);

impl Needle {
    const NAME: &[u8] = b"needle-in-a-directory";

    /// Creates the directory `dir` and corrupts it.
    pub fn hide(bed: &Bed) -> Self {
        bed.mount("rw");
        std::fs::create_dir(bed.path("dir")).unwrap();
        std::fs::write(bed.path("dir").join(str::from_utf8(Self::NAME).unwrap()), "").unwrap();
        bed.umount();
        let image = std::fs::read(bed.bench().image()).unwrap();
        // The name also occurs in the journal, where the change does no harm.
        let found = image.windows(Self::NAME.len()).enumerate().filter(|(_, bytes)| *bytes == Self::NAME);
        let needle = Self(found.map(|(at, _)| at).collect());
        assert!(!needle.0.is_empty());
        needle.write(bed, b'N');
        needle
    }

    /// Repairs the directory.
    pub fn put_back(&self, bed: &Bed) {
        self.write(bed, b'n');
    }

    fn write(&self, bed: &Bed, first: u8) {
        let image = std::fs::File::options().write(true).open(bed.bench().image()).unwrap();
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
        let Some(bed) = Bed::new(&[]) else { return };
        if let Some(behaviour) = superblock {
            let mut command = Command::new("tune2fs");
            if tool(command.args(["-e", behaviour]).arg(bed.bench().image())).is_none() {
                continue;
            }
        }
        let needle = Needle::hide(&bed);
        bed.mount(options);
        std::fs::write(bed.path("before"), "contents").unwrap();
        let error = std::fs::metadata(bed.path("dir/file")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(117), "EUCLEAN: {error}");
        let made = std::fs::create_dir(bed.path("after"));
        assert_eq!(made.is_err(), stops, "{options}, {superblock:?}");
        assert!(std::fs::read_dir(bed.dir()).unwrap().count() > 0);
        let said = bed.bench().ok(&["stat", &text(bed.dir())]);
        assert_eq!(said.contains("the volume takes no changes: corrupt volume"), stops, "{said}");
        if stops {
            let error = bed.bench().fails(&["umount", &text(bed.dir())]);
            assert!(error.contains("is unmounted, but") && error.contains("corrupt volume"), "{error}");
        } else {
            bed.umount();
        }
        assert!(!bed.is_mounted());
        needle.put_back(&bed);
        bed.bench().ok(&["recover", &text(&bed.bench().image())]);
        bed.bench().fsck();
    }
}

//! Images as distributions and build systems make them, with the programs and options that they
//! use: read, changed, checked by e2fsck, and read by the kernel.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use testkit::command::{ScratchImage, run, text};
use testkit::kernel_mount::KernelMount;
use testkit::{skipped, tool};

/// A program with its options. TREE and IMAGE stand for the source and the image.
const MAKERS: &[(&str, &str, &str)] = &[
    ("debootstrap", "mke2fs", "-q -F -t ext4 -L root -d TREE IMAGE"),
    ("genext2fs", "genext2fs", "-d TREE -b 24576 -N 500 IMAGE"),
    ("genext2fs with large blocks and holes", "genext2fs", "-z -B 4096 -b 6144 -N 500 -d TREE IMAGE"),
    // fs/ext2/ext2.mk
    (
        "Buildroot, ext2 revision 0",
        "mkfs.ext2",
        "-q -d TREE -r 0 -N 0 -m 5 -L rootfs -I 128 -O ^64bit IMAGE 24M",
    ),
    (
        "Buildroot, ext2 revision 1",
        "mkfs.ext2",
        "-q -d TREE -r 1 -N 0 -m 5 -L rootfs -I 256 -O ^64bit IMAGE 24M",
    ),
    ("Buildroot, ext3", "mkfs.ext3", "-q -d TREE -r 1 -N 0 -m 5 -L rootfs -I 256 -O ^64bit IMAGE 24M"),
    (
        "Buildroot, ext4",
        "mkfs.ext4",
        "-q -d TREE -r 1 -N 0 -m 0 -L rootfs -I 256 -O ^64bit,^metadata_csum IMAGE 24M",
    ),
    // meta/classes-recipe/image_types.bbclass
    ("Yocto, ext4", "mkfs.ext4", "-q -F -i 4096 IMAGE -d TREE"),
    ("Yocto, ext3 with few inodes", "mkfs.ext3", "-q -F -i 8192 -E lazy_itable_init=0 IMAGE -d TREE"),
    // BoardConfig and mkuserimg_mke2fs
    (
        "Android",
        "mke2fs",
        "-q -F -t ext4 -b 4096 -M / -m 0 -N 512 -g 32768 -I 256 -E hash_seed=01234567-89ab-cdef-0123-456789abcdef -O \
         ^has_journal,^metadata_csum,^64bit,^flex_bg,^resize_inode,uninit_bg,sparse_super,extent,dir_index -d TREE IMAGE",
    ),
    (
        "Android userdata",
        "mke2fs",
        "-q -F -t ext4 -b 4096 -I 512 -O casefold,encrypt,stable_inodes,inline_data,ea_inode,verity -d TREE IMAGE",
    ),
];

/// Makes a small root file system.
fn tree(root: &Path) {
    for dir in ["bin", "etc/init.d", "usr/share/doc/a package", "tmp", "var/empty"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(root.join("bin/busybox"), (0..900_000_u32).map(|n| (n % 251) as u8).collect::<Vec<_>>())
        .unwrap();
    fs::set_permissions(root.join("bin/busybox"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("busybox", root.join("bin/sh")).unwrap();
    symlink(format!("../{}", "long/".repeat(30)), root.join("usr/long link")).unwrap();
    fs::hard_link(root.join("bin/busybox"), root.join("bin/ls")).unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
    for nr in 0..150 {
        fs::write(root.join(format!("usr/share/doc/a package/file {nr}")), vec![nr; usize::from(nr) * 50])
            .unwrap();
    }
    let sparse = File::create(root.join("var/sparse")).unwrap();
    sparse.set_len(400_000).unwrap();
}

/// Asserts that two trees have the same files, links and contents.
fn assert_same_files(left: &Path, right: &Path, what: &str) {
    let mut compare = Command::new("diff");
    let compared = compare.args(["-r", "--no-dereference", "-x", "lost+found"]).arg(left).arg(right).output();
    let compared = compared.unwrap();
    assert!(compared.status.success(), "{what}: {}", testkit::tool::text(&compared));
}

/// Asserts that two trees are equal, also in permissions.
fn assert_equal(left: &Path, right: &Path, what: &str) {
    assert_same_files(left, right, what);
    for path in ["tmp", "bin/ls", "etc/passwd"] {
        let mode = |root: &Path| root.join(path).metadata().unwrap().permissions().mode();
        assert_eq!(mode(left), mode(right), "{what}: {path}");
    }
}

/// Reads, changes and checks an image of the tree.
fn use_image(scratch: &ScratchImage, tree: &Path, image: &Path, what: &str) {
    let name = text(image);
    let copy = scratch.path("copy");
    scratch.ok(&["get", "-q", &format!("{name}:/."), &text(&copy)]);
    assert_equal(tree, &copy, what);
    fs::remove_dir_all(&copy).unwrap();
    // genext2fs writes no backups of the superblock.
    if what.starts_with("genext2fs") {
        let findings = run(&["check", &name]);
        let findings = String::from_utf8(findings.stdout).unwrap();
        let is_known = |line: &str| line.starts_with("backup superblock: s_magic") || line.starts_with(&name);
        assert!(findings.lines().all(is_known), "{what}: {findings}");
    } else {
        assert_eq!(scratch.ok(&["check", "-q", &name]), "", "{what}");
    }
    scratch.ok(&["put", "-q", &text(&tree.join("usr")), &format!("{name}:/second")]);
    scratch.ok(&["rm", "-r", &format!("{name}:/usr")]);
    let checked = tool(Command::new("e2fsck").arg("-fn").arg(image)).unwrap();
    assert!(checked.status.success(), "{what}: {}", testkit::tool::text(&checked));
    // The kernel needs a library for Unicode that it may not have been built with.
    let Some(mount) = KernelMount::with_copy_of(image, "rw") else { return };
    assert_same_files(&tree.join("bin"), &mount.path().join("bin"), what);
    assert_same_files(&tree.join("usr"), &mount.path().join("second"), what);
    mount.umount();
}

#[test]
fn images_of_build_systems_are_used() {
    if tool(Command::new("mke2fs").arg("-V")).is_none() {
        return skipped("no e2fsprogs");
    }
    let scratch = ScratchImage::empty();
    let root = scratch.path("root");
    tree(&root);
    for &(what, program, words) in MAKERS {
        let image = scratch.path("image");
        if program != "genext2fs" {
            File::create(&image).unwrap().set_len(24 << 20).unwrap();
        }
        let words = words.split_whitespace().map(|word| match word {
            "TREE" => text(&root),
            "IMAGE" => text(&image),
            word => word.to_owned(),
        });
        let Some(made) = tool(Command::new(program).args(words)) else {
            skipped(program);
            continue;
        };
        assert!(made.status.success(), "{what}: {}", testkit::tool::text(&made));
        use_image(&scratch, &root, &image, what);
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn android_sparse_images_are_named_and_usable_when_expanded() {
    let scratch = ScratchImage::new(&["-t", "ext4", "-b", "4096", "-O", "^has_journal"]);
    let (sparse, raw) = (scratch.path("sparse.img"), scratch.path("raw.img"));
    if tool(Command::new("img2simg").arg(scratch.image()).arg(&sparse)).is_none() {
        return skipped("no img2simg");
    }
    let error = scratch.fails(&["ls", &text(&sparse)]);
    assert!(error.contains("an Android sparse image") && error.contains("simg2img"), "{error}");
    assert!(tool(Command::new("simg2img").arg(&sparse).arg(&raw)).unwrap().status.success());
    assert!(scratch.ok(&["ls", &text(&raw)]).contains("lost+found"));
    scratch.ok(&["mkdir", &format!("{}:/made", raw.display())]);
    let checked = tool(Command::new("e2fsck").arg("-fn").arg(&raw)).unwrap();
    assert!(checked.status.success(), "{}", testkit::tool::text(&checked));
}

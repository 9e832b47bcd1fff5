//! New volumes against other programs: e2fsck checks them, mke2fs makes the same, resize2fs grows
//! them, and the kernel mounts them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use parext4::mkfs::{MkfsOptions, Summary, mkfs};
use parext4_device::{DeviceOptions, FileDevice, MemDevice};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A directory for images, removed when dropped.
struct Images(tempfile::TempDir);

impl Images {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a sparse image with a volume of parext4.
    fn ours(&self, size: u64, options: &MkfsOptions) -> (PathBuf, Summary) {
        let path = self.path("ours");
        let device = FileDevice::open(&path, &DeviceOptions::new().create(size)).unwrap();
        let summary =
            mkfs(&device, options).unwrap_or_else(|error| panic!("{size} bytes, {options:?}: {error}"));
        (path, summary)
    }

    /// Makes a sparse image with a volume of mke2fs with the same options.
    fn theirs(&self, size: u64, options: &MkfsOptions) -> PathBuf {
        let path = self.path("theirs");
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F", "-t", "ext4", "-E", "hash_seed=00000000-0000-0000-0000-000000000001"]);
        if let Some(size) = options.block_size {
            command.args(["-b", &size.to_string()]);
        }
        if let Some(ratio) = options.inode_ratio {
            command.args(["-i", &ratio.to_string()]);
        }
        if !options.journal {
            command.args(["-O", "^has_journal"]);
        }
        if options.mmp == Some(true) {
            let interval = format!("mmp_update_interval={}", options.mmp_update_interval);
            command.args(["-O", "mmp", "-E", &interval]);
        }
        command.args(["-I", &options.inode_size.to_string()]).arg(&path);
        run(&mut command);
        path
    }
}

/// Returns options for a new image file.
fn sparse() -> MkfsOptions {
    MkfsOptions::new().device_is_zero(true)
}

fn output(command: &mut Command) -> Output {
    command.env("LC_ALL", "C").output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Runs a command that must succeed. Returns its output.
fn run(command: &mut Command) -> String {
    let output = output(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Returns true if e2fsprogs is installed. Prints a message otherwise.
fn e2fsprogs() -> bool {
    let found = Command::new("mke2fs").arg("-V").output().is_ok();
    if !found {
        testkit::skipped("no e2fsprogs, so nothing checks the new volumes");
    }
    found
}

fn fsck(path: &Path) {
    run(Command::new("e2fsck").arg("-fn").arg(path));
}

/// Returns the fields of the superblock in which both tools must agree, as dumpe2fs prints them.
fn facts(path: &Path) -> Vec<String> {
    const SAME: &[&str] = &[
        "Filesystem features:",
        "Filesystem flags:",
        "Default mount options:",
        "Filesystem state:",
        "Errors behavior:",
        "Inode count:",
        "Block count:",
        "Reserved block count:",
        "Overhead clusters:",
        "Free blocks:",
        "Free inodes:",
        "First block:",
        "Block size:",
        "Cluster size:",
        "Group descriptor size:",
        "Reserved GDT blocks:",
        "Blocks per group:",
        "Clusters per group:",
        "Inodes per group:",
        "Inode blocks per group:",
        "Flex block group size:",
        "Maximum mount count:",
        "Check interval:",
        "First inode:",
        "Inode size:",
        "Required extra isize:",
        "Desired extra isize:",
        "Journal inode:",
        "Default directory hash:",
        "Journal backup:",
        "Checksum type:",
        "Journal features:",
        "Total journal size:",
        "Total journal blocks:",
        "Max transaction length:",
        "Journal sequence:",
        "Journal start:",
        "MMP block number:",
        "MMP update interval:",
        "MMP check interval:",
        "MMP sequence:",
    ];
    let text = run(Command::new("dumpe2fs").arg("-h").arg(path));
    let wanted = |line: &&str| SAME.iter().any(|name| line.starts_with(name));
    text.lines().filter(wanted).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Returns the blocks of each group, and the places of superblocks and descriptors in it, as
/// dumpe2fs prints them.
fn groups(path: &Path) -> Vec<String> {
    const SAME: &[&str] = &["Group ", "Primary", "Backup", "Reserved"];
    let text = run(Command::new("dumpe2fs").arg(path));
    let lines = text.lines().skip_while(|line| !line.starts_with("Group 0:")).map(str::trim);
    let wanted = lines.filter(|line| SAME.iter().any(|name| line.starts_with(name)));
    wanted.map(|line| line.split(['[', 'c']).next().unwrap().to_owned()).collect()
}

#[test]
fn old_and_unusual_geometry_is_as_mke2fs_makes_it() {
    if !e2fsprogs() {
        return;
    }
    let with = |features: &str| sparse().features(features).unwrap();
    let old = "none,extent";
    let clusters =
        |features: &str, block: u32, cluster: u32| with(features).block_size(block).cluster_size(cluster);
    let cases: [(u64, &str, MkfsOptions); 26] = [
        (8 * MIB, "-r 0 -O none", sparse().revision(0)),
        (40 * MIB, "-r 0 -O none -b 4096", sparse().revision(0).block_size(4096)),
        (20 * MIB, "-O none", with("none")),
        (20 * MIB, "-O none,extent -I 128 -m 1", with(old).inode_size(128).reserved_percent(1)),
        (
            20 * MIB,
            "-O none,extent,filetype,uninit_bg -g 2048",
            with("none,extent,filetype,uninit_bg").blocks_per_group(2048),
        ),
        (
            20 * MIB,
            "-O ^filetype,^large_file,^huge_file,^dir_nlink",
            with("^filetype,^large_file,^huge_file,^dir_nlink"),
        ),
        (20 * MIB, "-O ^dir_index,^ext_attr,^extra_isize", with("^dir_index,^ext_attr,^extra_isize")),
        (40 * MIB, "-O ^64bit -N 1000", with("^64bit").inodes(1000)),
        (
            40 * MIB,
            "-O ^flex_bg,^metadata_csum,uninit_bg -i 3000",
            with("^flex_bg,^metadata_csum,uninit_bg").inode_ratio(3000),
        ),
        (40 * MIB, "-G 4 -g 1024", sparse().flex_groups(4).blocks_per_group(1024)),
        (
            40 * MIB,
            "-O ^resize_inode,^sparse_super -g 2048",
            with("^resize_inode,^sparse_super").blocks_per_group(2048),
        ),
        (MIB, "-O sparse_super2 -g 1024", with("sparse_super2").blocks_per_group(1024)),
        (2 * MIB, "-O sparse_super2 -g 1024", with("sparse_super2").blocks_per_group(1024)),
        (
            40 * MIB,
            "-O sparse_super2,^resize_inode -g 1024",
            with("sparse_super2,^resize_inode").blocks_per_group(1024),
        ),
        (24 * MIB, "-O meta_bg,^resize_inode -g 512", with("meta_bg,^resize_inode").blocks_per_group(512)),
        (
            30 * MIB,
            "-O meta_bg,^resize_inode,^sparse_super,^64bit,^flex_bg -g 256",
            with("meta_bg,^resize_inode,^sparse_super,^64bit,^flex_bg").blocks_per_group(256),
        ),
        (20 * MIB, "-g 256", sparse().blocks_per_group(256)),
        (64 * MIB, "-O bigalloc", with("bigalloc")),
        (40 * MIB + 8 * KIB, "-O bigalloc -b 1024 -C 2048", clusters("bigalloc", 1024, 2048)),
        (40 * MIB + 8 * KIB, "-O bigalloc -b 4096 -C 262144", clusters("bigalloc", 4096, 262_144)),
        (600 * MIB, "-O bigalloc -b 4096 -C 65536", clusters("bigalloc", 4096, 65536)),
        (300 * MIB, "-O bigalloc -b 1024 -C 4096", clusters("bigalloc", 1024, 4096)),
        (
            64 * MIB,
            "-O bigalloc,^resize_inode -b 2048 -C 16384 -g 256 -G 4",
            clusters("bigalloc,^resize_inode", 2048, 16384).blocks_per_group(256).flex_groups(4),
        ),
        (
            64 * MIB,
            "-O bigalloc,^resize_inode,meta_bg -b 1024 -C 4096 -g 256",
            clusters("bigalloc,^resize_inode,meta_bg", 1024, 4096).blocks_per_group(256),
        ),
        (
            64 * MIB,
            "-O bigalloc,^metadata_csum,^uninit_bg,^64bit,^has_journal -b 1024 -C 8192 -g 512",
            clusters("bigalloc,^metadata_csum,^uninit_bg,^64bit,^has_journal", 1024, 8192)
                .blocks_per_group(512),
        ),
        (
            64 * MIB,
            "-O bigalloc,^flex_bg,sparse_super2,^resize_inode -b 1024 -C 65536 -g 256",
            clusters("bigalloc,^flex_bg,sparse_super2,^resize_inode", 1024, 65536).blocks_per_group(256),
        ),
    ];
    let images = Images::new();
    for (size, arguments, options) in cases {
        let (ours, _) = images.ours(size, &options);
        fsck(&ours);
        let theirs = images.path("theirs");
        std::fs::File::create(&theirs).unwrap().set_len(size).unwrap();
        run(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).args(arguments.split(' ')).arg(&theirs));
        assert_eq!(facts(&ours), facts(&theirs), "{size} bytes, {arguments}");
        assert_eq!(groups(&ours), groups(&theirs), "{size} bytes, {arguments}");
    }
}

/// On a device that does not read as zeros, with all that a volume without checksums of groups must
/// zero.
#[test]
fn volumes_with_the_same_identity_have_the_same_bytes() {
    let options = MkfsOptions::new().uuid([1; 16]).hash_seed([2; 16]).now(1_000_000_000);
    for features in [
        "",
        "none,extent",
        "meta_bg,^resize_inode,^filetype",
        "orphan_file,fast_commit,metadata_csum_seed",
        "orphan_file,^extent",
    ] {
        let options = options.clone().features(features).unwrap().blocks_per_group(1024);
        let [zeros, poisoned] = [0, 0xa5].map(|byte| {
            let device = MemDevice::from_bytes(vec![byte; 20 << 20]);
            mkfs(&device, &options.clone().device_is_zero(byte == 0)).unwrap();
            device
        });
        let again = MemDevice::new(20 << 20);
        mkfs(&again, &options.clone().device_is_zero(true)).unwrap();
        assert!(zeros.snapshot() == again.snapshot(), "{features}");
        testkit::volume::assert_clean(&poisoned, features);
    }
}

fn check_same(size: u64, options: &MkfsOptions) {
    let images = Images::new();
    let (ours, _) = images.ours(size, options);
    fsck(&ours);
    let theirs = images.theirs(size, options);
    assert_eq!(facts(&ours), facts(&theirs), "{size} bytes, {options:?}");
}

#[test]
fn default_volumes_are_as_mke2fs_makes_them() {
    if !e2fsprogs() {
        return;
    }
    let odd = 100 * MIB + 3 * KIB;
    for size in [MIB, 3 * MIB, 8 * MIB, 64 * MIB, odd, 512 * MIB, 4 * GIB + 7 * KIB, 200 * GIB] {
        check_same(size, &sparse());
    }
}

#[test]
fn options_are_as_mke2fs_takes_them() {
    if !e2fsprogs() {
        return;
    }
    for block_size in [1024, 2048, 4096].map(Some) {
        for size in [8 * MIB, 100 * MIB + 3 * KIB, 3 * GIB] {
            check_same(size, &sparse().block_size(block_size));
        }
        check_same(64 * MIB, &sparse().block_size(block_size).journal(false));
        for ratio in [1024, 4096, 65536, MIB / 4] {
            let inode_ratio = Some(ratio.max(block_size.unwrap().into()));
            check_same(600 * MIB, &sparse().block_size(block_size).inode_ratio(inode_ratio));
        }
    }
    for inode_size in [128, 512, 1024] {
        check_same(40 * MIB, &sparse().inode_size(inode_size));
    }
}

#[test]
fn blocks_above_4_kib_are_as_mke2fs_makes_them() {
    if !e2fsprogs() {
        return;
    }
    for block_size in [8192, 16384, 32768, 65536] {
        let options = sparse().block_size(block_size);
        for size in [8 * MIB, 100 * MIB + 35 * KIB, 900 * MIB, 9 * GIB, 5000 * GIB] {
            check_same(size, &options);
        }
        // As many inodes as a group can have.
        check_same(2 * GIB, &options.clone().inode_size(128).inode_ratio(u64::from(block_size)));
        check_same(64 * MIB, &options.journal(false).inode_size(1024));
    }
}

#[test]
fn multi_mount_protection_is_as_mke2fs_makes_it() {
    if !e2fsprogs() {
        return;
    }
    for interval in [1, 5, 300] {
        let options = sparse().mmp(true).mmp_update_interval(interval);
        check_same(64 * MIB, &options);
        check_same(4 * GIB, &options.journal(false));
    }
}

#[test]
fn a_last_group_too_small_for_its_metadata_is_dropped() {
    if !e2fsprogs() {
        return;
    }
    for extra in [1, 50, 600, 900, 1100] {
        check_same(32 * MIB + extra * KIB, &sparse());
    }
}

#[test]
fn a_terabyte_stays_sparse() {
    if !e2fsprogs() {
        return;
    }
    let images = Images::new();
    for block_size in [1024, 2048, 4096].map(Some) {
        let (path, summary) = images.ours(1024 * GIB, &sparse().block_size(block_size));
        let allocated = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
        assert!(allocated < 512 * MIB, "{allocated} bytes written");
        assert_eq!(summary.journal_blocks, 262_144);
        fsck(&path);
    }
}

#[test]
fn journals_of_any_shape_are_valid() {
    if !e2fsprogs() {
        return;
    }
    let images = Images::new();
    // Small blocks and many inodes leave no long free run, so the journal has several extents.
    for (size, blocks, ratio) in [(64 * MIB, 1024, 1024), (256 * MIB, 65536, 1024), (2 * GIB, 500_000, 1024)]
    {
        let options = sparse().block_size(1024).inode_ratio(ratio).journal_blocks(blocks);
        let (path, summary) = images.ours(size, &options);
        assert_eq!(summary.journal_blocks, blocks);
        fsck(&path);
    }
    let refused = |journal_blocks| {
        let options = sparse().journal_blocks(journal_blocks);
        mkfs(&MemDevice::new(64 * MIB), &options).unwrap_err().to_string()
    };
    assert!(refused(1023).contains("journal of 1023 blocks"));
    assert!(refused(60_000).contains("over half"));
}

#[test]
fn growing_uses_the_resize_inode() {
    if !e2fsprogs() {
        return;
    }
    let images = Images::new();
    for (size, block_size) in [(64 * MIB, 1024), (500 * MIB, 2048), (4 * GIB, 4096), (GIB, 65536)] {
        let (path, _) = images.ours(size, &sparse().block_size(block_size));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(2 * size).unwrap();
        run(Command::new("resize2fs").arg(&path));
        fsck(&path);
        let blocks = 2 * size / u64::from(block_size);
        assert!(facts(&path).contains(&format!("Block count: {blocks}")));
    }
}

#[test]
fn identity_and_owner_are_as_asked() {
    if !e2fsprogs() {
        return;
    }
    let images = Images::new();
    let options = sparse()
        .label("a sixteen b name")
        .uuid([0x5a; 16])
        .hash_seed([0xc3; 16])
        .owner(1000, 100_000)
        .now(1_700_000_000);
    let (path, summary) = images.ours(8 * MIB, &options);
    let text = run(Command::new("dumpe2fs").args(["-h"]).arg(&path));
    for wanted in
        ["a sixteen b name", "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a", "c3c3c3c3-c3c3-c3c3-c3c3-c3c3c3c3c3c3"]
    {
        assert!(text.contains(wanted), "{text}");
    }
    assert_eq!((summary.uuid, summary.label.as_str()), ([0x5a; 16], "a sixteen b name"));
    let root = run(Command::new("debugfs").args(["-R", "stat <2>"]).arg(&path));
    assert!(root.contains("User:  1000   Group: 100000"), "{root}");
    fsck(&path);
    // Equal options make equal bytes.
    let twin = images.path("twin");
    mkfs(&FileDevice::open(&twin, &DeviceOptions::new().create(8 * MIB)).unwrap(), &options).unwrap();
    assert!(std::fs::read(&path).unwrap() == std::fs::read(&twin).unwrap());
}

#[test]
fn stale_bytes_on_the_device_are_never_read() {
    if !e2fsprogs() {
        return;
    }
    let images = Images::new();
    for (size, block_size) in [(8 * MIB, 1024), (64 * MIB, 1024), (32 * MIB, 4096)] {
        let path = images.path("ours");
        let rubbish: Vec<u8> =
            (0..size / 8).flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
        std::fs::write(&path, rubbish).unwrap();
        let device = FileDevice::open(&path, &DeviceOptions::new()).unwrap();
        let options = MkfsOptions::new().block_size(block_size);
        mkfs(&device, &options).unwrap();
        drop(device);
        fsck(&path);
        let text = run(Command::new("dumpe2fs").arg(&path));
        assert!(!text.contains("ITABLE_ZEROED"), "{text}");
        kernel_round_trip(&path);
    }
}

/// A kernel mount that is unmounted when dropped, even in a panic.
struct Mount(tempfile::TempDir);

impl Drop for Mount {
    fn drop(&mut self) {
        output(Command::new("umount").arg("-l").arg(self.0.path()));
    }
}

/// Mounts an image with the kernel, writes files, unmounts it and checks it. Needs root and loop
/// devices.
fn kernel_round_trip(path: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let mounted = output(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(path).arg(dir.path()));
    if !mounted.status.success() {
        return testkit::kernel::not_mounted(path, &String::from_utf8_lossy(&mounted.stderr));
    }
    let mount = Mount(dir);
    let root = mount.0.path();
    for n in 0..200_u8 {
        let sub = root.join(format!("dir{}", n % 7));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(sub.join(format!("file{n}")), vec![n; 30 * usize::from(n)]).unwrap();
    }
    testkit::kernel_umount(root);
    drop(mount);
    fsck(path);
}

#[test]
fn the_kernel_mounts_and_writes() {
    if !e2fsprogs() {
        return;
    }
    let images = Images::new();
    for (size, block_size) in [(3 * MIB, None), (64 * MIB, None), (600 * MIB, Some(2048)), (4 * GIB, None)] {
        let (path, _) = images.ours(size, &sparse().block_size(block_size));
        kernel_round_trip(&path);
    }
    let clusters = sparse().features("bigalloc").unwrap();
    for (block, cluster) in [(1024, 2048), (1024, 65536), (4096, 8192), (4096, 262_144)] {
        let (path, _) = images.ours(64 * MIB, &clusters.clone().block_size(block).cluster_size(cluster));
        kernel_round_trip(&path);
    }
}

//! Trees that the command copies into an image and out again.

use std::fs;
use std::path::Path;

use testkit::command::{program, text};
use testkit::kernel_mount::KernelMount;

use super::*;

/// Runs the command, which must succeed. Returns what it printed.
fn parext4(arguments: &[&str]) -> String {
    let output = Command::new(program()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", testkit::tool::text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    for n in 0..300u32 {
        let bytes: Vec<u8> = (0..n * 97).map(|at| (at ^ n) as u8).collect();
        fs::write(root.join(format!("a/b/{n}")), bytes).unwrap();
    }
    let large: Vec<u8> =
        (0..3_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(root.join("a/large"), large).unwrap();
    std::os::unix::fs::symlink("a/large", root.join("link")).unwrap();
}

fn assert_same(left: &Path, right: &Path) {
    let output = Command::new("diff").arg("-r").args([left, right]).output().unwrap();
    assert!(output.status.success(), "{}", testkit::tool::text(&output));
}

#[test]
fn a_tree_is_unchanged_and_the_kernel_reads_it() {
    let Some(cluster) = running() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (source, copy) = (dir.path().join("source"), dir.path().join("copy"));
    make_tree(&source);
    let url = cluster.tenant("tree");
    let inside = |path: &str| format!("{url}:{path}");
    parext4(&["mkfs", "--size", "128M", &url]);
    parext4(&["put", &text(&source), &inside("/source")]);
    assert!(parext4(&["ls", &inside("/source")]).contains("link"));
    parext4(&["get", &inside("/source"), &text(&copy)]);
    assert_same(&source, &copy);
    parext4(&["rm", "-r", &inside("/source/a/b")]);
    parext4(&["put", &text(&source.join("a/b")), &inside("/source/a/b")]);
    let export = cluster.export("tree");
    if let Some(kernel) = KernelMount::with_copy_of(&export, "ro") {
        assert_same(&source, &kernel.path().join("source"));
    }
}

#[test]
fn a_volume_may_be_smaller_than_the_image() {
    let Some(cluster) = running() else { return };
    cluster.rbd(&["create", "roomy", "--size", "64M"]).unwrap();
    let url = cluster.tenant("roomy");
    parext4(&["mkfs", "--size", "24M", &url]);
    let found = parext4(&["info", "--json", &url]);
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let bytes = |name: &str| found[name].as_u64().unwrap();
    assert_eq!(bytes("blocks") * bytes("block_size"), 24 << 20, "{found}");
    cluster.export("roomy");
}

#[test]
fn a_volume_may_begin_within_the_image() {
    const OFFSET: u64 = 1 << 20;
    let Some(cluster) = running() else { return };
    let url = cluster.tenant("within");
    let size = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap()["size"].as_u64();
    let words = ["mkfs", "--json", "--size", "24M", "-E", "offset=1M", &url];
    // Prints the geometry, and creates no image.
    let planned = parext4(&[&words[..], &["-n"]].concat());
    assert_eq!(size(&planned), Some(24 << 20));
    assert!(cluster.rbd(&["info", "within"]).is_err(), "-n has created an image");

    let made = parext4(&words);
    assert_eq!(size(&made), Some(24 << 20));
    // `mkfs` then makes a volume with the features that `-n` printed.
    let features = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap()["features"].clone();
    assert_eq!(features(&planned), features(&made));
    assert_eq!(cluster.reader("within").size(), OFFSET + (24 << 20));
    let file = cluster.dir().join("within.export");
    cluster.rbd(&["export".as_ref(), "within".as_ref(), file.as_os_str()]).unwrap();
    // The volume alone, because e2fsck leaves out an offset when it reads the block of multi-mount
    // protection.
    fs::write(&file, &fs::read(&file).unwrap()[OFFSET as usize..]).unwrap();
    if let Some(output) = testkit::tool(Command::new("e2fsck").arg("-fn").arg(&file)) {
        assert!(output.status.success(), "{}", testkit::tool::text(&output));
    }

    let fails = |more: &[&str], why: &str| {
        let words = [&["mkfs", "-E", "offset=1M", &url][..], more].concat();
        let output = Command::new(program()).args(&words).output().unwrap();
        let text = testkit::tool::text(&output);
        assert!(!output.status.success() && text.contains(why), "{words:?}: {text}");
    };
    // The volume is found where it is, and the image is too small for a larger one.
    fails(&[], "an ext2, ext3 or ext4 file system");
    fails(&["--force", "--size", "32M"], "`rbd resize` adds some");
    fails(&["-n", "--size", "32M"], "26214400");
    assert_eq!(size(&parext4(&["mkfs", "-n", "--json", "-E", "offset=1M", &url])), Some(24 << 20));
}

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

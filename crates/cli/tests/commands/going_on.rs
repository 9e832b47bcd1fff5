//! Copies go on after the error of one file, and say so.

use std::fs;
use std::process::Command;

use testkit::command::{ScratchImage, program, run, text};
use testkit::tool;

use crate::archives::damaged;

#[test]
fn a_source_that_cannot_be_copied_does_not_end_put() {
    let scratch = ScratchImage::new(&[]);
    let tree = scratch.path("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    for n in 0..40 {
        fs::write(tree.join(format!("f{n}")), n.to_string()).unwrap();
        fs::write(tree.join(format!("sub/f{n}")), n.to_string()).unwrap();
    }
    // The image itself cannot be copied under any name, not even by root.
    fs::hard_link(scratch.image(), tree.join("sub/f20.image")).unwrap();
    let missing = scratch.path("missing");
    let other = scratch.path("other");
    fs::write(&other, "x").unwrap();
    for order in [&[][..], &[("SOURCE_DATE_EPOCH", "1")]] {
        let mut put = Command::new(program());
        put.envs(order.iter().copied()).args(["put", "-q", "--json"]);
        let output = put.args([&tree, &missing, &other]).arg(scratch.inside("/")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("missing: no such file") && said.contains("f20.image: this file holds"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 2, "{said}");
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&summary["files"], &summary["errors"]), (&81.into(), &2.into()));
        assert_eq!(scratch.ok(&["ls", &scratch.inside("/tree/sub")]).lines().count(), 40);
        scratch.ok(&["rm", "-r", &scratch.inside("/tree"), &scratch.inside("/other")]);
    }
    scratch.fsck();
}

/// A file that is incomplete is named, and one that was not begun is missing.
#[test]
fn files_that_a_full_volume_has_cut_are_named() {
    const SIZE: usize = 1 << 20;
    for threads in ["1", "4"] {
        let scratch = ScratchImage::empty();
        let image = text(&scratch.path("small.img"));
        scratch.ok(&["mkfs", "-q", &image, "--size", "16M"]);
        let tree = scratch.path("tree");
        fs::create_dir(&tree).unwrap();
        for n in 0..30 {
            fs::write(tree.join(format!("file-{n}.")), vec![7; SIZE]).unwrap();
        }
        let output = run(&["put", "-q", "--threads", threads, &text(&tree.join(".")), &image]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("no space left"), "{said}");
        let out = scratch.path("out");
        scratch.ok(&["get", "-q", &format!("{image}:/."), &text(&out)]);
        let (mut complete, mut missing) = (0, 0);
        for n in 0..30 {
            let name = format!("file-{n}.");
            match fs::read(out.join(&name)) {
                Ok(bytes) if bytes == vec![7; SIZE] => complete += 1,
                Ok(_) => assert!(said.contains(&name), "{name}: {said}"),
                Err(_) => missing += 1,
            }
        }
        assert!(complete > 8 && missing > 0, "{complete} complete, {missing} missing: {said}");
    }
}

#[test]
fn an_entry_that_cannot_be_read_does_not_end_get() {
    let Some(scratch) = damaged() else { return };
    // Also an entry without an inode.
    let request = "clri /tree/a";
    tool(Command::new("/usr/sbin/debugfs").args(["-w", "-R", request]).arg(scratch.image())).unwrap();
    let out = scratch.path("out");
    let output = run(&["get", "-q", &scratch.inside("/tree"), &text(&out)]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/tree/a: ") && said.contains("/tree/c: "), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(fs::read(out.join("b")).unwrap(), vec![7; 3000]);
}

/// A copy that is as long as its source is complete.
#[test]
fn no_copy_of_full_length_is_left_on_a_full_disk() {
    const SIZE: usize = 9 << 20;
    let scratch = ScratchImage::new(&[]);
    fs::write(scratch.path("big"), vec![7; SIZE]).unwrap();
    scratch.ok(&["put", "-q", &text(&scratch.path("big")), &scratch.inside("/")]);
    fs::create_dir(scratch.path("full")).unwrap();
    // The script has a mount of its own.
    let script = "mount -t tmpfs -o size=3m none \"$1\" || exit 9; \"$2\" get -q --threads 4 \"$3\" \"$1\"; echo $?; stat -c %s \"$1/big\"";
    let arguments = [scratch.path("full"), program(), scratch.inside("/big").into()];
    let Some(output) = tool(Command::new("unshare").args(["-m", "sh", "-c", script, "sh"]).args(arguments))
    else {
        return;
    };
    let shown = testkit::tool::text(&output);
    if !output.status.success() {
        return testkit::skipped("a file system in memory cannot be mounted");
    }
    let lines: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    assert!(shown.contains("big: no space left on device"), "{shown}");
    assert_eq!(lines[0], "1", "{shown}");
    assert!(lines[1].parse::<usize>().unwrap() < SIZE, "{shown}");
}

//! Copies that end early.

use std::fs;
use std::process::Command;

use testkit::command::{ScratchImage, program, text};
use testkit::tool;

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

//! Errors after the mount command has returned.

use crate::options::Needle;
use testkit::command::text;
use testkit::fuse_mount::{FuseMount, until};

#[test]
fn later_errors_are_in_the_log() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let log = fuse.scratch().path("server.log");
    std::fs::write(&log, "old contents\n").unwrap();
    let needle = Needle::hide(&fuse);
    fuse.mount(&format!("log={}", text(&log)));
    assert!(std::fs::read(fuse.path("dir/needle")).is_err());
    fuse.umount();
    // The server closes the image shortly before it logs this.
    assert!(until(|| std::fs::read_to_string(&log).unwrap().contains("is unmounted")));
    let said = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "old contents");
    let has = |part: &str| lines.iter().any(|line| line.contains(part));
    assert!(has("is mounted on") && has("ERROR: corrupt volume: "), "{said}");
    needle.put_back(&fuse);
    fuse.scratch().fsck();
}

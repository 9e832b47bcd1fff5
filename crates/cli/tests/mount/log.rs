//! Errors after the mount command has returned.

use crate::options::Needle;
use testkit::command::text;
use testkit::fuse_mount::{Bed, until};

#[test]
fn later_errors_are_in_the_log() {
    let Some(bed) = Bed::new(&[]) else { return };
    let log = bed.bench().path("server.log");
    std::fs::write(&log, "what was there\n").unwrap();
    let needle = Needle::hide(&bed);
    bed.mount(&format!("log={}", text(&log)));
    assert!(std::fs::read(bed.path("dir/needle")).is_err());
    bed.umount();
    // The server closes the image shortly before it logs this.
    assert!(until(|| std::fs::read_to_string(&log).unwrap().contains("is unmounted")));
    let said = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "what was there");
    let has = |part: &str| lines.iter().any(|line| line.contains(part));
    assert!(has("is mounted on") && has("ERROR: corrupt volume: "), "{said}");
    needle.put_back(&bed);
    bed.bench().fsck();
}

//! Messages on a terminal.

use std::fs;

use parext4::{NewInode, Special, Volume};
use testkit::command::{ScratchImage, run, text};

/// Names from an image or an archive do not control the terminal.
#[test]
fn messages_have_no_control_characters() {
    let scratch = ScratchImage::new(&[]);
    let name = "\x1b[2J\n\t\u{9b}31m\x7f";
    let volume = Volume::open(scratch.image()).unwrap();
    volume.root().unwrap().mknod(name.as_bytes(), Special::Socket, &NewInode::new()).unwrap();
    volume.close().unwrap();
    let mut header = tar::Header::new_old();
    let member = format!("../{name}");
    header.as_mut_bytes()[..member.len()].copy_from_slice(member.as_bytes());
    header.set_size(0);
    header.set_cksum();
    let archive = text(&scratch.path("in.tar"));
    fs::write(&archive, [header.as_bytes(), &[0; 1024][..]].concat()).unwrap();
    let image = text(&scratch.image());
    for (status, command) in [
        (0, &["get", "-q", "--tar", "/dev/null", &image][..]),
        (1, &["put", "-q", "--tar", &archive, &image]),
        (1, &["cat", &scratch.inside(&format!("/{name}/x"))]),
    ] {
        let output = run(command);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.contains("[2J") && error.lines().count() == 1, "{error:?}");
        assert!(!error.trim_end_matches('\n').contains(char::is_control), "{error:?}");
    }
}

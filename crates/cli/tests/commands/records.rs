//! Records of PAX archives: attributes whose names are not text.

use std::fs;
use std::path::Path;

use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use testkit::command::{ScratchImage, text};

use crate::archives::gnu_tar;

/// Unpacks an archive into a new directory of the image. Returns the directory.
fn put(scratch: &ScratchImage, archive: &Path, dir: &str) -> String {
    scratch.ok(&["mkdir", &scratch.inside(dir)]);
    scratch.ok(&["put", "-q", "--tar", &text(archive), &scratch.inside(dir)]);
    scratch.inside(dir)
}

#[test]
fn names_of_attributes_are_bytes() {
    const NAMES: [&[u8]; 2] = [b"user.\xff\xfe", b"user.=\xff%"];
    let has_all = |path: &Path| {
        for name in NAMES {
            let mut value = [0; 16];
            let len = lgetxattr(path, name, &mut value[..]).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(&value[..len], name);
        }
    };
    let scratch = ScratchImage::new(&[]);
    let source = scratch.path("file");
    fs::write(&source, "x").unwrap();
    if NAMES.iter().any(|name| lsetxattr(&source, *name, name, XattrFlags::empty()).is_err()) {
        return testkit::skipped("no attributes here");
    }
    let [ours, theirs] = ["ours.tar", "theirs.tar"].map(|name| scratch.path(name));
    scratch.ok(&["put", "-q", &text(&source), &scratch.inside("/file")]);
    scratch.ok(&["get", "-q", "--tar", &text(&ours), &scratch.inside("/file")]);
    let round_trip = |archive: &Path, dir: &str| {
        let out = scratch.path(dir);
        scratch.ok(&["get", "-q", &put(&scratch, archive, &format!("/{dir}")), &text(&out)]);
        has_all(&out.join("file"));
    };
    round_trip(&ours, "own");
    let pack = ["--format=posix", "-C", &text(&scratch.path("")), "-cf", &text(&theirs), "file"];
    let Some(output) = gnu_tar(&pack) else { return };
    assert!(output.status.success());
    round_trip(&theirs, "of-tar");
    let unpacked = scratch.path("unpacked");
    fs::create_dir(&unpacked).unwrap();
    assert!(gnu_tar(&["-C", &text(&unpacked), "-xf", &text(&ours)]).unwrap().status.success());
    has_all(&unpacked.join("file"));
}

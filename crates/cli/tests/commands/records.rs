//! Records of PAX archives: attributes whose names are not text, defaults for all members, labels
//! of SELinux.

use std::fs;
use std::path::Path;

use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use testkit::command::{ScratchImage, run, text};

use crate::archives::{gnu_tar, header};

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

/// Adds a header that consists of records.
fn records(out: &mut Vec<u8>, kind: tar::EntryType, records: &[u8]) {
    let mut header = header("records");
    header.set_entry_type(kind);
    header.set_size(records.len() as u64);
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(records);
    out.resize(out.len().next_multiple_of(512), 0);
}

/// An error names the records of a global header that are no owners and times. Many headers take no
/// memory.
#[test]
fn other_global_records_are_left_out_with_an_error() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    let mut out = Vec::new();
    for _ in 0..3 {
        records(&mut out, tar::EntryType::XGlobalHeader, b"14 path=other\n12 comment=\n");
    }
    out.extend_from_slice(header("file").as_bytes());
    out.resize(out.len() + 1024, 0);
    fs::write(&archive, out).unwrap();
    let output = run(&["put", "-q", "--tar", &text(&archive), &scratch.inside("/")]);
    let printed = testkit::tool::text(&output);
    assert!(
        output.status.code() == Some(1) && printed.contains("record path of a global header is left out"),
        "{printed}"
    );
    assert_eq!(printed.lines().count(), 1, "{printed}");
    scratch.ok(&["cat", &scratch.inside("/file")]);
}

#[test]
fn global_records_are_the_defaults_of_all_members_that_follow() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    let mut out = Vec::new();
    use tar::EntryType::{XGlobalHeader, XHeader};
    out.extend_from_slice(header("before").as_bytes());
    records(&mut out, XGlobalHeader, b"10 uid=77\n10 gid=88\n11 mtime=5\n13 comment=a\n");
    out.extend_from_slice(header("plain").as_bytes());
    records(&mut out, XHeader, b"8 uid=6\n");
    out.extend_from_slice(header("own").as_bytes());
    // An empty value removes what an earlier record says.
    records(&mut out, XHeader, b"7 uid=\n8 path=\n");
    out.extend_from_slice(header("emptied").as_bytes());
    records(&mut out, XGlobalHeader, b"10 uid=99\n10 mtime=\n");
    out.extend_from_slice(header("after").as_bytes());
    out.resize(out.len() + 1024, 0);
    fs::write(&archive, out).unwrap();
    let listed = scratch.ok(&["ls", "--json", &put(&scratch, &archive, "/dir")]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let found = |name: &str| {
        let file = listed.as_array().unwrap().iter().find(|file| file["name"] == name).unwrap();
        let seconds = file["mtime"].as_str().unwrap()[17..19].to_owned();
        format!("{} {} {seconds}", file["uid"], file["gid"])
    };
    assert_eq!(found("before"), "1 2 03");
    assert_eq!(found("plain"), "77 88 05");
    assert_eq!(found("own"), "6 88 05");
    assert_eq!(found("emptied"), "1 88 05");
    assert_eq!(found("after"), "99 88 03");
}

#[test]
fn global_records_of_gnu_tar_are_obeyed() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    fs::write(scratch.path("a"), "x").unwrap();
    // Without the own record of the file, which overrides the global one.
    let pack = ["--format=posix", "--pax-option=mtime=5,uid=77,delete=mtime"];
    let files = ["-C", &text(&scratch.path("")), "-cf", &text(&archive), "a"];
    let Some(output) = gnu_tar(&[&pack[..], &files].concat()) else { return };
    assert!(output.status.success());
    let listed = scratch.ok(&["ls", "--json", &put(&scratch, &archive, "/dir")]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["uid"], &listed[0]["mtime"]), (&77.into(), &"1970-01-01T00:00:05Z".into()));
}

/// GNU tar stores the label of SELinux in a record of its own, as text, and restores it with a zero
/// byte at its end.
#[test]
fn labels_of_gnu_tar_are_kept() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    let mut builder = tar::Builder::new(fs::File::create(&archive).unwrap());
    let label = "system_u:object_r:bin_t:s0";
    builder.append_pax_extensions([("RHT.security.selinux", label.as_bytes())]).unwrap();
    builder.append(&header("file"), std::io::empty()).unwrap();
    builder.finish().unwrap();
    let dir = put(&scratch, &archive, "/dir");
    let ours = run(&["get", "-q", "--tar", "-", &dir]).stdout;
    let record = format!(" SCHILY.xattr.security.selinux={label}\0\n");
    assert!(ours.windows(record.len()).any(|bytes| bytes == record.as_bytes()));
}

#[test]
fn records_that_are_not_understood_are_named() {
    let scratch = ScratchImage::new(&[]);
    let archive = text(&scratch.path("in.tar"));
    let put = |key: &str, value: &str, name: &str| {
        let mut builder = tar::Builder::new(fs::File::create(&archive).unwrap());
        builder.append_pax_extensions([(key, value.as_bytes())]).unwrap();
        builder.append(&header(name), std::io::empty()).unwrap();
        builder.append(&header("next"), std::io::empty()).unwrap();
        builder.finish().unwrap();
        ["put", "-q", "--tar", &archive, &scratch.inside("/")].map(str::to_owned)
    };
    // The file is unpacked without what the record says.
    for (key, value) in [
        ("SCHILY.acl.ace", "owner@:r::allow"),
        ("LIBARCHIVE.xattr.user.a", "a b"),
        ("SCHILY.fflags", "nodump,opaque"),
        ("SCHILY.xattr.no-prefix", "1"),
        ("VENDOR.thing", "1"),
    ] {
        let error = scratch.fails(&put(key, value, "file"));
        assert!(error.contains("file: ") && error.contains("is left out"), "{key}: {error}");
        assert!(error.contains(key.rsplit('.').next().unwrap()), "{key}: {error}");
        scratch.ok(&["rm", &scratch.inside("/file"), &scratch.inside("/next")]);
    }
    for (key, value) in
        [("uname", "me"), ("ctime", "1"), ("SCHILY.ino", "9"), ("LIBARCHIVE.xattr.user.b", "MQ")]
    {
        scratch.ok(&put(key, value, "file"));
    }
    // A member whose records are malformed is refused, and the next one follows.
    for (key, value) in [("uid", "me"), ("mtime", "noon"), ("GNU.sparse.map", "1,x")] {
        let error = scratch.fails(&put(key, value, "refused"));
        assert!(error.contains(&format!("refused: record {key}")), "{error}");
        scratch.ok(&["rm", &scratch.inside("/next")]);
    }
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/")]), "file\nlost+found\n");
    scratch.fsck();
}

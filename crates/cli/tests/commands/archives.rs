//! Tar archives of other programs, and for them; archives that are incomplete.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use testkit::command::{ScratchImage, program, run, text};
use testkit::tool;

/// Returns a header of an empty file.
pub fn header(name: &str) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_path(name).unwrap();
    header.set_mode(0o644);
    header.set_uid(1);
    header.set_gid(2);
    header.set_mtime(3);
    header.set_size(0);
    header.set_cksum();
    header
}

/// Runs GNU tar with attributes. `None` if it is not installed.
pub fn gnu_tar(arguments: &[&str]) -> Option<Output> {
    let all = ["--xattrs", "--xattrs-include=*", "--numeric-owner"];
    tool(Command::new("tar").args(all).args(arguments))
}

#[test]
fn empty_fields_of_a_header_are_zero() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    let put = |name: &str, at: usize, field: &[u8], kind: tar::EntryType| {
        let mut header = header(name);
        header.set_entry_type(kind);
        header.as_mut_bytes()[at..at + field.len()].copy_from_slice(field);
        header.set_cksum();
        fs::write(&archive, [header.as_bytes(), &[0; 1024][..]].concat()).unwrap();
        ["put".to_owned(), "-q".to_owned(), "--tar".to_owned(), text(&archive), scratch.inside("/")]
    };
    use tar::EntryType::{Char, Regular};
    for (n, byte) in [0, b' '].into_iter().enumerate() {
        // Mode, owner, group, time.
        scratch.ok(&put(&format!("file{n}"), 100, &[byte; 24], Regular));
        scratch.ok(&put(&format!("time{n}"), 136, &[byte; 12], Regular));
        // Major and minor number.
        scratch.ok(&put(&format!("device{n}"), 329, &[byte; 16], Char));
    }
    scratch.ok(&put("size", 124, &[0; 12], Regular));
    let listed = scratch.ok(&["ls", "--json", &scratch.inside("/")]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    for file in listed.as_array().unwrap() {
        let name = file["name"].as_str().unwrap();
        if name.starts_with("file") {
            assert_eq!((&file["mode"], &file["uid"], &file["gid"]), (&"0000".into(), &0.into(), &0.into()));
        } else if name.starts_with("time") {
            assert_eq!(file["mtime"], "1970-01-01T00:00:00Z");
        } else if name.starts_with("device") {
            assert_eq!(file["rdev"], serde_json::json!([0, 0]));
        } else if name == "size" {
            assert_eq!(file["size"], 0);
        }
    }
    assert_eq!(listed.as_array().unwrap().len(), 8);
    for (at, field) in
        [(100, "x"), (108, "  9 "), (116, "\0\x001"), (124, "            "), (136, "now"), (136, "-")]
    {
        let error = scratch.fails(&put("wrong", at, field.as_bytes(), Regular));
        assert!(error.contains("wrong"), "{error}");
    }
    scratch.fsck();
}

#[test]
fn names_of_attributes_may_contain_the_separator_of_records() {
    const NAMES: [&str; 6] = ["user.a=b", "user.%", "user.%3D", "user.%25=%", "user.==", "user.%3d"];
    let has_all = |path: &Path| {
        let mut value = [0; 16];
        for name in NAMES {
            let len = lgetxattr(path, name, &mut value[..]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(&value[..len], name.as_bytes());
        }
        let mut names = [0; 1024];
        let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
        assert_eq!(names[..len].iter().filter(|&&byte| byte == 0).count(), NAMES.len());
    };
    let scratch = ScratchImage::new(&[]);
    let source = scratch.path("file");
    fs::write(&source, "x").unwrap();
    for name in NAMES {
        if lsetxattr(&source, name, name.as_bytes(), XattrFlags::empty()).is_err() {
            return testkit::skipped("no attributes here");
        }
    }
    let [ours, theirs] = ["ours.tar", "theirs.tar"].map(|name| text(&scratch.path(name)));
    scratch.ok(&["put", "-q", &text(&source), &scratch.inside("/file")]);
    scratch.ok(&["get", "-q", "--tar", &ours, &scratch.inside("/file")]);
    let get = |dir: &str| {
        scratch.ok(&["get", "-q", &scratch.inside(&format!("/{dir}/file")), &text(&scratch.path(dir))]);
        has_all(&scratch.path(dir));
    };
    scratch.ok(&["mkdir", &scratch.inside("/own")]);
    scratch.ok(&["put", "-q", "--tar", &ours, &scratch.inside("/own")]);
    get("own");
    let directory = text(&scratch.path(""));
    let posix = ["--format=posix", "-C", &directory, "-cf", &theirs, "file"];
    let Some(output) = gnu_tar(&posix) else { return };
    assert!(output.status.success());
    scratch.ok(&["mkdir", &scratch.inside("/theirs")]);
    scratch.ok(&["put", "-q", "--tar", &theirs, &scratch.inside("/theirs")]);
    get("theirs");
    fs::create_dir(scratch.path("unpacked")).unwrap();
    assert!(gnu_tar(&["-C", &text(&scratch.path("unpacked")), "-xf", &ours]).unwrap().status.success());
    has_all(&scratch.path("unpacked/file"));
}

#[test]
fn names_of_attributes_of_libarchive_are_decoded() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    let mut builder = tar::Builder::new(fs::File::create(&archive).unwrap());
    let records = [
        ("LIBARCHIVE.xattr.user.a%20b%3D%25%C3%A4%zz", "MQ=="),
        ("SCHILY.xattr.user.a%20b%3D%25%C3%A4%zz", "1"),
        // Of another program.
        ("SCHILY.xattr.user.c%20d%3D", "2"),
    ];
    builder.append_pax_extensions(records.map(|(key, value)| (key, value.as_bytes()))).unwrap();
    builder.append(&header("file"), std::io::empty()).unwrap();
    builder.finish().unwrap();
    scratch.ok(&["put", "-q", "--tar", &text(&archive), &scratch.inside("/")]);
    let ours = run(&["get", "-q", "--tar", "-", &scratch.inside("/file")]).stdout;
    for record in ["user.a b%3D%25ä%25zz=1\n", "user.c%2520d%3D=2\n"] {
        let record = format!(" SCHILY.xattr.{record}");
        assert!(ours.windows(record.len()).any(|bytes| bytes == record.as_bytes()), "{record}");
    }
}

/// Returns an image with a directory `/tree`, of which the files `a` and `b` can be read and `c`
/// cannot.
pub fn damaged() -> Option<ScratchImage> {
    let scratch = ScratchImage::new(&[]);
    let tree = scratch.path("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(tree.join(name), vec![7; 3000]).unwrap();
    }
    scratch.ok(&["put", "-q", &text(&tree), &scratch.inside("/")]);
    let request = "sif /tree/c block[0] 0";
    let output = tool(Command::new("/usr/sbin/debugfs").args(["-w", "-R", request]).arg(scratch.image()))?;
    assert!(output.status.success());
    Some(scratch)
}

#[test]
fn an_archive_has_all_entries_that_can_be_read() {
    let Some(scratch) = damaged() else { return };
    let archive = scratch.path("out.tar");
    let error = scratch.fails(&["get", "-q", "--tar", &text(&archive), &scratch.inside("/tree")]);
    assert!(error.contains("tree/c: corrupt volume"), "{error}");
    scratch.ok(&["mkdir", &scratch.inside("/dest")]);
    scratch.ok(&["put", "-q", "--tar", &text(&archive), &scratch.inside("/dest")]);
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/dest/tree")]), "a\nb\n");
}

#[test]
fn an_archive_that_could_not_be_completed_is_refused() {
    let Some(scratch) = damaged() else { return };
    let archive = scratch.path("out.tar");
    // The entry that the user named fails.
    let error = scratch.fails(&["get", "-q", "--tar", &text(&archive), &scratch.inside("/tree/c")]);
    assert!(error.contains("/tree/c: c: corrupt volume"), "{error}");
    assert!(fs::metadata(&archive).unwrap().len() > 0);
    let output = run(&["get", "-q", "--tar", "-", &scratch.inside("/tree/c")]);
    assert!(!output.status.success() && output.stdout == fs::read(&archive).unwrap());
    scratch.ok(&["mkdir", &scratch.inside("/dest")]);
    let error = scratch.fails(&["put", "-q", "--tar", &text(&archive), &scratch.inside("/dest")]);
    assert!(error.contains("the archive ends within a header"), "{error}");
    if let Some(output) = gnu_tar(&["-tf", &text(&archive)]) {
        assert!(!output.status.success(), "{}", testkit::tool::text(&output));
    }
}

#[test]
fn an_archive_that_could_not_be_written_is_empty() {
    let scratch = ScratchImage::new(&[]);
    let archive = text(&scratch.path("out.tar"));
    // The archive of `small` fits in memory until its end, and that of `large` does not.
    for (name, size) in [("small", 0), ("large", 3 << 20)] {
        let tree = scratch.path(name);
        fs::create_dir(&tree).unwrap();
        for file in ["a", "b", "c"] {
            fs::write(tree.join(file), vec![7; size]).unwrap();
        }
        scratch.ok(&["put", "-q", &text(&tree), &scratch.inside("/")]);
        // A member without data is 1536 bytes. A limit of 3 units of 512 or 1024 bytes ends the
        // file between two members.
        let limited = "trap '' XFSZ; ulimit -f 3; exec \"$@\"";
        let output = Command::new("sh")
            .args(["-c", limited, "sh"])
            .arg(program())
            .args(["get", "-q", "--tar", &archive, &scratch.inside(&format!("/{name}"))])
            .output()
            .unwrap();
        let said = testkit::tool::text(&output);
        assert!(output.status.code() == Some(1) && said.contains("file too large"), "{name}: {said}");
        assert_eq!(fs::metadata(&archive).unwrap().len(), 0, "{name}");
        if let Some(output) = gnu_tar(&["-tf", &archive]) {
            assert!(!output.status.success(), "{}", testkit::tool::text(&output));
        }
    }
}

#[test]
fn empty_input_is_no_archive() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    let put = ["put", "-q", "--tar", &text(&archive), &scratch.inside("/")].map(str::to_owned);
    fs::write(&archive, "").unwrap();
    assert!(scratch.fails(&put).contains("in.tar: not a tar archive"));
    // An archive without members.
    fs::write(&archive, [0; 10240]).unwrap();
    scratch.ok(&put);
}

#[test]
fn directories_of_an_incomplete_archive_have_their_attributes() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    let mut directory = header("dir/");
    directory.set_entry_type(tar::EntryType::Directory);
    directory.set_mode(0o3751);
    directory.set_cksum();
    let mut file = header("dir/file");
    file.set_size(600);
    file.set_cksum();
    fs::write(&archive, [directory.as_bytes(), file.as_bytes(), &[b'x'; 100][..]].concat()).unwrap();
    let error = scratch.fails(&["put", "-q", "--tar", &text(&archive), &scratch.inside("/")]);
    assert!(error.contains("the archive ends within the file"), "{error}");
    let listed = scratch.ok(&["ls", "--json", &scratch.inside("/")]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let found = listed.as_array().unwrap().iter().find(|entry| entry["name"] == "dir").unwrap();
    assert_eq!((&found["mode"], &found["mtime"]), (&"3751".into(), &"1970-01-01T00:00:03Z".into()));
    scratch.fsck();
}

#[test]
fn an_archive_without_an_end_is_unpacked_with_a_warning() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    let put = || run(&["put", "-q", "--tar", &text(&archive), &scratch.inside("/")]);
    let warning =
        format!("parext4: {}: ends without an end mark, and may be incomplete\n", archive.display());
    let warns = || {
        let output = put();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(said, warning);
    };
    let first = header("first");
    let mut second = header("second");
    second.set_size(600);
    second.set_cksum();
    let whole = [first.as_bytes(), second.as_bytes(), &[b'x'; 600][..], &[0; 424]].concat();
    fs::write(&archive, &whole).unwrap();
    warns();
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/")]), "first\nlost+found\nsecond\n");
    // One block of zeros at the end of the file is an end, and one before other members is not.
    for zeros in [512, 612, 1024, 10240] {
        fs::write(&archive, [&whole[..], &vec![0; zeros]].concat()).unwrap();
        assert!(put().stderr.is_empty());
    }
    for after in [&whole[..], b"x"] {
        fs::write(&archive, [&whole[..], &[0; 512], after].concat()).unwrap();
        warns();
    }
    for cut in [100, 512 + 100, 1024, 1024 + 100, whole.len() - 1] {
        fs::write(&archive, &whole[..cut]).unwrap();
        let error = scratch.fails(&["put", "-q", "--tar", &text(&archive), &scratch.inside("/")]);
        assert!(error.contains("the archive ends within"), "{cut}: {error}");
    }
    scratch.fsck();
}

#[test]
fn rules_apply_once_to_members() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    fs::write(&archive, [header("f").as_bytes(), &[0; 1024][..]].concat()).unwrap();
    // `X` means execution if some class has it before, and not if the rule gives it to one.
    let rule = ["put", "-q", "--mode", "o=X,u+x"];
    scratch.ok(&[&rule[..], &["--tar", &text(&archive), &scratch.inside("/")]].concat());
    assert!(scratch.ok(&["ls", "-l", &scratch.inside("/f")]).starts_with("-rwxr-----"));
    let outside = scratch.path("f");
    fs::write(&outside, "").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o644)).unwrap();
    scratch.ok(&[&rule[..], &[&text(&outside), &scratch.inside("/g")]].concat());
    assert!(scratch.ok(&["ls", "-l", &scratch.inside("/g")]).starts_with("-rwxr-----"));
    scratch.fsck();
}

#[test]
fn directories_that_an_archive_does_not_contain_obey_the_rules() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    fs::write(&archive, [header("a/b/f").as_bytes(), &[0; 1024][..]].concat()).unwrap();
    let found = |path: &str| {
        let listed = scratch.ok(&["ls", "--json", "-R", &scratch.inside("/")]);
        let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
        let entry = listed.into_iter().find(|entry| entry["path"] == path).unwrap();
        format!("{} {} {}", entry["mode"].as_str().unwrap(), entry["uid"], entry["gid"])
    };
    let (put, archive, root) = (["put", "-q", "--tar"], text(&archive), scratch.inside("/"));
    scratch.ok(&[&put[..], &[&archive, &root]].concat());
    assert_eq!(found("/a"), "0755 0 0");
    scratch.ok(&["rm", "-r", &scratch.inside("/a")]);
    let rules = ["--owner", "9:10", "--mode", "D700,F600", "--xattr", "user.all=1"];
    scratch.ok(&[&put[..], &rules, &[&archive, &root]].concat());
    assert_eq!(found("/a"), "0700 9 10");
    assert_eq!(found("/a/b"), "0700 9 10");
    assert_eq!(found("/a/b/f"), "0600 9 10");
    let ours = run(&["get", "-q", "--tar", "-", &scratch.inside("/a")]).stdout;
    let record = b" SCHILY.xattr.user.all=1\n";
    assert_eq!(ours.windows(record.len()).filter(|bytes| bytes == record).count(), 3);
    scratch.fsck();
}

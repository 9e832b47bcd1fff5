//! Archives that are unpacked over each other, as the layers of a container image; members that are
//! refused; archives that are compressed.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::command::{ScratchImage, run, text};
use testkit::tool;

use crate::archives::{gnu_tar, header};

/// Writes an archive of empty files and other entries, which have types and targets.
fn write(archive: &Path, members: &[(&str, tar::EntryType, &str)]) {
    let mut out = Vec::new();
    for &(name, kind, target) in members {
        let mut header = header("-");
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_cksum();
        out.extend_from_slice(header.as_bytes());
    }
    out.resize(out.len() + 1024, 0);
    fs::write(archive, out).unwrap();
}

/// Lists a tree: types, names and targets.
fn listed(root: &Path) -> Vec<String> {
    let (mut lines, mut dirs) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for item in fs::read_dir(&dir).unwrap() {
            let path = item.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            let target = fs::read_link(&path).unwrap_or_default();
            let name = path.strip_prefix(root).unwrap().display();
            lines.push(format!("{name} {} {}", if kind.is_dir() { "d" } else { "f" }, target.display()));
            if kind.is_dir() {
                dirs.push(path);
            }
        }
    }
    lines.sort();
    lines
}

#[test]
fn members_replace_what_has_their_names_as_with_gnu_tar() {
    use tar::EntryType::{Directory as D, Fifo, Link as H, Regular as F, Symlink as S};
    let first = [
        ("t", D, ""),
        ("t/in", F, ""),
        ("link", S, "t"),
        ("file", F, ""),
        ("fifo", Fifo, ""),
        ("empty1", D, ""),
        ("empty2", D, ""),
        ("empty3", D, ""),
        ("empty4", D, ""),
        ("full", D, ""),
        ("full/in", F, ""),
        ("alias", S, "t2"),
        ("t2", D, ""),
        ("gone", D, ""),
    ];
    let second = [
        ("link/", D, ""),
        ("link/new", F, ""),
        ("file/", D, ""),
        ("file/new", F, ""),
        ("fifo/", D, ""),
        ("empty1", F, ""),
        ("empty2", S, "t"),
        ("empty2/through", F, ""),
        ("empty3", Fifo, ""),
        ("empty4", H, "t/in"),
        // Refused: a directory with entries stays.
        ("full", F, ""),
        ("full/more", F, ""),
        // The directory that was found last is replaced, by another name of it.
        ("alias/x/", D, ""),
        ("t2/x", F, ""),
        ("alias/x/below", F, ""),
        ("d/", D, ""),
        ("d/target", F, ""),
        ("further", H, "d/../d/target"),
        ("later", D, ""),
        ("later", F, ""),
    ];
    let scratch = ScratchImage::new(&[]);
    let [one, two] = ["one.tar", "two.tar"].map(|name| scratch.path(name));
    write(&one, &first);
    write(&two, &second);
    let dir = scratch.inside("/dir");
    scratch.ok(&["mkdir", &dir]);
    scratch.ok(&["put", "-q", "--tar", &text(&one), &dir]);
    let output = run(&["put", "-q", "--tar", &text(&two), &dir]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("full: is a directory with entries") && said.contains("alias/x/below: "), "{said}");
    let out = scratch.path("out");
    scratch.ok(&["get", "-q", &format!("{dir}/."), &text(&out)]);
    scratch.fsck();
    let theirs = scratch.path("theirs");
    fs::create_dir(&theirs).unwrap();
    for archive in [&one, &two] {
        if gnu_tar(&["-C", &text(&theirs), "-xf", &text(archive)]).is_none() {
            return;
        }
    }
    assert_eq!(listed(&out), listed(&theirs));
}

#[test]
fn a_refused_member_does_not_end_the_rest() {
    use tar::EntryType::{Link as H, Regular as F};
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    let members = [
        ("../up", F, ""),
        ("a", F, ""),
        ("hard", H, "missing/deep"),
        ("b", F, ""),
        ("odd", tar::EntryType::new(b'D'), ""),
        ("c", F, ""),
        ("a/below", F, ""),
        ("d", F, ""),
    ];
    write(&archive, &members);
    let output = run(&["put", "-q", "--json", "--tar", &text(&archive), &scratch.inside("/")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for refused in [
        "in.tar: ../up: leads out",
        "hard: hard link to missing/deep: ",
        "odd: an entry of type 'D'",
        "a/below: ",
    ] {
        assert!(said.contains(refused), "{refused}: {said}");
    }
    assert_eq!(said.lines().count(), 4, "{said}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["files"], &summary["errors"]), (&4.into(), &4.into()));
    // A hard link makes no directories.
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/")]), "a\nb\nc\nd\nlost+found\n");
    scratch.fsck();
}

#[test]
fn whiteouts_are_named_and_make_no_files() {
    use tar::EntryType::{Directory as D, Regular as F};
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("in.tar");
    let members = [
        ("dir/", D, ""),
        ("dir/.wh.gone", F, ""),
        ("dir/.wh..wh..opq", F, ""),
        ("dir/.wh.", F, ""),
        ("other/.wh.gone", F, ""),
        ("dir/kept", F, ""),
    ];
    write(&archive, &members);
    let output = run(&["put", "-q", "--tar", &text(&archive), &scratch.inside("/")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("dir/.wh.gone: a whiteout, which removes gone of lower layers; not applied"),
        "{said}"
    );
    assert!(said.contains("dir/.wh..wh..opq: a whiteout of all entries"), "{said}");
    assert_eq!(said.lines().count(), 3, "{said}");
    assert_eq!(scratch.ok(&["ls", "-a", &scratch.inside("/dir")]), ".wh.\nkept\n");
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/")]), "dir\nlost+found\n");
}

#[test]
fn compressed_archives_are_named() {
    let scratch = ScratchImage::new(&[]);
    let (archive, packed) = (scratch.path("BZh-name"), scratch.path("packed"));
    // The name of a member may begin as a compressed stream does.
    write(&archive, &[("BZh-name", tar::EntryType::Regular, "")]);
    scratch.ok(&["put", "-q", "--tar", &text(&archive), &scratch.inside("/")]);
    for program in ["gzip", "bzip2", "xz", "zstd"] {
        let Some(output) = tool(Command::new(program).arg("-c").arg(&archive)) else { continue };
        // A short stream, too.
        for len in [output.stdout.len(), 20] {
            fs::write(&packed, &output.stdout[..len]).unwrap();
            let error = scratch.fails(&["put", "-q", "--tar", &text(&packed), &scratch.inside("/")]);
            assert!(error.contains(&format!("packed: a {program} stream; decompress it first")), "{error}");
        }
    }
}

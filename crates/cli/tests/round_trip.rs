//! A tree that is copied into an image and out again is unchanged.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use rustix::io::Errno;
use testkit::command::{ScratchImage, program, text};
use testkit::tool;

const MIB: u64 = 1 << 20;

/// Makes a tree with one of everything that an ordinary user can make.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/empty")).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("a/small"), "hello\n").unwrap();
    fs::write(root.join("a/odd"), vec![7; 5 * MIB as usize + 4097]).unwrap();
    let noise: Vec<u8> = (0_u32..3 << 20).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(root.join("a/b/large"), &noise).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(40 * MIB + 123).unwrap();
    sparse.write_all_at(&[1; 5000], 8 * MIB).unwrap();
    sparse.write_all_at(&[2; 70_000], 24 * MIB).unwrap();
    fs::hard_link(root.join("a/small"), root.join("a/b/small-too")).unwrap();
    fs::hard_link(root.join("a/small"), root.join("again")).unwrap();
    symlink("a/small", root.join("link")).unwrap();
    symlink("x/".repeat(60), root.join("a/long-link")).unwrap();
    symlink("nowhere", root.join("a/dangling")).unwrap();
    fs::write(root.join("n\u{e4}me with spaces"), "x").unwrap();
    for n in 0..200 {
        fs::write(root.join(format!("a/b/file-{n}")), n.to_string()).unwrap();
    }
    for n in 0..300_u32 {
        // Around the sizes of sectors, blocks, buffers and of small files.
        let len = [511, 512, 4095, 4096, 4097, 16_384, 40_000, 131_071, 131_072, 131_073][n as usize % 10];
        let bytes: Vec<u8> = (0..len).map(|at: u32| (at / 512 * 31 + at + n) as u8).collect();
        fs::write(root.join(format!("a/b/sized-{n}")), bytes).unwrap();
    }
    let holed = File::create(root.join("a/b/small-with-a-hole")).unwrap();
    holed.set_len(65_536).unwrap();
    holed.write_all_at(&[3; 100], 40_000).unwrap();
    fs::set_permissions(root.join("a/odd"), Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(root.join("a/b/empty"), Permissions::from_mode(0o1750)).unwrap();
    assert!(Command::new("mkfifo").arg(root.join("fifo")).status().unwrap().success());
    for (path, name, len) in [("a/small", "user.a", 10), ("a/b", "user.b", 300), ("a/small", "user.c", 0)] {
        let set = lsetxattr(root.join(path), name, &vec![b'v'; len], XattrFlags::empty());
        assert!(matches!(set, Ok(()) | Err(Errno::NOTSUP)), "{set:?}");
    }
    for (path, seconds) in [("a/small", 1_000_000_000), ("a/b", 5_000_000_000), ("a/b/empty", 1)] {
        let time = UNIX_EPOCH + Duration::new(seconds, 123_456_789);
        let times = FileTimes::new().set_modified(time).set_accessed(time + Duration::from_nanos(1));
        File::open(root.join(path)).unwrap().set_times(times).unwrap();
    }
}

/// Returns the extended attributes as text.
fn attributes(path: &Path) -> String {
    let mut names = vec![0; 65536];
    let len = llistxattr(path, &mut names[..]).unwrap();
    let names = String::from_utf8(names[..len].to_vec()).unwrap();
    let mut lines: Vec<_> = names
        .split_terminator('\0')
        .map(|name| {
            let mut value = vec![0; 65536];
            let len = lgetxattr(path, name, &mut value[..]).unwrap();
            format!(" {name}={:?}", &value[..len])
        })
        .collect();
    lines.sort();
    lines.concat()
}

/// Describes all files below `root`, sorted, with attributes and contents.
fn describe(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let mut line = format!("{name:?} {:o} {} {}", metadata.mode(), metadata.uid(), metadata.gid());
        line += &format!(" mtime {}.{}", metadata.mtime(), metadata.mtime_nsec());
        line += &attributes(&path);
        if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|item| item.unwrap().path()));
        } else {
            line += &format!(" size {} links {}", metadata.size(), metadata.nlink());
        }
        if metadata.is_symlink() {
            line += &format!(" to {:?}", fs::read_link(&path).unwrap());
        } else if metadata.is_file() {
            line += &format!(" data {:08x}", crc32c::crc32c(&fs::read(&path).unwrap()));
        }
        lines.push(line);
    }
    lines.sort();
    lines
}

fn round_trip(mkfs_options: &[&str], threads: &str) {
    let scratch = ScratchImage::new(mkfs_options);
    let (source, dest) = (scratch.path("source"), scratch.path("dest"));
    make_tree(&source);
    let before = describe(&source);
    // Reading has changed the times of access.
    let small = source.join("a/small").metadata().unwrap();
    scratch.ok(&["put", "--threads", threads, &text(&source), &scratch.inside("/tree")]);
    scratch.fsck();
    scratch.ok(&["get", "--threads", threads, &scratch.inside("/tree"), &text(&dest)]);
    let copy = dest.join("a/small").metadata().unwrap();
    assert_eq!(describe(&dest), before);
    assert_eq!((copy.mtime(), copy.mtime_nsec()), (small.mtime(), small.mtime_nsec()));
    assert_eq!((copy.atime(), copy.atime_nsec()), (small.atime(), small.atime_nsec()));
    assert_eq!(copy.ino(), dest.join("again").metadata().unwrap().ino());

    // Holes are holes, in the volume and outside.
    assert!(dest.join("sparse").metadata().unwrap().blocks() < 1024);
    let list = scratch.ok(&["ls", "--json", &scratch.inside("/tree/sparse")]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert!(list[0]["sectors"].as_u64().unwrap() < 1024, "{list}");

    // Copying again over the existing files changes nothing.
    scratch.ok(&["put", &text(&source.join(".")), &scratch.inside("/tree")]);
    scratch.fsck();
    scratch.ok(&["get", &scratch.inside("/tree/."), &text(&dest)]);
    assert_eq!(describe(&dest), before);

    scratch.ok(&["rm", "-r", &scratch.inside("/tree")]);
    scratch.fsck();
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/")]), "lost+found\n");
}

#[test]
fn trees_are_unchanged_after_a_round_trip() {
    round_trip(&[], "4");
}

#[test]
fn with_small_blocks_and_no_journal() {
    round_trip(&["--block-size", "1024", "--no-journal"], "1");
}

/// Files that wait to be written together must not stay open: 500 of them are copied with a limit
/// of 48 open files.
#[test]
fn small_files_are_copied_with_few_open_files() {
    let scratch = ScratchImage::new(&[]);
    let source = scratch.path("source");
    fs::create_dir(&source).unwrap();
    for n in 0..500 {
        fs::write(source.join(n.to_string()), n.to_string()).unwrap();
    }
    let limited = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 48 && exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_parext4"),
            "put",
            "--threads",
            "2",
        ])
        .args([text(&source), scratch.inside("/tree")])
        .output()
        .unwrap();
    assert!(limited.status.success(), "{}", String::from_utf8_lossy(&limited.stderr));
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/tree")]).lines().count(), 500);
    scratch.fsck();
}

#[test]
fn every_file_is_reported_once_it_is_durable() {
    let scratch = ScratchImage::new(&[]);
    let source = scratch.path("source");
    make_tree(&source);
    let files = describe(&source).iter().filter(|line| line.contains(" size ")).count();
    let out = scratch.ok(&["put", "--report", "--sync-every", "16", &text(&source), &scratch.inside("/")]);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), files);
    assert!(lines.contains(&"synced /source/a/small") && lines.contains(&"synced /source/again"));
    scratch.fsck();
}

/// Runs GNU tar. Returns false if it is not installed.
fn gnu_tar(arguments: &[&str]) -> bool {
    let all = ["--xattrs", "--xattrs-include=*", "--numeric-owner"];
    let Some(output) = tool(Command::new("tar").args(all).args(arguments)) else { return false };
    assert!(output.status.success(), "{arguments:?}: {}", testkit::tool::text(&output));
    true
}

#[test]
fn archives_carry_trees_in_and_out() {
    let scratch = ScratchImage::new(&[]);
    let [source, out, again] = ["source", "out", "again"].map(|name| scratch.path(name));
    let [archive, ours] = ["in.tar", "ours.tar"].map(|name| text(&scratch.path(name)));
    make_tree(&source);
    fs::write(source.join("long-".to_owned() + &"n".repeat(200)), "long name").unwrap();
    // 400 characters: longer than the fields of an old header.
    let deep = source.join("d".repeat(100)).join("e".repeat(100)).join("f".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    fs::hard_link(source.join("a/small"), deep.join("g".repeat(100))).unwrap();
    let before = describe(&source);
    if !gnu_tar(&["-S", "--format=posix", "-C", &text(&source), "-cf", &archive, "."]) {
        return;
    }
    scratch.ok(&["mkdir", &scratch.inside("/tree")]);
    scratch.ok(&["put", "--quiet", "--tar", &archive, &scratch.inside("/tree")]);
    scratch.fsck();
    scratch.ok(&["get", "--quiet", &scratch.inside("/tree"), &text(&out)]);
    assert_eq!(describe(&out), before);
    let list = scratch.ok(&["ls", "--json", &scratch.inside("/tree/sparse")]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert!(list[0]["sectors"].as_u64().unwrap() < 1024, "{list}");

    scratch.ok(&["get", "--quiet", "--tar", &ours, &scratch.inside("/tree/.")]);
    assert!(fs::metadata(&ours).unwrap().len() < 50 * MIB, "holes are not stored");
    fs::create_dir(&again).unwrap();
    gnu_tar(&["-C", &text(&again), "-xpf", &ours]);
    assert_eq!(describe(&again), before);
    assert!(again.join("sparse").metadata().unwrap().blocks() < 1024);

    // The old format of GNU tar, from standard input; and what this command has written.
    gnu_tar(&[
        "--no-xattrs",
        "-S",
        "--format=gnu",
        "-C",
        &text(&source),
        "-cf",
        &archive,
        "sparse",
        "a/small",
        "again",
    ]);
    let piped = format!("cat {archive} | {} put -q --tar - {}", program().display(), scratch.inside("/old"));
    scratch.ok(&["mkdir", &scratch.inside("/old")]);
    assert!(Command::new("sh").args(["-c", &piped]).status().unwrap().success());
    scratch.ok(&["get", "-q", &scratch.inside("/old/sparse"), &text(&scratch.path("sparse"))]);
    assert!(fs::read(scratch.path("sparse")).unwrap() == fs::read(source.join("sparse")).unwrap());
    // The volume has no space for a second copy.
    scratch.ok(&["rm", "-r", &scratch.inside("/tree")]);
    scratch.ok(&["mkdir", &scratch.inside("/new")]);
    scratch.ok(&["put", "--quiet", "--tar", &ours, &scratch.inside("/new")]);
    scratch.fsck();
    fs::remove_dir_all(&again).unwrap();
    scratch.ok(&["get", "--quiet", &scratch.inside("/new"), &text(&again)]);
    assert_eq!(describe(&again), before);
}

/// Returns a header with any names.
fn raw_header(name: &str, kind: tar::EntryType, link: &str, len: usize) -> tar::Header {
    let mut header = tar::Header::new_old();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_size(len as u64);
    header.set_mode(0o644);
    header.set_uid(1);
    header.set_gid(2);
    header.set_mtime(3);
    header.set_cksum();
    header
}

#[test]
fn no_name_in_an_archive_leads_out_of_the_destination() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("hostile.tar");
    let mut builder = tar::Builder::new(File::create(&archive).unwrap());
    let mut add = |name: &str, kind: tar::EntryType, link: &str, data: &[u8]| {
        builder.append(&raw_header(name, kind, link, data.len()), data).unwrap();
    };
    use tar::EntryType::{Link, Regular, Symlink};
    add("/absolute", Regular, "", b"1");
    add("up", Symlink, "../../..", b"");
    add("up/file", Regular, "", b"2");
    add("etc", Symlink, "/victim", b"");
    add("etc/passwd", Regular, "", b"3");
    add("loop", Symlink, "loop", b"");
    add("ok", Link, "/absolute", b"");
    builder.into_inner().unwrap();
    scratch.ok(&["mkdir", &scratch.inside("/victim")]);
    scratch.ok(&["mkdir", &scratch.inside("/dest")]);
    let dest = scratch.inside("/dest");
    scratch.ok(&["put", "--quiet", "--tar", &text(&archive), &dest]);
    assert_eq!(scratch.ok(&["ls", &dest]), "absolute\netc\nfile\nloop\nok\nup\nvictim\n");
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/victim")]), "");
    assert_eq!(
        scratch.ok(&["cat", &scratch.inside("/dest/victim/passwd"), &scratch.inside("/dest/ok")]),
        "31"
    );
    for (name, kind, link, said) in [
        ("../evil", Regular, "", "leads out of the destination"),
        ("x/../../evil", Regular, "", "leads out of the destination"),
        ("hard", Link, "../victim", "leads out of the destination"),
        ("loop/file", Regular, "", "too many symbolic links"),
        ("ok/file", Regular, "", "is not a directory"),
    ] {
        let mut builder = tar::Builder::new(File::create(&archive).unwrap());
        builder.append(&raw_header(name, kind, link, 0), &b""[..]).unwrap();
        builder.into_inner().unwrap();
        let error = scratch.fails(&["put", "--quiet", "--tar", &text(&archive), &dest]);
        assert!(error.contains(said), "{name}: {error}");
    }
    // Names that no program could use make nothing.
    let listed = scratch.ok(&["ls", "-R", &dest]);
    let (deep, part) = ("d/".repeat(2048), format!("new/{}", "p".repeat(256)));
    for (record, name, kind, said) in [
        ("path", &deep, Regular, "a name of 4096 bytes; the longest has 4095"),
        ("path", &part, Regular, "a part of 256 bytes; the longest has 255"),
        ("linkpath", &deep, Link, "a name of 4096 bytes; the longest has 4095"),
        ("linkpath", &part, Link, "a part of 256 bytes; the longest has 255"),
    ] {
        let mut builder = tar::Builder::new(File::create(&archive).unwrap());
        builder.append_pax_extensions([(record, name.as_bytes())]).unwrap();
        builder.append(&raw_header("name", kind, "x", 0), &b""[..]).unwrap();
        builder.into_inner().unwrap();
        let error = scratch.fails(&["put", "--quiet", "--tar", &text(&archive), &dest]);
        assert!(error.contains(said) && error.len() < 1000, "{error}");
        assert_eq!(scratch.ok(&["ls", "-R", &dest]), listed);
    }
    // An archive that ends early.
    let whole = vec![0x41; 700];
    fs::write(&archive, whole).unwrap();
    scratch.fails(&["put", "--quiet", "--tar", &text(&archive), &dest]);
    scratch.fsck();
}

#[test]
fn rules_and_a_manifest_set_what_only_root_can_make() {
    let scratch = ScratchImage::new(&[]);
    let (tree, manifest) = (scratch.path("tree"), scratch.path("manifest"));
    fs::create_dir_all(tree.join("dev")).unwrap();
    fs::write(tree.join("tool"), "x").unwrap();
    fs::write(
        &manifest,
        "# a comment\n/tool f 4755 7 8\n/tool x user.origin=a build\n/dev/console c 600 0 5 5 1\n\
         /dev/tty c 666 0 5 4 0 1 1 3\n/dev/sda b 640 0 6 8 0 - - -\n/run d 1777 0 0\n/run/pipe p - 9 9\n",
    )
    .unwrap();
    let rules = [
        "--owner",
        "1000:1001",
        "--mode",
        "D750,F640",
        "--xattr",
        "user.all=1",
        "--manifest",
        &text(&manifest),
    ];
    let mut arguments = vec!["put", "--quiet"];
    let (source, root) = (text(&tree.join(".")), scratch.inside("/"));
    arguments.extend(rules);
    arguments.extend([source.as_str(), root.as_str()]);
    scratch.ok(&arguments);
    scratch.fsck();
    let listed = scratch.ok(&["ls", "--json", "-R", &scratch.inside("/")]);
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
    let found = |path: &str| {
        let entry = listed.iter().find(|entry| entry["path"] == path).unwrap_or_else(|| panic!("{path}"));
        let field = |name: &str| entry[name].to_string().replace('"', "");
        [field("type"), field("mode"), field("uid"), field("gid"), field("rdev")].join(" ")
    };
    assert_eq!(found("/tool"), "file 4755 7 8 null");
    assert_eq!(found("/dev"), "directory 0750 1000 1001 null");
    assert_eq!(found("/dev/console"), "char-device 0600 0 5 [5,1]");
    assert_eq!(found("/dev/tty3"), "char-device 0666 0 5 [4,2]");
    assert_eq!(found("/dev/sda"), "block-device 0640 0 6 [8,0]");
    assert_eq!(found("/run"), "directory 1777 0 0 null");
    assert_eq!(found("/run/pipe"), "fifo 0755 9 9 null");
    scratch.ok(&["get", "--quiet", &scratch.inside("/tool"), &text(&scratch.path("out"))]);
    assert_eq!(attributes(&scratch.path("out")).matches("user.").count(), 2);
    fs::write(&manifest, "/nowhere/x f 644 0 0\n").unwrap();
    let error = scratch.fails(&arguments);
    assert!(error.contains("manifest: line 1"), "{error}");
}

#[test]
fn copies_have_the_same_targets_as_with_cp() {
    let scratch = ScratchImage::new(&[]);
    let (one, two) = (scratch.path("one"), scratch.path("two"));
    fs::write(&one, "1").unwrap();
    fs::write(&two, "2").unwrap();
    scratch.ok(&["mkdir", &scratch.inside("/dir")]);
    scratch.ok(&["put", &text(&one), &text(&two), &scratch.inside("/dir")]);
    scratch.ok(&["put", &text(&one), &scratch.inside("/dir/renamed")]);
    scratch.ok(&["put", &text(&two), &scratch.inside("/dir/one")]);
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/dir")]), "one\nrenamed\ntwo\n");
    assert_eq!(scratch.ok(&["cat", &scratch.inside("/dir/one"), &scratch.inside("/dir/renamed")]), "21");
    let error = scratch.fails(&["put", &text(&one), &text(&two), &scratch.inside("/new")]);
    assert!(error.contains("not a directory"), "{error}");
    scratch.fails(&["put", &text(&one), &scratch.inside("/nowhere/new")]);
    // A file does not replace a directory, nor the reverse.
    scratch.ok(&["mkdir", "-p", &scratch.inside("/dir/sub/one")]);
    let error = scratch.fails(&["put", &text(&one), &scratch.inside("/dir/sub")]);
    assert!(error.contains("is a directory"), "{error}");
    fs::create_dir(scratch.path("tree")).unwrap();
    fs::create_dir(scratch.path("tree/one")).unwrap();
    let error = scratch.fails(&["put", &text(&scratch.path("tree/.")), &scratch.inside("/dir")]);
    assert!(error.contains("is not a directory"), "{error}");
    scratch.ok(&["put", "/dev/null", &scratch.inside("/dir")]);
    assert!(scratch.ok(&["ls", "-l", &scratch.inside("/dir/null")]).contains(" 1, 3 "));
    scratch.fsck();

    fs::create_dir(scratch.path("out")).unwrap();
    scratch.ok(&["get", &scratch.inside("/dir/two"), &text(&scratch.path("out"))]);
    scratch.ok(&["get", &scratch.inside("/dir/two"), &text(&scratch.path("out/three"))]);
    assert_eq!(fs::read(scratch.path("out/two")).unwrap(), b"2");
    assert_eq!(fs::read(scratch.path("out/three")).unwrap(), b"2");
}

#[test]
fn getting_never_leads_through_a_link() {
    let scratch = ScratchImage::new(&[]);
    let (source, dest, outside) = (scratch.path("source"), scratch.path("dest"), scratch.path("outside"));
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("sub/file"), "new").unwrap();
    fs::write(source.join("target"), "new").unwrap();
    scratch.ok(&["put", &text(&source.join(".")), &scratch.inside("/")]);
    fs::create_dir_all(&dest).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("file"), "old").unwrap();
    symlink(outside.join("file"), dest.join("target")).unwrap();
    scratch.ok(&["get", &scratch.inside("/target"), &text(&dest)]);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"old");
    assert!(dest.join("target").symlink_metadata().unwrap().is_file());
    symlink(&outside, dest.join("sub")).unwrap();
    scratch.fails(&["get", &scratch.inside("/sub"), &text(&dest)]);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"old");
}

/// The largest number of bytes of a name, or of all records of a member.
const MOST_RECORDS: usize = 8 << 20;

#[test]
fn names_and_records_of_more_than_8_mib_in_an_archive_are_refused_without_being_read() {
    let scratch = ScratchImage::new(&[]);
    let archive = scratch.path("hostile.tar");
    let put = || scratch.fails(&["put", "--quiet", "--tar", &text(&archive), &scratch.inside("/")]);
    // The archive does not have the bytes, so a reader that made room for them would fail
    // otherwise, or use up the memory.
    for kind in [tar::EntryType::XHeader, tar::EntryType::GNULongName, tar::EntryType::GNULongLink] {
        for len in [MOST_RECORDS + 1, 1 << 32] {
            fs::write(&archive, raw_header("name", kind, "", len).as_bytes()).unwrap();
            let error = put();
            assert!(error.contains(&format!("a name or records of {len} bytes")), "{error}");
        }
    }
    // A record that is as long as permitted.
    let name = "n/".repeat((MOST_RECORDS - "8388608 path=\n".len()) / 2);
    for record in ["path", "linkpath"] {
        let mut builder = tar::Builder::new(File::create(&archive).unwrap());
        let name = &name[..name.len() - record.len() + "path".len()];
        builder.append_pax_extensions([(record, name.as_bytes())]).unwrap();
        builder.append(&raw_header("name", tar::EntryType::Link, "x", 0), &b""[..]).unwrap();
        builder.into_inner().unwrap();
        let error = put();
        assert!(error.contains("the longest has 4095") && error.len() < 1000, "{}", error.len());
    }
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/")]), "lost+found\n");
    scratch.fsck();
}

#[test]
fn attributes_of_more_than_7_mib_are_left_out_of_an_archive_so_that_it_can_be_read() {
    const COUNT: usize = 120;
    let scratch = ScratchImage::new(&["-O", "ea_inode", "-b", "4096"]);
    fs::write(scratch.path("file"), "contents").unwrap();
    scratch.ok(&["put", "--quiet", &text(&scratch.path("file")), &scratch.inside("/")]);
    let device = parext4::FileDevice::open(scratch.image(), &parext4::DeviceOptions::new()).unwrap();
    let options = parext4::VolumeOptions::new();
    let volume = parext4::Volume::open_device(std::sync::Arc::new(device), &options).unwrap();
    let node = volume.resolve("/file").unwrap();
    for nth in 0..COUNT {
        let value = vec![u8::try_from(nth).unwrap(); 65536];
        node.set_xattr(format!("user.{nth}").as_bytes(), &value, parext4::XattrMode::Create).unwrap();
    }
    drop(node);
    volume.close().unwrap();
    let archive = text(&scratch.path("file.tar"));
    let output = Command::new(program())
        .args(["get", "--quiet", "--tar", &archive, &scratch.inside("/file")])
        .output()
        .unwrap();
    let warnings = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{warnings}");
    let is_left_out = |line: &&str| line.contains("is left out: 65536 bytes do not fit the archive");
    let left_out = warnings.lines().filter(is_left_out).count();
    // 7 MiB are 111 values of 64 KiB with their names.
    assert_eq!(left_out, COUNT - 111, "{warnings}");
    scratch.ok(&["rm", &scratch.inside("/file")]);
    scratch.ok(&["put", "--quiet", "--tar", &archive, &scratch.inside("/")]);
    assert_eq!(scratch.ok(&["cat", &scratch.inside("/file")]), "contents");
    scratch.fsck();
}

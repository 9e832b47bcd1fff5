//! A tree put into an image and got back is the tree it was.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use rustix::io::Errno;
use testkit::command::{Bench, text};

const MIB: u64 = 1 << 20;

/// A tree with one of everything that an ordinary user can make.
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
        // Around the sizes of sectors, blocks, buffers and of what counts as small.
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

/// The extended attributes as text.
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

/// All below `root`, sorted, with attributes and contents as text.
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
    let bench = Bench::new(mkfs_options);
    let (source, dest) = (bench.path("source"), bench.path("dest"));
    make_tree(&source);
    let before = describe(&source);
    // Reading has set times of access.
    let small = source.join("a/small").metadata().unwrap();
    bench.ok(&["put", "--threads", threads, &text(&source), &bench.inside("/tree")]);
    bench.fsck();
    bench.ok(&["get", "--threads", threads, &bench.inside("/tree"), &text(&dest)]);
    let copy = dest.join("a/small").metadata().unwrap();
    assert_eq!(describe(&dest), before);
    assert_eq!((copy.mtime(), copy.mtime_nsec()), (small.mtime(), small.mtime_nsec()));
    assert_eq!((copy.atime(), copy.atime_nsec()), (small.atime(), small.atime_nsec()));
    assert_eq!(copy.ino(), dest.join("again").metadata().unwrap().ino());

    // Holes are holes, in the volume and outside.
    assert!(dest.join("sparse").metadata().unwrap().blocks() < 1024);
    let list = bench.ok(&["ls", "--json", &bench.inside("/tree/sparse")]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert!(list[0]["sectors"].as_u64().unwrap() < 1024, "{list}");

    // Once more over what is there, and it is the same.
    bench.ok(&["put", &text(&source.join(".")), &bench.inside("/tree")]);
    bench.fsck();
    bench.ok(&["get", &bench.inside("/tree/."), &text(&dest)]);
    assert_eq!(describe(&dest), before);

    bench.ok(&["rm", "-r", &bench.inside("/tree")]);
    bench.fsck();
    assert_eq!(bench.ok(&["ls", &bench.inside("/")]), "lost+found\n");
}

#[test]
fn trees_come_back_as_they_were() {
    round_trip(&[], "4");
}

#[test]
fn with_small_blocks_and_no_journal() {
    round_trip(&["--block-size", "1024", "--no-journal"], "1");
}

/// Files that wait to be written together must not stay open: 500 of them are copied with room for 48.
#[test]
fn small_files_are_put_with_few_open_files() {
    let bench = Bench::new(&[]);
    let source = bench.path("source");
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
        .args([text(&source), bench.inside("/tree")])
        .output()
        .unwrap();
    assert!(limited.status.success(), "{}", String::from_utf8_lossy(&limited.stderr));
    assert_eq!(bench.ok(&["ls", &bench.inside("/tree")]).lines().count(), 500);
    bench.fsck();
}

#[test]
fn every_file_is_reported_once_it_is_durable() {
    let bench = Bench::new(&[]);
    let source = bench.path("source");
    make_tree(&source);
    let files = describe(&source).iter().filter(|line| line.contains(" size ")).count();
    let out = bench.ok(&["put", "--report", "--sync-every", "16", &text(&source), &bench.inside("/")]);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), files);
    assert!(lines.contains(&"synced /source/a/small") && lines.contains(&"synced /source/again"));
    bench.fsck();
}

#[test]
fn copies_go_where_cp_would_put_them() {
    let bench = Bench::new(&[]);
    let (one, two) = (bench.path("one"), bench.path("two"));
    fs::write(&one, "1").unwrap();
    fs::write(&two, "2").unwrap();
    bench.ok(&["mkdir", &bench.inside("/dir")]);
    bench.ok(&["put", &text(&one), &text(&two), &bench.inside("/dir")]);
    bench.ok(&["put", &text(&one), &bench.inside("/dir/renamed")]);
    bench.ok(&["put", &text(&two), &bench.inside("/dir/one")]);
    assert_eq!(bench.ok(&["ls", &bench.inside("/dir")]), "one\nrenamed\ntwo\n");
    assert_eq!(bench.ok(&["cat", &bench.inside("/dir/one"), &bench.inside("/dir/renamed")]), "21");
    let error = bench.fails(&["put", &text(&one), &text(&two), &bench.inside("/new")]);
    assert!(error.contains("not a directory"), "{error}");
    bench.fails(&["put", &text(&one), &bench.inside("/nowhere/new")]);
    // A file is no replacement for a directory, nor the reverse.
    bench.ok(&["mkdir", "-p", &bench.inside("/dir/sub/one")]);
    let error = bench.fails(&["put", &text(&one), &bench.inside("/dir/sub")]);
    assert!(error.contains("is a directory"), "{error}");
    fs::create_dir(bench.path("tree")).unwrap();
    fs::create_dir(bench.path("tree/one")).unwrap();
    let error = bench.fails(&["put", &text(&bench.path("tree/.")), &bench.inside("/dir")]);
    assert!(error.contains("is not a directory"), "{error}");
    bench.ok(&["put", "/dev/null", &bench.inside("/dir")]);
    assert!(bench.ok(&["ls", "-l", &bench.inside("/dir/null")]).contains(" 1, 3 "));
    bench.fsck();

    fs::create_dir(bench.path("out")).unwrap();
    bench.ok(&["get", &bench.inside("/dir/two"), &text(&bench.path("out"))]);
    bench.ok(&["get", &bench.inside("/dir/two"), &text(&bench.path("out/three"))]);
    assert_eq!(fs::read(bench.path("out/two")).unwrap(), b"2");
    assert_eq!(fs::read(bench.path("out/three")).unwrap(), b"2");
}

#[test]
fn getting_never_leads_through_a_link() {
    let bench = Bench::new(&[]);
    let (source, dest, outside) = (bench.path("source"), bench.path("dest"), bench.path("outside"));
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("sub/file"), "new").unwrap();
    fs::write(source.join("target"), "new").unwrap();
    bench.ok(&["put", &text(&source.join(".")), &bench.inside("/")]);
    fs::create_dir_all(&dest).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("file"), "old").unwrap();
    symlink(outside.join("file"), dest.join("target")).unwrap();
    bench.ok(&["get", &bench.inside("/target"), &text(&dest)]);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"old");
    assert!(dest.join("target").symlink_metadata().unwrap().is_file());
    symlink(&outside, dest.join("sub")).unwrap();
    bench.fails(&["get", &bench.inside("/sub"), &text(&dest)]);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"old");
}

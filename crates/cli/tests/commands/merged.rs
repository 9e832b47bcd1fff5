//! Sources whose contents go into one directory: a later one replaces files of an earlier one, as
//! with `cp -a` twice.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use testkit::command::{ScratchImage, run, text};
use testkit::tool;

/// Two trees with equal names.
struct Case {
    name: &'static str,
    make: fn(&Path, &Path),
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    fs::write(dir.join(name), bytes).unwrap();
}

/// Makes a file with the names `a` and `b`, which the walk of the directory meets among other
/// files.
fn linked(dir: &Path, bytes: &[u8]) {
    write(dir, "a", bytes);
    fs::hard_link(dir.join("a"), dir.join("b")).unwrap();
}

fn others(dir: &Path, count: u32) {
    (0..count).for_each(|n| write(dir, &format!("other{n}"), b"other"));
}

const CASES: [Case; 7] = [
    Case {
        name: "a large file and a small one",
        make: |x, y| {
            for n in 0..8 {
                write(x, &format!("f{n}"), &vec![b'x'; 1 << 20]);
                write(y, &format!("f{n}"), b"from-y");
            }
        },
    },
    Case {
        name: "a file and a symbolic link",
        make: |x, y| {
            others(x, 100);
            write(x, "f", b"from-x");
            symlink("from-y", y.join("f")).unwrap();
        },
    },
    Case {
        name: "a symbolic link and a file",
        make: |x, y| {
            symlink("from-x", x.join("f")).unwrap();
            write(y, "f", b"from-y");
        },
    },
    Case {
        name: "a name of a file of two names, and a file",
        make: |x, y| {
            linked(x, b"from-x");
            others(x, 30);
            write(y, "a", b"from-y");
        },
    },
    Case {
        name: "the other name of it",
        make: |x, y| {
            linked(x, b"from-x");
            others(x, 30);
            write(y, "b", b"from-y");
        },
    },
    Case {
        name: "each name of it, and many files",
        make: |x, y| {
            linked(x, b"from-x");
            others(x, 400);
            write(y, "a", b"from-y");
            write(y, "b", b"from-y, too");
        },
    },
    Case {
        name: "two files, and a file of two names in a directory with attributes",
        make: |x, y| {
            for (dir, from) in [(x, "from-x"), (y, "from-y")] {
                fs::create_dir(dir.join("sub")).unwrap();
                write(&dir.join("sub"), from, b"");
            }
            write(&x.join("sub"), "a", b"from-x");
            write(&x.join("sub"), "b", b"from-x");
            linked(&y.join("sub"), b"from-y");
        },
    },
];

/// Describes a tree, sorted: contents, times of directories, and the first of the names of each
/// file.
fn describe(root: &Path) -> Vec<String> {
    let (mut lines, mut dirs, mut first) = (Vec::new(), vec![root.to_owned()], HashMap::new());
    while let Some(dir) = dirs.pop() {
        let mut paths: Vec<_> = fs::read_dir(&dir).unwrap().map(|item| item.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let metadata = path.symlink_metadata().unwrap();
            let first = first.entry(metadata.ino()).or_insert_with(|| path.clone());
            let first = first.strip_prefix(root).unwrap().display();
            let contents = if metadata.is_dir() {
                format!("{:o} {}", metadata.mode(), metadata.mtime())
            } else if metadata.is_symlink() {
                format!("to {}", fs::read_link(&path).unwrap().display())
            } else {
                let bytes = fs::read(&path).unwrap();
                format!("{} bytes {}", bytes.len(), String::from_utf8_lossy(&bytes[..bytes.len().min(20)]))
            };
            lines.push(format!("{} is {first}: {contents}", path.strip_prefix(root).unwrap().display()));
            if metadata.is_dir() {
                dirs.push(path);
            }
        }
    }
    lines
}

#[test]
fn contents_of_a_later_source_replace_those_of_an_earlier_one() {
    let mut wrong = Vec::new();
    for Case { name, make } in CASES {
        let scratch = ScratchImage::new(&[]);
        let [x, y, by_cp, out] = ["x", "y", "cp", "out"].map(|dir| scratch.path(dir));
        [&x, &y, &by_cp].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
        make(&x, &y);
        for source in [&x, &y] {
            // Without the option, cp refuses to replace a symbolic link that leads nowhere by a
            // file.
            let mut cp = Command::new("cp");
            let copied =
                tool(cp.args(["-a", "--remove-destination"]).arg(source.join(".")).arg(&by_cp)).unwrap();
            assert!(copied.status.success());
        }
        scratch.ok(&["mkdir", &scratch.inside("/dir")]);
        let put = run(&["put", "-q", &text(&x.join(".")), &text(&y.join(".")), &scratch.inside("/dir")]);
        scratch.ok(&["get", "-q", &scratch.inside("/dir/."), &text(&out)]);
        scratch.fsck();
        let (found, expected) = (describe(&out), describe(&by_cp));
        if !put.status.success() || found != expected {
            let differ = found.into_iter().filter(|line| !expected.contains(line));
            wrong.push((name, String::from_utf8(put.stderr), differ.collect::<Vec<_>>()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn names_of_one_file_in_several_sources_are_linked_unless_they_are_replaced() {
    let scratch = ScratchImage::new(&[]);
    let [x, y, out] = ["x", "y", "out"].map(|dir| scratch.path(dir));
    [&x, &y].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let link = |from: &str, to: &str| fs::hard_link(x.join(from), y.join(to)).unwrap();
    for name in ["kept", "same", "replaced"] {
        write(&x, name, name.as_bytes());
    }
    link("kept", "further");
    link("same", "same");
    // Its first copy has no name left when the second name is met, or loses its name afterwards.
    link("replaced", "other-name");
    link("replaced", "yet-another-name");
    write(&y, "replaced", b"by-y");
    others(&y, 200);
    scratch.ok(&["put", "-q", &text(&x.join(".")), &text(&y.join(".")), &scratch.inside("/")]);
    scratch.ok(&["get", "-q", &scratch.inside("/."), &text(&out)]);
    let ino = |name: &str| out.join(name).metadata().unwrap().ino();
    let has = |name: &str, text: &str| assert_eq!(fs::read_to_string(out.join(name)).unwrap(), text);
    assert_eq!(ino("kept"), ino("further"));
    assert_eq!(ino("other-name"), ino("yet-another-name"));
    has("kept", "kept");
    has("same", "same");
    has("replaced", "by-y");
    has("other-name", "replaced");
    scratch.fsck();
}

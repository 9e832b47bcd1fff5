//! Directories that ignore case: the kernel compares names byte by byte, and must not keep a
//! spelling of an entry that was changed by another spelling.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use testkit::fuse_mount::{FuseMount, until};
use testkit::tool;

/// Runs chattr. Returns its messages, or `None` if it is not installed.
fn chattr(flag: &str, path: &Path) -> Option<String> {
    let output = tool(Command::new("chattr").arg(flag).arg(path))?;
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn each_spelling_is_one_entry() {
    let Some(fuse) = FuseMount::mounted(&["-E", "encoding=utf8"], "") else { return };
    let (dir, plain) = (fuse.path("dir"), fuse.path("plain"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&plain).unwrap();
    // The kernel has asked for these before the directory ignores case.
    assert!(dir.join("readme").metadata().is_err() && dir.join("README").metadata().is_err());
    let Some(message) = chattr("+F", &dir) else { return };
    assert_eq!(message, "");
    fs::write(dir.join("readme"), "text").unwrap();
    let ino = |name: &str| dir.join(name).metadata().map(|metadata| metadata.ino()).ok();
    assert!(ino("README").is_some() && ino("README") == ino("readme"));
    assert_eq!(fs::read_to_string(dir.join("ReadMe")).unwrap(), "text");
    assert!(fs::File::create_new(dir.join("README")).is_err());
    assert!(fs::create_dir(dir.join("rEADME")).is_err());
    assert_eq!(names(&dir), ["readme"]);
    assert!(chattr("-F", &dir).unwrap().contains("not empty"));
    let listed = tool(Command::new("lsattr").arg("-d").arg(&dir)).unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).split_whitespace().next().unwrap().contains('F'));

    // Removed by one spelling, made again by another.
    fs::remove_file(dir.join("README")).unwrap();
    assert_eq!([ino("readme"), ino("README"), ino("ReadMe")], [None; 3]);
    fs::write(dir.join("README"), "again").unwrap();
    assert_eq!(fs::read_to_string(dir.join("readme")).unwrap(), "again");
    assert_eq!(names(&dir), ["README"]);
    fs::rename(dir.join("ReadMe"), dir.join("Straße")).unwrap();
    assert_eq!(ino("readme"), None);
    assert!(ino("STRASSE").is_some());
    fs::remove_file(dir.join("STRASSE")).unwrap();
    assert_eq!(ino("Straße"), None);

    // A directory, in which the flag is inherited.
    fs::create_dir(dir.join("Sub")).unwrap();
    fs::write(dir.join("SUB/File"), "").unwrap();
    assert!(dir.join("sub/FILE").exists() && dir.join("Sub/file").exists());
    fs::remove_file(dir.join("sUB/fILE")).unwrap();
    fs::remove_dir(dir.join("SUb")).unwrap();
    assert!(!dir.join("Sub").exists());

    // The kernel keeps what it knew of a name of an ordinary directory when it moves.
    for n in 0..20 {
        let (name, other) = (format!("moved-{n}"), format!("MOVED-{n}"));
        fs::write(plain.join(&name), "").unwrap();
        assert!(plain.join(&name).exists() && !plain.join(&other).exists());
        fs::rename(plain.join(&name), dir.join(&name)).unwrap();
        assert!(dir.join(&other).exists());
        fs::remove_file(dir.join(&other)).unwrap();
        assert!(until(|| !dir.join(&name).exists()), "{name}");
    }
    assert!(names(&dir).is_empty());
    fuse.umount();
    fuse.scratch().fsck();
}

#[test]
fn threads_with_different_spellings() {
    let Some(fuse) = FuseMount::mounted(&["-O", "casefold", "-E", "encoding_flags=strict,encoding=utf8"], "")
    else {
        return;
    };
    let dir = fuse.path("dir");
    fs::create_dir(&dir).unwrap();
    if chattr("+F", &dir).is_none() {
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let dir = &dir;
            scope.spawn(move || {
                for n in 0..300_u32 {
                    let lower = format!("name-{}", n % 7);
                    let name = if (n + thread) % 2 == 0 { lower } else { lower.to_uppercase() };
                    let path = dir.join(name);
                    // Any of them may lose a race. None may find two files.
                    let _ = fs::write(&path, "");
                    let _ = path.metadata();
                    let _ = fs::rename(&path, dir.join(format!("Name-{}", n * 5 % 7)));
                    let _ = fs::remove_file(dir.join(format!("nAME-{}", n % 5)));
                }
            });
        }
    });
    let left = names(&dir);
    let mut folded: Vec<_> = left.iter().map(|name| name.to_lowercase()).collect();
    folded.dedup();
    assert_eq!(folded.len(), left.len(), "{left:?}");
    for name in &left {
        assert!(dir.join(name.to_uppercase()).exists() && dir.join(name.to_lowercase()).exists(), "{name}");
    }
    fuse.umount();
    fuse.scratch().fsck();
}

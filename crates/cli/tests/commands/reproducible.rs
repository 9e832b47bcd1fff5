//! Images that are the same each time: `SOURCE_DATE_EPOCH`, a UUID and the secret of the directory
//! hashes are given.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{XattrFlags, lsetxattr};
use testkit::command::{ScratchImage, program, text};

use crate::mke2fs::{TIME, UUID};

/// Makes a tree whose files are made in the order of `order`, with fixed times of modification.
fn tree(root: &Path, order: impl Iterator<Item = u32> + Clone) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_100_000_000_123);
    fs::create_dir(root).unwrap();
    for dir in order.clone() {
        let dir = root.join(format!("dir {dir}"));
        fs::create_dir(&dir).unwrap();
        for nr in order.clone() {
            let file = dir.join(format!("file {nr}"));
            fs::write(&file, vec![nr as u8; nr as usize * 1733]).unwrap();
            let attributes = if nr % 2 == 0 { ["user.a", "user.b"] } else { ["user.b", "user.a"] };
            if nr < 4
                && attributes.iter().any(|name| lsetxattr(&file, *name, b"x", XattrFlags::empty()).is_err())
            {
                testkit::skip_allowed(&format!("no attributes in {}", root.display()));
            }
        }
        fs::hard_link(dir.join("file 3"), dir.join("another name")).unwrap();
        symlink("file 5", dir.join("link")).unwrap();
    }
    fs::write(root.join("large"), vec![9; 5 << 20]).unwrap();
    File::create(root.join("sparse")).unwrap().set_len(3 << 20).unwrap();
    set_times(root, time);
}

/// Sets the times of all that is in a directory, and then of the directory.
fn set_times(dir: &Path, time: SystemTime) {
    for item in fs::read_dir(dir).unwrap() {
        let path = item.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_symlink() {
            let link = Command::new("touch").args(["-h", "-d", "@1100000000"]).arg(&path).status().unwrap();
            assert!(link.success() && path.symlink_metadata().unwrap().mtime() == 1_100_000_000);
        } else if metadata.is_dir() {
            set_times(&path, time);
        } else {
            File::open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
        }
    }
    File::open(dir).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

/// Returns the image of a tree.
fn image_of(scratch: &ScratchImage, source: &[&str]) -> Vec<u8> {
    let image = scratch.path("made");
    let run = |arguments: &[&str]| {
        let ran = Command::new(program()).args(arguments).env("SOURCE_DATE_EPOCH", TIME).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    let seed = format!("hash_seed={UUID},discard");
    run(&["mkfs", "-q", "-U", UUID, "-E", &seed, &text(&image), "32M"]);
    run(&[&["put", "-q", "--threads", "4"], source, &[&format!("{}:/", image.display())]].concat());
    let bytes = fs::read(&image).unwrap();
    let checked = testkit::tool(Command::new("e2fsck").arg("-fn").arg(&image));
    assert!(checked.is_none_or(|output| output.status.success()));
    fs::remove_file(image).unwrap();
    bytes
}

#[test]
fn the_same_tree_gives_the_same_image() {
    let scratch = ScratchImage::empty();
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    tree(&first, 0..20);
    tree(&second, (0..20).rev());
    let contents = |tree: &PathBuf| format!("{}/.", tree.display());
    let image = image_of(&scratch, &[&contents(&first)]);
    assert!(image_of(&scratch, &[&contents(&first)]) == image, "the same directory");
    assert!(image_of(&scratch, &[&contents(&second)]) == image, "a directory made in another order");
    let archive = text(&scratch.path("archive"));
    let tar = Command::new("tar").args(["--sort=name", "-C", &text(&first), "-cf", &archive, "."]).status();
    if tar.is_ok_and(|status| status.success()) {
        let image = image_of(&scratch, &["--tar", &archive]);
        assert!(image_of(&scratch, &["--tar", &archive]) == image, "the same archive");
    }
}

/// e2fsck takes a small time of deletion, also 0, for a damaged list of orphans.
#[test]
fn deleting_a_file_in_the_first_second_of_1970_leaves_no_error() {
    let scratch = ScratchImage::empty();
    let source = scratch.path("source");
    fs::create_dir(&source).unwrap();
    let archives = ["files", "links"].map(|name| text(&scratch.path(name)));
    let pack = |archive: &str| {
        let tar = Command::new("tar").args(["-C", &text(&source), "-cf", archive, "g", "f"]).status();
        assert!(tar.unwrap().success());
    };
    ["f", "g"].into_iter().for_each(|name| fs::write(source.join(name), name).unwrap());
    pack(&archives[0]);
    // Replaces a file by a name of another one.
    fs::remove_file(source.join("f")).unwrap();
    fs::hard_link(source.join("g"), source.join("f")).unwrap();
    pack(&archives[1]);
    let image = text(&scratch.path("made"));
    let to = format!("{image}:/");
    for arguments in
        [&["mkfs", "-q", &image, "32M"][..], &["put", "-q", "--tar", &archives[0], &archives[1], &to]]
    {
        let ran = Command::new(program()).args(arguments).env("SOURCE_DATE_EPOCH", "0").output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
    let checked = testkit::tool(Command::new("e2fsck").args(["-fn", &image]));
    let report = checked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    assert!(
        report.as_ref().is_none_or(|report| !report.contains("dtime") && !report.contains("Fix?")),
        "{report:?}"
    );
}

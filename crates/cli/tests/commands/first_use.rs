//! What a new user meets first: a listing of a damaged volume, long listings, the owner of a new
//! volume, packages, progress.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use testkit::command::{ScratchImage, program, run, text};
use testkit::fuse_mount::as_user;
use testkit::tool;

const USER: u32 = 65534;

/// Makes a volume with the files `f0` to `f9`, of which `f7` has an inode that cannot be read, and
/// a directory with one more such file. `None` without debugfs.
fn with_bad_inodes() -> Option<ScratchImage> {
    let scratch = ScratchImage::new(&["-O", "^metadata_csum"]);
    let tree = scratch.path("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    for name in (0..10).map(|nth| format!("f{nth}")).chain(["dir/bad".to_owned(), "dir/good".to_owned()]) {
        fs::write(tree.join(name), "x").unwrap();
    }
    scratch.ok(&["put", "--quiet", &text(&tree.join(".")), &scratch.inside("/")]);
    for file in ["f7", "dir/bad"] {
        let mut debugfs = Command::new("/usr/sbin/debugfs");
        let change = format!("sif {file} extra_isize 255");
        tool(debugfs.args(["-w", "-R", &change]).arg(scratch.image()))?;
    }
    Some(scratch)
}

#[test]
fn an_inode_that_cannot_be_read_hides_no_other_name() {
    let Some(scratch) = with_bad_inodes() else { return };
    let list = |options: &[&str]| {
        let image = text(&scratch.image());
        let output = run(&[&["ls"], options, &[&image]].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("a.img:/f7: ") || errors.contains(":/f7: "), "{errors}");
        (String::from_utf8(output.stdout).unwrap(), errors)
    };
    let (names, errors) = list(&[]);
    assert_eq!(names, "dir\nf0\nf1\nf2\nf3\nf4\nf5\nf6\nf7\nf8\nf9\nlost+found\n");
    assert!(errors.lines().count() == 2 && errors.contains(": 1 error, named above"), "{errors}");
    let (long, _) = list(&["-l"]);
    let bad = long.lines().find(|line| line.ends_with(" f7")).unwrap();
    assert_eq!(bad.split_whitespace().collect::<Vec<_>>(), ["-?????????", "?", "?", "?", "?", "?", "f7"]);
    assert!(long.lines().all(|line| line.rfind(' ') == bad.rfind(' ')), "{long}");
    let (all, errors) = list(&["-R"]);
    assert!(all.ends_with("\n/dir:\nbad\ngood\n\n/lost+found:\n"), "{all}");
    assert!(errors.contains(":/dir/bad: ") && errors.contains(": 2 errors, named above"), "{errors}");
    let (json, _) = list(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let bad = json.as_array().unwrap().iter().find(|entry| entry["name"] == "f7").unwrap();
    assert!(bad["error"].is_string() && bad["size"].is_null() && bad["type"] == "file", "{bad}");
}

/// A pipe of packets has a packet for each write, of a page at most.
#[test]
fn a_listing_is_written_in_few_pieces() {
    let scratch = ScratchImage::new(&[]);
    let names: Vec<_> = (0..400).map(|nth| scratch.inside(&format!("/{nth:0>40}"))).collect();
    scratch.ok(&[&["mkdir".to_owned()], &names[..]].concat());
    for options in [&["-R"][..], &["-l"], &["--json"]] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        if fcntl_setfl(&writer, OFlags::DIRECT).is_err() {
            return testkit::skipped("pipes of packets");
        }
        let mut command = Command::new(program());
        let mut child = command.arg("ls").args(options).arg(scratch.image()).stdout(writer).spawn().unwrap();
        // It has the other end of the pipe.
        drop(command);
        let (mut bytes, mut packets) = (0, 0);
        let mut packet = vec![0; 1 << 16];
        loop {
            match reader.read(&mut packet).unwrap() {
                0 => break,
                len => (bytes, packets) = (bytes + len, packets + 1),
            }
        }
        assert!(child.wait().unwrap().success() && bytes > 15_000, "{bytes}");
        assert!(packets <= bytes / 4096 + 4, "{options:?}: {packets} writes of {bytes} bytes");
    }
}

#[test]
fn a_volume_belongs_to_the_user_who_makes_it() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skipped("not root");
    }
    let scratch = ScratchImage::empty();
    let dir = scratch.path("dir");
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(USER), Some(USER)).unwrap();
    fs::set_permissions(scratch.path("."), Permissions::from_mode(0o755)).unwrap();
    let image = dir.join("a.img");
    let owner = |options: &[&str], date: Option<&str>| {
        let _ = fs::remove_file(&image);
        let mut command = as_user(USER, &[&text(&program()), "mkfs", "--size", "8M"]);
        command.arg(&image).args(options).env_remove("SOURCE_DATE_EPOCH");
        command.envs(date.map(|date| ("SOURCE_DATE_EPOCH", date)));
        tool(&mut command)?;
        assert_eq!(image.metadata().unwrap().uid(), USER);
        let out = scratch.path("out");
        scratch.ok(&["get", "--tar", &text(&out), &format!("{}:/", text(&image))]);
        let list = tool(Command::new("tar").args(["--numeric-owner", "-tvf"]).arg(&out))?;
        Some(String::from_utf8_lossy(&list.stdout).split_whitespace().nth(1).unwrap_or_default().to_owned())
    };
    for (options, date, expected) in [
        (&[][..], None, "65534/65534"),
        (&["-E", "root_owner=7:8"], None, "7/8"),
        (&["-E", "root_owner=0:0"], None, "0/0"),
        (&[], Some("1000000000"), "0/0"),
    ] {
        let Some(owner) = owner(options, date) else { return };
        assert_eq!(owner, expected, "{options:?} {date:?}");
    }
}

#[test]
fn rm_with_force_passes_over_missing_names() {
    let scratch = ScratchImage::new(&[]);
    scratch.ok(&["mkdir", "-p", &scratch.inside("/dir/sub")]);
    let names = ["/none", "/none/below", "/dir", "/dir"].map(|name| scratch.inside(name));
    let [none, below, dir, again] = &names;
    scratch.ok(&["rm", "-rf", none, below, dir, again]);
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/")]), "lost+found\n");
    scratch.fails(&["rm", "-f", &scratch.inside("/lost+found")]);
}

#[test]
fn links_of_a_package_lead_to_the_program_in_it() {
    let scratch = ScratchImage::empty();
    let prefix = scratch.path("root");
    let link = || fs::read_link(prefix.join("sbin/mount.fuse.parext4")).unwrap();
    for dir in ["usr/local/bin", "opt"] {
        fs::create_dir_all(prefix.join(dir)).unwrap();
    }
    fs::write(prefix.join("usr/local/bin/parext4"), "").unwrap();
    scratch.ok(&["install-helper", "--prefix", &text(&prefix)]);
    assert_eq!(link(), Path::new("/usr/local/bin/parext4"));
    let copy = prefix.join("opt/parext4");
    fs::hard_link(program(), &copy).or_else(|_| fs::copy(program(), &copy).map(drop)).unwrap();
    let installed =
        Command::new(&copy).args(["install-helper", "--prefix"]).arg(&prefix).stdout(Stdio::null()).status();
    assert!(installed.unwrap().success());
    assert_eq!(link(), Path::new("/opt/parext4"));
    scratch.ok(&["install-helper", "--prefix", &text(&prefix), "--program", "/usr/bin/other"]);
    assert_eq!(link(), Path::new("/usr/bin/other"));
    scratch.ok(&["install-helper", "--prefix", &text(&prefix), "--remove"]);
    assert!(!prefix.join("sbin/mount.fuse.parext4").is_symlink());
}

/// script(1) runs a command on a terminal.
#[test]
fn a_terminal_shows_that_a_command_is_at_work() {
    let scratch = ScratchImage::new(&[]);
    scratch.ok(&["mkdir", &scratch.inside("/dir")]);
    let (image, new) = (text(&scratch.image()), text(&scratch.path("new.img")));
    let parext4 = text(&program());
    for (arguments, shown) in [
        (format!("check {image}"), "checking"),
        (format!("mkfs --size 8M {new}"), "making the volume"),
        (format!("rm -r {image}:/dir"), "removing"),
    ] {
        let mut script = Command::new("script");
        script.args(["-qec", &format!("{parext4} {arguments}"), "/dev/null"]).stdin(Stdio::null());
        let Some(output) = tool(&mut script) else { return };
        let text = testkit::tool::text(&output);
        assert!(output.status.success() && text.contains(shown), "{arguments}: {text}");
    }
}

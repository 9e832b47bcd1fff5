//! Errors: each command names the image and the path in one line, and exits with 1.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::process::{Command, Output, Stdio};

use rustix::fs::{FlockOperation, flock};

use testkit::command::{ScratchImage, run, text};

/// The arguments of a command, and the error that it prints after `parext4: `. `@` stands for the
/// temporary directory with a slash.
type Case = (&'static str, &'static str);

/// Images that cannot be opened, and the error, which all commands that open an image share.
const IMAGES: &[Case] = &[
    ("missing.img", "no such file or directory"),
    ("dir", "is neither a regular file nor a block device"),
    ("noise.img", "not an ext4 volume"),
    ("empty.img", "not an ext4 volume"),
    ("swap.img", "not an ext4 volume, but swap space (signature at byte 4086)"),
    ("damaged.img", "corrupt volume: "),
    ("locked.img", "in use: locked by process "),
];

/// The commands that open an image, named `IMAGE`.
const COMMANDS: &[&str] = &[
    "info IMAGE",
    "ls IMAGE",
    "cat IMAGE:/f",
    "get IMAGE:/f @out",
    "put @outside IMAGE:/g",
    "rm IMAGE:/f",
    "mkdir IMAGE:/x",
    "fallocate IMAGE:/f -l 4K",
    "fiemap IMAGE:/f",
    "recover IMAGE",
    "mount -f IMAGE @dir",
];

/// Errors about paths, in the image `a.img` and outside.
const PATHS: &[Case] = &[
    ("ls @a.img:/none", "@a.img:/none: no such file or directory: none"),
    ("ls @a.img:/f/x", "@a.img:/f/x: not a directory: f"),
    ("cat @a.img:/none", "@a.img:/none: no such file or directory: none"),
    ("cat @a.img:/dangling", "@a.img:/dangling: no such file or directory: nowhere"),
    ("cat @a.img:/d", "@a.img:/d: is a directory: "),
    ("get @a.img:/none @out", "@a.img:/none: no such file or directory: none"),
    ("get @a.img:/f @none/out", "@none/out: no such file or directory"),
    ("get @a.img:/f @none/", "@none/: no such directory"),
    ("get @a.img:/d @outside", "@outside: is not a directory, and would have to be replaced by one"),
    ("put @none @a.img", "@none: no such file or directory"),
    ("put @outside @a.img:/none/x", "@a.img:/none: no such file or directory: none"),
    ("put @outside @a.img:/none/", "@a.img:/none/: no such directory"),
    ("put @outside @a.img:/f/x", "@a.img:/f/x: not a directory: f"),
    ("put @outside @dir @a.img:/f", "@a.img:/f: not a directory, but there are several sources"),
    ("put @dir @a.img:/f", "@a.img:/f: is not a directory, and would have to be replaced by one"),
    ("put @large @full.img", "@full.img:/large: no space left on the volume"),
    ("rm @a.img:/none", "@a.img:/none: no such file or directory: none"),
    ("rm @a.img:/d", "@a.img:/d: is a directory; use -r to remove it and all that is in it"),
    ("rm -r @a.img:/", "@a.img:/: the root directory cannot be removed"),
    ("mkdir @a.img:/f", "@a.img:/f: file exists: f"),
    ("mkdir @a.img:/none/x", "@a.img:/none/x: no such file or directory: none"),
    ("fallocate @full.img:/large -l 8M", "@full.img:/large: no space left on the volume"),
    ("fallocate @a.img:/none -l 4K", "@a.img:/none: no such file or directory: none"),
    ("fallocate @a.img:/d -l 4K", "@a.img:/d: is a directory: "),
    ("fallocate @a.img:/f -l 1T", "@a.img:/f: no space left on the volume"),
    (
        "fallocate @a.img:/f -c -o 1 -l 4K",
        "@a.img:/f: invalid argument: the range 1..4097 does not start and end at multiples",
    ),
    ("fiemap @a.img:/none", "@a.img:/none: no such file or directory: none"),
    ("fiemap @a.img:/d", "@a.img:/d: is a directory: "),
    ("ls @scratched.img:/d", "@scratched.img:/d: corrupt volume: "),
    (
        "cat @scratched.img:/d/in-a-scratched-block",
        "@scratched.img:/d/in-a-scratched-block: corrupt volume: ",
    ),
    ("get @scratched.img @copy", "@scratched.img:/d: corrupt volume: "),
    ("rm -r @scratched.img:/d", "@scratched.img:/d: corrupt volume: "),
    ("info @a.img:/", "@a.img:/: a path inside an image; give only @a.img"),
    ("recover @a.img:/", "@a.img:/: a path inside an image; give only @a.img"),
    ("mkfs @new.img", "@new.img: no such file; --size says how large to make it"),
    ("mkfs @none/new.img --size 4M", "@none/new.img: no such file or directory"),
    ("mkfs @dir", "@dir: is neither a regular file nor a block device"),
    ("mkfs @noise.img --block-size 3000", "@noise.img: invalid argument: "),
    ("mkfs @empty.img", "@empty.img: invalid argument: device too small"),
    ("mkfs @locked.img --force", "@locked.img: in use: locked by process "),
    ("mount @a.img @none", "@none: no such file or directory"),
    ("mount @a.img @outside", "@outside: not a directory"),
    ("mount @a.img @dir -o nonsense", "unknown mount option"),
    ("umount @none", "@none: no such file or directory"),
    ("umount @dir", "@dir is not a mount of parext4"),
    ("stat @none", "@none: no such file or directory"),
    ("stat @dir", "@dir is not a mount of parext4"),
    ("man --dir @outside", "@outside: "),
    ("install-helper --prefix @dir", "@dir: none of usr/bin/parext4, usr/local/bin/parext4"),
    (
        "install-helper --prefix @outside --program /usr/bin/parext4",
        "@outside/sbin/mount.fuse.parext4: not a directory",
    ),
];

/// The temporary directory with all images and files that the tables name, and a file that locks
/// one of them.
fn provisions() -> (ScratchImage, File) {
    let scratch = ScratchImage::empty();
    for (name, size) in
        [("a.img", "32M"), ("damaged.img", "4M"), ("scratched.img", "32M"), ("full.img", "4M")]
    {
        scratch.ok(&["mkfs", &text(&scratch.path(name)), "--size", size]);
    }
    fs::create_dir(scratch.path("dir")).unwrap();
    fs::write(scratch.path("outside"), "outside").unwrap();
    fs::write(scratch.path("large"), vec![7; 8 << 20]).unwrap();
    fs::write(scratch.path("noise.img"), vec![0xa5; 1 << 20]).unwrap();
    fs::write(scratch.path("empty.img"), "").unwrap();
    let mut swap = vec![0; 1 << 20];
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    fs::write(scratch.path("swap.img"), swap).unwrap();
    // The number of inodes: the checksum of the superblock is wrong then.
    File::options().write(true).open(scratch.path("damaged.img")).unwrap().write_all_at(b"x", 1024).unwrap();

    let tree = scratch.path("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("f"), "f").unwrap();
    fs::write(tree.join("d/in-a-scratched-block"), "x").unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    for image in ["a.img", "scratched.img"] {
        scratch.ok(&["put", &text(&tree.join(".")), &text(&scratch.path(image))]);
    }
    corrupt_name(&scratch, b"in-a-scratched-block");
    assert!(!run(&["put", &text(&scratch.path("large")), &text(&scratch.path("full.img"))]).status.success());

    fs::copy(scratch.path("a.img"), scratch.path("locked.img")).unwrap();
    let locked = File::open(scratch.path("locked.img")).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    (scratch, locked)
}

/// Changes the name wherever it lies in `scratched.img`: the checksum of its block is wrong then.
fn corrupt_name(scratch: &ScratchImage, name: &[u8]) {
    let mut bytes = fs::read(scratch.path("scratched.img")).unwrap();
    let places: Vec<_> =
        bytes.windows(name.len()).enumerate().filter(|(_, window)| *window == name).collect();
    let places: Vec<usize> = places.into_iter().map(|(place, _)| place).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|place| bytes[place] = b'I');
    fs::write(scratch.path("scratched.img"), bytes).unwrap();
}

/// Replaces `@` by the temporary directory.
fn filled_in(scratch: &ScratchImage, text: &str) -> String {
    text.replace('@', &format!("{}/", scratch.path("").display().to_string().trim_end_matches('/')))
}

/// Runs a command, which must fail with one line that begins with `expected`. Returns what is
/// wrong.
fn mismatch(scratch: &ScratchImage, command: &str, expected: &str) -> Option<String> {
    let command = filled_in(scratch, command);
    let output = run(&command.split(' ').collect::<Vec<_>>());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("parext4: {}", filled_in(scratch, expected));
    let is_one_line = error.lines().count() == 1 && !error.contains("os error");
    let is_advised = error.ends_with("; run e2fsck on the image\n") == error.contains("corrupt volume");
    let as_expected = error.starts_with(&expected) && is_one_line && is_advised;
    let fails = output.status.code() == Some(1) && as_expected;
    (!fails).then(|| format!("{command}\n  {}: {error}\n  expected: {expected}\n", output.status))
}

#[test]
fn images_that_cannot_be_opened_are_named() {
    let (scratch, _locked) = provisions();
    let all = COMMANDS.iter().flat_map(|command| IMAGES.iter().map(move |image| (command, image)));
    let mismatches: Vec<_> = all
        .filter_map(|(command, (image, error))| {
            let command = command.replace("IMAGE", &format!("@{image}"));
            mismatch(&scratch, &command, &format!("@{image}: {error}"))
        })
        .collect();
    assert!(mismatches.is_empty(), "{}", mismatches.concat());
}

#[test]
fn paths_are_named() {
    let (scratch, _locked) = provisions();
    let mismatches: Vec<_> =
        PATHS.iter().filter_map(|(command, error)| mismatch(&scratch, command, error)).collect();
    assert!(mismatches.is_empty(), "{}", mismatches.concat());
    let image = scratch.path("a.img");
    let output = Command::new("e2fsck").args(["-f", "-n"]).arg(image).output();
    assert!(output.is_err() || output.unwrap().status.success());
}

#[test]
fn permission_is_denied_by_name() {
    let (scratch, _locked) = provisions();
    let image = scratch.path("a.img");
    fs::set_permissions(&image, Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(scratch.path(""), Permissions::from_mode(0o755)).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
        command.arg(env!("CARGO_BIN_EXE_parext4")).args(arguments).output()
    };
    match as_nobody(&["--version"]) {
        Ok(output) if output.status.success() => {}
        _ => return testkit::skipped("the program cannot be run as another user"),
    }
    let denied = |arguments: &[&str], name: &str| {
        let output = as_nobody(arguments).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(error, format!("parext4: {name}: permission denied\n"));
        assert_eq!(output.status.code(), Some(1));
    };
    let name = text(&image);
    assert!(as_nobody(&["ls", &name]).unwrap().status.success());
    denied(&["rm", &format!("{name}:/f")], &name);
    denied(&["recover", &name], &name);
    let new = text(&scratch.path("new.img"));
    denied(&["mkfs", &new, "--size", "4M"], &new);
    let out = text(&scratch.path("out"));
    denied(&["get", &format!("{name}:/f"), &out], &out);
    fs::set_permissions(&image, Permissions::from_mode(0o600)).unwrap();
    denied(&["ls", &name], &name);
}

#[test]
fn a_volume_that_cannot_be_written_is_named() {
    let scratch = ScratchImage::empty();
    let image = scratch.path("quota.img");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let made = Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-O", "quota"]).arg(&image).status();
    if !made.is_ok_and(|status| status.success()) {
        return testkit::skipped("mke2fs makes no volume with quota here");
    }
    // A file that cannot be the quota file of users.
    let damage = ["-w", "-R", "set_super_value usr_quota_inum 5"];
    assert!(Command::new("debugfs").args(damage).arg(&image).status().is_ok_and(|status| status.success()));
    for command in [
        "mkdir @quota.img:/x",
        "rm @quota.img:/x",
        "put @quota.img @quota.img:/x",
        "mount -o nonempty @quota.img @",
    ] {
        assert_eq!(mismatch(&scratch, command, "@quota.img: the volume is read-only: "), None);
    }
    scratch.ok(&["ls", &text(&image)]);
}

#[test]
fn a_full_standard_output_is_named() {
    let (scratch, _locked) = provisions();
    for command in ["info @a.img", "ls @a.img", "cat @a.img:/f", "fiemap @a.img:/f", "completions bash"] {
        let command = filled_in(&scratch, command);
        let mut program = Command::new(env!("CARGO_BIN_EXE_parext4"));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = program.args(command.split(' ')).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.ends_with("standard output: no space left on device\n"), "{command}: {error}");
        assert_eq!(output.status.code(), Some(1));
    }
}

/// Runs a command whose standard output is `out`.
fn run_into(out: impl Into<Stdio>, arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_parext4"));
    program.args(arguments).stdout(out).stderr(Stdio::piped()).output().unwrap()
}

/// Runs a command whose reader of the standard output has ended.
fn run_without_reader(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    run_into(writer, arguments)
}

#[test]
fn check_tells_findings_apart_from_an_output_that_cannot_be_written() {
    let (scratch, _locked) = provisions();
    let [sound, wrong] = ["a.img", "scratched.img"].map(|name| text(&scratch.path(name)));
    for form in [&[][..], &["--json"]] {
        let check = |image| [&["check", image][..], form].concat();
        assert_eq!(run_without_reader(&check(&sound)).status.code(), Some(0));
        let output = run_without_reader(&check(&wrong));
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("finding"));
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let output = run_into(full(), &check(&sound));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(8), "{error}");
        assert_eq!(error, "parext4: standard output: no space left on device\n");
        let output = run_into(full(), &check(&wrong));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("standard output: no space left on device\n"), "{error}");
    }
}

#[test]
fn put_copies_all_files_without_a_reader_of_its_report() {
    let scratch = ScratchImage::new(&[]);
    let tree = scratch.path("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..600 {
        fs::write(tree.join(n.to_string()), "x").unwrap();
    }
    let (source, image) = (text(&tree), text(&scratch.image()));
    let output = run_without_reader(&["put", "-q", "--report", "--sync-every", "20", &source, &image]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/tree")]).lines().count(), 600);
    scratch.fsck();
}

#[test]
fn an_archive_without_a_reader_is_no_failure() {
    let (scratch, _locked) = provisions();
    let output = run_without_reader(&["get", "-q", "--tar", "-", &text(&scratch.path("a.img"))]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

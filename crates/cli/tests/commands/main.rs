//! The commands: their output and their errors.

mod access_list_texts;
mod access_lists;
mod archives;
mod check;
mod deep;
mod distributions;
mod errors;
mod first_use;
mod foreign;
mod going_on;
mod hostile;
mod journal_device;
mod json;
mod layers;
mod manifest;
mod manual;
mod merged;
mod messages;
mod mke2fs;
mod mkfs;
mod own_image;
mod partitions;
mod quota;
mod records;
mod reproducible;
mod rescue;
mod stdin;
mod swapped;

use std::fs;
use std::process::{Command, Stdio};

use testkit::command::{ScratchImage, run, text};

#[test]
fn directories_are_listed() {
    let scratch = ScratchImage::new(&[]);
    scratch.ok(&["mkdir", "-p", &scratch.inside("/dir/sub"), &scratch.inside("/dir/.hidden")]);
    let file = scratch.path("file");
    fs::write(&file, "x").unwrap();
    scratch.ok(&["put", &text(&file), &scratch.inside("/dir")]);
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/dir")]), "file\nsub\n");
    assert_eq!(scratch.ok(&["ls", "-a", &scratch.inside("/dir")]), ".hidden\nfile\nsub\n");
    assert_eq!(scratch.ok(&["ls", "-R", &scratch.inside("/dir")]), "/dir:\nfile\nsub\n\n/dir/sub:\n");
    assert_eq!(scratch.ok(&["ls", &scratch.inside("/dir/file")]), "/dir/file\n");
    let long = scratch.ok(&["ls", "-l", &scratch.inside("/dir")]);
    let lines: Vec<&str> = long.lines().collect();
    assert!(lines[0].starts_with("-rw") && lines[0].ends_with(" file"), "{long}");
    assert!(lines[1].starts_with("drwxr-xr-x 2 ") && lines[1].ends_with(" sub"), "{long}");
    let list: serde_json::Value =
        serde_json::from_str(&scratch.ok(&["ls", "--json", &scratch.inside("/dir")])).unwrap();
    assert_eq!((&list[0]["path"], &list[0]["type"]), (&"/dir/file".into(), &"file".into()));
    assert_eq!((&list[1]["mode"], &list[0]["size"]), (&"0755".into(), &1.into()));
}

#[test]
fn an_image_alone_means_its_root() {
    let scratch = ScratchImage::new(&[]);
    let (image, file) = (text(&scratch.image()), scratch.path("file"));
    fs::write(&file, "x").unwrap();
    scratch.ok(&["put", &text(&file), &image]);
    assert_eq!(scratch.ok(&["ls", &image]), "file\nlost+found\n");
    assert_eq!(scratch.ok(&["ls", "-l", &image]), scratch.ok(&["ls", "-l", &scratch.inside("/")]));
    scratch.ok(&["get", &image, &text(&scratch.path("out"))]);
    assert_eq!(fs::read(scratch.path("out/file")).unwrap(), b"x");
    for command in ["cat", "rm", "mkdir", "fiemap"] {
        let output = run(&[command, &image]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(&format!("expected IMAGE:/PATH, such as {image}:/PATH")), "{errors}");
    }
    let output = run(&["ls", &format!("{image}:file")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(&format!("such as {image}:/file")), "{errors}");
    scratch.fsck();
}

#[test]
fn a_recursive_listing_ends_at_paths_that_are_too_long() {
    let scratch = ScratchImage::new(&[]);
    let deep = format!("/{}", "d".repeat(250)).repeat(17);
    scratch.ok(&["mkdir", "-p", &scratch.inside(&deep)]);
    assert!(scratch.fails(&["ls", "-R", &scratch.inside("/")]).contains("longer than 4096 bytes"));
}

#[test]
fn failures_are_one_line_with_a_reason() {
    let scratch = ScratchImage::new(&[]);
    let error = scratch.fails(&["cat", &scratch.inside("/missing")]);
    assert!(error.contains("/missing: no such file"), "{error}");
    assert!(scratch.fails(&["cat", &scratch.inside("/lost+found")]).contains("is a directory"));
    assert!(scratch.fails(&["rm", &scratch.inside("/lost+found")]).contains("-r"));
    scratch.fails(&["rm", "-r", &scratch.inside("/")]);
    assert!(scratch.fails(&["mkdir", &scratch.inside("/lost+found")]).contains("exists"));
    scratch.ok(&["mkdir", "-p", &scratch.inside("/lost+found")]);
    scratch.fails(&["info", &text(&scratch.path("missing.img"))]);
    fs::write(scratch.path("noise.img"), vec![0xa5; 1 << 20]).unwrap();
    scratch.fails(&["info", &text(&scratch.path("noise.img"))]);
    fs::write(scratch.path("short.img"), "x").unwrap();
    scratch.fails(&["info", &text(&scratch.path("short.img"))]);
    scratch.fsck();
}

#[test]
fn unknown_schemes_are_refused_by_name() {
    let scratch = ScratchImage::empty();
    let (url, dir) = ("tape://host/disk", text(&scratch.path("dir")));
    fs::create_dir(&dir).unwrap();
    let inside = format!("{url}:/file");
    let commands: &[&[&str]] = &[
        &["info", url],
        &["recover", url],
        &["mkfs", "--size=64M", url],
        &["mount", url, &dir],
        &["ls", url],
        &["ls", &inside],
        &["cat", &inside],
        &["get", &inside, &dir],
        &["put", &dir, &inside],
        &["rm", &inside],
        &["mkdir", &inside],
        &["fiemap", &inside],
        &["fallocate", "--length=4k", &inside],
        &["demo", "--image", url],
    ];
    for command in commands {
        let errors = scratch.fails(command);
        let refusal = format!("{url}: unknown scheme \"tape\"; if it is the name of a file, type ./{url}");
        assert!(errors.contains(&refusal), "{command:?}: {errors}");
    }
    // A path with a slash before its first colon is never parsed as a URL.
    assert!(scratch.fails(&["info", "./tape:disk"]).contains("./tape:disk: no such file"));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in
        [&["cat", "image-without-path"][..], &["mkfs"], &["mkfs", "x", "--size", "4Q"], &["frob"]]
    {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let scratch = ScratchImage::new(&[]);
    let file = scratch.path("file");
    fs::write(&file, vec![0; 8 << 20]).unwrap();
    scratch.ok(&["put", &text(&file), &scratch.inside("/")]);
    let mut cat = Command::new(env!("CARGO_BIN_EXE_parext4"))
        .args(["cat", &scratch.inside("/file")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(cat.stdout.take());
    let output = cat.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn recover_has_nothing_to_do_on_a_clean_volume() {
    let scratch = ScratchImage::new(&[]);
    let image = text(&scratch.image());
    assert_eq!(scratch.ok(&["recover", "--journal-only", &image]), "replayed 0 transactions, 0 blocks\n");
    assert_eq!(scratch.ok(&["recover", &image]), "replayed 0 transactions, 0 blocks\n");
    scratch.fsck();
}

#[test]
fn the_demo_removes_its_files() {
    let scratch = ScratchImage::new(&[]);
    let image = scratch.path("demo.img");
    let out = scratch.ok(&["demo", "--image", &text(&image), "--size", "64M", "--seconds", "1", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["blocks_wrong"], 0);
    assert!(report["blocks_verified"].as_u64().unwrap() >= 8192);
    assert!(!image.exists());
}

#[test]
fn put_accepts_a_policy_and_explains_its_waits() {
    let scratch = ScratchImage::new(&[]);
    let file = scratch.path("file");
    fs::write(&file, vec![7; 12 << 20]).unwrap();
    for policy in ["exclusive", "shared-overwrite", "range"] {
        let dest = scratch.inside(&format!("/{policy}"));
        let output =
            run(&["put", "--quiet", "--threads", "4", "--policy", policy, "--explain", &text(&file), &dest]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{said}");
        let held = if policy == "range" { "their own range" } else { "the whole file" };
        assert!(said.starts_with(&format!("policy {policy}: operations hold {held}\n")), "{said}");
        assert!(said.contains("grows the file") && said.contains("waits for other operations: "), "{said}");
        let waits = said.lines().filter(|line| line.starts_with("* write of ")).count();
        assert_eq!(waits == 0, said.contains("waits for other operations: 0,"), "{said}");
    }
    scratch.fsck();
    let refused = run(&["put", "--policy", "none", &text(&file), &scratch.inside("/none")]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("[possible values: exclusive, shared-overwrite, range]"), "{said}");
}

#[test]
fn fallocate_changes_the_extents_that_fiemap_prints() {
    let scratch = ScratchImage::new(&["--block-size", "4096"]);
    let file = scratch.path("file");
    fs::write(&file, vec![7; 64 << 10]).unwrap();
    scratch.ok(&["put", &text(&file), &scratch.inside("/file")]);
    let path = scratch.inside("/file");
    let fallocate = |arguments: &[&str]| {
        let mut all = vec!["fallocate", path.as_str()];
        all.extend(arguments);
        scratch.ok(&all)
    };
    fallocate(&["--punch-hole", "--offset", "4K", "--length", "4K"]);
    fallocate(&["-z", "-o", "16K", "-l", "8K"]);
    fallocate(&["--insert-range", "--offset", "32K", "--length", "8K"]);
    fallocate(&["--collapse-range", "--offset", "0", "--length", "4K"]);
    fallocate(&["--keep-size", "--offset", "68K", "--length", "4K"]);
    let shown = scratch.ok(&["fiemap", &path]);
    assert!(shown.starts_with("Filesystem type is: ef53\nFile size of /file is 69632 (17 blocks"), "{shown}");
    let rows: Vec<(&str, bool)> =
        shown.lines().skip(3).filter_map(|row| Some((row.get(6..24)?, row.contains("unwritten")))).collect();
    let places = ["       1..       2", "       3..       4", "       5..       6", "       9..      16"];
    assert_eq!(rows[..4], [(places[0], false), (places[1], true), (places[2], false), (places[3], false)]);
    assert_eq!(rows[4], ("      17..      17", true), "{shown}");
    assert!(shown.lines().nth(7).unwrap().ends_with("last,unwritten,eof"), "{shown}");
    assert!(scratch.fails(&["fallocate", &path, "-c", "-o", "1", "-l", "4K"]).contains("block size"));
    assert_eq!(run(&["fallocate", &path, "-c", "-p", "-l", "4K"]).status.code(), Some(2));
    scratch.fsck();
}

//! Manual pages and shell completions.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::command::{ScratchImage, text};

/// Runs a program on `path`. Returns its output, or `None` if it is not installed.
fn checked_by(program: &str, arguments: &[&str], path: &Path) -> Option<String> {
    let output = Command::new(program).args(arguments).arg(path).stdin(Stdio::null()).output();
    let Ok(output) = output else {
        testkit::skipped(&format!("{program} is not installed"));
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{program} on {}: {errors}", path.display());
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Parts of the page of a program.
const PARTS: [&str; 3] = ["NAME", "SYNOPSIS", "DESCRIPTION"];

#[test]
fn every_command_has_a_page_that_renders() {
    let scratch = ScratchImage::empty();
    let dir = scratch.path("man/pages");
    scratch.ok(&["man", "--dir", &text(&dir)]);
    let pages = |section| fs::read_dir(dir.join(section)).unwrap().map(|entry| entry.unwrap().path());
    let documents: Vec<_> = pages("man5").chain(pages("man7")).collect();
    let pages: Vec<_> = pages("man1").chain(pages("man8")).collect();
    let help = scratch.ok(&["--help"]);
    let commands = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    // A line of a wrapped description is indented further.
    let is_start = |line: &&str| line.strip_prefix("  ").is_some_and(|rest| !rest.starts_with(' '));
    for command in commands.lines().filter(is_start).filter_map(|line| line.split_whitespace().next()) {
        assert!(
            command == "help" || pages.contains(&dir.join(format!("man1/parext4-{command}.1"))),
            "{command}"
        );
    }
    for page in ["man1/parext4.1", "man8/mount.fuse.parext4.8", "man8/umount.fuse.parext4.8"] {
        assert!(pages.contains(&dir.join(page)), "{page}");
    }
    assert!(!pages.contains(&dir.join("man1/parext4-guard.1")));
    for page in ["man5/parext4-json.5", "man7/parext4-network.7"] {
        assert!(documents.contains(&dir.join(page)), "{page}");
    }
    for page in pages.iter().chain(&documents) {
        checked_by("groff", &["-man", "-ww", "-z", "-Tutf8"], page);
        checked_by("mandoc", &["-T", "lint", "-W", "error"], page);
        if let Some(text) = checked_by("man", &["--warnings", "-l"], page) {
            let parts = if documents.contains(page) { &["NAME", "DESCRIPTION"][..] } else { &PARTS };
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}

/// Each option of the documents has an item in the pages that are made of them.
#[test]
fn pages_explain_every_mount_option_and_every_field() {
    let scratch = ScratchImage::empty();
    let dir = scratch.path("man");
    scratch.ok(&["man", "--dir", &text(&dir)]);
    let documents = [
        (include_str!("../../../../docs/mount-options.md"), "man8/mount.fuse.parext4.8"),
        (include_str!("../../../../docs/json.md"), "man5/parext4-json.5"),
    ];
    for (document, page) in documents {
        let page = fs::read_to_string(dir.join(page)).unwrap();
        let items: Vec<_> = page.split(".TP\n").skip(1).filter_map(|item| item.lines().next()).collect();
        let rows: Vec<_> = document.lines().filter_map(|line| line.strip_prefix("| `")).collect();
        assert!(rows.len() > 40 && items.len() >= rows.len(), "{} of {}", items.len(), rows.len());
        for name in rows.iter().filter_map(|row| row.split(['`', '=']).next()) {
            let name = format!("\\fB{}", name.replace('-', "\\-"));
            assert!(items.iter().any(|item| item.starts_with(&name)), "{name}");
        }
    }
}

#[test]
fn shells_accept_the_completions() {
    let scratch = ScratchImage::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = scratch.ok(&["completions", shell]);
        assert!(script.contains("fallocate") && script.contains("inode-ratio"), "{shell}");
        if matches!(shell, "bash" | "zsh" | "fish") {
            let path = scratch.path(shell);
            fs::write(&path, script).unwrap();
            checked_by(shell, &["-n"], &path);
        }
    }
}

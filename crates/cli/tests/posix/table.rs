//! The tables of cases.

use std::path::Path;

use crate::operation::{Outcome, run, run_as_root};
use crate::snapshot;

/// The tables by subject.
const TABLES: [(&str, &str); 17] = [
    ("chmod", include_str!("cases/chmod")),
    ("chown", include_str!("cases/chown")),
    ("ftruncate", include_str!("cases/ftruncate")),
    ("granular", include_str!("cases/granular")),
    ("link", include_str!("cases/link")),
    ("mkdir", include_str!("cases/mkdir")),
    ("mkfifo", include_str!("cases/mkfifo")),
    ("mknod", include_str!("cases/mknod")),
    ("open", include_str!("cases/open")),
    ("posix_fallocate", include_str!("cases/posix_fallocate")),
    ("rename", include_str!("cases/rename")),
    ("rmdir", include_str!("cases/rmdir")),
    ("set_ids", include_str!("cases/set_ids")),
    ("symlink", include_str!("cases/symlink")),
    ("truncate", include_str!("cases/truncate")),
    ("unlink", include_str!("cases/unlink")),
    ("utimensat", include_str!("cases/utimensat")),
];

/// A case.
#[derive(Debug)]
pub struct Case {
    /// The subject and the line.
    pub line: String,
    setup: String,
    action: String,
    /// The result may differ through FUSE.
    pub may_differ: bool,
}

/// Returns the cases of all subjects.
pub fn all() -> Vec<Case> {
    let lines = TABLES.iter().flat_map(|(subject, table)| table.lines().map(move |line| (subject, line)));
    let cases = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    cases.flat_map(|(subject, line)| expand(line).into_iter().map(|line| Case::new(subject, &line))).collect()
}

impl Case {
    fn new(subject: &str, line: &str) -> Self {
        let (may_differ, rest) = line.strip_prefix('~').map_or((false, line), |rest| (true, rest));
        let (setup, action) = rest.split_once('|').unwrap_or_else(|| panic!("{line}: nothing to do"));
        let line = format!("{subject}: {}", rest.trim());
        Self { line, setup: setup.trim().to_owned(), action: action.trim().to_owned(), may_differ }
    }

    /// Creates the case's directory, in which all users may change everything, and runs the setup.
    pub fn set_up(&self, dir: &Path) {
        run_as_root("mkdir . 777", dir);
        for operation in operations(&self.setup) {
            run_as_root(operation, dir);
        }
        snapshot::age(dir);
    }

    /// Runs the tested operations.
    pub fn act(&self, dir: &Path) -> Vec<Outcome> {
        let outcomes = operations(&self.action).map(|operation| run(operation, dir)).collect();
        rustix::process::umask(rustix::fs::Mode::empty());
        outcomes
    }
}

fn operations(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').map(str::trim).filter(|operation| !operation.is_empty())
}

/// Returns the lines that a line with choices in braces stands for.
fn expand(line: &str) -> Vec<String> {
    let Some((before, rest)) = line.split_once('{') else { return vec![line.to_owned()] };
    let (choices, after) = rest.split_once('}').unwrap_or_else(|| panic!("{line}: a brace is open"));
    choices.split(',').flat_map(|choice| expand(&format!("{before}{choice}{after}"))).collect()
}

#[test]
fn braces_are_choices() {
    assert_eq!(expand("a{b,c}d{e,}"), ["abde", "abd", "acde", "acd"]);
}

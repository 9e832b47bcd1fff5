//! Commits a tree with git.

use std::path::Path;

use anyhow::{Result, ensure};
use parext4_cli::interrupt;

use crate::sources::command::{command, run};

/// Settings of git: no background work, no checks of ownership.
const SETTINGS: [&str; 3] = ["gc.auto=0", "maintenance.auto=false", "safe.directory=*"];

/// Makes a repository of `tree`, commits all files, and checks that `git status` finds no changes.
pub fn keep(tree: &Path) -> Result<()> {
    git(tree, &["init", "-q"])?;
    git(tree, &["add", "-A"])?;
    git(tree, &["commit", "-q", "-m", "all"])?;
    let changed = git(tree, &["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "git sees changes in what it has just committed");
    Ok(())
}

fn git(tree: &Path, arguments: &[&str]) -> Result<String> {
    interrupt::check()?;
    let settings = SETTINGS.iter().flat_map(|setting| ["-c", setting]);
    let mut git = command("git", settings.chain(arguments.iter().copied()));
    git.current_dir(tree)
        .env("HOME", tree)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{who}_NAME"), "bench").env(format!("GIT_{who}_EMAIL"), "bench@localhost");
    }
    run(git)
}

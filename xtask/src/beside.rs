//! Steps in a process of their own, beside the steps of this one.

use anyhow::Result;

use crate::command::cmd;
use crate::scope::Scope;

/// Runs the steps with these names one after another, with a priority that is `nice` lower. Shows
/// what they print, with the name of their list and a bar before each line, and returns the lines.
pub fn run(list: &str, names: &[&str], scope: Scope, nice: i32) -> Result<Vec<String>> {
    // On Linux this is the priority of the calling thread, and the command inherits it.
    let _ = rustix::process::nice(nice);
    let command = cmd(std::env::current_exe()?).args(scope.quick_or("test --beside", "test --beside --full"));
    let command = names.iter().fold(command, |command, name| command.arg("--only").arg(name));
    let mut lines = Vec::new();
    let ran = command.each_line(|line| {
        println!("{}", format!("{list:>9} | {line}").trim_end());
        lines.push(line.to_owned());
    });
    // After an interrupt, the lines still tell what the steps have found.
    if lines.is_empty() {
        ran?;
    }
    Ok(lines)
}

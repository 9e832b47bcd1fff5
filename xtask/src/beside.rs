//! Steps in a process of their own, beside the steps of this one.

use anyhow::Result;

use crate::command::cmd;

/// Runs the steps with these names one after another. Shows what they print, with a bar before each line, and returns it.
pub fn run(names: &[&str]) -> Result<Vec<String>> {
    let command = names
        .iter()
        .fold(cmd(std::env::current_exe()?).arg("test"), |command, name| command.arg("--only").arg(name));
    let mut lines = Vec::new();
    command.each_line(|line| {
        println!("{}", format!("  | {line}").trim_end());
        lines.push(line.to_owned());
    })?;
    Ok(lines)
}

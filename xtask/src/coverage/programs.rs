//! The programs that cargo builds.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::command::Cmd;

/// Runs a cargo command that builds with `--message-format=json`, and returns the programs.
pub fn executables(build: Cmd) -> Result<Vec<PathBuf>> {
    let mut programs = Vec::new();
    let status = build.each_line(|line| programs.extend(executable(line)))?;
    ensure!(status.success(), "building: {status}");
    Ok(programs)
}

/// Returns the program of a message of cargo, if it has one.
fn executable(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    Some(message["executable"].as_str()?.into())
}

#[cfg(test)]
mod tests {
    use super::executable;

    #[test]
    fn only_messages_of_programs_name_one() {
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":"/t/a"}"#), Some("/t/a".into()));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
        assert_eq!(executable("error: no"), None);
    }
}

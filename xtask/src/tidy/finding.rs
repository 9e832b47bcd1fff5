//! One broken rule at one line.

use std::fmt::{self, Display, Formatter};

use anyhow::{Result, bail};

/// A line that breaks a rule, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the root of the workspace.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The name of the rule.
    pub rule: &'static str,
    /// The mistake and its remedy.
    pub message: String,
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.message)
    }
}

/// Prints the findings; any is an error.
pub fn fail_on(findings: Vec<Finding>) -> Result<()> {
    findings.iter().for_each(|finding| println!("  {finding}"));
    match findings.len() {
        0 => Ok(()),
        1 => bail!("one finding"),
        count => bail!("{count} findings"),
    }
}

//! Tables in Markdown.

use std::fmt;
use std::time::Duration;

/// A table, row by row.
pub struct Table(String);

impl Table {
    pub fn new(columns: &[&str]) -> Self {
        let mut table = Self(String::new());
        table.row(&columns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        table.0.push_str(&format!("|{}\n", "---|".repeat(columns.len())));
        table
    }

    pub fn row(&mut self, cells: &[String]) {
        self.0.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

//! Lines of source files that have code: all, and how many of them ran.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    pub all: u64,
    pub ran: u64,
}

impl Lines {
    /// Counts a line.
    fn add(&mut self, has_run: bool) {
        self.all += 1;
        self.ran += u64::from(has_run);
    }
}

/// Returns the lines of each file of a tracefile below `root`, without the tests at the end of the
/// file. Paths begin at `root`.
pub fn of_files(tracefile: &str, root: &Path) -> Result<Vec<(PathBuf, Lines)>> {
    let records = tracefile.split("end_of_record").filter_map(|record| record.split_once("SF:"));
    let files = records.map(|(_, record)| {
        let (path, record) = record.split_once('\n').context("a file without lines")?;
        let Ok(inside) = Path::new(path).strip_prefix(root) else { return Ok(None) };
        let source = fs::read_to_string(path).with_context(|| path.to_owned())?;
        Ok(Some((inside.to_owned(), lines(record, first_test(&source)))))
    });
    files.filter_map(Result::transpose).collect()
}

/// Returns the number of the line at which the tests at the end of a file begin.
fn first_test(source: &str) -> u64 {
    let is_tests = |line: &str, next: &str| {
        line.starts_with("#[cfg(") && line.contains("test") && next.starts_with("mod ") && next.ends_with('{')
    };
    let pairs = source.lines().zip(source.lines().skip(1)).zip(1..);
    let mut tests = pairs.filter(|((line, next), _)| is_tests(line, next));
    tests.next().map_or(u64::MAX, |(_, number)| number)
}

/// Counts the lines of a record before line `end`.
fn lines(record: &str, end: u64) -> Lines {
    let mut lines = Lines::default();
    for line in record.lines().filter_map(|line| line.strip_prefix("DA:")) {
        let mut numbers = line.split(',').map_while(|number| number.parse::<u64>().ok());
        if let (Some(number), Some(count)) = (numbers.next(), numbers.next())
            && number < end
        {
            lines.add(count > 0);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tests_do_not_count() {
        let source = "#[cfg(test)]\nuse b;\n#[cfg(all(test, not(shuttle)))]\nmod tests {\n}\n";
        assert_eq!(first_test(source), 3);
        assert_eq!(lines("FN:1,a\nDA:1,7\nDA:2,0\nDA:3,1\nLF:3\n", 3), Lines { all: 2, ran: 1 });
    }
}

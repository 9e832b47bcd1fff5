//! What ThreadSanitizer has written: shown whole, and the first reports named in the summary, which
//! is all that some logs keep.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::report::Report;

/// Begins the name of each report; ThreadSanitizer adds the number of the process.
const NAME: &str = "report";
/// Begins a report that the process survives. Another begins with the name of what failed, such as
/// `FATAL:`.
const WARNING: &str = "WARNING: ThreadSanitizer: ";
/// Reports that the summary names, and functions of each stack.
const NAMED: usize = 5;
const FUNCTIONS: usize = 4;

/// Returns what begins the path of each report in `dir`.
pub fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Removes the reports of an earlier run.
pub fn remove(dir: &Path) -> Result<()> {
    reports(dir)?.iter().try_for_each(fs::remove_file)?;
    Ok(())
}

/// Shows the reports, and names the stacks of the first ones in the summary.
pub fn show(dir: &Path, name: &str, report: &mut Report) -> Result<()> {
    for path in reports(dir)? {
        let text = fs::read_to_string(path)?;
        println!("{text}");
        findings(&text).iter().take(NAMED).for_each(|finding| report.note_failure(name, finding));
    }
    Ok(())
}

fn reports(dir: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(Vec::new()) };
    let paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let is_report = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == NAME);
    Ok(paths.into_iter().filter(is_report).collect())
}

/// Returns a line for each report: what it is of, and the functions of its first two stacks.
fn findings(text: &str) -> Vec<String> {
    let mut reports = text.split(WARNING);
    let fatal = reports.next().unwrap_or_default().lines().find(|line| line.contains("ThreadSanitizer"));
    fatal.map(str::to_owned).into_iter().chain(reports.map(finding)).collect()
}

fn finding(report: &str) -> String {
    let kind = report.split(" (").next().unwrap_or_default();
    let stacks = report.split("\n\n").take(2).map(|stack| {
        let access = stack.lines().find(|line| line.trim_end().ends_with(':')).unwrap_or_default();
        let frames = stack.lines().filter_map(|line| line.trim_start().strip_prefix('#'));
        let functions: Vec<_> = frames.filter_map(function).take(FUNCTIONS).collect();
        format!("{} {}", access.trim(), functions.join(" < "))
    });
    format!("{kind}: {}", stacks.collect::<Vec<_>>().join("; "))
}

/// Returns the function of a frame such as `3 name path:line`; `None` for the wrappers of the
/// standard library.
fn function(frame: &str) -> Option<&str> {
    let (_, rest) = frame.split_once(' ')?;
    let path = rest.find(" /").or_else(|| rest.find(" <null>")).unwrap_or(rest.len());
    (!rest.contains("/library/")).then_some(&rest[..path])
}

#[cfg(test)]
mod tests {
    use super::findings;

    #[test]
    fn a_race_is_named_by_its_two_stacks() {
        let text = "==================\n\
            WARNING: ThreadSanitizer: data race (pid=7)\n  Write of size 8 at 0x1 by thread T2:\n    #0 free /rt/tsan.cpp:1:2 (a+0x1)\n    \
            #1 <alloc::Global>::deallocate /rustc/1/library/alloc/alloc.rs:1 (a+0x2)\n    #2 engine::close /p/close.rs:3 (a+0x3)\n\n  \
            Previous read of size 8 at 0x1 by thread T1:\n    #0 engine::read /p/read.rs:9 (a+0x4)\n\n  \
            Location is heap block\n\nSUMMARY: ThreadSanitizer: data race\n";
        let expected = "data race: Write of size 8 at 0x1 by thread T2: free < engine::close; \
            Previous read of size 8 at 0x1 by thread T1: engine::read";
        assert_eq!(findings(text), [expected]);
        assert_eq!(
            findings("==1==FATAL: ThreadSanitizer: out of memory\n"),
            ["==1==FATAL: ThreadSanitizer: out of memory"]
        );
        assert!(findings("").is_empty());
    }
}

//! Shows a copy on the terminal: a bar, and the errors of files that the copy goes on without.

use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parext4_copy::{Error, Observer, Summary};
use serde_json::{Value, json};

use crate::error::{self, Reported};
use crate::output;

/// A progress bar, visible only on a terminal. It is removed when this is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar without a total, which grows while the copy walks the tree.
    pub fn new(quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        if !quiet && std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            let template = "{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}  {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self(bar)
    }

    /// Prints a line on stderr, above the bar if there is one.
    fn print(&self, line: &str) {
        self.0.suspend(|| error::say(line));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Observer for Progress {
    fn expect(&self, bytes: u64) {
        self.0.inc_length(bytes);
    }

    fn copied(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn file_done(&self, files: u64) {
        if !self.0.is_hidden() {
            self.0.set_message(format!("{files} files"));
        }
    }

    fn warn(&self, text: &str) {
        self.print(&error::printable(text));
    }

    /// Prints the error. The copy goes on, and the command ends with exit status 1 ([`end`]).
    fn failed(&self, error: Error) -> Result<(), Error> {
        self.print(&error::describe(&error.into()));
        Ok(())
    }

    /// Prints a line for each file. The copy goes on if the reader of the lines has ended.
    fn durable(&self, paths: &[PathBuf]) -> Result<(), Error> {
        let text = |error: anyhow::Error| Error::Refused(format!("{error:#}"));
        let printed = output::print(|out| {
            for path in paths {
                out.write_all(b"synced ")?;
                out.write_all(path.as_os_str().as_bytes())?;
                out.write_all(b"\n")?;
            }
            Ok(())
        });
        match printed {
            Err(error) if output::has_no_reader(&error) => Ok(()),
            Err(error) => Err(error.downcast::<io::Error>().map_or_else(text, Error::Io)),
            Ok(()) => Ok(()),
        }
    }
}

/// Returns the counters of a copy as JSON.
pub fn to_json(summary: &Summary) -> Value {
    let Summary { files, bytes, warnings, errors, .. } = summary;
    json!({"files": files, "bytes": bytes, "warnings": warnings, "errors": errors})
}

/// Fails with [`Reported`] if errors were printed.
pub fn end(summary: &Summary) -> anyhow::Result<()> {
    if summary.errors > 0 { Err(Reported.into()) } else { Ok(()) }
}

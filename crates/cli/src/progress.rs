//! A progress bar on the terminal.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::error;

/// Counts files and bytes; visible only on a terminal.
pub struct Progress {
    bar: ProgressBar,
    files: AtomicU64,
    bytes: AtomicU64,
    warnings: AtomicU64,
    errors: AtomicU64,
}

/// What a copy has done.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Names that were made, directories left out.
    pub files: u64,
    /// Bytes of data that were copied, holes left out.
    pub bytes: u64,
    pub warnings: u64,
    /// Errors of files that the copy went on without.
    pub errors: u64,
}

impl Summary {
    /// Returns the counters as JSON.
    pub fn to_json(self) -> Value {
        let Self { files, bytes, warnings, errors } = self;
        json!({"files": files, "bytes": bytes, "warnings": warnings, "errors": errors})
    }
}

impl Progress {
    /// Creates a bar without a total; [`expect`](Self::expect) adds to the total while the tree is walked.
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
        let (files, bytes, warnings, errors) = Default::default();
        Self { bar, files, bytes, warnings, errors }
    }

    /// Adds `bytes` to the total.
    pub fn expect(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Counts `bytes` of data that have been copied.
    pub fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bar.inc(bytes);
    }

    /// Counts a file that is complete.
    pub fn file_done(&self) {
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{files} files"));
        }
    }

    /// Prints a warning on stderr, above the bar if there is one.
    pub fn warn(&self, text: &str) {
        self.warnings.fetch_add(1, Ordering::Relaxed);
        self.print(&error::printable(text));
    }

    /// Prints the error of a file that the copy goes on without, or of an attribute of it.
    pub fn error(&self, error: &anyhow::Error) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.print(&error::describe(error));
    }

    fn print(&self, line: &str) {
        self.bar.suspend(|| error::say(line));
    }

    /// Returns the counters.
    pub fn summary(&self) -> Summary {
        let [files, bytes, warnings, errors] = [&self.files, &self.bytes, &self.warnings, &self.errors]
            .map(|counter| counter.load(Ordering::Relaxed));
        Summary { files, bytes, warnings, errors }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

//! Records the slowest calls of a test program for the report of `cargo xtask test`.
//!
//! `PAREXT4_SLOWEST` names a file. A call that is slower than all earlier calls of its kind in this
//! process appends a line with its kind and its nanoseconds. Without the variable nothing is
//! recorded.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

// Its orders are visible to ThreadSanitizer, unlike those inside `std::sync::OnceLock`.
use once_cell::sync::OnceCell;

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call that makes changes durable.
    Fsync,
    /// Any call of a program.
    Request,
}

/// The longest call of each kind so far, in nanoseconds.
static LONGEST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Runs a call that makes changes durable, and records its duration.
pub fn fsync<R>(call: impl FnOnce() -> R) -> R {
    timed(Kind::Fsync, call)
}

/// Runs any other call, and records its duration.
pub fn request<R>(call: impl FnOnce() -> R) -> R {
    timed(Kind::Request, call)
}

fn timed<R>(kind: Kind, call: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = call();
    record(kind, start.elapsed());
    result
}

/// Records the duration of a call. A sync counts as a request, too.
pub fn record(kind: Kind, took: Duration) {
    let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    if kind == Kind::Fsync {
        record_longest(Kind::Fsync, nanoseconds);
    }
    record_longest(Kind::Request, nanoseconds);
}

fn record_longest(kind: Kind, nanoseconds: u64) {
    // Relaxed: the maximum publishes nothing but itself.
    if LONGEST[kind as usize].fetch_max(nanoseconds, Ordering::Relaxed) >= nanoseconds {
        return;
    }
    if let Some(mut file) = log() {
        let name = match kind {
            Kind::Fsync => "fsync",
            Kind::Request => "request",
        };
        // One call of write(2), so that lines of several processes do not mix.
        file.write_all(format!("{name} {nanoseconds}\n").as_bytes()).expect("PAREXT4_SLOWEST can be written");
    }
}

/// Opens the file if it is not open. A thread that is about to become another user, who may not
/// open it, calls this before.
pub fn open() {
    let _ = log();
}

fn log() -> Option<&'static File> {
    static LOG: OnceCell<Option<File>> = OnceCell::new();
    let open = || {
        let path = std::env::var_os("PAREXT4_SLOWEST")?;
        Some(File::options().append(true).create(true).open(path).expect("PAREXT4_SLOWEST can be opened"))
    };
    LOG.get_or_init(open).as_ref()
}

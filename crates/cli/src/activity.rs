//! Shows on a terminal that a command is at work.

use std::io::{self, IoSlice, IoSliceMut, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use parext4::Device;
use parext4::device::forward_device;

use crate::size;

/// Time between two reads of the state.
const INTERVAL: Duration = Duration::from_millis(200);

/// A line on stderr with the time since its start and the state of the work. It is removed when
/// this is dropped, and there is none unless stderr is a terminal.
pub struct Activity(ProgressBar);

impl Activity {
    /// Begins with `what` the command does. `state` returns how far it is, several times a second.
    pub fn start(
        quiet: bool,
        what: &'static str,
        state: impl Fn() -> String + Clone + Send + Sync + 'static,
    ) -> Self {
        let bar = ProgressBar::hidden();
        let key = move |_: &ProgressState, text: &mut dyn std::fmt::Write| {
            let _ = text.write_str(&state());
        };
        if !quiet
            && io::stderr().is_terminal()
            && let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}  {state}")
        {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            bar.set_style(style.with_key("state", key));
            bar.set_message(what);
            bar.tick();
            bar.enable_steady_tick(INTERVAL);
        }
        Self(bar)
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Numbers of bytes that were read and written.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    read: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
}

impl Moved {
    /// Returns the bytes that were read as text.
    pub fn read(&self) -> String {
        format!("{} read", size::display(self.read.load(Ordering::Relaxed)))
    }

    /// Returns the bytes that were written as text.
    pub fn written(&self) -> String {
        format!("{} written", size::display(self.written.load(Ordering::Relaxed)))
    }

    /// Returns a device whose blocking reads and writes are counted.
    pub fn counts<'a>(&self, inner: &'a dyn Device) -> impl Device + 'a {
        Counted { inner, moved: self.clone() }
    }
}

#[derive(Debug)]
struct Counted<'a> {
    inner: &'a dyn Device,
    moved: Moved,
}

impl Device for Counted<'_> {
    forward_device!(this => this.inner; size, sector_size, read_only, network, flush, discard);

    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        add(&self.moved.read, bufs.iter().map(|buf| buf.len()));
        self.inner.read_at(offset, bufs)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        add(&self.moved.written, bufs.iter().map(|buf| buf.len()));
        self.inner.write_at(offset, bufs)
    }
}

fn add(count: &AtomicU64, lens: impl Iterator<Item = usize>) {
    count.fetch_add(lens.map(|len| len as u64).sum(), Ordering::Relaxed);
}

//! [`SizeWatch`]: notices that the image is resized while it is open.
//!
//! librbd may not be called from its own notification, so a thread asks for the size. It sleeps
//! between notifications.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Builder, JoinHandle};

use crate::ffi::{Image, UpdateWatch};

/// The present size of an image.
#[derive(Debug)]
pub(crate) struct SizeWatch {
    /// Present size in bytes.
    size: Arc<AtomicU64>,
    image: Arc<Image>,
    running: Option<(UpdateWatch, JoinHandle<()>)>,
}

impl SizeWatch {
    /// Starts to watch. `name` is the name of the image, for the log. An image that was opened
    /// read-only has no notifications.
    pub(crate) fn start(image: &Arc<Image>, size: u64, name: String, read_only: bool) -> io::Result<Self> {
        let image = Arc::clone(image);
        let mut this = Self { size: Arc::new(AtomicU64::new(size)), image, running: None };
        if !read_only {
            let (changed, changes) = channel();
            let watch = this.image.watch(changed)?;
            let (image, size) = (Arc::clone(&this.image), Arc::clone(&this.size));
            let thread =
                Builder::new().name("rbd-size".into()).spawn(move || follow(&changes, &image, &size, &name));
            match thread {
                Ok(thread) => this.running = Some((watch, thread)),
                Err(error) => {
                    this.image.unwatch(watch);
                    return Err(error);
                }
            }
        }
        Ok(this)
    }

    /// Fails if the image now ends before `end`, in bytes from its start.
    pub(crate) fn check(&self, end: u64) -> io::Result<()> {
        // Relaxed, because the value publishes no other memory.
        let size = self.size.load(Ordering::Relaxed);
        if end <= size {
            return Ok(());
        }
        let message =
            format!("the image was shrunk to {size} bytes while it was open; a request ends at byte {end}");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
    }
}

/// Stores the size after each change of the image, until the sender of changes is dropped.
fn follow(changes: &Receiver<()>, image: &Image, size: &AtomicU64, name: &str) {
    while changes.recv().is_ok() {
        let Ok(now) = image.size() else { continue };
        let before = size.swap(now, Ordering::Relaxed);
        if now > before {
            log::info!("{name}: the image grew to {now} bytes; a new open can use them");
        } else if now < before {
            log::warn!("{name}: the image was shrunk to {now} bytes; requests past that fail");
        }
    }
}

impl Drop for SizeWatch {
    fn drop(&mut self) {
        if let Some((watch, thread)) = self.running.take() {
            // If the watch ends, this drops the sender, which ends the thread.
            if self.image.unwatch(watch) {
                let _ = thread.join();
            }
        }
    }
}

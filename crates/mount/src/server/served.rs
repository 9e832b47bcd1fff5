//! The volume that a mount serves. A mount that began read-only serves another one, opened for
//! writing, after `remount,rw`.
//!
//! The volume is replaced in these steps, because the engine of a read-only volume cannot be
//! changed into one that writes, and an image cannot be opened for writing while it is open for
//! reading:
//!
//! 1. [`Reopen::begin`] checks that the image is unchanged, and keeps it locked until step 5.
//! 2. Requests are [paused](crate::in_flight), so that none uses the volume.
//! 3. Queue threads, open files and the server drop their references to the volume. The last one
//!    closes the image.
//! 4. The volume is opened for writing. If that fails, it is opened for reading again.
//! 5. Open files and queue threads get the new volume, and requests resume.
//!
//! Invariant: only recovery and the deletion of orphans change the volume between steps 3 and 5, so
//! the kernel's caches of the volume stay valid. [`Reopen`] checks this.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use fuser::INodeNo;
use parext4::server::ServerVolume;
use parext4::{InodeRef, Volume};

use super::Server;
use crate::kernel_cache::ChangedBlocks;
use crate::protocol::Caller;
use crate::threads::QueueThreads;

/// Longest wait until the last user of the volume has dropped its reference. No request is in
/// flight, so such a user is about to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two counts of the volume's users.
const INTERVAL: Duration = Duration::from_millis(1);

/// An open volume.
#[derive(Debug)]
pub(crate) struct Served {
    volume: Volume,
    /// The root directory. The kernel has a number of its own for it, and never forgets it.
    root: InodeRef,
}

impl Served {
    fn new(volume: Volume, changed_blocks: &Arc<ChangedBlocks>) -> parext4::Result<Self> {
        let changed = Arc::clone(changed_blocks);
        volume.watch_blocks(move |ino| changed.note(INodeNo(ino.get().into())));
        let root = volume.root()?;
        Ok(Self { volume, root })
    }

    /// Returns the root directory.
    pub fn root(&self) -> &InodeRef {
        &self.root
    }

    /// Returns a handle to the volume.
    pub fn volume(&self) -> Volume {
        self.volume.clone()
    }
}

impl Deref for Served {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.volume
    }
}

/// The volume of a mount. It is empty while the volume is replaced, and after a replacement has
/// failed.
#[derive(Debug)]
pub(super) struct ServedVolume(ArcSwapOption<Served>);

impl ServedVolume {
    pub fn new(volume: Volume, changed_blocks: &Arc<ChangedBlocks>) -> parext4::Result<Self> {
        Ok(Self(ArcSwapOption::from_pointee(Served::new(volume, changed_blocks)?)))
    }

    pub fn get(&self) -> Option<Arc<Served>> {
        self.0.load_full()
    }

    /// Removes the volume.
    pub fn take(&self) -> Option<Arc<Served>> {
        self.0.swap(None)
    }
}

/// Opens the volume of a mount again. Errors are lines of text.
pub trait Reopen: fmt::Debug + Send + Sync {
    /// Keeps other processes from writing to the image until the returned value is dropped, even
    /// while the volume is closed.
    ///
    /// # Errors
    /// Also if another program has changed the volume since the mount began.
    fn begin(&self) -> Result<Box<dyn Reopening + '_>, String>;
}

/// A volume that is opened again.
pub trait Reopening {
    /// Opens the volume, after it was closed.
    ///
    /// # Errors
    /// Also if another program has changed it.
    fn open(&self, access: Access) -> Result<Volume, String>;
}

/// The access for which a volume is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// For reading only.
    Read,
    /// For reading and writing.
    Write,
}

impl Server {
    /// Makes a volume that was mounted read-only writable. Does nothing if it is writable. Blocks
    /// until no other request is in flight, and until the volume is open.
    ///
    /// # Errors
    /// Says in one line why the volume is not writable. It is then served read-only as before,
    /// unless the text says that it cannot be.
    pub fn become_writable(&self, caller: Caller, queues: &QueueThreads) -> Result<(), String> {
        if !caller.administers() {
            return Err("only root may do that".into());
        }
        let volume = self.volume().map_err(|_| "its image could not be opened again")?;
        if !volume.is_read_only() {
            return Ok(());
        }
        if let Some(why) = volume.stopped() {
            return Err(why);
        }
        drop(volume);
        let reopen = self.reopen.get().ok_or("its server cannot open the image again")?;
        // This comes before the volume is closed, which after a failure could not be opened for
        // reading either.
        let reopening = reopen.begin()?;
        let _pause = self.in_flight.pause().ok_or("requests in flight do not end")?;
        self.replace(&*reopening, queues)
    }

    fn replace(&self, source: &dyn Reopening, queues: &QueueThreads) -> Result<(), String> {
        queues.stop();
        let files = self.open_files.release_volume();
        let outcome = self.close_last_use().and_then(|()| source.open(Access::Write));
        let (opened, outcome) = match outcome {
            Ok(volume) => (Ok(volume), Ok(())),
            Err(why) => (source.open(Access::Read), Err(why)),
        };
        let serves = opened.and_then(|volume| {
            queues.restart(&volume).map_err(|error| error.to_string())?;
            let served = Served::new(volume, &self.changed_blocks).map_err(|error| error.to_string())?;
            self.volume.0.store(Some(Arc::new(served)));
            Ok(())
        });
        match serves {
            Ok(()) => {
                self.open_files.restore(&files, |file| self.reopened(file));
                outcome
            }
            Err(error) => {
                let why = outcome.err().map_or_else(String::new, |why| format!("{why}; "));
                let why =
                    format!("{why}the volume could not be opened again, and all calls fail now: {error}");
                log::error!("{why}");
                Err(why)
            }
        }
    }

    /// Closes the volume once its last user has dropped its reference.
    fn close_last_use(&self) -> Result<(), String> {
        let Some(mut served) = self.volume.take() else { return Ok(()) };
        let deadline = Instant::now() + PATIENCE;
        let served = loop {
            served = match Arc::try_unwrap(served) {
                Ok(served) => break served,
                Err(served) => served,
            };
            if Instant::now() > deadline {
                return Err("it is still in use".into());
            }
            sleep(INTERVAL);
        };
        let Served { volume, root } = served;
        drop(root);
        volume.close().map_err(|error| error.to_string())
    }
}

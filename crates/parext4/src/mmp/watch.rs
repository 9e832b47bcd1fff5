//! Watches the owner of a volume from another machine.

use std::time::Duration;

use super::time::now;
use super::{MmpOptions, MmpState, MmpUse};

/// What a [`Watch`] knows of the owner of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// The volume was closed, or not opened since it was made.
    None,
    /// e2fsck has the volume, or left it so; `tune2fs -E clear_mmp` clears that.
    Fsck,
    /// The owner has updated the block within [`MmpState::stale_after`], or was not watched for that long.
    Alive {
        /// Time since the watch saw the last update.
        unchanged_for: Duration,
    },
    /// The owner has not updated the block for [`MmpState::stale_after`].
    Gone {
        /// Time since the watch saw the last update.
        unchanged_for: Duration,
    },
}

/// Watches the block of multi-mount protection for updates. Uses the clock of this machine only.
///
/// ```
/// use parext4::mmp::{self, MmpOptions, Owner, Watch};
/// use parext4::{MemDevice, MkfsOptions, mkfs};
///
/// let device = MemDevice::new(16 << 20);
/// mkfs(&device, &MkfsOptions::new().mmp(true))?;
/// let mut watch = Watch::new(&MmpOptions::new());
/// // Every few seconds:
/// if let Some(state) = mmp::read(&device)? {
///     assert_eq!(watch.observe(&state), Owner::None);
/// }
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Watch {
    options: MmpOptions,
    /// The last block, and when the watch saw it first.
    last: Option<(MmpState, Duration)>,
}

impl Watch {
    /// Returns a watch that has seen no block yet.
    #[must_use]
    pub fn new(options: &MmpOptions) -> Self {
        Self { options: options.clone(), last: None }
    }

    /// Compares a block that was just read with the one before, and returns what that says about the owner.
    pub fn observe(&mut self, state: &MmpState) -> Owner {
        let now = now();
        match state.usage {
            MmpUse::Clean => {
                self.last = None;
                return Owner::None;
            }
            MmpUse::Fsck => {
                self.last = None;
                return Owner::Fsck;
            }
            MmpUse::InUse => {}
        }
        let since = match &self.last {
            Some((last, since)) if last == state => *since,
            _ => {
                self.last = Some((state.clone(), now));
                now
            }
        };
        let unchanged_for = now.saturating_sub(since);
        if unchanged_for >= self.options.seconds(state.wait) {
            Owner::Gone { unchanged_for }
        } else {
            Owner::Alive { unchanged_for }
        }
    }
}

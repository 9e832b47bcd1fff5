//! Why a takeover failed, and after which errors a standby retries.

use std::io;

use parext4::Error;

/// Why a standby ended without the volume.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StandbyError {
    /// The device cannot be opened, and a retry would fail, too.
    #[error(transparent)]
    Device(#[from] io::Error),
    /// The volume cannot be opened, and a retry would fail, too.
    #[error(transparent)]
    Volume(#[from] Error),
    /// e2fsck is checking the volume, or was killed while it did.
    #[error("e2fsck is checking the volume; if it is not, \"tune2fs -f -E clear_mmp\" releases the volume")]
    Checked,
    /// Nothing shows whether the volume has an owner.
    #[error(
        "the volume has no MMP and its device has no lock, so nothing shows when its owner is gone; make the volume with \
         \"mkfs -O mmp\", or add the feature with \"tune2fs -O mmp\""
    )]
    Unwatchable,
}

impl StandbyError {
    /// Returns true if the standby must not begin to wait, because the user's input is wrong.
    pub(crate) fn is_mistake(&self) -> bool {
        use io::ErrorKind::{InvalidInput, NotFound, PermissionDenied, Unsupported};
        match self {
            Self::Device(error) => {
                matches!(error.kind(), InvalidInput | NotFound | PermissionDenied | Unsupported)
            }
            _ => !self.may_pass(),
        }
    }

    /// Returns true if the storage or another machine is the cause, so that a later attempt may
    /// succeed.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Device(_) => true,
            Self::Volume(error) => {
                matches!(error, Error::Device { .. } | Error::Busy(_) | Error::Stopped(_))
            }
            Self::Checked | Self::Unwatchable => false,
        }
    }
}

//! `Credentials`: on whose behalf operations act.

/// The rights of the caller on whose behalf a handle acts, as far as the engine checks them:
/// whether it may allocate the blocks reserved for root ([`Space::reserved_blocks`](crate::Space)),
/// and whether it may exceed the limits of quotas.
///
/// A [`Volume`](crate::Volume) acts as root when it is opened. `with_credentials` on a volume, a
/// [`InodeRef`](crate::InodeRef) or a file changes the credentials of that handle, and handles made
/// from it inherit them. So one thread can act for many users, and two handles of one file can act
/// for two. The engine checks no permissions of files: a program that serves several users does.
///
/// ```
/// use parext4::Credentials;
/// # use parext4::{MemDevice, MkfsOptions, OpenOptions, Volume, VolumeOptions, mkfs};
/// # use std::sync::Arc;
///
/// # fn main() -> Result<(), parext4::Error> {
/// # let device = Arc::new(MemDevice::new(16 << 20));
/// # mkfs(&*device, &MkfsOptions::new())?;
/// # let volume = Volume::open_device(device, &VolumeOptions::new())?;
/// let for_user = volume.clone().with_credentials(Credentials::user());
/// let file = for_user.open_file("/inbox", &OpenOptions::read_write().create(true))?;
/// file.write_all_at(b"fails once only reserved blocks are left", 0)?;
///
/// let for_root = file.clone().with_credentials(Credentials::root());
/// for_root.append(b", but not for root")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    may_use_reserved_blocks: bool,
    exceeds_quotas: bool,
}

impl Credentials {
    /// Returns the credentials of root, which permit the use of all free blocks, whatever the
    /// limits of quotas.
    #[must_use]
    pub const fn root() -> Self {
        Self { may_use_reserved_blocks: true, exceeds_quotas: true }
    }

    /// Returns the credentials of an ordinary user. An operation that would need reserved blocks
    /// fails with [`Error::NoSpace`](crate::Error::NoSpace).
    #[must_use]
    pub const fn user() -> Self {
        Self { may_use_reserved_blocks: false, exceeds_quotas: false }
    }

    /// Returns true if the caller may allocate the blocks reserved for root.
    #[must_use]
    pub const fn may_use_reserved_blocks(self) -> bool {
        self.may_use_reserved_blocks
    }

    /// Returns these credentials, subject to the limits of quotas.
    #[must_use]
    pub const fn within_quotas(self) -> Self {
        Self { exceeds_quotas: false, ..self }
    }

    /// Returns true if the limits of quotas do not apply to the caller.
    #[must_use]
    pub const fn exceeds_quotas(self) -> bool {
        self.exceeds_quotas
    }
}

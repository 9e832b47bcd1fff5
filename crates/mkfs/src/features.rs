//! The features of a new volume: the features that `mke2fs -t ext4` chooses, with the changes that
//! the options ask for.
//!
//! Features that need structures of their own, such as the journal, have options of their own in
//! [`MkfsOptions`](crate::MkfsOptions).

use parext4_format::features::{Compat, Incompat, RoCompat};

use crate::error::{MkfsError, Result};

/// The three words of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    pub compat: Compat,
    pub incompat: Incompat,
    pub ro_compat: RoCompat,
}

/// The features that may be chosen.
const CHOICE: Features = Features {
    compat: Compat::EXT_ATTR
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::BIT64)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::LARGEDIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::ENCRYPT),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::QUOTA)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::PROJECT)
        .union(RoCompat::BIGALLOC),
};

/// Other names that e2fsprogs accepts.
const ALIASES: [(&str, &str); 2] = [("extents", "extent"), ("uninit_groups", "uninit_bg")];

impl Features {
    /// No features, as revision 0 of the format has.
    pub(crate) const NONE: Self =
        Self { compat: Compat::empty(), incompat: Incompat::empty(), ro_compat: RoCompat::empty() };

    /// The features that all types have.
    pub(crate) const BASE: Self = Self {
        compat: Compat::EXT_ATTR.union(Compat::DIR_INDEX).union(Compat::RESIZE_INODE),
        incompat: Incompat::FILETYPE,
        ro_compat: RoCompat::SPARSE_SUPER.union(RoCompat::LARGE_FILE),
    };

    /// Adds or removes the feature `name`, as e2fsprogs names it.
    ///
    /// # Errors
    /// [`MkfsError::Invalid`] if no feature that can be chosen has this name.
    pub(crate) fn set(&mut self, name: &str, wanted: bool) -> Result<()> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
        if let Some(bit) = CHOICE.compat.iter().find(|bit| bit.names() == [name]) {
            self.compat.set(bit, wanted);
        } else if let Some(bit) = CHOICE.incompat.iter().find(|bit| bit.names() == [name]) {
            self.incompat.set(bit, wanted);
        } else if let Some(bit) = CHOICE.ro_compat.iter().find(|bit| bit.names() == [name]) {
            self.ro_compat.set(bit, wanted);
        } else {
            return Err(MkfsError::invalid(format_args!(
                "feature {name:?} cannot be chosen, only {}",
                choice()
            )));
        }
        Ok(())
    }

    /// Removes features that another feature replaces, and checks that the rest fit together, as
    /// mke2fs does.
    ///
    /// # Errors
    /// [`MkfsError::Invalid`] names features that exclude each other.
    pub(crate) fn checked(mut self) -> Result<Self> {
        if !self.incompat.contains(Incompat::EXTENTS) {
            // Indirect blocks have pointers of 32 bits.
            self.incompat -= Incompat::BIT64;
            if self.ro_compat.contains(RoCompat::BIGALLOC) {
                return Err(MkfsError::invalid("the feature bigalloc needs extent"));
            }
        }
        if self.ro_compat.contains(RoCompat::METADATA_CSUM) {
            self.ro_compat -= RoCompat::GDT_CSUM;
        }
        if self.incompat.contains(Incompat::CSUM_SEED) && !self.ro_compat.contains(RoCompat::METADATA_CSUM) {
            return Err(MkfsError::invalid("the feature metadata_csum_seed needs metadata_csum"));
        }
        if self.compat.contains(Compat::RESIZE_INODE) {
            if self.incompat.contains(Incompat::META_BG) {
                return Err(MkfsError::invalid("the features resize_inode and meta_bg exclude each other"));
            }
            if !self.ro_compat.contains(RoCompat::SPARSE_SUPER) {
                return Err(MkfsError::invalid("the feature resize_inode needs sparse_super"));
            }
        }
        Ok(self)
    }

    /// Returns true if group descriptors have checksums, so that groups can be left uninitialised.
    pub(crate) fn has_group_checksums(&self) -> bool {
        self.ro_compat.intersects(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM)
    }

    /// Returns the size of a group descriptor, in bytes.
    pub(crate) fn desc_size(&self) -> u32 {
        if self.incompat.contains(Incompat::BIT64) { 64 } else { 32 }
    }
}

fn choice() -> String {
    let names = [CHOICE.compat.names(), CHOICE.incompat.names(), CHOICE.ro_compat.names()].concat();
    format!("has_journal, mmp, casefold, {}", names.join(", "))
}

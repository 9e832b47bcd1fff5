//! How the names of a directory are compared and hashed.
//!
//! The names of an ordinary directory are bytes. In a directory with `EXT4_CASEFOLD_FL`, two names
//! are equal if their folded forms are, and a name is placed by the hash of its folded form. Its
//! entry keeps it as it was written.
//!
//! The names of a directory with `EXT4_ENCRYPT_FL` are encrypted. The volume's users see and use
//! [no-key names](parext4_format::no_key_name) in their place. Such a directory gets no new names.
//! If it also ignores case, its names are hashed with the key, so that only its blocks can be
//! searched, and each entry keeps its hash.

use std::hash::{DefaultHasher, Hash, Hasher};

use parext4_format::casefold::{fold, folds_to};
use parext4_format::dir_entry::{self, Entries};
use parext4_format::hash::DirHash;
use parext4_format::inode::InodeFlags;
use parext4_format::no_key_name::NoKeyName;

use super::dir::Dir;
use super::printable;
use crate::error::{Error, Result};

/// How the names of a directory are compared and hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Byte by byte.
    Exact,
    /// Without case.
    Folded {
        /// Names that are not UTF-8 are refused.
        strict: bool,
    },
    /// Encrypted.
    Encrypted {
        /// Entries keep the hash of their names, which depends on the key.
        hash_in_entry: bool,
    },
}

impl Names {
    /// Returns a name in the form in which it is searched; `None` if no entry can have it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the volume refuses names that are not UTF-8, or if the folded form is
    /// `.` or `..`.
    pub(super) fn wanted(self, name: &[u8]) -> Result<Option<Wanted<'_>>> {
        let strict = match self {
            Self::Exact => return Ok(Some(Wanted::Exact(name))),
            Self::Encrypted { .. } => return Ok(NoKeyName::decode(name).map(Wanted::Encrypted)),
            Self::Folded { strict } => strict,
        };
        let refuse = |why| Err(Error::invalid(format_args!("the name {:?} {why}", printable(name))));
        match fold(name) {
            // Other drivers would take it for the entry of the directory itself, or of its parent.
            Some(folded) if matches!(&folded[..], b"." | b"..") => {
                refuse("is equal to \".\" or \"..\" without case")
            }
            Some(folded) => Ok(Some(Wanted::Folded { name, folded })),
            None if strict => refuse("is not UTF-8"),
            None => Ok(Some(Wanted::Exact(name))),
        }
    }
}

/// A name to find.
#[derive(Debug)]
pub(super) enum Wanted<'a> {
    /// The entry has exactly these bytes.
    Exact(&'a [u8]),
    /// The entry's name has the same folded form.
    Folded { name: &'a [u8], folded: Vec<u8> },
    /// The entry's encrypted name has this no-key name.
    Encrypted(NoKeyName),
}

impl Wanted<'_> {
    /// Returns true if an entry with the name `stored` is the one to find.
    pub(super) fn matches(&self, stored: &[u8]) -> bool {
        match self {
            Self::Exact(name) => stored == *name,
            Self::Folded { name, folded } => stored == *name || folds_to(stored, folded),
            Self::Encrypted(name) => name.matches(stored),
        }
    }

    /// Returns the major hash of the entry to find.
    pub(super) fn major(&self, hash: &NameHash) -> u32 {
        match self {
            Self::Exact(name) => hash.function.hash(name).0,
            Self::Folded { folded, .. } => hash.function.hash(folded).0,
            Self::Encrypted(name) => name.whole().map_or(name.hash, |whole| hash.function.hash(whole)).0,
        }
    }
}

/// The hash of the names of one directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameHash {
    function: DirHash,
    names: Names,
    seed: [u32; 4],
    /// The lowest and the highest major hash that names get.
    bounds: (u32, u32),
}

impl NameHash {
    /// Returns the major and minor hash of a name of an entry.
    pub(super) fn hash(&self, stored: &[u8]) -> (u32, u32) {
        let folded = if matches!(self.names, Names::Folded { .. }) { fold(stored) } else { None };
        let (major, minor) = self.function.hash(folded.as_deref().unwrap_or(stored));
        let (lowest, highest) = self.bounds;
        (major.min(highest).max(lowest), minor)
    }

    /// Returns the hash that gives names outside of `bounds` the nearest major hash within them.
    pub(super) fn within(self, bounds: (u32, u32)) -> Self {
        Self { bounds, ..self }
    }

    /// Returns the place of a name of an entry among names with the same major hash, in a listing.
    /// It is not the minor hash, because users can make names for which that is equal in some
    /// versions, and names at one place cannot be told apart.
    pub(super) fn order(&self, stored: &[u8]) -> u32 {
        let mut hasher = DefaultHasher::new();
        self.seed.hash(&mut hasher);
        hasher.write(stored);
        let [order, _]: [u32; 2] = zerocopy::transmute!(hasher.finish());
        order
    }
}

impl Dir<'_> {
    /// Returns how the directory's names are compared and hashed.
    ///
    /// # Errors
    /// Corruption, if the directory ignores case and the volume has no `casefold`.
    pub(super) fn names(&self) -> Result<Names> {
        let ignores_case = self.inode.flags().contains(InodeFlags::CASEFOLD);
        if self.inode.is_encrypted() {
            return Ok(Names::Encrypted { hash_in_entry: ignores_case });
        }
        if !ignores_case {
            return Ok(Names::Exact);
        }
        match self.engine.superblock().encoding() {
            Some(encoding) => Ok(Names::Folded { strict: encoding.strict }),
            None => Err(self.corrupt("i_flags: a directory ignores case, but the volume has no casefold")),
        }
    }

    /// Returns true if names may be in leaves to which their hashes do not lead. Versions of Linux
    /// that did not ignore any characters have placed names by other hashes.
    pub(super) fn may_have_misplaced_names(&self) -> bool {
        let encoding = self.engine.superblock().encoding();
        encoding.is_some_and(|encoding| encoding.misplaced_names)
            && self.inode.flags().contains(InodeFlags::CASEFOLD)
            && !self.inode.is_encrypted()
    }

    /// Returns true if the entries can be found by hash.
    pub(super) fn is_searched_by_hash(&self) -> bool {
        let needs_key = self.inode.flags().contains(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD);
        self.is_indexed() && !needs_key
    }

    /// Returns the entries of a block with names.
    pub(super) fn entries<'b>(&self, bytes: &'b [u8], tail: bool) -> Entries<'b> {
        if self.inode.is_encrypted() {
            dir_entry::encrypted_entries(bytes, tail)
        } else {
            dir_entry::entries(bytes, tail)
        }
    }

    /// Returns the hash that a directory without an index will use.
    pub(super) fn default_hash(&self) -> Result<NameHash> {
        self.hash(self.engine.superblock().default_hash_version())
    }

    /// Returns the hash of a version as stored on the device.
    pub(super) fn hash(&self, version: u8) -> Result<NameHash> {
        let superblock = self.engine.superblock();
        let function = DirHash::from_disk(version, superblock.hash_is_unsigned(), superblock.hash_seed());
        let (names, seed) = (self.names()?, superblock.hash_seed());
        Ok(NameHash { function: self.checked(function)?, names, seed, bounds: (0, u32::MAX) })
    }
}

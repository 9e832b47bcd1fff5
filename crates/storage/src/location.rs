//! What a user types to name a device: a path, or a URL whose scheme says how to reach the device.
//!
//! This module parses names. [`open_device`](crate::open_device) opens the device that a name
//! stands for.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(feature = "nbd")]
use parext4_nbd::NbdUrl;
#[cfg(feature = "rbd")]
use parext4_rbd::ImageUrl;

use crate::partition::split_partition;

/// Place of a device, read from what a user typed.
///
/// ```
/// use parext4_storage::Location;
/// assert_eq!(Location::parse("./a:b.img")?, Location::Path("./a:b.img".into()));
/// # #[cfg(feature = "nbd")]
/// assert!(matches!(Location::parse("nbd://server/disk")?, Location::Nbd(_)));
/// let error = Location::parse("tape:one").unwrap_err();
/// assert!(error.to_string().starts_with("tape:one: unknown scheme \"tape\""));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// An image file or block device of this machine.
    Path(PathBuf),
    /// An RBD image of a Ceph cluster.
    #[cfg(feature = "rbd")]
    Rbd(ImageUrl),
    /// An export of an NBD server.
    #[cfg(feature = "nbd")]
    Nbd(NbdUrl),
}

impl Location {
    /// Parses a name. Text that begins with a scheme and a colon is a URL; other text is a path.
    /// For a partition, such as `disk.img?partition=2`, returns the location of the disk.
    ///
    /// A scheme has at least two letters, digits, `+` or `-`, and begins with a letter. So a path
    /// whose first colon follows a slash or a dot is never read as a URL.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for a scheme that is unknown or whose feature is not enabled;
    /// the message names it. `InvalidInput` for a URL that does not have the form of its scheme.
    pub fn parse(typed: impl AsRef<OsStr>) -> io::Result<Self> {
        let (typed, _) = split_partition(typed.as_ref());
        match scheme(typed) {
            None => Ok(Self::Path(typed.into())),
            #[cfg(feature = "rbd")]
            Some("rbd") => Ok(Self::Rbd(ImageUrl::parse(utf8(typed)?)?)),
            #[cfg(not(feature = "rbd"))]
            Some("rbd") => Err(not_enabled(typed, "rbd")),
            #[cfg(feature = "nbd")]
            Some("nbd" | "nbds" | "nbd+unix" | "nbds+unix") => Ok(Self::Nbd(NbdUrl::parse(utf8(typed)?)?)),
            #[cfg(not(feature = "nbd"))]
            Some("nbd" | "nbds" | "nbd+unix" | "nbds+unix") => Err(not_enabled(typed, "nbd")),
            Some(scheme) => Err(unknown_scheme(typed, scheme)),
        }
    }

    /// Returns the path of a device of this machine.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(path),
            #[cfg(any(feature = "nbd", feature = "rbd"))]
            _ => None,
        }
    }

    /// Returns whether an open with
    /// [`DeviceOptions::create`](parext4_device::DeviceOptions::create) keeps the contents of an
    /// existing device that is large enough.
    pub fn is_created_by_open(&self) -> bool {
        #[cfg(feature = "rbd")]
        if matches!(self, Self::Rbd(_)) {
            return true;
        }
        false
    }
}

/// Returns the scheme of a name that a user typed, without its colon, or `None` if the name is a
/// path.
pub fn scheme(typed: &OsStr) -> Option<&str> {
    // All bytes of a scheme are ASCII, so text after the first invalid byte does not matter.
    let valid = typed.as_encoded_bytes().utf8_chunks().next()?.valid();
    let (scheme, _) = valid.split_once(':')?;
    let is_scheme = scheme.len() >= 2
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+' || c == '-');
    is_scheme.then_some(scheme)
}

/// Returns a URL as text.
#[cfg(any(feature = "nbd", feature = "rbd"))]
fn utf8(typed: &OsStr) -> io::Result<&str> {
    let message =
        || format!("{}: a URL must be UTF-8 text; write other bytes as % and two digits", typed.display());
    typed.to_str().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, message()))
}

#[cfg(not(all(feature = "nbd", feature = "rbd")))]
fn not_enabled(typed: &OsStr, feature: &str) -> io::Error {
    let message = format!("{}: parext4-storage was built without its feature {feature}", typed.display());
    io::Error::new(io::ErrorKind::Unsupported, message)
}

fn unknown_scheme(typed: &OsStr, scheme: &str) -> io::Error {
    let typed = typed.display();
    let message = format!("{typed}: unknown scheme {scheme:?}; if it is the name of a file, type ./{typed}");
    io::Error::new(io::ErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn schemes_are_told_from_paths() {
        for (typed, found) in [("tape:one", "tape"), ("tape+2:///x", "tape+2"), ("RBD:pool/image", "RBD")] {
            assert_eq!(scheme(typed.as_ref()), Some(found));
            let error = Location::parse(typed).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            let text = error.to_string();
            assert!(text.starts_with(&format!("{typed}: unknown scheme \"{found}\"")), "{text}");
        }
        let paths =
            ["", "a.img", "a:b", "disk.img:etc", "./nbd:x", "/dev/disk/by-path/pci-0:1", ":x", "2a:b"];
        for typed in paths.map(OsStr::new).into_iter().chain([OsStr::from_bytes(b"n\xffd:x")]) {
            assert_eq!(Location::parse(typed).unwrap().path(), Some(Path::new(typed)), "{typed:?}");
        }
    }

    #[cfg(not(feature = "nbd"))]
    #[test]
    fn an_url_without_its_feature_is_refused() {
        let error = Location::parse("nbd://host/x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().ends_with("without its feature nbd"), "{error}");
    }

    #[cfg(feature = "nbd")]
    #[test]
    fn urls_of_nbd_are_read() {
        for typed in ["nbd://host/x", "nbds://host", "nbd+unix:///x?socket=s"] {
            let Location::Nbd(url) = Location::parse(typed).unwrap() else { panic!("{typed}") };
            assert_eq!(url.to_string(), typed);
        }
        for typed in [OsStr::new("nbd:x"), OsStr::from_bytes(b"nbd://h/\xff")] {
            assert_eq!(Location::parse(typed).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}

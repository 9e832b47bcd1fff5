//! The request by which a process makes the server of a mount make a volume writable that was
//! mounted read-only.
//!
//! The process reads an attribute of the root directory, because the kernel passes no request that
//! changes anything to the server of a read-only mount. Only a process with `CAP_SYS_ADMIN` may
//! read attributes with this prefix, and the attribute appears in no list.

use std::io;
use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;

/// The name of the attribute. Its value is empty if the volume is writable, and otherwise says why
/// it is not.
pub(crate) const ATTRIBUTE: &str = "trusted.parext4.writable";
/// The longest value, in bytes.
pub(crate) const MAX_VALUE: usize = 4096;

/// Makes the volume writable that is mounted on `dir`. Blocks until the server has opened it. If
/// the volume stays read-only, returns the reason.
pub(crate) fn make_writable(dir: &Path) -> io::Result<Option<String>> {
    let mut value = vec![0_u8; MAX_VALUE];
    match getxattr(dir, ATTRIBUTE, &mut value[..]) {
        Ok(0) => Ok(None),
        Ok(len) => Ok(Some(String::from_utf8_lossy(&value[..len]).into_owned())),
        // The kernel returns this error to a process without the capability.
        Err(Errno::NODATA) => Ok(Some("only root can make it writable".to_owned())),
        Err(error) => Err(error.into()),
    }
}

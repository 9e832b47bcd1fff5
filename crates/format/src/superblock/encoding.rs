//! The encoding of names in directories that ignore case (`casefold`).

use super::Superblock;
use crate::error::{FormatError, Result};
use crate::features::Incompat;

/// `s_encoding`: UTF-8 with the tables of Unicode 12.1, the only one defined.
const UTF8_12_1: u16 = 1;
/// `s_encoding_flags`: names that are not valid are refused.
const STRICT: u16 = 1;
/// `s_encoding_flags`: a look-up by hash suffices. Without the flag, drivers with other tables may
/// have added names.
const NO_COMPAT_FALLBACK: u16 = 2;

/// The encoding of names in directories that ignore case: UTF-8, with the tables of Unicode 12.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// True if names that are not UTF-8 are refused. Otherwise they are compared byte by byte.
    pub strict: bool,
    /// True if a name may be indexed by another hash than its own, because some versions of Linux
    /// did not ignore any characters.
    pub misplaced_names: bool,
}

impl Superblock {
    /// Returns the encoding of names; `None` without `casefold`.
    #[must_use]
    pub fn encoding(&self) -> Option<Encoding> {
        let flags = self.raw.s_encoding_flags.get();
        let encoding =
            Encoding { strict: flags & STRICT != 0, misplaced_names: flags & NO_COMPAT_FALLBACK == 0 };
        self.incompat().contains(Incompat::CASEFOLD).then_some(encoding)
    }

    /// Sets the feature `casefold`, with the encoding.
    pub fn set_encoding(&mut self, encoding: Encoding) {
        self.set_incompat(self.incompat() | Incompat::CASEFOLD);
        let strict = if encoding.strict { STRICT } else { 0 };
        let complete = if encoding.misplaced_names { 0 } else { NO_COMPAT_FALLBACK };
        self.raw.s_encoding.set(UTF8_12_1);
        self.raw.s_encoding_flags.set(strict | complete);
    }

    /// Returns an error if the encoding of names is not known.
    pub(super) fn check_encoding(&self) -> Result<()> {
        let encoding = self.raw.s_encoding.get();
        if self.encoding().is_some() && encoding != UTF8_12_1 {
            let problem = format_args!("{encoding} is not supported, only {UTF8_12_1} (utf8-12.1.0)");
            return Err(FormatError::new("superblock", "s_encoding", problem));
        }
        Ok(())
    }
}

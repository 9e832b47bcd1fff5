//! Checks and stores what a server says about an export.

use std::io;

use crate::protocol::{BlockSizeInfo, transmission};

/// Smallest unit of requests that the client uses, bytes. Servers that state no minimum may not
/// accept less.
const SMALLEST_SECTOR: u32 = 512;
/// Largest minimum that a server may state, bytes, by the protocol.
const LARGEST_MINIMUM: u32 = 64 << 10;
/// Largest request of the client, bytes. Servers that state no maximum accept this much, by the
/// protocol.
const LARGEST_REQUEST: u32 = 32 << 20;

/// The properties of an export, as its server states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// Size in bytes, not rounded.
    pub(crate) size: u64,
    flags: u16,
    /// Smallest unit of requests, bytes: a power of two.
    pub(crate) sector: u32,
    /// Best unit of requests, bytes: a power of two.
    pub(crate) preferred: u32,
    /// Largest request, bytes: a multiple of the sector.
    pub(crate) largest: u32,
}

impl Export {
    /// Checks the properties that a server has stated.
    ///
    /// # Errors
    /// A message, if the protocol forbids the block sizes.
    pub(crate) fn new(size: u64, flags: u16, sizes: Option<&BlockSizeInfo>) -> Result<Self, String> {
        let sizes = sizes.map(|sizes| (sizes.minimum.get(), sizes.preferred.get(), sizes.maximum.get()));
        let (minimum, preferred, maximum) = sizes.unwrap_or((1, 4096, u32::MAX));
        if !minimum.is_power_of_two() || minimum > LARGEST_MINIMUM {
            return Err(format!("the server states a minimum block size of {minimum} bytes"));
        }
        if !preferred.is_power_of_two() || preferred < minimum {
            return Err(format!("the server states a preferred block size of {preferred} bytes"));
        }
        let sector = minimum.max(SMALLEST_SECTOR);
        let largest = maximum.min(LARGEST_REQUEST) / sector * sector;
        if largest == 0 {
            return Err(format!("the server states a maximum block size of {maximum} bytes"));
        }
        Ok(Self { size, flags, sector, preferred, largest })
    }

    pub(crate) fn read_only(&self) -> bool {
        self.has(transmission::READ_ONLY)
    }

    /// Returns whether the server may lose an answered write until a flush.
    pub(crate) fn has_flush(&self) -> bool {
        self.has(transmission::SEND_FLUSH)
    }

    /// Returns whether each write must ask for durability: the server caches writes, but has no
    /// flush.
    pub(crate) fn needs_fua(&self) -> bool {
        self.has(transmission::SEND_FUA) && !self.has_flush()
    }

    pub(crate) fn has_trim(&self) -> bool {
        self.has(transmission::SEND_TRIM)
    }

    pub(crate) fn has_write_zeroes(&self) -> bool {
        self.has(transmission::SEND_WRITE_ZEROES)
    }

    /// Returns whether a flush on one connection covers the writes of all connections.
    pub(crate) fn has_coherent_connections(&self) -> bool {
        self.has(transmission::CAN_MULTI_CONN)
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & transmission::HAS_FLAGS != 0 && self.flags & flag != 0
    }

    /// Checks that requests that were made for `self` suit the export that a new connection found.
    ///
    /// # Errors
    /// Names the difference.
    pub(crate) fn check_same(&self, found: &Self) -> io::Result<()> {
        let same = |what: &str, before: u64, now: u64| {
            if before == now {
                return Ok(());
            }
            let message = format!("the export has changed: its {what} was {before} and is {now}");
            Err(io::Error::new(io::ErrorKind::InvalidData, message))
        };
        same("size", self.size, found.size)?;
        same("flags", self.flags.into(), found.flags.into())?;
        same("minimum block size", self.sector.into(), found.sector.into())?;
        if found.largest < self.largest {
            same("maximum block size", self.largest.into(), found.largest.into())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(minimum: u32, preferred: u32, maximum: u32) -> BlockSizeInfo {
        BlockSizeInfo { minimum: minimum.into(), preferred: preferred.into(), maximum: maximum.into() }
    }

    #[test]
    fn block_sizes_are_checked_and_limited() {
        let found = |minimum, preferred, maximum| {
            let export = Export::new(0, 1, Some(&sizes(minimum, preferred, maximum)))?;
            Ok::<_, String>((export.sector, export.preferred, export.largest))
        };
        assert_eq!(found(1, 4096, u32::MAX), Ok((512, 4096, 32 << 20)));
        assert_eq!(found(4096, 65536, 1 << 20), Ok((4096, 65536, 1 << 20)));
        assert_eq!(found(1, 1, 1000), Ok((512, 1, 512)));
        for (minimum, preferred, maximum) in
            [(0, 4096, 4096), (3, 4096, 4096), (1 << 17, 1 << 17, 1 << 20), (512, 100, 4096), (512, 512, 511)]
        {
            assert!(found(minimum, preferred, maximum).is_err());
        }
    }

    #[test]
    fn a_changed_export_is_refused() {
        let export = Export::new(1 << 20, transmission::HAS_FLAGS, None).unwrap();
        export.check_same(&export).unwrap();
        let smaller = Export { size: 4096, ..export };
        let message = export.check_same(&smaller).unwrap_err().to_string();
        assert_eq!(message, "the export has changed: its size was 1048576 and is 4096");
        assert!(export.check_same(&Export { flags: 3, ..export }).is_err());
        assert!(export.check_same(&Export { largest: 512, ..export }).is_err());
        export.check_same(&Export { largest: 64 << 20, ..export }).unwrap();
    }

    #[test]
    fn flags_count_only_if_the_server_has_flags() {
        let export = Export::new(0, transmission::SEND_FLUSH, None).unwrap();
        assert!(!export.has_flush());
    }
}

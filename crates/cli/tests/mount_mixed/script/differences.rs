//! Documented differences: results of a mount that may differ from ext4 in the kernel.

use std::collections::HashSet;

use rustix::fs::IFlags;
use rustix::io::Errno;

use super::handles::{Outcome, Value};
use super::op::{Op, PAGE};

/// Returns true if FUSE does not let a server have the same result. `flags` are the flags of the
/// inode.
pub fn is_of_fuse(op: &Op, wanted: &Outcome, found: &Outcome, flags: IFlags) -> bool {
    let is_fixed = flags.intersects(IFlags::APPEND | IFlags::IMMUTABLE);
    match (wanted, found) {
        // The kernel does not know these flags, so it finds other errors first.
        (Err(Errno::PERM), Err(_) | Ok(Value::Number(0))) => is_fixed && !matches!(op, Op::SetFlags { .. }),
        // Only a file system whose flags it knows has it refuse a shared mapping of an append-only
        // file.
        (Err(Errno::ACCESS), Ok(Value::Done)) => {
            flags.contains(IFlags::APPEND) && matches!(op, Op::Map { writable: true, .. })
        }
        _ => false,
    }
}

/// A search for data or a hole, and the file that it searches.
pub struct Search<'a> {
    pub op: &'a Op,
    pub offset: u64,
    pub contents: &'a [u8],
    /// The pages, of 4096 bytes, that were changed through a mapping. A mount writes them whole, up
    /// to the end that the file has by then.
    pub mapped: &'a HashSet<u64>,
}

impl Search<'_> {
    /// Returns true if the second result is also correct: both results agree with the contents of
    /// the file, and the second finds no data before the first does, and no hole after it, except
    /// in mapped pages. The kernel's ext4 counts zeros in its cache as data.
    pub fn is_as_sparse(&self, wanted: &Outcome, found: &Outcome) -> bool {
        let place = |outcome: &Outcome| match outcome {
            Ok(Value::Number(place)) => Some(*place),
            Err(Errno::NXIO) => Some(u64::MAX),
            _ => None,
        };
        let (Some(first), Some(second)) = (place(wanted), place(found)) else { return false };
        let (offset, size) = (self.offset, self.contents.len() as u64);
        match self.op {
            _ if offset >= size => second == u64::MAX,
            Op::SeekData { .. } if second < first => {
                second >= offset && self.mapped.contains(&(second / PAGE)) && self.are_zeros(second, first)
            }
            Op::SeekData { .. } => self.are_zeros(offset, second),
            _ if second > first => {
                (first / PAGE..second.div_ceil(PAGE)).all(|page| self.mapped.contains(&page))
                    && self.are_zeros(first, second)
            }
            // A hole is at least as long as the smallest block.
            _ => second >= offset && self.are_zeros(second, second + 1024 - second % 1024),
        }
    }

    fn are_zeros(&self, start: u64, end: u64) -> bool {
        let size = self.contents.len() as u64;
        let at = |place: u64| usize::try_from(place.min(size)).expect("files are short");
        self.contents[at(start)..at(end)].iter().all(|&byte| byte == 0)
    }
}

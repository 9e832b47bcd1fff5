//! Documented differences: results of a mount that may differ from ext4 in the kernel.

use rustix::fs::IFlags;
use rustix::io::Errno;

use super::handles::{Outcome, Value};
use super::op::Op;

/// Returns true if FUSE does not let a server have the same result. `flags` are the flags of the inode.
pub fn is_of_fuse(op: &Op, wanted: &Outcome, found: &Outcome, flags: IFlags) -> bool {
    let is_fixed = flags.intersects(IFlags::APPEND | IFlags::IMMUTABLE);
    match (wanted, found) {
        // The kernel does not know these flags, so it finds other errors first.
        (Err(Errno::PERM), Err(_) | Ok(Value::Number(0))) => is_fixed && !matches!(op, Op::SetFlags { .. }),
        _ => false,
    }
}

/// Returns true if the result of a search for data or a hole is also correct: both results agree with the contents of
/// the file, and the second finds no data before the first does, and no hole after it. The kernel's ext4 counts zeros
/// in its cache as data.
pub fn is_as_sparse(op: &Op, offset: u64, contents: &[u8], wanted: &Outcome, found: &Outcome) -> bool {
    let place = |outcome: &Outcome| match outcome {
        Ok(Value::Number(place)) => Some(*place),
        Err(Errno::NXIO) => Some(u64::MAX),
        _ => None,
    };
    let (Some(first), Some(second)) = (place(wanted), place(found)) else { return false };
    let size = contents.len() as u64;
    let are_zeros = |start: u64, end: u64| {
        let at = |place: u64| usize::try_from(place.min(size)).expect("files are short");
        contents[at(start)..at(end)].iter().all(|&byte| byte == 0)
    };
    match op {
        _ if offset >= size => second == u64::MAX,
        Op::SeekData { .. } => second >= first && are_zeros(offset, second),
        // A hole is at least as long as the smallest block.
        _ => second <= first && second >= offset && are_zeros(second, second + 1024 - second % 1024),
    }
}

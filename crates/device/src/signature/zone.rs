//! Reads a zone of a device around parts that cannot be read.

use std::fmt;
use std::io::{self, IoSliceMut};

use crate::aligned::AlignedBuf;
use crate::device::Device;

/// Offsets and lengths of reads are multiples of this number of bytes, which every sector size
/// divides.
const GRAIN: u64 = 4096;
/// Fewest bytes that are read at a time after a larger read has failed. Sectors of the device may
/// be larger.
const PIECE: u32 = 512;

/// A part of a device that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// First byte of the part on the device.
    pub offset: u64,
    /// Length of the part in bytes.
    pub len: u64,
    /// The error of the device.
    pub error: io::Error,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from byte {} cannot be read: {}", self.len, self.offset, self.error)
    }
}

impl From<Unreadable> for io::Error {
    fn from(part: Unreadable) -> Self {
        Self::new(part.error.kind(), part.to_string())
    }
}

/// Returns `len` bytes from `offset`, which lie on the device, with zeros in place of the pieces
/// that cannot be read. Adds these pieces to `unreadable`, adjacent ones as one part. Whole pages
/// of 4 KiB are read, so a piece may lie beside the range.
pub fn read_around(device: &dyn Device, offset: u64, len: u64, unreadable: &mut Vec<Unreadable>) -> Vec<u8> {
    if len == 0 {
        return Vec::new();
    }
    let first = offset - offset % GRAIN;
    let end = (offset + len).next_multiple_of(GRAIN).min(device.size());
    let mut buf = AlignedBuf::zeroed((end - first) as usize);
    if device.read_at(first, &mut [IoSliceMut::new(&mut buf)]).is_err() {
        let piece = PIECE.max(device.sector_size()) as usize;
        for (at, piece) in (first..end).step_by(piece).zip(buf.chunks_mut(piece)) {
            let Err(error) = device.read_at(at, &mut [IoSliceMut::new(piece)]) else { continue };
            piece.fill(0);
            let len = piece.len() as u64;
            match unreadable.last_mut() {
                Some(part) if part.offset + part.len == at => part.len += len,
                _ => unreadable.push(Unreadable { offset: at, len, error }),
            }
        }
    }
    let at = (offset - first) as usize;
    buf[at..at + len as usize].to_vec()
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::{MemDevice, forward_device};

    /// A device of which one sector cannot be read.
    #[derive(Debug)]
    struct Worn {
        inner: MemDevice,
        bad: u64,
    }

    impl Device for Worn {
        forward_device!(this => this.inner; size, sector_size, read_only, write_at, flush, discard, network);

        fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
            let len: usize = bufs.iter().map(|buf| buf.len()).sum();
            if (offset..offset + len as u64).contains(&self.bad) {
                return Err(io::Error::from_raw_os_error(5));
            }
            self.inner.read_at(offset, bufs)
        }
    }

    #[test]
    fn the_pieces_around_an_unreadable_one_are_read() {
        let inner = MemDevice::new(64 << 10);
        inner.write_at(0, &[IoSlice::new(&AlignedBuf::from_slice(&[7; 64 << 10]))]).unwrap();
        let device = Worn { inner, bad: 9000 };
        let mut unreadable = Vec::new();
        let bytes = read_around(&device, 512, 20_000, &mut unreadable);
        assert_eq!(bytes.len(), 20_000);
        let zeros = bytes.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at + 512);
        assert!(zeros.eq(8704..9216));
        let parts: Vec<_> = unreadable.iter().map(|part| (part.offset, part.len)).collect();
        assert_eq!(parts, [(8704, 512)]);
        let error = io::Error::from(unreadable.remove(0));
        assert!(error.to_string().starts_with("512 bytes from byte 8704 cannot be read: "), "{error}");
    }
}

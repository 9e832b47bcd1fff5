//! Splits requests into commands: pieces that the server accepts, and zeros that need not be sent.

use std::io::IoSlice;
use std::sync::Arc;

use parext4_device::Segment;
use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::command::{Action, Payload, Write};
use crate::export::Export;

/// Length of a write from which the client searches for zeros, bytes. Shorter writes cost less than
/// the search.
const ZEROES_FROM: usize = 16 << 10;

/// Calls `each` with offset and length of each piece of a range, in bytes. Pieces have at most
/// `largest` bytes.
pub(crate) fn pieces(offset: u64, len: u64, largest: u32, mut each: impl FnMut(u64, u32)) {
    let mut done = 0;
    while done < len {
        let piece = u32::try_from(len - done).unwrap_or(u32::MAX).min(largest);
        each(offset + done, piece);
        done += u64::from(piece);
    }
}

/// Returns the action that writes `payload` to an export.
pub(crate) fn write(export: &Export, payload: Payload) -> Action {
    let payload = if export.has_write_zeroes() && is_long_zero(&payload) { Payload::Zeroes } else { payload };
    Action::Write(Write { payload, copy: None, is_volatile: export.has_flush(), fua: export.needs_fua() })
}

/// Returns `len` bytes of the segments after the first `skip`.
pub(crate) fn sub_segments(segments: &[Segment], mut skip: usize, mut len: usize) -> SmallVec<[Segment; 1]> {
    let mut part = SmallVec::new();
    for segment in segments {
        let from = skip.min(segment.len);
        let take = len.min(segment.len - from);
        if take > 0 {
            part.push(Segment { buf: Arc::clone(&segment.buf), start: segment.start + from, len: take });
        }
        skip -= from;
        len -= take;
    }
    part
}

/// Returns `len` bytes of the slices after the first `skip`.
pub(crate) fn gather(bufs: &[IoSlice<'_>], mut skip: usize, len: usize) -> Buffer {
    let mut left = len;
    let parts = bufs.iter().map(|buf| {
        let from = skip.min(buf.len());
        let take = left.min(buf.len() - from);
        skip -= from;
        left -= take;
        &buf[from..from + take]
    });
    Buffer::copy(len, parts)
}

fn is_long_zero(payload: &Payload) -> bool {
    let parts = payload.parts();
    parts.iter().map(|part| part.len()).sum::<usize>() >= ZEROES_FROM
        && parts.iter().all(|part| is_zero(part))
}

fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    chunks.iter().all(|chunk| chunk.iter().fold(0, |any, byte| any | byte) == 0)
        && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parext4_device::AlignedBuf;

    #[test]
    fn pieces_cover_a_range() {
        let mut found = Vec::new();
        pieces(100, 1050, 500, |offset, len| found.push((offset, len)));
        assert_eq!(found, [(100, 500), (600, 500), (1100, 50)]);
        pieces(0, 0, 500, |_, _| panic!("a piece of nothing"));
    }

    #[test]
    fn parts_of_vectors_are_their_bytes() {
        let buf = Arc::new(AlignedBuf::from_slice(&(0..=255).cycle().take(1024).collect::<Vec<u8>>()));
        let part = |start, len| Segment { buf: Arc::clone(&buf), start, len };
        let segments = [part(10, 20), part(100, 0), part(200, 30)];
        let all = Payload::Segments(segments.iter().cloned().collect()).parts().concat();
        let slices: Vec<_> = [&buf[10..30], &buf[200..230]].into_iter().map(IoSlice::new).collect();
        for skip in 0..50 {
            for len in 0..=50 - skip {
                let sub = Payload::Segments(sub_segments(&segments, skip, len)).parts().concat();
                assert_eq!(sub, all[skip..skip + len]);
                assert_eq!(gather(&slices, skip, len)[..], all[skip..skip + len]);
            }
        }
    }

    #[test]
    fn long_zeros_are_found() {
        let payload = |bytes: Vec<u8>| {
            let len = bytes.len();
            Payload::Copy(Arc::new(Buffer::copy(len, [&bytes[..]])), 0, len)
        };
        assert!(is_long_zero(&payload(vec![0; ZEROES_FROM])));
        assert!(!is_long_zero(&payload(vec![0; ZEROES_FROM - 1])));
        for at in [0, 63, 64, ZEROES_FROM, ZEROES_FROM + 6] {
            let mut bytes = vec![0; ZEROES_FROM + 7];
            bytes[at] = 1;
            assert!(!is_long_zero(&payload(bytes)), "{at}");
        }
    }
}

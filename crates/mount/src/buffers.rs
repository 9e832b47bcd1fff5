//! Buffers of reads and writes that are handed to another thread.

use parext4::device::AlignedBuf;
use parking_lot::Mutex;

/// Smaller ones cost little.
const LARGE: usize = 256 << 10;
/// As the device takes it in one part: a huge page, where the system gives some. No request is larger.
const BYTES: usize = 2 << 20;
/// So many are kept while they are not used.
const SPARE: usize = 16;

/// Keeps large buffers to use them again: to get them from the system, with zeros, takes as long as to read them. Other
/// than from a [`BufferPool`](parext4::device::BufferPool), threads take what others have given back.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<AlignedBuf>>);

impl Buffers {
    /// A buffer of at least `len` bytes, with zeros or what was last in it.
    pub fn take(&self, len: usize) -> AlignedBuf {
        if len < LARGE {
            return AlignedBuf::zeroed(len.next_multiple_of(512));
        }
        let spare = self.0.lock().pop();
        spare
            .filter(|spare| spare.len() >= len)
            .unwrap_or_else(|| AlignedBuf::zeroed(BYTES.max(len.next_multiple_of(512))))
    }

    /// Takes back what is not used any more.
    pub fn give_back(&self, buf: AlignedBuf) {
        let mut spare = self.0.lock();
        if buf.len() == BYTES && spare.len() < SPARE {
            spare.push(buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_buffers_are_used_again_and_few_are_kept() {
        let buffers = Buffers::default();
        let mut large = buffers.take(1 << 20);
        (large[0], large[BYTES - 1]) = (1, 1);
        buffers.give_back(large);
        assert_eq!(buffers.take(4096).len(), 4096);
        assert_eq!(buffers.take(LARGE)[BYTES - 1], 1);
        assert_eq!(buffers.take(BYTES + 1).len(), BYTES + 512);
        let taken: Vec<_> = (0..2 * SPARE).map(|_| buffers.take(LARGE)).collect();
        taken.into_iter().for_each(|buf| buffers.give_back(buf));
        buffers.give_back(buffers.take(100));
        assert_eq!(buffers.0.lock().len(), SPARE);
    }
}

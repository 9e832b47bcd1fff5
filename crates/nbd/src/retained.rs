//! Writes that the server has answered but may lose: the newest bytes of each range, until a flush
//! covers them.
//!
//! 1. The receiver adds a write before the write's owner learns of its answer.
//! 2. A flush carries the number of the newest write that was added before the flush was sent.
//! 3. The answer of the flush removes all writes up to that number.
//! 4. If the server refuses a flush, it may have lost any of the writes, so no later flush succeeds
//!    (I8).
//! 5. The client sends the remaining writes first on a new connection.
//!
//! Invariant: ranges do not overlap, because a newer write removes the bytes of older ones. So the
//! order of step 5 does not matter.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::command::Payload;
use crate::error;

/// Memory of an entry without its bytes, in bytes: about the size of its map slot and its
/// allocations. Without it, entries for zeros would count nothing, and their number would have no
/// limit.
const ENTRY: usize = 256;

/// A write, or the part of it that newer writes left.
#[derive(Debug)]
pub(crate) struct RetainedWrite {
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
    pub(crate) payload: Payload,
    /// Number of the write. A flush covers the write if all writes up to this number were answered
    /// before the flush was sent.
    pub(crate) number: u64,
}

/// Answered writes that no answered flush covers.
#[derive(Debug)]
pub(crate) struct Retained {
    state: Mutex<RetainedWrites>,
    /// Limit of `held`, in bytes. At the limit no further write may be sent.
    limit: usize,
}

#[derive(Debug, Default)]
struct RetainedWrites {
    /// Entries by offset of the first byte.
    writes: BTreeMap<u64, Entry>,
    /// Bytes of memory of all entries.
    held: usize,
    /// Number of the newest write.
    newest: u64,
    /// Whether a flush that the client makes by itself is in flight.
    is_flushing: bool,
    /// The server's refusal of a flush.
    failure: Option<io::Error>,
}

#[derive(Clone, Debug)]
struct Entry {
    end: u64,
    number: u64,
    payload: Payload,
    /// Bytes of memory of the write's copy. All entries that remain of the write share this value.
    memory: Arc<usize>,
}

impl Retained {
    pub(crate) fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), limit }
    }

    /// Adds a write that the server has answered.
    pub(crate) fn add(&self, offset: u64, len: u64, payload: Payload) {
        let mut state = self.state.lock();
        let end = offset + len;
        state.cut(offset, end);
        state.newest += 1;
        let memory = Arc::new(memory(&payload));
        state.held += *memory;
        let number = state.newest;
        state.insert(offset, Entry { end, number, payload, memory });
    }

    /// Returns the number of the newest write. A flush that is sent after this call covers all
    /// writes up to it.
    pub(crate) fn mark(&self) -> u64 {
        self.state.lock().newest
    }

    /// Removes the writes up to `mark`, which a flush has made durable.
    pub(crate) fn flushed(&self, mark: u64) {
        let mut state = self.state.lock();
        let RetainedWrites { writes, held, is_flushing, .. } = &mut *state;
        *is_flushing = false;
        writes.retain(|_, entry| {
            let keep = entry.number > mark;
            if !keep {
                *held -= entry.freed();
            }
            keep
        });
    }

    /// Records that the server refused a flush.
    pub(crate) fn flush_failed(&self, why: &io::Error) {
        self.state.lock().failure.get_or_insert_with(|| error::copy(why));
    }

    /// Returns the error of the first flush that the server refused.
    pub(crate) fn check(&self) -> io::Result<()> {
        match &self.state.lock().failure {
            Some(why) => Err(error::copy(why)),
            None => Ok(()),
        }
    }

    /// Returns whether another write may be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.state.lock().held < self.limit
    }

    /// Returns true if the caller must flush soon, so that writes need not wait later: half of the
    /// limit is reached, and no other caller was told to flush.
    pub(crate) fn begin_flush(&self) -> bool {
        let mut state = self.state.lock();
        let begin = state.held >= self.limit / 2 && !state.is_flushing && state.failure.is_none();
        state.is_flushing |= begin;
        begin
    }

    /// Returns the number of bytes that the server may lose.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().writes.iter().map(|(offset, entry)| entry.end - offset).sum()
    }

    /// Returns all writes, the oldest first.
    pub(crate) fn all(&self) -> Vec<RetainedWrite> {
        let state = self.state.lock();
        let write = |(&offset, entry): (&u64, &Entry)| {
            let (len, payload) = (entry.end - offset, entry.payload.clone());
            RetainedWrite { offset, len, payload, number: entry.number }
        };
        let mut all: Vec<_> = state.writes.iter().map(write).collect();
        all.sort_unstable_by_key(|write| write.number);
        all
    }
}

impl RetainedWrites {
    fn insert(&mut self, offset: u64, entry: Entry) {
        self.held += ENTRY;
        self.writes.insert(offset, entry);
    }

    /// Removes the bytes from `start` to `end` of all entries.
    fn cut(&mut self, start: u64, end: u64) {
        // Ranges do not overlap, so at most one entry begins before the range and reaches into it.
        let first = self.writes.range(..start).next_back().map_or(start, |(&at, _)| at);
        let hit: Vec<u64> =
            self.writes.range(first..end).filter(|(_, entry)| entry.end > start).map(|(&at, _)| at).collect();
        for at in hit {
            let Some(entry) = self.writes.remove(&at) else { continue };
            if at < start {
                self.insert(at, entry.part(at, at, start));
            }
            if entry.end > end {
                self.insert(end, entry.part(at, end, entry.end));
            }
            self.held -= entry.freed();
        }
    }
}

impl Entry {
    /// Returns the part from `start` to `end` of the entry, which begins at `at`.
    fn part(&self, at: u64, start: u64, end: u64) -> Self {
        let payload = match &self.payload {
            Payload::Copy(bytes, first, _) => {
                let skip = (start - at) as usize;
                Payload::Copy(Arc::clone(bytes), first + skip, (end - start) as usize)
            }
            other => other.clone(),
        };
        Self { end, number: self.number, payload, memory: Arc::clone(&self.memory) }
    }

    /// Returns the bytes of memory that are freed with the entry. The copy is freed with the last
    /// entry of its write.
    fn freed(&self) -> usize {
        if Arc::strong_count(&self.memory) == 1 { ENTRY + *self.memory } else { ENTRY }
    }
}

/// Returns the bytes of memory of a copy.
fn memory(payload: &Payload) -> usize {
    match payload {
        Payload::Copy(bytes, ..) => bytes.memory(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    fn write(retained: &Retained, offset: u64, len: usize, byte: u8) {
        let copy = Buffer::copy(len, [&vec![byte; len][..]]);
        retained.add(offset, len as u64, Payload::Copy(Arc::new(copy), 0, len));
    }

    /// Returns the retained bytes as a map of all bytes below 100.
    fn contents(retained: &Retained) -> Vec<u8> {
        let mut contents = vec![0; 100];
        for RetainedWrite { offset, len, payload, .. } in retained.all() {
            let range = offset as usize..(offset + len) as usize;
            assert!(contents[range.clone()].iter().all(|&byte| byte == 0), "ranges overlap");
            contents[range].copy_from_slice(&payload.parts().concat());
        }
        contents
    }

    #[test]
    fn newer_writes_replace_the_bytes_of_older_ones() {
        let retained = Retained::new(1000);
        let mut expected = vec![0; 100];
        for (nth, (offset, len)) in
            [(10, 20), (20, 20), (0, 15), (12, 4), (5, 60), (30, 1), (64, 2), (0, 100), (3, 3)]
                .into_iter()
                .enumerate()
        {
            let byte = nth as u8 + 1;
            write(&retained, offset as u64, len, byte);
            expected[offset..offset + len].fill(byte);
            assert_eq!(contents(&retained), expected, "after write {nth}");
        }
        retained.flushed(retained.mark());
        assert_eq!((retained.bytes(), retained.state.lock().held), (0, 0));
    }

    #[test]
    fn a_flush_covers_what_was_answered_before_it() {
        let retained = Retained::new(1000);
        write(&retained, 0, 10, 1);
        let mark = retained.mark();
        write(&retained, 5, 10, 2);
        retained.flushed(mark);
        assert_eq!(contents(&retained)[..16], [0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0]);
    }

    #[test]
    fn memory_counts_until_the_last_part_is_removed() {
        let retained = Retained::new(100 + 3 * ENTRY);
        let held = || retained.state.lock().held;
        write(&retained, 0, 60, 1);
        assert!(retained.has_room() && !retained.begin_flush());
        write(&retained, 10, 40, 2);
        // Two parts are left of the first write.
        assert_eq!(held(), 100 + 3 * ENTRY);
        assert!(!retained.has_room() && retained.begin_flush() && !retained.begin_flush());
        write(&retained, 0, 10, 3);
        write(&retained, 50, 10, 3);
        assert_eq!(held(), 60 + 3 * ENTRY);
        retained.flushed(retained.mark());
        assert_eq!(held(), 0);
    }

    #[test]
    fn zeros_are_limited() {
        let retained = Retained::new(4096);
        assert!(retained.has_room());
        (0..100).for_each(|nth| retained.add(nth * 512, 512, Payload::Zeroes));
        assert!(!retained.has_room());
    }
}

//! Copies between byte slices and the words of a page, which other threads may access at the same
//! time.
//!
//! All accesses are relaxed atomics. The byte ranges that callers hold decide which bytes a thread
//! may read or change. Invariant: a word that a copy covers in part is changed in one step, so
//! bytes that other threads write into that word are kept.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parext4_device::shared;

const WORD: usize = size_of::<u64>();

/// Copies `out.len()` bytes out, from byte `at` on.
///
/// # Panics
/// If the words end before that.
pub(super) fn load(words: &[AtomicU64], at: usize, out: &mut [u8]) {
    let (head, body) = out.split_at_mut(head(at, out.len()));
    if !head.is_empty() {
        let word = words[at / WORD].load(Relaxed).to_ne_bytes();
        head.copy_from_slice(&word[at % WORD..][..head.len()]);
    }
    let first = (at + head.len()) / WORD;
    let (body, tail) = body.split_at_mut(body.len() / WORD * WORD);
    let whole = &words[first..][..body.len() / WORD];
    shared::load_words(whole, body);
    if !tail.is_empty() {
        let word = words[first + whole.len()].load(Relaxed).to_ne_bytes();
        tail.copy_from_slice(&word[..tail.len()]);
    }
}

/// Copies `data` in, from byte `at` on.
///
/// # Panics
/// If the words end before that.
pub(super) fn store(words: &[AtomicU64], at: usize, data: &[u8]) {
    let (head, body) = data.split_at(head(at, data.len()));
    if !head.is_empty() {
        merge(&words[at / WORD], at % WORD, head);
    }
    let first = (at + head.len()) / WORD;
    let (body, tail) = body.split_at(body.len() / WORD * WORD);
    let whole = &words[first..][..body.len() / WORD];
    shared::store_words(whole, body);
    if !tail.is_empty() {
        merge(&words[first + whole.len()], 0, tail);
    }
}

/// Overwrites `len` bytes with zeros, from byte `at` on.
///
/// # Panics
/// If the words end before that.
pub(super) fn zero(words: &[AtomicU64], at: usize, len: usize) {
    const ZEROS: [u8; 512 * WORD] = [0; 512 * WORD];
    let mut done = 0;
    while done < len {
        let part = (len - done).min(ZEROS.len());
        store(words, at + done, &ZEROS[..part]);
        done += part;
    }
}

/// Returns the number of bytes, of `len` from byte `at` on, that lie before the first whole word.
fn head(at: usize, len: usize) -> usize {
    (at.next_multiple_of(WORD) - at).min(len)
}

fn merge(word: &AtomicU64, at: usize, bytes: &[u8]) {
    let mut mask = [0; WORD];
    let mut value = [0; WORD];
    mask[at..][..bytes.len()].fill(0xff);
    value[at..][..bytes.len()].copy_from_slice(bytes);
    let (mask, value) = (u64::from_ne_bytes(mask), u64::from_ne_bytes(value));
    let _ = word.fetch_update(Relaxed, Relaxed, |old| Some(old & !mask | value));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Vec<AtomicU64> {
        let word = |word: &[u8; WORD]| AtomicU64::new(u64::from_ne_bytes(*word));
        bytes.as_chunks::<WORD>().0.iter().map(word).collect()
    }

    fn all(words: &[AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect()
    }

    #[test]
    fn any_part_is_copied_and_nothing_beside_it() {
        let old: Vec<u8> = (0..160).collect();
        for at in (0..20).chain(60..70) {
            for len in (0..40).chain(62..90) {
                let memory = words(&old);
                let mut out = vec![0; len];
                load(&memory, at, &mut out);
                assert_eq!(out, old[at..at + len], "load {len} at {at}");

                let (mut stored, mut zeroed) = (old.clone(), old.clone());
                stored[at..at + len].fill(0xaa);
                store(&memory, at, &vec![0xaa; len]);
                assert_eq!(all(&memory), stored, "store {len} at {at}");

                let memory = words(&old);
                zeroed[at..at + len].fill(0);
                zero(&memory, at, len);
                assert_eq!(all(&memory), zeroed, "zero {len} at {at}");
            }
        }
    }

    #[test]
    fn neighbours_in_a_word_keep_what_they_write() {
        let memory = &words(&[0; WORD]);
        std::thread::scope(|scope| {
            for at in 0..WORD {
                scope.spawn(move || {
                    for value in 0..=200 {
                        store(memory, at, &[value]);
                        let mut read = [0];
                        load(memory, at, &mut read);
                        assert_eq!(read, [value]);
                    }
                });
            }
        });
        assert_eq!(all(memory), [200; WORD]);
    }
}

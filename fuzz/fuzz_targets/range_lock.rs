//! Operations on a range lock, compared with its definition.

#![no_main]

use rangelock::oracle::{compare, decode};

libfuzzer_sys::fuzz_target!(|data: &[u8]| compare(decode(data)));

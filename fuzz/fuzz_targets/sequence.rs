//! Operations on a volume, compared with a model, with crashes in between.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| testkit::sequence::run(data));

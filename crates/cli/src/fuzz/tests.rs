//! The inputs that the fuzzer keeps.

use super::run;

#[test]
fn the_parsers_accept_or_refuse_the_inputs_of_the_fuzzer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/inputs/arguments");
    for entry in std::fs::read_dir(folder).unwrap() {
        run(&std::fs::read(entry.unwrap().path()).unwrap());
    }
}

//! The inputs that the fuzzer keeps.

use super::serve;

#[test]
fn the_server_answers_all_requests_of_the_fuzzer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/inputs/requests");
    for entry in std::fs::read_dir(folder).unwrap() {
        serve(&std::fs::read(entry.unwrap().path()).unwrap());
    }
}

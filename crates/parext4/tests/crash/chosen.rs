//! The sequences that the fuzz target `sequence` keeps: operations compared with a model, with
//! crashes in between.

#[test]
fn sequences_of_the_fuzzer_survive_their_crashes() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/inputs/sequence");
    for entry in std::fs::read_dir(folder).unwrap() {
        testkit::sequence::run(&std::fs::read(entry.unwrap().path()).unwrap());
    }
}

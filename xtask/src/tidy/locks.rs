//! Rule: the model checker can replace the locks of the engine and of the mount.
//!
//! The mount's come from the crate `parext4_sync`. The engine's come from its module `sync`, where
//! each lock has a rank, which debug builds check.

use super::Finding;
use super::source::{CrateTree, Use};

const ENGINE: &str = "crates/parext4";
const MOUNT: &str = "crates/mount";

/// Types of the standard library that block a thread until another one acts.
const BLOCKING: &[&str] = &["Mutex", "RwLock", "Condvar", "Barrier", "Once"];

/// Returns a finding for each lock or condition variable from elsewhere. Tests may use any.
pub fn check(crates: &[CrateTree]) -> Vec<Finding> {
    let checked = crates.iter().filter(|tree| [ENGINE, MOUNT].contains(&tree.folder.as_str()));
    checked.flat_map(of_crate).collect()
}

fn of_crate(tree: &CrateTree) -> impl Iterator<Item = Finding> {
    let has_ranks = tree.folder == ENGINE;
    let advice = if has_ranks { "crate::sync, with a rank" } else { "parext4_sync" };
    let uses = tree.uses.iter().filter(move |(_, found)| !(has_ranks && is_sync(found)));
    uses.filter(move |(_, found)| is_foreign_lock(found, has_ranks)).map(move |(file, found)| Finding {
        file: file.clone(),
        line: found.line,
        rule: "lock",
        message: format!(
            "{} is unknown to the models or to the lock order; use {advice}",
            found.relative().unwrap_or_default().join("::")
        ),
    })
}

fn is_sync(found: &Use) -> bool {
    found.from.0.first().is_some_and(|module| module == "sync")
}

fn is_foreign_lock(found: &Use, has_ranks: bool) -> bool {
    match found.relative().unwrap_or_default() {
        [std, sync, name, ..] if std == "std" && sync == "sync" => BLOCKING.contains(&name.as_str()),
        [krate, name, ..] if krate == "parext4_sync" => has_ranks && BLOCKING.contains(&name.as_str()),
        [krate, ..] => krate == "parking_lot",
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::source::{CrateTree, Rust};

    fn findings(path: &str, text: &str) -> Vec<String> {
        let (folder, _) = path.split_once("/src").unwrap();
        let tree = CrateTree::read(folder, &[Rust::read(path, text).unwrap()]);
        check(&[tree]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_lock_from_elsewhere_is_found() {
        let text = "use std::sync::{Arc, Mutex};\nfn f() { parking_lot::RwLock::new(()); }\n";
        let found = findings("crates/parext4/src/a.rs", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/parext4/src/a.rs:1: lock: std::sync::Mutex"), "{found:?}");
        assert!(found[1].starts_with("crates/parext4/src/a.rs:2: lock: parking_lot::RwLock"), "{found:?}");
    }

    #[test]
    fn locks_without_a_rank_are_found_in_the_engine() {
        let text = "use parext4_sync::{Mutex, thread};";
        assert_eq!(findings("crates/parext4/src/a.rs", text).len(), 1);
        assert!(findings("crates/mount/src/a.rs", text).is_empty());
        assert_eq!(findings("crates/mount/src/sync.rs", "use std::sync::Mutex;").len(), 1);
    }

    #[test]
    fn the_module_sync_and_tests_may_use_any() {
        let text = "use std::sync::Mutex;";
        assert!(findings("crates/parext4/src/sync.rs", text).is_empty());
        assert!(
            findings("crates/parext4/src/a.rs", "#[cfg(test)] mod tests { use std::sync::Mutex; }")
                .is_empty()
        );
        assert!(findings("crates/parext4/src/a.rs", "use std::sync::{Arc, atomic::AtomicU64};").is_empty());
    }
}

//! Rule: the locks of the engine and of the mount come from the `sync` module of their crate.
//!
//! There each lock has a rank, which debug builds check, and the model checker can replace it.

use super::Finding;
use super::source::{CrateTree, Use};

/// The crates with a `sync` module.
const CRATES: &[&str] = &["crates/parext4", "crates/mount"];

/// Types of the standard library that block a thread until another one acts.
const BLOCKING: &[&str] = &["Mutex", "RwLock", "Condvar", "Barrier", "Once"];

/// Returns a finding for each lock or condition variable from elsewhere. Tests may use any.
pub fn check(crates: &[CrateTree]) -> Vec<Finding> {
    let checked = crates.iter().filter(|tree| CRATES.contains(&tree.folder.as_str()));
    let uses = checked.flat_map(|tree| &tree.uses);
    let foreign = uses.filter(|(_, found)| !is_sync(found) && is_foreign_lock(found));
    let findings = foreign.map(|(file, found)| Finding {
        file: file.clone(),
        line: found.line,
        rule: "lock",
        message: format!(
            "{} is unknown to the lock order and to the models; use crate::sync, with a rank",
            found.relative().unwrap_or_default().join("::")
        ),
    });
    findings.collect()
}

fn is_sync(found: &Use) -> bool {
    found.from.0.first().is_some_and(|module| module == "sync")
}

fn is_foreign_lock(found: &Use) -> bool {
    match found.relative().unwrap_or_default() {
        [std, sync, name, ..] if std == "std" && sync == "sync" => BLOCKING.contains(&name.as_str()),
        [krate, ..] => krate == "parking_lot",
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::source::{CrateTree, Rust};

    fn findings(path: &str, text: &str) -> Vec<String> {
        let tree = CrateTree::read("crates/parext4", &[Rust::read(path, text).unwrap()]);
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

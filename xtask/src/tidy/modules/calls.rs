//! Rule: a module calls only methods that modules on lower lines of the declared order define.
//!
//! A method needs no import. So where a type lies low and an `impl` block of it high, a module
//! between the two can call upward, unseen by the order of imports. This rule resolves calls by the
//! name of the method:
//!
//! - `self.name(...)`, `Self::name` and `Type::name` mean the method of that type;
//! - `value.name(...)`, and a method that a type has through `Deref`, may mean the methods of that
//!   name of all types that the module can have a value of, because they are not above it.
//!
//! A call is a finding if each method that it may mean is above the module. The rule does not know
//! the types of values, so it skips a call if a lower module has a method of the name, if a trait
//! has one, or if several types have the name of the type.

use std::collections::BTreeMap;

use super::declared::{FILE, Order};
use crate::tidy::Finding;
use crate::tidy::source::{Call, Candidate, CrateTree, Path};

/// Returns a finding for each method that a module of `tree` calls against `order`, at its first
/// call. `used` are the crates that `tree` imports.
pub fn check(tree: &CrateTree, order: &Order, used: &[&CrateTree]) -> Vec<Finding> {
    let mut findings = BTreeMap::new();
    for (file, call) in &tree.calls {
        let candidates = tree.methods.candidates(call, |name| used.iter().any(|used| used.methods.has(name)));
        if let Some((method, from, to)) = upward(call, &candidates, order) {
            let message = message(&from, &to, &method, order);
            let finding = Finding { file: file.clone(), line: call.line, rule: "call", message };
            findings.entry((from, method)).or_insert(finding);
        }
    }
    findings.into_values().collect()
}

/// Returns the method as `Type::name`, the module that calls it and the one that defines it, if
/// each method that the call may mean is above the module.
fn upward(call: &Call, candidates: &[Candidate<'_>], order: &Order) -> Option<(String, Path, Path)> {
    let has_value = |method: &&Candidate<'_>| order.against(&call.from, method.home).is_none();
    let mut first = None;
    for method in candidates.iter().filter(has_value) {
        let (from, to) = order.against(&call.from, method.module)?;
        first.get_or_insert((format!("{}::{}", method.owner, call.name), from, to));
    }
    first
}

fn message(from: &Path, to: &Path, method: &str, order: &Order) -> String {
    format!(
        "{from} calls {method} of {to}, which {FILE} does not declare below it (lines {} and {}); \
         move the method to a lower module or pass it in",
        order.layers[from], order.layers[to]
    )
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::modules::declared;
    use crate::tidy::source::{CrateTree, Rust};

    const ORDER: &str = "```modules x\ntop\nhigh high::a\nhigh::b\nmiddle\nlow\n```\n";
    const LOW: &str = "pub struct Low; impl Low { pub fn of_low(&self) {} }";

    /// Checks a crate with the modules `top`, `high`, `middle` and `low`. The type `Low` of the
    /// lowest one has methods in `high`.
    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let read = |&(module, text): &(&str, &str)| Rust::read(&format!("x/src/{module}.rs"), text).unwrap();
        let files: Vec<_> = files.iter().chain([&("low", LOW)]).map(read).collect();
        let used =
            [Rust::read("used/src/lib.rs", "pub struct Used; impl Used { pub fn of_used(&self) {} }")
                .unwrap()];
        let (tree, used) = (CrateTree::read("x", &files), CrateTree::read("used", &used));
        let order = &declared::read(ORDER)["x"];
        check(&tree, order, &[&used]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_call_of_a_method_from_above_is_found_once() {
        let found = findings(&[
            ("high", "impl Low { fn up(&self) {} fn up_too() {} }"),
            ("middle", "fn f(low: &Low) {\nlow.up();\nlow.up();\nLow::up_too() }"),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("x/src/middle.rs:2: call: middle calls Low::up of high"), "{found:?}");
        assert!(
            found[1].starts_with("x/src/middle.rs:4: call: middle calls Low::up_too of high"),
            "{found:?}"
        );
    }

    #[test]
    fn a_call_downward_passes() {
        let found = findings(&[
            ("top", "fn f(low: &Low) { low.up(); low.of_low() }"),
            ("high", "impl Low { fn up(&self) { self.of_low() } fn again(&self) { self.up() } }"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_call_of_self_means_the_type_of_the_block() {
        let high = "impl Low { fn up(&self) {} }";
        let middle = "struct M; impl M { fn up(&self) {} fn f(&self) { self.up() } }\n\
                      impl Low { fn g(&self) { self.up() } }";
        let found = findings(&[("high", high), ("middle", middle)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("x/src/middle.rs:2:"), "{found:?}");
    }

    #[test]
    fn a_name_with_several_meanings_is_skipped() {
        let high = "impl Low { fn up(&self) {} fn of_trait(&self) {} fn of_used(&self) {} }";
        let middle = "struct M; impl M { fn up(&self) {} } trait T { fn of_trait(&self); }\n\
                      fn f(m: &M) { m.up(); m.of_trait(); m.field.of_used() }";
        assert!(findings(&[("high", high), ("middle", middle)]).is_empty());
    }

    #[test]
    fn a_module_has_no_value_of_a_type_above_it() {
        let found = findings(&[
            ("high", "struct High; mod a; mod b;"),
            ("high/a", "impl High { fn up(&self) {} }"),
            ("high/b", "fn f(high: &High) { high.up() }"),
            ("middle", "fn f(text: &str) { text.up() }"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("x/src/high/b.rs:1: call: high::b calls High::up of high::a"),
            "{found:?}"
        );
    }
}

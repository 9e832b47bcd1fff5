//! Changes of small sources, and what is left alone.

use super::changes;
use crate::mutant::{Mutant, SyntaxKind};
use crate::render::render;

/// Returns the changes of a source as `function: original → replacement`.
fn found(source: &str) -> Vec<String> {
    let found = changes(source, &["plain"]).unwrap();
    let words = found
        .changes
        .into_iter()
        .map(|(_, change)| format!("{}: {} → {}", change.function, change.original, change.replacement));
    words.collect()
}

#[test]
fn conditions_are_negated_and_operators_replaced() {
    let source = "impl T { fn f(&self) -> bool { if a.b() { x + 1; } if c && d { } !(p < q) } }";
    assert_eq!(
        found(source),
        [
            "T::f: body → return true;",
            "T::f: body → return false;",
            "T::f: a.b() → !(a.b())",
            "T::f: x + 1 → x - 1",
            "T::f: c && d → !(c && d)",
            "T::f: c && d → c || d",
            "T::f: !(p < q) → (p < q)",
            "T::f: p < q → p <= q",
            "T::f: p < q → p >= q",
        ]
    );
}

#[test]
fn statements_without_value_are_removed() {
    let source = "fn f() -> u8 { a.notify(); let _ = g(); if c { x = 1 } if c { return 3; } match y { 0 => b.c(), _ => {} } d.e() }";
    assert_eq!(
        found(source),
        [
            "f: body → return 0;",
            "f: body → return 1;",
            "f: a.notify(); → {}",
            "f: let _ = g(); → {}",
            "f: c → !(c)",
            "f: x = 1 → {}",
            "f: c → !(c)",
            "f: return 3; → {}",
            "f: b.c() → {}",
        ]
    );
}

#[test]
fn errors_are_ignored() {
    let source = "fn f() -> Result<(), E> { a.b()?; let x = c()?; d.e() }";
    assert_eq!(
        found(source),
        [
            "f: body → return Ok(());",
            "f: a.b()?; → {}",
            "f: a.b()?; → let _ = a.b();",
            "f: d.e() → let _ = d.e(); Ok(())",
        ]
    );
}

#[test]
fn guards_of_arms_and_of_planted_faults_are_changed() {
    let source = "fn f() -> T { match x { Some(y) if y == 2 => a, _ => guarded!(Fault::A, b > c, d == e) } }";
    assert_eq!(
        found(source),
        [
            "f: y == 2 → true",
            "f: y == 2 → false",
            "f: y == 2 → y != 2",
            "f: b > c → b >= c",
            "f: b > c → b <= c",
        ]
    );
}

#[test]
fn orderings_are_weakened() {
    let source = "fn f() -> T { a.load(Ordering::Acquire) | b.swap(1, Ordering::Relaxed) }";
    assert_eq!(
        found(source),
        [
            "f: a.load(Ordering::Acquire) | b.swap(1, Ordering::Relaxed) → a.load(Ordering::Acquire) & b.swap(1, Ordering::Relaxed)",
            "f: a.load(Ordering::Acquire) → a.load(Ordering::Relaxed)",
        ]
    );
}

#[test]
fn constants_tests_and_configuration_are_left_alone() {
    let source = "const A: u8 = 1 + 2; const fn g() -> bool { a == b } #[cfg(test)] mod tests { fn f() { a.b(); c.d(); } }
        #[cfg(any(test, shuttle))] fn h() -> bool { a }
        impl fmt::Debug for T { fn fmt(&self) -> bool { a } }
        fn f() -> T { debug_assert!(a == b); if cfg!(shuttle) && panicking() { return; } if OFF { return; } if Fault::A.is_planted() && d { a.b(); } let x: [u8; 1 + 2] = [0; 1 + 2]; x }
        const fn plain() -> T { b == c }";
    assert_eq!(found(source), ["plain: b == c → b != c"]);
}

#[test]
fn a_rendered_source_has_all_changes() {
    let source = "const fn plain(a: u8) { if !(a == 1) { b(); } }";
    let found = changes(source, &["plain"]).unwrap();
    let mutants: Vec<Mutant> = (1..)
        .zip(found.changes)
        .map(|(number, (line, change))| Mutant { number, file: String::new(), line, change, nth: 1 })
        .collect();
    let places: Vec<SyntaxKind> = mutants.iter().map(|mutant| mutant.change.place).collect();
    assert_eq!(
        places,
        [SyntaxKind::Body, SyntaxKind::Expression, SyntaxKind::Expression, SyntaxKind::Statement]
    );
    let all: Vec<&Mutant> = mutants.iter().collect();
    let rendered = render(source, &all, &found.removed);
    let expected = "§ fn plain(a: u8) {if is(1) { return; }  if (if is(2) { (a == 1) } else { !((if is(3) { (a) != (1) } else { a == 1 })) }) \
                    { if is(4) {  } else { b(); } } }";
    let text = rendered.text.replace("crate::mutant_switch::", "");
    assert_eq!(text, expected.replace('§', ""));
    // An error in the code of a mutant belongs to it, and an error beside it to all that change the
    // place.
    let at = |code: &str| rendered.text.find(code).map(|at| at..at + 1).unwrap();
    assert_eq!(rendered.blame(&at("(a) != ")).into_iter().collect::<Vec<_>>(), [3]);
    assert_eq!(rendered.blame(&at("b();")).into_iter().collect::<Vec<_>>(), [4]);
    assert!(rendered.blame(&at("fn plain")).is_empty());
    syn::parse_file(&rendered.text).unwrap();
}

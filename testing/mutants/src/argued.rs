//! The list of mutants that no test can notice, each with an argument: `argued.md` of this crate.
//!
//! A heading of level 2 names a source, one of level 3 a function, and an entry has the form ``-
//! `original` → `replacement`: argument``, or ``- `original` → `replacement` (2): argument`` for
//! the second equal change of the function.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::mutant::Key;

/// Reads the list.
///
/// # Errors
/// If an entry does not have the form, stands twice, or gives no argument.
pub fn read(text: &str) -> Result<BTreeMap<Key, String>> {
    let (mut file, mut function) = (String::new(), String::new());
    let mut list = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(name) = line.strip_prefix("### ") {
            name.clone_into(&mut function);
        } else if let Some(name) = line.strip_prefix("## ") {
            name.clone_into(&mut file);
        } else if let Some(entry) = line.strip_prefix("- `") {
            let (original, replacement, nth, argument) = parse(entry)
                .with_context(|| format!("line {} of the list has another form: {line}", index + 1))?;
            let key = Key {
                file: file.clone(),
                function: function.clone(),
                original: original.to_owned(),
                replacement: replacement.to_owned(),
                nth,
            };
            ensure!(!argument.is_empty(), "line {} of the list has no argument", index + 1);
            ensure!(
                list.insert(key, argument.to_owned()).is_none(),
                "line {} of the list stands twice",
                index + 1
            );
        }
    }
    Ok(list)
}

fn parse(entry: &str) -> Option<(&str, &str, u32, &str)> {
    let (original, rest) = entry.split_once("` → `")?;
    let (replacement, rest) = rest.split_once('`')?;
    let (nth, argument) = rest.split_once(':')?;
    let nth = match nth.trim() {
        "" => 1,
        nth => nth.strip_prefix('(')?.strip_suffix(')')?.parse().ok()?,
    };
    Some((original, replacement, nth, argument.trim()))
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::mutant::Key;

    #[test]
    fn entries_belong_to_the_headings_before_them() {
        let text = "# List\n\nText.\n\n## a.rs\n\n### T::f\n\n- `a || b` → `a && b`: it is: equal\n- `x` → `{}` (2): no effect\n";
        let key = |original: &str, replacement: &str, nth| Key {
            file: "a.rs".to_owned(),
            function: "T::f".to_owned(),
            original: original.to_owned(),
            replacement: replacement.to_owned(),
            nth,
        };
        let list: Vec<_> = read(text).unwrap().into_iter().collect();
        let expected = [(key("a || b", "a && b", 1), "it is: equal"), (key("x", "{}", 2), "no effect")];
        assert_eq!(list, expected.map(|(key, argument)| (key, argument.to_owned())));
    }

    #[test]
    fn entries_without_argument_and_doubles_are_refused() {
        for text in ["- `a` → `b`:", "- `a` → `b`", "- `a` → `b`: c\n- `a` → `b`: d", "- `a` → `b` (x): c"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}

//! The mutated tree: a copy of the workspace whose chosen sources have all their changes.
//!
//! A file whose contents are the same is not written again, so cargo builds only what has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders that are not copied: build outputs, history, and inputs of the fuzzer that are not in
/// the repository.
const LEFT_OUT: &[&str] = &["target", ".git", "corpus", "artifacts", "seeds"];

/// Makes `to` a copy of `from`, except for the files whose contents `changed` has, by their paths.
/// These may be new files.
pub fn copy(from: &Path, to: &Path, changed: &BTreeMap<String, String>) -> io::Result<()> {
    let mut kept = BTreeSet::new();
    copy_folder(from, to, Path::new(""), changed, &mut kept)?;
    for (path, text) in changed {
        if kept.insert(path.into()) {
            write(&to.join(path), text.as_bytes())?;
        }
    }
    remove_all_but(to, Path::new(""), &kept)
}

fn copy_folder(
    from: &Path,
    to: &Path,
    folder: &Path,
    changed: &BTreeMap<String, String>,
    kept: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    fs::create_dir_all(to.join(folder))?;
    for entry in fs::read_dir(from.join(folder))? {
        let entry = entry?;
        let (path, kind) = (folder.join(entry.file_name()), entry.file_type()?);
        if LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if kind.is_dir() {
            copy_folder(from, to, &path, changed, kept)?;
        } else if kind.is_file() {
            let contents = match path.to_str().and_then(|path| changed.get(path)) {
                Some(text) => text.as_bytes().to_vec(),
                None => fs::read(entry.path())?,
            };
            write(&to.join(&path), &contents)?;
        }
        kept.insert(path);
    }
    Ok(())
}

/// Writes a file, unless it has these contents already.
fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == contents) { Ok(()) } else { fs::write(path, contents) }
}

/// Removes what the workspace no longer has.
fn remove_all_but(tree: &Path, folder: &Path, kept: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(tree.join(folder))? {
        let entry = entry?;
        let (path, is_folder) = (folder.join(entry.file_name()), entry.file_type()?.is_dir());
        match (kept.contains(&path), is_folder) {
            (true, true) => remove_all_but(tree, &path, kept)?,
            (true, false) => {}
            (false, true) => fs::remove_dir_all(entry.path())?,
            (false, false) => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::copy;
    use std::collections::BTreeMap;
    use std::fs;

    #[test]
    fn a_copy_follows_changes_and_removals() {
        let folder = std::env::temp_dir().join(format!("mutants-tree-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        for path in ["a/b.rs", "a/c.rs", "target/x"] {
            fs::create_dir_all(from.join(path).parent().unwrap()).unwrap();
            fs::write(from.join(path), path).unwrap();
        }
        copy(&from, &to, &["a/b.rs", "a/new.rs"].map(|path| (path.to_owned(), "changed".to_owned())).into())
            .unwrap();
        let read = |path: &str| fs::read_to_string(to.join(path)).ok();
        assert_eq!((read("a/b.rs").as_deref(), read("a/c.rs").as_deref()), (Some("changed"), Some("a/c.rs")));
        assert_eq!((read("a/new.rs").as_deref(), read("target/x")), (Some("changed"), None));
        fs::remove_file(from.join("a/c.rs")).unwrap();
        copy(&from, &to, &BTreeMap::new()).unwrap();
        assert_eq!(
            (read("a/b.rs").as_deref(), read("a/c.rs"), read("a/new.rs")),
            (Some("a/b.rs"), None, None)
        );
        fs::remove_dir_all(folder).unwrap();
    }
}

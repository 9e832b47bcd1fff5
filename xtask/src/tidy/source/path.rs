//! Paths of modules and items inside a crate.

use std::fmt::{self, Display, Formatter};

/// The path of a module or an item from the root of its crate, which is the empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<String>);

impl Path {
    /// Splits `a::b`.
    pub fn parse(text: &str) -> Self {
        Self(text.split("::").filter(|segment| !segment.is_empty()).map(str::to_owned).collect())
    }

    /// The module of a file, given by its path below `src/`.
    pub fn of_file(file: &str) -> Self {
        let stem = file.strip_suffix(".rs").unwrap_or(file).replace('/', "::");
        let stem = stem.strip_suffix("::mod").unwrap_or(&stem);
        if stem == "lib" || stem == "main" { Self::default() } else { Self::parse(stem) }
    }

    /// The path of `name` in this module.
    pub fn child(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([name.to_owned()]).collect())
    }

    /// The module around this one. The root is its own parent.
    pub fn parent(&self) -> Self {
        Self(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    /// The number of segments.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first `len` segments.
    pub fn prefix(&self, len: usize) -> Self {
        Self(self.0[..len].to_vec())
    }

    /// Returns true if this module is `outer` or lies in it.
    pub fn starts_with(&self, outer: &Path) -> bool {
        self.0.starts_with(&outer.0)
    }

    /// The path that `segments` mean in this module, with `crate`, `self` and `super` resolved. A
    /// path that begins with another name is taken to begin with an item of this module; it
    /// resolves to nothing if it names another crate.
    pub fn resolve_keywords(&self, segments: &[String]) -> Option<Self> {
        let mut at = self.clone();
        for (index, segment) in segments.iter().enumerate() {
            match segment.as_str() {
                "crate" if index == 0 => at = Self::default(),
                "self" => {}
                "super" if at.0.is_empty() => return None,
                "super" => at = at.parent(),
                name => at = at.child(name),
            }
        }
        Some(at)
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("::"))
    }
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn files_are_modules() {
        for (file, module) in
            [("lib.rs", ""), ("main.rs", ""), ("a.rs", "a"), ("a/mod.rs", "a"), ("a/b.rs", "a::b")]
        {
            assert_eq!(Path::of_file(file), Path::parse(module), "{file}");
        }
    }
}

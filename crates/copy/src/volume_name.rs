//! How messages call the volume, and the files in it.

use std::path::Path;

/// The name of the volume for messages, if it has one.
#[derive(Clone, Debug, Default)]
pub struct VolumeName(Option<String>);

impl VolumeName {
    pub fn new(name: String) -> Self {
        Self(Some(name))
    }

    /// Returns the name of a path in the volume.
    pub fn of(&self, path: &Path) -> String {
        match &self.0 {
            Some(volume) => format!("{volume}:{}", path.display()),
            None => path.display().to_string(),
        }
    }

    /// Returns the name of the volume itself.
    pub fn volume(&self) -> &str {
        self.0.as_deref().unwrap_or("the volume")
    }
}

/// Returns true if `path` ends in `/.`, and so means the contents of a directory, as in
/// `cp -a SRC/. DEST`.
pub fn means_contents(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes == b"." || bytes.ends_with(b"/.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_dot_means_contents() {
        assert!(means_contents(Path::new("a/.")) && means_contents(Path::new(".")));
        assert!(!means_contents(Path::new("a")) && !means_contents(Path::new("a/.b")));
        assert!(!means_contents(Path::new("a.")) && !means_contents(Path::new("a/..")));
    }
}

//! The files that the rules read.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::crate_tree::CrateTree;
use super::rust::Rust;

/// Folders that hold no sources.
const SKIPPED: &[&str] = &["target", ".git"];

/// All Rust and Markdown files of the workspace.
#[derive(Default)]
pub struct Tree {
    /// Rust sources, by path.
    pub rust: Vec<Rust>,
    /// Path and text of Markdown files, by path.
    pub markdown: Vec<(String, String)>,
}

impl Tree {
    /// Reads the files below `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.read_dir(root, "")?;
        Ok(tree)
    }

    /// Reads the modules of all crates.
    pub fn crates(&self) -> Vec<CrateTree> {
        let folders = self.rust.iter().filter_map(|rust| rust.path.split_once("/src/"));
        let mut folders: Vec<&str> = folders.map(|(folder, _)| folder).collect();
        folders.dedup();
        folders.into_iter().map(|folder| CrateTree::read(folder, &self.rust)).collect()
    }

    /// The text of a Markdown file.
    pub fn document(&self, path: &str) -> &str {
        self.markdown.iter().find(|(name, _)| name == path).map_or("", |(_, text)| text)
    }

    fn read_dir(&mut self, root: &Path, dir: &str) -> Result<()> {
        let mut entries = fs::read_dir(root.join(dir))?.collect::<std::io::Result<Vec<_>>>()?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") };
            if entry.file_type()?.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.read_dir(root, &path)?;
                }
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(entry.path())?;
                self.rust.push(Rust::read(&path, &text).with_context(|| format!("reading {path}"))?);
            } else if name.ends_with(".md") {
                self.markdown.push((path, fs::read_to_string(entry.path())?));
            }
        }
        Ok(())
    }
}

//! The catalogue: all mutants of all areas, with their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::areas::{AREAS, Area};
use crate::argued;
use crate::mutant::{Key, Mutant};
use crate::render::{Rendered, render};
use crate::switch::CAPACITY;
use crate::walk::changes;

/// All mutants.
pub struct Catalogue {
    /// By area, in the order of [`AREAS`].
    areas: Vec<Vec<Mutant>>,
    /// The argument of each mutant that no test can notice.
    argued: BTreeMap<Key, String>,
    sources: BTreeMap<String, Source>,
}

struct Source {
    text: String,
    removed: Vec<Range<usize>>,
}

impl Catalogue {
    /// Finds the mutants of the workspace at `root`.
    ///
    /// # Errors
    /// If a source cannot be read, or the list of arguments has an entry without a mutant.
    pub fn read(root: &Path) -> Result<Self> {
        let list = fs::read_to_string(root.join("testing/mutants/argued.md"))
            .context("testing/mutants/argued.md")?;
        let (mut sources, mut areas, mut number) = (BTreeMap::new(), Vec::new(), 0);
        for area in AREAS {
            let mut mutants = Vec::new();
            for file in area.sources() {
                let text = fs::read_to_string(root.join(&file)).with_context(|| file.clone())?;
                let found = changes(&text, area.plain).with_context(|| file.clone())?;
                let mut counts: BTreeMap<Key, u32> = BTreeMap::new();
                for (line, change) in found.changes {
                    number += 1;
                    let mut mutant = Mutant { number, file: file.clone(), line, change, nth: 0 };
                    let count = counts.entry(mutant.key()).or_default();
                    *count += 1;
                    mutant.nth = *count;
                    mutants.push(mutant);
                }
                sources.insert(file, Source { text, removed: found.removed });
            }
            areas.push(mutants);
        }
        ensure!((number as usize) < CAPACITY, "{number} mutants, more than the switch can record");
        let catalogue = Self { areas, argued: argued::read(&list)?, sources };
        catalogue.check_arguments()?;
        Ok(catalogue)
    }

    fn check_arguments(&self) -> Result<()> {
        let keys: BTreeSet<Key> = self.areas.iter().flatten().map(Mutant::key).collect();
        let stale: Vec<_> = self.argued.keys().filter(|key| !keys.contains(key)).collect();
        for Key { file, function, original, replacement, nth } in &stale {
            println!("no mutant: {file}, {function}: `{original}` → `{replacement}` ({nth})");
        }
        if stale.is_empty() {
            Ok(())
        } else {
            bail!("argued.md has {} entries without a mutant", stale.len())
        }
    }

    /// Returns the areas whose names contain `only`, each with its mutants.
    pub fn areas(&self, only: &str) -> impl Iterator<Item = (&'static Area, &[Mutant])> {
        let areas = AREAS.iter().zip(&self.areas).filter(move |(area, _)| area.name.contains(only));
        areas.map(|(area, mutants)| (area, &mutants[..]))
    }

    /// Returns the mutant with this number.
    pub fn mutant(&self, number: u32) -> Result<&Mutant> {
        self.areas
            .iter()
            .flatten()
            .find(|mutant| mutant.number == number)
            .context("no mutant has this number")
    }

    /// Returns the argument why no test can notice `mutant`.
    pub fn argument(&self, mutant: &Mutant) -> Option<&str> {
        self.argued.get(&mutant.key()).map(String::as_str)
    }

    /// Returns a hash of a source, which differs when the source has changed.
    pub fn fingerprint(&self, file: &str) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        self.sources.get(file)?.text.hash(&mut hasher);
        Some(hasher.finish())
    }

    /// Renders the sources of all areas, without the mutants `left_out`.
    pub fn render(&self, left_out: &BTreeSet<Key>) -> BTreeMap<String, Rendered> {
        let of_source = |(file, source): (&String, &Source)| {
            let mutants = self.areas.iter().flatten();
            let mutants: Vec<&Mutant> =
                mutants.filter(|mutant| mutant.file == *file && !left_out.contains(&mutant.key())).collect();
            (file.clone(), render(&source.text, &mutants, &source.removed))
        };
        self.sources.iter().map(of_source).collect()
    }
}

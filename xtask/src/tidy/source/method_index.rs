//! The methods of a crate by type and name, and the ones that a call may mean.

use std::collections::{BTreeMap, BTreeSet};

use super::methods::{Call, Methods};
use super::path::Path;

/// A method that a call may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The type that has it.
    pub owner: &'a str,
    /// The module that defines the type.
    pub home: &'a Path,
    /// The module that defines the method.
    pub module: &'a Path,
}

/// The methods of a crate.
#[derive(Debug, Default)]
pub struct MethodIndex {
    /// The modules that define a type of each name.
    types: BTreeMap<String, BTreeSet<Path>>,
    /// By the name of a method, the types that have it and the modules that define it.
    inherent: BTreeMap<String, BTreeSet<(String, Path)>>,
    /// Names of methods of traits.
    of_traits: BTreeSet<String>,
}

impl MethodIndex {
    /// Adds the definitions of one file.
    pub fn add(&mut self, file: &Methods) {
        for (name, module) in &file.types {
            self.types.entry(name.clone()).or_default().insert(module.clone());
        }
        for method in &file.inherent {
            let found = self.inherent.entry(method.name.clone()).or_default();
            found.insert((method.owner.clone(), method.module.clone()));
        }
        self.of_traits.extend(file.of_traits.iter().cloned());
    }

    /// Returns true if a type has a method of the name.
    pub fn has(&self, name: &str) -> bool {
        self.inherent.contains_key(name)
    }

    /// Returns the methods that `call` may mean: the ones of the type that the code names,
    /// otherwise the ones of any type. None if a trait or, as `is_foreign` tells, another crate may
    /// have the method, and if several types have the name of the type.
    pub fn candidates<'a>(&'a self, call: &Call, is_foreign: impl Fn(&str) -> bool) -> Vec<Candidate<'a>> {
        let Some(found) = self.inherent.get(&call.name) else { return Vec::new() };
        let is_named = |owner: &str| call.owner.as_deref() == Some(owner);
        let is_known = found.iter().any(|(owner, _)| is_named(owner));
        let names_foreign = call.owner.as_ref().is_some_and(|owner| !self.types.contains_key(owner));
        if !is_known && (names_foreign || self.of_traits.contains(&call.name) || is_foreign(&call.name)) {
            return Vec::new();
        }
        let meant = found.iter().filter(|(owner, _)| !is_known || is_named(owner));
        let candidates = meant.map(|(owner, module)| {
            let homes = self.types.get(owner).filter(|homes| homes.len() == 1)?;
            Some(Candidate { owner, home: homes.first()?, module })
        });
        candidates.collect::<Option<_>>().unwrap_or_default()
    }
}

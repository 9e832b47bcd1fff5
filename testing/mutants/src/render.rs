//! Writes a source that has all its changes at once, each with a question to the switch.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use crate::mutant::{Mutant, SyntaxKind};

/// A source with its changes.
#[derive(Debug, Default)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// The parts of the text that belong to mutants.
    parts: Vec<Part>,
}

/// A part of a rendered text.
#[derive(Debug)]
struct Part {
    range: Range<usize>,
    mutants: Vec<u32>,
    /// The part is the code of one mutant, not the place that several change.
    is_code: bool,
}

/// A place of a source, with the mutants that change it.
struct Site<'a> {
    range: Range<usize>,
    place: SyntaxKind,
    mutants: Vec<&'a Mutant>,
}

impl Rendered {
    /// Returns the mutants to which an error of the compiler at the bytes `error` of the text
    /// belongs: the one whose code has the error, or else all of the smallest place with the error.
    pub fn blame(&self, error: &Range<usize>) -> BTreeSet<u32> {
        let around = |part: &&Part| part.range.start <= error.start && error.end <= part.range.end;
        let smallest = self.parts.iter().filter(around).min_by_key(|part| (!part.is_code, part.range.len()));
        smallest.into_iter().flat_map(|part| &part.mutants).copied().collect()
    }
}

/// Renders `source` with `mutants`, and without the bytes `removed`.
pub fn render(source: &str, mutants: &[&Mutant], removed: &[Range<usize>]) -> Rendered {
    let mut sites: Vec<Site<'_>> = Vec::new();
    for mutant in mutants {
        let (range, place) = (mutant.change.range.clone(), mutant.change.place);
        match sites.iter_mut().find(|site| {
            site.range == range && (site.place == SyntaxKind::Body) == (place == SyntaxKind::Body)
        }) {
            Some(site) => {
                site.place = site.place.min(place);
                site.mutants.push(mutant);
            }
            None => sites.push(Site { range, place, mutants: vec![mutant] }),
        }
    }
    sites.extend(removed.iter().map(|range| Site {
        range: range.clone(),
        place: SyntaxKind::Statement,
        mutants: Vec::new(),
    }));
    sites.sort_by_key(|site| (site.range.start, site.place != SyntaxKind::Body, Reverse(site.range.end)));
    let mut rendered = Rendered::default();
    rendered.part(source, 0..source.len(), &sites);
    rendered
}

impl Rendered {
    /// Appends the bytes `range` of the source, with the changes of `sites`, which are in order.
    fn part(&mut self, source: &str, range: Range<usize>, mut sites: &[Site<'_>]) {
        let mut at = range.start;
        while let Some((site, rest)) = sites.split_first() {
            let count = rest.iter().take_while(|next| next.range.start < site.range.end).count();
            let (inner, after) = rest.split_at(count);
            self.text.push_str(&source[at..site.range.start]);
            self.site(source, site, inner);
            (at, sites) = (site.range.end, after);
        }
        self.text.push_str(&source[at..range.end]);
    }

    fn site(&mut self, source: &str, site: &Site<'_>, inner: &[Site<'_>]) {
        let start = self.text.len();
        if site.place == SyntaxKind::Expression {
            self.text.push('(');
        }
        for mutant in &site.mutants {
            let code = &mutant.change.text;
            self.text.push_str(&format!("if crate::mutant_switch::is({}) {{ ", mutant.number));
            let range = self.text.len()..self.text.len() + code.len();
            self.parts.push(Part { range, mutants: vec![mutant.number], is_code: true });
            self.text.push_str(code);
            self.text.push_str(if site.place == SyntaxKind::Body { " } " } else { " } else " });
        }
        if site.place != SyntaxKind::Body && !site.mutants.is_empty() {
            self.text.push_str("{ ");
            self.part(source, site.range.clone(), inner);
            self.text.push_str(" }");
        }
        if site.place == SyntaxKind::Expression {
            self.text.push(')');
        }
        let mutants = site.mutants.iter().map(|mutant| mutant.number).collect();
        self.parts.push(Part { range: start..self.text.len(), mutants, is_code: false });
    }
}

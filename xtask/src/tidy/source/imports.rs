//! Reads the tokens of one file: the modules that it declares, its imports, and the paths in its
//! code.
//!
//! Code under `#[cfg(test)]` is skipped: tests may use any module.

use std::iter::Peekable;

use proc_macro2::{Delimiter, Group, Punct, Spacing, TokenStream, TokenTree, token_stream::IntoIter};

use super::path::Path;

/// A path that code follows, with `crate`, `self` and `super` resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The module whose code follows the path.
    pub from: Path,
    /// The path from the root of the crate.
    pub to: Path,
    /// The name that an import gives to it in `from`; `*` for a glob. None for a path in an
    /// expression or a type.
    pub name: Option<String>,
    /// The line, counted from 1.
    pub line: usize,
}

impl Use {
    /// The path as the code has it, if it begins with a name: that of another crate, or of an item
    /// in scope.
    pub fn relative(&self) -> Option<&[String]> {
        self.to.0.strip_prefix(self.from.0.as_slice())
    }
}

/// The contents of a file that concern modules.
#[derive(Debug, Default)]
pub struct Contents {
    /// Modules that are declared or written out in the file.
    pub modules: Vec<Path>,
    /// Modules for tests only.
    pub test_modules: Vec<Path>,
    /// Imports and paths in code.
    pub uses: Vec<Use>,
}

/// Keywords of items, in which a comma is not the end.
const ITEMS: &[&str] = &["fn", "impl", "struct", "enum", "trait", "use", "const", "static", "type"];

type Tokens = Peekable<IntoIter>;

/// Reads the tokens of the file of `module`.
pub fn read(module: &Path, tokens: TokenStream) -> Contents {
    let mut contents = Contents::default();
    contents.read(module, tokens);
    contents
}

impl Contents {
    fn read(&mut self, module: &Path, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct)
                    if punct.as_char() == '#'
                        && attribute(&mut tokens).is_some_and(|group| is_test(&group)) =>
                {
                    let test_module = skip_item(&mut tokens).map(|name| module.child(&name));
                    self.test_modules.extend(test_module);
                }
                TokenTree::Ident(ident) => match ident.to_string().as_str() {
                    "mod" => self.module(module, &mut tokens),
                    "use" => self.import(module, &mut tokens),
                    "pub" => drop(tokens.next_if(|next| group_of(next, Delimiter::Parenthesis).is_some())),
                    start => self.path(module, start, ident.span().start().line, &mut tokens),
                },
                TokenTree::Group(group) => self.read(module, group.stream()),
                _ => {}
            }
        }
    }

    /// Reads a module: its name, and its contents unless they lie in a file.
    fn module(&mut self, parent: &Path, tokens: &mut Tokens) {
        let Some(TokenTree::Ident(name)) = tokens.next() else { return };
        let path = parent.child(&name.to_string());
        self.modules.push(path.clone());
        if let Some(body) = tokens.peek().and_then(|next| group_of(next, Delimiter::Brace)) {
            tokens.next();
            self.read(&path, body.stream());
        }
    }

    /// Reads an import up to its semicolon.
    fn import(&mut self, module: &Path, tokens: &mut Tokens) {
        let tree = until_semicolon(tokens);
        self.import_tree(module, &[], tree);
    }

    /// Reads the tree of an import below the segments `prefix`.
    fn import_tree(&mut self, module: &Path, prefix: &[String], tree: TokenStream) {
        let mut segments = prefix.to_vec();
        let (mut name, mut line) = (None, None);
        let mut tokens = tree.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(ident) if ident == "as" => {
                    name = tokens.next().map(|alias| alias.to_string());
                }
                TokenTree::Ident(ident) => {
                    line.get_or_insert(ident.span().start().line);
                    segments.push(ident.to_string());
                }
                TokenTree::Group(group) => {
                    for tree in split_at_commas(group.stream()) {
                        self.import_tree(module, &segments, tree);
                    }
                    return;
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    line.get_or_insert(punct.span().start().line);
                    name = Some("*".to_owned());
                }
                _ => {}
            }
        }
        if segments.last().is_some_and(|last| last == "self") && segments.len() > 1 {
            segments.pop();
        }
        let name = name.or_else(|| segments.last().cloned());
        if let Some(to) = module.resolve_keywords(&segments) {
            self.uses.push(Use { from: module.clone(), to, name, line: line.unwrap_or(1) });
        }
    }

    /// Reads a path in code that begins with `start`; a single name is no path.
    fn path(&mut self, module: &Path, start: &str, line: usize, tokens: &mut Tokens) {
        let mut segments = vec![start.to_owned()];
        while next_is_separator(tokens) {
            tokens.next();
            tokens.next();
            let Some(TokenTree::Ident(ident)) = tokens.peek() else { break };
            segments.push(ident.to_string());
            tokens.next();
        }
        if segments.len() > 1
            && let Some(to) = module.resolve_keywords(&segments)
        {
            self.uses.push(Use { from: module.clone(), to, name: None, line });
        }
    }
}

/// Skips an item, a field or a variant for tests only, after its first attribute. Returns the name
/// of the module if it is one.
pub(super) fn skip_item(tokens: &mut Tokens) -> Option<String> {
    let (mut is_item, mut module) = (false, None);
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) => {
                is_item |= ITEMS.contains(&ident.to_string().as_str());
                if ident == "mod"
                    && let Some(TokenTree::Ident(name)) = tokens.peek()
                {
                    module = Some(name.to_string());
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            TokenTree::Punct(punct) if punct.as_char() == ',' && !is_item => break,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            _ => {}
        }
    }
    module
}

/// The group of an attribute whose `#` was read.
pub(super) fn attribute(tokens: &mut Tokens) -> Option<Group> {
    tokens.next_if(|next| matches!(next, TokenTree::Punct(punct) if punct.as_char() == '!'));
    let group = group_of(tokens.peek()?, Delimiter::Bracket)?;
    tokens.next();
    Some(group)
}

/// Returns true for `cfg(test)` and `cfg(all(test, ...))`.
pub(super) fn is_test(attribute: &Group) -> bool {
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

fn group_of(token: &TokenTree, delimiter: Delimiter) -> Option<Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group.clone()),
        _ => None,
    }
}

/// Returns true if `::` follows.
fn next_is_separator(tokens: &mut Tokens) -> bool {
    let is_first = |punct: &Punct| punct.as_char() == ':' && punct.spacing() == Spacing::Joint;
    matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if is_first(punct))
}

fn until_semicolon(tokens: &mut Tokens) -> TokenStream {
    tokens.take_while(|token| !matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';')).collect()
}

fn split_at_commas(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![TokenStream::new()];
    for token in tokens {
        if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',') {
            parts.push(TokenStream::new());
        } else if let Some(part) = parts.last_mut() {
            part.extend([token]);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::{Contents, Path, read};

    fn contents(module: &str, source: &str) -> Contents {
        read(&Path::parse(module), source.parse().unwrap())
    }

    fn targets(module: &str, source: &str) -> Vec<String> {
        contents(module, source).uses.iter().map(|found| found.to.to_string()).collect()
    }

    #[test]
    fn nested_imports_are_read() {
        let source = "pub(crate) use crate::{a::{self, b as c}, d::*}; use super::e; use std::fmt;";
        assert_eq!(targets("x::y", source), ["a", "a::b", "d", "x::e", "x::y::std::fmt"]);
        let names = contents("x::y", source).uses.into_iter().map(|found| found.name.unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["a", "c", "*", "e", "fmt"]);
    }

    #[test]
    fn paths_in_code_and_macros_are_read() {
        let source = "fn f(a: &crate::a::A) -> super::B { assert!(crate::c::d(), \"crate::no\"); x::y() }";
        assert_eq!(targets("m", source), ["a::A", "B", "c::d", "m::x::y"]);
    }

    #[test]
    fn inline_modules_have_paths_of_their_own() {
        let found = contents("m", "mod n { use super::a; mod o; } pub(in crate::m) mod p;");
        assert_eq!(
            found.modules.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["m::n", "m::n::o", "m::p"]
        );
        assert_eq!(found.uses[0].to.to_string(), "m::a");
        assert_eq!(found.uses.len(), 1);
    }

    #[test]
    fn tests_are_skipped() {
        let found = contents(
            "m",
            "#[cfg(test)] mod tests; #[cfg(test)] use crate::a; #[cfg(all(test, x))] fn f() { crate::b() } use crate::c;",
        );
        assert_eq!(found.test_modules, [Path::parse("m::tests")]);
        assert_eq!(found.uses.iter().map(|found| found.to.to_string()).collect::<Vec<_>>(), ["c"]);
    }
}

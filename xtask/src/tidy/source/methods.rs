//! Reads the tokens of one file: the types and methods that it defines, and the methods that its
//! code calls.
//!
//! Code under `#[cfg(test)]` is skipped: tests may call any method.

use std::iter::Peekable;

use proc_macro2::{Delimiter, TokenStream, TokenTree, token_stream::IntoIter};

use super::imports::{attribute, is_test, skip_item};
use super::path::Path;

/// A method or an associated function of an `impl` block without a trait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// The name of the type that has it.
    pub owner: String,
    /// Its name.
    pub name: String,
    /// The module of the `impl` block.
    pub module: Path,
}

/// A call of a method, or its path as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The module whose code calls it.
    pub from: Path,
    /// The type that the code names: in `Type::name`, and that of the `impl` block around
    /// `self.name(...)` and `Self::name`.
    pub owner: Option<String>,
    /// The name of the method.
    pub name: String,
    /// The line, counted from 1.
    pub line: usize,
}

/// The contents of a file that concern methods.
#[derive(Debug, Default)]
pub struct Methods {
    /// Names of types, each with the module that defines it.
    pub types: Vec<(String, Path)>,
    /// Methods in `impl` blocks without a trait.
    pub inherent: Vec<Method>,
    /// Names of methods that traits declare or that types implement for traits.
    pub of_traits: Vec<String>,
    /// Calls in code.
    pub calls: Vec<Call>,
}

/// The block whose items are read.
#[derive(Clone, Copy, Debug)]
struct Scope<'a> {
    module: &'a Path,
    /// The type of the `impl` block around the code.
    owner: Option<&'a str>,
    /// The functions directly in this block are methods.
    methods: Option<MethodKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MethodKind {
    Inherent,
    OfTrait,
}

type Tokens = Peekable<IntoIter>;

/// Reads the tokens of the file of `module`.
pub fn read(module: &Path, tokens: TokenStream) -> Methods {
    let mut methods = Methods::default();
    methods.block(Scope { module, owner: None, methods: None }, tokens);
    methods
}

impl Methods {
    /// Reads a block of items or of code.
    fn block(&mut self, scope: Scope<'_>, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        let mut before = Before::Item;
        while let Some(token) = tokens.next() {
            let is_item = before == Before::Item;
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if attribute(&mut tokens).is_some_and(|group| is_test(&group)) {
                        skip_item(&mut tokens);
                    }
                    // An attribute changes nothing for what follows it.
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == '.' => {
                    self.method_call(scope, before == Before::Self_, &mut tokens);
                }
                TokenTree::Ident(ident)
                    if self.outer_item(scope, &ident.to_string(), is_item, &mut tokens) =>
                {
                    before = Before::Item;
                    continue;
                }
                TokenTree::Ident(ident) => match ident.to_string().as_str() {
                    "struct" | "enum" | "union" => self.type_name(scope, &mut tokens),
                    "fn" => self.function(scope, &mut tokens),
                    start => self.path_call(scope, start, ident.span().start().line, &mut tokens),
                },
                TokenTree::Group(group) => {
                    self.block(Scope { methods: None, ..scope }, group.stream());
                }
                _ => {}
            }
            before = Before::after(&token);
        }
    }

    /// Reads an item that contains items, if `word` begins one. Returns false if not.
    fn outer_item(&mut self, scope: Scope<'_>, word: &str, is_item: bool, tokens: &mut Tokens) -> bool {
        match word {
            "mod" => self.module(scope, tokens),
            "impl" if is_item => self.implementation(scope, tokens),
            "trait" => self.trait_block(scope, tokens),
            _ => return false,
        }
        true
    }

    /// Reads a module that is written out in the file.
    fn module(&mut self, scope: Scope<'_>, tokens: &mut Tokens) {
        let Some(name) = next_name(tokens) else { return };
        if let Some(body) = next_block(tokens) {
            let module = scope.module.child(&name);
            self.block(Scope { module: &module, owner: None, methods: None }, body);
        }
    }

    fn type_name(&mut self, scope: Scope<'_>, tokens: &mut Tokens) {
        self.types.extend(next_name(tokens).map(|name| (name, scope.module.clone())));
    }

    /// Reads an `impl` block: `impl<...> Type<...> {`, or `impl<...> Trait for Type {`.
    fn implementation(&mut self, scope: Scope<'_>, tokens: &mut Tokens) {
        let (names, body) = header(tokens);
        let for_at = names.iter().position(|name| name == "for");
        let owner = names[for_at.map_or(0, |at| at + 1)..].last().map(String::as_str);
        let methods = Some(if for_at.is_some() { MethodKind::OfTrait } else { MethodKind::Inherent });
        self.block(Scope { owner, methods, ..scope }, body);
    }

    fn trait_block(&mut self, scope: Scope<'_>, tokens: &mut Tokens) {
        let (_, body) = header(tokens);
        self.block(Scope { owner: None, methods: Some(MethodKind::OfTrait), ..scope }, body);
    }

    /// Notes the name of a function if it is a method. What follows is read as code.
    fn function(&mut self, scope: Scope<'_>, tokens: &mut Tokens) {
        let Some(name) = next_name(tokens) else { return };
        match (scope.methods, scope.owner) {
            (Some(MethodKind::Inherent), Some(owner)) => {
                let (owner, module) = (owner.to_owned(), scope.module.clone());
                self.inherent.push(Method { owner, name, module });
            }
            (Some(_), _) => self.of_traits.push(name),
            (None, _) => {}
        }
    }

    /// Reads what follows a dot: a call if a name and arguments do, perhaps with types between
    /// them.
    fn method_call(&mut self, scope: Scope<'_>, of_self: bool, tokens: &mut Tokens) {
        let Some(TokenTree::Ident(ident)) = tokens.peek().cloned() else { return };
        let mut ahead = tokens.clone();
        ahead.next();
        if is_arguments(ahead.peek()) || is_punct(ahead.peek(), ':') {
            tokens.next();
            let owner = scope.owner.filter(|_| of_self).map(str::to_owned);
            let line = ident.span().start().line;
            self.calls.push(Call { from: scope.module.clone(), owner, name: ident.to_string(), line });
        }
    }

    /// Reads a path that begins with `start`, and notes each pair of neighbours in it, of which one
    /// may be a type and its method.
    fn path_call(&mut self, scope: Scope<'_>, start: &str, line: usize, tokens: &mut Tokens) {
        let mut owner = start.to_owned();
        while is_punct(tokens.peek(), ':') {
            let mut ahead = tokens.clone();
            ahead.next();
            if !is_punct(ahead.peek(), ':') {
                return;
            }
            ahead.next();
            let Some(TokenTree::Ident(ident)) = ahead.next() else { return };
            *tokens = ahead;
            let named = if owner == "Self" { scope.owner.map(str::to_owned) } else { Some(owner) };
            owner = ident.to_string();
            if named.is_some() {
                let (from, name) = (scope.module.clone(), owner.clone());
                self.calls.push(Call { from, owner: named, name, line });
            }
        }
    }
}

/// How the token before the present one determines its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// An item may begin, so `impl` is a block and no type.
    Item,
    /// `self`, so that a method of it is called.
    Self_,
    Other,
}

impl Before {
    fn after(token: &TokenTree) -> Self {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Self::Item,
            TokenTree::Punct(punct) if punct.as_char() == ';' => Self::Item,
            TokenTree::Ident(ident) if ident == "unsafe" => Self::Item,
            TokenTree::Ident(ident) if ident == "self" => Self::Self_,
            _ => Self::Other,
        }
    }
}

/// Reads the header of an `impl` or `trait` block, and returns its names outside angle brackets up
/// to `where`, and the body.
fn header(tokens: &mut Tokens) -> (Vec<String>, TokenStream) {
    let (mut names, mut depth, mut ended, mut is_arrow) = (Vec::new(), 0_usize, false, false);
    for token in tokens {
        match &token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                return (names, group.stream());
            }
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' && !is_arrow => depth = depth.saturating_sub(1),
            TokenTree::Ident(ident) if ident == "where" => ended = true,
            TokenTree::Ident(ident) if depth == 0 && !ended => names.push(ident.to_string()),
            _ => {}
        }
        is_arrow = is_punct(Some(&token), '-');
    }
    (names, TokenStream::new())
}

fn next_name(tokens: &mut Tokens) -> Option<String> {
    let is_name = |token: &TokenTree| matches!(token, TokenTree::Ident(_));
    tokens.next_if(is_name).map(|name| name.to_string())
}

/// Reads a block in braces, if one follows.
fn next_block(tokens: &mut Tokens) -> Option<TokenStream> {
    match tokens.peek() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let body = group.stream();
            tokens.next();
            Some(body)
        }
        _ => None,
    }
}

fn is_arguments(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
}

fn is_punct(token: Option<&TokenTree>, char: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == char)
}

#[cfg(test)]
mod tests {
    use super::{Methods, Path, read};

    fn methods(source: &str) -> Methods {
        read(&Path::parse("m"), source.parse().unwrap())
    }

    fn inherent(source: &str) -> Vec<String> {
        methods(source).inherent.iter().map(|found| format!("{}::{}", found.owner, found.name)).collect()
    }

    fn calls(source: &str) -> Vec<String> {
        let call = |owner: Option<String>, name| {
            owner.map_or(format!(".{name}"), |owner| format!("{owner}::{name}"))
        };
        methods(source).calls.into_iter().map(|found| call(found.owner, found.name)).collect()
    }

    #[test]
    fn methods_of_types_and_traits_are_told_apart() {
        let source = "struct A; impl<F: Fn(u8) -> u8> a::A<F> where F: B { pub fn f(self) { fn inner() {} } }\n\
                      impl<'a> B for A<'a> { fn g() {} }\n\
                      trait C: D<E> { fn h(); }\n\
                      fn k(x: impl B) -> impl B { x }";
        assert_eq!(inherent(source), ["A::f"]);
        assert_eq!(methods(source).of_traits, ["g", "h"]);
        assert_eq!(methods(source).types, [("A".to_owned(), Path::parse("m"))]);
    }

    #[test]
    fn calls_have_the_type_that_the_code_names() {
        let source =
            "impl A { fn f(&self) { self.g(1); self.field.h(); Self::k(); a::B::l::<u8>(x.m::<u8>()); } }";
        assert_eq!(calls(source), ["A::g", ".h", "A::k", "a::B", "B::l", ".m"]);
    }

    #[test]
    fn calls_in_macros_and_closures_are_read() {
        assert_eq!(
            calls("impl A { fn f(&self) { guarded!(x, self.g()); h.map(|x| x.k()) } }"),
            ["A::g", ".map", ".k"]
        );
    }

    #[test]
    fn fields_and_tests_are_no_calls() {
        assert!(
            calls("fn f() { x.field; x.0.y = 1; a..b } #[cfg(test)] mod tests { fn f() { x.g() } }")
                .is_empty()
        );
        assert!(inherent("#[cfg(test)] impl A { fn f() {} }").is_empty());
    }
}

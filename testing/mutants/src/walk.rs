//! The walk over a source: finds the places that can be changed, and makes the changes.
//!
//! Not changed are: constants and other code that the compiler evaluates, patterns, types, macros
//! other than `guarded!`, code that exists for tests or models only, branches for other
//! configurations and planted faults, and implementations of `Debug` and `Display`.

use std::ops::Range;

use proc_macro2::Span;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, BinOp, Block, Expr, ExprBinary, ExprIf, ExprMatch, ExprWhile, Macro, Pat, ReturnType,
    Signature, Stmt, Token, UnOp,
};

use crate::mutant::{Change, SyntaxKind, shorten, shorten_start};
use crate::operators::{assigns, compares, instead_of, is_unit_result, values_of};

/// The changes of one source.
#[derive(Debug, Default)]
pub struct Changes {
    /// The changes, each with the line at which it begins.
    pub changes: Vec<(usize, Change)>,
    /// The `const` of functions that are changed. It is removed, because a constant cannot depend
    /// on the switch.
    pub removed: Vec<Range<usize>>,
}

/// Finds the changes of `source`. Constant functions are changed only if `plain` lists them.
///
/// # Errors
/// If the source is not valid.
pub fn changes(source: &str, plain: &[&str]) -> syn::Result<Changes> {
    let file = syn::parse_file(source)?;
    let mut walk = Walk {
        source,
        plain,
        found: Changes::default(),
        owner: None,
        function: String::new(),
        is_unit: false,
    };
    walk.visit_file(&file);
    Ok(walk.found)
}

struct Walk<'a> {
    source: &'a str,
    plain: &'a [&'a str],
    found: Changes,
    /// The type whose implementation is visited.
    owner: Option<String>,
    /// The function that is visited; empty outside of functions.
    function: String,
    /// The expression or block that is visited next has no value.
    is_unit: bool,
}

impl<'a> Walk<'a> {
    fn text(&self, span: Span) -> &'a str {
        &self.source[span.byte_range()]
    }

    fn add(
        &mut self,
        span: Span,
        place: SyntaxKind,
        text: String,
        (original, replacement): (String, String),
    ) {
        let line = span.start().line;
        let (range, function) = (span.byte_range(), self.function.clone());
        self.found.changes.push((line, Change { range, place, text, function, original, replacement }));
    }

    /// Replaces the whole expression or statement.
    fn replace(&mut self, span: Span, place: SyntaxKind, text: String) {
        let replacement = if text.is_empty() { "{}".to_owned() } else { shorten(&text) };
        let original = shorten(self.text(span));
        self.add(span, place, text, (original, replacement));
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        if is_for_tests(attributes) {
            return;
        }
        let name = signature.ident.to_string();
        if let Some(constness) = &signature.constness {
            if !self.plain.contains(&name.as_str()) {
                return;
            }
            self.found.removed.push(constness.span().byte_range());
        }
        let name = self.owner.as_ref().map_or(name.clone(), |owner| format!("{owner}::{name}"));
        let outer = std::mem::replace(&mut self.function, name);
        self.body(&signature.output, body);
        self.is_unit = matches!(signature.output, ReturnType::Default);
        self.visit_block(body);
        if is_unit_result(&signature.output) {
            self.swallow_tail(body);
        }
        self.function = outer;
    }

    /// Adds the changes that return at once.
    fn body(&mut self, output: &ReturnType, body: &Block) {
        let inside =
            body.brace_token.span.open().byte_range().end..body.brace_token.span.close().byte_range().start;
        let original = self.source[inside.clone()].trim();
        // The removal of an only statement is the same change.
        let covered = matches!(output, ReturnType::Default)
            && matches!(&body.stmts[..], [Stmt::Expr(only, _)] if is_removable(only));
        for value in values_of(output).into_iter().filter(|_| !covered) {
            if original != value {
                let line = body.brace_token.span.open().start().line;
                let text = format!("return {value};").replace("return ;", "return;");
                self.found.changes.push((
                    line,
                    Change {
                        range: inside.start..inside.start,
                        place: SyntaxKind::Body,
                        replacement: text.clone(),
                        text,
                        function: self.function.clone(),
                        original: "body".to_owned(),
                    },
                ));
            }
        }
    }

    /// Ignores the error of the call with which a body ends.
    fn swallow_tail(&mut self, body: &Block) {
        if let Some(Stmt::Expr(tail, None)) = body.stmts.last()
            && is_call(tail)
        {
            let text = format!("let _ = {}; Ok(())", self.text(tail.span()));
            self.replace(tail.span(), SyntaxKind::Statement, text);
        }
    }

    fn statement(&mut self, statement: &Stmt, is_last: bool, is_unit: bool) {
        match statement {
            Stmt::Expr(expr, semicolon) => {
                let has_no_value = semicolon.is_some() || !is_last || is_unit;
                let returns = matches!(expr, Expr::Return(_)) && is_last && is_unit;
                if returns || has_no_value && is_removable(expr) {
                    self.remove(statement.span(), expr);
                }
                self.is_unit = has_no_value;
                self.visit_expr(expr);
            }
            Stmt::Local(local) => {
                if let (Pat::Wild(_), Some(_)) = (&local.pat, &local.init) {
                    self.replace(local.span(), SyntaxKind::Statement, String::new());
                }
                visit::visit_local(self, local);
            }
            other => visit::visit_stmt(self, other),
        }
    }

    /// Removes a statement, unless it is a hint to the processor. Of one that returns an error to
    /// the caller, there is also a change that ignores the error.
    fn remove(&mut self, span: Span, expr: &Expr) {
        if self.text(span).contains("spin_loop") {
            return;
        }
        self.replace(span, SyntaxKind::Statement, String::new());
        if let Expr::Try(attempt) = expr {
            self.replace(span, SyntaxKind::Statement, format!("let _ = {};", self.text(attempt.expr.span())));
        }
    }

    fn condition(&mut self, condition: &Expr, instead: impl FnOnce(&str) -> String) {
        let is_covered = match condition {
            Expr::Binary(binary) => compares(&binary.op) || has_let(condition),
            Expr::Unary(unary) => matches!(unary.op, UnOp::Not(_)),
            Expr::Let(_) => true,
            _ => false,
        };
        if !is_covered {
            let text = instead(self.text(condition.span()));
            self.replace(condition.span(), SyntaxKind::Expression, text);
        }
    }

    fn binary(&mut self, binary: &ExprBinary) {
        let (left, right) = (self.text(binary.left.span()), self.text(binary.right.span()));
        if matches!(binary.op, BinOp::And(_) | BinOp::Or(_))
            && (has_let(&binary.left) || has_let(&binary.right))
        {
            return;
        }
        let (start, end) = (shorten_start(left), shorten(right));
        let original = format!("{start} {} {end}", self.text(binary.op.span()));
        for op in instead_of(&binary.op) {
            let text = if assigns(&binary.op) {
                format!("{left} {op} {right}")
            } else {
                format!("({left}) {op} ({right})")
            };
            let words = (original.clone(), format!("{start} {op} {end}"));
            self.add(binary.span(), SyntaxKind::Expression, text, words);
        }
    }

    /// Weakens the memory orderings among the arguments of a call.
    fn orderings<'e>(&mut self, call: Span, arguments: impl Iterator<Item = &'e Expr>) {
        let whole = self.text(call);
        for argument in arguments.filter(|argument| is_ordering(argument)) {
            let (name, at) =
                (self.text(argument.span()), argument.span().byte_range().start - call.byte_range().start);
            let relaxed = format!("{}Ordering::Relaxed{}", &whole[..at], &whole[at + name.len()..]);
            let words = (shorten_start(whole), shorten_start(&relaxed));
            self.add(
                argument.span(),
                SyntaxKind::Expression,
                "std::sync::atomic::Ordering::Relaxed".to_owned(),
                words,
            );
        }
    }

    /// Visits the guard of `guarded!`. All other macros are left alone.
    fn macro_call(&mut self, call: &Macro) {
        if call.path.is_ident("guarded")
            && let Ok(arguments) = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated)
            && let Some(guard) = arguments.get(1)
        {
            self.visit_expr(guard);
        }
    }

    /// Returns true for a condition on how the crate is built, or on a planted fault: the code
    /// below it is not what ships.
    fn is_configuration(&self, condition: &Expr) -> bool {
        if let Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) = condition {
            return self.is_configuration(left) || self.is_configuration(right);
        }
        let text = self.text(condition.span());
        let is_constant = text.chars().all(|char| char.is_ascii_uppercase() || char == '_');
        is_constant || text.starts_with("cfg!(") || is_planted(text) && !text.starts_with('!')
    }

    fn visit_if(&mut self, branch: &ExprIf, is_unit: bool) {
        if !self.is_configuration(&branch.cond) {
            self.condition(&branch.cond, |condition| format!("!({condition})"));
            self.visit_expr(&branch.cond);
            self.is_unit = is_unit || branch.else_branch.is_none();
            self.visit_block(&branch.then_branch);
        }
        if let Some((_, other)) = &branch.else_branch {
            self.is_unit = is_unit;
            self.visit_expr(other);
        }
    }

    fn visit_match(&mut self, expr: &ExprMatch, is_unit: bool) {
        self.visit_expr(&expr.expr);
        for arm in &expr.arms {
            if let Pat::Guard(guard) = &arm.pat {
                self.replace(guard.guard.span(), SyntaxKind::Expression, "true".to_owned());
                self.replace(guard.guard.span(), SyntaxKind::Expression, "false".to_owned());
                self.visit_expr(&guard.guard);
            }
            if is_unit && is_removable(&arm.body) {
                self.remove(arm.body.span(), &arm.body);
            }
            self.is_unit = is_unit;
            self.visit_expr(&arm.body);
        }
    }

    fn visit_while(&mut self, expr: &ExprWhile) {
        self.condition(&expr.cond, |_| "false".to_owned());
        self.visit_expr(&expr.cond);
        self.visit_loop(&expr.body);
    }

    fn visit_loop(&mut self, body: &Block) {
        self.is_unit = true;
        self.visit_block(body);
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let owner = self.owner.take();
        self.function(&item.attrs, &item.sig, &item.block);
        self.owner = owner;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let implements = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        if is_for_tests(&item.attrs)
            || implements.is_some_and(|name| name.ident == "Debug" || name.ident == "Display")
        {
            return;
        }
        let name = |path: &syn::TypePath| path.path.segments.last().map(|last| last.ident.to_string());
        let owner = if let syn::Type::Path(path) = &*item.self_ty { name(path) } else { None };
        let outer = std::mem::replace(&mut self.owner, owner);
        item.items.iter().for_each(|item| self.visit_impl_item(item));
        self.owner = outer;
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        let is_unit = std::mem::take(&mut self.is_unit);
        for (index, statement) in block.stmts.iter().enumerate() {
            self.statement(statement, index + 1 == block.stmts.len(), is_unit);
        }
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        let is_unit = std::mem::take(&mut self.is_unit);
        match expr {
            Expr::If(expr) => return self.visit_if(expr, is_unit),
            Expr::Match(expr) => return self.visit_match(expr, is_unit),
            Expr::While(expr) => return self.visit_while(expr),
            Expr::Loop(expr) => return self.visit_loop(&expr.body),
            Expr::ForLoop(expr) => {
                self.visit_expr(&expr.expr);
                return self.visit_loop(&expr.body);
            }
            Expr::Block(_) => self.is_unit = is_unit,
            Expr::Macro(call) => return self.macro_call(&call.mac),
            Expr::Const(_) => return,
            Expr::Repeat(repeat) => return self.visit_expr(&repeat.expr),
            Expr::Binary(binary) => self.binary(binary),
            Expr::Unary(unary)
                if matches!(unary.op, UnOp::Not(_)) && !is_planted(self.text(unary.expr.span())) =>
            {
                self.replace(unary.span(), SyntaxKind::Expression, self.text(unary.expr.span()).to_owned());
            }
            Expr::MethodCall(call) => self.orderings(call.span(), call.args.iter()),
            Expr::Call(call) => self.orderings(call.span(), call.args.iter()),
            _ => {}
        }
        visit::visit_expr(self, expr);
    }

    fn visit_stmt_macro(&mut self, statement: &'ast syn::StmtMacro) {
        self.macro_call(&statement.mac);
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_item_trait(&mut self, _: &'ast syn::ItemTrait) {}
    fn visit_item_macro(&mut self, _: &'ast syn::ItemMacro) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_path_arguments(&mut self, _: &'ast syn::PathArguments) {}
}

/// Returns true if an item exists only in tests, models or debug builds.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let words = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            meta => return meta.path().is_ident("test"),
        };
        words == "shuttle" || words.contains("test") || words.contains("debug_assertions")
    })
}

/// Returns true for code that asks for a planted fault, which only models have.
fn is_planted(code: &str) -> bool {
    code.contains("Fault::") && code.trim_end().ends_with(')') && !code.contains("&&") && !code.contains("||")
}

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Returns true for a call of a function, not of a constructor.
fn is_call(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(_) => true,
        Expr::Call(call) => {
            match &*call.func {
                Expr::Path(path) => path.path.segments.last().is_some_and(|last| {
                    last.ident.to_string().starts_with(|first: char| first.is_lowercase())
                }),
                _ => true,
            }
        }
        _ => false,
    }
}

fn is_removable(expr: &Expr) -> bool {
    match expr {
        Expr::Assign(_) => true,
        Expr::Binary(binary) => assigns(&binary.op),
        Expr::Try(attempt) => is_call(&attempt.expr),
        call => is_call(call),
    }
}

/// Returns true for a memory ordering that is stronger than `Relaxed`.
fn is_ordering(expr: &Expr) -> bool {
    let Expr::Path(path) = expr else { return false };
    let names: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    let is_strong = |name: &String| ["Acquire", "Release", "AcqRel", "SeqCst"].contains(&name.as_str());
    names.last().is_some_and(is_strong) && (names.len() == 1 || names[names.len() - 2] == "Ordering")
}

#[cfg(test)]
mod tests;

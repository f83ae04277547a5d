//! Many mutants in the text of one file, each behind a switch: which of them counts is asked when the code runs.
//!
//! A build for each mutant takes most of the time of mutation testing. With switches there is one build for all of them: an
//! expression becomes a `match` over the number of the mutant that is active, with the expression itself where it is none of
//! its own, and a function begins with a return of its own if it is the active one. What has no number at run time, as a constant or a
//! pattern, cannot be switched.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use proc_macro2::{LineColumn, Span};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use super::list::Mutant;

/// The number of a mutant; 0 is none.
pub(super) type Number = u32;

/// The environment variable that says which mutant is active.
pub(super) const VARIABLE: &str = "ASHLAR_MUTANT";

/// What the root of a crate needs, so that its modules can ask.
pub(super) const ASKING: &str = "
extern crate std as std_of_mutants;
/// The mutant that is active.
pub(crate) fn active_mutant() -> u32 {
    static ACTIVE: std_of_mutants::sync::OnceLock<u32> = std_of_mutants::sync::OnceLock::new();
    *ACTIVE.get_or_init(|| std_of_mutants::env::var(\"ASHLAR_MUTANT\").ok().and_then(|text| text.parse().ok()).unwrap_or(0))
}
";

/// A file with switches.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Switched {
    pub(super) text: String,
    /// Where the text of a mutant stands, where it and what it replaces stand, and the function or `match` that it is in: for errors
    /// of the compiler.
    pub(super) places: Vec<(Range<usize>, Number)>,
    /// Parts that were left as they are: where each begins in the original, and where here.
    pieces: Vec<(usize, usize)>,
}

/// The text of a file with those of its mutants that can be switched; nothing if the file cannot be read.
pub(super) fn switch(text: &str, mutants: &[(Number, &Mutant)]) -> Option<Switched> {
    let mut sites = Sites { text, lines: line_starts(text), constants: 0, scope: 0..text.len(), found: Vec::new() };
    sites.visit_file(&syn::parse_file(text).ok()?);
    let mut changes: BTreeMap<Order, Vec<(Number, String)>> = BTreeMap::new();
    let mut scopes = Vec::new();
    for (number, mutant) in mutants {
        let Some(range) = mutant.range(text) else { continue };
        let Some(site) = sites.found.iter().filter(|site| site.is_of(&range)).min_by_key(|site| site.whole.len())
        else {
            continue;
        };
        let changed = match site.kind {
            Kind::Expression => {
                let (before, after) = (&text[site.whole.start..range.start], &text[range.end..site.whole.end]);
                format!("{before}{}{after}", mutant.replacement)
            }
            Kind::Body => format!("if crate::active_mutant() == {number} {{ return {}; }} ", mutant.replacement),
            Kind::Arm => format!(" if crate::active_mutant() != {number} "),
            Kind::Guard if mutant.replacement.is_empty() => "false".into(),
            Kind::Guard => mutant.replacement.clone(),
        };
        let key = (site.whole.start, !site.whole.is_empty(), Reverse(site.whole.end));
        changes.entry(key).or_default().push((*number, changed));
        scopes.push((site.scope.clone(), *number));
    }
    let changes: Vec<Change> =
        changes.into_iter().map(|((start, _, end), texts)| Change { range: start..end.0, texts }).collect();
    let mut switched = Switched { text: String::new(), places: Vec::new(), pieces: Vec::new() };
    switched.emit(text, 0..text.len(), &changes);
    for (scope, number) in scopes {
        switched.places.push((switched.here(scope.start)..switched.here(scope.end), number));
    }
    Some(switched)
}

/// Where a change starts, whether it is no insertion, and where it ends: one that contains another comes before it, and what is
/// inserted before both.
type Order = (usize, bool, Reverse<usize>);

/// What stands instead of a part of the text, or before an empty one.
struct Change {
    range: Range<usize>,
    texts: Vec<(Number, String)>,
}

impl Switched {
    /// Adds a part of the text with its changes, which are in order; one is inside another or behind it.
    fn emit(&mut self, text: &str, part: Range<usize>, mut changes: &[Change]) {
        let mut at = part.start;
        while let Some((change, rest)) = changes.split_first() {
            let inside = rest.iter().take_while(|inner| inner.range.start < change.range.end).count();
            self.keep(text, at..change.range.start);
            let start = self.text.len();
            if change.range.is_empty() {
                change.texts.iter().for_each(|(_, inserted)| self.text += inserted);
            } else {
                let other: Vec<String> = change.texts.iter().map(|(number, _)| format!("n != {number}")).collect();
                self.text += &format!("(match crate::active_mutant() {{ n if {} => (", other.join(" && "));
                self.emit(text, change.range.clone(), &rest[..inside]);
                self.text += ")";
                for (at, (number, changed)) in change.texts.iter().enumerate() {
                    let is_last = at + 1 == change.texts.len();
                    self.text += &if is_last { ", _ => (".to_owned() } else { format!(", {number} => (") };
                    let begin = self.text.len();
                    self.text += changed;
                    self.places.push((begin..self.text.len(), *number));
                    self.text += ")";
                }
                self.text += " })";
            }
            let whole = start..self.text.len();
            self.places.extend(change.texts.iter().map(|(number, _)| (whole.clone(), *number)));
            (at, changes) = (change.range.end, &rest[inside..]);
        }
        self.keep(text, at..part.end);
    }

    fn keep(&mut self, text: &str, part: Range<usize>) {
        self.pieces.push((part.start, self.text.len()));
        self.text += &text[part];
    }

    /// Where a position of the original is here.
    fn here(&self, at: usize) -> usize {
        let next = self.pieces.partition_point(|(original, _)| *original <= at);
        let (original, here) = self.pieces[next.saturating_sub(1)];
        here + (at - original)
    }

    /// The mutants of which text stands in a part of the file: those alone of which the text itself does, if there are any.
    pub(super) fn at(&self, part: &Range<usize>) -> Vec<Number> {
        let mut found: Vec<_> =
            self.places.iter().filter(|(place, _)| place.start < part.end && part.start < place.end).collect();
        let least = found.iter().map(|(place, _)| place.len()).min();
        found.retain(|(place, _)| Some(place.len()) == least);
        found.into_iter().map(|(_, number)| *number).collect()
    }
}

/// What can be switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An expression with something in it that is replaced.
    Expression,
    /// The statements of a function. The place is empty, before the first.
    Body,
    /// A match arm without a guard. The place is empty, behind the pattern.
    Arm,
    /// The guard of a match arm.
    Guard,
}

/// A place that can be switched, and what cargo-mutants replaces there.
#[derive(Debug)]
struct Site {
    kind: Kind,
    whole: Range<usize>,
    /// The function or the `match` that it is a part of.
    scope: Range<usize>,
    /// Where the replaced text starts.
    start: usize,
    /// Where it ends, if that tells sites apart.
    end: Option<usize>,
}

impl Site {
    fn is_of(&self, range: &Range<usize>) -> bool {
        self.start == range.start && self.end.is_none_or(|end| end == range.end)
    }
}

/// All places of a file.
struct Sites<'t> {
    text: &'t str,
    lines: Vec<usize>,
    /// How many constants the present place is in.
    constants: usize,
    /// The innermost function or `match` of the present place.
    scope: Range<usize>,
    found: Vec<Site>,
}

fn line_starts(text: &str) -> Vec<usize> {
    core::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

impl Sites<'_> {
    fn offset(&self, at: LineColumn) -> usize {
        let start = self.lines[at.line - 1];
        self.text[start..].char_indices().nth(at.column).map_or(self.text.len(), |(within, _)| start + within)
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.offset(span.start())..self.offset(span.end())
    }

    fn add(&mut self, kind: Kind, whole: Range<usize>, start: usize, end: Option<usize>) {
        if self.constants == 0 {
            self.found.push(Site { kind, whole, scope: self.scope.clone(), start, end });
        }
    }

    fn add_body(&mut self, block: &syn::Block) {
        if let [first, .., last] | [first @ last] = block.stmts.as_slice() {
            let (start, end) = (self.range(first.span()).start, self.range(last.span()).end);
            self.add(Kind::Body, start..start, start, Some(end));
        }
    }

    fn within_constant(&mut self, visit: impl FnOnce(&mut Self)) {
        self.constants += 1;
        visit(self);
        self.constants -= 1;
    }

    fn within_scope(&mut self, span: Span, visit: impl FnOnce(&mut Self)) {
        let scope = self.range(span);
        let outer = core::mem::replace(&mut self.scope, scope);
        visit(self);
        self.scope = outer;
    }

    fn function(&mut self, span: Span, is_const: bool, block: &syn::Block, visit: impl FnOnce(&mut Self)) {
        self.within_scope(span, |sites| {
            sites.constants += usize::from(is_const);
            sites.add_body(block);
            visit(sites);
            sites.constants -= usize::from(is_const);
        });
    }
}

/// Whether an expression has a `let` that brackets would take its place from.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Sites<'_> {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.within_constant(|sites| visit::visit_item_const(sites, item));
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.within_constant(|sites| visit::visit_item_static(sites, item));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.within_constant(|sites| visit::visit_impl_item_const(sites, item));
    }

    fn visit_trait_item_const(&mut self, item: &'ast syn::TraitItemConst) {
        self.within_constant(|sites| visit::visit_trait_item_const(sites, item));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.within_constant(|sites| visit::visit_item_enum(sites, item));
    }

    fn visit_type(&mut self, item: &'ast syn::Type) {
        self.within_constant(|sites| visit::visit_type(sites, item));
    }

    fn visit_pat(&mut self, item: &'ast syn::Pat) {
        if let syn::Pat::Guard(guarded) = item {
            self.visit_pat(&guarded.pat);
            self.visit_expr(&guarded.guard);
        } else {
            self.within_constant(|sites| visit::visit_pat(sites, item));
        }
    }

    fn visit_expr_const(&mut self, item: &'ast syn::ExprConst) {
        self.within_constant(|sites| visit::visit_expr_const(sites, item));
    }

    fn visit_expr_repeat(&mut self, item: &'ast syn::ExprRepeat) {
        self.visit_expr(&item.expr);
        self.within_constant(|sites| sites.visit_expr(&item.len));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(item.span(), item.sig.constness.is_some(), &item.block, |sites| {
            visit::visit_item_fn(sites, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(item.span(), item.sig.constness.is_some(), &item.block, |sites| {
            visit::visit_impl_item_fn(sites, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(item.span(), item.sig.constness.is_some(), block, |sites| {
                visit::visit_trait_item_fn(sites, item);
            });
        }
    }

    fn visit_expr_binary(&mut self, item: &'ast syn::ExprBinary) {
        if !has_let(&item.left) && !has_let(&item.right) {
            let operator = self.range(item.op.span());
            self.add(Kind::Expression, self.range(item.span()), operator.start, Some(operator.end));
        }
        visit::visit_expr_binary(self, item);
    }

    fn visit_expr_unary(&mut self, item: &'ast syn::ExprUnary) {
        let operator = self.range(item.op.span());
        self.add(Kind::Expression, self.range(item.span()), operator.start, Some(operator.end));
        visit::visit_expr_unary(self, item);
    }

    fn visit_expr_struct(&mut self, item: &'ast syn::ExprStruct) {
        for field in &item.fields {
            let start = self.range(field.span()).start;
            self.add(Kind::Expression, self.range(item.span()), start, None);
        }
        visit::visit_expr_struct(self, item);
    }

    fn visit_expr_match(&mut self, item: &'ast syn::ExprMatch) {
        self.within_scope(item.span(), |sites| visit::visit_expr_match(sites, item));
    }

    fn visit_arm(&mut self, item: &'ast syn::Arm) {
        let start = self.range(item.span()).start;
        match &item.pat {
            syn::Pat::Guard(guarded) => {
                let guard = self.range(guarded.guard.span());
                self.add(Kind::Guard, guard.clone(), guard.start, Some(guard.end));
                self.add(Kind::Guard, guard, start, None);
            }
            _ => {
                let arrow = self.range(item.fat_arrow_token.span()).start;
                self.add(Kind::Arm, arrow..arrow, start, None);
            }
        }
        visit::visit_arm(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::change;
    use super::*;

    /// The text with a mutant for each of these: the text that is replaced, which stands there once, and what stands there instead.
    fn switched(text: &str, changes: &[(&str, &str)]) -> String {
        let mutants: Vec<Mutant> = changes.iter().map(|(old, new)| change(text, old, new)).collect();
        switch(text, &(1..).zip(&mutants).collect::<Vec<_>>()).expect("it is Rust").text
    }

    #[test]
    fn an_expression_asks_which_of_its_mutants_is_active() {
        assert_eq!(
            switched("fn f() -> bool { ä + 1 == b }", &[("==", "!="), ("+", "-")]),
            "fn f() -> bool { (match crate::active_mutant() { n if n != 1 => (\
             (match crate::active_mutant() { n if n != 2 => (ä + 1), _ => (ä - 1) }) == b), _ => (ä + 1 != b) }) }"
        );
        assert_eq!(
            switched("fn f() { if a < b { x += 1; } !c }", &[("<", "<="), ("<", ">"), ("+=", "-="), ("!", "")]),
            "fn f() { if (match crate::active_mutant() { n if n != 1 && n != 2 => (a < b), 1 => (a <= b), _ => (a > b) }) \
             { (match crate::active_mutant() { n if n != 3 => (x += 1), _ => (x -= 1) }); } \
             (match crate::active_mutant() { n if n != 4 => (!c), _ => (c) }) }"
        );
        assert_eq!(
            switched("fn f() { S { a: 1, b: 2, ..S::new() } }", &[("b: 2,", "")]),
            "fn f() { (match crate::active_mutant() { n if n != 1 => (S { a: 1, b: 2, ..S::new() }), _ => (S { a: 1,  ..S::new() }) }) }"
        );
    }

    #[test]
    fn a_function_returns_at_once() {
        assert_eq!(
            switched("fn f(x: u8) -> u8 { x.max(2) + 1 }", &[("x.max(2) + 1", "0"), ("+", "*")]),
            "fn f(x: u8) -> u8 { if crate::active_mutant() == 1 { return 0; } \
             (match crate::active_mutant() { n if n != 2 => (x.max(2) + 1), _ => (x.max(2) * 1) }) }"
        );
    }

    #[test]
    fn arms_and_their_guards() {
        let text = "fn f() { match x { A => 1, B if y < 2 => 3, _ => 4 } }";
        assert_eq!(
            switched(text, &[("A => 1,", ""), ("y < 2", "true"), ("<", ">"), ("B if y < 2 => 3,", "")]),
            "fn f() { match x { A  if crate::active_mutant() != 1 => 1, B if (match crate::active_mutant() { \
             n if n != 2 && n != 3 && n != 4 => (y < 2), 2 => (true), 3 => (y > 2), _ => (false) }) => 3, _ => 4 } }"
        );
    }

    #[test]
    fn constants_and_lets_are_left_as_they_are() {
        for (text, changes) in [
            ("const A: u8 = 1 + 2;", [("+", "-")]),
            ("const fn f() -> u8 { 1 + 2 }", [("+", "-")]),
            ("const fn f() -> u8 { 3 }", [("3", "0")]),
            ("fn f() { if let Some(x) = y && x { } }", [("&&", "||")]),
            ("fn f() { [0; N + 1] }", [("+", "-")]),
            ("fn f(x: [u8; N + 1]) { }", [("+", "-")]),
        ] {
            assert_eq!(switched(text, &changes), text);
        }
        assert_eq!(switch("fn f( {", &[]), None);
    }

    #[test]
    fn an_error_leads_to_the_mutant() {
        let text = "fn f() -> bool { a + 1 == b }";
        let mutants = [change(text, "==", "!="), change(text, "+", "-")];
        let switched = switch(text, &(1..).zip(&mutants).collect::<Vec<_>>()).expect("it is Rust");
        let place = |part: &str| switched.text.find(part).map(|at| at..at + part.len()).expect("it is there");
        assert_eq!(switched.at(&place("a - 1")), [2]);
        assert_eq!(switched.at(&place("a + 1 != b")), [1]);
        // What stands in the switch itself: the innermost one.
        assert_eq!(switched.at(&place("(a + 1)")), [2]);
        assert_eq!(switched.at(&place("== b")), [1]);
        // And what stands beside it in the function.
        assert_eq!(switched.at(&place("bool")), [1, 2]);
    }
}

//! Rule `sizes`: a function fits on a screen, a file in a sitting. Tests count too.

use syn::visit::{self, Visit};
use syn::{Block, Ident, ImplItemFn, ItemFn, TraitItemFn};

use super::Finding;
use super::source::Source;

const RULE: &str = "sizes";

/// Lines between the braces of a function, blank lines and comments counted.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines of a file.
const FILE_LINES_MAX: usize = 1_000;

/// Every function and file that is too long.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut sizes = Sizes { path: &source.path, findings: Vec::new() };
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        sizes.find(1, format!("{lines} lines, {FILE_LINES_MAX} at most (give one of its ideas a file of its own)"));
    }
    sizes.visit_file(&source.file);
    sizes.findings
}

struct Sizes<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Sizes<'_> {
    fn find(&mut self, line: usize, message: String) {
        self.findings.push(Finding::new(self.path, line, RULE, message));
    }

    fn measure(&mut self, name: &Ident, body: &Block) {
        let braces = body.brace_token.span;
        let lines = (braces.close().start().line - braces.open().start().line).saturating_sub(1);
        if lines > FUNCTION_LINES_MAX {
            let message = format!("`{name}` has {lines} lines, {FUNCTION_LINES_MAX} at most (name its parts)");
            self.find(name.span().start().line, message);
        }
    }
}

impl<'ast> Visit<'ast> for Sizes<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.measure(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.measure(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.measure(&function.sig.ident, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines_found;
    use super::*;

    fn function(before: &str, lines: usize, after: &str) -> String {
        format!("\n{before}fn f() {{\n{}}}{after}", "    g();\n".repeat(lines))
    }

    #[test]
    fn functions() {
        for (before, after) in [("", ""), ("impl X { ", "}"), ("trait X { ", "}"), ("#[cfg(test)] mod tests { ", "}")] {
            assert_eq!(lines_found(check, "wire/src/id.rs", &function(before, 71, after)), [2], "{before}");
            assert_eq!(lines_found(check, "wire/src/id.rs", &function(before, 70, after)), [0; 0], "{before}");
        }
    }

    #[test]
    fn files() {
        assert_eq!(lines_found(check, "wire/src/id.rs", &"// x\n".repeat(1_001)), [1]);
        assert_eq!(lines_found(check, "wire/src/id.rs", &"// x\n".repeat(1_000)), [0; 0]);
    }
}

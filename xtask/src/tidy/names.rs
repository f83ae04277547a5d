//! Rule `names`: a name says what is inside. These say nothing, so everything ends up in them.

use syn::ItemMod;
use syn::visit::{self, Visit};

use super::Finding;
use super::source::Source;

const FORBIDDEN: [&str; 7] = ["common", "helper", "helpers", "manager", "managers", "util", "utils"];

/// Every file, directory and inline module with an empty name.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut names = Names { path: &source.path, findings: Vec::new() };
    let parts = source.path.trim_end_matches(".rs").split('/');
    parts.for_each(|part| names.judge(1, part));
    names.visit_file(&source.file);
    names.findings
}

struct Names<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Names<'_> {
    fn judge(&mut self, line: usize, name: &str) {
        if name.split(['_', '-']).any(|word| FORBIDDEN.contains(&word)) {
            let message = format!("`{name}` says nothing (name the one idea that is inside)");
            self.findings.push(Finding::new(self.path, line, "names", message));
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.content.is_some() {
            self.judge(module.ident.span().start().line, &module.ident.to_string());
        }
        visit::visit_item_mod(self, module);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines_found;
    use super::*;

    #[test]
    fn names_that_say_nothing() {
        let planted =
            ["wire/src/utils.rs", "wire/src/common/id.rs", "wire/tests/test_helpers.rs", "peer-manager/src/lib.rs"];
        for path in planted {
            assert_eq!(lines_found(check, path, ""), [1], "{path}");
        }
        assert_eq!(lines_found(check, "wire/src/id.rs", "mod parse {\n mod helpers {} }"), [2]);
    }

    #[test]
    fn names_that_say_something() {
        assert_eq!(lines_found(check, "wire/src/management.rs", "mod parse { mod digits {} } mod utils;"), [0; 0]);
    }
}

//! Rule `allows`: who silences a lint says why, where it is silenced.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::Finding;
use super::source::Source;

/// Every `allow` and `expect` attribute without `reason = ".."`, in macros and behind `cfg_attr` too.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut lines = Vec::new();
    scan(source.tokens.clone(), &mut lines);
    let message = "a lint is silenced without a reason (repair the code, or add `reason = \"..\"`)";
    lines.iter().map(|&line| Finding::new(&source.path, line, "allows", message)).collect()
}

/// Looks for attributes among tokens: `#` or `#!` and a group in brackets.
fn scan(tokens: TokenStream, lines: &mut Vec<usize>) {
    let mut after_pound = false;
    for token in tokens {
        match token {
            TokenTree::Punct(punct) => after_pound = punct.as_char() == '#' || after_pound && punct.as_char() == '!',
            TokenTree::Group(group) if after_pound && group.delimiter() == Delimiter::Bracket => {
                attribute(group.stream(), lines);
                after_pound = false;
            }
            TokenTree::Group(group) => {
                scan(group.stream(), lines);
                after_pound = false;
            }
            _ => after_pound = false,
        }
    }
}

fn attribute(tokens: TokenStream, lines: &mut Vec<usize>) {
    let mut silences = None;
    for token in tokens {
        match (token, silences.take()) {
            (TokenTree::Group(group), Some(line)) if !has_reason(&group) => lines.push(line),
            (TokenTree::Group(group), None) => attribute(group.stream(), lines),
            (TokenTree::Ident(ident), _) if ident == "allow" || ident == "expect" => {
                silences = Some(ident.span().start().line);
            }
            _ => {}
        }
    }
}

fn has_reason(list: &Group) -> bool {
    list.stream().into_iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == "reason"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines_found;
    use super::*;

    /// Each silences a lint on line 2; `%` is where the reason goes.
    const PLANTED: [&str; 5] = [
        "\n#[allow(dead_code%)] fn f() {}",
        "\n#[expect(dead_code%)] fn f() {}",
        "\n#![allow(dead_code, clippy::unwrap_used%)]",
        "\n#[cfg_attr(test, allow(dead_code%))] fn f() {}",
        "macro_rules! m { () => {\n #[allow(dead_code%)] fn f() {} } }",
    ];

    #[test]
    fn without_a_reason() {
        for text in PLANTED {
            assert_eq!(lines_found(check, "wire/src/id.rs", &text.replace('%', "")), [2], "{text}");
        }
    }

    #[test]
    fn clean_twins() {
        for text in PLANTED {
            let text = text.replace('%', ", reason = \"why\"");
            assert_eq!(lines_found(check, "wire/src/id.rs", &text), [0; 0], "{text}");
        }
        let no_attribute = "fn f() { g[allow(1)].expect(2); } #[should_panic(expected = \"x\")] fn g() {}";
        assert_eq!(lines_found(check, "wire/src/id.rs", no_attribute), [0; 0]);
    }
}

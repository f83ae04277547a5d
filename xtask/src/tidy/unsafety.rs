//! Rule `unsafe`: the keyword stands in two rooms only, where each use has its safe twin.

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;
use super::source::Source;

/// Where the keyword may stand.
const ROOMS: [&str; 2] = ["erasure/src/simd", "ashlar/src/os"];

/// Every `unsafe` outside its rooms, in macros, tests and attributes too.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    if ROOMS.iter().any(|room| source.is_in(room)) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    scan(source.tokens.clone(), &mut lines);
    let message = "outside erasure/src/simd and ashlar/src/os (write it safely, or move it there with its safe twin)";
    lines.iter().map(|&line| Finding::new(&source.path, line, "unsafe", message)).collect()
}

fn scan(tokens: TokenStream, lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => scan(group.stream(), lines),
            TokenTree::Ident(ident) if ident == "unsafe" => lines.push(ident.span().start().line),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines_found;
    use super::*;

    const PLANTED: [&str; 5] = [
        "fn f() {\n unsafe { g() } }",
        "\nunsafe impl Send for X {}",
        "\n#[unsafe(no_mangle)] fn f() {}",
        "macro_rules! m { () => {\n unsafe { g() } } }",
        "#[cfg(test)] mod tests {\n unsafe fn f() {} }",
    ];

    #[test]
    fn outside_its_rooms() {
        for text in PLANTED {
            assert_eq!(lines_found(check, "wire/src/lib.rs", text), [2], "{text}");
        }
    }

    #[test]
    fn inside_its_rooms_and_clean_twins() {
        for text in PLANTED {
            assert_eq!(lines_found(check, "erasure/src/simd/x86.rs", text), [0; 0], "{text}");
            assert_eq!(lines_found(check, "ashlar/src/os/ring.rs", text), [0; 0], "{text}");
        }
        let clean = "#![forbid(unsafe_code)]\n//! unsafe is absent\nconst TEXT: &str = \"unsafe\"; // unsafe";
        assert_eq!(lines_found(check, "wire/src/lib.rs", clean), [0; 0]);
    }
}

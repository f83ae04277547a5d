//! Rule `seams`: what a crate needs of the world has at most five methods.
//!
//! A seam is a trait that other crates implement, so it is written `pub` in a library. A trait that is visible inside its
//! crate alone is a matter of that crate. Methods with a body count too: whoever reads the seam reads them.

use syn::visit::{self, Visit};
use syn::{ItemTrait, TraitItem, Visibility};

use super::baseline::Places;
use super::source::{Source, is_for_tests};

/// Methods of a seam.
const METHODS_MAX: usize = 5;

/// Adds a place for each method of a seam, by the name of the trait, where there are too many.
pub(super) fn find(source: &Source, places: &mut Places) {
    if source.in_library && !source.is_test && !source.is_chore() {
        Seams { path: &source.path, places }.visit_file(&source.file);
    }
}

struct Seams<'a> {
    path: &'a str,
    places: &'a mut Places,
}

impl<'ast> Visit<'ast> for Seams<'_> {
    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if matches!(item.vis, Visibility::Public(_)) && !is_for_tests(&item.attrs) {
            let methods = item.items.iter().filter_map(|item| match item {
                TraitItem::Fn(method) => Some(method.sig.ident.span().start().line),
                _ => None,
            });
            let lines: Vec<usize> = methods.collect();
            if lines.len() > METHODS_MAX {
                self.places.insert((self.path.to_owned(), item.ident.to_string()), lines);
            }
        }
        visit::visit_item_trait(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let mut places = Places::new();
        find(&Source::parse(path, true, text.to_owned()).expect("the planted source parses"), &mut places);
        places.into_values().flatten().collect()
    }

    fn seam(before: &str, methods: usize) -> String {
        format!("{before} trait World {{ type Time; {} }}", "\nfn f(&self);".repeat(methods))
    }

    #[test]
    fn a_sixth_method() {
        for before in ["pub", "#[cfg(unix)] pub", "mod inside { }\npub"] {
            assert_eq!(found("grid/src/seam.rs", &seam(before, 6)).len(), 6, "{before}");
            assert_eq!(found("grid/src/seam.rs", &seam(before, 5)), [0; 0], "{before}");
        }
    }

    #[test]
    fn clean_twins() {
        for before in ["", "pub(crate)", "#[cfg(test)] pub"] {
            assert_eq!(found("grid/src/seam.rs", &seam(before, 6)), [0; 0], "{before}");
        }
        for path in ["xtask/src/x.rs", "grid/tests/x.rs"] {
            assert_eq!(found(path, &seam("pub", 6)), [0; 0], "{path}");
        }
    }
}

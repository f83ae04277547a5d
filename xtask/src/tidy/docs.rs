//! Rule `docs`: every file has a head, and everything that is written `pub` in a library is documented.
//!
//! The compiler's `missing_docs` sees what other crates can reach; this rule reads what the text says, so a public
//! item of a private module is held to it as well. Fields without names and re-exports need no words of their own.

use syn::{Attribute, Fields, Ident, ImplItem, Item, ItemMod, Meta, TraitItem, Visibility};

use super::Finding;
use super::source::{Source, impl_item_attributes, is_for_tests, item_attributes, trait_item_attributes};

const RULE: &str = "docs";

/// Every head and every item's documentation that is missing; tests, chores and programs without a library are free.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    if source.is_test || source.is_chore() {
        return Vec::new();
    }
    let mut docs = Docs { path: &source.path, findings: Vec::new() };
    if !is_documented(&source.file.attrs) {
        docs.find(1, "the file has no head (say with `//!` what it is, why, and what it does not do)".into());
    }
    if source.in_library {
        docs.items(&source.file.items);
    }
    docs.findings
}

struct Docs<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Docs<'_> {
    fn find(&mut self, line: usize, message: String) {
        self.findings.push(Finding::new(self.path, line, RULE, message));
    }

    fn expect(&mut self, what: &str, name: &Ident, attributes: &[Attribute]) {
        if !is_documented(attributes) {
            let message = format!("the public {what} `{name}` is not documented (say what it is to its user)");
            self.find(name.span().start().line, message);
        }
    }

    fn items(&mut self, items: &[Item]) {
        let shipped = items.iter().filter(|item| !is_for_tests(item_attributes(item)));
        shipped.for_each(|item| self.item(item));
    }

    fn item(&mut self, item: &Item) {
        if let Item::Impl(item) = item {
            if item.trait_.is_none() {
                item.items.iter().for_each(|item| self.impl_item(item));
            }
            return;
        }
        if let Item::Mod(module) = item {
            return self.module(module);
        }
        let Some((what, name)) = public_item(item) else { return };
        self.expect(what, name, item_attributes(item));
        match item {
            Item::Struct(item) => self.fields(&item.fields, is_public),
            Item::Union(item) => {
                let public = item.fields.named.iter().filter(|field| is_public(&field.vis));
                for field in public {
                    field.ident.iter().for_each(|name| self.expect("field", name, &field.attrs));
                }
            }
            Item::Enum(item) => {
                for variant in &item.variants {
                    self.expect("variant", &variant.ident, &variant.attrs);
                    self.fields(&variant.fields, |_| true);
                }
            }
            Item::Trait(item) => item.items.iter().for_each(|item| self.trait_item(item)),
            _ => {}
        }
    }

    /// A module in a file of its own is documented by the head of that file.
    fn module(&mut self, module: &ItemMod) {
        let Some((_, items)) = &module.content else { return };
        if is_public(&module.vis) {
            self.expect("module", &module.ident, &module.attrs);
        }
        self.items(items);
    }

    fn fields(&mut self, fields: &Fields, is_public: fn(&Visibility) -> bool) {
        for field in fields.iter().filter(|field| is_public(&field.vis)) {
            if let Some(name) = &field.ident {
                self.expect("field", name, &field.attrs);
            }
        }
    }

    fn impl_item(&mut self, item: &ImplItem) {
        let (visibility, what, name) = match item {
            ImplItem::Const(item) => (&item.vis, "constant", &item.ident),
            ImplItem::Fn(item) => (&item.vis, "function", &item.sig.ident),
            ImplItem::Type(item) => (&item.vis, "type", &item.ident),
            _ => return,
        };
        let attributes = impl_item_attributes(item);
        if is_public(visibility) && !is_for_tests(attributes) {
            self.expect(what, name, attributes);
        }
    }

    fn trait_item(&mut self, item: &TraitItem) {
        let (what, name) = match item {
            TraitItem::Const(item) => ("constant", &item.ident),
            TraitItem::Fn(item) => ("function", &item.sig.ident),
            TraitItem::Type(item) => ("type", &item.ident),
            _ => return,
        };
        self.expect(what, name, trait_item_attributes(item));
    }
}

/// What a public item is and its name; `None` if it is not public or needs no documentation.
fn public_item(item: &Item) -> Option<(&'static str, &Ident)> {
    let (visibility, what, name) = match item {
        Item::Const(item) => (&item.vis, "constant", &item.ident),
        Item::Enum(item) => (&item.vis, "enum", &item.ident),
        Item::Fn(item) => (&item.vis, "function", &item.sig.ident),
        Item::Static(item) => (&item.vis, "static", &item.ident),
        Item::Struct(item) => (&item.vis, "struct", &item.ident),
        Item::Trait(item) => (&item.vis, "trait", &item.ident),
        Item::Type(item) => (&item.vis, "type", &item.ident),
        Item::Union(item) => (&item.vis, "union", &item.ident),
        Item::Macro(item) if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) => {
            return item.ident.as_ref().map(|name| ("macro", name));
        }
        _ => return None,
    };
    is_public(visibility).then_some((what, name))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_documented(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::NameValue(pair) => pair.path.is_ident("doc"),
        Meta::List(list) => list.path.is_ident("doc") && list.tokens.to_string() == "hidden",
        Meta::Path(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines_found;
    use super::*;

    /// Each has one public item that lacks documentation, on line 3, where `%` stands.
    const PLANTED: [&str; 14] = [
        "\n%pub fn f() {}",
        "\n%pub struct S;",
        "/// A struct.\npub struct S { %pub field: u8 }",
        "\n%pub enum E {}",
        "/// An enum.\npub enum E { %Variant }",
        "/// An enum.\npub enum E { /// A variant.\nVariant { %field: u8 } }",
        "\n%pub trait T {}",
        "/// A trait.\npub trait T { %fn f(); }",
        "\n%pub const C: u8 = 0;",
        "\n%pub static C: u8 = 0;",
        "\n%pub type T = u8;",
        "\n%pub mod inside {}",
        "\nimpl S { %pub fn f() {} }",
        "\nmod inside { %pub fn f() {} }",
    ];

    #[test]
    fn undocumented() {
        for planted in PLANTED {
            let text = format!("//! Head.\n{}", planted.replace('%', ""));
            assert_eq!(lines_found(check, "wire/src/id.rs", &text).len(), 1, "{planted}");
        }
        assert_eq!(lines_found(check, "wire/src/id.rs", "fn f() {}"), [1], "no head");
    }

    #[test]
    fn documented_twins() {
        for planted in PLANTED {
            let text = format!("//! Head.\n{}", planted.replace('%', "\n/// What it is.\n"));
            assert_eq!(lines_found(check, "wire/src/id.rs", &text), [0; 0], "{planted}");
        }
    }

    #[test]
    fn what_needs_no_words() {
        let free = [
            "pub(crate) fn f() {}",
            "struct S { pub field: u8 }",
            "/// A pair.\npub struct S(pub u8);",
            "pub use inside::S; pub mod elsewhere;",
            "impl T for S { fn f() {} }",
            "#[doc(hidden)] pub fn f() {}",
            "#[cfg(test)] pub mod tests { pub fn f() {} }",
        ];
        for text in free {
            assert_eq!(lines_found(check, "wire/src/id.rs", &format!("//! Head.\n{text}")), [0; 0], "{text}");
        }
        for path in ["xtask/src/x.rs", "wire/tests/golden.rs", "fuzz/fuzz_targets/id.rs"] {
            assert_eq!(lines_found(check, path, "pub fn f() {}"), [0; 0], "{path}");
        }
    }

    #[test]
    fn a_program_without_a_library_has_no_public_items() {
        let source = Source::parse("ashlar/src/cli.rs", false, "//! Head.\npub fn f() {}".into());
        assert_eq!(check(&source.expect("the planted source parses")), []);
    }
}

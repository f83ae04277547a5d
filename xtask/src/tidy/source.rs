//! What a rule is given: one parsed file and what kind of file it is.

use proc_macro2::TokenStream;
use syn::punctuated::Punctuated;
use syn::{Attribute, ImplItem, Item, Meta, Token, TraitItem};

use super::Finding;

/// One Rust file.
pub(super) struct Source {
    /// Relative to the repository, with `/`.
    pub(super) path: String,
    /// As it is on the drive.
    pub(super) text: String,
    /// Every token, those inside macros too; comments are gone, documentation has become `#[doc]`.
    pub(super) tokens: TokenStream,
    /// The same as a syntax tree; what stands inside macros is opaque here.
    pub(super) file: syn::File,
    /// Whether other crates can see the public items of this package.
    pub(super) in_library: bool,
    /// Whether the whole file is compiled for tests only.
    pub(super) is_test: bool,
}

impl Source {
    /// Reads one file; `in_library` says whether its package has a library.
    pub(super) fn parse(path: &str, in_library: bool, text: String) -> Result<Self, Finding> {
        let unreadable = |span: proc_macro2::Span, error: String| {
            Finding::new(path, span.start().line, "parse", format!("{error} (see what the compiler says)"))
        };
        let code = text.trim_start_matches('\u{feff}');
        let tokens: TokenStream =
            code.parse().map_err(|error: proc_macro2::LexError| unreadable(error.span(), error.to_string()))?;
        let file = syn::parse2(tokens.clone()).map_err(|error| unreadable(error.span(), error.to_string()))?;
        let is_test = path.split('/').any(|part| part == "tests" || part == "tests.rs");
        Ok(Self { path: path.to_owned(), text, tokens, file, in_library, is_test })
    }

    /// Whether the file lies in this room: below the directory, or the module file beside it.
    pub(super) fn is_in(&self, room: &str) -> bool {
        self.path.strip_prefix(room).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    }

    /// Whether the file is a chore: never part of what users run.
    pub(super) fn is_chore(&self) -> bool {
        self.is_in("xtask") || self.is_in("fuzz") || self.path.ends_with("/build.rs") && !self.path.contains("/src/")
    }
}

/// Marks the files of modules that a parent declares as `#[cfg(test)] mod name;`.
pub(super) fn mark_test_modules(sources: &mut [Source]) {
    let rooms: Vec<String> = sources.iter().flat_map(test_modules).collect();
    for source in sources {
        source.is_test |= rooms.iter().any(|room| source.is_in(room));
    }
}

fn test_modules(source: &Source) -> Vec<String> {
    let (directory, name) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let base = match name {
        "lib.rs" | "main.rs" | "mod.rs" => directory.to_owned(),
        _ => source.path.trim_end_matches(".rs").to_owned(),
    };
    let declared = source.file.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() && is_for_tests(&module.attrs) => Some(&module.ident),
        _ => None,
    });
    declared.map(|name| format!("{base}/{name}")).collect()
}

/// Whether these attributes keep an item out of everything but tests.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.segments.last().is_some_and(|last| last.ident == "test"),
        Meta::List(list) if list.path.is_ident("cfg") => list.parse_args().is_ok_and(|meta| needs_test(&meta)),
        _ => false,
    })
}

/// Whether a `cfg` predicate holds in tests only.
fn needs_test(predicate: &Meta) -> bool {
    match predicate {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default();
            if list.path.is_ident("all") {
                parts.iter().any(needs_test)
            } else {
                list.path.is_ident("any") && !parts.is_empty() && parts.iter().all(needs_test)
            }
        }
        Meta::NameValue(_) => false,
    }
}

/// The attributes of an item.
pub(super) fn item_attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of an item of an `impl`.
pub(super) fn impl_item_attributes(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// The attributes of an item of a trait.
pub(super) fn trait_item_attributes(item: &TraitItem) -> &[Attribute] {
    match item {
        TraitItem::Const(item) => &item.attrs,
        TraitItem::Fn(item) => &item.attrs,
        TraitItem::Type(item) => &item.attrs,
        TraitItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::parse(path, true, text.to_owned()).expect("the planted source parses")
    }

    #[test]
    fn what_is_for_tests() {
        let cases = [
            ("#[test] fn f() {}", true),
            ("#[cfg(test)] fn f() {}", true),
            ("#[cfg(all(unix, test))] fn f() {}", true),
            ("#[cfg(any(test, unix))] fn f() {}", false),
            ("#[cfg(not(test))] fn f() {}", false),
            ("#[cfg(feature = \"test\")] fn f() {}", false),
            ("fn f() {}", false),
        ];
        for (text, expected) in cases {
            let file = source("wire/src/lib.rs", text).file;
            assert_eq!(is_for_tests(item_attributes(&file.items[0])), expected, "{text}");
        }
    }

    #[test]
    fn a_test_module_in_its_own_file_is_a_test() {
        let mut sources = [
            source("wire/src/lib.rs", "#[cfg(test)] mod golden; mod id;"),
            source("wire/src/id.rs", "#[cfg(test)] mod cases;"),
            source("wire/src/golden.rs", ""),
            source("wire/src/golden/v1.rs", ""),
            source("wire/src/id/cases.rs", ""),
            source("wire/tests/outside.rs", ""),
        ];
        mark_test_modules(&mut sources);
        assert_eq!(sources.map(|source| source.is_test), [false, false, true, true, true, true]);
    }

    #[test]
    fn a_room_is_a_directory_and_the_file_beside_it() {
        for (path, inside) in
            [("ashlar/src/os/drive.rs", true), ("ashlar/src/os.rs", true), ("ashlar/src/oslo.rs", false)]
        {
            assert_eq!(source(path, "").is_in("ashlar/src/os"), inside, "{path}");
        }
    }
}

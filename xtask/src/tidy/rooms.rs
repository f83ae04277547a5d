//! Rule `rooms`: tokio, `std::net`, `std::fs` and `std::thread` live in the program's outer rooms only, so that
//! everything else runs unchanged on the simulator. The two lowest layers go without `std` altogether.
//!
//! Paths and use trees are read as syntax, macro bodies as tokens. Taking `std` as a whole, or under another name, is
//! a finding too: behind it nobody would see the rooms.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemExternCrate, ItemUse, Macro, Meta, Path, TraitItem, UseTree};

use super::Finding;
use super::source::{Source, impl_item_attributes, is_for_tests, item_attributes, trait_item_attributes};

const RULE: &str = "rooms";

/// Where the outside world may be touched.
const ROOMS: [&str; 2] = ["ashlar/src/os", "ashlar/src/front"];

/// The one file outside those rooms that may do so too.
const MAIN: &str = "ashlar/src/main.rs";

/// The heads of the crates in which clocks, sockets and hash maps do not even exist.
const WITHOUT_STD: [&str; 4] = ["wire/src/lib.rs", "placement/src/lib.rs", "bus/src/lib.rs", "erasure/src/lib.rs"];

/// Every mention of the outside world outside its rooms; tests and chores are free.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let is_free = source.is_test || source.is_chore() || source.path == MAIN;
    if is_free || ROOMS.iter().any(|room| source.is_in(room)) {
        return Vec::new();
    }
    let mut rooms = Rooms { path: &source.path, findings: Vec::new() };
    rooms.visit_file(&source.file);
    if WITHOUT_STD.contains(&source.path.as_str()) && !source.file.attrs.iter().any(is_no_std) {
        let message = "the crate lies in the two lowest layers and is built with std (write `#![no_std]`)";
        rooms.findings.push(Finding::new(&source.path, 1, RULE, message));
    }
    rooms.findings
}

struct Rooms<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Rooms<'_> {
    fn judge(&mut self, path: &[Ident]) {
        let names: Vec<String> = path.iter().map(ToString::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (Some(room), Some(first)) = (room(&names), path.first()) else { return };
        let instead = if room == "std::net" { "; addresses are values in core::net" } else { "" };
        self.find(first, &format!("{room} outside ashlar/src/os, ashlar/src/front and ashlar/src/main.rs (take a seam or a value instead{instead})"));
    }

    fn find(&mut self, at: &Ident, message: &str) {
        self.findings.push(Finding::new(self.path, at.span().start().line, RULE, message));
    }

    fn find_whole(&mut self, at: &Ident) {
        self.find(at, "std or tokio as a whole or renamed hides its rooms (name the module that you mean)");
    }

    /// Walks a use tree; `prefix` is what stands before it.
    fn walk(&mut self, prefix: &mut Vec<Ident>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.clone());
                self.walk(prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Name(name) => self.leaf(prefix, &name.ident),
            UseTree::Rename(rename) => self.leaf(prefix, &rename.ident),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.walk(prefix, tree)),
            UseTree::Glob(_) => match prefix.as_slice() {
                [root] if is_outside(root) => self.find_whole(root),
                path => self.judge(path),
            },
        }
    }

    fn leaf(&mut self, prefix: &[Ident], name: &Ident) {
        let mut path = prefix.to_vec();
        if name != "self" {
            path.push(name.clone());
        }
        match path.as_slice() {
            [root] if is_outside(root) => self.find_whole(root),
            path => self.judge(path),
        }
    }

    /// Looks for paths among the tokens of a macro.
    fn scan(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.scan(group.stream()),
                TokenTree::Ident(ident) => {
                    let mut path = vec![ident.clone()];
                    while let Some(TokenTree::Ident(next)) = after_colons(&tokens, at) {
                        path.push(next.clone());
                        at += 3;
                    }
                    if let Some(TokenTree::Group(group)) = after_colons(&tokens, at)
                        && group.delimiter() == Delimiter::Brace
                    {
                        let leaves = group.stream().into_iter().filter_map(|leaf| match leaf {
                            TokenTree::Ident(leaf) => Some([&path[..], &[leaf]].concat()),
                            _ => None,
                        });
                        leaves.for_each(|leaf| self.judge(&leaf));
                    }
                    if path.len() > 1 {
                        self.judge(&path);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Rooms<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(item_attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !is_for_tests(impl_item_attributes(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if !is_for_tests(trait_item_attributes(item)) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.walk(&mut Vec::new(), &item.tree);
    }

    fn visit_item_extern_crate(&mut self, item: &'ast ItemExternCrate) {
        if is_outside(&item.ident) && (item.rename.is_some() || item.ident != "std") {
            self.find_whole(&item.ident);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments: Vec<Ident> = path.segments.iter().map(|segment| segment.ident.clone()).collect();
        if segments.len() > 1 {
            self.judge(&segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.scan(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

/// The token after `::` after the one at `at`.
fn after_colons(tokens: &[TokenTree], at: usize) -> Option<&TokenTree> {
    let is_colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    if is_colon(tokens.get(at + 1)) && is_colon(tokens.get(at + 2)) { tokens.get(at + 3) } else { None }
}

/// `#![no_std]`, or the same behind a `cfg_attr` for tests.
fn is_no_std(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg_attr") && list.tokens.to_string() == "not (test) , no_std",
        meta => meta.path().is_ident("no_std"),
    }
}

fn is_outside(root: &Ident) -> bool {
    root == "std" || is_tokio(&root.to_string())
}

fn is_tokio(root: &str) -> bool {
    root == "tokio" || root.starts_with("tokio_")
}

/// The room that a path leads to, if it needs one.
fn room(path: &[&str]) -> Option<&'static str> {
    match path {
        ["std", "net", ..] | ["std", "os", _, "net", ..] => Some("std::net"),
        ["std", "fs", ..] | ["std", "os", _, "fs", ..] => Some("std::fs"),
        ["std", "thread", ..] => Some("std::thread"),
        [root, ..] if is_tokio(root) => Some("tokio"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::lines_found;
    use super::*;

    const OUTSIDE: [&str; 17] = [
        "use std::fs;",
        "use std::{fmt, net};",
        "use std::{io::{self, Read}, thread::{self as t}};",
        "use std::net::SocketAddr as Address;",
        "pub use std::os::unix::net::UnixStream;",
        "use std as x;",
        "use std::{self as x};",
        "use std::*;",
        "extern crate std as x;",
        "extern crate tokio;",
        "use tokio::sync::mpsc;",
        "use tokio_tungstenite::connect_async;",
        "fn f() { let _ = ::std::fs::read(\"x\"); }",
        "fn f(_: std::net::IpAddr) {}",
        "#[tokio::main] async fn f() {}",
        "fn f() { assert!(check(&std::thread::current())); }",
        "macro_rules! m { () => { use std::{fmt, fs}; } }",
    ];

    #[test]
    fn outside_its_rooms() {
        for text in OUTSIDE {
            assert_eq!(lines_found(check, "grid/src/lib.rs", &format!("\n{text}")), [2], "{text}");
        }
    }

    #[test]
    fn inside_its_rooms() {
        for path in [
            "ashlar/src/os/drive.rs",
            "ashlar/src/front/s3.rs",
            MAIN,
            "grid/tests/x.rs",
            "grid/build.rs",
            "xtask/src/x.rs",
        ] {
            for text in OUTSIDE {
                assert_eq!(lines_found(check, path, text), [0; 0], "{path}: {text}");
            }
        }
    }

    #[test]
    fn clean_twins() {
        let clean = [
            "use core::{fmt, net};",
            "use std::{io::{self, Read}, sync::mpsc};",
            "extern crate std;",
            "// std::fs is elsewhere\nconst TEXT: &str = \"use tokio::sync;\";",
            "fn f(thread: u8) -> u8 { thread }",
            "#[cfg(test)] mod tests { use std::thread; }",
            "#[test] fn f() { std::thread::yield_now(); }",
            "mod fs {} use self::fs as files; use crate::net::frame;",
        ];
        for text in clean {
            assert_eq!(lines_found(check, "grid/src/lib.rs", text), [0; 0], "{text}");
        }
    }

    #[test]
    fn the_lowest_layers_go_without_std() {
        for path in WITHOUT_STD {
            assert_eq!(lines_found(check, path, "extern crate alloc;"), [1], "{path}");
            assert_eq!(lines_found(check, path, "#![cfg_attr(not(test), no_std)]"), [0; 0], "{path}");
            assert_eq!(lines_found(check, path, "#![no_std]"), [0; 0], "{path}");
        }
        assert_eq!(lines_found(check, "grid/src/lib.rs", "extern crate alloc;"), [0; 0]);
    }
}

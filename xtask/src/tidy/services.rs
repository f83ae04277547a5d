//! Rule `services`: no file outside a service's own rooms names its crate.
//!
//! A service has its crate, and in `node` and `ashlar` the files and directories that bear its name or that of its protocol.
//! Whatever else names its crate makes a server without it, or with another one, harder; the baseline holds what does today.
//! Not seen: what a file names by way of the service's own module of `node`.

use proc_macro2::{TokenStream, TokenTree};

use super::baseline::Places;
use super::source::Source;

/// The crate of each service, and the files and directories of `node` and `ashlar` that are its own.
const SERVICES: [(&str, &[&str]); 3] = [
    ("ashlar_kv", &["kv", "keyvalue", "resp"]),
    ("ashlar_object", &["object", "objects", "s3"]),
    ("ashlar_volume", &["volume", "nbd"]),
];

/// Adds every place at which a file that is no service's own names a service.
pub(super) fn find(source: &Source, places: &mut Places) {
    if source.is_test || !(source.is_in("node/src") || source.is_in("ashlar/src")) {
        return;
    }
    let parts: Vec<&str> = source.path.trim_end_matches(".rs").split('/').collect();
    let foreign = SERVICES.iter().filter(|(_, own)| !parts.iter().any(|part| own.contains(part)));
    for (service, _) in foreign {
        let mut lines = Vec::new();
        scan(source.tokens.clone(), service, &mut lines);
        if !lines.is_empty() {
            places.insert((source.path.clone(), (*service).to_owned()), lines);
        }
    }
}

fn scan(tokens: TokenStream, service: &str, lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => scan(group.stream(), service, lines),
            TokenTree::Ident(ident) if ident == service => lines.push(ident.span().start().line),
            _ => {}
        }
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

    #[test]
    fn outside_its_rooms() {
        for path in ["ashlar/src/os/server.rs", "node/src/lib.rs", "node/src/volume/link.rs", "ashlar/src/os/kvs.rs"] {
            for text in ["\nuse ashlar_kv::engine;", "\nfn f(_: ashlar_kv::Engine) {}", "m! {\n ashlar_kv::f() }"] {
                assert_eq!(found(path, text), [2], "{path}: {text}");
            }
        }
    }

    #[test]
    fn clean_twins() {
        let own = ["ashlar/src/os/kv.rs", "ashlar/src/front/resp/door.rs", "node/src/keyvalue/users.rs"];
        for path in [&own[..], &["sim/src/replay.rs", "kv/tests/x.rs", "ashlar/tests/program/kv2.rs"]].concat() {
            assert_eq!(found(path, "use ashlar_kv::engine;"), [0; 0], "{path}");
        }
        let clean = "// ashlar_kv\nconst TEXT: &str = \"ashlar_kv\";\nuse crate::ashlar_kvs;";
        assert_eq!(found("ashlar/src/os/server.rs", clean), [0; 0]);
    }
}

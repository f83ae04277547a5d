//! Rule `edges`: which crate may depend on which. The table is the layer plan of the design.

use super::Finding;
use crate::workspace::{Dependency, Kind, Origin, Package};

const RULE: &str = "edges";

/// Every crate of the house and its layer. Another beside `xtask` needs a written decision.
const CRATES: [(&str, Layer); 15] = [
    ("ashlar-wire", Layer::Words),
    ("ashlar-placement", Layer::Laws),
    ("ashlar-bus", Layer::Laws),
    ("ashlar-erasure", Layer::Laws),
    ("ashlar-grid", Layer::Matter),
    ("ashlar-store", Layer::Matter),
    ("ashlar-replica", Layer::Matter),
    ("ashlar-catalog", Layer::Matter),
    ("ashlar-volume", Layer::Services),
    ("ashlar-object", Layer::Services),
    ("ashlar-kv", Layer::Services),
    ("ashlar-node", Layer::Node),
    ("ashlar", Layer::Programs),
    ("ashlar-sim", Layer::Programs),
    ("xtask", Layer::Programs),
];

/// What services receive as values from the node instead of depending on it.
const NOT_FOR_SERVICES: [&str; 2] = ["ashlar-bus", "ashlar-catalog"];

/// The one edge inside a layer: the program offers `ashlar sim`.
const WITHIN_A_LAYER: [(&str, &str); 1] = [("ashlar", "ashlar-sim")];

/// L0 to L5; a greater layer is higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Words,
    Laws,
    Matter,
    Services,
    Node,
    Programs,
}

/// Every edge that the table does not allow, and every crate that it does not know.
pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Finding> {
    let Some(layer) = layer_of(&package.name) else {
        return vec![Finding::new(&package.manifest, package.line_of("name"), RULE, unknown(&package.name))];
    };
    let house = package.dependencies.iter().filter(|dependency| is_of_the_house(dependency));
    let forbidden = house.filter_map(|dependency| {
        let complaint = complaint(&package.name, layer, dependency)?;
        Some(Finding::new(&package.manifest, package.line_of(&dependency.name), RULE, complaint))
    });
    forbidden.collect()
}

fn complaint(from: &str, layer: Layer, dependency: &Dependency) -> Option<String> {
    let to = dependency.name.as_str();
    let Some(lower) = layer_of(to) else { return Some(unknown(to)) };
    if layer == Layer::Services && NOT_FOR_SERVICES.contains(&to) {
        return Some(format!("the service `{from}` depends on `{to}` (take its Map, Role or Credentials as a value)"));
    }
    // Tests may look sideways among laws and matter; services and programs stay apart even there.
    let sideways = dependency.kind == Kind::Dev && layer == lower && layer <= Layer::Matter;
    if lower < layer || sideways || WITHIN_A_LAYER.contains(&(from, to)) {
        return None;
    }
    Some(format!(
        "`{from}` ({layer:?}) depends on `{to}` ({lower:?}), which is not below it (move the code, or pass a value or a seam)"
    ))
}

/// The number of a crate's layer, as in `L0`.
pub(super) fn level_of(name: &str) -> Option<u8> {
    layer_of(name).map(|layer| layer as u8)
}

fn unknown(name: &str) -> String {
    format!("no crate of the house is called `{name}` (make it a module; another crate needs a written decision)")
}

fn is_of_the_house(dependency: &Dependency) -> bool {
    dependency.origin == Origin::Path || layer_of(&dependency.name).is_some()
}

fn layer_of(name: &str) -> Option<Layer> {
    CRATES.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(from: &str, kind: Kind, to: &str) -> Vec<String> {
        let package = Package {
            name: from.into(),
            manifest: "crate/Cargo.toml".into(),
            manifest_text: format!("[package]\nname = \"{from}\"\n\n[dependencies]\n{to}.workspace = true\n"),
            has_library: true,
            dependencies: vec![Dependency { name: to.into(), kind, origin: Origin::Path }],
        };
        check(&[package]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn forbidden_edges() {
        let edges = [
            ("ashlar-wire", Kind::Normal, "ashlar-bus"),
            ("ashlar-wire", Kind::Dev, "ashlar-bus"),
            ("ashlar-bus", Kind::Normal, "ashlar-erasure"),
            ("ashlar-grid", Kind::Normal, "ashlar-store"),
            ("ashlar-grid", Kind::Build, "ashlar-store"),
            ("ashlar-store", Kind::Normal, "ashlar-object"),
            ("ashlar-object", Kind::Normal, "ashlar-kv"),
            ("ashlar-object", Kind::Dev, "ashlar-volume"),
            ("ashlar-kv", Kind::Normal, "ashlar-bus"),
            ("ashlar-volume", Kind::Dev, "ashlar-catalog"),
            ("ashlar-kv", Kind::Normal, "ashlar-node"),
            ("ashlar-node", Kind::Normal, "ashlar"),
            ("ashlar-node", Kind::Dev, "ashlar-sim"),
            ("ashlar-sim", Kind::Normal, "ashlar"),
            ("ashlar-sim", Kind::Dev, "ashlar"),
            ("xtask", Kind::Normal, "ashlar"),
            ("ashlar-grid", Kind::Normal, "ashlar-common"),
        ];
        for (from, kind, to) in edges {
            let found = findings(from, kind, to);
            assert_eq!(found.len(), 1, "{from} -> {to}: {found:?}");
            assert!(found[0].starts_with("crate/Cargo.toml:5: edges: "), "{found:?}");
        }
    }

    #[test]
    fn allowed_edges() {
        let edges = [
            ("ashlar-grid", Kind::Normal, "ashlar-wire"),
            ("ashlar-catalog", Kind::Normal, "ashlar-bus"),
            ("ashlar-replica", Kind::Dev, "ashlar-store"),
            ("ashlar-object", Kind::Normal, "ashlar-erasure"),
            ("ashlar-sim", Kind::Normal, "ashlar-grid"),
            ("ashlar", Kind::Normal, "ashlar-kv"),
            ("ashlar", Kind::Normal, "ashlar-sim"),
        ];
        for (from, kind, to) in edges {
            assert_eq!(findings(from, kind, to), Vec::<String>::new(), "{from} -> {to}");
        }
    }

    #[test]
    fn a_crate_outside_the_table() {
        let found = findings("ashlar-cache", Kind::Normal, "ashlar-wire");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crate/Cargo.toml:2: edges: no crate of the house is called `ashlar-cache`"));
    }
}

//! The mutants of a package, as cargo-mutants lists them, and the sample that is drawn from them.

use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use crate::dice::Dice;
use crate::failure::Failure;

/// Files and directories whose code is not the product's: what they break, no test has to notice.
const LEFT_OUT: [&str; 6] = ["tests", "proof", "planted", "examples", "benches", "fuzz"];

/// A position in a file: line and column, both from 1; columns count characters.
type Position = (usize, usize);

/// One small change of the code. Its order is that of the code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mutant {
    /// The file, relative to the repository, with `/`.
    pub(super) file: String,
    /// Where the text starts that is replaced.
    start: Position,
    /// The position behind that text.
    end: Position,
    /// Place and change in words, as cargo-mutants shows them; no other mutant has the same.
    pub(super) name: String,
    /// What stands there instead.
    pub(super) replacement: String,
}

impl Mutant {
    /// The line where the text starts that is replaced, from 1.
    pub(super) fn line(&self) -> usize {
        self.start.0
    }

    /// The bytes of its file that are replaced; nothing if the file has no such place.
    pub(super) fn range(&self, text: &str) -> Option<Range<usize>> {
        let (start, end) = (offset(text, self.start)?, offset(text, self.end)?);
        text.get(start..end.max(start)).map(|replaced| start..start + replaced.len())
    }

    /// The text of its file with the change; nothing if the file has no such place.
    pub(super) fn apply(&self, text: &str) -> Option<String> {
        let range = self.range(text)?;
        Some(format!("{}{}{}", &text[..range.start], self.replacement, &text[range.end..]))
    }
}

/// Where a position lies in a text, in bytes.
fn offset(text: &str, (line, column): Position) -> Option<usize> {
    let start: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let rest = text.get(start..)?;
    let here = rest.lines().next().unwrap_or_default();
    let within = here.char_indices().map(|(at, _)| at).chain([here.len()]).nth(column.checked_sub(1)?)?;
    Some(start + within)
}

/// Reads what `cargo mutants --list --json` prints.
pub(super) fn read(json: &str) -> Result<Vec<Mutant>, Failure> {
    let failed = |why: &str| Failure::Failed(format!("the list of cargo-mutants is not as expected: {why}"));
    let list: Value = serde_json::from_str(json).map_err(|error| failed(&error.to_string()))?;
    let list = list.as_array().ok_or_else(|| failed("it is no array"))?;
    list.iter().map(|mutant| read_one(mutant).ok_or_else(|| failed(&mutant.to_string()))).collect()
}

fn read_one(mutant: &Value) -> Option<Mutant> {
    let text = |key: &str| mutant[key].as_str().map(str::to_owned);
    let position = |key: &str| {
        let number = |what: &str| mutant["span"][key][what].as_u64().and_then(|number| usize::try_from(number).ok());
        Some((number("line")?, number("column")?))
    };
    Some(Mutant {
        file: text("file")?,
        start: position("start")?,
        end: position("end")?,
        name: text("name")?,
        replacement: text("replacement")?,
    })
}

/// Those of product code, below one of `modules` if there are any, in the order of the code.
pub(super) fn chosen(mut listed: Vec<Mutant>, modules: &[String]) -> Vec<Mutant> {
    let is_chosen = |file: &str| modules.is_empty() || modules.iter().any(|module| is_below(file, module));
    listed.retain(|mutant| is_product(&mutant.file) && is_chosen(&mutant.file));
    listed.sort();
    listed.dedup_by(|one, other| one.name == other.name);
    listed
}

fn is_product(file: &str) -> bool {
    !Path::new(file).with_extension("").iter().any(|part| LEFT_OUT.iter().any(|left_out| part == *left_out))
}

/// Whether the file is the module's, or of a module below it. A module is named by its file or by its directory.
pub(super) fn is_below(file: &str, module: &str) -> bool {
    let module = module.trim_start_matches("./").trim_end_matches('/');
    let module = module.strip_suffix(".rs").unwrap_or(module);
    let module = module.strip_suffix("/mod").unwrap_or(module);
    file.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Draws `sample` mutants, or all if there are fewer. What is drawn follows from the seed and the list alone, and has its order.
pub(super) fn draw(mut listed: Vec<Mutant>, sample: Option<usize>, seed: u64) -> Vec<Mutant> {
    let sample = sample.unwrap_or(usize::MAX).min(listed.len());
    let mut dice = Dice::new(seed);
    for at in 0..sample {
        let rest = listed.len() - at;
        let further = usize::try_from(dice.below(rest as u64)).unwrap_or(0);
        listed.swap(at, at + further);
    }
    listed.truncate(sample);
    listed.sort();
    listed
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A mutant of which only file, line and name matter.
    pub(in crate::mutants) fn mutant(file: &str, line: usize) -> Mutant {
        let name = format!("{file}:{line}:1: replace it");
        Mutant { file: file.into(), start: (line, 1), end: (line, 2), name, replacement: String::new() }
    }

    /// A mutant of the only place of a text where `old` stands.
    pub(in crate::mutants) fn change(text: &str, old: &str, new: &str) -> Mutant {
        let place = |at: usize| {
            let before = &text[..at];
            let line = before.rsplit_once('\n').map_or(before, |(_, line)| line);
            (before.matches('\n').count() + 1, line.chars().count() + 1)
        };
        let at = text.find(old).expect("it stands there");
        Mutant { start: place(at), end: place(at + old.len()), replacement: new.into(), ..mutant("a.rs", 1) }
    }

    #[test]
    fn the_list_is_read() {
        let json = r#"[{"name": "wire/src/id.rs:7:5: replace next -> u64 with 0", "package": "ashlar-wire",
            "file": "wire/src/id.rs", "function": null, "genre": "FnValue", "replacement": "0",
            "span": {"start": {"line": 7, "column": 5}, "end": {"line": 9, "column": 6}}, "diff": "--- a"}]"#;
        let one = Mutant {
            file: "wire/src/id.rs".into(),
            start: (7, 5),
            end: (9, 6),
            name: "wire/src/id.rs:7:5: replace next -> u64 with 0".into(),
            replacement: "0".into(),
        };
        assert_eq!(read(json), Ok(vec![one]));
        assert_eq!(read("[]"), Ok(Vec::new()));
        for wrong in ["", "{}", "[{}]", r#"[{"name": "x", "file": "y", "replacement": "", "span": {}}]"#] {
            assert!(matches!(read(wrong), Err(Failure::Failed(_))), "{wrong}");
        }
    }

    #[test]
    fn tests_and_proofs_are_left_out() {
        for product in ["store/src/lib.rs", "store/src/blob/mod.rs", "kv/src/proofs.rs", "kv/src/latest.rs"] {
            assert!(is_product(product), "{product}");
        }
        for other in [
            "kv/src/tests/set.rs",
            "kv/src/set/tests.rs",
            "store/src/proof/world.rs",
            "catalog/src/proof.rs",
            "bus/src/planted.rs",
            "store/examples/store_states.rs",
            "fuzz/fuzz_targets/id.rs",
        ] {
            assert!(!is_product(other), "{other}");
        }
    }

    #[test]
    fn a_module_is_its_file_and_what_is_below() {
        for module in
            ["bus/src/packet", "bus/src/packet/", "bus/src/packet.rs", "./bus/src/packet", "bus/src/packet/mod.rs"]
        {
            for (file, below) in [
                ("bus/src/packet.rs", true),
                ("bus/src/packet/mod.rs", true),
                ("bus/src/packet/read.rs", true),
                ("bus/src/packets.rs", false),
                ("bus/src/lib.rs", false),
            ] {
                assert_eq!(is_below(file, module), below, "{file} {module}");
            }
        }
        assert!(is_below("bus/src/lib.rs", "bus"));
        let listed = vec![mutant("b/src/lib.rs", 2), mutant("b/src/tests.rs", 1), mutant("a/src/lib.rs", 3)];
        assert_eq!(chosen(listed.clone(), &[]), [mutant("a/src/lib.rs", 3), mutant("b/src/lib.rs", 2)]);
        assert_eq!(chosen(listed, &["b".into()]), [mutant("b/src/lib.rs", 2)]);
    }

    #[test]
    fn a_sample_follows_from_its_seed() {
        let listed: Vec<Mutant> = (1..=100).map(|line| mutant("a.rs", line)).collect();
        let drawn = draw(listed.clone(), Some(10), 1);
        assert_eq!(drawn.len(), 10);
        assert!(drawn.is_sorted() && drawn.windows(2).all(|two| two[0] != two[1]));
        assert_eq!(draw(listed.clone(), Some(10), 1), drawn);
        assert_ne!(draw(listed.clone(), Some(10), 2), drawn);
        assert_eq!(draw(listed.clone(), None, 1), listed);
        assert_eq!(draw(listed.clone(), Some(1_000), 3), listed);
        // Every mutant is drawn by some seed.
        let missed =
            listed.iter().filter(|one| !(0..200).any(|seed| draw(listed.clone(), Some(10), seed).contains(one)));
        assert_eq!(missed.count(), 0);
    }

    #[test]
    fn a_change_is_applied_where_it_belongs() {
        let text = "fn a() {\n    ä == b\n}\n";
        let change = |start, end, replacement: &str| {
            Mutant { start, end, replacement: replacement.into(), ..mutant("a.rs", 1) }.apply(text)
        };
        assert_eq!(change((2, 7), (2, 9), "!=").as_deref(), Some("fn a() {\n    ä != b\n}\n"));
        assert_eq!(change((1, 8), (3, 2), "{ true }").as_deref(), Some("fn a() { true }\n"));
        assert_eq!(change((2, 5), (2, 6), "").as_deref(), Some("fn a() {\n     == b\n}\n"));
        for (start, end) in [((0, 1), (1, 1)), ((9, 1), (9, 2)), ((1, 30), (2, 1)), ((1, 0), (1, 1))] {
            assert_eq!(change(start, end, "x"), None);
        }
    }
}

//! Rule `walks`: docs/walk-through.md walks through files and functions that exist, and counts them rightly.
//!
//! A path is a section `## ..` with steps like ``3. `kv/src/session.rs`, `feed`: what happens there.`` Each file exists and
//! has each of the functions; their number is checked. Below the steps stands ``Now: 9 steps, 8 files, 1 return.``, where a
//! return is a step into a file that was left before.

use std::collections::BTreeSet;

use super::Finding;
use super::source::Source;

const RULE: &str = "walks";

/// One path and what was counted of it.
#[derive(Default)]
struct Walk<'a> {
    line: usize,
    steps: usize,
    files: BTreeSet<&'a str>,
    last: &'a str,
    returns: usize,
    is_counted: bool,
}

impl Walk<'_> {
    /// The line that a walk has to have.
    fn count(&self) -> String {
        let many = |count: usize, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
        format!(
            "Now: {}, {}, {}.",
            many(self.steps, "step"),
            many(self.files.len(), "file"),
            many(self.returns, "return")
        )
    }
}

/// Every step that leads nowhere, and every count that is wrong.
pub(super) fn check(path: &str, text: &str, sources: &[Source]) -> Vec<Finding> {
    let (mut findings, mut walk) = (Vec::new(), Walk::default());
    let mut find = |line: usize, message: String| findings.push(Finding::new(path, line, RULE, message));
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        if text.starts_with("## ") {
            end(&walk, &mut find);
            walk = Walk { line, ..Walk::default() };
        } else if text.starts_with("Now: ") {
            walk.is_counted = true;
            let expected = walk.count();
            if text != expected {
                find(line, format!("`{text}` is not what the steps above are (write `{expected}`)"));
            }
        } else if let Some((number, step)) = text.split_once(". ").filter(|(number, _)| is_number(number)) {
            walk.steps += 1;
            match read_step(step, sources).filter(|_| number == walk.steps.to_string()) {
                None => find(line, "no step (write ``N. `FILE`, `FUNCTION`: sentence`` with the next number)".into()),
                Some((file, missing)) => {
                    let is_new = walk.files.insert(file);
                    walk.returns += usize::from(!is_new && file != walk.last);
                    walk.last = file;
                    missing.into_iter().for_each(|missing| find(line, missing));
                }
            }
        }
    }
    end(&walk, &mut find);
    findings
}

/// Reports a walk without a count.
fn end(walk: &Walk<'_>, find: &mut impl FnMut(usize, String)) {
    if walk.steps > 0 && !walk.is_counted {
        find(walk.line, format!("the steps are not counted (write `{}` below them)", walk.count()));
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The file of a step and what does not exist of what it names; `None` if it is no step.
fn read_step<'a>(step: &'a str, sources: &[Source]) -> Option<(&'a str, Vec<String>)> {
    let (names, _) = step.split_once(": ")?;
    let name = |part: &'a str| part.strip_prefix('`')?.strip_suffix('`');
    let names: Vec<&str> = names.split(", ").map(name).collect::<Option<_>>()?;
    let (file, functions) = names.split_first().filter(|(_, functions)| !functions.is_empty())?;
    let Some(source) = sources.iter().find(|source| source.path == *file) else {
        return Some((file, vec![format!("`{file}` does not exist (walk the path again)")]));
    };
    let has = |function: &str| {
        let name = function.rsplit("::").next().unwrap_or(function);
        source.text.contains(&format!("fn {name}(")) || source.text.contains(&format!("fn {name}<"))
    };
    let missing = functions.iter().filter(|function| !has(function));
    Some((file, missing.map(|name| format!("`{file}` has no function `{name}` (walk the path again)")).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "\
## A call

1. `grid/src/grid.rs`, `PeerHandle::call`, `open`: asks for a connection.
2. `grid/src/link.rs`, `call_with`: packs the request.
3. `grid/src/grid.rs`, `call`: gives the answer.

Now: 3 steps, 2 files, 1 return.
";

    fn findings(text: &str) -> Vec<String> {
        let sources = [("grid/src/grid.rs", "fn call() {} fn open<T>() {}"), ("grid/src/link.rs", "fn call_with() {}")];
        let sources =
            sources.map(|(path, text)| Source::parse(path, true, text.to_owned()).expect("the planted source parses"));
        check("W.md", text, &sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_clean_text() {
        assert_eq!(findings(CLEAN), Vec::<String>::new());
    }

    #[test]
    fn what_is_refused() {
        let planted = [
            ("link.rs", "links.rs", "W.md:4: walks: `grid/src/links.rs` does not exist"),
            ("`call_with`", "`call_without`", "W.md:4: walks: `grid/src/link.rs` has no function `call_without`"),
            ("`open`", "`ope`", "W.md:3: walks: `grid/src/grid.rs` has no function `ope`"),
            ("2. `", "4. `", "W.md:4: walks: no step"),
            (", `call_with`", "", "W.md:4: walks: no step"),
            ("1 return.", "2 returns.", "W.md:7: walks: "),
            ("Now: 3 steps, 2 files, 1 return.\n", "", "W.md:1: walks: the steps are not counted"),
        ];
        for (from, to, expected) in planted {
            assert!(CLEAN.contains(from), "{from}");
            let found = findings(&CLEAN.replacen(from, to, 1));
            assert!(found.iter().any(|finding| finding.starts_with(expected)), "{to}: {found:?}");
        }
    }
}

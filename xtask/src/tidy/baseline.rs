//! Counts that may only shrink: old places of a rule that came later than the code.
//!
//! The list is a text file with one line for each rule, file and key: `RULE PATH KEY COUNT`, sorted. A rule hands in
//! where it finds each key; more places than the list allows are a finding in the file, fewer are one in the list, so
//! that what was gained is written down and cannot be lost again.

use std::collections::BTreeMap;

use super::Finding;

/// Where a rule finds what it looks for: by path and key, the lines.
pub(super) type Places = BTreeMap<(String, String), Vec<usize>>;

/// One line of the list.
struct Entry<'a> {
    line: usize,
    rule: &'a str,
    path: &'a str,
    key: &'a str,
    count: usize,
}

/// What one rule found, and how a person makes it less.
pub(super) struct Found<'a> {
    /// The rule, as in the list.
    pub(super) rule: &'static str,
    /// Where it finds what it looks for.
    pub(super) places: Places,
    /// What to do about a key.
    pub(super) advice: &'a dyn Fn(&str) -> String,
}

/// The text of the list and its path, for messages.
#[derive(Clone, Copy)]
pub(super) struct Baseline<'a> {
    /// Relative to the repository.
    pub(super) path: &'a str,
    /// What it says.
    pub(super) text: &'a str,
}

/// Every count that is not the one of the list, and every line of the list that is not as it should be.
pub(super) fn check(baseline: Baseline<'_>, found: &[Found<'_>]) -> Vec<Finding> {
    let (entries, mut findings) = read(baseline, found);
    for one in found {
        let listed = entries.iter().filter(|entry| entry.rule == one.rule);
        let listed: BTreeMap<_, _> = listed.map(|entry| ((entry.path, entry.key), entry)).collect();
        for ((path, key), lines) in &one.places {
            let allowed = listed.get(&(path.as_str(), key.as_str())).map_or(0, |entry| entry.count);
            if lines.len() > allowed {
                findings.push(too_many(one, path, key, lines, allowed));
            }
        }
        for entry in listed.values() {
            let count = one.places.get(&(entry.path.to_owned(), entry.key.to_owned())).map_or(0, Vec::len);
            if count < entry.count {
                let Entry { rule, path, key, .. } = entry;
                let advice = match count {
                    0 => "drop this line".to_owned(),
                    count => format!("write `{rule} {path} {key} {count}`"),
                };
                let message = format!("`{key}` stands {count} times in {path}, not {} times ({advice})", entry.count);
                findings.push(Finding::new(baseline.path, entry.line, one.rule, message));
            }
        }
    }
    findings
}

/// A finding at the last place, which is the likeliest to be new; the others are in its message.
fn too_many(found: &Found<'_>, path: &str, key: &str, lines: &[usize], allowed: usize) -> Finding {
    let last = lines.last().copied().unwrap_or(1);
    let others: Vec<String> = lines.iter().rev().skip(1).take(10).map(ToString::to_string).collect();
    let others = if others.is_empty() { String::new() } else { format!("; others on lines {}", others.join(", ")) };
    let message =
        format!("`{key}`: {} here, {allowed} allowed by the baseline ({}{others})", lines.len(), (found.advice)(key));
    Finding::new(path, last, found.rule, message)
}

fn read<'a>(baseline: Baseline<'a>, found: &[Found<'_>]) -> (Vec<Entry<'a>>, Vec<Finding>) {
    let (mut entries, mut findings) = (Vec::<Entry<'a>>::new(), Vec::new());
    for (index, text) in baseline.text.lines().enumerate().filter(|(_, text)| !is_comment(text)) {
        let line = index + 1;
        let entry = match text.split(' ').collect::<Vec<_>>()[..] {
            [rule, path, key, count] if !path.is_empty() && !key.is_empty() => {
                count.parse().ok().map(|count| Entry { line, rule, path, key, count })
            }
            _ => None,
        };
        let Some(entry) = entry.filter(|entry| entry.count > 0 && found.iter().any(|one| one.rule == entry.rule))
        else {
            let message = format!("`{text}` is no line of the baseline (write `RULE PATH KEY COUNT`)");
            findings.push(Finding::new(baseline.path, line, "baseline", message));
            continue;
        };
        let place = |entry: &Entry<'a>| (entry.rule, entry.path, entry.key);
        if entries.last().is_some_and(|last| place(last) >= place(&entry)) {
            let message = format!("`{text}` stands after a greater line (sort the list, each place once)");
            findings.push(Finding::new(baseline.path, line, "baseline", message));
        }
        entries.push(entry);
    }
    (entries, findings)
}

/// Whether a line of a list says nothing.
pub(super) fn is_comment(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let places = Places::from([(("a.rs".into(), "desk".into()), vec![3, 9])]);
        let found = Found { rule: "words", places, advice: &|_| "say what it is".to_owned() };
        check(Baseline { path: "list.txt", text }, &[found]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_count_of_the_list_is_no_finding() {
        assert_eq!(findings("# old places\n\nwords a.rs desk 2\n"), Vec::<String>::new());
    }

    #[test]
    fn a_higher_count_names_file_and_line() {
        let expected = "a.rs:9: words: `desk`: 2 here, 1 allowed by the baseline (say what it is; others on lines 3)";
        assert_eq!(findings("words a.rs desk 1\n"), [expected]);
        assert_eq!(findings("").len(), 1);
    }

    #[test]
    fn a_lower_count_asks_for_the_lower_line() {
        let expected = "list.txt:1: words: `desk` stands 2 times in a.rs, not 3 times (write `words a.rs desk 2`)";
        assert_eq!(findings("words a.rs desk 3\n"), [expected]);
        let gone = findings("words a.rs desk 2\nwords b.rs desk 1\n");
        assert_eq!(gone, ["list.txt:2: words: `desk` stands 0 times in b.rs, not 1 times (drop this line)"]);
    }

    #[test]
    fn the_list_itself() {
        for planted in
            ["words a.rs desk", "words a.rs desk x", "words b.rs desk 0", "other a.rs desk 2", "words  a.rs 2"]
        {
            let found = findings(&format!("words a.rs desk 2\n{planted}\n"));
            assert_eq!(found.len(), 1, "{planted}: {found:?}");
            assert!(found[0].starts_with("list.txt:2: baseline: "), "{found:?}");
        }
        let twice = findings("words a.rs desk 2\nwords a.rs desk 2\n");
        assert!(twice[0].contains("each place once"), "{twice:?}");
    }
}

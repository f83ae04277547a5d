//! Rule `words`: names and comments use the field's terms; the metaphors on the list have one each.
//!
//! The list is a text file. `WORD INSTEAD..` forbids a word, in any case and also with an `s` behind it; with a capital
//! letter it forbids only that spelling, where the plain word means what it says. `WORD @PATH REASON..` excepts a file, or a
//! directory and what is below it, where the word is the field's term. Names are taken apart at `_` and at capitals.
//! Literals are free: they are on the wire, on drives and in golden tests.

use std::collections::BTreeMap;
use std::ops::Range;

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;
use super::baseline::{Places, is_comment};
use super::source::Source;

const RULE: &str = "words";

/// The words that may not be used, with what to use instead, and where they may.
pub(super) struct Words<'a> {
    instead: BTreeMap<&'a str, &'a str>,
    exceptions: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    /// Reads the list; findings are lines of it that are not as they should be.
    pub(super) fn read(path: &str, text: &'a str) -> (Self, Vec<Finding>) {
        let (mut words, mut findings) = (Self { instead: BTreeMap::new(), exceptions: Vec::new() }, Vec::new());
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !is_comment(line)) {
            if let Err(complaint) = words.read_line(line) {
                findings.push(Finding::new(path, index + 1, RULE, format!("`{line}`: {complaint}")));
            }
        }
        (words, findings)
    }

    fn read_line(&mut self, line: &'a str) -> Result<(), &'static str> {
        let (word, rest) =
            line.split_once(char::is_whitespace).ok_or("nothing is said of it (write `WORD INSTEAD`)")?;
        let rest = rest.trim();
        if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err("no word of letters alone (write `WORD INSTEAD`)");
        }
        let Some(exception) = rest.strip_prefix('@') else {
            let is_new = !rest.is_empty() && self.instead.insert(word, rest).is_none();
            return if is_new { Ok(()) } else { Err("the word has a line already (keep one)") };
        };
        let (path, reason) = exception.split_once(char::is_whitespace).unwrap_or((exception, ""));
        if path.is_empty() || reason.trim().is_empty() {
            return Err("the exception has no path or no reason (write `WORD @PATH REASON`)");
        }
        if !self.instead.contains_key(word) {
            return Err("an exception of no word (put it below the word's line)");
        }
        self.exceptions.push((word, path));
        Ok(())
    }

    /// The entry of the list that a word falls under.
    fn entry(&self, word: &str) -> Option<&'a str> {
        let small = word.to_ascii_lowercase();
        let singular = |word: &'_ str| word.strip_suffix('s').map(str::to_owned);
        let forms = [Some(word.to_owned()), singular(word), singular(&small), Some(small)];
        forms.iter().flatten().find_map(|form| self.instead.get_key_value(form.as_str()).map(|(entry, _)| *entry))
    }

    fn is_excepted(&self, entry: &str, path: &str) -> bool {
        self.exceptions.iter().any(|&(word, room)| {
            let rest = path.strip_prefix(room);
            word == entry && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || rest == ".rs")
        })
    }

    /// What to write in place of a word.
    pub(super) fn advice(&self, word: &str) -> &str {
        self.instead.get(word).copied().unwrap_or_default()
    }

    /// Adds the places in this file at which a word of the list stands.
    pub(super) fn find(&self, source: &Source, places: &mut Places) {
        let mut literals = Vec::new();
        collect_literals(source.tokens.clone(), &source.text, &mut literals);
        for (at, word) in words(&source.text) {
            let Some(entry) = self.entry(word) else { continue };
            let next = literals.partition_point(|literal| literal.end <= at);
            let is_literal = literals.get(next).is_some_and(|literal| literal.contains(&at));
            if !is_literal && !self.is_excepted(entry, &source.path) {
                let line = source.text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
                places.entry((source.path.clone(), entry.to_owned())).or_default().push(line);
            }
        }
    }
}

/// Where literals stand. Documentation is a literal for the compiler, but not for this rule.
fn collect_literals(tokens: TokenStream, text: &str, into: &mut Vec<Range<usize>>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_literals(group.stream(), text, into),
            TokenTree::Literal(literal) => {
                let range = literal.span().byte_range();
                if !text.get(range.clone()).is_some_and(|text| text.starts_with('/')) {
                    into.push(range);
                }
            }
            _ => {}
        }
    }
}

/// Every word of a text with where it begins; `SwitchOver`, `switch_over` and `SWITCH_OVER` are two words each.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while !bytes.get(at)?.is_ascii_alphabetic() {
            at += 1;
        }
        let start = at;
        at += 1;
        while let Some(&byte) = bytes.get(at).filter(|byte| byte.is_ascii_alphabetic()) {
            let ends_capitals = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
            if byte.is_ascii_uppercase() && (bytes[at - 1].is_ascii_lowercase() || ends_capitals) {
                break;
            }
            at += 1;
        }
        Some((start, &text[start..at]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# words\ndesk mailbox\nduties assignments\nLetter Message\nseal take-over\n\
                        seal @store/src/blob a segment is sealed\n";

    fn found(path: &str, text: &str) -> Vec<(String, Vec<usize>)> {
        let (words, findings) = Words::read("words.txt", LIST);
        assert_eq!(findings, []);
        let mut places = Places::new();
        words.find(&Source::parse(path, true, text.to_owned()).expect("the planted source parses"), &mut places);
        places.into_iter().map(|((_, word), lines)| (word, lines)).collect()
    }

    #[test]
    fn names_and_comments() {
        let planted = [
            "\nstruct Desk;",
            "\nstruct FrontDesk;",
            "\nfn leave_at_desks() {}",
            "\nconst DESK_MAX: u8 = 0;",
            "\n// Left at the desk.",
            "\n/// Left at the desk.\nfn f() {}",
            "//!\n//! Left at the desk.",
            "/*\n the desk */",
            "macro_rules! m { () => {\n desk } }",
            "const A: &str = \"desk\";\nmod desk;",
        ];
        for text in planted {
            assert_eq!(found("wire/src/id.rs", text), [("desk".to_owned(), vec![2])], "{text}");
        }
        assert_eq!(found("wire/src/id.rs", "\n\nstruct Duties(Letter);").len(), 2);
    }

    #[test]
    fn clean_twins() {
        let clean = [
            "struct Desktop;",
            "const A: &str = \"desk\";",
            "const A: &str = r#\"a \" desk\"#;",
            "const A: &[u8] = b\"desk\";",
            "const A: &str = \"\\\"// \u{e9}\u{e9}\u{e9} desk\";",
            "fn f() { say(\"the desk\"); }",
            "// The letters of a name, each letter.\nfn letter() {}",
        ];
        for text in clean {
            assert_eq!(found("wire/src/id.rs", text), [], "{text}");
        }
    }

    #[test]
    fn an_exception_is_for_its_room_and_word() {
        for path in ["store/src/blob.rs", "store/src/blob/mark.rs"] {
            assert_eq!(found(path, "struct Seal;"), [], "{path}");
            assert_eq!(found(path, "struct Desk;").len(), 1, "{path}");
        }
        for path in ["store/src/blobs.rs", "store/src/store.rs"] {
            assert_eq!(found(path, "struct Seal;").len(), 1, "{path}");
        }
    }

    #[test]
    fn the_list_itself() {
        let planted = ["desk", "desk ", "a_b c", "desk x\ndesk y", "desk x\ndesk @a.rs", "tap @a.rs a water tap"];
        for text in planted {
            let (_, findings) = Words::read("words.txt", text);
            assert_eq!(findings.len(), 1, "{text}: {findings:?}");
        }
    }
}

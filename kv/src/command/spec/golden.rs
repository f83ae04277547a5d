//! The table against what a Valkey server says of itself.
//!
//! `commands.txt` is what a server of version 9.1.2 replied to `COMMAND` and `COMMAND DOCS`, in up to three lines a command and
//! without sentences. What users with some rights may do of it is compared in `crate::tests::access`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::table::{COMMANDS, Command, GROUPS};
use super::{Argument, ArgumentKind, Begin, Find, KeySpec, LegacyRange};

const SERVER: &str = include_str!("../../../tests/data/commands.txt");
/// Commands that Valkey does not have.
const OURS: [&str; 1] = ["cluster|beginshard"];

/// Commands by name. Those of Sentinel are not in the file: they are left out on purpose.
fn records(text: &str) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if !line.starts_with(' ') {
            name = line.split(' ').next().unwrap().into();
        }
        writeln!(all.entry(name.clone()).or_default(), "{line}").unwrap();
    }
    all
}

fn list(words: impl Iterator<Item = impl AsRef<str>>) -> String {
    let words: Vec<String> = words.map(|word| word.as_ref().into()).collect();
    if words.is_empty() { "-".into() } else { words.join(",") }
}

fn place(keys: &KeySpec) -> String {
    let begin = match keys.begin {
        Begin::Index(at) => at.to_string(),
        Begin::Keyword { word, from } => format!("{word}/{from}"),
        Begin::Unknown => "?".into(),
    };
    let find = match keys.find {
        Find::Range { last, step, limit } => format!("range/{last}/{step}/{limit}"),
        Find::Count { count_at, first, step } => format!("count/{count_at}/{first}/{step}"),
        Find::Unknown => "?".into(),
    };
    format!("{begin}:{find}:{}{}", list(keys.flags.words()), if keys.notes.is_empty() { "" } else { "!" })
}

fn argument(argument: &Argument) -> String {
    let name = argument.shown_name();
    let mut text = format!("{name}:{}", argument.kind.word());
    if argument.kind == ArgumentKind::PureToken || !argument.token.is_empty() {
        write!(text, "={}", argument.token).unwrap();
    }
    if let Some(key) = argument.key {
        write!(text, "@{key}").unwrap();
    }
    for (is_set, sign) in [(argument.optional, '?'), (argument.multiple, '*'), (argument.multiple_token, '+')] {
        text.extend(is_set.then_some(sign));
    }
    for (sign, word) in [('^', argument.since), ('!', argument.deprecated), ('~', argument.display)] {
        if !word.is_empty() {
            write!(text, "{sign}{word}").unwrap();
        }
    }
    if !argument.inner.is_empty() {
        write!(text, "({})", arguments(argument.inner)).unwrap();
    }
    text
}

fn arguments(all: &[Argument]) -> String {
    all.iter().map(argument).collect::<Vec<_>>().join(" ")
}

fn record(command: &Command) -> String {
    let (spec, docs) = (command.spec, &command.spec.docs);
    let LegacyRange { first, last, step, .. } = LegacyRange::of(spec.keys);
    let mut text = format!("{} {} {}", command.full_name(), spec.arity, list(spec.shown_flags().shown()));
    let categories = spec.categories();
    write!(text, " {first}/{last}/{step} {}", list(categories.words().map(|word| format!("@{word}")))).unwrap();
    spec.keys.iter().for_each(|keys| write!(text, " {}", place(keys)).unwrap());
    let flags = [(docs.deprecated.is_some(), "deprecated"), (docs.internal, "syscmd")];
    let flags = list(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word));
    let complexity = if docs.complexity.is_empty() { "-" } else { "complexity" };
    let history = list(docs.history.iter().map(|(version, _)| version));
    let tips = list(docs.tips.iter());
    write!(text, "\n  {} {} {flags} {complexity} {history} {tips}", docs.since, docs.group.word()).unwrap();
    if let Some(deprecated) = docs.deprecated {
        write!(text, " deprecated {} {}", deprecated.since, deprecated.replaced_by).unwrap();
    }
    if !docs.arguments.is_empty() {
        write!(text, "\n  {}", arguments(docs.arguments)).unwrap();
    }
    text + "\n"
}

#[test]
fn facts_are_those_of_valkey() {
    let expected = records(SERVER);
    let mut ours: BTreeMap<String, String> =
        COMMANDS.iter().map(|command| (command.full_name(), record(command))).collect();
    for (name, record) in &expected {
        assert_eq!(ours.remove(name).as_ref(), Some(record), "{name}");
    }
    assert_eq!(ours.keys().collect::<Vec<_>>(), OURS, "not in Valkey");
}

#[test]
fn every_list_is_sorted_by_name() {
    let lists = GROUPS.iter().flat_map(|group| group.iter().map(|spec| spec.subcommands)).chain(GROUPS);
    for list in lists {
        assert!(list.is_sorted_by(|one, other| one.name < other.name), "{:?}", list.first().map(|spec| spec.name));
    }
}

/// The fewest words that an argument takes, and whether it may take more.
fn words(argument: &Argument) -> (usize, bool) {
    let inner = || argument.inner.iter().map(words);
    let (least, more) = match argument.kind {
        ArgumentKind::Block => inner().fold((0, false), |sum, next| (sum.0 + next.0, sum.1 || next.1)),
        ArgumentKind::OneOf => {
            let least = inner().map(|choice| choice.0).min().unwrap();
            (least, inner().any(|choice| choice.1 || choice.0 > least))
        }
        ArgumentKind::PureToken => (0, false),
        _ => (1, false),
    };
    let token = usize::from(!argument.token.is_empty() || argument.kind == ArgumentKind::PureToken);
    (if argument.optional { 0 } else { least + token }, more || argument.optional || argument.multiple)
}

#[test]
fn arities_agree_with_arguments() {
    // Valkey states what its arguments do not say: nothing of some is written down, of others the command itself checks more.
    let apart = [
        "client|kill",
        "cluster|migrateslots",
        "cluster|syncslots",
        "debug",
        "geosearch",
        "geosearchstore",
        "psync",
        "quit",
        "replconf",
    ];
    let mut found = Vec::new();
    for command in COMMANDS.iter().filter(|command| command.spec.subcommands.is_empty()) {
        let arguments = command.spec.docs.arguments.iter().map(words);
        let (least, more) = arguments.fold((0, false), |sum, next| (sum.0 + next.0, sum.1 || next.1));
        let least = i8::try_from(1 + usize::from(command.container().is_some()) + least).unwrap();
        if command.spec.arity != if more { -least } else { least } {
            found.push(command.full_name());
        }
    }
    found.sort();
    assert_eq!(found, apart);
    let containers = COMMANDS.iter().filter(|command| !command.spec.subcommands.is_empty());
    containers.for_each(|command| assert_eq!(command.spec.arity, if command.spec.name == "command" { -1 } else { -2 }));
}

#[test]
fn sentences_are_sentences() {
    for command in &COMMANDS {
        let docs = &command.spec.docs;
        let sentences = docs.history.iter().map(|(_, change)| *change).chain([docs.summary]);
        for sentence in sentences {
            assert!(sentence.ends_with('.') && sentence.len() <= 110, "{}: {sentence}", command.full_name());
        }
        for argument in docs.arguments {
            assert!(
                argument.key.is_none_or(|key| usize::from(key) < command.spec.keys.len()),
                "{}",
                command.full_name()
            );
        }
    }
}

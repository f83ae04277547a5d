//! What `COMMAND` and its subcommands reply: the table of commands as clients read it.
//!
//! Valkey's order of commands is that of its hash table, ours is that of the table; nothing else in these replies differs but the
//! sentences.

use super::spec::keys::{KeysError, keys_of};
use super::spec::table::{COMMANDS, Command, find_call, find_full, plain};
use super::spec::{Argument, ArgumentKind, Begin, Categories, Find, KeySpec, LegacyRange};
use crate::resp::{Args, Reply};

/// `COMMAND`, and `COMMAND INFO` without names.
pub(crate) fn write_all(reply: &mut Reply) {
    reply.array(plain().count());
    plain().for_each(|command| write_command(reply, command));
}

/// `COMMAND COUNT`.
pub(crate) fn write_count(reply: &mut Reply) {
    reply.count(plain().count());
}

/// `COMMAND INFO` with names such as `get` or `config|set`; nothing in place of what does not exist.
pub(crate) fn write_info<'a>(reply: &mut Reply, names: impl ExactSizeIterator<Item = &'a [u8]>) {
    reply.array(names.len());
    for name in names {
        match find_full(name) {
            Some(command) => write_command(reply, command),
            None => reply.null(),
        }
    }
}

/// Which commands `COMMAND LIST` names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Filter<'a> {
    /// All.
    All,
    /// Those of a module: none.
    Module,
    /// Those of an ACL category, named without its `@`; none if there is no such category.
    Category(&'a [u8]),
    /// Those whose names match, which `matches` decides.
    Pattern { pattern: &'a [u8], matches: fn(pattern: &[u8], name: &[u8]) -> bool },
}

impl<'a> Filter<'a> {
    /// What `COMMAND LIST [FILTERBY MODULE|ACLCAT|PATTERN word]` asks for; `None` if it is not written so.
    pub(crate) fn read(args: Args<'a>, matches: fn(&[u8], &[u8]) -> bool) -> Option<Self> {
        match args.len() {
            2 => Some(Self::All),
            5 if args.is(2, "FILTERBY") => match args.get(4)? {
                _ if args.is(3, "MODULE") => Some(Self::Module),
                category if args.is(3, "ACLCAT") => Some(Self::Category(category)),
                pattern if args.is(3, "PATTERN") => Some(Self::Pattern { pattern, matches }),
                _ => None,
            },
            _ => None,
        }
    }
}

/// `COMMAND LIST`.
pub(crate) fn write_list(reply: &mut Reply, filter: Filter<'_>) {
    let category = match filter {
        Filter::Category(word) => Categories::named(word),
        _ => None,
    };
    let is_wanted = |command: &Command, name: &str| match filter {
        Filter::All => true,
        Filter::Module => false,
        Filter::Category(_) => category.is_some_and(|category| command.spec.categories().has(category)),
        Filter::Pattern { pattern, matches } => matches(pattern, name.as_bytes()),
    };
    let length = reply.array_later();
    let mut count = 0;
    for command in &COMMANDS {
        let name = command.full_name();
        if is_wanted(command, &name) {
            reply.bulk(name.as_bytes());
            count += 1;
        }
    }
    reply.finish(length, count);
}

/// `COMMAND DOCS` with names; what does not exist is left out.
pub(crate) fn write_docs<'a>(reply: &mut Reply, names: impl Iterator<Item = &'a [u8]>) {
    write_docs_of(reply, names.filter_map(find_full));
}

/// `COMMAND DOCS` without names.
pub(crate) fn write_all_docs(reply: &mut Reply) {
    write_docs_of(reply, plain());
}

/// `COMMAND GETKEYS`, and with what becomes of each key `COMMAND GETKEYSANDFLAGS`.
///
/// # Errors
/// The call makes no sense or has no keys; nothing was written then.
pub(crate) fn write_keys(reply: &mut Reply, call: Args<'_>, with_flags: bool) -> Result<(), KeysError> {
    let command = find_call(call).ok_or(KeysError::UnknownCommand)?;
    if !command.spec.has_keys() {
        return Err(KeysError::NoKeys);
    }
    if !command.spec.takes(call.len()) {
        return Err(KeysError::WrongNumber);
    }
    let mark = reply.mark();
    let length = reply.array_later();
    let mut count = 0;
    let keys = keys_of(command.spec, call, &mut |at, flags| {
        count += 1;
        if with_flags {
            reply.array(2);
        }
        reply.bulk(&call[at]);
        if with_flags {
            write_words(reply, flags.words());
        }
    });
    match keys {
        Ok(()) => reply.finish(length, count),
        Err(_) => reply.rewind(mark),
    }
    keys
}

fn write_command(reply: &mut Reply, command: &Command) {
    let spec = command.spec;
    let range = LegacyRange::of(spec.keys);
    reply.array(10);
    reply.bulk(command.full_name().as_bytes());
    reply.integer(i64::from(spec.arity));
    write_words(reply, spec.shown_flags().shown());
    for number in [range.first, range.last, range.step] {
        reply.integer(i64::from(number));
    }
    let categories = spec.categories();
    reply.set(categories.words().count());
    categories.words().for_each(|word| reply.status(&format!("@{word}")));
    reply.set(spec.docs.tips.len());
    spec.docs.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(spec.keys.len());
    spec.keys.iter().for_each(|keys| write_key_spec(reply, keys));
    reply.array(command.subcommands().len());
    command.subcommands().iter().for_each(|command| write_command(reply, command));
}

fn write_words(reply: &mut Reply, words: impl Iterator<Item = &'static str>) {
    let length = reply.set_later();
    let count = words.map(|word| reply.status(word)).count();
    reply.finish(length, count);
}

fn write_key_spec(reply: &mut Reply, keys: &KeySpec) {
    reply.map(if keys.notes.is_empty() { 3 } else { 4 });
    write_text(reply, "notes", keys.notes);
    reply.bulk(b"flags");
    write_words(reply, keys.flags.words());
    reply.bulk(b"begin_search");
    match keys.begin {
        Begin::Index(at) => write_step(reply, "index", &[("index", at)]),
        Begin::Keyword { word, from } => {
            write_step_head(reply, "keyword", 2);
            write_text(reply, "keyword", word);
            reply.bulk(b"startfrom");
            reply.integer(i64::from(from));
        }
        Begin::Unknown => write_step(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match keys.find {
        Find::Range { last, step, limit } => {
            write_step(reply, "range", &[("lastkey", last), ("keystep", step), ("limit", limit)]);
        }
        Find::Count { count_at, first, step } => {
            write_step(reply, "keynum", &[("keynumidx", count_at), ("firstkey", first), ("keystep", step)]);
        }
        Find::Unknown => write_step(reply, "unknown", &[]),
    }
}

fn write_step(reply: &mut Reply, kind: &str, numbers: &[(&str, i8)]) {
    write_step_head(reply, kind, numbers.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(i64::from(*number));
    }
}

fn write_step_head(reply: &mut Reply, kind: &str, numbers: usize) {
    reply.map(2);
    write_text(reply, "type", kind);
    reply.bulk(b"spec");
    reply.map(numbers);
}

fn write_docs_of<'a>(reply: &mut Reply, commands: impl Iterator<Item = &'a Command>) {
    let length = reply.map_later();
    let mut count = 0;
    for command in commands {
        reply.bulk(command.full_name().as_bytes());
        write_command_docs(reply, command);
        count += 1;
    }
    reply.finish(length, count);
}

fn write_command_docs(reply: &mut Reply, command: &Command) {
    let docs = &command.spec.docs;
    let length = reply.map_later();
    let mut count = write_text(reply, "summary", docs.summary);
    count += write_text(reply, "since", docs.since);
    count += write_text(reply, "group", docs.group.word());
    count += write_text(reply, "complexity", docs.complexity);
    let flags = [(docs.deprecated.is_some(), "deprecated"), (docs.internal, "syscmd")];
    if flags.iter().any(|(is_set, _)| *is_set) {
        reply.bulk(b"doc_flags");
        write_words(reply, flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word));
        count += 1;
    }
    if let Some(deprecated) = docs.deprecated {
        count += write_text(reply, "deprecated_since", deprecated.since);
        count += write_text(reply, "replaced_by", deprecated.replaced_by);
    }
    if !docs.history.is_empty() {
        reply.bulk(b"history");
        reply.set(docs.history.len());
        for (version, change) in docs.history {
            reply.array(2);
            reply.bulk(version.as_bytes());
            reply.bulk(change.as_bytes());
        }
        count += 1;
    }
    if !docs.arguments.is_empty() {
        reply.bulk(b"arguments");
        write_arguments(reply, docs.arguments);
        count += 1;
    }
    if !command.subcommands().is_empty() {
        reply.bulk(b"subcommands");
        write_docs_of(reply, command.subcommands().iter());
        count += 1;
    }
    reply.finish(length, count);
}

fn write_arguments(reply: &mut Reply, arguments: &[Argument]) {
    reply.array(arguments.len());
    arguments.iter().for_each(|argument| write_argument(reply, argument));
}

fn write_argument(reply: &mut Reply, argument: &Argument) {
    let is_group = matches!(argument.kind, ArgumentKind::OneOf | ArgumentKind::Block);
    let name = argument.shown_name();
    let length = reply.map_later();
    let mut count = write_text(reply, "name", &name);
    count += write_text(reply, "type", argument.kind.word());
    if !is_group {
        count += write_text(reply, "display_text", if argument.display.is_empty() { &name } else { argument.display });
    }
    if let Some(key) = argument.key {
        reply.bulk(b"key_spec_index");
        reply.integer(i64::from(key));
        count += 1;
    }
    if argument.kind == ArgumentKind::PureToken || !argument.token.is_empty() {
        reply.bulk(b"token");
        reply.bulk(argument.token.as_bytes());
        count += 1;
    }
    count += write_text(reply, "summary", argument.summary);
    count += write_text(reply, "since", argument.since);
    count += write_text(reply, "deprecated_since", argument.deprecated);
    let flags =
        [(argument.optional, "optional"), (argument.multiple, "multiple"), (argument.multiple_token, "multiple_token")];
    if flags.iter().any(|(is_set, _)| *is_set) {
        reply.bulk(b"flags");
        write_words(reply, flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word));
        count += 1;
    }
    if is_group {
        reply.bulk(b"arguments");
        write_arguments(reply, argument.inner);
        count += 1;
    }
    reply.finish(length, count);
}

/// A pair of a map, if there is any text. How many pairs it wrote.
fn write_text(reply: &mut Reply, name: &str, text: &str) -> usize {
    if text.is_empty() {
        return 0;
    }
    reply.bulk(name.as_bytes());
    reply.bulk(text.as_bytes());
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Protocol, Request};

    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply::new(protocol);
        write(&mut reply);
        reply.bytes().escape_ascii().to_string().replace("\\'", "'")
    }

    /// Takes sentences out of a reply.
    fn without_sentences(mut text: &str) -> String {
        let mut kept = String::new();
        let heads = ["$7\\r\\nsummary\\r\\n$", "$10\\r\\ncomplexity\\r\\n$", "$5\\r\\nnotes\\r\\n$"];
        while let Some(end) = heads.iter().filter_map(|head| text.find(head).map(|at| at + head.len())).min() {
            let (digits, rest) = text[end..].split_once("\\r\\n").unwrap();
            kept = kept + &text[..end] + "0\\r\\n";
            text = &rest[digits.parse::<usize>().unwrap()..];
        }
        kept + text
    }

    #[test]
    fn replies_are_those_of_valkey() {
        for line in include_str!("../../tests/data/command-replies.txt").lines() {
            let (request, expected) = line.split_once(" -> ").unwrap();
            let mut words = request.split(' ');
            let protocol = if words.next() == Some("2") { Protocol::Resp2 } else { Protocol::Resp3 };
            let subcommand = words.next();
            let names: Vec<&[u8]> = words.map(str::as_bytes).collect();
            let ours = written(protocol, |reply| match subcommand {
                Some("info") => write_info(reply, names.into_iter()),
                _ => write_docs(reply, names.into_iter()),
            });
            assert_eq!(without_sentences(&ours), expected, "{request}");
        }
    }

    #[test]
    fn keys_are_those_of_valkey() {
        for line in include_str!("../../tests/data/command-keys.txt").lines() {
            let (call, expected) = line.split_once(" -> ").unwrap();
            let words: Request = call.split(' ').map(|word| word.trim_matches('"').as_bytes()).collect();
            for with_flags in [true, false] {
                let mut reply = Reply::default();
                let result = write_keys(&mut reply, words.args(), with_flags);
                assert_eq!(
                    result.err().map(KeysError::text),
                    expected.starts_with("ERR").then_some(expected),
                    "{call}"
                );
                if result.is_err() {
                    assert_eq!(reply.bytes(), b"", "{call}");
                    continue;
                }
                let mut wanted = Reply::default();
                let keys: Vec<_> = expected.split(' ').filter(|key| *key != "-").collect();
                wanted.array(keys.len());
                for (key, flags) in keys.iter().map(|key| key.split_once('=').unwrap()) {
                    if with_flags {
                        wanted.array(2);
                    }
                    wanted.bulk(key.as_bytes());
                    if with_flags {
                        wanted.array(flags.split(',').count());
                        flags.split(',').for_each(|flag| wanted.status(flag));
                    }
                }
                assert_eq!(
                    reply.bytes().escape_ascii().to_string(),
                    wanted.bytes().escape_ascii().to_string(),
                    "{call}"
                );
            }
        }
    }

    #[test]
    fn lists() {
        let count =
            |categories: Categories| COMMANDS.iter().filter(|one| one.spec.categories().has(categories)).count();
        let cases = [
            ("command list", Some(COMMANDS.len())),
            ("command list filterby module m", Some(0)),
            ("COMMAND LIST FILTERBY ACLCAT Scripting", Some(count(Categories::SCRIPTING))),
            ("command list filterby aclcat write", Some(count(Categories::WRITE))),
            ("command list filterby aclcat nope", Some(0)),
            ("command list filterby pattern xinfo|", Some(4)),
            ("command list filterby pattern", None),
            ("command list filterby pattern a b", None),
            ("command list filterby nope a", None),
            ("command list sortby pattern a", None),
            ("command list filterby", None),
        ];
        for (call, expected) in cases {
            let request: Request = call.split(' ').map(str::as_bytes).collect();
            let filter = Filter::read(request.args(), |pattern, name| name.starts_with(pattern));
            let length = filter.map(|filter| {
                let text = written(Protocol::Resp2, |reply| write_list(reply, filter));
                text[1..].split_once("\\r").unwrap().0.parse::<usize>().unwrap()
            });
            assert_eq!(length, expected, "{call}");
        }
        let filter = Filter::Pattern { pattern: b"xgroup|c", matches: |pattern, name| name.starts_with(pattern) };
        let text = written(Protocol::Resp2, |reply| write_list(reply, filter));
        assert_eq!(text, "*2\\r\\n$13\\r\\nxgroup|create\\r\\n$21\\r\\nxgroup|createconsumer\\r\\n");
    }

    #[test]
    fn all_commands_are_those_one_by_one() {
        let names: Vec<String> = plain().map(Command::full_name).collect();
        let names = || names.iter().map(|name| name.as_bytes());
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            assert_eq!(written(protocol, write_all), written(protocol, |reply| write_info(reply, names())));
            assert_eq!(written(protocol, write_all_docs), written(protocol, |reply| write_docs(reply, names())));
        }
        assert_eq!(written(Protocol::Resp2, write_count), format!(":{}\\r\\n", names().len()));
    }

    #[test]
    fn containers() {
        let info = written(Protocol::Resp3, |reply| write_info(reply, [b"OBJECT".as_slice()].into_iter()));
        assert!(
            info.starts_with(
                "*1\\r\\n*10\\r\\n$6\\r\\nobject\\r\\n:-2\\r\\n~0\\r\\n:0\\r\\n:0\\r\\n:0\\r\\n~1\\r\\n+@slow\\r\\n"
            ),
            "{info}"
        );
        assert!(info.contains("~0\\r\\n~0\\r\\n*5\\r\\n*10\\r\\n$15\\r\\nobject|encoding\\r\\n:3\\r\\n"), "{info}");
        let docs = written(Protocol::Resp3, |reply| write_docs(reply, [b"object".as_slice()].into_iter()));
        assert!(docs.starts_with("%1\\r\\n$6\\r\\nobject\\r\\n%5\\r\\n$7\\r\\nsummary\\r\\n"), "{docs}");
        assert!(docs.contains("$11\\r\\nsubcommands\\r\\n%5\\r\\n$15\\r\\nobject|encoding\\r\\n%5\\r\\n"), "{docs}");
    }
}

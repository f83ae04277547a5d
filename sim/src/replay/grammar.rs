//! Random calls of documented commands.
//!
//! Arguments follow the documentation; values follow the argument's name, so that most calls do something. Some values are words
//! that are options elsewhere, and some calls are broken on purpose.

use super::choices::Choices;
use super::table::{Argument, Command, Kind, Table};

/// The words of one request.
pub(super) type Words = Vec<Vec<u8>>;

/// Databases of every engine.
pub(super) const DATABASES: usize = 3;
/// Keys of each kind.
const KEYS: usize = 3;
/// Initials of keys, by the group of commands that mostly uses them.
const INITIALS: [(&str, &str); 9] = [
    ("string", "s"),
    ("bitmap", "b"),
    ("hyperloglog", "p"),
    ("list", "l"),
    ("set", "t"),
    ("sorted-set", "z"),
    ("hash", "h"),
    ("stream", "x"),
    ("geo", "u"),
];
const ODD_KEYS: [&[u8]; 6] = [b"", b"GET", b"STORE", b"\xff\x00\r\n", b"{s0}tail", b"w_*"];
const INTEGERS: [&str; 10] = [
    "9223372036854775807",
    "-9223372036854775808",
    "x",
    "1.5",
    "007",
    "100",
    "-100",
    "",
    "18446744073709551615",
    "255",
];
const DOUBLES: [&str; 12] =
    ["0", "1", "-1", "1.5", "2.25", "1e3", "inf", "-inf", "nan", "-0", "0.1", "1234567890.123456789"];
const VALUES: [&[u8]; 14] = [
    b"a",
    b"b",
    b"",
    b"hello world",
    b"10",
    b"-5",
    b"3.5",
    b"a\r\nb\0c",
    b"abcabcabc",
    b"1e5",
    b"\xc3\xa9",
    b"99",
    b"w1",
    b"w2",
];
const IDS: [&str; 14] = [
    "*",
    "1-1",
    "1-2",
    "2-1",
    "3",
    "3-*",
    "5-5",
    "7",
    "9-1",
    "12",
    "20-3",
    "0-0",
    "18446744073709551615-18446744073709551615",
    "x",
];
const ENCODINGS: [&str; 6] = ["u4", "i8", "u63", "i64", "u1", "u64"];
const BOUNDS: [&str; 10] = ["-inf", "+inf", "0", "1", "(1", "(0", "3", "[m3", "-", "+"];
const PATTERNS: [&str; 7] = ["*", "s*", "w_*", "h0->f1", "nosort", "#", "[^sl]*"];
/// Where [`super::world`] puts a payload in place of a word that begins so.
pub(super) const DUMP_OF: &[u8] = b"\0dump of ";
pub(super) const FUNCTIONS_DUMP: &[u8] = b"\0functions";
/// What stands between commands in the arguments of a script.
const NEXT: &[u8] = b"\0next";

/// A script that runs the commands in its arguments, one after another.
const SCRIPT: &str = "local c = {} for _, a in ipairs(ARGV) do if a == '\\0next' then redis.pcall(unpack(c)) c = {} \
                      else c[#c + 1] = a end end return redis.call(unpack(c))";

fn library(number: usize, version: usize) -> Vec<u8> {
    let body = SCRIPT.replace("ARGV", "args");
    format!(
        "#!lua name=lib{number}\n-- {version}\nredis.register_function('f{number}', function(keys, args) {body} end)"
    )
    .into_bytes()
}

/// Makes requests.
#[derive(Debug)]
pub(super) struct Grammar<'t, 'c> {
    pub(super) table: &'t Table,
    pub(super) choices: Choices<'c>,
    /// Unix milliseconds at which what is made will run.
    pub(super) now_ms: i64,
    group: String,
    /// How many values each repeated argument of the call has.
    count: Option<usize>,
}

impl<'t, 'c> Grammar<'t, 'c> {
    pub(super) fn new(table: &'t Table, choices: Choices<'c>, now_ms: i64) -> Self {
        Self { table, choices, now_ms, group: String::new(), count: None }
    }

    /// A request.
    pub(super) fn request(&mut self) -> Words {
        let mut words = match self.choices.below(24) {
            0 => self.script(),
            1 => self.function(),
            2..=5 => {
                let reading = &self.table.reading;
                let command = &reading[self.choices.below(reading.len())];
                self.call(command)
            }
            _ => self.write(),
        };
        if self.choices.one_in(20) {
            self.garble(&mut words);
        }
        words
    }

    fn write(&mut self) -> Words {
        let writing = &self.table.writing;
        let command = &writing[self.choices.below(writing.len())];
        self.call(command)
    }

    fn call(&mut self, command: &Command) -> Words {
        self.group.clone_from(&command.group);
        self.count = None;
        match command.name.as_str() {
            "eval" | "eval_ro" | "evalsha" | "evalsha_ro" => return self.script(),
            "fcall" | "fcall_ro" | "function|load" => return self.function(),
            // Everything would be gone all the time.
            "flushall" | "flushdb" | "function|flush" if !self.choices.one_in(4) => return self.write(),
            _ => {}
        }
        let mut words: Words = command.words().collect();
        self.sequence(&command.arguments, &mut words);
        words
    }

    /// A script with commands in its arguments, or one that only reads.
    fn script(&mut self) -> Words {
        let name: &[u8] = if self.choices.one_in(8) { b"EVAL_RO" } else { b"EVAL" };
        let mut words: Words = vec![name.to_vec(), SCRIPT.into(), b"0".to_vec()];
        self.commands(&mut words);
        words
    }

    fn function(&mut self) -> Words {
        let number = self.choices.below(3);
        let mut words: Words = match self.choices.below(4) {
            0 => {
                let mut words = vec![b"FUNCTION".to_vec(), b"LOAD".to_vec()];
                if !self.choices.one_in(4) {
                    words.push(b"REPLACE".to_vec());
                }
                words.push(library(number, self.choices.below(9)));
                return words;
            }
            _ => vec![b"FCALL".to_vec(), format!("f{number}").into_bytes(), b"0".to_vec()],
        };
        self.commands(&mut words);
        words
    }

    /// Some commands as arguments of a script.
    fn commands(&mut self, words: &mut Words) {
        for number in 0..=self.choices.below(3) {
            if number > 0 {
                words.push(NEXT.to_vec());
            }
            let writing = &self.table.writing;
            let command = &writing[self.choices.below(writing.len())];
            if command.group == "scripting" {
                words.extend([b"INCR".to_vec(), b"s0".to_vec()]);
            } else {
                words.extend(self.call(command));
            }
        }
    }

    fn sequence(&mut self, arguments: &[Argument], words: &mut Words) {
        for argument in arguments {
            if !argument.is_optional || self.choices.below(5) >= 3 {
                self.argument(argument, words);
            }
        }
    }

    fn argument(&mut self, argument: &Argument, words: &mut Words) {
        if argument.kind == Kind::Token {
            words.extend(argument.token.as_ref().map(|token| token.clone().into_bytes()));
            return;
        }
        if !argument.has_multiple_token {
            words.extend(argument.token.as_ref().map(|token| token.clone().into_bytes()));
        }
        let times = if argument.is_multiple { self.times() } else { 1 };
        for _ in 0..times {
            if argument.has_multiple_token {
                words.extend(argument.token.as_ref().map(|token| token.clone().into_bytes()));
            }
            match argument.kind {
                Kind::OneOf => {
                    let chosen = &argument.inner[self.choices.below(argument.inner.len())];
                    self.argument(chosen, words);
                }
                Kind::Block => self.block(argument, words),
                _ => {
                    let word = self.word(argument);
                    words.push(word);
                }
            }
        }
    }

    /// All parts of a group: those that are repeated have as many values as each other.
    fn block(&mut self, argument: &Argument, words: &mut Words) {
        let before = self.count;
        if argument.inner.iter().filter(|part| part.is_multiple).count() > 1 {
            self.count = Some(1 + self.choices.below(2));
        }
        self.sequence(&argument.inner, words);
        if !argument.inner.iter().any(|part| part.name.starts_with("num")) {
            self.count = before;
        }
    }

    fn times(&mut self) -> usize {
        match self.count {
            Some(count) if !self.choices.one_in(40) => count,
            _ if self.choices.one_in(30) => 20 + self.choices.below(200),
            _ => 1 + self.choices.below(3),
        }
    }

    fn word(&mut self, argument: &Argument) -> Vec<u8> {
        if argument.kind != Kind::Key && self.choices.one_in(30) {
            let tokens = &self.table.tokens;
            return tokens[self.choices.below(tokens.len())].clone().into_bytes();
        }
        match argument.kind {
            Kind::Key => self.key(),
            Kind::Integer if argument.name.starts_with("num") => {
                let count = 1 + self.choices.below(3);
                self.count = Some(count);
                count.to_string().into_bytes()
            }
            Kind::Integer => self.integer(&argument.name).into_bytes(),
            Kind::Double => self.double(&argument.name).into_bytes(),
            Kind::Pattern => self.choices.pick(&PATTERNS).into(),
            Kind::UnixTime => {
                let at_ms = self.now_ms - 2_000 + self.choices.below(20_000) as i64;
                let is_ms = argument.name.contains("milli") || argument.token.as_deref() == Some("PXAT");
                (if is_ms { at_ms } else { at_ms / 1_000 }).to_string().into_bytes()
            }
            _ => self.text(&argument.name),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        if self.choices.one_in(60) {
            return ODD_KEYS[self.choices.below(ODD_KEYS.len())].to_vec();
        }
        let own = INITIALS.iter().find(|(group, _)| *group == self.group).map(|(_, initial)| *initial);
        let initial = match own {
            Some(own) if !self.choices.one_in(15) => own,
            _ => INITIALS[self.choices.below(INITIALS.len())].1,
        };
        format!("{initial}{}", self.choices.below(KEYS)).into_bytes()
    }

    fn integer(&mut self, name: &str) -> String {
        if self.choices.one_in(12) {
            return self.choices.pick(&INTEGERS).to_owned();
        }
        let small = |choices: &mut Choices<'_>, from: i64, count: usize| from + choices.below(count) as i64;
        let choices = &mut self.choices;
        let number = match name {
            _ if name.contains("seconds") && !name.contains("milli") => small(choices, 0, 8),
            _ if name.contains("milliseconds") || name == "ttl" => small(choices, -2, 4_000),
            _ if name.contains("db") || name == "index" && self.group == "connection" => small(choices, 0, DATABASES),
            "offset" if choices.one_in(300) => 3_000_000,
            "offset" => small(choices, 0, 120),
            "timeout" => small(choices, 0, 50),
            "min-idle-time" => small(choices, 0, 2) * 100,
            "cursor" => 0,
            _ => small(choices, -2, 8),
        };
        number.to_string()
    }

    fn double(&mut self, name: &str) -> String {
        match name {
            "timeout" => format!("0.0{}", 1 + self.choices.below(90)),
            "longitude" => format!("{}.361389", self.choices.below(60)),
            "latitude" => format!("{}.115556", self.choices.below(60)),
            _ if self.choices.one_in(2) => (self.choices.below(9) as i64 - 2).to_string(),
            _ => self.choices.pick(&DOUBLES).to_owned(),
        }
    }

    fn text(&mut self, name: &str) -> Vec<u8> {
        let is_of_stream = self.group == "stream";
        let choices = &mut self.choices;
        match name {
            "field" => format!("f{}", choices.below(7)).into_bytes(),
            "member" => format!("m{}", choices.below(9)).into_bytes(),
            "group" | "groupname" | "group-name" => format!("g{}", choices.below(2)).into_bytes(),
            "consumer" | "consumername" => format!("c{}", choices.below(3)).into_bytes(),
            "start" | "end" | "min" | "max" if !is_of_stream => choices.pick(&BOUNDS).into(),
            "encoding" => choices.pick(&ENCODINGS).into(),
            "serialized-value" if self.group == "scripting" => FUNCTIONS_DUMP.to_vec(),
            "serialized-value" => [DUMP_OF, &self.key()].concat(),
            "type" => choices.pick(&["string", "hash", "stream", "x"]).into(),
            "library-name" => format!("lib{}", choices.below(3)).into_bytes(),
            "threshold" if choices.one_in(2) => choices.below(12).to_string().into_bytes(),
            _ if is_of_stream && (name.contains("id") || matches!(name, "threshold" | "start" | "end")) => self.id(),
            _ if choices.one_in(300) => vec![b'v'; [64, 300, 5_000, 70_000][choices.below(4)]],
            _ => VALUES[choices.below(VALUES.len())].to_vec(),
        }
    }

    fn id(&mut self) -> Vec<u8> {
        match self.choices.below(6) {
            0 => b">".to_vec(),
            1 | 2 => format!("{}-{}", self.choices.below(30), self.choices.below(3)).into_bytes(),
            3 => self.choices.pick(&["$", "-", "+", "(3-1", "100", "0"]).into(),
            _ => self.choices.pick(&IDS).into(),
        }
    }

    /// Breaks a request: a word less, one more, another, or one in lower case.
    fn garble(&mut self, words: &mut Words) {
        let at = 1 + self.choices.below(words.len().max(2) - 1);
        let tokens = &self.table.tokens;
        match self.choices.below(5) {
            0 if at < words.len() => drop(words.remove(at)),
            1 => words.push(tokens[self.choices.below(tokens.len())].clone().into_bytes()),
            2 if at < words.len() => words[at] = tokens[self.choices.below(tokens.len())].clone().into_bytes(),
            3 if at < words.len() => {
                let word = words[at].clone();
                words.insert(at, word);
            }
            _ => words.iter_mut().for_each(|word| {
                if !word.starts_with(b"\0") && word.len() < 12 {
                    word.make_ascii_lowercase();
                }
            }),
        }
    }
}

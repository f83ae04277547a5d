//! A set of rights: commands, keys, channels and databases that go together.
//!
//! A user has one that its rules are about, and more in brackets; a command may run if one of them admits all of it.

use std::collections::{BTreeMap, BTreeSet};

use super::log::Reason;
use crate::command::spec::keys::keys_of;
use crate::command::spec::table::{self, COMMANDS, COMMANDS_COUNT, Command};
use crate::command::spec::{Categories, Flags, KeyFlags};
use crate::error::Error;
use crate::glob;
use crate::resp::Args;
use crate::resp::number::parse_i64;

const WORDS: usize = COMMANDS_COUNT.div_ceil(64);

/// A set of rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    /// A bit for each command's number.
    commands: [u64; WORDS],
    /// Whether it was made by taking away from all, so that commands of other servers are allowed as well.
    has_future: bool,
    /// Whether nothing was taken away: the bits need not be looked at.
    pub(super) all_commands: bool,
    /// First arguments with which commands are allowed that are not otherwise.
    first_arguments: BTreeMap<u16, Vec<Vec<u8>>>,
    /// The rules about commands that made it, in order.
    command_rules: Vec<String>,
    pub(super) all_keys: bool,
    keys: Vec<KeyRule>,
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Vec<u8>>,
    pub(super) all_databases: bool,
    databases: BTreeSet<usize>,
}

/// Which databases a call is about, apart from those that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Databases {
    /// The one that the client has chosen.
    pub(crate) chosen: usize,
    /// How many the server has.
    pub(crate) count: usize,
}

/// Keys that may be read, written, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyRule {
    pattern: Vec<u8>,
    may_read: bool,
    may_write: bool,
}

/// Why a command may not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Denial {
    pub(crate) reason: Reason,
    /// The word that it is about: a key, a channel.
    pub(crate) at: usize,
}

impl Denial {
    /// What it is about, as the log shows it.
    pub(crate) fn object(self, command: &Command, args: Args<'_>) -> Vec<u8> {
        match self.reason {
            Reason::Command => command.full_name().into_bytes(),
            // It concerns the database of the client, or all, and no word names one.
            Reason::Database if self.at == 0 => command.full_name().into_bytes(),
            _ => args.get(self.at).unwrap_or_default().to_vec(),
        }
    }

    /// The sentence behind `NOPERM`.
    pub(crate) fn text(self, user: &[u8], command: &Command) -> String {
        match self.reason {
            Reason::Command => {
                let user = String::from_utf8_lossy(user);
                format!("User {user} has no permissions to run the '{}' command", command.full_name())
            }
            Reason::Key => "No permissions to access a key".into(),
            Reason::Database => "No permissions to access database".into(),
            Reason::Channel | Reason::Auth => "No permissions to access a channel".into(),
        }
    }

    /// The same, with the name of what may not be accessed.
    pub(crate) fn full_text(self, user: &[u8], command: &Command, args: Args<'_>) -> String {
        let name = String::from_utf8_lossy(user);
        let object = String::from_utf8_lossy(args.get(self.at).unwrap_or_default());
        let what = match self.reason {
            Reason::Command => return self.text(user, command),
            Reason::Key => format!("the '{object}' key"),
            Reason::Database => format!("database {object}"),
            Reason::Channel | Reason::Auth => format!("the '{object}' channel"),
        };
        format!("User {name} has no permissions to access {what}")
    }

    /// Why EXEC does not run a command any more.
    pub(crate) const fn transaction_text(self) -> &'static str {
        match self.reason {
            Reason::Command => "no permission to execute the command or subcommand",
            Reason::Key => "no permission to touch the specified keys",
            Reason::Channel => "no permission to access one of the channels used as arguments to the command",
            Reason::Auth | Reason::Database => "no permission",
        }
    }

    /// The error reply.
    pub(crate) fn error(self, user: &[u8], command: &Command) -> Error {
        Error::text(format!("NOPERM {}", self.text(user, command)))
    }
}

/// A rule that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongRule {
    Syntax,
    UnknownCommand,
    KeysAfterAll,
    ChannelsAfterAll,
    NoSuchPassword,
    Hash,
    FirstArgument,
}

impl WrongRule {
    /// As Valkey words it.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Syntax => "Syntax error",
            Self::UnknownCommand => "Unknown command or category name in ACL",
            Self::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
                 'resetkeys' to start with an empty list of patterns"
            }
            Self::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. \
                 Try 'resetchannels' to start with an empty list of channels"
            }
            Self::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            Self::Hash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            Self::FirstArgument => "Allowing first-arg of a subcommand is not supported",
        }
    }
}

/// Whether a word has bytes that a name or pattern may not have.
pub(super) fn has_spaces(word: &[u8]) -> bool {
    word.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0 || *byte == 0x0b)
}

impl Selector {
    /// No rights; but all channels if those are free for everybody.
    pub(super) fn new(all_channels: bool) -> Self {
        Self {
            commands: [0; WORDS],
            has_future: false,
            all_commands: false,
            first_arguments: BTreeMap::new(),
            command_rules: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
            all_databases: true,
            databases: BTreeSet::new(),
        }
    }

    /// Whether nothing is forbidden.
    pub(super) fn admits_everything(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels && self.all_databases
    }

    /// Changes the rights by one rule.
    ///
    /// # Errors
    /// The rule makes no sense; nothing has changed then.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), WrongRule> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => (self.all_keys, self.keys) = (true, Vec::new()),
            b"resetkeys" => (self.all_keys, self.keys) = (false, Vec::new()),
            b"allchannels" | b"&*" => (self.all_channels, self.channels) = (true, Vec::new()),
            b"resetchannels" => (self.all_channels, self.channels) = (false, Vec::new()),
            b"alldbs" => (self.all_databases, self.databases) = (true, BTreeSet::new()),
            b"resetdbs" => (self.all_databases, self.databases) = (false, BTreeSet::new()),
            b"allcommands" | b"+@all" => self.set_all_commands(true),
            b"nocommands" | b"-@all" => self.set_all_commands(false),
            lower if lower.starts_with(b"db=") => self.add_databases(&lower[3..])?,
            lower => match rule {
                [b'~' | b'%', ..] => self.add_keys(rule)?,
                [b'&', channel @ ..] => self.add_channel(channel)?,
                [b'+' | b'-', b'@', ..] => self.set_category(rule[0] == b'+', &lower[2..])?,
                [b'+', ..] => self.allow(&lower[1..], &rule[1..])?,
                [b'-', ..] => {
                    let command = table::find_full(&lower[1..]).ok_or(WrongRule::UnknownCommand)?;
                    self.set_command(command, false);
                    self.note_rule(&command.full_name(), false);
                }
                _ => return Err(WrongRule::Syntax),
            },
        }
        Ok(())
    }

    fn set_all_commands(&mut self, is_allowed: bool) {
        self.commands = [if is_allowed { u64::MAX } else { 0 }; WORDS];
        (self.has_future, self.all_commands) = (is_allowed, is_allowed);
        self.first_arguments.clear();
        self.command_rules.clear();
    }

    fn add_databases(&mut self, list: &[u8]) -> Result<(), WrongRule> {
        let numbers =
            list.split(|byte| *byte == b',').map(|word| parse_i64(word).and_then(|id| usize::try_from(id).ok()));
        let numbers: Option<Vec<usize>> = numbers.collect();
        self.databases.extend(numbers.ok_or(WrongRule::Syntax)?);
        self.all_databases = false;
        Ok(())
    }

    /// `~pattern`, `%R~pattern`, `%W~pattern`, `%RW~pattern`.
    fn add_keys(&mut self, rule: &[u8]) -> Result<(), WrongRule> {
        if self.all_keys {
            return Err(WrongRule::KeysAfterAll);
        }
        let start = rule.iter().position(|byte| *byte == b'~').ok_or(WrongRule::Syntax)?;
        let (may_read, may_write) = match rule[..start].to_ascii_lowercase().as_slice() {
            b"" | b"%rw" | b"%wr" => (true, true),
            b"%r" => (true, false),
            b"%w" => (false, true),
            _ => return Err(WrongRule::Syntax),
        };
        let pattern = rule[start + 1..].to_vec();
        if has_spaces(&pattern) {
            return Err(WrongRule::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.may_read |= may_read;
                known.may_write |= may_write;
            }
            None => self.keys.push(KeyRule { pattern, may_read, may_write }),
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), WrongRule> {
        if self.all_channels {
            return Err(WrongRule::ChannelsAfterAll);
        }
        if has_spaces(pattern) {
            return Err(WrongRule::Syntax);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    fn set_category(&mut self, is_allowed: bool, name: &[u8]) -> Result<(), WrongRule> {
        let category = Categories::named(name).ok_or(WrongRule::UnknownCommand)?;
        self.note_rule(&format!("@{}", String::from_utf8_lossy(name)), is_allowed);
        for command in COMMANDS.iter().filter(|command| command.spec.categories().has(category)) {
            self.set_command(command, is_allowed);
        }
        Ok(())
    }

    /// `+command`, `+command|subcommand`, `+command|argument`. `name` is `written` in lower case.
    fn allow(&mut self, name: &[u8], written: &[u8]) -> Result<(), WrongRule> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let command = table::find(name).ok_or(WrongRule::UnknownCommand)?;
            self.set_command(command, true);
            self.note_rule(command.spec.name, true);
            return Ok(());
        };
        let container = table::find_full(&name[..bar]).ok_or(WrongRule::UnknownCommand)?;
        if container.container().is_some() {
            return Err(WrongRule::FirstArgument);
        }
        let argument = &written[bar + 1..];
        if argument.is_empty() {
            return Err(WrongRule::Syntax);
        }
        if container.subcommands().is_empty() {
            let known = self.first_arguments.entry(container.number).or_default();
            if !known.iter().any(|other| other.eq_ignore_ascii_case(argument)) {
                known.push(argument.to_vec());
            }
        } else {
            let command = table::find_full(name).ok_or(WrongRule::UnknownCommand)?;
            self.set_command(command, true);
        }
        self.note_rule(&String::from_utf8_lossy(name), true);
        Ok(())
    }

    /// A command and its subcommands.
    fn set_command(&mut self, command: &Command, is_allowed: bool) {
        self.first_arguments.remove(&command.number);
        self.all_commands &= is_allowed;
        for number in std::iter::once(command.number).chain(command.subcommands().iter().map(|sub| sub.number)) {
            let (word, bit) = (usize::from(number / 64), 1 << (number % 64));
            if is_allowed {
                self.commands[word] |= bit;
            } else {
                self.commands[word] &= !bit;
            }
        }
    }

    /// Remembers a rule, and forgets those that it makes void: the same, and those about its subcommands.
    fn note_rule(&mut self, rule: &str, is_allowed: bool) {
        self.command_rules.retain(|known| {
            let known = &known[1..];
            known != rule && !known.strip_prefix(rule).is_some_and(|rest| rest.starts_with('|'))
        });
        self.command_rules.push(format!("{}{rule}", if is_allowed { '+' } else { '-' }));
    }

    /// Whether a command may run.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(&self, command: &Command, args: Args<'_>, databases: Databases) -> Result<(), Denial> {
        if !self.admits_command(command, args) {
            return Err(Denial { reason: Reason::Command, at: 0 });
        }
        if !self.all_databases {
            self.check_databases(command, args, databases)?;
        }
        if !self.all_keys && command.spec.has_keys() {
            let mut refused = None;
            // What cannot be told apart fails by itself.
            let _ = keys_of(command.spec, args, &mut |at, flags| {
                if refused.is_none() && !self.admits_key(&args[at], flags) {
                    refused = Some(at);
                }
            });
            if let Some(at) = refused {
                return Err(Denial { reason: Reason::Key, at });
            }
        }
        if !self.all_channels {
            let (is_pattern, count) = channels_of(command, args);
            let mut places = 1..=count;
            if let Some(at) = places.find(|at| !admits_channel(&self.channels, &args[*at], is_pattern)) {
                return Err(Denial { reason: Reason::Channel, at });
            }
        }
        Ok(())
    }

    fn admits_command(&self, command: &Command, args: Args<'_>) -> bool {
        let bit = self.commands[usize::from(command.number / 64)] >> (command.number % 64);
        let with_argument = || {
            let (known, first) = (self.first_arguments.get(&command.number)?, args.get(1)?);
            known.iter().find(|known| known.eq_ignore_ascii_case(first))
        };
        self.all_commands || bit & 1 == 1 || command.spec.flags.has(Flags::NO_AUTH) || with_argument().is_some()
    }

    /// Commands about keys run in the database of the client; some name others, and some concern all. A number that means no
    /// database is left to the command, which refuses it.
    fn check_databases(&self, command: &Command, args: Args<'_>, databases: Databases) -> Result<(), Denial> {
        let admits = |id: usize| self.databases.contains(&id);
        let named = |at: usize| {
            let id = args.get(at).and_then(parse_i64).and_then(|id| usize::try_from(id).ok());
            id.is_none_or(|id| id >= databases.count || admits(id))
        };
        let refused = match (command.container(), command.spec.name) {
            (None, "select") => [1].into_iter().find(|at| !named(*at)),
            (None, "swapdb") => [1, 2].into_iter().find(|at| !named(*at)),
            (None, "move") => [2].into_iter().find(|at| !named(*at)),
            // Each DB counts, as COPY takes the last one. A key of that name is no option: keys stand before word 3.
            (None, "copy") => (4..args.len()).find(|at| args.is(at - 1, "DB") && !named(*at)),
            _ if command.spec.flags.has(Flags::ALL_DBS) => (0..databases.count).any(|id| !admits(id)).then_some(0),
            _ => None,
        };
        let is_about_keys = || {
            let restricted = [Categories::KEYSPACE, Categories::READ, Categories::WRITE];
            let categories = command.spec.categories();
            command.spec.has_keys() || restricted.into_iter().any(|category| categories.has(category))
        };
        let runs_elsewhere = matches!(command.spec.name, "select" | "swapdb") || command.spec.flags.has(Flags::ALL_DBS);
        let refused = refused.or((!runs_elsewhere && !admits(databases.chosen) && is_about_keys()).then_some(0));
        refused.map_or(Ok(()), |at| Err(Denial { reason: Reason::Database, at }))
    }

    /// Whether a key may be used in this way.
    pub(super) fn admits_key(&self, key: &[u8], flags: KeyFlags) -> bool {
        let reads = flags.has(KeyFlags::ACCESS);
        let writes = [KeyFlags::INSERT, KeyFlags::DELETE, KeyFlags::UPDATE].iter().any(|flag| flags.has(*flag));
        let fits = |rule: &KeyRule| {
            (rule.may_read || !reads) && (rule.may_write || !writes) && glob::matches(&rule.pattern, key, false)
        };
        self.all_keys || self.keys.iter().any(fits)
    }

    /// Whether any key at all may be read.
    pub(super) fn admits_reading_all(&self) -> bool {
        self.all_keys || self.keys.iter().any(|rule| rule.may_read && rule.pattern == b"*")
    }

    /// The rules about commands that make it from nothing.
    pub(crate) fn show_commands(&self) -> String {
        let first = if self.has_future { "+@all" } else { "-@all" };
        std::iter::once(first).chain(self.command_rules.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    /// The rules about keys.
    pub(crate) fn show_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let show = |rule: &KeyRule| {
            let begin: &[u8] = match (rule.may_read, rule.may_write) {
                (true, true) => b"~",
                (true, false) => b"%R~",
                _ => b"%W~",
            };
            [begin, &rule.pattern].concat()
        };
        self.keys.iter().map(show).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules about channels.
    pub(crate) fn show_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        self.channels.iter().map(|pattern| [b"&", &**pattern].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules about databases, as `ACL GETUSER` shows them; empty where none is admitted.
    pub(crate) fn show_databases(&self) -> String {
        let numbers: Vec<String> = self.databases.iter().map(ToString::to_string).collect();
        match (self.all_databases, numbers.is_empty()) {
            (true, _) => "alldbs".into(),
            (false, true) => String::new(),
            (false, false) => format!("db={}", numbers.join(",")),
        }
    }

    /// All rules that make it from nothing.
    pub(super) fn show(&self) -> Vec<u8> {
        let channels = match (self.all_channels, self.channels.is_empty()) {
            (true, _) => b"&*".to_vec(),
            (false, true) => b"resetchannels".to_vec(),
            (false, false) => [&b"resetchannels "[..], &self.show_channels()].concat(),
        };
        let databases = match self.show_databases() {
            // Versions before 9.1 do not know the word, and it is what a user begins with.
            _ if self.all_databases => Vec::new(),
            none if none.is_empty() => b"resetdbs".to_vec(),
            some => some.into_bytes(),
        };
        let parts = [self.show_keys(), channels, databases, self.show_commands().into_bytes()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b' ')
    }
}

/// Whether a list of patterns admits a channel. A pattern to listen to must be in the list itself.
pub(super) fn admits_channel(patterns: &[Vec<u8>], channel: &[u8], is_pattern: bool) -> bool {
    patterns.iter().any(|known| if is_pattern { known == channel } else { glob::matches(known, channel, false) })
}

/// How many words of a call from the first on are channels that it sends to or listens to, and whether they are patterns.
fn channels_of(command: &Command, args: Args<'_>) -> (bool, usize) {
    match command.spec.name {
        _ if command.container().is_some() => (false, 0),
        "publish" | "spublish" => (false, 1),
        "subscribe" | "ssubscribe" => (false, args.len() - 1),
        "psubscribe" => (true, args.len() - 1),
        _ => (false, 0),
    }
}

//! One user: how it proves who it is, and its rights.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::log::Reason;
use super::selector::{Databases, Denial, Selector, WrongRule, admits_channel, has_spaces};
use super::{DEFAULT, Users};
use crate::command::spec::table::Command;
use crate::resp::Args;

/// Letters of a password's hash.
const HASH_LETTERS: usize = 64;

/// One user. It never changes; see [`super::Acl`].
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) name: Vec<u8>,
    pub(crate) is_on: bool,
    /// Any password will do.
    pub(crate) needs_no_password: bool,
    /// SHA-256 of each password, as hexadecimal letters.
    pub(crate) passwords: Vec<String>,
    /// The first is what rules without brackets are about. Never empty.
    selectors: Vec<Selector>,
    /// What new selectors begin with.
    all_channels: bool,
}

impl User {
    /// A user who may do nothing.
    pub(crate) fn new(name: &[u8], all_channels: bool) -> Self {
        Self {
            name: name.to_vec(),
            is_on: false,
            needs_no_password: false,
            passwords: Vec::new(),
            selectors: vec![Selector::new(all_channels)],
            all_channels,
        }
    }

    /// A user who may do everything, and whom nobody can change: whoever replays the log.
    pub(crate) fn superuser() -> Arc<Self> {
        Arc::new(Self::default_user())
    }

    /// The user that connections begin as: it may do everything, and needs no password.
    pub(crate) fn default_user() -> Self {
        let mut user = Self::new(DEFAULT, true);
        for rule in ["+@all", "~*", "&*", "on", "nopass"] {
            user.apply(rule.as_bytes()).expect("these rules make sense");
        }
        user
    }

    /// Whether nothing is forbidden.
    #[inline]
    pub(crate) fn may_do_everything(&self) -> bool {
        self.selectors[0].admits_everything()
    }

    /// Whether connections that say nothing may begin as this user.
    pub(crate) fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Whether this is one of its passwords. The time that this takes tells nothing of the passwords.
    pub(crate) fn lets_in(&self, password: &[u8]) -> bool {
        let hashed = hash(password);
        let is_known = self
            .passwords
            .iter()
            .fold(false, |known, other| known | bool::from(other.as_bytes().ct_eq(hashed.as_bytes())));
        self.is_on && (self.needs_no_password || is_known)
    }

    /// What rules without brackets are about.
    pub(crate) fn root(&self) -> &Selector {
        &self.selectors[0]
    }

    /// What stands in brackets.
    pub(crate) fn others(&self) -> &[Selector] {
        &self.selectors[1..]
    }

    /// Changes its passwords to this one alone; an empty one is none.
    pub(crate) fn set_password(&mut self, password: &[u8]) {
        let rule = if password.is_empty() { b"nopass".to_vec() } else { [b">", password].concat() };
        for rule in [&b"resetpass"[..], &rule] {
            self.apply(rule).expect("any password will do");
        }
    }

    /// Changes it by one rule.
    ///
    /// # Errors
    /// The rule makes no sense; nothing has changed then.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<(), WrongRule> {
        match rule {
            [] => return Ok(()),
            [b'>', password @ ..] => self.add_password(hash(password)),
            [b'#', hashed @ ..] => self.add_password(checked_hash(hashed)?),
            [b'<', password @ ..] => self.remove_password(&hash(password))?,
            [b'!', hashed @ ..] => self.remove_password(&checked_hash(hashed)?)?,
            [b'(', rules @ .., b')'] => {
                let mut selector = Selector::new(self.all_channels);
                for rule in rules.split(u8::is_ascii_whitespace).filter(|rule| !rule.is_empty()) {
                    selector.apply(rule)?;
                }
                self.selectors.push(selector);
            }
            _ => self.apply_word(rule)?,
        }
        Ok(())
    }

    fn apply_word(&mut self, rule: &[u8]) -> Result<(), WrongRule> {
        match rule.to_ascii_lowercase().as_slice() {
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            // What is restored is always checked. Valkey 9.1.2 takes these words without effect, too.
            b"skip-sanitize-payload" | b"sanitize-payload" => {}
            b"nopass" => (self.needs_no_password, self.passwords) = (true, Vec::new()),
            b"resetpass" => (self.needs_no_password, self.passwords) = (false, Vec::new()),
            b"clearselectors" => self.selectors.truncate(1),
            b"reset" => *self = Self::new(&self.name, self.all_channels),
            _ => self.selectors[0].apply(rule)?,
        }
        Ok(())
    }

    fn add_password(&mut self, hashed: String) {
        if !self.passwords.contains(&hashed) {
            self.passwords.push(hashed);
        }
        self.needs_no_password = false;
    }

    fn remove_password(&mut self, hashed: &str) -> Result<(), WrongRule> {
        let at = self.passwords.iter().position(|known| known == hashed).ok_or(WrongRule::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// Whether a command may run in a database.
    ///
    /// # Errors
    /// Why not: of the reasons of several selectors the one that came furthest.
    pub(crate) fn check(&self, command: &Command, args: Args<'_>, databases: Databases) -> Result<(), Denial> {
        let mut worst = Denial { reason: Reason::Command, at: 0 };
        for selector in &self.selectors {
            match selector.check(command, args, databases) {
                Ok(()) => return Ok(()),
                Err(denial) => worst = worst.max(denial),
            }
        }
        Err(worst)
    }

    /// Whether a command may run, and may read keys that it does not name.
    pub(crate) fn may_read_any_key(&self, command: &Command, args: Args<'_>, databases: Databases) -> bool {
        let fits = |selector: &&Selector| selector.check(command, args, databases).is_ok();
        self.may_do_everything() || self.selectors.iter().filter(fits).any(Selector::admits_reading_all)
    }

    /// Whether it may listen to a channel, or to a pattern of channels.
    pub(crate) fn may_use_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let admits =
            |selector: &Selector| selector.all_channels || admits_channel(&selector.channels, channel, is_pattern);
        self.selectors.iter().any(admits)
    }

    /// Whether it may listen to all that `old` might listen to.
    pub(super) fn keeps_channels_of(&self, old: &Self) -> bool {
        if self.selectors.iter().any(|selector| selector.all_channels) {
            return true;
        }
        let has = |channel: &Vec<u8>| self.selectors.iter().any(|selector| selector.channels.contains(channel));
        old.selectors.iter().all(|selector| !selector.all_channels && selector.channels.iter().all(has))
    }

    /// Words for what it is, apart from its rights.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        flags
    }

    /// All rules that make it from nothing, behind its name.
    pub(crate) fn show(&self) -> Vec<u8> {
        let mut parts = vec![b"user".to_vec(), self.name.clone()];
        parts.extend(self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()));
        parts.extend(self.passwords.iter().map(|hashed| format!("#{hashed}").into_bytes()));
        parts.push(self.root().show());
        parts.extend(self.others().iter().map(|selector| [b"(", &*selector.show(), b")"].concat()));
        parts.join(&b' ')
    }
}

fn hash(password: &[u8]) -> String {
    Sha256::digest(password).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn checked_hash(word: &[u8]) -> Result<String, WrongRule> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let text = std::str::from_utf8(word).ok().filter(|_| word.len() == HASH_LETTERS && word.iter().all(is_digit));
    text.map(str::to_owned).ok_or(WrongRule::Hash)
}

/// Rules with those in brackets joined that came as several words.
///
/// # Errors
/// The word that a bracket without an end begins with.
pub(crate) fn join_selectors<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, String> {
    let mut rules = Vec::new();
    // What was joined so far, and the word that its bracket began with.
    let mut open: Option<(Vec<u8>, &[u8])> = None;
    for word in words {
        match &mut open {
            Some((joined, _)) => {
                joined.push(b' ');
                joined.extend_from_slice(word);
                if word.ends_with(b")") {
                    rules.extend(open.take().map(|(joined, _)| joined));
                }
            }
            None if word.starts_with(b"(") && !word.ends_with(b")") => open = Some((word.to_vec(), word)),
            None => rules.push(word.to_vec()),
        }
    }
    match open {
        Some((_, begin)) => Err(String::from_utf8_lossy(begin).into_owned()),
        None => Ok(rules),
    }
}

/// The users of a file, a line each.
///
/// # Errors
/// What is wrong, line by line.
pub(super) fn parse_file(text: &[u8], file: &str, all_channels: bool) -> Result<Users, String> {
    let (mut users, mut wrong): (Users, String) = (BTreeMap::new(), String::new());
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match parse_line(line, (file, number), all_channels) {
            Ok(user) if users.contains_key(&user.name) => {
                let name = String::from_utf8_lossy(&user.name).into_owned();
                wrong += &format!("WARNING: Duplicate user '{name}' found on line {number}. ");
            }
            Ok(user) => drop(users.insert(user.name.clone(), Arc::new(user))),
            Err(what) => wrong += &what,
        }
    }
    if wrong.is_empty() {
        return Ok(users);
    }
    Err(wrong + "WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
}

/// The user that [`User::show`] has written so.
///
/// # Errors
/// What is wrong with the line.
pub(crate) fn read_user(line: &[u8], all_channels: bool) -> Result<User, String> {
    parse_line(line, ("user", 1), all_channels)
}

fn parse_line(line: &[u8], (file, number): (&str, usize), all_channels: bool) -> Result<User, String> {
    let mut words = line.split(|byte| *byte == b' ');
    let begin = words.next();
    let Some(name) = words.next().filter(|_| begin == Some(b"user")) else {
        return Err(format!("{file}:{number} should start with user keyword followed by the username. "));
    };
    if has_spaces(name) {
        let name = String::from_utf8_lossy(name);
        return Err(format!("'{file}:{number}: username '{name}' contains invalid characters. "));
    }
    let rules =
        join_selectors(words).map_err(|_| format!("{file}:{number}: Unmatched parenthesis in selector definition."))?;
    let (mut user, mut wrong, mut is_told) = (User::new(name, all_channels), String::new(), false);
    for rule in &rules {
        let rule = rule.trim_ascii();
        match user.apply(rule) {
            Ok(()) => {}
            Err(what @ WrongRule::UnknownCommand) => {
                let rule = String::from_utf8_lossy(rule);
                wrong += &format!("{file}:{number}: Error in applying operation '{rule}': {}. ", what.text());
            }
            Err(what) if !is_told => {
                is_told = true;
                wrong += &format!("{file}:{number}: {}. ", what.text());
            }
            Err(_) => {}
        }
    }
    if wrong.is_empty() { Ok(user) } else { Err(wrong) }
}

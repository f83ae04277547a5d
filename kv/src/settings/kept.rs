//! Settings and users that last: what the engines of a server keep in one file, and what servers tell each other of users.
//!
//! [`Kept`] is a value. A setting is its server's own. A user is the whole cluster's: each carries a `Version`, and of two states
//! the one of the newer version holds (last writer wins, user by user). So servers that exchange what they have come to the same
//! users, whoever was away meanwhile. A user that was deleted leaves its version behind, so that nobody brings it back.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use ashlar_wire::id::ServerId;

use super::Settings;
use super::file::quoted;
use super::parameter::{self, Parameter};
use crate::acl::{DEFAULT, Losers, User, read_user};
use crate::client::Farewell;
use crate::engine::Engine;
use crate::error::Error;
use crate::resp::parse::words_of_line;

/// What the text begins with: what it is, and the version of its form.
const HEAD: &str = "ashlar kv settings 1";
/// Bytes that the text may have.
pub const KEPT_BYTES_MAX: usize = 2 << 20;
/// No version counts further: nobody reaches it by counting.
const COUNT_MAX: u64 = 1 << 48;
/// Parameters of one engine, which its server's own configuration gives it again at each start.
const OF_ENGINE: [&str; 6] = ["bind", "dbfilename", "dir", "port", "replica-announce-port", "tls-port"];
/// The same of all whose names begin so.
const OF_ENGINE_BEGIN: &str = "cluster-announce-";

/// Which state of a user is the newer one: that of the greater count, and of two the one by the greater server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    count: u64,
    server: ServerId,
}

/// A user's state: its rules as `ACL LIST` shows them, or nothing if it was deleted.
type Rules = Option<Vec<u8>>;

/// Something that is to last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A parameter has this value.
    Setting(&'static str, Vec<u8>),
    /// A user has these rules, or is no more.
    User(Vec<u8>, Rules),
}

/// Where changes of settings and users are made durable at once: the file that the engines of a server share.
pub trait SettingsStore: Send + Sync + Debug {
    /// Keeps changes. When it returns they are durable; if it fails, nothing was kept.
    ///
    /// # Errors
    /// Why not. Retry safe.
    fn keep(&self, changes: &[Change]) -> Result<(), String>;
}

/// Everything that lasts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    settings: BTreeMap<String, Vec<u8>>,
    users: BTreeMap<Vec<u8>, (Version, Rules)>,
}

impl Kept {
    /// What a text says that [`Kept::write`] has made.
    ///
    /// # Errors
    /// The number of the first line that makes no sense, from 1.
    pub fn read(text: &str) -> Result<Self, usize> {
        let mut kept = Self::default();
        if text.len() > KEPT_BYTES_MAX || text.lines().next() != Some(HEAD) {
            return Err(1);
        }
        for (number, line) in text.lines().enumerate().skip(1) {
            kept.read_line(line).ok_or(number + 1)?;
        }
        Ok(kept)
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        let words = words_of_line(line.as_bytes())?;
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let version = |count: &[u8], server: &[u8]| {
            let count = str::from_utf8(count).ok()?.parse().ok().filter(|count| *count <= COUNT_MAX)?;
            Some(Version { count, server: str::from_utf8(server).ok()?.parse().ok()? })
        };
        match words[..] {
            [b"set", name, value] => {
                let name = String::from_utf8(name.to_vec()).ok()?;
                self.settings.insert(name, value.to_vec());
            }
            [b"user", count, server, name, rules] => {
                self.users.insert(name.to_vec(), (version(count, server)?, Some(rules.to_vec())));
            }
            [b"deleted", count, server, name] => {
                self.users.insert(name.to_vec(), (version(count, server)?, None));
            }
            _ => return None,
        }
        Some(())
    }

    /// As a text of printable ASCII letters.
    #[must_use]
    pub fn write(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for (name, value) in &self.settings {
            text += &format!("set {name} {}\n", quoted_or_empty(value));
        }
        self.write_users(&mut text);
        text
    }

    /// The same without what is this server's own.
    #[must_use]
    pub fn shared(&self) -> String {
        let mut text = format!("{HEAD}\n");
        self.write_users(&mut text);
        text
    }

    fn write_users(&self, text: &mut String) {
        for (name, (Version { count, server }, rules)) in &self.users {
            let name = quoted_or_empty(name);
            *text += &match rules {
                Some(rules) => format!("user {count} {server} {name} {}\n", quoted_or_empty(rules)),
                None => format!("deleted {count} {server} {name}\n"),
            };
        }
    }

    /// Takes changes in that were made at this server.
    pub fn change(&mut self, changes: &[Change], own: ServerId) {
        let last = self.users.values().map(|(version, _)| version.count).max().unwrap_or_default();
        let version = Version { count: (last + 1).min(COUNT_MAX), server: own };
        for change in changes {
            match change {
                Change::Setting(name, value) => drop(self.settings.insert((*name).to_owned(), value.clone())),
                Change::User(name, rules) => drop(self.users.insert(name.clone(), (version, rules.clone()))),
            }
        }
    }

    /// Takes in what another server has of users, as far as it is newer. Says whether anything was.
    pub fn merge(&mut self, other: &Self) -> bool {
        let mut is_changed = false;
        for (name, (version, rules)) in &other.users {
            let known = self.users.get(name);
            if known.is_some_and(|(known, _)| known >= version) {
                continue;
            }
            if name == DEFAULT && known.is_none_or(|(_, known)| known != rules) {
                // What was said here of its password is not true any more.
                self.settings.remove("requirepass");
            }
            self.users.insert(name.clone(), (*version, rules.clone()));
            is_changed = true;
        }
        is_changed
    }

    /// Whether anything was said of the user that connections begin as.
    #[must_use]
    pub fn has_default_user(&self) -> bool {
        self.users.contains_key(DEFAULT)
    }

    /// The users, as a file of users has them (`aclfile`).
    #[must_use]
    pub fn acl_text(&self) -> Vec<u8> {
        let rules = self.users.values().filter_map(|(_, rules)| rules.as_deref());
        rules.flat_map(|rules| rules.iter().copied().chain([b'\n'])).collect()
    }
}

fn quoted_or_empty(word: &[u8]) -> String {
    if word.is_empty() { "\"\"".to_owned() } else { quoted(word) }
}

/// Whether a parameter is one engine's own.
fn is_of_engine(parameter: &Parameter) -> bool {
    parameter.is_hidden || OF_ENGINE.contains(&parameter.name) || parameter.name.starts_with(OF_ENGINE_BEGIN)
}

/// What gives the default user this password.
#[must_use]
pub fn default_password(password: &[u8]) -> Vec<Change> {
    let mut user = User::default_user();
    user.set_password(password);
    vec![Change::Setting("requirepass", password.to_vec()), Change::User(DEFAULT.to_vec(), Some(user.show()))]
}

impl Engine {
    /// Says where changes of settings and users are made durable. To be called once, before clients come.
    pub fn set_store(&self, store: Arc<dyn SettingsStore>) {
        self.store.get_or_init(|| store);
    }

    /// Whether changes of settings and users last by themselves.
    pub(crate) fn has_store(&self) -> bool {
        self.store.get().is_some()
    }

    /// Makes changes durable where they last by themselves.
    ///
    /// # Errors
    /// They cannot be kept, and are not to be made.
    pub(crate) fn keep(&self, changes: &[Change]) -> Result<(), Error> {
        let Some(store) = self.store.get() else { return Ok(()) };
        store
            .keep(changes)
            .map_err(|why| Error::text(format!("ERR nothing was changed, as it could not be kept: {why}")))
    }

    /// What lasts of parameters that were set, if anything. A password is that of the default user as well.
    pub(crate) fn changes_of(&self, chosen: &[&Parameter], after: &Settings) -> Vec<Change> {
        if !self.has_store() {
            return Vec::new();
        }
        let mut changes = Vec::new();
        for parameter in chosen {
            if is_of_engine(parameter) {
                tracing::warn!(
                    parameter = parameter.name,
                    "set until the restart: the server's configuration says what it is then"
                );
                continue;
            }
            changes.push(Change::Setting(parameter.name, parameter.show(after)));
            if parameter.name == "requirepass" {
                let user = self.default_user_with(&after.password);
                changes.push(Change::User(DEFAULT.to_vec(), Some(user.show())));
            }
        }
        changes
    }

    /// Makes settings and users those that were kept. Users of whom nothing was kept stay.
    ///
    /// # Errors
    /// Something of it is not understood; what comes before it was done. A retry fails again.
    pub fn apply_kept(&self, kept: &Kept) -> Result<(), String> {
        for (name, value) in kept.settings.iter().filter(|(name, _)| *name != "requirepass") {
            let parameter = parameter::find(name.as_bytes()).ok_or_else(|| format!("there is no parameter {name}"))?;
            if parameter.show(&self.settings()) != *value {
                let set = self.try_change_settings(|settings| parameter.set(settings, value));
                set.map_err(|why| format!("{name}: {why}"))?;
            }
        }
        // The user says what the password is; the parameter shows it.
        let shown = kept.settings.get("requirepass").cloned().unwrap_or_default();
        if kept.has_default_user() && self.settings().password != shown {
            self.change_settings(|settings| settings.password = shown);
        }
        let mut losers = Losers::default();
        for (name, (_, rules)) in &kept.users {
            match rules {
                Some(rules) => {
                    let all_channels = self.settings().acl_all_channels;
                    if self.acl.user(name).is_some_and(|user| user.show() == *rules) {
                        continue;
                    }
                    let user: User = read_user(rules, all_channels)?;
                    losers.add(self.replace_user(user));
                }
                None if name == DEFAULT || self.acl.user(name).is_none() => {}
                None => losers.add(self.delete_users([name.as_slice()].into_iter()).1),
            }
        }
        losers.clients().for_each(|client| self.dismiss(client, Farewell::Dismissed));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: u8) -> ServerId {
        ServerId::from_bytes([number; 16])
    }

    fn user(name: &str, rules: Option<&str>) -> Change {
        Change::User(name.into(), rules.map(Into::into))
    }

    #[test]
    fn the_form_is_fixed() {
        let mut kept = Kept::default();
        kept.change(&[Change::Setting("maxmemory", b"1024".to_vec()), Change::Setting("save", Vec::new())], server(1));
        kept.change(&[user("default", Some("user default on #ab ~* &* +@all"))], server(1));
        kept.change(&[user("bob", Some("user bob off \x01")), user("eve", None)], server(2));
        let text = "ashlar kv settings 1\nset maxmemory 1024\nset save \"\"\n\
                    user 2 02020202020202020202020202020202 bob \"user bob off \\x01\"\n\
                    user 1 01010101010101010101010101010101 default \"user default on #ab ~* &* +@all\"\n\
                    deleted 2 02020202020202020202020202020202 eve\n";
        assert_eq!(kept.write(), text);
        assert_eq!(Kept::read(text), Ok(kept.clone()));
        let shared: Vec<&str> = text.lines().filter(|line| !line.starts_with("set ")).collect();
        assert_eq!(kept.shared().lines().collect::<Vec<_>>(), shared);
        let count = COUNT_MAX + 1;
        for (wrong, line) in [
            ("", 1),
            ("ashlar kv settings 2\n", 1),
            ("ashlar kv settings 1\nset x\n", 2),
            ("ashlar kv settings 1\nset x y\nuser 1 zz bob on\n", 3),
            (&format!("ashlar kv settings 1\ndeleted {count} {} bob\n", server(1)), 2),
        ] {
            assert_eq!(Kept::read(wrong), Err(line), "{wrong}");
        }
    }

    #[test]
    fn servers_come_to_the_same_users_in_any_order() {
        let (mut one, mut two) = (Kept::default(), Kept::default());
        one.change(&[user("default", Some("user default on #aa"))], server(1));
        one.change(&[Change::Setting("requirepass", b"first".to_vec())], server(1));
        two.merge(&one);
        // Both go on without each other: one deletes whom the other changes, and two users are new.
        one.change(&[user("ann", Some("user ann on"))], server(1));
        two.change(&[user("bob", Some("user bob on"))], server(2));
        two.change(&[user("default", Some("user default on #bb"))], server(2));
        let (mut left, mut right) = (one.clone(), two.clone());
        assert!(left.merge(&two) && right.merge(&one));
        assert_eq!(left.shared(), right.shared());
        assert!(!left.merge(&two) && !right.merge(&left), "nothing is newer");
        let text = String::from_utf8(left.acl_text()).unwrap();
        assert_eq!(text, "user ann on\nuser bob on\nuser default on #bb\n");
        assert!(!left.write().contains("first"), "what was shown of the password is not true any more");
        // The same said at two servers takes nothing away.
        let (mut one, mut two) = (Kept::default(), Kept::default());
        one.change(&default_password(b"same"), server(1));
        two.change(&default_password(b"same"), server(2));
        assert!(one.merge(&two) && one.write().contains("set requirepass same\n"));
        // Whoever was away brings nobody back.
        left.change(&[user("bob", None)], server(1));
        assert!(!left.merge(&right) && right.merge(&left));
        assert!(!String::from_utf8(right.acl_text()).unwrap().contains("bob"));
    }
}

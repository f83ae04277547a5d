//! Users, and what each may do.
//!
//! A [`User`] is a value that never changes: whoever changes a user puts another in its place, and every session looks for its
//! own again before its next request, because the settings' version has grown. A user who may do everything costs a command
//! one branch.
//!
//! Not here: where users are kept when the server is not running. The program lends an [`AclFile`].

mod log;
mod selector;
#[cfg(test)]
mod tests;
mod user;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sha2::{Digest, Sha256};

use crate::client::{Client, ClientId, Farewell};
use crate::command::spec::table::Command;
use crate::engine::Engine;
use crate::error::Error;
use crate::pubsub::Topic;
use crate::resp::Args;

pub(crate) use log::{Context, Entry, Log, Reason};
pub(crate) use selector::{Databases, Denial, Selector};
pub(crate) use user::{User, join_selectors, read_user};

/// The user that connections begin as.
pub(crate) const DEFAULT: &[u8] = b"default";

/// Where users are kept when the server is not running (`aclfile`).
pub trait AclFile: Send + Sync + std::fmt::Debug {
    /// What people call it.
    fn name(&self) -> &str;

    /// All of it.
    ///
    /// # Errors
    /// Why it cannot be read. Retry safe.
    fn read(&self) -> Result<Vec<u8>, String>;

    /// Replaces all of it. When it returns, the new text is durable; if it fails, the old text is still there.
    ///
    /// # Errors
    /// Why it cannot be written. Retry safe.
    fn write(&self, text: &[u8]) -> Result<(), String>;
}

type Users = BTreeMap<Vec<u8>, Arc<User>>;

/// All users, and what they were refused.
#[derive(Debug)]
pub(crate) struct Acl {
    users: Mutex<Users>,
    log: Mutex<Log>,
    /// What invented passwords are made from: nobody else knows it, and no password tells another.
    secret: [u8; 32],
    invented: AtomicU64,
    file: OnceLock<Box<dyn AclFile>>,
}

impl Acl {
    /// One user, who may do everything. `secret` are bytes that nobody else knows.
    pub(crate) fn new(secret: &[u8]) -> Self {
        let users = BTreeMap::from([(DEFAULT.to_vec(), Arc::new(User::default_user()))]);
        let secret = Sha256::new().chain_update(b"passwords").chain_update(secret).finalize().into();
        let invented = AtomicU64::new(0);
        Self { users: Mutex::new(users), log: Mutex::default(), secret, invented, file: OnceLock::new() }
    }

    /// So many hexadecimal letters that nobody can foresee.
    pub(crate) fn invent_password(&self, letters: usize) -> String {
        let mut password = String::with_capacity(letters + 64);
        while password.len() < letters {
            let number = self.invented.fetch_add(1, Ordering::Relaxed).to_le_bytes();
            let bytes = Sha256::new().chain_update(self.secret).chain_update(number).finalize();
            password.extend(bytes.iter().map(|byte| format!("{byte:02x}")));
        }
        password.truncate(letters);
        password
    }

    /// The user of that name.
    pub(crate) fn user(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users().get(name).cloned()
    }

    /// The user that connections begin as.
    pub(crate) fn default_user(&self) -> Arc<User> {
        self.user(DEFAULT).expect("the default user is always there")
    }

    /// All users, by name.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.users().values().cloned().collect()
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&dyn AclFile> {
        self.file.get().map(Box::as_ref)
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What users were refused.
    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has lost a connection by a change of users.
#[derive(Debug, Default)]
pub(crate) struct Losers(BTreeSet<ClientId>);

impl Losers {
    /// And those as well.
    pub(crate) fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// All of them.
    pub(crate) fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.0.iter().copied()
    }
}

impl Engine {
    /// Says where users are kept, and reads them. To be called once, before clients come.
    ///
    /// # Errors
    /// What is wrong with the file; no user has changed then.
    pub fn use_acl_file(&self, file: Box<dyn AclFile>) -> Result<(), String> {
        let file = self.acl.file.get_or_init(|| file);
        self.load_users(&file.read()?, file.name()).map(|_| ())
    }

    /// Adds a user as a line of a configuration describes it, without its first word: a name, then rules.
    ///
    /// # Errors
    /// What is wrong with the line; no user has changed then.
    pub fn add_user(&self, line: &[u8]) -> Result<(), String> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let name = words.next().ok_or("a user has a name")?;
        let rules =
            join_selectors(words).map_err(|at| format!("Unmatched parenthesis in acl selector starting at '{at}'."))?;
        let mut user = User::new(name, self.settings().acl_all_channels);
        for rule in &rules {
            user.apply(rule).map_err(|wrong| format!("{}: {}", String::from_utf8_lossy(rule), wrong.text()))?;
        }
        self.replace_user(user);
        Ok(())
    }

    /// Puts a user in the place of the one that has its name. Returns clients that listen to what it may not any more.
    pub(crate) fn replace_user(&self, user: User) -> Losers {
        let user = Arc::new(user);
        let old = self.acl.users().insert(user.name.clone(), Arc::clone(&user));
        self.settings_changed();
        old.map_or_else(Losers::default, |old| self.listeners_to_lose(&old, &user))
    }

    /// Takes users out. Returns how many there were, and their clients.
    pub(crate) fn delete_users<'n>(&self, names: impl Iterator<Item = &'n [u8]>) -> (usize, Losers) {
        let (mut count, mut losers) = (0, Losers::default());
        for name in names {
            if self.acl.users().remove(name).is_some() {
                count += 1;
                let cards = self.clients.all();
                losers.0.extend(cards.iter().filter(|card| card.texts().user == name).map(|card| card.id));
            }
        }
        self.settings_changed();
        (count, losers)
    }

    /// Replaces all users by those that a file describes, a line each. Returns the clients that lose their user, or listen to
    /// what it may not any more.
    ///
    /// # Errors
    /// What is wrong, line by line; no user has changed then.
    pub(crate) fn load_users(&self, text: &[u8], file: &str) -> Result<Losers, String> {
        let mut users = user::parse_file(text, file, self.settings().acl_all_channels)?;
        users.entry(DEFAULT.to_vec()).or_insert_with(|| Arc::new(User::default_user()));
        let old = std::mem::replace(&mut *self.acl.users(), users.clone());
        self.settings_changed();
        let mut losers = Losers::default();
        for (name, old) in old {
            match users.get(&name) {
                Some(user) => losers.0.extend(self.listeners_to_lose(&old, user).0),
                None => {
                    let cards = self.clients.all();
                    losers.0.extend(cards.iter().filter(|card| card.texts().user == name).map(|card| card.id));
                }
            }
        }
        Ok(losers)
    }

    /// Changes the password of the default user as `requirepass` does: an empty one is none.
    pub(crate) fn set_default_password(&self, password: &[u8]) {
        let user = self.default_user_with(password);
        self.acl.users().insert(DEFAULT.to_vec(), Arc::new(user));
    }

    /// The default user with this password alone; an empty one is none.
    pub(crate) fn default_user_with(&self, password: &[u8]) -> User {
        let mut user = User::clone(&self.acl.default_user());
        user.set_password(password);
        user
    }

    /// Ends clients that a change of users concerns; the one that made it after its reply.
    pub(crate) fn dismiss_losers(&self, losers: &Losers, own: &mut Client) {
        for id in &losers.0 {
            if *id == own.id {
                own.is_leaving = true;
            } else {
                self.dismiss(*id, Farewell::Dismissed);
            }
        }
    }

    /// Clients of a user that listen to something which it may not listen to any more.
    fn listeners_to_lose(&self, old: &User, new: &User) -> Losers {
        if new.keeps_channels_of(old) {
            return Losers::default();
        }
        let is_meant = |client: ClientId| self.clients.get(client).is_some_and(|card| card.texts().user == new.name);
        let is_allowed = |topic: Topic, name: &[u8]| new.may_use_channel(name, topic == Topic::Pattern);
        Losers(self.pubsub.listeners(is_meant, is_allowed))
    }

    /// Refuses what the client's user may not do, and notes that it was refused.
    ///
    /// # Errors
    /// `NOPERM`, with the reason.
    #[inline]
    pub(crate) fn permit(
        &self,
        client: &Client,
        command: &'static Command,
        args: Args<'_>,
        context: Context,
        now_ms: i64,
    ) -> Result<(), Denial> {
        if client.user.may_do_everything() {
            return Ok(());
        }
        let checked = client.user.check(command, args, self.databases_of(client));
        if let Err(denial) = checked {
            client.publish();
            let object = denial.object(command, args);
            self.acl
                .log()
                .add(&self.settings(), Entry::new(denial.reason, context, object, &client.user.name, client, now_ms));
        }
        checked
    }

    /// Where a client's next command runs: a transaction that is open may have chosen another database already.
    pub(crate) fn databases_of(&self, client: &Client) -> Databases {
        let chosen = client.transaction.as_ref().and_then(|open| open.database).unwrap_or(client.database);
        Databases { chosen, count: self.keyspace.databases() }
    }

    /// Lets a client in as a user whose password it knows, and notes if it does not.
    ///
    /// # Errors
    /// `WRONGPASS`.
    pub(crate) fn enter(
        &self,
        client: &mut Client,
        (name, password): (&[u8], &[u8]),
        (command, context, now_ms): (&[u8], Context, i64),
    ) -> Result<(), Error> {
        if let Some(user) = self.acl.user(name).filter(|user| user.lets_in(password)) {
            client.set_user(user, true);
            return Ok(());
        }
        client.publish();
        let entry = Entry::new(Reason::Auth, context, command.to_vec(), name, client, now_ms);
        self.acl.log().add(&self.settings(), entry);
        Err(Error::new("WRONGPASS invalid username-password pair or user is disabled."))
    }
}

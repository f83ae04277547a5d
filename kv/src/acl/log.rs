//! What users were refused (`ACL LOG`): the latest first, and the same within a minute once.

use std::collections::VecDeque;

use crate::client::Client;
use crate::client::describe::describe;
use crate::settings::Settings;

/// Milliseconds within which the same refusal is counted, not listed again.
const SAME_WITHIN_MS: i64 = 60_000;
/// Entries that are looked at for the same.
const SAME_AMONG: usize = 10;

/// Why something was refused. Later ones say more than earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    Command,
    Key,
    Auth,
    Channel,
    Database,
}

impl Reason {
    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Auth => "auth",
            Self::Channel => "channel",
            Self::Database => "database",
        }
    }
}

/// Where the command stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    TopLevel,
    Multi,
    #[cfg_attr(not(test), expect(dead_code, reason = "for scripts"))]
    Script,
}

impl Context {
    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::TopLevel => "toplevel",
            Self::Multi => "multi",
            Self::Script => "lua",
        }
    }
}

/// One refusal, or several of the same.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) count: i64,
    pub(crate) reason: Reason,
    pub(crate) context: Context,
    /// The command, key, channel or database.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    /// The client as `CLIENT LIST` shows it, when it was refused last.
    pub(crate) client: Vec<u8>,
    pub(crate) number: i64,
    pub(crate) created_ms: i64,
    pub(crate) updated_ms: i64,
}

impl Entry {
    /// One refusal now.
    pub(crate) fn new(
        reason: Reason,
        context: Context,
        object: Vec<u8>,
        user: &[u8],
        client: &Client,
        now_ms: i64,
    ) -> Self {
        let mut line = Vec::new();
        describe(&client.card, now_ms, &mut line);
        line.pop();
        let (user, client) = (user.to_vec(), line);
        Self { count: 1, reason, context, object, user, client, number: 0, created_ms: now_ms, updated_ms: now_ms }
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.reason, self.context) == (other.reason, other.context)
            && (&self.object, &self.user) == (&other.object, &other.user)
            && other.updated_ms.abs_diff(self.updated_ms) <= SAME_WITHIN_MS.unsigned_abs()
    }
}

/// What users were refused.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
    /// The number of the next entry.
    next: i64,
    /// Refusals so far, by [`Reason`].
    pub(crate) counts: [u64; 5],
}

impl Log {
    /// One more.
    pub(crate) fn add(&mut self, settings: &Settings, mut entry: Entry) {
        self.counts[entry.reason as usize] += 1;
        let same = self.entries.iter().take(SAME_AMONG).position(|known| known.is_same(&entry));
        if let Some(mut known) = same.and_then(|at| self.entries.remove(at)) {
            known.count += 1;
            (known.client, known.updated_ms) = (entry.client, entry.updated_ms);
            self.entries.push_front(known);
        } else {
            entry.number = self.next;
            self.next += 1;
            self.entries.push_front(entry);
        }
        self.entries.truncate(settings.acl_log_max);
    }

    /// The latest entries first.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Forgets all entries.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

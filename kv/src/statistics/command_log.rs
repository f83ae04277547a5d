//! Commands that were slow, or large, or had large replies: the latest of each.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::client::Client;
use crate::command::redact;
use crate::command::spec::table::Command;
use crate::resp::Args;
use crate::settings::LogSettings;
use crate::time::Now;

/// Words of a command that are kept.
const WORDS_MAX: usize = 32;
/// Bytes of a word that are kept.
const WORD_BYTES_MAX: usize = 128;

/// Which log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Slow,
    LargeRequest,
    LargeReply,
}

impl Kind {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Slow, "slow"), (Self::LargeRequest, "large-request"), (Self::LargeReply, "large-reply")];

    /// The one of this name, in any case.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(kind, _)| *kind)
    }

    /// From which figure on a command is kept, if it is at all, and how many are.
    fn limits(self, logs: &LogSettings) -> (Option<u64>, usize) {
        let (from, max) = match self {
            Self::Slow => (logs.slower_than_us, logs.slow_max),
            Self::LargeRequest => (logs.request_bytes, logs.requests_max),
            Self::LargeReply => (logs.reply_bytes, logs.replies_max),
        };
        (u64::try_from(from).ok(), max)
    }
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    /// When it ran, Unix seconds.
    pub(crate) at_s: i64,
    /// Microseconds, or bytes.
    pub(crate) figure: u64,
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) peer: String,
    pub(crate) name: Vec<u8>,
}

/// The latest commands of one kind, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) entries: VecDeque<Entry>,
    next: u64,
}

/// All logs.
#[derive(Debug, Default)]
pub(crate) struct CommandLogs([Mutex<Log>; 3]);

/// A command that ran, with what was measured of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) command: &'static Command,
    pub(crate) args: Args<'a>,
    pub(crate) micros: Option<u64>,
    pub(crate) request_bytes: usize,
    pub(crate) reply_bytes: usize,
}

impl CommandLogs {
    /// One of them.
    pub(crate) fn get(&self, kind: Kind) -> MutexGuard<'_, Log> {
        self.0[kind as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a command where it is remarkable.
    #[inline]
    pub(crate) fn note(&self, settings: &LogSettings, client: &Client, seen: Seen<'_>, now: Now) {
        let figures = [
            (Kind::Slow, seen.micros),
            (Kind::LargeRequest, Some(seen.request_bytes as u64)),
            (Kind::LargeReply, Some(seen.reply_bytes as u64)),
        ];
        for (kind, figure) in figures {
            let (from, max) = kind.limits(settings);
            if let (Some(figure), Some(from)) = (figure, from)
                && figure >= from
            {
                self.keep(kind, max, figure, client, seen, now);
            }
        }
    }

    #[cold]
    fn keep(&self, kind: Kind, max: usize, figure: u64, client: &Client, seen: Seen<'_>, now: Now) {
        let mut log = self.get(kind);
        let entry = Entry {
            number: log.next,
            at_s: now.unix_us.div_euclid(1_000_000),
            figure,
            words: words(seen.command, seen.args),
            peer: client.card.link.peer.clone(),
            name: client.card.texts().name.clone(),
        };
        log.next += 1;
        log.entries.push_front(entry);
        log.entries.truncate(max);
    }
}

/// The words of a command as far as they are kept: not too many, not too long, no secrets.
fn words(command: &'static Command, args: Args<'_>) -> Vec<Vec<u8>> {
    let len = args.len();
    let shown = if len > WORDS_MAX { WORDS_MAX - 1 } else { len };
    let word = |at: usize| {
        let word = &args[at];
        if redact::is_secret(command, args, at) {
            return b"(redacted)".to_vec();
        }
        match word.len().checked_sub(WORD_BYTES_MAX) {
            None | Some(0) => word.to_vec(),
            Some(more) => [&word[..WORD_BYTES_MAX], format!("... ({more} more bytes)").as_bytes()].concat(),
        }
    };
    let mut words: Vec<Vec<u8>> = (0..shown).map(word).collect();
    if len > WORDS_MAX {
        words.push(format!("... ({} more arguments)", len - shown).into_bytes());
    }
    words
}

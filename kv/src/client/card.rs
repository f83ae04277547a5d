//! What others see of a client: its card.
//!
//! Numbers are written by the session that owns the card, without a lock, once for each batch of requests; who reads them may
//! see some of one batch and some of the next. Texts change seldom and lie behind a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ClientId, Mailbox};

/// Where a connection comes from and goes to, as people write it: `127.0.0.1:6379`, `[::1]:6379`, `/path/of/socket:0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The client's end.
    pub peer: String,
    /// The server's end.
    pub local: String,
    /// What the operating system calls the connection.
    pub descriptor: i32,
    /// Whether it is a socket in the file system.
    pub is_unix: bool,
    /// Whether it is encrypted.
    pub is_tls: bool,
    /// Whether the other end is a server of the same cluster, which has proved that it holds the cluster's secret.
    pub is_server: bool,
}

impl Link {
    /// Whether it comes from this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.is_unix || ["127.", "[::1]", "[::ffff:127."].iter().any(|begin| self.peer.starts_with(begin))
    }

    /// Whether protected mode lets it in: it comes from this machine, or from a server of the cluster.
    pub(crate) fn is_near(&self) -> bool {
        self.is_server || self.is_local()
    }

    /// That of a client which no connection brought.
    pub(crate) fn nowhere() -> Self {
        Self {
            peer: String::new(),
            local: String::new(),
            descriptor: -1,
            is_unix: false,
            is_tls: false,
            is_server: false,
        }
    }
}

/// What one client is like, for others.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) id: ClientId,
    pub(crate) link: Link,
    /// When it came, Unix milliseconds.
    pub(crate) born_ms: i64,
    pub(crate) mailbox: Arc<Mailbox>,
    figures: [AtomicU64; Figure::COUNT],
    texts: Mutex<Texts>,
}

/// What people call a client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Texts {
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    pub(crate) user: Vec<u8>,
}

/// The numbers on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// When it last sent something, Unix milliseconds.
    SeenMs,
    /// [`Marks`].
    Marks,
    Database,
    Channels,
    Patterns,
    ShardChannels,
    /// Prefixes of keys that it listens to.
    Prefixes,
    /// Commands that wait for EXEC, and one; 0 without MULTI.
    Queued,
    QueuedBytes,
    Watched,
    /// Bytes of a request that has not come whole.
    Input,
    /// Room for more of it.
    InputFree,
    ArgumentBytes,
    /// Room for replies.
    OutputRoom,
    /// The most that lay there.
    OutputPeak,
    /// The number of its last command, and one; 0 for none.
    Command,
    IsResp3,
    /// Who gets its invalidations; 0 for itself.
    Redirect,
    /// Whether that one is gone. Others write it.
    IsRedirectBroken,
    BytesIn,
    BytesOut,
    Commands,
    /// Since when its replies have been above the soft limit, Unix milliseconds; 0 for not.
    SoftSinceMs,
    /// Bytes of the stream of commands that it has not taken, if it is a replica.
    Behind,
}

impl Figure {
    const COUNT: usize = Self::Behind as usize + 1;
}

/// What holds for a client: the letters after `flags=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Marks(u64);

impl Marks {
    pub(crate) const MONITOR: Self = Self(1);
    pub(crate) const REPLICA: Self = Self(1 << 1);
    pub(crate) const PRIMARY: Self = Self(1 << 2);
    pub(crate) const PUBSUB: Self = Self(1 << 3);
    pub(crate) const MULTI: Self = Self(1 << 4);
    pub(crate) const BLOCKED: Self = Self(1 << 5);
    pub(crate) const TRACKING: Self = Self(1 << 6);
    pub(crate) const BROKEN_REDIRECT: Self = Self(1 << 7);
    pub(crate) const BROADCAST: Self = Self(1 << 8);
    pub(crate) const DIRTY: Self = Self(1 << 9);
    pub(crate) const LEAVING: Self = Self(1 << 10);
    pub(crate) const UNIX: Self = Self(1 << 11);
    pub(crate) const READONLY: Self = Self(1 << 12);
    pub(crate) const NO_EVICT: Self = Self(1 << 13);
    pub(crate) const NO_TOUCH: Self = Self(1 << 14);
    pub(crate) const IMPORT_SOURCE: Self = Self(1 << 15);
    /// No letter of the flags, but of the capabilities.
    pub(crate) const CAN_REDIRECT: Self = Self(1 << 16);

    /// In the order in which they are shown. Two that Valkey knows never hold here.
    const LETTERS: [(char, Self); 18] = [
        ('O', Self::MONITOR),
        ('S', Self::REPLICA),
        ('M', Self::PRIMARY),
        ('P', Self::PUBSUB),
        ('x', Self::MULTI),
        ('b', Self::BLOCKED),
        ('t', Self::TRACKING),
        ('R', Self::BROKEN_REDIRECT),
        ('B', Self::BROADCAST),
        ('d', Self::DIRTY),
        ('c', Self::LEAVING),
        ('u', Self(1 << 62)),
        ('A', Self(1 << 63)),
        ('U', Self::UNIX),
        ('r', Self::READONLY),
        ('e', Self::NO_EVICT),
        ('T', Self::NO_TOUCH),
        ('I', Self::IMPORT_SOURCE),
    ];

    /// Whether all of `other` holds.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// `other` as well, if `is_so`.
    #[must_use]
    pub(crate) const fn with_if(self, is_so: bool, other: Self) -> Self {
        if is_so { Self(self.0 | other.0) } else { self }
    }

    /// The letters; `N` for none.
    pub(crate) fn letters(self) -> String {
        let letters: String =
            Self::LETTERS.iter().filter(|(_, mark)| self.has(*mark)).map(|(letter, _)| letter).collect();
        if letters.is_empty() { "N".into() } else { letters }
    }

    /// The letters of what the client says that it can do.
    pub(crate) fn capabilities(self) -> &'static str {
        if self.has(Self::CAN_REDIRECT) { "r" } else { "" }
    }

    /// Whether `letter` may be asked for.
    pub(crate) fn is_letter(letter: char) -> bool {
        letter == 'N' || Self::LETTERS.iter().any(|(known, _)| *known == letter)
    }
}

/// Classes of clients with limits of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientClass {
    Normal,
    Replica,
    PubSub,
    Primary,
}

impl ClientClass {
    /// The class of that name, in any case.
    pub(crate) fn named(word: &[u8]) -> Option<Self> {
        const NAMES: [(&str, ClientClass); 6] = [
            ("normal", ClientClass::Normal),
            ("slave", ClientClass::Replica),
            ("replica", ClientClass::Replica),
            ("pubsub", ClientClass::PubSub),
            ("master", ClientClass::Primary),
            ("primary", ClientClass::Primary),
        ];
        NAMES.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes())).map(|(_, class)| *class)
    }

    /// The class of a client.
    pub(crate) fn of(marks: Marks) -> Self {
        if marks.has(Marks::PRIMARY) {
            Self::Primary
        } else if marks.has(Marks::REPLICA) {
            Self::Replica
        } else if marks.has(Marks::PUBSUB) {
            Self::PubSub
        } else {
            Self::Normal
        }
    }
}

impl Card {
    /// A client that has just come.
    pub(crate) fn new(id: ClientId, link: Link, born_ms: i64, mailbox: Arc<Mailbox>) -> Self {
        let card = Self { id, link, born_ms, mailbox, figures: Default::default(), texts: Mutex::default() };
        card.set(Figure::SeenMs, born_ms.unsigned_abs());
        card
    }

    /// A number.
    pub(crate) fn get(&self, figure: Figure) -> u64 {
        self.figures[figure as usize].load(Ordering::Relaxed)
    }

    /// Writes a number.
    #[inline]
    pub(crate) fn set(&self, figure: Figure, value: u64) {
        self.figures[figure as usize].store(value, Ordering::Relaxed);
    }

    /// Writes a count.
    #[inline]
    pub(crate) fn set_count(&self, figure: Figure, value: usize) {
        self.set(figure, value as u64);
    }

    /// What holds for it.
    pub(crate) fn marks(&self) -> Marks {
        Marks(self.get(Figure::Marks))
    }

    /// Writes what holds for it.
    #[inline]
    pub(crate) fn set_marks(&self, marks: Marks) {
        self.set(Figure::Marks, marks.0);
    }

    /// What people call it.
    pub(crate) fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since it last sent something.
    pub(crate) fn idle_s(&self, now_ms: i64) -> i64 {
        let seen_ms = i64::try_from(self.get(Figure::SeenMs)).unwrap_or(now_ms);
        (now_ms.div_euclid(1_000) - seen_ms.div_euclid(1_000)).max(0)
    }

    /// Seconds since it came.
    pub(crate) fn age_s(&self, now_ms: i64) -> i64 {
        (now_ms.div_euclid(1_000) - self.born_ms.div_euclid(1_000)).max(0)
    }
}

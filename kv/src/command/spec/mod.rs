//! What is known of each command without running it: one table that feeds the dispatcher, `COMMAND`, ACL categories and the
//! reference page.
//!
//! Facts (names, arities, flags, keys, arguments) are those of Valkey 9.1, because clients read them. The sentences are our own.
//! Each group of commands has a file; [`table`] gathers them, [`keys`] finds the keys of a call.
//!
//! Left out on purpose: the commands of Sentinel and those that load modules.

mod argument;
mod bitmap;
mod cluster;
mod connection;
mod flags;
mod generic;
mod geo;
#[cfg(test)]
mod golden;
mod hash;
mod hyperloglog;
mod key;
pub(crate) mod keys;
mod list;
mod pubsub;
mod scripting;
mod server;
mod set;
mod sorted_set;
mod stream;
mod string;
pub(crate) mod table;
mod transactions;

pub(crate) use argument::{Argument, ArgumentKind};
pub(crate) use flags::{Categories, Flags, KeyFlags};
pub(crate) use key::{Begin, Find, KeySpec, LegacyRange, Search};

/// One command, or one subcommand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    /// Lower case; of a subcommand only its own word.
    pub(crate) name: &'static str,
    /// Words of a call, its name and its container's included; negative: at least so many.
    pub(crate) arity: i8,
    pub(crate) flags: Flags,
    /// Those that follow from the flags (`@read`, `@write`, `@fast`, `@slow`, `@admin`, ...) are not listed: see
    /// [`Spec::categories`].
    pub(crate) listed: Categories,
    pub(crate) keys: &'static [KeySpec],
    /// What finds the keys where `keys` do not.
    pub(crate) search: Search,
    pub(crate) docs: Docs,
    /// Sorted by name; empty for a plain command.
    pub(crate) subcommands: &'static [Spec],
}

/// What people read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Docs {
    pub(crate) summary: &'static str,
    pub(crate) since: &'static str,
    pub(crate) group: Group,
    /// Empty where nothing can be said.
    pub(crate) complexity: &'static str,
    /// Servers send it to servers, or tests to servers.
    pub(crate) internal: bool,
    pub(crate) deprecated: Option<Deprecated>,
    /// Pairs of a version and what it brought.
    pub(crate) history: &'static [(&'static str, &'static str)],
    /// Hints for proxies and clusters, such as `request_policy:all_shards`.
    pub(crate) tips: &'static [&'static str],
    pub(crate) arguments: &'static [Argument],
}

/// Since when a command should not be used, and what should be used instead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deprecated {
    pub(crate) since: &'static str,
    pub(crate) replaced_by: &'static str,
}

/// The chapter of the manual that a command belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Bitmap,
    Cluster,
    Connection,
    Generic,
    Geo,
    Hash,
    HyperLogLog,
    List,
    PubSub,
    Scripting,
    Server,
    Set,
    SortedSet,
    Stream,
    String,
    Transactions,
}

impl Group {
    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Bitmap => "bitmap",
            Self::Cluster => "cluster",
            Self::Connection => "connection",
            Self::Generic => "generic",
            Self::Geo => "geo",
            Self::Hash => "hash",
            Self::HyperLogLog => "hyperloglog",
            Self::List => "list",
            Self::PubSub => "pubsub",
            Self::Scripting => "scripting",
            Self::Server => "server",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Stream => "stream",
            Self::String => "string",
            Self::Transactions => "transactions",
        }
    }
}

impl Spec {
    /// The listed categories and those that follow from the flags.
    pub(crate) const fn categories(&self) -> Categories {
        let follows = [
            (Flags::WRITE, Categories::WRITE),
            (Flags::ADMIN, Categories::ADMIN),
            (Flags::ADMIN, Categories::DANGEROUS),
            (Flags::PUBSUB, Categories::PUBSUB),
            (Flags::BLOCKING, Categories::BLOCKING),
        ];
        let mut all = self.listed;
        let mut at = 0;
        while at < follows.len() {
            if self.flags.has(follows[at].0) {
                all = all.with(follows[at].1);
            }
            at += 1;
        }
        if self.flags.has(Flags::READONLY) && !all.has(Categories::SCRIPTING) {
            all = all.with(Categories::READ);
        }
        all.with(if self.flags.has(Flags::FAST) { Categories::FAST } else { Categories::SLOW })
    }

    /// The flags, and what follows from the keys: whether they are where [`LegacyRange`] does not show them.
    pub(crate) fn shown_flags(&self) -> Flags {
        if LegacyRange::of(self.keys).movable { self.flags.with(Flags::MOVABLE_KEYS) } else { self.flags }
    }

    /// Whether a call of so many words, the name included, has the right number.
    pub(crate) fn takes(&self, words: usize) -> bool {
        let stated = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= stated } else { words == stated }
    }

    /// Whether a call may name keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.search != Search::Specs || self.keys.iter().any(|keys| !keys.flags.has(KeyFlags::NOT_KEY))
    }
}

/// How the table is written.
impl Spec {
    const fn new(group: Group, name: &'static str, arity: i8, flags: Flags) -> Self {
        let docs = Docs {
            summary: "",
            since: "",
            group,
            complexity: "",
            internal: false,
            deprecated: None,
            history: &[],
            tips: &[],
            arguments: &[],
        };
        let (listed, keys, search, subcommands) = (Categories::NONE, &[], Search::Specs, &[]);
        Self { name, arity, flags, listed, keys, search, docs, subcommands }
    }

    const fn listed(self, listed: Categories) -> Self {
        Self { listed, ..self }
    }

    const fn keys(self, keys: &'static [KeySpec]) -> Self {
        Self { keys, ..self }
    }

    const fn search(self, search: Search) -> Self {
        Self { search, ..self }
    }

    const fn docs(self, since: &'static str, summary: &'static str, complexity: &'static str) -> Self {
        Self { docs: Docs { since, summary, complexity, ..self.docs }, ..self }
    }

    const fn internal(self) -> Self {
        Self { docs: Docs { internal: true, ..self.docs }, ..self }
    }

    const fn deprecated(self, since: &'static str, replaced_by: &'static str) -> Self {
        Self { docs: Docs { deprecated: Some(Deprecated { since, replaced_by }), ..self.docs }, ..self }
    }

    const fn history(self, history: &'static [(&'static str, &'static str)]) -> Self {
        Self { docs: Docs { history, ..self.docs }, ..self }
    }

    const fn tips(self, tips: &'static [&'static str]) -> Self {
        Self { docs: Docs { tips, ..self.docs }, ..self }
    }

    const fn arguments(self, arguments: &'static [Argument]) -> Self {
        Self { docs: Docs { arguments, ..self.docs }, ..self }
    }

    const fn subcommands(self, subcommands: &'static [Self]) -> Self {
        Self { subcommands, ..self }
    }
}

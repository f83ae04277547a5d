//! What is known of each command without running it: one table that feeds the dispatcher, `COMMAND`, ACL categories and the
//! reference page.
//!
//! Facts (names, arities, flags, keys, arguments) are those of Valkey, because clients read them. The sentences are our own.

mod flags;

pub(crate) use flags::{Categories, Flags, KeyFlags};

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
    pub(crate) docs: Docs,
    /// Empty for a plain command.
    pub(crate) subcommands: &'static [Spec],
}

/// Where keys are in a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeySpec {
    pub(crate) flags: KeyFlags,
    pub(crate) begin: Begin,
    pub(crate) find: Find,
    /// Shown by `COMMAND INFO`; empty for none.
    pub(crate) notes: &'static str,
}

/// Where the search for keys begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// At this word; the command is word 0.
    Index(i8),
    /// After this word, looked for from word `from` on, or backwards from the end if that is negative.
    Keyword { word: &'static str, from: i8 },
    /// Only the command itself can tell.
    Unknown,
}

/// Which words from there on are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Find {
    /// Every `step`-th word up to `last`, counted from the beginning of the search; negative: from the end of the call. With a
    /// `limit` above 1 and `last` -1 only the first 1/limit of the words that are left.
    Range { last: i8, step: i8, limit: i8 },
    /// The word at `count_at` tells how many there are; they begin at `first`; both counted from the beginning of the search.
    Count { count_at: i8, first: i8, step: i8 },
    /// Only the command itself can tell.
    Unknown,
}

/// What people read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Docs {
    pub(crate) summary: &'static str,
    pub(crate) since: &'static str,
    pub(crate) group: Group,
    pub(crate) complexity: &'static str,
    pub(crate) deprecated: Option<Deprecated>,
    /// Pairs of a version and what changed in it.
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

/// One argument of a command, as `COMMAND DOCS` shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    pub(crate) kind: ArgumentKind,
    /// The word that stands before it; empty for none.
    pub(crate) token: &'static str,
    pub(crate) optional: bool,
    pub(crate) multiple: bool,
    /// The token is repeated with each value.
    pub(crate) multiple_token: bool,
    /// The key specification that it belongs to.
    pub(crate) key: Option<u8>,
    pub(crate) since: &'static str,
    /// Of `OneOf` and `Block`.
    pub(crate) inner: &'static [Argument],
}

/// The type of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentKind {
    Block,
    Double,
    Integer,
    Key,
    OneOf,
    Pattern,
    PureToken,
    String,
    UnixTime,
}

impl Spec {
    /// The listed categories and those that follow from the flags.
    pub(crate) fn categories(&self) -> Categories {
        let follows = [
            (Flags::WRITE, Categories::WRITE),
            (Flags::ADMIN, Categories::ADMIN),
            (Flags::ADMIN, Categories::DANGEROUS),
            (Flags::PUBSUB, Categories::PUBSUB),
            (Flags::BLOCKING, Categories::BLOCKING),
        ];
        let mut all = self.listed;
        for (flag, category) in follows {
            if self.flags.has(flag) {
                all = all.with(category);
            }
        }
        if self.flags.has(Flags::READONLY) && !all.has(Categories::SCRIPTING) {
            all = all.with(Categories::READ);
        }
        all.with(if self.flags.has(Flags::FAST) { Categories::FAST } else { Categories::SLOW })
    }

    /// Whether a call of so many words, the name included, has the right number.
    pub(crate) fn takes(&self, words: usize) -> bool {
        let stated = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= stated } else { words == stated }
    }
}

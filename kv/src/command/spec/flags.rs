//! Sets of bits with Valkey's names.

/// A set of bits as a type, with the words that `COMMAND INFO` prints.
macro_rules! bits {
    ($(#[$about:meta])* $name:ident: $($(#[$each:meta])* $constant:ident = $word:literal),+ $(,)?) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub(crate) struct $name(u32);

        impl $name {
            /// Nothing.
            pub(crate) const NONE: Self = Self(0);
            /// Every bit and its word, in Valkey's order.
            pub(crate) const ALL: &'static [(Self, &'static str)] = &bits!(@pairs $name, 0; [] $($constant = $word,)+);
            bits!(@constants 0; $($(#[$each])* $constant = $word,)+);

            /// Both together.
            pub(crate) const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether all of `other` is in it.
            pub(crate) const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// The words of what is in it.
            pub(crate) fn words(self) -> impl Iterator<Item = &'static str> {
                Self::ALL.iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, word)| *word)
            }
        }
    };
    (@constants $at:expr; $(#[$each:meta])* $constant:ident = $word:literal, $($rest:tt)*) => {
        $(#[$each])*
        #[doc = concat!("`", $word, "`.")]
        pub(crate) const $constant: Self = Self(1 << ($at));
        bits!(@constants $at + 1; $($rest)*);
    };
    (@constants $at:expr;) => {};
    (@pairs $name:ident, $at:expr; [$($done:tt)*] $(#[$each:meta])* $constant:ident = $word:literal, $($rest:tt)*) => {
        bits!(@pairs $name, $at + 1; [$($done)* ($name(1 << ($at)), $word),] $($rest)*)
    };
    (@pairs $name:ident, $at:expr; [$($done:tt)*]) => { [$($done)*] };
}

/// Some [`Flags`] together, by their names.
macro_rules! flags {
    ($($flag:ident)|+) => { $crate::command::spec::Flags::NONE$(.with($crate::command::spec::Flags::$flag))+ };
}

/// Some [`Categories`] together, by their names.
macro_rules! categories {
    ($($category:ident)|+) => {
        $crate::command::spec::Categories::NONE$(.with($crate::command::spec::Categories::$category))+
    };
}

/// Some [`KeyFlags`] together, by their names.
macro_rules! access {
    ($($flag:ident)|+) => { $crate::command::spec::KeyFlags::NONE$(.with($crate::command::spec::KeyFlags::$flag))+ };
}

pub(crate) use {access, categories, flags};

bits! {
    /// How a command behaves.
    Flags:
    WRITE = "write",
    READONLY = "readonly",
    DENYOOM = "denyoom",
    ADMIN = "admin",
    PUBSUB = "pubsub",
    NOSCRIPT = "noscript",
    BLOCKING = "blocking",
    LOADING = "loading",
    STALE = "stale",
    SKIP_MONITOR = "skip_monitor",
    SKIP_SLOWLOG = "skip_commandlog",
    ASKING = "asking",
    FAST = "fast",
    NO_AUTH = "no_auth",
    MAY_REPLICATE = "may_replicate",
    NO_MANDATORY_KEYS = "no_mandatory_keys",
    NO_ASYNC_LOADING = "no_async_loading",
    NO_MULTI = "no_multi",
    MOVABLE_KEYS = "movablekeys",
    ALLOW_BUSY = "allow_busy",
    /// It may touch keys that it does not name.
    TOUCHES_ARBITRARY_KEYS = "touches_arbitrary_keys",
    /// It concerns every database, whichever is chosen.
    ALL_DBS = "all_dbs",
    /// It is refused unless the configuration admits it.
    PROTECTED = "protected",
}

impl Flags {
    /// What `COMMAND INFO` keeps to itself.
    const HIDDEN: Self = flags![MAY_REPLICATE | TOUCHES_ARBITRARY_KEYS | ALL_DBS | PROTECTED];

    /// The words that `COMMAND INFO` prints.
    pub(crate) fn shown(self) -> impl Iterator<Item = &'static str> {
        Self(self.0 & !Self::HIDDEN.0).words()
    }
}

bits! {
    /// What ACL rules call it.
    Categories:
    KEYSPACE = "keyspace",
    READ = "read",
    WRITE = "write",
    SET = "set",
    SORTED_SET = "sortedset",
    LIST = "list",
    HASH = "hash",
    STRING = "string",
    BITMAP = "bitmap",
    HYPERLOGLOG = "hyperloglog",
    GEO = "geo",
    STREAM = "stream",
    PUBSUB = "pubsub",
    ADMIN = "admin",
    FAST = "fast",
    SLOW = "slow",
    BLOCKING = "blocking",
    DANGEROUS = "dangerous",
    CONNECTION = "connection",
    TRANSACTION = "transaction",
    SCRIPTING = "scripting",
}

impl Categories {
    /// The category of that name, in any case.
    pub(crate) fn named(word: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(word)).map(|(bit, _)| *bit)
    }
}

bits! {
    /// What a command does with a key.
    KeyFlags:
    RO = "RO",
    RW = "RW",
    OW = "OW",
    RM = "RM",
    ACCESS = "access",
    UPDATE = "update",
    INSERT = "insert",
    DELETE = "delete",
    NOT_KEY = "not_key",
    INCOMPLETE = "incomplete",
    VARIABLE_FLAGS = "variable_flags",
}

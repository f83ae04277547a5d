//! Arguments of a command, as `COMMAND DOCS` shows them.

use std::borrow::Cow;

/// One argument, or a group of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument {
    /// Empty where it is the token in lower case.
    pub(crate) name: &'static str,
    pub(crate) kind: ArgumentKind,
    /// The word that stands before it; empty for none.
    pub(crate) token: &'static str,
    /// What it is called in a syntax line; empty where that is its name.
    pub(crate) display: &'static str,
    /// A sentence about it; empty for none.
    pub(crate) summary: &'static str,
    pub(crate) optional: bool,
    pub(crate) multiple: bool,
    /// The token is repeated with each value.
    pub(crate) multiple_token: bool,
    /// The key specification that it belongs to.
    pub(crate) key: Option<u8>,
    /// The version that brought it; empty where that is the command's.
    pub(crate) since: &'static str,
    /// The version from which on it should not be used; empty for none.
    pub(crate) deprecated: &'static str,
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

impl ArgumentKind {
    /// The word for it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Double => "double",
            Self::Integer => "integer",
            Self::Key => "key",
            Self::OneOf => "oneof",
            Self::Pattern => "pattern",
            Self::PureToken => "pure-token",
            Self::String => "string",
            Self::UnixTime => "unix-time",
        }
    }
}

/// The key of a command with one key.
pub(super) const KEY: Argument = key("key", 0);

/// A key, which the key specification of that number finds.
pub(super) const fn key(name: &'static str, specification: u8) -> Argument {
    Argument::new(name, ArgumentKind::Key).key(specification)
}

/// Any bytes.
pub(super) const fn string(name: &'static str) -> Argument {
    Argument::new(name, ArgumentKind::String)
}

/// An integer.
pub(super) const fn integer(name: &'static str) -> Argument {
    Argument::new(name, ArgumentKind::Integer)
}

/// A floating point number.
pub(super) const fn double(name: &'static str) -> Argument {
    Argument::new(name, ArgumentKind::Double)
}

/// A glob pattern.
pub(super) const fn pattern(name: &'static str) -> Argument {
    Argument::new(name, ArgumentKind::Pattern)
}

/// A point in time.
pub(super) const fn unix_time(name: &'static str) -> Argument {
    Argument::new(name, ArgumentKind::UnixTime)
}

/// A fixed word, whose name is the same in lower case.
pub(super) const fn token(word: &'static str) -> Argument {
    Argument::new("", ArgumentKind::PureToken).after(word)
}

/// One of several.
pub(super) const fn one_of(name: &'static str, choices: &'static [Argument]) -> Argument {
    Argument { inner: choices, ..Argument::new(name, ArgumentKind::OneOf) }
}

/// All of several, one after the other.
pub(super) const fn block(name: &'static str, parts: &'static [Argument]) -> Argument {
    Argument { inner: parts, ..Argument::new(name, ArgumentKind::Block) }
}

impl Argument {
    /// Its name, or else its token in lower case.
    pub(crate) fn shown_name(&self) -> Cow<'static, str> {
        if self.name.is_empty() { self.token.to_ascii_lowercase().into() } else { self.name.into() }
    }

    const fn new(name: &'static str, kind: ArgumentKind) -> Self {
        Self {
            name,
            kind,
            token: "",
            display: "",
            summary: "",
            optional: false,
            multiple: false,
            multiple_token: false,
            key: None,
            since: "",
            deprecated: "",
            inner: &[],
        }
    }

    /// That word stands before it.
    pub(super) const fn after(self, token: &'static str) -> Self {
        Self { token, ..self }
    }

    /// It is called so, and not like its token.
    pub(super) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Syntax lines call it so.
    pub(super) const fn display(self, display: &'static str) -> Self {
        Self { display, ..self }
    }

    /// Says what it is.
    pub(super) const fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    /// It may be left out.
    pub(super) const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// It may be repeated.
    pub(super) const fn multiple(self) -> Self {
        Self { multiple: true, ..self }
    }

    /// It may be repeated, each time with its token.
    pub(super) const fn multiple_token(self) -> Self {
        Self { multiple: true, multiple_token: true, ..self }
    }

    /// It belongs to the key specification of that number.
    pub(super) const fn key(self, specification: u8) -> Self {
        Self { key: Some(specification), ..self }
    }

    /// It is younger than its command.
    pub(super) const fn since(self, since: &'static str) -> Self {
        Self { since, ..self }
    }

    /// It should not be used any more.
    pub(super) const fn deprecated(self, deprecated: &'static str) -> Self {
        Self { deprecated, ..self }
    }
}

//! What a client is told when its command cannot be done.
//!
//! The text is the contract: clients and tests compare it. Its first word is the code (`ERR`, `WRONGTYPE`, ...). All that are
//! made here are the caller's fault: the same command fails again as long as the data and the connection stay as they are.

use std::borrow::Cow;

use crate::keyspace::WrongKind;

/// An error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error(Cow<'static, str>);

impl Error {
    pub(crate) const WRONG_TYPE: Self = Self::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const SYNTAX: Self = Self::new("ERR syntax error");
    pub(crate) const NOT_INTEGER: Self = Self::new("ERR value is not an integer or out of range");
    pub(crate) const NOT_FLOAT: Self = Self::new("ERR value is not a valid float");
    pub(crate) const NO_SUCH_KEY: Self = Self::new("ERR no such key");
    pub(crate) const INDEX_OUT_OF_RANGE: Self = Self::new("ERR index out of range");
    pub(crate) const OUT_OF_RANGE: Self = Self::new("ERR value is out of range");
    pub(crate) const NOT_POSITIVE: Self = Self::new("ERR value is out of range, must be positive");
    pub(crate) const OVERFLOW: Self = Self::new("ERR increment or decrement would overflow");
    pub(crate) const NOT_FINITE: Self = Self::new("ERR increment would produce NaN or Infinity");
    pub(crate) const STRING_TOO_LONG: Self = Self::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    pub(crate) const SAME_OBJECT: Self = Self::new("ERR source and destination objects are the same");
    pub(crate) const NO_AUTH: Self = Self::new("NOAUTH Authentication required.");
    pub(crate) const MEMORY_FULL: Self = Self::new("OOM command not allowed when used memory > 'maxmemory'.");
    pub(crate) const EXEC_ABORT: Self = Self::new("EXECABORT Transaction discarded because of previous errors.");
    pub(crate) const LOADING: Self = Self::new("LOADING Valkey is loading the dataset in memory");
    pub(crate) const READ_ONLY: Self = Self::new("READONLY You can't write against a read only replica.");
    pub(crate) const STALE: Self =
        Self::new("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
    pub(crate) const NO_REPLICAS: Self = Self::new("NOREPLICAS Not enough good replicas to write.");
    pub(crate) const NO_MAJORITY: Self =
        Self::new("NOREPLICAS Too few copies of the shard are there for a majority of them to have this.");
    pub(crate) const TIMEOUT_NEGATIVE: Self = Self::new("ERR timeout is negative");
    pub(crate) const TIMEOUT_OUT_OF_RANGE: Self = Self::new("ERR timeout is out of range");
    pub(crate) const TIMEOUT_NOT_FLOAT: Self = Self::new("ERR timeout is not a float or out of range");

    /// An error with this text, code first.
    pub(crate) const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// An error with a text that is made now, code first.
    pub(crate) const fn text(text: String) -> Self {
        Self(Cow::Owned(text))
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Its first word.
    pub(crate) fn code(&self) -> &str {
        self.0.split(' ').next().unwrap_or("ERR")
    }

    /// Too many words, or too few.
    pub(crate) fn wrong_number(command: &str) -> Self {
        Self::text(format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// A subcommand with too many words, or too few for what they say.
    pub(crate) fn wrong_subcommand(container: &str, word: &[u8]) -> Self {
        let word: String = String::from_utf8_lossy(word).chars().take(128).collect();
        Self::text(format!("ERR unknown subcommand or wrong number of arguments for '{word}'. Try {container} HELP."))
    }

    /// An expiry that makes no sense.
    pub(crate) fn invalid_expiry(command: &str) -> Self {
        Self::text(format!("ERR invalid expire time in '{command}' command"))
    }
}

impl From<WrongKind> for Error {
    fn from(WrongKind: WrongKind) -> Self {
        Self::WRONG_TYPE
    }
}

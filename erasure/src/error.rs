//! What can be wrong with a call.

use core::fmt;

/// Why a call was refused. Always the caller's fault; nothing was written, and a retry of the same call gives the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// A slice holds another number of shards than the geometry or the plan says.
    ShardCount {
        /// Shards asked for.
        expected: usize,
        /// Shards given.
        given: usize,
    },
    /// The shards of one call are not equally long.
    ShardLength {
        /// Bytes of the first shard.
        expected: usize,
        /// Bytes of the shard that differs.
        given: usize,
    },
    /// A shard's number is not below M + K (or below M, where a data shard is meant).
    NoSuchShard {
        /// The number given.
        shard: usize,
        /// Shards that there are.
        total: usize,
    },
    /// Too many shards are lost: any M are needed.
    TooFewShards {
        /// M.
        needed: usize,
        /// Shards that are left.
        present: usize,
    },
    /// A shard is wanted that is there.
    NotLost {
        /// Its number.
        shard: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShardCount { expected, given } => write!(f, "{given} shards given, {expected} expected"),
            Self::ShardLength { expected, given } => write!(f, "a shard of {given} bytes among shards of {expected}"),
            Self::NoSuchShard { shard, total } => write!(f, "shard {shard} does not exist among {total}"),
            Self::TooFewShards { needed, present } => {
                write!(f, "{present} shards are left, {needed} are needed")
            }
            Self::NotLost { shard } => write!(f, "shard {shard} is wanted although it is present"),
        }
    }
}

impl core::error::Error for Error {}

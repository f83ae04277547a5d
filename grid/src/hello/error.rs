//! Why a hello fails: who refused, and whether dialing again can help.

use core::fmt;

use ashlar_wire::pack::PackError;

use super::form::Refusal;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $number:literal: $text:literal,)*) => {
        /// Why one side does not want the connection. Append only: a number never changes its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u16)]
        pub enum RefusalCode { $($(#[$doc])* $name = $number,)* }

        impl RefusalCode {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code of that number; a later version's is [`RefusalCode::Other`].
            #[must_use]
            pub const fn from_number(number: u64) -> Self {
                match number {
                    $($number => Self::$name,)*
                    _ => Self::Other,
                }
            }
        }

        impl fmt::Display for RefusalCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

refusals! {
    /// A code of a later version.
    Other = 0: "refused for a reason that this version does not know; see the other server's log",
    /// The servers belong to different clusters.
    WrongCluster = 1: "the servers belong to different clusters: check the address, or give both the same cluster secret",
    /// No common protocol version.
    WrongVersion = 2: "no common protocol version: upgrade the older server",
    /// No common secret.
    UnknownKey = 3: "no common cluster secret: copy the secret file of a server of the cluster",
    /// A proof was wrong.
    BadProof = 4: "the proof of the cluster secret is wrong: another secret, or somebody between the two servers",
    /// Another server than expected answers at the address.
    WrongServer = 5: "another server answers at this address: its address has changed, or two servers share one",
    /// The server dialed itself.
    OwnEcho = 6: "the address is the server's own",
    /// An earlier life of a server whose later life is known.
    StaleIncarnation = 7: "a later life of this server is known: two processes may use copies of one data directory",
    /// There is a connection between the two already.
    Duplicate = 8: "there is a connection between the two servers already",
    /// The server is stopping.
    Draining = 9: "the server is stopping",
    /// Too many connections.
    Busy = 10: "the server has too many connections now",
    /// The connection was opened for another lane.
    WrongLane = 11: "the connection was opened for another lane",
    /// The message is not a hello.
    Malformed = 12: "the message is not a hello of this protocol",
}

/// Why a hello failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelloError {
    /// This side refused the peer.
    Refused(RefusalCode),
    /// The peer refused this side, with its own words.
    RefusedByPeer(RefusalCode, String),
    /// The peer's message is not one of a hello.
    Malformed(PackError),
    /// The peer's message is one of a hello, and not the one that comes now.
    OutOfOrder,
}

impl HelloError {
    /// A message longer than [`HELLO_LEN_MAX`](super::HELLO_LEN_MAX).
    #[must_use]
    pub const fn too_long() -> Self {
        Self::Malformed(PackError::TooLong { len: super::HELLO_LEN_MAX + 1, max: super::HELLO_LEN_MAX })
    }

    /// The code of a refusal, whoever refused.
    #[must_use]
    pub const fn refusal_code(&self) -> Option<RefusalCode> {
        match self {
            Self::Refused(code) | Self::RefusedByPeer(code, _) => Some(*code),
            Self::Malformed(_) | Self::OutOfOrder => None,
        }
    }

    /// Whether the peer does not speak the protocol.
    #[must_use]
    pub const fn is_malformed(&self) -> bool {
        matches!(self, Self::Malformed(_) | Self::OutOfOrder)
    }

    /// Whether dialing again can help without anybody's doing.
    #[must_use]
    pub const fn will_heal(&self) -> bool {
        matches!(
            self.refusal_code(),
            Some(RefusalCode::Duplicate | RefusalCode::Draining | RefusalCode::Busy | RefusalCode::StaleIncarnation)
        )
    }

    /// What the peer should be sent before the connection is closed.
    #[must_use]
    pub fn refusal_to_send(&self) -> Option<Vec<u8>> {
        let code = match self {
            Self::Refused(code) => *code,
            Self::Malformed(_) | Self::OutOfOrder => RefusalCode::Malformed,
            Self::RefusedByPeer(..) => return None,
        };
        Some(Refusal { code, text: code.to_string() }.encode())
    }
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(code) => write!(f, "refused: {code}"),
            Self::RefusedByPeer(_, text) => write!(f, "refused by the peer: {text}"),
            Self::Malformed(error) => write!(f, "the peer does not speak the grid's hello: {error}"),
            Self::OutOfOrder => f.write_str("the peer's hello is out of order"),
        }
    }
}

impl core::error::Error for HelloError {}

impl From<PackError> for HelloError {
    fn from(error: PackError) -> Self {
        Self::Malformed(error)
    }
}

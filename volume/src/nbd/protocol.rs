//! Numbers of the NBD protocol, under the names of its specification.

/// First bytes of a server: `NBDMAGIC`.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Before the handshake flags, and before each option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before each answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Before each compact request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Before each extended request.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Before each simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Before each chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Before each chunk of an extended reply.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Most bytes of a name, a description or a query, by the specification.
pub const STRING_BYTES_MAX: usize = 4_096;
/// Zeroes that end the answer to `EXPORT_NAME` unless both sides gave them up.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// Reads up to so many bytes have to be possible in one chunk.
pub const UNFRAGMENTED_MIN: u32 = 65_536;

/// Flags of the handshake: the server's and, with the same bits, the client's.
pub mod handshake {
    /// Both speak the fixed newstyle.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No zeroes after the answer to `EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options of the handshake.
pub mod option {
    /// Choose an export; has no answer for failure.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List exports.
    pub const LIST: u32 = 3;
    /// Start TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and choose it.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use extended headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Kinds of answers to options.
pub mod option_reply {
    /// Accepted, or the end of a list.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of information about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The server does not know the option.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// The server's policy forbids it.
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    /// The option makes no sense.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// TLS first.
    pub const ERR_TLS_REQD: u32 = (1 << 31) + 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// The server shuts down.
    pub const ERR_SHUTDOWN: u32 = (1 << 31) + 7;
    /// Too large to answer.
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
    /// Extended headers are in use, so structured replies cannot be.
    pub const ERR_EXT_HEADER_REQD: u32 = (1 << 31) + 10;
}

/// Kinds of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// Canonical name.
    pub const NAME: u16 = 1;
    /// Description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Commands of the transmission phase.
pub mod command {
    /// Read bytes.
    pub const READ: u16 = 0;
    /// Write bytes.
    pub const WRITE: u16 = 1;
    /// End the session.
    pub const DISC: u16 = 2;
    /// Make completed writes durable.
    pub const FLUSH: u16 = 3;
    /// Bytes are no longer needed.
    pub const TRIM: u16 = 4;
    /// Bytes will be read soon.
    pub const CACHE: u16 = 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Ask for the allocation of a range.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub mod command_flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes stay allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// One content chunk.
    pub const DF: u16 = 1 << 2;
    /// One span of status.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than be slow.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of a payload, with extended headers.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Kinds of chunks of structured and extended replies.
pub mod chunk {
    /// Set in the last chunk of a reply.
    pub const FLAG_DONE: u16 = 1 << 0;
    /// Nothing but the end of a reply.
    pub const NONE: u16 = 0;
    /// Bytes at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes at an offset.
    pub const OFFSET_HOLE: u16 = 2;
    /// Spans of status.
    pub const BLOCK_STATUS: u16 = 5;
    /// Spans of status with extended headers.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// An error.
    pub const ERROR: u16 = (1 << 15) + 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// The metadata context `base:allocation`.
pub mod allocation {
    /// Its name.
    pub const NAME: &str = "base:allocation";
    /// Its number in a session that has chosen it.
    pub const ID: u32 = 1;
    /// Nothing is allocated.
    pub const STATE_HOLE: u32 = 1 << 0;
    /// Reads as zeroes.
    pub const STATE_ZERO: u32 = 1 << 1;
}

/// Why a request fails, in the numbers that NBD allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorCode {
    /// `EPERM`: a write to a read-only export.
    NotPermitted,
    /// `EIO`: the data cannot be had, or the write is not known to be done.
    Io,
    /// `ENOMEM`: no memory. Not used by the session itself.
    NoMemory,
    /// `EINVAL`: the request makes no sense.
    Invalid,
    /// `ENOSPC`: beyond the end, or no room.
    NoSpace,
    /// `EOVERFLOW`: longer than the server allows.
    Overflow,
    /// `ENOTSUP`: zeroes cannot be written fast.
    NotSupported,
    /// `ESHUTDOWN`: the server shuts down, or will never serve this export again on this connection.
    Shutdown,
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::NotPermitted => 1,
            Self::Io => 5,
            Self::NoMemory => 12,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::Overflow => 75,
            Self::NotSupported => 95,
            Self::Shutdown => 108,
        }
    }
}

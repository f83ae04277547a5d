//! Requests of the transmission phase: their headers taken apart, and what is wrong with them.

use super::export::{Export, Features};
use super::protocol::{EXTENDED_REQUEST_MAGIC, ErrorCode, REQUEST_MAGIC, command, command_flag};

/// How requests and replies are framed. Chosen in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Framing {
    /// Compact requests, simple replies.
    #[default]
    Simple,
    /// Compact requests, structured replies where they say more than simple ones.
    Structured,
    /// Extended requests and replies.
    Extended,
}

impl Framing {
    /// Bytes of a request without its payload.
    pub(super) const fn header_len(self) -> usize {
        match self {
            Self::Simple | Self::Structured => 28,
            Self::Extended => 32,
        }
    }
}

/// One request without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) flags: u16,
    pub(super) command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// What a request is checked against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) export: &'a Export,
    pub(super) framing: Framing,
    /// The client has chosen `base:allocation` for this export.
    pub(super) has_allocation: bool,
    pub(super) payload_bytes_max: u32,
    pub(super) is_shutting_down: bool,
}

impl Header {
    /// The header in these bytes, which are as many as the framing says, unless they begin with another magic number.
    pub(super) fn decode(framing: Framing, bytes: &[u8]) -> Option<Self> {
        assert_eq!(bytes.len(), framing.header_len(), "a header is gathered whole");
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u64::from(u16_at(at)) << 16 | u64::from(u16_at(at + 2));
        let u64_at = |at: usize| u32_at(at) << 32 | u32_at(at + 4);
        let (magic, len) = match framing {
            Framing::Simple | Framing::Structured => (REQUEST_MAGIC, u32_at(24)),
            Framing::Extended => (EXTENDED_REQUEST_MAGIC, u64_at(24)),
        };
        let header = Self { flags: u16_at(4), command: u16_at(6), cookie: u64_at(8), offset: u64_at(16), len };
        (u32_at(0) == u64::from(magic)).then_some(header)
    }

    pub(super) const fn has_flag(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Bytes that follow the header.
    pub(super) const fn payload_len(&self, framing: Framing) -> u64 {
        let has_payload = match framing {
            Framing::Simple | Framing::Structured => self.command == command::WRITE,
            Framing::Extended => self.has_flag(command_flag::PAYLOAD_LEN),
        };
        if has_payload { self.len } else { 0 }
    }

    /// Payload bytes that the request makes the session keep, in one direction or the other.
    pub(super) const fn held_len(&self) -> u64 {
        match self.command {
            command::READ | command::WRITE => self.len,
            _ => 0,
        }
    }

    /// What is wrong with the request.
    ///
    /// The specification leaves open what a length of zero means: it is refused, since it can only be a mistake.
    pub(super) fn check(&self, rules: &Rules<'_>) -> Result<(), ErrorCode> {
        if rules.is_shutting_down {
            return Err(ErrorCode::Shutdown);
        }
        let features = rules.export.features;
        let writes = matches!(self.command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if writes && features.contains(Features::READ_ONLY) {
            return Err(ErrorCode::NotPermitted);
        }
        if !self.is_known(rules) || self.flags & !self.flags_allowed(rules) != 0 {
            return Err(ErrorCode::Invalid);
        }
        if rules.framing == Framing::Extended
            && (self.command == command::WRITE) != self.has_flag(command_flag::PAYLOAD_LEN)
        {
            return Err(ErrorCode::Invalid);
        }
        if self.command == command::FLUSH {
            return if self.offset == 0 && self.len == 0 { Ok(()) } else { Err(ErrorCode::Invalid) };
        }
        self.check_range(rules)
    }

    /// Whether the export has the command.
    fn is_known(&self, rules: &Rules<'_>) -> bool {
        let features = rules.export.features;
        match self.command {
            command::READ | command::WRITE => true,
            command::FLUSH => features.contains(Features::FLUSH),
            command::TRIM => features.contains(Features::TRIM),
            command::CACHE => features.contains(Features::CACHE),
            command::WRITE_ZEROES => features.contains(Features::WRITE_ZEROES),
            command::BLOCK_STATUS => rules.has_allocation,
            _ => false,
        }
    }

    /// The flags that the command may have here. FUA is allowed on all: clients are known to set it anywhere.
    fn flags_allowed(&self, rules: &Rules<'_>) -> u16 {
        let features = rules.export.features;
        let when = |flag, is_allowed| if is_allowed { flag } else { 0 };
        let of_command = match self.command {
            command::READ => when(command_flag::DF, rules.framing != Framing::Simple),
            command::WRITE => when(command_flag::PAYLOAD_LEN, rules.framing == Framing::Extended),
            command::WRITE_ZEROES => {
                command_flag::NO_HOLE | when(command_flag::FAST_ZERO, features.contains(Features::FAST_ZERO))
            }
            command::BLOCK_STATUS => command_flag::REQ_ONE,
            _ => 0,
        };
        of_command | when(command_flag::FUA, features.contains(Features::FUA))
    }

    fn check_range(&self, rules: &Rules<'_>) -> Result<(), ErrorCode> {
        let block = u64::from(rules.export.blocks.min);
        if self.len == 0 || !self.offset.is_multiple_of(block) || !self.len.is_multiple_of(block) {
            return Err(ErrorCode::Invalid);
        }
        let is_inside = self.offset.checked_add(self.len).is_some_and(|end| end <= rules.export.size);
        if !is_inside {
            let grows = matches!(self.command, command::WRITE | command::WRITE_ZEROES);
            return Err(if grows { ErrorCode::NoSpace } else { ErrorCode::Invalid });
        }
        let is_long = self.held_len() > u64::from(rules.payload_bytes_max);
        match (is_long, self.command, rules.framing) {
            (false, ..) => Ok(()),
            // Only clients that may be told to ask for less know this error.
            (true, command::READ, Framing::Structured | Framing::Extended) => Err(ErrorCode::Overflow),
            (true, ..) => Err(ErrorCode::Invalid),
        }
    }
}

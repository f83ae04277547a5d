//! What may happen, as the fuzzer's bytes say it.

use libfuzzer_sys::arbitrary::{self, Arbitrary};

/// Deeds of one run.
pub const DEEDS_MAX: usize = 400;

#[derive(Debug, Arbitrary)]
pub struct Input {
    pub checksums: bool,
    /// Each end has narrow limits or wide ones.
    pub narrow: [bool; 2],
    pub deeds: Vec<Deed>,
}

/// Ends and choices are taken modulo what there is.
#[derive(Debug, Arbitrary)]
pub enum Deed {
    Call {
        end: bool,
        len: u16,
        route: u8,
        deadline_ms: u8,
        background: bool,
        inline: bool,
    },
    PollCall {
        which: u8,
    },
    CancelCall {
        which: u8,
    },
    Reply {
        end: bool,
        which: u8,
        outcome: u8,
        len: u16,
    },
    Open {
        end: bool,
        window: u16,
        deadline_ms: u8,
    },
    Send {
        which: u8,
        by_responder: bool,
        len: u16,
    },
    Receive {
        which: u8,
        by_responder: bool,
    },
    Finish {
        which: u8,
        by_responder: bool,
    },
    Release {
        which: u8,
    },
    Return {
        which: u8,
        refuses: bool,
    },
    Abandon {
        which: u8,
    },
    /// Moves a batch towards the wire.
    Take {
        end: bool,
    },
    /// Carries that many bytes over the wire.
    Deliver {
        from: bool,
        len: u16,
    },
    Settle,
    Pass {
        ms: u16,
    },
    Drain {
        end: bool,
    },
    Close {
        end: bool,
    },
    /// Asks the peer for a proof of the newest secret.
    Challenge {
        end: bool,
    },
    /// A message that nobody sent.
    Forge {
        to: bool,
        message: Forged,
    },
}

#[derive(Debug, Arbitrary)]
pub struct Forged {
    pub slot: u8,
    pub generation: u8,
    pub sequence: u64,
    pub deadline_ms: u32,
    pub handler: u32,
    pub op: u8,
    pub flags: u8,
    pub payload: Vec<u8>,
}

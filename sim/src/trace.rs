//! What happened: a running hash over every event, and the last few of them in words.
//!
//! Two runs with equal hashes took the same steps in the same order with the same bytes. The tail leaves out what
//! happens too often to help a reader (polls, timers, acknowledgements, reads and writes) and all but the very last
//! deliveries; the hash leaves out nothing.

use core::fmt;
use std::collections::VecDeque;

use crate::rng::{hash_bytes, mix};

/// Kinds of event. The three numbers of an event mean what [`Kind::words`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Poll,
    Timer,
    Write,
    Read,
    Ack,
    Spawn,
    Start,
    Kill,
    CrashMachine,
    Pause,
    Resume,
    Drift,
    Dial,
    Refused,
    Accepted,
    Connected,
    Delivered,
    Finished,
    ResetSeen,
    Closed,
    Reset,
    BlackHole,
    Corrupted,
    Cut,
    Heal,
    Clog,
    LinkChanged,
    Note,
}

impl Kind {
    fn words(self) -> [&'static str; 4] {
        match self {
            Self::Poll => ["poll", "task", "", ""],
            Self::Timer => ["timer", "timer", "", ""],
            Self::Write => ["write", "conn", "side", "bytes"],
            Self::Read => ["read", "conn", "side", "bytes"],
            Self::Ack => ["ack", "conn", "side", "upto"],
            Self::Spawn => ["spawn", "task", "owner", ""],
            Self::Start => ["start", "server", "life", ""],
            Self::Kill => ["kill", "server", "life", "tasks"],
            Self::CrashMachine => ["crash-machine", "server", "life", "tasks"],
            Self::Pause => ["pause", "server", "", ""],
            Self::Resume => ["resume", "server", "", ""],
            Self::Drift => ["drift", "server", "rate-ppm", ""],
            Self::Dial => ["dial", "dial", "from", "to"],
            Self::Refused => ["refused", "dial", "from", "to"],
            Self::Accepted => ["accepted", "dial", "conn", "server"],
            Self::Connected => ["connected", "dial", "conn", ""],
            Self::Delivered => ["delivered", "conn", "side", "bytes"],
            Self::Finished => ["fin", "conn", "side", ""],
            Self::ResetSeen => ["reset-seen", "conn", "side", ""],
            Self::Closed => ["closed", "conn", "side", "unread"],
            Self::Reset => ["reset", "conn", "kept-0", "kept-1"],
            Self::BlackHole => ["black-hole", "conn", "side", ""],
            Self::Corrupted => ["corrupted", "conn", "side", "byte"],
            Self::Cut => ["cut", "from", "to", ""],
            Self::Heal => ["heal", "from", "to", "held"],
            Self::Clog => ["clog", "from", "to", "until-ns"],
            Self::LinkChanged => ["link", "from", "to", "bytes-per-s"],
            Self::Note => ["note", "", "", ""],
        }
    }

    /// Which events the tail keeps: all of their last ones, a few of them, none.
    fn telling(self) -> Telling {
        match self {
            Self::Poll | Self::Timer | Self::Write | Self::Read | Self::Ack | Self::Spawn => Telling::Never,
            Self::Delivered => Telling::Briefly,
            _ => Telling::Fully,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telling {
    Never,
    Briefly,
    Fully,
}

/// Events of the brief kind that are kept.
const BRIEF_MAX: usize = 20;

/// One event of a run, for people: print it.
#[derive(Debug, Clone)]
pub struct Event {
    at_ns: u64,
    kind: Kind,
    numbers: [u64; 3],
    note: String,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, words @ ..] = self.kind.words();
        write!(f, "{:>12}.{:03} us  {name}", self.at_ns / 1_000, self.at_ns % 1_000)?;
        for (word, number) in words.iter().zip(self.numbers) {
            if !word.is_empty() {
                write!(f, " {word}={number}")?;
            }
        }
        if self.note.is_empty() { Ok(()) } else { write!(f, " {}", self.note) }
    }
}

/// The hash and the tail of a run.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    tail: VecDeque<Event>,
    tail_max: usize,
    brief: VecDeque<Event>,
}

impl Trace {
    pub(crate) fn new(tail_max: usize) -> Self {
        Self { hash: 0, events: 0, tail: VecDeque::new(), tail_max, brief: VecDeque::new() }
    }

    pub(crate) fn record(&mut self, at_ns: u64, kind: Kind, numbers: [u64; 3]) {
        self.fold(at_ns, kind, numbers);
        let event = || Event { at_ns, kind, numbers, note: String::new() };
        match kind.telling() {
            Telling::Never => {}
            Telling::Briefly => keep(&mut self.brief, event(), BRIEF_MAX.min(self.tail_max)),
            Telling::Fully => keep(&mut self.tail, event(), self.tail_max),
        }
    }

    /// A word of the scenario: hashed and told.
    pub(crate) fn note(&mut self, at_ns: u64, note: String) {
        self.fold(at_ns, Kind::Note, [hash_bytes(0, note.as_bytes()), 0, 0]);
        keep(&mut self.tail, Event { at_ns, kind: Kind::Note, numbers: [0; 3], note }, self.tail_max);
    }

    /// Folds bytes that a server read into the hash.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.hash = hash_bytes(self.hash, bytes);
    }

    fn fold(&mut self, at_ns: u64, kind: Kind, [a, b, c]: [u64; 3]) {
        self.events += 1;
        let head = mix(self.hash ^ at_ns).wrapping_add(kind as u64);
        let left = mix(head ^ a).rotate_left(17) ^ b;
        self.hash = mix(left).rotate_left(23) ^ mix(c.wrapping_add(head));
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn tail(&self) -> Vec<Event> {
        let mut events: Vec<Event> = self.brief.iter().chain(&self.tail).cloned().collect();
        events.sort_by_key(|event| event.at_ns);
        events
    }
}

fn keep(ring: &mut VecDeque<Event>, event: Event, events_max: usize) {
    if ring.len() >= events_max {
        ring.pop_front();
    }
    if events_max > 0 {
        ring.push_back(event);
    }
}

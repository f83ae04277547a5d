//! One bus to which a test says everything itself, and what it sends and tells then.

use alloc::boxed::Box;

use super::*;
use crate::CommandError;
use crate::member::{Description, Life, MemberRecord};
use crate::packet::{Body, Header, News, decode, encode};

pub(super) const CLUSTER: ClusterId = ClusterId::from_bytes([9; 16]);

/// The server with the number 1. All others are only what the test says.
pub(super) struct Scripted {
    pub(super) bus: Bus,
    pub(super) now: Instant,
    /// How many packets each of the others has sent.
    sequences: BTreeMap<u8, u32>,
    /// What it has sent since the last step, and what has happened.
    pub(super) sent: Vec<(u8, Body)>,
    pub(super) events: Vec<Event>,
    /// The last state that was to be stored.
    pub(super) saved: Vec<u8>,
}

pub(super) fn identity() -> Identity {
    let (server, incarnation) = (id(1), Incarnation(1));
    Identity { cluster: CLUSTER, server, incarnation, zone: Zone(1), address: "server-1".into() }
}

/// Nothing of its own is sent for a long time.
pub(super) fn quiet() -> Config {
    Config { probe_interval: Duration::from_secs(100_000), founds: false, ..Config::default() }
}

/// What a member says about itself in its first life.
pub(super) fn record(number: u8) -> MemberRecord {
    let address = format!("server-{number}").into();
    let description = Description { incarnation: Incarnation(1), address, ..Description::default() };
    MemberRecord { id: id(number), description, life: Life::default() }
}

/// The same of one that follows groups.
pub(super) fn replica(number: u8, groups: &[u64]) -> MemberRecord {
    let mut record = record(number);
    record.description.follows = groups.iter().map(|number| group(*number)).collect();
    record
}

pub(super) fn claim(of: u64, owner: u8, epoch: u64, slots: &[(u16, u16)]) -> News {
    let slots = slots.iter().map(|(first, last)| SlotRange::new(*first, *last).unwrap());
    let slots = crate::slot::SlotSet::from_ranges(slots);
    News::Claim(crate::claim::Claim { group: group(of), owner: id(owner), epoch: Epoch(epoch), slots })
}

pub(super) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl Scripted {
    /// It knows these members.
    pub(super) fn new(config: Config, members: &[MemberRecord]) -> Self {
        let now = Instant::from_nanos(START_MS * 1_000_000);
        let bus = Bus::new(config, identity(), None, 7, now).unwrap();
        let (sent, events, saved) = (Vec::new(), Vec::new(), Vec::new());
        let mut one = Self { bus, now, sequences: BTreeMap::new(), sent, events, saved };
        one.drain();
        members.iter().for_each(|member| one.hear(number(member.id), &Body::Meet(member.clone())));
        one
    }

    /// Takes what it has put out; what is to be stored is stored at once.
    pub(super) fn drain(&mut self) {
        while let Some(output) = self.bus.poll_output() {
            match output {
                Output::Send { to, bytes } => {
                    let (_, body) = decode(&bytes, CLUSTER, &self.bus.config).expect("it is a packet");
                    self.sent.push((number(to), body));
                }
                Output::Persist { ticket, bytes } => {
                    self.saved = bytes;
                    self.bus.handle_persisted(self.now, ticket);
                }
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn step(&mut self, done: impl FnOnce(&mut Bus, Instant)) {
        (self.sent, self.events) = (Vec::new(), Vec::new());
        done(&mut self.bus, self.now);
        self.drain();
    }

    /// Somebody says this, in the first life.
    pub(super) fn hear(&mut self, from: u8, body: &Body) {
        let sequence = self.sequences.entry(from).or_default();
        *sequence += 1;
        let header = Header { incarnation: Incarnation(1), sequence: *sequence };
        self.hear_with(from, header, body);
    }

    pub(super) fn hear_with(&mut self, from: u8, header: Header, body: &Body) {
        let bytes = encode(CLUSTER, header, body);
        self.step(|bus, now| bus.handle_packet(now, id(from), &bytes));
    }

    pub(super) fn news(&mut self, from: u8, news: News) {
        self.hear(from, &Body::News(std::vec![news]));
    }

    /// Somebody tells of a member.
    pub(super) fn member(&mut self, from: u8, record: MemberRecord) {
        self.news(from, News::Member(Box::new(record)));
    }

    pub(super) fn command(&mut self, command: Command) -> Result<(), CommandError> {
        let mut done = Ok(());
        self.step(|bus, now| done = bus.handle_command(now, command));
        done
    }

    /// Time passes, with a tick whenever one is due.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        (self.sent, self.events) = (Vec::new(), Vec::new());
        let mut again = 0;
        while self.bus.next_tick() <= end {
            again = if self.bus.next_tick() > self.now { 0 } else { again + 1 };
            assert!(again < 3, "a tick that is due again at once would never end");
            self.now = self.now.max(self.bus.next_tick());
            self.bus.handle_tick(self.now);
            self.drain();
        }
        self.now = end;
    }

    /// To whom bodies of a kind went since the last step.
    pub(super) fn receivers(&self, is_it: impl Fn(&Body) -> bool) -> Vec<u8> {
        self.sent.iter().filter(|(_, body)| is_it(body)).map(|(to, _)| *to).collect()
    }
}

//! One bus alone. The test says what it hears, looks at what it sends, and lets others answer its probes at once.

use alloc::boxed::Box;

use super::*;
use crate::claim::Claim;
use crate::member::{Description, Life, MemberRecord};
use crate::packet::{Beat, Body, Header, News, Silence, decode, encode};
use crate::slot::SlotSet;
use crate::voters::{Origin, VoterSet};

pub(super) const CLUSTER: ClusterId = ClusterId::from_bytes([9; 16]);
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Single {
    pub(super) bus: Bus,
    pub(super) ms: u64,
    sequences: BTreeMap<u8, u32>,
    /// Who answers no probe.
    pub(super) silent: BTreeSet<u8>,
    /// What it has sent, except answers, since somebody looked.
    sent: Vec<(u8, Body)>,
    pub(super) events: Vec<Event>,
    /// What it has handed out for storing and nobody has stored.
    pub(super) unstored: Option<(Ticket, Vec<u8>)>,
    /// Whether its drive works.
    pub(super) stores: bool,
}

pub(super) fn record(number: u8, follows: &[u64]) -> MemberRecord {
    let description = Description {
        incarnation: Incarnation(1),
        zone: Zone(u32::from(number % 3) + 1),
        address: format!("server-{number}").as_str().into(),
        follows: follows.iter().map(|number| group(*number)).collect(),
        memory_since: Incarnation(1),
        ..Description::default()
    };
    MemberRecord { id: id(number), description, life: Life::default() }
}

pub(super) fn told(voters: &[u8], previous: &[u8]) -> VoterSet {
    let ids = |numbers: &[u8]| numbers.iter().map(|number| id(*number)).collect();
    VoterSet {
        epoch: Epoch(2),
        origin: Origin::Told,
        after: Epoch(1),
        floor: Epoch::ZERO,
        voters: ids(voters),
        previous: ids(previous),
        forgetful: Vec::new(),
        previous_forgetful: Vec::new(),
    }
}

pub(super) fn slots(first: u16, last: u16) -> SlotSet {
    SlotSet::from_ranges(SlotRange::new(first, last))
}

pub(super) fn silence(number: u8, incarnation: u64, age_ms: u64) -> Silence {
    Silence { id: id(number), incarnation: Incarnation(incarnation), refuted: 0, age_ms }
}

pub(super) fn config() -> Config {
    Config { member_timeout: TIMEOUT, founds: false, ..Config::default() }
}

impl Single {
    pub(super) fn with(own: u8, config: Config, saved: Option<&[u8]>) -> Self {
        let identity = Identity {
            cluster: CLUSTER,
            server: id(own),
            incarnation: Incarnation(if saved.is_some() { 2 } else { 1 }),
            zone: Zone(u32::from(own % 3) + 1),
            address: format!("server-{own}"),
        };
        let now = Instant::from_nanos(START_MS * 1_000_000);
        let bus = Bus::new(config, identity, saved, 7, now).expect("what was saved is whole");
        let (sequences, silent) = (BTreeMap::new(), BTreeSet::new());
        let (sent, events) = (Vec::new(), Vec::new());
        let mut single = Self { bus, ms: 0, sequences, silent, sent, events, unstored: None, stores: true };
        single.drain();
        single
    }

    /// Server `own` among the members 1 to `count`, with these voters; group n has the slots n * 100 to n * 100 + 99 and belongs to
    /// server n, for the `primaries`. It has no turns of probing, and heard all a second ago.
    pub(super) fn setup(own: u8, count: u8, voters: &[u8], primaries: &[u8]) -> Self {
        let mut single = Self::with(own, config(), None);
        let now = single.now();
        for number in (1..=count).filter(|number| *number != own) {
            single.join(record(number, &[]));
        }
        if !voters.is_empty() {
            single.bus.hear_voters(now, &told(voters, &[]), false);
        }
        for number in primaries {
            single.claim((*number).into(), *number, 2);
        }
        single.bus.next_turn = Instant::NEVER;
        for number in (1..=count).filter(|number| *number != own) {
            single.bus.probe(id(number), crate::probe::Cause::Turn, false, now);
        }
        single.drain();
        single.pass(1_000);
        single.take_sent();
        single.events.clear();
        single
    }

    pub(super) fn join(&mut self, record: MemberRecord) {
        let now = self.now();
        self.bus.learn_all(now, record.id, std::vec![News::Member(Box::new(record))], false);
        self.drain();
    }

    /// A claim of this group's hundred slots stands.
    pub(super) fn claim(&mut self, number: u64, owner: u8, epoch: u64) {
        let (now, first) = (self.now(), u16::try_from(number).unwrap() * 100);
        let claim =
            Claim { group: group(number), owner: id(owner), epoch: Epoch(epoch), slots: slots(first, first + 99) };
        self.bus.hear_claim(now, id(owner), claim, false);
        self.drain();
    }

    /// It is known that a member has failed, or that it lives.
    pub(super) fn life(&mut self, number: u8, refuted: u64, failed: bool) {
        let now = self.now();
        self.bus.learn_all(now, id(number), std::vec![News::Life(id(number), Life { refuted, failed })], false);
        self.drain();
    }

    pub(super) fn now(&self) -> Instant {
        self.ago(0)
    }

    pub(super) fn ago(&self, ms: u64) -> Instant {
        Instant::from_nanos((START_MS + self.ms - ms) * 1_000_000)
    }

    pub(super) fn hear(&mut self, from: u8, body: &Body) {
        let sequence = self.sequences.entry(from).or_insert(0);
        *sequence += 1;
        let bytes = encode(CLUSTER, Header { incarnation: Incarnation(1), sequence: *sequence }, body);
        let now = self.now();
        self.bus.handle_packet(now, id(from), &bytes);
        self.drain();
    }

    pub(super) fn command(&mut self, command: Command) {
        let now = self.now();
        self.bus.handle_command(now, command).unwrap();
        self.drain();
    }

    /// Ends what the test called by itself, and looks at what came of it.
    pub(super) fn drain(&mut self) {
        let now = self.now();
        self.bus.finish(now);
        while let Some(output) = self.bus.poll_output() {
            match output {
                Output::Event(event) => self.events.push(event),
                Output::Persist { ticket, bytes } => {
                    self.unstored = Some((ticket, bytes));
                    if self.stores {
                        self.store();
                    }
                }
                Output::Send { to, bytes } => {
                    let (_, body) = decode(&bytes, CLUSTER, &self.bus.config).unwrap();
                    let to = number(to);
                    if let Body::Probe(token, _, _) = body
                        && !self.silent.contains(&to)
                    {
                        let beat = self.beat();
                        self.hear(to, &Body::Answer(token, beat, Vec::new()));
                    }
                    if !matches!(body, Body::Answer(..)) {
                        self.sent.push((to, body));
                    }
                }
            }
        }
    }

    /// What somebody tells who knows the same and hears no majority.
    pub(super) fn beat(&self) -> Beat {
        let (members, claims) = self.bus.digests();
        let voters = self.bus.voters.short_fingerprint();
        Beat { members, claims, voters, quorum_age: Beat::AGE_MAX, you_failed: None }
    }

    /// What was handed out lies on the drive.
    pub(super) fn store(&mut self) {
        let now = self.now();
        if let Some((ticket, _)) = self.unstored.take() {
            self.bus.handle_persisted(now, ticket);
            self.drain();
        }
    }

    /// Lets time pass, with a tick whenever one is due.
    pub(super) fn pass(&mut self, ms: u64) {
        self.drain();
        let end = self.ms + ms;
        let mut last = (0, 0);
        loop {
            let due = self.bus.next_tick().as_nanos().div_ceil(1_000_000);
            self.ms = self.ms.max(due.saturating_sub(START_MS)).min(end);
            if due > START_MS + end {
                return;
            }
            last = (due, if last.0 == due { last.1 + 1 } else { 0 });
            assert!(last.1 < 5, "a tick that is due again at once would never end");
            let now = self.now();
            self.bus.handle_tick(now);
            self.drain();
        }
    }

    pub(super) fn take_sent(&mut self) -> Vec<(u8, Body)> {
        core::mem::take(&mut self.sent)
    }

    /// To whom it has sent what is like this since somebody looked, sorted.
    pub(super) fn sent_to(&mut self, is_it: impl Fn(&Body) -> bool) -> Vec<u8> {
        let mut to: Vec<u8> = self.take_sent().iter().filter(|(_, body)| is_it(body)).map(|(to, _)| *to).collect();
        to.sort_unstable();
        to
    }

    pub(super) fn probed(&mut self) -> Vec<u8> {
        self.sent_to(|body| matches!(body, Body::Probe(..)))
    }

    pub(super) fn has(&self, event: &Event) -> bool {
        self.events.contains(event)
    }
}

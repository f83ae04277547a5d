//! A few members in virtual time, on a network that delays, loses, cuts and replays as the test wants.

mod ballots;
mod commands;
mod departures;
mod governing;
mod handovers;
mod membership;
mod refusals;
mod scripted;
mod shown;
mod single;
mod spreading;
mod standing;
mod storing;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use alloc::format;
use core::time::Duration;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::time::Instant;

use super::Bus;
use crate::chance::Chance;
use crate::config::{Config, Identity};
use crate::event::{Command, CopyState, Event, Output, Ticket};
use crate::slot::{GroupId, SLOTS, Slot, SlotRange, Zone};

/// What happens at a time: to whom, then what.
enum Due {
    Packet { to: u8, from: u8, bytes: Vec<u8> },
    Persisted { at: u8, life: u64, ticket: Ticket, bytes: Vec<u8> },
}

/// One server: its bus while it runs, and what lies on its drive.
struct Server {
    bus: Option<Bus>,
    life: u64,
    saved: Option<Vec<u8>>,
    events: Vec<(u64, Event)>,
}

/// A network of servers with the numbers from 1.
struct Net {
    config: Config,
    servers: BTreeMap<u8, Server>,
    queue: BTreeMap<(u64, u64), Due>,
    count: u64,
    /// Milliseconds since the beginning.
    ms: u64,
    chance: Chance,
    /// Directed links that pass nothing.
    cuts: BTreeSet<(u8, u8)>,
    /// Of a thousand packets.
    lost: usize,
    /// How long a drive takes, ms.
    persist_ms: u64,
    /// All packets that were delivered, for those who replay them.
    record: Option<Vec<(u8, u8, Vec<u8>)>>,
}

const START_MS: u64 = 1_000_000;

fn id(number: u8) -> ServerId {
    ServerId::from_bytes([number; 16])
}

fn number(id: ServerId) -> u8 {
    id.as_bytes()[0]
}

const fn group(number: u64) -> GroupId {
    GroupId(number)
}

impl Net {
    fn new(count: u8) -> Self {
        Self::with(count, Config { member_timeout: Duration::from_secs(5), ..Config::default() })
    }

    fn with(count: u8, config: Config) -> Self {
        let mut net = Self {
            config,
            servers: BTreeMap::new(),
            queue: BTreeMap::new(),
            count: 0,
            ms: 0,
            chance: Chance::new(42),
            cuts: BTreeSet::new(),
            lost: 0,
            persist_ms: 3,
            record: None,
        };
        (1..=count).for_each(|number| net.start(number));
        net
    }

    fn now(&self) -> Instant {
        Instant::from_nanos((START_MS + self.ms) * 1_000_000)
    }

    /// Starts a server, with what lies on its drive.
    fn start(&mut self, number: u8) {
        let server =
            self.servers.entry(number).or_insert(Server { bus: None, life: 0, saved: None, events: Vec::new() });
        server.life += 1;
        let identity = Identity {
            cluster: ClusterId::from_bytes([9; 16]),
            server: id(number),
            incarnation: Incarnation(server.life),
            zone: Zone(u32::from(number % 3) + 1),
            address: format!("server-{number}:{}", server.life),
        };
        let saved = server.saved.clone();
        let now = Instant::from_nanos((START_MS + self.ms) * 1_000_000);
        let config = Config { founds: self.config.founds && number == 1, ..self.config.clone() };
        let bus = Bus::new(config, identity, saved.as_deref(), u64::from(number) * 77 + server.life, now);
        server.bus = Some(bus.expect("what was saved is whole"));
        self.drain(number);
    }

    /// Kills a server: what was not stored is gone.
    fn kill(&mut self, number: u8) {
        self.servers.get_mut(&number).unwrap().bus = None;
    }

    fn bus(&self, number: u8) -> &Bus {
        self.servers[&number].bus.as_ref().expect("it runs")
    }

    fn running(&self) -> Vec<u8> {
        self.servers.iter().filter(|(_, server)| server.bus.is_some()).map(|(number, _)| *number).collect()
    }

    #[track_caller]
    fn command(&mut self, number: u8, command: Command) {
        self.try_command(number, command).unwrap();
    }

    fn try_command(&mut self, number: u8, command: Command) -> Result<(), crate::CommandError> {
        let now = self.now();
        let done = self.servers.get_mut(&number).unwrap().bus.as_mut().unwrap().handle_command(now, command);
        self.drain(number);
        done
    }

    fn push(&mut self, delay_ms: u64, due: Due) {
        self.count += 1;
        self.queue.insert((self.ms + delay_ms, self.count), due);
    }

    fn drain(&mut self, from: u8) {
        loop {
            let ms = self.ms;
            let server = self.servers.get_mut(&from).unwrap();
            let Some(output) = server.bus.as_mut().and_then(Bus::poll_output) else { break };
            match output {
                Output::Send { to, bytes } => {
                    assert!(bytes.len() <= self.config.packet_bytes_max, "{} bytes", bytes.len());
                    let to = number(to);
                    let is_lost = self.cuts.contains(&(from, to)) || self.chance.below(1_000) < self.lost;
                    if !is_lost {
                        let delay = 1 + u64::try_from(self.chance.below(3)).unwrap();
                        self.push(delay, Due::Packet { to, from, bytes });
                    }
                }
                Output::Persist { ticket, bytes } => {
                    let life = server.life;
                    self.push(self.persist_ms, Due::Persisted { at: from, life, ticket, bytes });
                }
                Output::Event(event) => server.events.push((ms, event)),
            }
        }
    }

    fn deliver(&mut self, due: Due) {
        let now = self.now();
        let at = match due {
            Due::Packet { to, from, bytes } => {
                let Some(bus) = self.servers.get_mut(&to).and_then(|server| server.bus.as_mut()) else { return };
                bus.handle_packet(now, id(from), &bytes);
                self.record.iter_mut().for_each(|record| record.push((to, from, bytes.clone())));
                to
            }
            Due::Persisted { at, life, ticket, bytes } => {
                let Some(server) = self.servers.get_mut(&at).filter(|server| server.life == life) else { return };
                // A server that was killed meanwhile may or may not have stored it; here it has not.
                let Some(bus) = server.bus.as_mut() else { return };
                server.saved = Some(bytes);
                bus.handle_persisted(now, ticket);
                at
            }
        };
        self.drain(at);
    }

    /// Lets time pass.
    fn run(&mut self, ms: u64) {
        let end = self.ms + ms;
        while self.ms < end {
            self.ms += 1;
            while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= self.ms) {
                let due = entry.remove();
                self.deliver(due);
            }
            let now = self.now();
            for number in self.running() {
                for again in 0.. {
                    let bus = self.servers.get_mut(&number).unwrap().bus.as_mut().unwrap();
                    if bus.next_tick() > now {
                        break;
                    }
                    assert!(again < 3, "a tick that is due again at once would never end");
                    bus.handle_tick(now);
                    self.drain(number);
                }
            }
        }
    }

    /// Lets time pass until something is so; how long that took, ms.
    #[track_caller]
    fn run_until(&mut self, limit_ms: u64, what: &str, is_so: impl Fn(&Self) -> bool) -> u64 {
        let start = self.ms;
        while !is_so(self) {
            assert!(self.ms < start + limit_ms, "not within {limit_ms} ms: {what}");
            self.run(1);
        }
        self.ms - start
    }

    fn has_event(&self, number: u8, is_it: impl Fn(&Event) -> bool) -> bool {
        self.servers[&number].events.iter().any(|(_, event)| is_it(event))
    }

    fn cut(&mut self, one: &[u8], other: &[u8]) {
        for from in one {
            for to in other {
                self.cuts.extend([(*from, *to), (*to, *from)]);
            }
        }
    }

    /// All that run know the same.
    fn agrees(&self) -> bool {
        let digests: BTreeSet<_> = self.running().iter().map(|number| self.bus(*number).digests()).collect();
        digests.len() == 1
    }

    /// Introduces all to the first, and waits until they know each other.
    #[track_caller]
    fn introduce(&mut self) {
        for number in self.running().into_iter().skip(1) {
            let address = format!("server-{number}");
            self.command(1, Command::Meet { id: id(number), address });
        }
        let count = self.servers.len();
        self.run_until(3_000, "all know each other", |net| {
            net.running().iter().all(|number| net.bus(*number).members().count() == count)
        });
    }

    /// Slots spread over `primaries`, group n to server n; `voters` vote.
    #[track_caller]
    fn share_slots(&mut self, primaries: &[u8], voters: &[u8]) {
        let count = u16::try_from(primaries.len()).unwrap();
        for (index, primary) in (0_u16..).zip(primaries) {
            let bound = |index: u32| u16::try_from(u32::from(SLOTS) * index / u32::from(count)).unwrap();
            let (first, after) = (bound(index.into()), bound(u32::from(index) + 1));
            let slots = std::vec![SlotRange::new(first, after - 1).unwrap()];
            self.command(*primary, Command::Claim { group: group((*primary).into()), slots });
        }
        let voters = voters.iter().map(|number| id(*number)).collect();
        self.command(1, Command::SetVoters { epoch: Epoch(1), voters });
        self.run_until(5_000, "all primaries may write", |net| {
            net.agrees() && primaries.iter().all(|number| net.bus(*number).may_write(group((*number).into())))
        });
    }

    #[track_caller]
    fn follow(&mut self, replica: u8, of: u64) {
        self.command(replica, Command::Follow { group: group(of) });
        self.command(replica, Command::Offset { group: group(of), offset: 0, copy: CopyState::Current });
        self.run_until(2_000, "the replica is known", |net| {
            net.running().iter().all(|number| {
                net.bus(*number).member(id(replica)).is_some_and(|member| member.follows.contains(&group(of)))
            })
        });
    }

    /// The owner of a group's slots as `at` sees it, with the epoch.
    fn primary(&self, at: u8, of: u64) -> (u8, u64) {
        let (owner, epoch) = self.bus(at).primary(group(of)).expect("the group is known");
        (number(owner), epoch.0)
    }

    fn writer(&self, of: u64) -> Option<u8> {
        let writers: Vec<u8> =
            self.running().into_iter().filter(|number| self.bus(*number).may_write(group(of))).collect();
        assert!(writers.len() <= 1, "group {of} is written by {writers:?}");
        writers.first().copied()
    }

    /// Everybody agrees who owns each slot.
    fn owner_of(&self, at: u8, slot: u16) -> Option<u8> {
        self.bus(at).owner(Slot::new(slot).unwrap()).map(|(_, owner, _)| number(owner))
    }
}

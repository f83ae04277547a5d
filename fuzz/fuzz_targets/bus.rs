//! The bus: a packet is refused or is written again as the same; a saved record likewise; and one member under any order
//! of packets, time, commands and restarts never panics, never goes back in epochs, and stays within its limits.
#![no_main]

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_bus::event::{Departure, How};
use ashlar_bus::packet::{self, Body, Header};
use ashlar_bus::saved::Saved;
use ashlar_bus::slot::{GroupId, SlotRange, Zone};
use ashlar_bus::{Bus, Command, Config, Identity, Output, Ticket};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::time::Instant;
use libfuzzer_sys::arbitrary::{self, Arbitrary};

const CLUSTER: ClusterId = ClusterId::from_bytes([1; 16]);
const DEEDS_MAX: usize = 200;
/// Outputs of one deed. The longest answer is that to a sync.
const OUTPUTS_MAX: usize = 2_000;

/// What happens to the member.
#[derive(Debug, Arbitrary)]
enum Deed {
    /// Bytes from a server.
    Raw {
        from: u8,
        bytes: Vec<u8>,
    },
    /// A packet that passes the header's checks: the body's kind and bytes are free.
    Packet {
        from: u8,
        incarnation: u8,
        kind: u8,
        body: Vec<u8>,
    },
    /// An own packet comes back in another's name.
    Echo {
        from: u8,
        which: u8,
    },
    Wait {
        ms: u16,
    },
    Stored,
    Meet(u8),
    Forget(u8),
    Claim {
        group: u8,
        first: u16,
        last: u16,
    },
    Release {
        group: u8,
        first: u16,
        last: u16,
    },
    Follow(u8),
    Unfollow(u8),
    Offset {
        group: u8,
        offset: u64,
    },
    Failover {
        group: u8,
        how: u8,
    },
    SetVoters {
        epoch: u8,
        voters: Vec<u8>,
    },
    Publish {
        channel: u8,
        subscribe: bool,
    },
    Depart(u8),
    Restart {
        forgets: bool,
    },
}

#[derive(Debug, Arbitrary)]
struct Input {
    seed: u64,
    noise: Vec<u8>,
    deeds: Vec<Deed>,
}

fn id(number: u8) -> ServerId {
    ServerId::from_bytes([number % 8; 16])
}

fn group(number: u8) -> GroupId {
    GroupId((number % 4).into())
}

fn config() -> Config {
    Config {
        member_timeout: Duration::from_secs(2),
        members_max: 6,
        groups_max: 3,
        keep_outs_max: 2,
        ..Config::default()
    }
}

/// One member, its drive, and what it promised.
struct Rig {
    bus: Bus,
    now: Instant,
    life: u64,
    seed: u64,
    stored: Option<Vec<u8>>,
    pending: Option<(Ticket, Vec<u8>)>,
    sent: Vec<Vec<u8>>,
    sequences: BTreeMap<u8, u32>,
}

fn start(life: u64, seed: u64, stored: Option<&[u8]>, now: Instant) -> Bus {
    let identity = Identity {
        cluster: CLUSTER,
        server: id(0),
        incarnation: Incarnation(life),
        zone: Zone(1),
        address: String::from("here"),
    };
    Bus::new(config(), identity, stored, seed, now).expect("what it saved is its own memory")
}

impl Rig {
    fn new(seed: u64) -> Self {
        let now = Instant::from_nanos(1 << 40);
        let bus = start(1, seed, None, now);
        let (sent, sequences) = (Vec::new(), BTreeMap::new());
        let mut rig = Self { bus, now, life: 1, seed, stored: None, pending: None, sent, sequences };
        rig.drain();
        rig
    }

    fn drain(&mut self) {
        for outputs in 0.. {
            let Some(output) = self.bus.poll_output() else { break };
            assert!(outputs < OUTPUTS_MAX, "one deed has bounded consequences");
            match output {
                Output::Send { to, bytes } => {
                    assert_ne!(to, id(0), "nobody writes to himself");
                    assert!(bytes.len() <= config().packet_bytes_max);
                    let (header, body) = packet::decode(&bytes, CLUSTER, &config()).expect("what is sent can be read");
                    assert_eq!(packet::encode(CLUSTER, header, &body), bytes);
                    if self.sent.len() < 256 {
                        self.sent.push(bytes);
                    }
                }
                Output::Persist { ticket, bytes } => {
                    assert!(self.pending.is_none(), "one version is under way at a time");
                    self.pending = Some((ticket, bytes));
                }
                Output::Event(_) => {}
            }
        }
        assert!(self.bus.members().count() <= config().members_max);
        assert!(self.bus.groups().count() <= config().groups_max);
    }

    fn receive(&mut self, from: u8, bytes: &[u8]) {
        self.bus.handle_packet(self.now, id(from), bytes);
    }

    fn packet(&mut self, from: u8, incarnation: u8, kind: u8, body: &[u8]) {
        let sequence = self.sequences.entry(from % 8).or_default();
        *sequence += 1;
        let header = Header { incarnation: Incarnation(incarnation.into()), sequence: *sequence };
        let mut bytes = packet::encode(CLUSTER, header, &Body::News(Vec::new()));
        bytes[1] = kind % 22;
        bytes.extend_from_slice(body);
        self.receive(from, &bytes);
    }

    fn wait(&mut self, ms: u16) {
        let end = self.now + Duration::from_millis(ms.into());
        for _ in 0..200 {
            if self.bus.next_tick() > end {
                break;
            }
            self.now = self.now.max(self.bus.next_tick());
            self.bus.handle_tick(self.now);
            self.drain();
        }
        self.now = self.now.max(end);
    }

    fn restart(&mut self, forgets: bool) {
        self.life += 1;
        // Whatever was under way is stored after all.
        self.stored = self.pending.take().map(|(_, bytes)| bytes).or(self.stored.take()).filter(|_| !forgets);
        let stored = self.stored.clone();
        self.bus = start(self.life, self.seed, stored.as_deref(), self.now);
        self.sequences.clear();
        let memory =
            stored.map(|bytes| Saved::decode(&bytes, self.bus.identity(), &config()).expect("it was restored"));
        for (group, given) in memory.into_iter().flat_map(|memory| memory.votes) {
            assert!(self.bus.voted_epoch(group) >= given.epoch, "votes are remembered");
        }
    }

    fn command(&mut self, command: Command) {
        let _ = self.bus.handle_command(self.now, command);
    }

    fn run(&mut self, deed: &Deed) {
        let epoch = self.bus.current_epoch();
        let ranges = |first: u16, last: u16| SlotRange::new(first, last).into_iter().collect::<Vec<_>>();
        match deed {
            Deed::Raw { from, bytes } => self.receive(*from, bytes),
            Deed::Packet { from, incarnation, kind, body } => self.packet(*from, *incarnation, *kind, body),
            Deed::Echo { from, which } => {
                if let Some(bytes) = self.sent.get(usize::from(*which)).cloned() {
                    self.receive(*from, &bytes);
                }
            }
            Deed::Wait { ms } => self.wait(*ms),
            Deed::Stored => {
                if let Some((ticket, bytes)) = self.pending.take() {
                    self.stored = Some(bytes);
                    self.bus.handle_persisted(self.now, ticket);
                }
            }
            Deed::Meet(who) => self.command(Command::Meet { id: id(*who), address: String::from("there") }),
            Deed::Forget(who) => self.command(Command::Forget { id: id(*who) }),
            Deed::Claim { group: which, first, last } => {
                self.command(Command::Claim { group: group(*which), slots: ranges(*first, *last) });
            }
            Deed::Release { group: which, first, last } => {
                self.command(Command::Release { group: group(*which), slots: ranges(*first, *last) });
            }
            Deed::Follow(which) => self.command(Command::Follow { group: group(*which) }),
            Deed::Unfollow(which) => self.command(Command::Unfollow { group: group(*which) }),
            Deed::Offset { group: which, offset } => {
                self.command(Command::Offset {
                    group: group(*which),
                    offset: *offset,
                    copy: ashlar_bus::event::CopyState::Current,
                });
            }
            Deed::Failover { group: which, how } => {
                let how = [How::Agreed, How::Forced, How::Takeover][usize::from(how % 3)];
                self.command(Command::Failover { group: group(*which), how });
            }
            Deed::SetVoters { epoch, voters } => {
                let voters = voters.iter().take(10).map(|number| id(*number)).collect();
                self.command(Command::SetVoters { epoch: Epoch((*epoch).into()), voters });
            }
            Deed::Publish { channel, subscribe } => {
                let channel = vec![*channel];
                if *subscribe {
                    self.command(Command::Subscribe { channel: channel.clone() });
                }
                self.command(Command::Publish { channel, message: vec![1] });
            }
            Deed::Depart(how) => {
                let how = [Departure::Stays, Departure::Leaves, Departure::Left][usize::from(how % 3)];
                self.command(Command::Depart(how));
            }
            Deed::Restart { forgets } => return self.restart(*forgets),
        }
        assert!(self.bus.current_epoch() >= epoch, "epochs never go back");
    }
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    if let Ok((header, body)) = packet::decode(&input.noise, CLUSTER, &Config::default()) {
        let again = packet::encode(CLUSTER, header, &body);
        assert_eq!(packet::decode(&again, CLUSTER, &Config::default()), Ok((header, body)));
    }
    let identity = Identity {
        cluster: CLUSTER,
        server: id(0),
        incarnation: Incarnation(1),
        zone: Zone(0),
        address: String::new(),
    };
    if let Ok(saved) = Saved::decode(&input.noise, &identity, &Config::default()) {
        assert_eq!(Saved::decode(&saved.encode(), &identity, &Config::default()), Ok(saved));
    }
    let mut rig = Rig::new(input.seed);
    for deed in input.deeds.iter().take(DEEDS_MAX) {
        rig.run(deed);
        rig.drain();
    }
});

//! Thousands of real [`Bus`] values on fake time: packets, ticks and writes, one after another.
//!
//! No task, no future: a member is a value, and the world calls it when something is due. Everything follows from the
//! seed; [`World::event_hash`] proves it. What happens is shown to a [`Watch`], which sees it before anyone else does.
//!
//! Not here: the grid below the bus (its connections, its order of bytes). A packet is on its own, as the bus is told
//! to expect.

use std::collections::BTreeMap;

use ashlar_bus::packet::{Body, decode};
use ashlar_bus::slot::{GroupId, Zone};
use ashlar_bus::{Bus, Command, CommandError, Config, Event, Identity, Output, RestoreError, Ticket};
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::time::Instant;

use super::clock::MemberClock;
use super::journal::Journal;
use super::member::{Disk, HELD_MAX, Member, Traffic};
use super::net::{Fate, Links, Net};
use super::queue::Queue;
use crate::rng::Rng;

/// Members of one world.
pub const MEMBERS_MAX: u32 = 10_000;

/// Outputs of one call of a bus: more is a bus that never stops talking.
const OUTPUTS_MAX: usize = 1 << 20;

/// What a world is like.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// Where everything comes from.
    pub seed: u64,
    /// How many members there are; none runs yet.
    pub members: u32,
    /// How many of them, the last ones, belong to another cluster.
    pub strangers: u32,
    /// The zone of each member.
    pub zones: Vec<Zone>,
    /// Where the members' ids come from: clusters with the same one may take each other's disks.
    pub ids_seed: u64,
    /// What every link is like.
    pub links: Links,
    /// The longest that a write takes; drawn evenly for each.
    pub persist_ns_max: u64,
    /// The rates of the members' clocks differ by up to this much from the world's.
    pub rate_ppm_max: i32,
    /// How the bus of each member is set up.
    pub config: Config,
    /// The rule that members break, if one is to be broken.
    #[cfg(feature = "planted")]
    pub planted: Option<ashlar_bus::planted::Planted>,
    /// Lines of the tail that are kept.
    pub tail_max: usize,
}

/// One member at one moment, for who watches.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// World time.
    pub now_ns: u64,
    /// The member's own time.
    pub now: Instant,
    /// Which member.
    pub member: u32,
    /// Its bus.
    pub bus: &'a Bus,
    /// What is on its stable storage.
    pub durable: Option<&'a [u8]>,
}

/// Why a packet ought to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Odd {
    /// The same one came before, in the same life of the receiver.
    Copy,
    /// Its sender has begun another life since, and the receiver knows.
    EarlierLife,
}

impl Odd {
    /// The same in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Copy => "it has taken before",
            Self::EarlierLife => "comes from an earlier life of its sender",
        }
    }
}

/// Who sees what happens. Members are called by their numbers.
pub trait Watch {
    /// A life begins.
    fn started(&mut self, _scene: &Scene<'_>) {}
    /// A life has ended.
    fn stopped(&mut self, _now_ns: u64, _member: u32) {}
    /// A member is frozen, or goes on.
    fn paused(&mut self, _now_ns: u64, _member: u32, _paused: bool) {}
    /// One fault more or fewer lies on the way from one member to another.
    fn way(&mut self, _now_ns: u64, _from: u32, _to: u32, _is_open: bool) {}
    /// A member's bus told of something.
    fn event(&mut self, _scene: &Scene<'_>, _event: &Event) {}
    /// A member has handled a packet that it ought to refuse; whether it did.
    fn odd(&mut self, _scene: &Scene<'_>, _odd: Odd, _refused: bool) {}
    /// A member has handled something and said all that it has to say about it.
    fn settled(&mut self, _scene: &Scene<'_>) {}
    /// Whether the run is to stop here.
    fn is_over(&self) -> bool {
        false
    }
}

/// What is known of a packet since it was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    /// The life of the sender then.
    life: u32,
    /// The number of a packet that was doubled.
    twin: Option<u64>,
}

/// What is due.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    Packet { from: u32, to: u32, bytes: Vec<u8>, sent: Sent },
    Tick { member: u32, life: u32 },
    Persisted { member: u32, life: u32, ticket: Ticket },
}

impl Entry {
    fn member(&self) -> u32 {
        match self {
            Self::Packet { to, .. } => *to,
            Self::Tick { member, .. } | Self::Persisted { member, .. } => *member,
        }
    }
}

/// Members, the network between them, and what is due. A clone goes on from the same moment.
#[derive(Debug, Clone)]
pub struct World<W> {
    options: WorldOptions,
    now_ns: u64,
    queue: Queue<Entry>,
    net: Net,
    members: Vec<Member>,
    journal: Journal,
    chance: Rng,
    /// Packets that were doubled.
    twins: u64,
    /// Doubled packets of which one was taken, and in which life of the receiver.
    taken: BTreeMap<u64, u32>,
    watch: W,
}

/// The cluster that all members belong to.
const CLUSTER: ClusterId = ClusterId::from_bytes(*b"a simulated one.");

/// The cluster of strangers.
const OTHER_CLUSTER: ClusterId = ClusterId::from_bytes(*b"of other people.");

impl<W: Watch> World<W> {
    /// A world in which nobody runs yet.
    ///
    /// # Panics
    /// If there are no members, or more than [`MEMBERS_MAX`].
    pub fn new(options: WorldOptions, watch: W) -> Self {
        assert!((1..=MEMBERS_MAX).contains(&options.members), "a world has members, but not too many");
        assert_eq!(options.zones.len(), options.members as usize, "every member has a zone");
        let (rng, ids) = (Rng::new(options.seed), Rng::new(options.ids_seed));
        let members = options.zones.iter().zip(0..).map(|(zone, no)| new_member(no, *zone, &ids)).collect();
        Self {
            now_ns: 0,
            queue: Queue::new(),
            net: Net::new(options.links, rng.fork("net", 0), options.members),
            members,
            journal: Journal::new(options.tail_max),
            chance: rng.fork("chance", 0),
            twins: 0,
            taken: BTreeMap::new(),
            watch,
            options,
        }
    }

    /// World time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The hash of everything that happened so far.
    pub fn event_hash(&self) -> u64 {
        self.journal.hash()
    }

    /// How much happened so far.
    pub fn events(&self) -> u64 {
        self.journal.steps()
    }

    /// The last steps in words.
    pub fn tail(&self) -> Vec<String> {
        self.journal.tail()
    }

    /// Who watches.
    pub fn watch(&self) -> &W {
        &self.watch
    }

    /// Who watches.
    pub fn watch_mut(&mut self) -> &mut W {
        &mut self.watch
    }

    /// How many members there are, running or not.
    pub fn members(&self) -> u32 {
        self.options.members
    }

    /// The id of a member.
    pub fn id(&self, member: u32) -> ServerId {
        self.members[member as usize].id
    }

    /// The cluster of a member.
    pub fn cluster(&self, member: u32) -> ClusterId {
        if member < self.options.members - self.options.strangers { CLUSTER } else { OTHER_CLUSTER }
    }

    /// The zone of a member.
    pub fn zone(&self, member: u32) -> Zone {
        self.members[member as usize].zone
    }

    /// The bus of a member that runs.
    pub fn bus(&self, member: u32) -> Option<&Bus> {
        self.members[member as usize].bus.as_ref()
    }

    /// Whether a member is frozen.
    pub fn is_paused(&self, member: u32) -> bool {
        self.members[member as usize].paused
    }

    /// What the clock of a member shows at a world time of its present life.
    pub fn local(&self, member: u32, world_ns: u64) -> Instant {
        self.members[member as usize].clock.local(world_ns)
    }

    /// Whether packets from one reach the other, but for chance.
    pub fn is_open(&self, from: u32, to: u32) -> bool {
        self.net.is_open(from, to)
    }

    /// What every link is like.
    pub fn links(&self) -> Links {
        self.net.links()
    }

    /// Makes every link so.
    pub fn set_links(&mut self, links: Links) {
        self.net.set_links(links);
    }

    /// One more cut from `from` to `to`.
    pub fn cut(&mut self, from: u32, to: u32) {
        self.journal.tell(self.now_ns, || format!("cut {from} -> {to}"));
        self.net.cut(from, to);
        self.watch.way(self.now_ns, from, to, false);
    }

    /// One cut fewer from `from` to `to`.
    pub fn heal(&mut self, from: u32, to: u32) {
        self.journal.tell(self.now_ns, || format!("heal {from} -> {to}"));
        self.net.heal(from, to);
        self.watch.way(self.now_ns, from, to, true);
    }

    /// Members of different sides no longer reach each other; an empty list joins all.
    pub fn set_sides(&mut self, sides: Vec<u8>) {
        self.net.set_sides(sides);
    }

    /// What each member has sent since the last call.
    pub fn take_traffic(&mut self) -> Vec<Traffic> {
        self.members.iter_mut().map(|member| core::mem::take(&mut member.traffic)).collect()
    }

    /// Puts what a member has counted into the tail.
    pub fn tell_counters(&mut self, member: u32) {
        if let Some(bus) = self.members[member as usize].bus.as_ref() {
            self.journal.tell(self.now_ns, || {
                let all = format!("{:?}", bus.counters());
                let counted: Vec<&str> = all.split(", ").filter(|count| !count.ends_with(": 0")).collect();
                format!("{member} counted {}", counted.join(", "))
            });
        }
    }

    /// Words for the tail, hashed like everything else.
    pub fn note(&mut self, words: impl FnOnce() -> String) {
        self.journal.step(self.now_ns, 0, 0);
        self.journal.tell(self.now_ns, words);
    }
}

impl<W: Watch> World<W> {
    /// A new life of a member that does not run, from what its disk holds.
    ///
    /// # Errors
    /// The bus does not take back what it had written itself.
    pub fn start(&mut self, member: u32) -> Result<(), RestoreError> {
        let at = member as usize;
        assert!(self.members[at].bus.is_none(), "a member lives one life at a time");
        let mut rng =
            Rng::new(self.options.seed).fork("life", u64::from(member) << 32 | u64::from(self.members[at].life));
        let ppm =
            rng.within(0..=2 * u64::from(self.options.rate_ppm_max.unsigned_abs())) as i32 - self.options.rate_ppm_max;
        let clock = MemberClock::new(self.now_ns, rng.below(1 << 45), ppm);
        let cluster = self.cluster(member);
        let slot = &mut self.members[at];
        slot.incarnation += 1;
        slot.clock = clock;
        slot.tick_at_ns = u64::MAX;
        let identity = Identity {
            cluster,
            server: slot.id,
            incarnation: Incarnation(slot.incarnation),
            zone: slot.zone,
            address: address_of(member),
        };
        let saved = slot.disk.durable.as_deref();
        let seed = rng.next_u64();
        let config = Config { founds: self.options.config.founds && member == 0, ..self.options.config.clone() };
        let now = clock.local(self.now_ns);
        #[cfg(not(feature = "planted"))]
        let bus = Bus::new(config, identity, saved, seed, now)?;
        #[cfg(feature = "planted")]
        let bus = match self.options.planted {
            Some(bug) => Bus::new_planted(config, identity, saved, seed, now, bug)?,
            None => Bus::new(config, identity, saved, seed, now)?,
        };
        slot.bus = Some(bus);
        self.journal.step(self.now_ns, 1, u64::from(member));
        self.journal.tell(self.now_ns, || format!("{member} starts, clock {ppm} ppm"));
        self.watch.started(&self.members[at].scene(self.now_ns, member));
        self.settle(member);
        Ok(())
    }

    /// Ends a life at once. Writes that were under way may have reached the disk or not.
    pub fn crash(&mut self, member: u32) {
        let slot = &mut self.members[member as usize];
        assert!(slot.bus.take().is_some(), "only what runs can crash");
        slot.life += 1;
        if core::mem::take(&mut slot.paused) {
            self.watch.paused(self.now_ns, member, false);
        }
        slot.held.clear();
        let kept = self.chance.below(slot.disk.writing.len() as u64 + 1) as usize;
        slot.disk.crash(kept);
        self.journal.step(self.now_ns, 2, u64::from(member));
        self.journal.tell(self.now_ns, || format!("{member} crashes, {kept} unfinished writes survive"));
        self.watch.stopped(self.now_ns, member);
    }

    /// The disk of a member that does not run is lost with all that it held.
    pub fn lose_disk(&mut self, member: u32) {
        let slot = &mut self.members[member as usize];
        assert!(slot.bus.is_none(), "a disk is lost between two lives");
        slot.disk = Disk::default();
        self.journal.step(self.now_ns, 3, u64::from(member));
        self.journal.tell(self.now_ns, || format!("{member} loses its disk"));
    }

    /// One bit of what a member that does not run has on its disk flips, if it has anything.
    ///
    /// Returns whether it had.
    pub fn damage_disk(&mut self, member: u32, bit: u64) -> bool {
        let slot = &mut self.members[member as usize];
        assert!(slot.bus.is_none(), "a disk is damaged between two lives");
        let Some(bytes) = slot.disk.durable.as_mut().filter(|bytes| !bytes.is_empty()) else { return false };
        let bit = bit % (bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        self.journal.step(self.now_ns, 8, bit);
        self.journal.tell(self.now_ns, || format!("bit {bit} on the disk of {member} flips"));
        true
    }

    /// Gives a member that has never run a memory.
    pub fn remember(&mut self, member: u32, saved: Vec<u8>) {
        let slot = &mut self.members[member as usize];
        assert_eq!(slot.incarnation, 0, "a memory is given before the first life");
        slot.disk.durable = Some(saved);
    }

    /// From now on chance comes from another seed: for clones, which are to go different ways.
    pub fn reseed(&mut self, seed: u64) {
        let rng = Rng::new(seed);
        self.options.seed = seed;
        self.net.reseed(rng.fork("net", 0));
        self.chance = rng.fork("chance", 0);
        for (no, bus) in (0..).zip(&mut self.members).filter_map(|(no, member)| Some((no, member.bus.as_mut()?))) {
            bus.reseed(rng.fork("reseed", no).next_u64());
        }
        self.journal.step(self.now_ns, 9, seed);
    }

    /// Freezes a member: what comes is held.
    pub fn pause(&mut self, member: u32) {
        let slot = &mut self.members[member as usize];
        if slot.bus.is_none() || slot.paused {
            return;
        }
        slot.paused = true;
        self.watch.paused(self.now_ns, member, true);
        self.journal.tell(self.now_ns, || format!("{member} pauses"));
    }

    /// A frozen member goes on, with all that was held.
    pub fn resume(&mut self, member: u32) {
        let slot = &mut self.members[member as usize];
        if !slot.paused {
            return;
        }
        slot.paused = false;
        self.watch.paused(self.now_ns, member, false);
        for entry in slot.held.drain(..) {
            self.queue.push(self.now_ns, entry);
        }
        self.journal.tell(self.now_ns, || format!("{member} resumes"));
    }

    /// Tells the bus of a member that runs what to do.
    ///
    /// # Errors
    /// The bus refuses.
    pub fn command(&mut self, member: u32, command: Command) -> Result<(), CommandError> {
        self.journal.step(self.now_ns, 4, u64::from(member));
        self.journal.tell(self.now_ns, || format!("{member} is told {command:?}"));
        let slot = &mut self.members[member as usize];
        let now = slot.clock.local(self.now_ns);
        let done = slot.bus.as_mut().expect("only what runs takes commands").handle_command(now, command);
        if let Err(error) = &done {
            self.journal.tell(self.now_ns, || format!("{member} refuses: {error}"));
        }
        self.settle(member);
        done
    }

    /// Runs until the world's clock shows `at_ns`, or the watch says that it is over.
    pub fn run_until(&mut self, at_ns: u64) {
        while self.queue.next_at_ns().is_some_and(|next_ns| next_ns <= at_ns) {
            let (due_ns, entry) = self.queue.pop().expect("it has just been seen");
            self.now_ns = due_ns;
            self.take(entry);
            if self.watch.is_over() {
                return;
            }
        }
        self.now_ns = self.now_ns.max(at_ns);
    }

    /// Whom packets to `id` reach.
    pub fn number_of(&self, id: ServerId) -> Option<u32> {
        number_of(id).filter(|no| self.members.get(*no as usize).is_some_and(|member| member.id == id))
    }

    fn take(&mut self, entry: Entry) {
        let member = entry.member();
        let slot = &mut self.members[member as usize];
        if slot.bus.is_none() {
            return;
        }
        if slot.paused {
            if slot.held.len() < HELD_MAX || !matches!(entry, Entry::Packet { .. }) {
                slot.held.push_back(entry);
            }
            return;
        }
        let now = slot.clock.local(self.now_ns);
        let bus = slot.bus.as_mut().expect("it runs");
        match entry {
            Entry::Packet { from, bytes, sent, .. } => {
                self.journal.step(self.now_ns, 5, u64::from(from) << 32 | u64::from(member));
                self.journal.bytes(&bytes);
                self.deliver(now, from, member, &bytes, sent);
            }
            Entry::Tick { life, .. } => {
                if life != slot.life || slot.tick_at_ns > self.now_ns {
                    return;
                }
                slot.tick_at_ns = u64::MAX;
                if bus.next_tick() > now {
                    return self.schedule(member);
                }
                self.journal.step(self.now_ns, 6, u64::from(member));
                bus.handle_tick(now);
            }
            Entry::Persisted { life, ticket, .. } => {
                if life != slot.life {
                    return;
                }
                slot.disk.complete(ticket);
                self.journal.step(self.now_ns, 7, u64::from(member));
                bus.handle_persisted(now, ticket);
            }
        }
        self.settle(member);
    }

    fn deliver(&mut self, now: Instant, from: u32, to: u32, bytes: &[u8], sent: Sent) {
        let (sender, life) = (self.members[from as usize].id, self.members[from as usize].life);
        let slot = &mut self.members[to as usize];
        let bus = slot.bus.as_mut().expect("it runs");
        let is_copy = sent.twin.is_some_and(|twin| self.taken.remove(&twin) == Some(slot.life));
        let was_odd = is_copy || sent.life != life;
        let odd = was_odd.then(|| why_odd(bus, sender, bytes, &self.options.config, is_copy)).flatten();
        let before = refused(bus);
        bus.handle_packet(now, sender, bytes);
        let refused = refused(bus) > before;
        if let Some(twin) = sent.twin.filter(|_| !is_copy && !refused) {
            self.taken.insert(twin, slot.life);
        }
        if let Some(odd) = odd {
            self.watch.odd(&self.members[to as usize].scene(self.now_ns, to), odd, refused);
        }
    }

    /// Takes what a bus has to say, shows it, and sees to its next tick.
    fn settle(&mut self, member: u32) {
        let at = member as usize;
        for outputs in 0.. {
            assert!(outputs < OUTPUTS_MAX, "a bus says a bounded number of things at a time");
            let bus = self.members[at].bus.as_mut().expect("it runs");
            match bus.poll_output() {
                None => break,
                Some(Output::Send { to, bytes }) => self.send(member, to, bytes),
                Some(Output::Persist { ticket, bytes }) => self.persist(member, ticket, bytes),
                Some(Output::Event(event)) => {
                    self.journal.tell(self.now_ns, || format!("{member} says {event:?}"));
                    self.watch.event(&self.members[at].scene(self.now_ns, member), &event);
                    if let Event::HandoverPaused { group } = event {
                        self.end_writes(member, group);
                    }
                }
            }
        }
        self.watch.settled(&self.members[at].scene(self.now_ns, member));
        self.schedule(member);
    }

    /// Nothing is written here: what was in flight when a primary paused has ended at once.
    fn end_writes(&mut self, member: u32, group: GroupId) {
        let slot = &mut self.members[member as usize];
        let now = slot.clock.local(self.now_ns);
        // The pause may have ended already.
        let _ = slot.bus.as_mut().expect("it runs").handle_command(now, Command::Paused { group });
    }

    /// A tick that comes too early finds nothing due and looks again; so a later one needs no new entry.
    fn schedule(&mut self, member: u32) {
        let slot = &mut self.members[member as usize];
        let next = slot.bus.as_ref().expect("it runs").next_tick();
        if slot.tick_at_ns != u64::MAX && next >= slot.tick_at {
            return;
        }
        let Some(tick_at_ns) = slot.clock.world_ns(next) else { return };
        let tick_at_ns = tick_at_ns.max(self.now_ns);
        slot.tick_at = next;
        if tick_at_ns < slot.tick_at_ns {
            slot.tick_at_ns = tick_at_ns;
            self.queue.push(tick_at_ns, Entry::Tick { member, life: slot.life });
        }
    }

    fn send(&mut self, from: u32, to: ServerId, bytes: Vec<u8>) {
        self.members[from as usize].traffic.add(self.now_ns, bytes.len() as u64);
        let Some(to) = self.number_of(to) else { return };
        let sent = Sent { life: self.members[from as usize].life, twin: None };
        match self.net.fate(self.now_ns, from, to) {
            Fate::Lost => {}
            Fate::Once(at_ns) => self.queue.push(at_ns, Entry::Packet { from, to, bytes, sent }),
            Fate::Twice(at_ns, again_ns) => {
                self.twins += 1;
                let sent = Sent { twin: Some(self.twins), ..sent };
                self.queue.push(at_ns, Entry::Packet { from, to, bytes: bytes.clone(), sent });
                self.queue.push(again_ns, Entry::Packet { from, to, bytes, sent });
            }
        }
    }

    fn persist(&mut self, member: u32, ticket: Ticket, bytes: Vec<u8>) {
        self.journal.bytes(&bytes);
        let slot = &mut self.members[member as usize];
        slot.disk.writing.push_back((ticket, bytes));
        let done_ns = self.now_ns + self.chance.below(self.options.persist_ns_max + 1);
        self.queue.push(done_ns, Entry::Persisted { member, life: slot.life, ticket });
    }
}

/// Why a bus ought to refuse a packet, if it ought to. Introductions come from strangers, of whom no numbers are known.
fn why_odd(bus: &Bus, sender: ServerId, bytes: &[u8], config: &Config, is_copy: bool) -> Option<Odd> {
    let (header, body) = decode(bytes, bus.identity().cluster, config).ok()?;
    let known = bus.member(sender)?;
    if header.incarnation < known.incarnation {
        return Some(Odd::EarlierLife);
    }
    let is_numbered = header.sequence > 0 && !matches!(body, Body::Meet(_));
    (is_copy && is_numbered && header.incarnation == known.incarnation).then_some(Odd::Copy)
}

/// Packets that a bus has refused.
fn refused(bus: &Bus) -> u64 {
    let counters = bus.counters();
    [
        counters.refused_malformed,
        counters.refused_version,
        counters.refused_cluster,
        counters.refused_stale,
        counters.refused_replayed,
        counters.refused_stranger,
        counters.refused_kept_out,
        counters.refused_unasked,
        counters.refused_unentitled,
        counters.refused_full,
    ]
    .iter()
    .sum()
}

fn new_member(no: u32, zone: Zone, ids: &Rng) -> Member {
    Member {
        id: id_of(no, ids),
        zone,
        bus: None,
        life: 0,
        incarnation: 0,
        clock: MemberClock::new(0, 0, 0),
        disk: Disk::default(),
        tick_at_ns: u64::MAX,
        tick_at: Instant::ORIGIN,
        paused: false,
        held: Default::default(),
        traffic: Traffic::default(),
    }
}

/// The id of a member: chance in front, so that ids are in no order, and the number at the end.
fn id_of(no: u32, rng: &Rng) -> ServerId {
    let mut bytes = [0; 16];
    rng.fork("id", u64::from(no)).fill(&mut bytes[..12]);
    bytes[12..].copy_from_slice(&no.to_be_bytes());
    ServerId::from_bytes(bytes)
}

/// The number that is written into the id of a member.
pub(super) fn number_of(id: ServerId) -> Option<u32> {
    id.as_bytes().last_chunk().copied().map(u32::from_be_bytes)
}

/// Where a member is reached.
pub(super) fn address_of(member: u32) -> String {
    format!("10.{}.{}.{}:7000", member >> 16, member >> 8 & 255, member & 255)
}

//! A cluster in which everybody has its part.

use core::time::Duration;

use ashlar_bus::claim::Claim;
use ashlar_bus::event::CopyState;
use ashlar_bus::member::{Description, Life, MemberRecord};
use ashlar_bus::saved::Saved;
use ashlar_bus::slot::{GroupId, SLOTS, SlotRange, SlotSet, Zone};
use ashlar_bus::voters::{FIRST_LIFE, Origin, VoterSet};
use ashlar_bus::{Command, Config};
use ashlar_wire::epoch::Epoch;

use super::timeline::Timeline;
use super::{MILLI_NS, SECOND_NS};
use crate::bus::net::Links;
use crate::bus::world::{World, WorldOptions, address_of};

/// The ids of all large clusters come from here: the same layout has the same ids.
const IDS_SEED: u64 = 1;

/// The epoch of every claim: voters have decided it.
const FIRST_EPOCH: Epoch = Epoch(2);

/// How long the forming may take, by the world's clock.
const STEP_NS_MAX: u64 = 120 * SECOND_NS;

/// Who does what.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Members in all.
    pub members: u32,
    /// Replicas of each group.
    pub replicas: u32,
    /// Zones; a group's members are in different ones, as far as there are enough.
    pub zones: u32,
    /// Voters, spread evenly over all members; 0 lets the bus choose.
    pub voters: u32,
    /// How the bus of every member is set up.
    pub config: Config,
    /// What every link is like.
    pub links: Links,
    /// How far the clocks' rates may be off.
    pub rate_ppm_max: i32,
}

impl Layout {
    /// That many members with that timeout, one replica a group, one zone, and the usual settings.
    #[must_use]
    pub fn new(members: u32, timeout: Duration) -> Self {
        let config = Config { member_timeout: timeout, ..Config::default() };
        Self { members, replicas: 1, zones: 1, voters: 0, config, links: Links::default(), rate_ppm_max: 100 }
    }

    /// Groups, and with them primaries: the first members.
    #[must_use]
    pub fn groups(&self) -> u32 {
        (self.members / (self.replicas + 1)).max(1)
    }

    /// The id of the group whose first primary is the member of that number.
    #[must_use]
    pub fn group(at: u32) -> GroupId {
        GroupId(u64::from(at) + 1)
    }

    /// The group that a member belongs to, and its place there: 0 for the primary. Members left over have none.
    pub(super) fn place(&self, member: u32) -> Option<(u32, u32)> {
        let (at, place) = (member % self.groups(), member / self.groups());
        (place <= self.replicas).then_some((at, place))
    }

    /// The zone of a member.
    #[must_use]
    pub fn zone(&self, member: u32) -> u32 {
        let (at, place) = (member % self.groups(), member / self.groups());
        (at + place) % self.zones.max(1)
    }

    /// The slots of a group.
    fn share(&self, at: u32) -> SlotRange {
        let bound = |at: u32| (u32::from(SLOTS) * at / self.groups()) as u16;
        SlotRange::new(bound(at), bound(at + 1) - 1).expect("there are fewer groups than slots")
    }

    /// What a member says about itself.
    fn record(&self, world: &World<Timeline>, member: u32) -> MemberRecord {
        let replica_of = self.place(member).filter(|(_, place)| *place > 0).map(|(at, _)| Self::group(at));
        let description = Description {
            incarnation: FIRST_LIFE,
            // Its first words name no group, its second ones do.
            revision: u32::from(replica_of.is_some()),
            zone: world.zone(member),
            address: address_of(member).into(),
            follows: replica_of.into_iter().collect(),
            memory_since: FIRST_LIFE,
            interest: Default::default(),
            services: Default::default(),
        };
        MemberRecord { id: world.id(member), description, life: Life::default() }
    }

    fn options(&self, seed: u64) -> WorldOptions {
        WorldOptions {
            seed,
            members: self.members,
            strangers: 0,
            zones: (0..self.members).map(|no| Zone(self.zone(no) + 1)).collect(),
            ids_seed: IDS_SEED,
            links: self.links,
            persist_ns_max: MILLI_NS,
            rate_ppm_max: self.rate_ppm_max,
            config: self.config.clone(),
            #[cfg(feature = "planted")]
            planted: None,
            tail_max: 0,
        }
    }
}

/// A cluster that was formed once.
#[derive(Debug, Clone)]
pub struct Formed {
    /// Who does what.
    pub layout: Layout,
    /// It, in agreement and with nothing left to say.
    pub world: World<Timeline>,
}

/// Writes what each member remembers of a cluster that has been whole for long, and starts all of them.
///
/// # Errors
/// They do not agree and serve within a while.
pub fn form(layout: &Layout, seed: u64) -> Result<Formed, String> {
    let mut world = World::new(layout.options(seed), Timeline::new(layout));
    let common = Common::new(layout, &world);
    for member in 0..layout.members {
        world.remember(member, common.memory(layout, &world, member).encode());
        world.start(member).map_err(|error| error.to_string())?;
        if let Some((at, _)) = layout.place(member).filter(|(_, place)| *place > 0) {
            let told = Command::Offset { group: Layout::group(at), offset: 0, copy: CopyState::Current };
            world.command(member, told).map_err(|error| error.to_string())?;
        }
        world.run_until(u64::from(member + 1) * SECOND_NS / u64::from(layout.members));
    }
    until(&mut world, "all is well", STEP_NS_MAX, &all_is_well)?;
    // Long enough for everything to be saved that need not be durable at once, and for the last sweep to be forgotten.
    world.run_until(world.now_ns() + 2 * layout.config.save_interval.as_nanos() as u64 + SECOND_NS);
    until(&mut world, "all is well", STEP_NS_MAX, &all_is_well)?;
    Ok(Formed { layout: layout.clone(), world })
}

/// What all members remember.
struct Common {
    members: Vec<MemberRecord>,
    claims: Vec<Claim>,
    voters: Option<VoterSet>,
}

impl Common {
    fn new(layout: &Layout, world: &World<Timeline>) -> Self {
        let claim = |at| Claim {
            group: Layout::group(at),
            owner: world.id(at),
            epoch: FIRST_EPOCH,
            slots: SlotSet::from_ranges([layout.share(at)]),
        };
        let mut voters: Vec<_> = (0..layout.voters).map(|at| world.id(at * layout.members / layout.voters)).collect();
        voters.sort_unstable();
        let set = VoterSet {
            epoch: Epoch(1),
            origin: Origin::Told,
            after: Epoch::ZERO,
            floor: Epoch::ZERO,
            voters,
            previous: Vec::new(),
            forgetful: Vec::new(),
            previous_forgetful: Vec::new(),
        };
        Self {
            members: (0..layout.members).map(|member| layout.record(world, member)).collect(),
            claims: (0..layout.groups()).map(claim).collect(),
            voters: Some(set).filter(|set| !set.voters.is_empty()),
        }
    }

    fn memory(&self, layout: &Layout, world: &World<Timeline>, member: u32) -> Saved {
        let own = world.id(member);
        Saved {
            current: FIRST_EPOCH,
            voters: self.voters.clone(),
            claims: self.claims.clone(),
            members: self.members.iter().filter(|record| record.id != own).cloned().collect(),
            places: layout.place(member).map(|(at, _)| (Layout::group(at), 0)).into_iter().collect(),
            ..Saved::new(world.cluster(member), own)
        }
    }
}

/// A clone of a formed cluster, in which chance goes its own way.
pub fn again(formed: &Formed, seed: u64) -> World<Timeline> {
    let mut world = formed.world.clone();
    world.reseed(seed);
    world.run_until(world.now_ns() + SECOND_NS);
    world
}

/// Runs until `done`, looking ten times a second; how long that took.
pub(super) fn until(
    world: &mut World<Timeline>,
    what: &str,
    ns_max: u64,
    done: &dyn Fn(&World<Timeline>) -> bool,
) -> Result<u64, String> {
    let began_ns = world.now_ns();
    loop {
        let took_ns = world.now_ns() - began_ns;
        if let Some(violation) = world.watch().violation() {
            return Err(violation.to_owned());
        }
        if done(world) {
            return Ok(took_ns);
        }
        if took_ns >= ns_max {
            return Err(format!("after {} s it is not so that {what}", took_ns / SECOND_NS));
        }
        world.run_until(world.now_ns() + 100 * MILLI_NS);
    }
}

fn running(world: &World<Timeline>) -> impl Iterator<Item = (u32, &ashlar_bus::Bus)> {
    (0..world.members()).filter_map(|no| world.bus(no).map(|bus| (no, bus)))
}

/// Whether all that run know the same: members and claims, or members alone.
pub(super) fn agree_on(world: &World<Timeline>, claims: bool) -> bool {
    let mut digests = running(world).map(|(_, bus)| bus.digests());
    let Some(first) = digests.next() else { return true };
    digests.all(|other| other.0 == first.0 && (!claims || other.1 == first.1))
}

/// Whether all agree on everything and every group takes writes at its primary.
pub(super) fn all_is_well(world: &World<Timeline>) -> bool {
    agree_on(world, true) && world.watch().are_all_served(world)
}

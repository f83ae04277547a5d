//! From nothing to a cluster in which everybody has its part.

use core::time::Duration;

use ashlar_bus::slot::{GroupId, SLOTS, SlotRange, Zone};
use ashlar_bus::{Command, Config};
use ashlar_wire::epoch::Epoch;

use super::timeline::Timeline;
use super::{MILLI_NS, SECOND_NS};
use crate::bus::net::Links;
use crate::bus::world::{World, WorldOptions, address_of};

/// The ids of all large clusters come from here: the same layout has the same ids.
const IDS_SEED: u64 = 1;

/// How long each step of the forming may take, by the world's clock.
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
    /// How long each step took by the world's clock.
    pub took_ns: Vec<(&'static str, u64)>,
}

/// Brings a cluster up from nothing.
///
/// # Errors
/// A step did not come to its end in time.
pub fn form(layout: &Layout, seed: u64) -> Result<Formed, String> {
    let mut world = World::new(layout.options(seed), Timeline::new(layout));
    let mut took_ns = Vec::new();
    for member in 0..layout.members {
        world.start(member).map_err(|error| error.to_string())?;
        world.run_until(world.now_ns() + MILLI_NS);
        if member > 0 {
            let meet = Command::Meet { id: world.id(0), address: address_of(0) };
            world.command(member, meet).map_err(|error| error.to_string())?;
        }
    }
    let members = layout.members as usize;
    let mut step = |world: &mut World<Timeline>, what, done: &dyn Fn(&World<Timeline>) -> bool| {
        until(world, what, STEP_NS_MAX, done).map(|ns| took_ns.push((what, ns)))
    };
    step(&mut world, "all know all", &|world| knows(world, members) && agree_on(world, false))?;
    if layout.voters > 0 {
        let voters = (0..layout.voters).map(|at| world.id(at * layout.members / layout.voters)).collect();
        world.command(0, Command::SetVoters { epoch: Epoch(1), voters }).map_err(|error| error.to_string())?;
        step(&mut world, "all know the voters", &voters_are_set)?;
    }
    for at in 0..layout.groups() {
        let claim = Command::Claim { group: Layout::group(at), slots: vec![layout.share(at)] };
        world.command(at, claim).map_err(|error| error.to_string())?;
    }
    step(&mut world, "all slots are owned", &|world| slots_assigned(world) == SLOTS && agree_on(world, true))?;
    for member in layout.groups()..layout.members {
        let Some((at, _)) = layout.place(member) else { continue };
        world.command(member, Command::Follow { group: Layout::group(at) }).map_err(|error| error.to_string())?;
    }
    let replicas = layout.replicas as usize;
    step(&mut world, "all groups are followed", &|world| followed(world, replicas) && agree_on(world, true))?;
    // Long enough for everything to be saved that need not be durable at once, and for the last sweep to be forgotten.
    world.run_until(world.now_ns() + 2 * layout.config.save_interval.as_nanos() as u64 + SECOND_NS);
    step(&mut world, "all is well", &all_is_well)?;
    Ok(Formed { layout: layout.clone(), world, took_ns })
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

fn knows(world: &World<Timeline>, members: usize) -> bool {
    world.bus(0).is_some_and(|bus| bus.members().count() == members)
}

fn voters_are_set(world: &World<Timeline>) -> bool {
    running(world).all(|(_, bus)| bus.voters().epoch == Epoch(1) && bus.voters().previous.is_empty())
}

fn slots_assigned(world: &World<Timeline>) -> u16 {
    world.bus(0).map_or(0, |bus| bus.cluster_state().slots_assigned)
}

fn followed(world: &World<Timeline>, replicas: usize) -> bool {
    world.bus(0).is_some_and(|bus| bus.groups().all(|view| view.replicas.len() >= replicas))
}

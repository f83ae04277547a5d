//! Many members die at one instant; how long until every slot is served again.

use super::SECOND_NS;
use super::form::{Formed, again, agree_on, until};
use crate::bus::member::Traffic;
use crate::rng::Rng;

/// Who dies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Victims {
    /// That share of the primaries, in parts of a million, drawn by the seed; at least one.
    Primaries(u32),
    /// All members of a zone.
    Zone(u32),
}

/// How it went. Times are from the instant of death, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct KillReport {
    /// How many died.
    pub killed: u32,
    /// Groups that lost their primary.
    pub orphaned: u32,
    /// Voters that died, of how many.
    pub voters_killed: (u32, u32),
    /// The first suspicion.
    pub suspected_first_ns: u64,
    /// The first failure declared, and the last.
    pub declared_ns: (u64, u64),
    /// The last member knows of the last failure.
    pub known_ns: u64,
    /// The first election, and the last.
    pub elected_ns: (u64, u64),
    /// Every slot is served: the primary of each group takes writes.
    pub served_ns: u64,
    /// All that are left agree on members and claims.
    pub agreed_ns: u64,
    /// Elections.
    pub elections: u64,
    /// Failures of members that run.
    pub false_failures: u64,
    /// What each member that is left sent from the death until all agreed.
    pub traffic: Vec<Traffic>,
    /// The most that a member sent in one second of that.
    pub burst_bytes: u64,
}

impl KillReport {
    /// From the first suspicion until every slot was served.
    #[must_use]
    pub fn recovery_ns(&self) -> u64 {
        self.served_ns.saturating_sub(self.suspected_first_ns)
    }
}

/// Kills and waits until every slot is served and all agree.
///
/// # Errors
/// It did not come to that, or something happened that must never be.
pub fn kill(formed: &Formed, victims: Victims, seed: u64) -> Result<KillReport, String> {
    let layout = &formed.layout;
    let mut world = again(formed, seed);
    let mut rng = Rng::new(seed).fork("kill", 0);
    world.run_until(world.now_ns() + rng.below(2 * SECOND_NS));
    let dead = choose(formed, victims, &mut rng);
    let voters = world.bus(0).map(|bus| bus.voters().voters.to_vec()).unwrap_or_default();
    let voters_killed = voters.iter().filter(|id| world.number_of(**id).is_some_and(|no| dead.contains(&no))).count();
    let orphaned = dead.iter().filter(|no| world.bus(**no).is_some_and(is_primary)).count();
    world.take_traffic();
    world.watch_mut().begin();
    let killed_ns = world.now_ns();
    for member in dead.iter().copied() {
        world.crash(member);
    }
    world.watch_mut().unknown = dead.len() as u64 * u64::from(layout.members - dead.len() as u32);
    let bound_ns = 10 * layout.config.member_timeout.as_nanos() as u64 + 60 * SECOND_NS;
    until(&mut world, "every slot is served", bound_ns, &|world| world.watch().unserved() == 0)?;
    let served_ns = world.watch().all_served_ns().ok_or("every slot was served for a moment only")?;
    until(&mut world, "all agree", bound_ns, &|world| agree_on(world, true) && world.watch().unknown == 0)?;
    let agreed_ns = world.now_ns();
    if !world.watch().are_all_served(&world) {
        return Err("all agree, and not every slot is served".to_owned());
    }
    let since = |at_ns: Option<u64>| at_ns.unwrap_or(killed_ns) - killed_ns;
    let traffic = world.take_traffic();
    let traffic: Vec<Traffic> =
        (0..).zip(traffic).filter(|(no, _)| !dead.contains(no)).map(|(_, traffic)| traffic).collect();
    let watch = world.watch();
    Ok(KillReport {
        killed: dead.len() as u32,
        orphaned: orphaned as u32,
        voters_killed: (voters_killed as u32, voters.len() as u32),
        suspected_first_ns: since(watch.suspicions.first_ns),
        declared_ns: (since(watch.declared.first_ns), since(watch.declared.last_ns)),
        known_ns: since(watch.known.last_ns),
        elected_ns: (since(watch.elections.first_ns), since(watch.elections.last_ns)),
        served_ns: served_ns.saturating_sub(killed_ns),
        agreed_ns: agreed_ns - killed_ns,
        elections: watch.elections.count,
        false_failures: watch.false_failures.count,
        burst_bytes: traffic.iter().map(|one| one.burst).max().unwrap_or(0),
        traffic,
    })
}

fn is_primary(bus: &ashlar_bus::Bus) -> bool {
    let me = bus.identity().server;
    bus.groups().any(|view| view.primary == me)
}

fn choose(formed: &Formed, victims: Victims, rng: &mut Rng) -> Vec<u32> {
    let layout = &formed.layout;
    match victims {
        Victims::Zone(zone) => (0..layout.members).filter(|no| layout.zone(*no) == zone).collect(),
        Victims::Primaries(ppm) => {
            let mut all: Vec<u32> = (0..layout.groups()).collect();
            let count = (u64::from(layout.groups()) * u64::from(ppm)).div_ceil(1_000_000).max(1) as usize;
            for at in 0..count.min(all.len()) {
                let other = at + rng.below((all.len() - at) as u64) as usize;
                all.swap(at, other);
            }
            all.truncate(count);
            all
        }
    }
}

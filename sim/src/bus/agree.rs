//! Whether members agree: what is asked of a cluster in which nothing is wrong any more.

use ashlar_bus::Bus;
use ashlar_bus::event::{GroupView, Health};
use ashlar_bus::slot::{GroupId, SLOTS};

use super::world::{Watch, World};

/// What all members of a small cluster should see.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    /// Members of the cluster.
    pub(super) members: u32,
    /// The ones that are down.
    pub(super) down: &'a [u32],
    /// The groups.
    pub(super) groups: &'a [GroupId],
    /// Groups that nobody is left to serve.
    pub(super) lost: &'a [GroupId],
    /// Whether every slot has to have an owner.
    pub(super) covered: bool,
    /// Whether a slot without a living owner stops all writes.
    pub(super) full_coverage: bool,
}

/// Whether all that run see the same, and that it is right.
///
/// # Errors
/// The first thing that is not so, in words.
pub(super) fn agree<W: Watch>(world: &World<W>, expected: &Expected<'_>) -> Result<(), String> {
    let running: Vec<u32> = (0..expected.members).filter(|no| !expected.down.contains(no)).collect();
    let first = running.first().and_then(|no| world.bus(*no)).ok_or("nobody runs")?;
    for no in running.iter().copied() {
        let bus = world.bus(no).ok_or_else(|| format!("{no} does not run"))?;
        see_members(world, no, bus, expected)?;
        see_voters(no, bus, first)?;
        if !bus.groups().eq(first.groups()) {
            let [mine, firsts] = [bus, first].map(|bus| bus.groups().collect::<Vec<_>>());
            return Err(format!("{no} sees other claims than {}: {mine:?} and {firsts:?}", running[0]));
        }
        if bus.digests() != first.digests() {
            return Err(format!("{no} has other digests than {}", running[0]));
        }
    }
    serve(world, first, &running, expected)
}

fn see_members<W: Watch>(world: &World<W>, no: u32, bus: &Bus, expected: &Expected<'_>) -> Result<(), String> {
    for other in 0..expected.members {
        let view = bus.member(world.id(other)).ok_or_else(|| format!("{no} does not know {other}"))?;
        let down = expected.down.contains(&other);
        let right = if down { view.health == Health::Failed } else { view.health == Health::Alive };
        if !right {
            return Err(format!("{no} sees {other} {:?}, and it is {}", view.health, if down { "down" } else { "up" }));
        }
        if !down && Some(view.incarnation) != world.bus(other).map(|bus| bus.identity().incarnation) {
            return Err(format!("{no} sees life {} of {other}, which is not its present one", view.incarnation));
        }
    }
    match bus.members().count() {
        count if count == expected.members as usize => Ok(()),
        count => Err(format!("{no} sees {count} members")),
    }
}

fn see_voters(no: u32, bus: &Bus, first: &Bus) -> Result<(), String> {
    let view = bus.voters();
    if !view.previous.is_empty() {
        return Err(format!(
            "{no} waits for the change of voters {} to end: {view:?}, the first has {:?}",
            view.epoch,
            first.voters()
        ));
    }
    if view.voters.is_empty() || view != first.voters() {
        return Err(format!("{no} has voters {view:?}, the first member {:?}", first.voters()));
    }
    Ok(())
}

/// Every group has one primary that takes writes, and every slot an owner.
fn serve<W: Watch>(world: &World<W>, first: &Bus, running: &[u32], expected: &Expected<'_>) -> Result<(), String> {
    let views: Vec<_> = first.groups().collect();
    // One lost group with slots stops all the others, where full coverage is asked for.
    let is_lost = |view: &GroupView| expected.lost.contains(&view.group);
    let is_stopped = expected.full_coverage && views.iter().any(|view| is_lost(view) && !view.slots.is_empty());
    for group in expected.groups.iter().copied() {
        let view =
            views.iter().find(|view| view.group == group).ok_or_else(|| format!("group {group} is not claimed"))?;
        let writers = running.iter().filter(|no| world.bus(**no).is_some_and(|bus| bus.may_write(group)));
        let writers: Vec<u32> = writers.copied().collect();
        let primary = world.number_of(view.primary);
        let is_down = primary.is_some_and(|no| expected.down.contains(&no));
        let served = match writers.as_slice() {
            // Nobody replaces the primary of a group without slots.
            [] => is_stopped || is_lost(view) || view.slots.is_empty() && is_down,
            [one] => !is_stopped && !is_lost(view) && primary == Some(*one),
            _ => false,
        };
        if !served {
            return Err(format!(
                "group {group} of {primary:?} takes writes at {writers:?}; {:?}",
                first.cluster_state()
            ));
        }
    }
    let assigned = first.cluster_state().slots_assigned;
    if expected.covered && assigned != SLOTS {
        return Err(format!("{assigned} slots have an owner"));
    }
    Ok(())
}

//! The cluster falls into two halves and comes together again.

use super::SECOND_NS;
use super::form::{Formed, Layout, again, all_is_well, until};
use super::timeline::Timeline;
use crate::bus::world::World;

/// How it went. Times are nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct SplitReport {
    /// Voters in each half.
    pub voters: [u32; 2],
    /// From the cut until the last primary without a majority took no writes any more.
    pub stopped_ns: u64,
    /// Elections while it was cut.
    pub elections: u64,
    /// Groups that took writes at the end of the cut.
    pub served: u32,
    /// Groups that took writes on both sides at the end of the cut.
    pub served_twice: u32,
    /// From the healing until all agreed and every group took writes at exactly one member.
    pub healed_ns: u64,
}

/// Cuts members with odd numbers off the others for `for_ns`, then heals.
///
/// # Errors
/// They did not come together again in time.
pub fn split(formed: &Formed, for_ns: u64, seed: u64) -> Result<SplitReport, String> {
    let layout = &formed.layout;
    let mut world = again(formed, seed);
    // Halves of groups and of replicas alike, but never a whole group on one side.
    let side = |no: u32| (no % layout.groups() + no / layout.groups()) % 2;
    let sides: Vec<u8> = (0..layout.members).map(|no| side(no) as u8).collect();
    let mut report = SplitReport::default();
    let voters = world.bus(0).map(|bus| bus.voters().voters.to_vec()).unwrap_or_default();
    for no in voters.iter().filter_map(|id| world.number_of(*id)) {
        report.voters[side(no) as usize] += 1;
    }
    let minority = u32::from(report.voters[0] > report.voters[1]);
    world.watch_mut().begin();
    world.set_sides(sides);
    let cut_ns = world.now_ns();
    let bound_ns = 3 * layout.config.member_timeout.as_nanos() as u64 + 10 * SECOND_NS;
    let minority: Vec<u32> = (0..layout.members).filter(|no| side(*no) == minority).collect();
    until(&mut world, "the minority has stopped", bound_ns, &|world| {
        minority.iter().all(|no| !writes(world, layout, *no))
    })?;
    report.stopped_ns = world.now_ns() - cut_ns;
    world.run_until(cut_ns + for_ns);
    report.elections = world.watch().elections.count;
    report.served = layout.groups() - world.watch().unserved();
    report.served_twice = world.watch().served_twice();
    world.set_sides(Vec::new());
    report.healed_ns = until(&mut world, "all is well again", 300 * SECOND_NS, &all_is_well)?;
    Ok(report)
}

/// Whether a member takes writes for the group that it belongs to.
fn writes(world: &World<Timeline>, layout: &Layout, no: u32) -> bool {
    let Some((at, _)) = layout.place(no) else { return false };
    world.bus(no).is_some_and(|bus| bus.may_write(Layout::group(at)))
}

//! Nothing happens, for a long time: what it costs, and whether anybody is declared failed who is not.

use super::SECOND_NS;
use super::form::{Formed, again, until};
use crate::bus::member::Traffic;
use crate::bus::net::Links;
use crate::rng::Rng;
use ashlar_bus::Command;
use ashlar_bus::slot::SlotRange;

/// How long and under what.
#[derive(Debug, Clone, Copy)]
pub struct SoakOptions {
    /// World time.
    pub for_ns: u64,
    /// Packets lost.
    pub loss_ppm: u32,
    /// How long a paused member stands still; 0 for no pauses.
    pub pause_ns: u64,
    /// Each member is paused once in this time, on average.
    pub pause_every_ns: u64,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct SoakReport {
    /// Failures of members that run, declared by a quorum.
    pub false_failures: u64,
    /// Suspicions of members that run.
    pub false_suspicions: u64,
    /// Pauses.
    pub pauses: u64,
    /// Steps of the world.
    pub events: u64,
    /// What each member sent.
    pub traffic: Vec<Traffic>,
    /// World time.
    pub lasted_ns: u64,
}

/// Runs so long, or until `is_over`; `tell` hears how far it is, about once in a simulated hour.
///
/// # Errors
/// Something happened that must never be.
pub fn soak(
    formed: &Formed,
    options: SoakOptions,
    seed: u64,
    is_over: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(u64, &SoakReport),
) -> Result<SoakReport, String> {
    let layout = &formed.layout;
    let mut world = again(formed, seed);
    world.set_links(Links { loss_ppm: options.loss_ppm, ..world.links() });
    let mut rng = Rng::new(seed).fork("soak", 0);
    let (began_ns, events) = (world.now_ns(), world.events());
    world.take_traffic();
    world.watch_mut().begin();
    let mut report = SoakReport::default();
    let mut resumes: std::collections::VecDeque<(u64, u32)> = std::collections::VecDeque::new();
    let gap_ns = options.pause_every_ns / u64::from(layout.members).max(1);
    let mut pause_ns = if options.pause_ns > 0 { began_ns + rng.below(2 * gap_ns) } else { u64::MAX };
    let (end_ns, mut hour_ns) = (began_ns + options.for_ns, began_ns + 3_600 * SECOND_NS);
    while world.now_ns() < end_ns {
        let resume_ns = resumes.front().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        world.run_until(end_ns.min(hour_ns).min(pause_ns).min(resume_ns));
        let now_ns = world.now_ns();
        if let Some(violation) = world.watch().violation() {
            return Err(violation.to_owned());
        }
        if now_ns >= resume_ns {
            resumes.pop_front().into_iter().for_each(|(_, member)| world.resume(member));
        }
        if now_ns >= pause_ns {
            let member = rng.below(u64::from(layout.members)) as u32;
            if !world.is_paused(member) {
                world.pause(member);
                report.pauses += 1;
                resumes.push_back((now_ns + options.pause_ns, member));
            }
            pause_ns = now_ns + 1 + rng.below(2 * gap_ns);
        }
        let is_over = is_over();
        if now_ns >= hour_ns || now_ns >= end_ns || is_over {
            hour_ns += 3_600 * SECOND_NS;
            report.false_failures = world.watch().false_failures.count;
            report.false_suspicions = world.watch().false_suspicions.count;
            report.events = world.events() - events;
            report.lasted_ns = now_ns - began_ns;
            tell(report.lasted_ns, &report);
        }
        if is_over {
            break;
        }
    }
    report.traffic = world.take_traffic();
    Ok(report)
}

/// An idle cluster for a minute, then one change: what each member sent a second, and how long until all knew the change.
///
/// # Errors
/// The change did not become known.
pub fn idle_traffic(formed: &Formed, seed: u64) -> Result<(SoakReport, u64), String> {
    let layout = &formed.layout;
    let mut world = again(formed, seed);
    let (began_ns, events) = (world.now_ns(), world.events());
    world.take_traffic();
    world.watch_mut().begin();
    world.run_until(began_ns + 60 * SECOND_NS);
    let watch = world.watch();
    let mut report = SoakReport {
        false_failures: watch.false_failures.count,
        false_suspicions: watch.false_suspicions.count,
        events: world.events() - events,
        lasted_ns: world.now_ns() - began_ns,
        ..SoakReport::default()
    };
    report.traffic = world.take_traffic();
    let owner = Rng::new(seed).fork("change", 0).below(u64::from(layout.groups())) as u32;
    let group = super::form::Layout::group(owner);
    let slot = world.bus(owner).and_then(|bus| bus.groups().find(|view| view.group == group)?.slots.iter().next());
    let slot = slot.ok_or("a group of the layout owns slots")?;
    world.watch_mut().begin();
    let slots = SlotRange::new(slot.number(), slot.number()).into_iter().collect();
    world.command(owner, Command::Release { group, slots }).map_err(|error| error.to_string())?;
    let wanted = u64::from(layout.members);
    until(&mut world, "all know the change", 60 * SECOND_NS, &|world| world.watch().claims.count >= wanted)?;
    let claims = world.watch().claims;
    Ok((report, claims.last_ns.unwrap_or(0) - claims.first_ns.unwrap_or(0)))
}

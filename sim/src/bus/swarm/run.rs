//! One run: a cluster is formed, the plan strikes, everything heals, and then one member dies for good measure, and one stops in order.

mod depart;

use core::fmt;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ashlar_bus::Command;
use ashlar_bus::slot::{GroupId, SlotRange, Zone};
use ashlar_wire::id::ServerId;

use self::depart::Leaving;
use super::copies::Copies;
use super::operator::Operator;
use super::params::{Class, Params, SECOND_NS};
use super::plan::{Fault, Plan};
use crate::bus::agree::{Expected, agree};
use crate::bus::check::{Checker, Counts, Rules};
use crate::bus::net::Links;
use crate::bus::world::{World, WorldOptions, address_of};
use crate::rng::Rng;

/// Steps of the tail of a failure.
const TAIL_MAX: usize = 400;

/// Runs that one search for fewer faults may take.
const SHRINK_RUNS_MAX: usize = 600;

/// What members with odd numbers subscribe to.
const CHANNEL: &[u8] = b"news";

/// Times that a message is published before nobody else is expected to hear it.
const PUBLISH_TRIES: u32 = 12;

/// How often data flow from primaries to replicas in a member timeout.
const FLOWS_PER_TIMEOUT: u64 = 8;

/// Events of one run: many times what any seed needs.
const EVENTS_MAX: u64 = 3_000_000;

/// A bug to order in the bus.
#[cfg(feature = "planted")]
pub type Bug = Option<ashlar_bus::planted::Planted>;

/// A bug to order in the bus: without the feature `planted` there is none.
#[cfg(not(feature = "planted"))]
pub type Bug = ();

/// How one seed went.
#[derive(Debug)]
pub struct Outcome {
    /// The hash of all events: equal for equal parameters and plans.
    pub event_hash: u64,
    /// How many events there were.
    pub events: u64,
    /// How long the world lasted by its own clock.
    pub world_ns: u64,
    /// What happened.
    pub counts: Counts,
    /// How long it took until all agreed, each time that all could: thousandths of a member timeout.
    pub agreed_milli: u64,
    /// What was wrong, if something was.
    pub failure: Option<Failure>,
}

/// What was wrong with a seed, and how it came to that.
#[derive(Debug)]
pub struct Failure {
    /// What was wrong, in words.
    pub what: String,
    /// What the seed drew.
    pub params: Params,
    /// The faults.
    pub plan: Plan,
    /// The last steps.
    pub tail: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} fails: {}", self.params.seed, self.what)?;
        writeln!(f, "parameters\n{}\nplan, {} faults", self.params, self.plan.entries.len())?;
        for (at_ns, fault) in &self.plan.entries {
            writeln!(f, "{:>12}.{:03} us  {fault:?}", at_ns / 1_000, at_ns % 1_000)?;
        }
        writeln!(f, "last steps")?;
        self.tail.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Runs what `params` draws. A failing seed is run once more to tell how it came to that.
pub fn run_seed(params: &Params, bug: Bug) -> Outcome {
    let plan = Plan::draw(params);
    let mut outcome = run_plan(params, &plan, bug, 0);
    if outcome.failure.is_some() {
        outcome.failure = run_plan(params, &plan, bug, TAIL_MAX).failure;
    }
    outcome
}

/// Runs `plan` in the world of `params`. A panic of the code under test is a failure like any other, where panics unwind.
fn run_plan(params: &Params, plan: &Plan, bug: Bug, tail_max: usize) -> Outcome {
    let mut run = Run::new(params, bug, tail_max);
    let judged = catch_unwind(AssertUnwindSafe(|| run.go(plan)));
    let what = match judged {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some(what),
        Err(panic) => Some(format!("panic: {}", words_of(&*panic))),
    };
    let agreed_milli = run.agreed_milli;
    let world = &mut run.world;
    for member in 0..params.members {
        world.tell_counters(member);
    }
    let failure = what.map(|what| Failure { what, params: params.clone(), plan: plan.clone(), tail: world.tail() });
    Outcome {
        event_hash: world.event_hash(),
        events: world.events(),
        world_ns: world.now_ns(),
        counts: world.watch().counts(),
        agreed_milli,
        failure,
    }
}

/// Leaves out faults of a failing plan as long as it still fails in the same way, and returns the last failure seen.
pub fn shrink(failure: Failure, bug: Bug) -> Failure {
    let kind = kind_of(&failure);
    let mut best = failure;
    let mut runs = 0;
    let mut size = best.plan.entries.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < best.plan.entries.len() && runs < SHRINK_RUNS_MAX {
            let mut fewer = best.plan.clone();
            fewer.entries.drain(at..(at + size).min(best.plan.entries.len()));
            runs += 1;
            match run_plan(&best.params, &fewer, bug, TAIL_MAX).failure {
                Some(failure) if kind_of(&failure) == kind => best = failure,
                _ => at += size,
            }
        }
        size /= 2;
    }
    best
}

/// What is wrong, without the numbers that differ from run to run.
fn kind_of(failure: &Failure) -> String {
    failure
        .what
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|letter| !letter.is_ascii_hexdigit())
        .take(40)
        .collect()
}

fn words_of(panic: &(dyn core::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "no words".to_owned())
}

/// What is to be done at a point of the run.
#[derive(Debug, Clone, Copy)]
enum Step {
    Strike(Fault),
    Heal {
        from: u32,
        to: u32,
    },
    Resume {
        member: u32,
    },
    Start {
        member: u32,
    },
    EndStorm,
    Tend,
    /// Looks whether a member on its way out may say goodbye.
    Leave(Leaving),
    /// Ends the life of a member that has said it.
    End(Leaving),
}

/// What went wrong ends a run.
type Going = Result<(), String>;

struct Run<'a> {
    params: &'a Params,
    world: World<Checker>,
    operator: Operator,
    copies: Copies,
    /// When data flow next.
    flow_ns: u64,
    steps: BTreeMap<(u64, u64), Step>,
    sequence: u64,
    storms: u32,
    chance: Rng,
    /// The longest that a packet is under way.
    flight_ns_max: u64,
    /// What [`Outcome::agreed_milli`] will be.
    agreed_milli: u64,
}

impl<'a> Run<'a> {
    fn new(params: &'a Params, bug: Bug, tail_max: usize) -> Self {
        #[cfg(not(feature = "planted"))]
        let () = bug;
        let options = WorldOptions {
            seed: params.seed,
            members: params.members + 1,
            strangers: 1,
            zones: (0..=params.members).map(|no| Zone(no % params.zones + 1)).collect(),
            ids_seed: params.seed,
            links: params.links,
            persist_ns_max: params.persist_ns_max,
            rate_ppm_max: params.rate_ppm_max,
            config: params.config.clone(),
            #[cfg(feature = "planted")]
            planted: bug,
            tail_max,
        };
        let links = params.links;
        let late_ns = if links.late_ppm > 0 { links.late_ns } else { 0 };
        let storm_ns = if params.classes.contains(&Class::Storm) { params.fault_ns_max } else { 0 };
        let flight_ns_max = links.latency_ns + links.jitter_ns + late_ns.max(storm_ns);
        let rules = Rules {
            members: params.members,
            config: params.config.clone(),
            flight_ns_max,
            persist_ns_max: params.persist_ns_max,
        };
        Self {
            params,
            world: World::new(options, Checker::new(rules)),
            operator: Operator::new(params),
            copies: Copies::default(),
            flow_ns: 0,
            steps: BTreeMap::new(),
            sequence: 0,
            storms: 0,
            chance: Rng::new(params.seed).fork("run", 0),
            flight_ns_max,
            agreed_milli: 0,
        }
    }

    fn timeout_ns(&self) -> u64 {
        self.params.config.member_timeout.as_nanos() as u64
    }

    fn go(&mut self, plan: &Plan) -> Going {
        for member in 0..self.params.members {
            self.start(member)?;
        }
        if self.params.classes.contains(&Class::Stranger) {
            self.start(self.params.members)?;
        }
        if self.params.rough_start {
            for round in 0..8 {
                self.later(round * self.timeout_ns() / 2, Step::Tend);
            }
        } else {
            self.until_agreed("at the beginning", &[])?;
        }
        let began_ns = self.world.now_ns();
        for (at_ns, fault) in &plan.entries {
            self.later(began_ns + at_ns, Step::Strike(*fault));
        }
        self.strike_until(began_ns + self.params.faults_ns)?;
        self.heal()?;
        self.until_agreed("after healing", &[])?;
        self.publish()?;
        self.lose_one()?;
        self.let_one_go()?;
        self.copies.check()
    }

    /// What is published reaches all subscribers, sooner or later.
    fn publish(&mut self) -> Going {
        self.world.watch_mut().listen();
        let mut silent = Vec::new();
        for _ in 0..PUBLISH_TRIES {
            let _refused_or_not =
                self.world.command(0, Command::Publish { channel: CHANNEL.to_vec(), message: vec![7; 100] });
            self.run_until(self.world.now_ns() + self.timeout_ns() / 4)?;
            let subscribers = (0..self.params.members).filter(|no| no % 2 == 1);
            silent = subscribers.filter(|no| !self.world.watch().has_heard(*no)).collect();
            if silent.is_empty() {
                return Ok(());
            }
        }
        Err(format!("{silent:?} subscribe and hear nothing"))
    }

    /// One member dies while everything else is well: it is replaced in time, and comes back.
    fn lose_one(&mut self) -> Going {
        self.until_copied("before a death")?;
        let Some(victim) = self.choose_victim() else { return Ok(()) };
        self.world.note(|| format!("{victim} dies while all is well"));
        self.world.crash(victim);
        self.until_agreed("after a death", &[victim])?;
        self.start(victim)?;
        self.until_agreed("after its return", &[])
    }

    /// Who has become a replica a moment ago has no copy before the next writes, and must not stand. All is well again after them.
    fn until_copied(&mut self, when: &str) -> Going {
        self.run_until(self.flow_ns)?;
        self.until_agreed(when, &[])
    }

    /// Somebody without whom there is still a majority of the voters.
    fn choose_victim(&mut self) -> Option<u32> {
        let first = self.chance.below(u64::from(self.params.members)) as u32;
        let mut order = (0..self.params.members).map(|step| (first + step) % self.params.members);
        order.find(|no| self.may_lose(*no))
    }

    fn later(&mut self, at_ns: u64, step: Step) {
        self.sequence += 1;
        self.steps.insert((at_ns, self.sequence), step);
    }

    fn after(&mut self, for_ns: u64, step: Step) {
        self.later(self.world.now_ns().saturating_add(for_ns), step);
    }

    fn strike_until(&mut self, end_ns: u64) -> Going {
        while let Some(entry) = self.steps.first_entry() {
            let at_ns = entry.key().0;
            if at_ns > end_ns {
                break;
            }
            let step = entry.remove();
            self.run_until(at_ns)?;
            self.take(step)?;
        }
        self.run_until(end_ns)
    }

    fn run_until(&mut self, at_ns: u64) -> Going {
        while self.flow_ns <= at_ns {
            self.world.run_until(self.flow_ns.max(self.world.now_ns()));
            self.judged()?;
            self.copies.flow(&mut self.world, self.operator.groups(), self.params.members);
            self.flow_ns = self.world.now_ns() + self.timeout_ns() / FLOWS_PER_TIMEOUT;
        }
        self.world.run_until(at_ns);
        self.judged()?;
        if self.world.events() > EVENTS_MAX { Err("the members never come to rest".to_owned()) } else { Ok(()) }
    }

    fn judged(&self) -> Going {
        match self.world.watch().violation() {
            Some(what) => Err(what.to_owned()),
            None => Ok(()),
        }
    }

    /// Everything that still lasts ends now.
    fn heal(&mut self) -> Going {
        // Whoever has said goodbye ends, and then it starts.
        while !self.steps.is_empty() {
            for step in core::mem::take(&mut self.steps).into_values() {
                match step {
                    Step::Strike(_) | Step::Tend => {}
                    Step::Leave(leaving) => self.stay(leaving),
                    step => self.take(step)?,
                }
            }
        }
        let links = self.params.links;
        self.world.set_links(Links { loss_ppm: 0, late_ppm: 0, ..links });
        self.world.note(|| "everything has healed".to_owned());
        // What is still under way from worse times may be an operator's wish.
        self.run_until(self.world.now_ns() + self.flight_ns_max)
    }

    /// Until all members agree, with the operator's help, within a bound.
    fn until_agreed(&mut self, when: &str, down: &[u32]) -> Going {
        let now_ns = self.world.now_ns();
        let scale_ns = self.timeout_ns();
        let keep_out_ns = self.params.config.keep_out.as_nanos() as u64;
        let began_ns = now_ns;
        let end_ns = now_ns + 8 * scale_ns + keep_out_ns + 8 * self.params.persist_ns_max + SECOND_NS;
        let lost = self.lost_with(down);
        loop {
            if down.is_empty() {
                self.operator.tend(&mut self.world);
                self.operator.see_to_voters(&mut self.world);
            }
            self.judged()?;
            let expected = Expected {
                members: self.params.members,
                down,
                groups: self.operator.groups(),
                lost: &lost,
                covered: down.is_empty(),
                full_coverage: self.params.config.require_full_coverage,
            };
            let agreed = agree(&self.world, &expected);
            let now_ns = self.world.now_ns();
            match agreed {
                Ok(()) => {
                    self.agreed_milli += (now_ns - began_ns) * 1_000 / scale_ns;
                    return Ok(());
                }
                Err(what) if now_ns >= end_ns => return Err(format!("no agreement {when}: {what}")),
                Err(_) => self.run_until(end_ns.min(now_ns + scale_ns / 8))?,
            }
        }
    }

    /// Groups that have no member left without those that are down.
    fn lost_with(&self, down: &[u32]) -> Vec<GroupId> {
        let Some(first) = (0..self.params.members).find_map(|no| self.world.bus(no)) else { return Vec::new() };
        let is_down = |id: &ServerId| self.world.number_of(*id).is_some_and(|no| down.contains(&no));
        let lost = first.groups().filter(|view| is_down(&view.primary) && view.replicas.iter().all(is_down));
        lost.map(|view| view.group).collect()
    }

    fn start(&mut self, member: u32) -> Going {
        if self.world.bus(member).is_some() {
            return Ok(());
        }
        self.world.start(member).map_err(|error| format!("{member} does not take back what it wrote: {error}"))?;
        if member % 2 == 1 {
            let _refused_or_not = self.world.command(member, Command::Subscribe { channel: CHANNEL.to_vec() });
        }
        Ok(())
    }

    /// Ends a life; whether there was one.
    fn kill(&mut self, member: u32, down_ns: u64) -> bool {
        let runs = self.world.bus(member).is_some();
        if runs {
            self.world.crash(member);
            self.after(down_ns, Step::Start { member });
        }
        runs
    }

    /// Whether a majority of the latest voters would still remember its votes without this member: of the latest that
    /// anybody knows, and of the latest that the others know, who may not have heard of it yet. Without one nobody can be
    /// elected, by design, until an operator gives new voters; where all is well, one does (see `operator`).
    fn may_lose(&self, member: u32) -> bool {
        let running = (0..self.params.members).filter_map(|no| Some((no, self.world.bus(no)?.voters())));
        let views: Vec<_> = running.collect();
        let others = views.iter().filter(|(no, _)| *no != member).max_by_key(|(_, view)| view.epoch);
        let latest = views.iter().max_by_key(|(_, view)| view.epoch);
        let (Some((_, others)), Some((_, latest))) = (others, latest) else { return false };
        [others, latest].into_iter().all(|view| {
            [view.voters, view.previous].into_iter().filter(|set| !set.is_empty()).all(|set| {
                let voters = set.iter().filter_map(|id| self.world.number_of(*id));
                let left = voters.filter(|no| *no != member && self.world.watch().remembers(*no, view)).count();
                left > set.len() / 2
            })
        })
    }

    fn wipe(&mut self, member: u32) {
        self.world.lose_disk(member);
        self.copies.disk_lost(member);
        self.world.watch_mut().disk_lost(member);
        self.operator.is_new(member);
    }

    fn rot(&mut self, member: u32, bit: u64, down_ns: u64) {
        if !self.may_lose(member) || !self.kill(member, down_ns) {
            return;
        }
        if self.world.damage_disk(member, bit) && self.world.start(member).is_ok() {
            self.world.watch_mut().damage_restored(member);
        } else {
            self.wipe(member);
        }
    }

    fn take(&mut self, step: Step) -> Going {
        match step {
            Step::Strike(fault) => self.strike(fault),
            Step::Heal { from, to } => self.world.heal(from, to),
            Step::Resume { member } => self.world.resume(member),
            Step::Start { member } => self.start(member)?,
            Step::EndStorm => {
                self.storms -= 1;
                let now_ns = self.world.now_ns();
                self.world.watch_mut().reach.links(now_ns, true);
                if self.storms == 0 {
                    self.world.set_links(self.params.links);
                }
            }
            Step::Tend => self.operator.tend(&mut self.world),
            Step::Leave(leaving) => self.leave(leaving),
            Step::End(leaving) => self.end(leaving),
        }
        self.judged()
    }

    fn strike(&mut self, fault: Fault) {
        self.world.note(|| format!("{fault:?}"));
        match fault {
            Fault::Cut { from, to, both, for_ns } => {
                self.cut(from, to, for_ns);
                if both {
                    self.cut(to, from, for_ns);
                }
            }
            Fault::Split { mask, both, for_ns } => self.split(mask, both, for_ns),
            Fault::Pause { member, for_ns } => {
                self.world.pause(member);
                self.after(for_ns, Step::Resume { member });
            }
            Fault::Crash { member, down_ns } => {
                self.kill(member, down_ns);
            }
            Fault::Wipe { member, down_ns } => {
                if self.may_lose(member) && self.kill(member, down_ns) {
                    self.wipe(member);
                }
            }
            Fault::Rot { member, bit, down_ns } => self.rot(member, bit, down_ns),
            Fault::ZoneLoss { zone, down_ns } => {
                for member in (0..self.params.members).filter(|no| no % self.params.zones == zone) {
                    self.kill(member, down_ns);
                }
            }
            Fault::Depart { member, down_ns } => self.depart(member, down_ns),
            Fault::Storm { loss_ppm, late_ppm, late_ns, for_ns } => {
                self.storms += 1;
                self.world.set_links(Links { loss_ppm, late_ppm, late_ns, ..self.params.links });
                let now_ns = self.world.now_ns();
                self.world.watch_mut().reach.links(now_ns, false);
                self.after(for_ns, Step::EndStorm);
            }
            told => self.tell(told),
        }
    }

    /// What members are told by their nodes; what does not run is not told, and refusals are as good as any answer.
    fn tell(&mut self, fault: Fault) {
        let number = |group: u32| GroupId(u64::from(group) + 1);
        let (member, command) = match fault {
            Fault::Failover { member, group, how } => (member, Command::Failover { group: number(group), how }),
            Fault::Claim { member, group, first, last } => {
                let group = number(group);
                let me = self.world.id(member);
                let primary = self.world.bus(member).and_then(|bus| bus.groups().find(|view| view.group == group));
                if primary.is_none_or(|view| view.primary != me) {
                    // Whoever makes a group anew that others know has two groups of one name: no operator may.
                    return;
                }
                (member, Command::Claim { group, slots: SlotRange::new(first, last).into_iter().collect() })
            }
            Fault::Publish { member } => {
                (member, Command::Publish { channel: CHANNEL.to_vec(), message: vec![7; 100] })
            }
            Fault::Forget { member, by } => {
                self.operator.is_new(member);
                (by, Command::Forget { id: self.world.id(member) })
            }
            Fault::SetVoters { member, mask } => {
                let voters = (0..self.params.members).filter(|no| mask >> no & 1 == 1).map(|no| self.world.id(no));
                let voters = voters.collect();
                return self.operator.tell_voters(&mut self.world, member, voters);
            }
            Fault::Stranger { member, invited } => {
                let stranger = self.params.members;
                let (by, other) = if invited { (member, stranger) } else { (stranger, member) };
                (by, Command::Meet { id: self.world.id(other), address: address_of(other) })
            }
            _ => return,
        };
        if self.world.bus(member).is_none() {
            return;
        }
        match &command {
            Command::Forget { id } => {
                let forgotten = self.world.number_of(*id);
                self.world.watch_mut().wishing(forgotten.map(|other| (member, other)));
            }
            Command::Failover { group, .. } => self.world.watch_mut().asked(member, *group),
            _ => {}
        }
        let _refused_or_not = self.world.command(member, command);
        self.world.watch_mut().wishing(None);
    }

    fn cut(&mut self, from: u32, to: u32, for_ns: u64) {
        self.world.cut(from, to);
        self.after(for_ns, Step::Heal { from, to });
    }

    fn split(&mut self, mask: u32, both: bool, for_ns: u64) {
        let (inside, outside): (Vec<u32>, Vec<u32>) = (0..self.params.members).partition(|no| mask >> no & 1 == 1);
        for from in inside {
            for to in outside.iter().copied() {
                self.cut(from, to, for_ns);
                if both {
                    self.cut(to, from, for_ns);
                }
            }
        }
    }
}

//! One run: the plan against the case, then healing, then the judgement.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::plan::Fault;
use super::{Case, MILLI_NS, MakeCase, Params, Plan, SECOND_NS, host};
use crate::net::{LinkOptions, Side};
use crate::rng::Rng;
use crate::trace::Event;
use crate::world::{ConnInfo, Kill, ServerNo, Stop, World};

/// A server that was asked to leave is killed after this long.
const DRAIN_NS_MAX: u64 = 40 * SECOND_NS;

/// How often a server that was asked to leave is looked at.
const DRAIN_LOOK_NS: u64 = 20 * MILLI_NS;

/// How often a case is asked whether it is content.
const CHECK_NS: u64 = 250 * MILLI_NS;

/// Runs that one search for fewer faults may take.
const SHRINK_RUNS_MAX: usize = 400;

/// How one seed went.
#[derive(Debug)]
pub struct Outcome {
    /// The hash of all events: equal for equal parameters and plans.
    pub event_hash: u64,
    /// How many events there were.
    pub events: u64,
    /// How long the world lasted by its own clock.
    pub world_ns: u64,
    /// What the case counted.
    pub counters: Vec<(&'static str, u64)>,
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
    /// The last events.
    pub tail: Vec<Event>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} fails: {}", self.params.seed, self.what)?;
        writeln!(f, "parameters\n{}\nplan, {} faults", self.params, self.plan.entries.len())?;
        for (at_ns, fault) in &self.plan.entries {
            writeln!(f, "{:>12}.{:03} us  {fault:?}", at_ns / 1_000, at_ns % 1_000)?;
        }
        writeln!(f, "last events")?;
        self.tail.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

/// Runs what `params` draws.
pub fn run_seed(params: &Params, make: &MakeCase) -> Outcome {
    run_plan(params, &Plan::draw(params), make)
}

/// Runs `plan` in the world of `params`. A panic of the code under test is a failure like any other.
pub fn run_plan(params: &Params, plan: &Plan, make: &MakeCase) -> Outcome {
    let world = World::new(params.world.clone());
    let control = world.control();
    let case = make(&control, params);
    let (steps, link, servers) = (BTreeMap::new(), params.world.link, params.servers);
    let mut run = Run { world, case, steps, sequence: 0, link, servers, lost: None };
    let judged = catch_unwind(AssertUnwindSafe(|| run.go(params, plan)));
    let what = match judged {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some(what),
        Err(panic) => Some(format!("panic: {}", words_of(&*panic))),
    };
    let failure = what.map(|what| Failure { what, params: params.clone(), plan: plan.clone(), tail: control.tail() });
    Outcome {
        event_hash: control.event_hash(),
        events: control.events(),
        world_ns: control.now_ns(),
        counters: run.case.counters(),
        failure,
    }
}

/// Leaves out faults of a failing plan as long as it still fails in the same way, and returns the last failure seen.
pub fn shrink(failure: Failure, make: &MakeCase) -> Failure {
    let kind = kind_of(&failure);
    let mut best = failure;
    let mut runs = 0;
    let mut size = best.plan.entries.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < best.plan.entries.len() {
            let mut fewer = best.plan.clone();
            fewer.entries.drain(at..(at + size).min(best.plan.entries.len()));
            runs += 1;
            match run_plan(&best.params, &fewer, make).failure {
                Some(failure) if kind_of(&failure) == kind => best = failure,
                _ => at += size,
            }
            if runs >= SHRINK_RUNS_MAX {
                return best;
            }
        }
        size /= 2;
    }
    best
}

/// What is wrong, without the numbers that differ from run to run.
fn kind_of(failure: &Failure) -> String {
    failure.what.lines().next().unwrap_or_default().chars().filter(|letter| !letter.is_ascii_digit()).collect()
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
    Heal { from: ServerNo, to: ServerNo },
    Restore { from: ServerNo, to: ServerNo },
    Resume { server: ServerNo },
    Start { server: ServerNo },
    LookAtDrain { server: ServerNo, until_ns: u64, down_ns: u64 },
}

/// Stops a run early: the case has seen enough, or the world ran away.
type Going<T> = Result<T, String>;

struct Run {
    /// Before the case, so that the servers' tasks are dropped first.
    world: World,
    case: Box<dyn Case>,
    steps: BTreeMap<(u64, u64), Step>,
    sequence: u64,
    link: LinkOptions,
    servers: u32,
    /// The server that never comes back.
    lost: Option<ServerNo>,
}

impl Run {
    fn go(&mut self, params: &Params, plan: &Plan) -> Going<()> {
        for no in 0..self.servers {
            let server = self.world.add_server(&host(ServerNo(no)));
            assert_eq!(server, ServerNo(no), "servers are numbered from 0");
        }
        for no in 0..self.servers {
            self.start(ServerNo(no));
        }
        for (at_ns, fault) in &plan.entries {
            self.later(params.calm_ns + at_ns, Step::Strike(*fault));
        }
        self.strike_until(params.calm_ns + params.faults_ns)?;
        if params.loses_one && self.case.can_lose_one() {
            self.lose_one(params.seed);
        }
        if params.cuts_heal_last {
            self.end_cuts()?;
        }
        self.heal_links();
        self.finish_drains()?;
        self.start_all();
        self.world.note("everything healed");
        self.case.healed();
        self.until_ok(self.case.bounds().converge_ns, |case| case.converged())?;
        self.world.note("winding down");
        self.case.wind_down();
        self.until_ok(self.case.bounds().wind_down_ns, |case| case.judge())
    }

    /// Runs until `check` is content, `span_ns` at most; its last complaint is the failure.
    fn until_ok(&mut self, span_ns: u64, check: impl Fn(&mut dyn Case) -> Result<(), String>) -> Going<()> {
        let end_ns = self.world.now_ns().saturating_add(span_ns);
        loop {
            let now_ns = self.world.now_ns();
            let checked = check(&mut *self.case);
            if checked.is_ok() || now_ns >= end_ns {
                return checked;
            }
            self.run_until(end_ns.min(now_ns + CHECK_NS))?;
        }
    }

    fn later(&mut self, at_ns: u64, step: Step) {
        self.sequence += 1;
        self.steps.insert((at_ns, self.sequence), step);
    }

    fn after(&mut self, for_ns: u64, step: Step) {
        self.later(self.world.now_ns().saturating_add(for_ns), step);
    }

    fn strike_until(&mut self, end_ns: u64) -> Going<()> {
        while let Some(entry) = self.steps.first_entry() {
            let at_ns = entry.key().0;
            if at_ns > end_ns {
                break;
            }
            let step = entry.remove();
            self.run_until(at_ns)?;
            self.take(step);
        }
        self.run_until(end_ns)
    }

    /// One server stays away from now on: one that is down if there is one.
    fn lose_one(&mut self, seed: u64) {
        let all = || (0..self.servers).map(ServerNo);
        let down: Vec<ServerNo> = all().filter(|server| !self.world.is_up(*server)).collect();
        let among = if down.is_empty() { all().collect() } else { down };
        let server = Rng::new(seed).fork("lost", 0).pick(&among);
        self.kill(server, Kill::Process, 0);
        self.world.note(format!("{} never comes back", host(server)));
        self.lost = Some(server);
    }

    /// Every server is up and runs, while links that are cut stay so until their time is over.
    fn end_cuts(&mut self) -> Going<()> {
        (0..self.servers).for_each(|server| self.world.resume(ServerNo(server)));
        self.start_all();
        while self.steps.values().any(|step| matches!(step, Step::Heal { .. })) {
            let Some(((at_ns, _), step)) = self.steps.pop_first() else { break };
            self.run_until(at_ns)?;
            if !matches!(step, Step::Strike(_)) {
                self.take(step);
            }
        }
        Ok(())
    }

    /// Lets servers that were asked to leave do so, and forgets every other step.
    fn finish_drains(&mut self) -> Going<()> {
        self.steps.retain(|_, step| matches!(step, Step::LookAtDrain { .. }));
        let end_ns = self.world.now_ns() + DRAIN_NS_MAX;
        while let Some(entry) = self.steps.first_entry() {
            let (at_ns, _) = *entry.key();
            let step = entry.remove();
            self.run_until(at_ns)?;
            assert!(at_ns <= end_ns + DRAIN_LOOK_NS + SECOND_NS, "a drain has a limit");
            self.take(step);
            self.steps.retain(|_, step| matches!(step, Step::LookAtDrain { .. }));
        }
        Ok(())
    }

    fn run_until(&mut self, at_ns: u64) -> Going<()> {
        match self.world.run_until_ns(at_ns) {
            Ok(Stop::Reached) => Ok(()),
            Ok(Stop::Quiet) => {
                // Nothing moves by itself any more, but the plan may still move something.
                self.world.pass_until_ns(at_ns);
                Ok(())
            }
            Ok(Stop::Finished) => Err(self.case.judge().err().unwrap_or_else(|| "the case stopped its run".to_owned())),
            Err(halt) => Err(halt.to_string()),
        }
    }

    fn start(&mut self, server: ServerNo) {
        if !self.world.is_up(server) && self.lost != Some(server) {
            let runtime = self.world.start(server);
            self.case.start(runtime);
        }
    }

    fn kill(&mut self, server: ServerNo, how: Kill, down_ns: u64) {
        if self.world.is_up(server) {
            self.world.kill(server, how);
            self.case.killed(server);
            self.after(down_ns, Step::Start { server });
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Strike(fault) => self.strike(fault),
            Step::Heal { from, to } => self.world.heal(from, to),
            Step::Restore { from, to } => self.world.set_link(from, to, self.link),
            Step::Resume { server } => self.world.resume(server),
            Step::Start { server } => self.start(server),
            Step::LookAtDrain { server, until_ns, down_ns } => {
                if self.case.is_drained(server) || self.world.now_ns() >= until_ns {
                    self.kill(server, Kill::Process, down_ns);
                } else {
                    self.after(DRAIN_LOOK_NS, step);
                }
            }
        }
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Reset { nth } => {
                if let Some(conn) = self.nth(nth) {
                    self.world.reset(conn.id);
                }
            }
            Fault::ResetAfter { nth, writer, bytes } => {
                if let Some(conn) = self.nth(nth) {
                    self.world.reset_after(conn.id, writer, bytes);
                }
            }
            Fault::HalfOpen { nth, writer, both } => self.half_open(nth, writer, both),
            Fault::Slow { from, to, bytes_per_s, latency_ns, for_ns } => {
                self.world.set_link(from, to, LinkOptions { bytes_per_s, latency_ns, ..self.link });
                self.after(for_ns, Step::Restore { from, to });
            }
            Fault::Clog { from, to, for_ns } => self.world.clog(from, to, Duration::from_nanos(for_ns)),
            Fault::Cut { from, to, both, for_ns } => {
                self.cut(from, to, for_ns);
                if both {
                    self.cut(to, from, for_ns);
                }
            }
            Fault::Isolate { server, for_ns } => {
                for other in (0..self.servers).map(ServerNo).filter(|other| *other != server) {
                    self.cut(server, other, for_ns);
                    self.cut(other, server, for_ns);
                }
            }
            Fault::Pause { server, for_ns } => {
                self.world.pause(server);
                self.after(for_ns, Step::Resume { server });
            }
            Fault::Kill { server, down_ns } => self.kill(server, Kill::Process, down_ns),
            Fault::Crash { server, down_ns } => self.kill(server, Kill::Machine, down_ns),
            Fault::Drain { server, down_ns } => self.drain(server, down_ns),
            Fault::Drift { server, ppm } => self.world.set_drift(server, ppm),
            Fault::Corrupt { from, to, ppm, for_ns } => {
                self.world.set_link(from, to, LinkOptions { corrupt_ppm: ppm, ..self.link });
                self.after(for_ns, Step::Restore { from, to });
            }
            Fault::WallStep { server, step_ns } => self.world.step_wall_clock(server, step_ns),
        }
    }

    fn half_open(&mut self, nth: u64, writer: Side, both: bool) {
        if let Some(conn) = self.nth(nth) {
            self.world.black_hole(conn.id, writer);
            if both {
                self.world.black_hole(conn.id, writer.other());
            }
        }
    }

    fn cut(&mut self, from: ServerNo, to: ServerNo, for_ns: u64) {
        self.world.cut(from, to);
        self.after(for_ns, Step::Heal { from, to });
    }

    fn drain(&mut self, server: ServerNo, down_ns: u64) {
        let draining =
            self.steps.values().any(|step| matches!(step, Step::LookAtDrain { server: at, .. } if *at == server));
        if self.world.is_up(server) && !draining {
            self.world.note(format!("{} is asked to leave", host(server)));
            self.case.drain(server);
            let until_ns = self.world.now_ns() + DRAIN_NS_MAX;
            self.after(DRAIN_LOOK_NS, Step::LookAtDrain { server, until_ns, down_ns });
        }
    }

    fn nth(&self, nth: u64) -> Option<ConnInfo> {
        let conns = self.world.connections();
        if conns.is_empty() { None } else { Some(conns[(nth % conns.len() as u64) as usize]) }
    }

    fn heal_links(&mut self) {
        let servers: Vec<ServerNo> = (0..self.servers).map(ServerNo).collect();
        for from in servers.iter().copied() {
            for to in servers.iter().copied() {
                self.world.set_link(from, to, self.link);
                self.world.clog(from, to, Duration::ZERO);
                self.world.heal(from, to);
            }
        }
        for server in servers {
            self.world.resume(server);
        }
    }

    fn start_all(&mut self) {
        for no in 0..self.servers {
            self.start(ServerNo(no));
        }
    }
}

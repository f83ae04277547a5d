//! Many small worlds, each strange in its own way.
//!
//! A seed draws what its world is like ([`Params`]), which classes of fault it knows and when they strike ([`Plan`]);
//! swarm testing: leaving classes out finds what too much noise would hide. A run has three phases. *Faults*: the
//! plan strikes while the case loads its servers; only safety is asked for. *Convergence*: everything heals, every
//! server is up, but for one in half of the seeds where the case can do without it, and the case must work again within its bound.
//! *Winding down*: the load ends and nothing may be left.
//!
//! A plan is a list of absolute facts, drawn before the run: leaving out entries changes nothing else, so
//! [`shrink`] can look for the few that a failure needs.

mod params;
mod plan;
mod run;

pub use self::params::{Class, Params};
pub use self::plan::Plan;
pub use self::run::{Failure, Outcome, run_plan, run_seed, shrink};

use core::time::Duration;

use crate::world::{Control, ServerNo, SimRuntime};

/// How long things may take, in nanoseconds of the world.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// After the healing everything must work again within this time.
    pub converge_ns: u64,
    /// When the load has ended nothing may be left after this time.
    pub wind_down_ns: u64,
}

/// What is under test: code that runs on every server, a load, and the judgement.
///
/// A case that sees a wrong answer calls [`Control::finish`]: the run stops there and asks it for its judgement.
pub trait Case {
    /// A new life of a server begins: spawn what it runs, and its load.
    fn start(&mut self, runtime: SimRuntime);

    /// A life has just ended, without warning.
    fn killed(&mut self, server: ServerNo);

    /// The server is asked to leave in good order. It is killed when [`Case::is_drained`] says so, or a while later.
    fn drain(&mut self, server: ServerNo);

    /// Whether a server that was asked to leave has nothing left to do.
    fn is_drained(&self, server: ServerNo) -> bool;

    /// How long things may take.
    fn bounds(&self) -> Bounds;

    /// Whether everything must work again although one server, any of them, never comes back. Asked when the last fault has struck.
    fn can_lose_one(&self) -> bool {
        false
    }

    /// All faults are over and every server is up, or all but one.
    fn healed(&mut self);

    /// Asked again and again until it is content or that time has passed.
    ///
    /// # Errors
    /// What does not work yet, in words.
    fn converged(&mut self) -> Result<(), String>;

    /// The load ends. Within [`Bounds::wind_down_ns`] nothing may be left.
    fn wind_down(&mut self);

    /// The judgement: asked again and again after [`Case::wind_down`] until it is content or that time has passed, and
    /// once after the case itself stopped the run.
    ///
    /// # Errors
    /// What was wrong or what is still left, in words.
    fn judge(&mut self) -> Result<(), String>;

    /// What it counted, for the summary of many seeds.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// Makes the case of one seed: the control of its world and what was drawn for it.
pub type MakeCase = dyn Fn(&Control, &Params) -> Box<dyn Case>;

/// The name of a simulated server's machine.
#[must_use]
pub fn host(server: ServerNo) -> String {
    format!("s{}", server.0)
}

const SECOND_NS: u64 = Duration::from_secs(1).as_nanos() as u64;
const MILLI_NS: u64 = 1_000_000;

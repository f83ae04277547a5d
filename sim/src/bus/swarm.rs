//! Small clusters, each strange in its own way.
//!
//! A seed draws what its world is like ([`Params`]), which classes of fault it knows and when they strike ([`Plan`]);
//! swarm testing: leaving classes out finds what too much noise would hide. A run forms a cluster, lets the plan
//! strike, heals everything and asks for agreement; then a member dies, is replaced in time, and comes back. What must
//! hold at every step, the [`Checker`](super::Checker) sees.
//!
//! A plan is a list of absolute facts, drawn before the run: leaving out entries changes nothing else, so [`shrink`]
//! can look for the few that a failure needs.

mod copies;
mod operator;
mod params;
mod plan;
mod run;

pub(in crate::bus) use self::copies::CopyFact;
pub use self::params::{Class, Params};
pub use self::plan::Plan;
pub use self::run::{Bug, Failure, Outcome, run_seed, shrink};

//! Planners: from the state and what is alive to the changes that should be proposed.
//!
//! All are pure functions. A plan is made for one version of the state; when another change comes first, its changes are
//! refused as stale, and it is made again. So any server may plan, and two at a time do no harm.
//!
//! [`failure`] takes members of failed servers and drives out of acting lists and back in as learners, [`departure`] does so before a
//! server stops, [`drives`] gives up and releases drives, [`placement`] makes the maps of sets, [`voters`] spreads the voters over zones.

pub mod departure;
pub mod drives;
pub mod failure;
pub mod placement;
pub mod voters;

#[cfg(test)]
mod tests;

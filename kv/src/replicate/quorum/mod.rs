//! Writes that no failover loses: a reply leaves when a majority of the copies has what it tells of.
//!
//! In reading order: this file (terms, who has a copy, what counts as a majority), `commit` (what one stream says of that, and the
//! primary's side: what is committed, which replies wait), `promise` (the member's side: whom it serves), `takeover` (how a new primary
//! makes sure that it has everything before it serves), `begin` (what an operator can decide where nobody may serve).
//!
//! Model
//! - The stream of a shard is a log as in Raft (Ongaro and Ousterhout, 2014). Who is primary, and in which epoch, comes from outside;
//!   at most one node has an epoch. A *term* is an epoch and the life of the process that has it, so that a primary which was
//!   restarted is another one. Each term, and each change of who has a copy, begins with a record in the stream.
//! - A position is *committed* once more than half of the members have the stream up to it, and the term's record is before it.
//!   Replies wait for that, those of reads too: a read waits for bytes that were appended after it came, so that no newer primary
//!   can have served before.
//! - A member *promises* a term durably before it says so, and serves no earlier one from then on: it takes no stream from another
//!   primary, and acknowledges none.
//! - Before it serves, a new primary has so many members promise its term that each majority has one of them, and takes over the data
//!   of the one whose log ends last (by the term of its last record, then by length). So it has all that was committed. This is the
//!   first phase of Paxos, after the ballot and not before it: the ballot may choose anybody.
//! - Members change by joint majorities: from the record that names the old and the new ones until that is committed, both have
//!   to agree. Any change is safe, also while the primary changes.
//! - Data are in memory. A member that was restarted is *blank*: its answer counts for nothing until it has once more all that the
//!   primary had when it came back.
//!
//! A shard enters this mode when its primary is told to (`replication-quorum yes`); its replicas learn of it from the stream.

mod begin;
mod commit;
mod planted;
mod promise;
mod takeover;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use begin::Attempts;

use crate::cluster::map::Name;
pub use commit::Extent;
pub use commit::QuorumStatus;
pub(crate) use commit::{CommitState, Gate};
pub use planted::Planted;
#[cfg(feature = "planted")]
pub use planted::plant;
pub use promise::{Promise, Promises};
pub use takeover::{PromiseAnswer, PromiseRequest, Refused, Round, TakeOver};

/// Members of a shard in this mode.
pub const MEMBERS_MAX: usize = 7;

/// Whose turn it is: which epoch, and which life of the process that has it. Greater ones are later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Term {
    /// The epoch, which one node has.
    pub epoch: u64,
    /// How often that node's process was started.
    pub life: u64,
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.life)
    }
}

impl Term {
    /// The one that is written so.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (epoch, life) = text.split_once('.')?;
        Some(Self { epoch: epoch.parse().ok()?, life: life.parse().ok()? })
    }
}

/// Who has a copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Those that do; nobody where the shard is not in this mode.
    now: Vec<Name>,
    /// Those that will, while that changes.
    next: Option<Vec<Name>>,
}

/// How many of so many members write together.
fn writers(members: usize) -> usize {
    if planted::has(Planted::HalfIsEnough) { members.div_ceil(2) } else { members / 2 + 1 }
}

/// How many of so many members have one of each group of writers among them.
const fn readers(members: usize) -> usize {
    members - members / 2
}

impl Members {
    /// One copy.
    pub(crate) fn alone(name: Name) -> Self {
        Self { now: vec![name], next: None }
    }

    /// Whether the shard is in this mode.
    pub(crate) fn is_some(&self) -> bool {
        !self.now.is_empty()
    }

    /// Those that have a copy, or will.
    pub(crate) fn all(&self) -> Vec<Name> {
        let mut all = self.now.clone();
        all.extend(self.next.iter().flatten().filter(|name| !self.now.contains(name)));
        all
    }

    pub(crate) fn has(&self, name: Name) -> bool {
        self.now.contains(&name) || self.next.as_ref().is_some_and(|next| next.contains(&name))
    }

    /// The fewest copies that a write has while these are the members.
    pub(crate) fn copies(&self) -> usize {
        self.next.as_ref().map_or(self.now.len(), |next| next.len().min(self.now.len()))
    }

    /// Both sets, or the one.
    fn sets(&self) -> impl Iterator<Item = &Vec<Name>> {
        let skipped = usize::from(self.next.is_some() && planted::has(Planted::NextIsEnough));
        std::iter::once(&self.now).chain(&self.next).skip(skipped)
    }

    /// They change to these, as soon as old and new ones agree.
    pub(crate) fn towards(&self, next: Vec<Name>) -> Self {
        Self { now: self.now.clone(), next: Some(next) }
    }

    /// The change is done, if there was one.
    pub(crate) fn settled(&self) -> Option<Self> {
        self.next.clone().map(|now| Self { now, next: None })
    }

    /// The greatest position that enough members have for it to be committed. `has` tells what one has.
    pub(crate) fn committed(&self, has: impl Fn(Name) -> u64) -> u64 {
        let of_set = |set: &Vec<Name>| {
            let mut positions: Vec<u64> = set.iter().map(|name| has(*name)).collect();
            positions.sort_unstable_by(|one, other| other.cmp(one));
            positions.get(writers(set.len()) - 1).copied().unwrap_or(0)
        };
        self.sets().map(of_set).min().unwrap_or(0)
    }

    /// Whether so many agree that each majority has one of them.
    pub(crate) fn is_agreed_by(&self, agrees: impl Fn(Name) -> bool) -> bool {
        self.sets().all(|set| set.iter().filter(|name| agrees(**name)).count() >= readers(set.len()))
    }
}

/// `A,B` or `A,B>A,B,C` while they change, `-` for nobody.
impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &[Name]| names.iter().map(Name::to_string).collect::<Vec<_>>().join(",");
        match &self.next {
            _ if self.now.is_empty() => f.write_str("-"),
            None => f.write_str(&list(&self.now)),
            Some(next) => write!(f, "{}>{}", list(&self.now), list(next)),
        }
    }
}

impl Members {
    /// Those that are written so.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if text == "-" {
            return Some(Self::default());
        }
        let list = |text: &str| {
            let names: Option<Vec<Name>> = text.split(',').map(|name| name.parse().ok()).collect();
            names.filter(|names| names.len() <= MEMBERS_MAX)
        };
        match text.split_once('>') {
            None => Some(Self { now: list(text)?, next: None }),
            Some((now, next)) => Some(Self { now: list(now)?, next: Some(list(next)?) }),
        }
    }
}

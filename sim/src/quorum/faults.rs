//! What fails: one thing at a time, splits, and plots, which are several things one after the other that only do harm together.

use std::collections::VecDeque;

use super::world::{Claim, World, hang_up, lock};
use crate::rng::Rng;

/// How primaries and networks change together, in a million: each seed has a liking of its own.
#[derive(Debug)]
pub(super) struct Splits {
    /// So many faults are splits.
    of_faults: u32,
    /// The former primary comes back.
    returns: u32,
    /// What was cut before is whole again.
    clears: u32,
    /// The present primary loses everybody, not only its successor.
    isolates: u32,
    /// Each other node hears of it at once.
    tells: u32,
}

impl Splits {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let mut one_of = |chances: [u32; 3]| chances[rng.below(3) as usize];
        Self {
            of_faults: one_of([0, 150_000, 700_000]),
            returns: one_of([0, 300_000, 900_000]),
            clears: one_of([0, 300_000, 900_000]),
            isolates: one_of([0, 500_000, 1_000_000]),
            tells: one_of([0, 100_000, 600_000]),
        }
    }
}

/// One thing of a plot.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Nothing passes between two nodes.
    Part(usize, usize),
    /// A node reaches nobody.
    Isolate(usize),
    /// Everything passes.
    Heal,
    /// A node becomes primary, and hears of it.
    Raise(usize),
    /// A node hears of the latest claim.
    Tell(usize),
    /// A node hears of the claim before that.
    Mislead(usize),
    /// A node dies and is back at once.
    Restart(usize),
    /// A node runs, and hears of the latest claim.
    Wake(usize),
    /// Nothing happens for long.
    Rest,
    /// Links deliver a few bytes at a time.
    Slow,
    /// They do not any more.
    Fast,
}

/// Things that are to happen, with the steps to wait before each.
#[derive(Debug, Default)]
pub(super) struct Plot(VecDeque<(u64, Act)>);

impl Plot {
    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

impl World {
    /// Somebody is made primary, whoever it is.
    fn vote(&mut self, primary: usize) {
        let last = *self.claims.last().expect("there is a first one");
        let step = self.rng.within(1..=3);
        let may_leave = self.machines.len() > 2 && self.rng.chance(200_000);
        let outside = may_leave.then(|| self.rng.below(self.machines.len() as u64) as usize);
        let outside = outside.filter(|node| *node != primary);
        self.claims.push(Claim { epoch: last.epoch + step, primary, outside });
        self.outcome.ballots += 1;
    }

    /// Something fails, or works again.
    pub(super) fn fail(&mut self) {
        let count = self.machines.len() as u64;
        let (one, other) = (self.rng.below(count) as usize, self.rng.below(count) as usize);
        if self.rng.chance(self.plots) {
            return self.begin_plot();
        }
        if self.rng.chance(self.splits.of_faults) {
            return self.split(one);
        }
        match self.rng.below(16) {
            0 if self.rng.chance(self.kill_chance) => self.kill(one),
            0..=3 => {
                if self.machines[one].process.is_none() {
                    self.start(one);
                }
            }
            4 | 5 if one != other => drop(lock(&self.cables).cut.insert((one, other))),
            6 => self.isolate(one),
            7..=9 => lock(&self.cables).cut.clear(),
            10 => {
                // A link breaks. What was on its way is lost.
                if let Some(process) = &mut self.machines[one].process
                    && process.pipe.is_some()
                {
                    hang_up(&mut self.loose, one, process);
                    process.follower.handle_broken("the link broke", lock(&self.cables).now);
                }
            }
            11 if self.rng.chance(self.kill_chance) => self.relapse(one),
            _ => self.vote(one),
        }
    }

    /// Nothing passes between two nodes any more.
    fn part(&self, one: usize, other: usize) {
        if one != other {
            lock(&self.cables).cut.extend([(one, other), (other, one)]);
        }
    }

    /// A node becomes primary. The present one reaches its successor no more, or nobody, and hears nothing of it; others may.
    fn split(&mut self, other: usize) {
        let latest = self.claims.last().expect("there is a first one").primary;
        let former = self.claims.iter().rev().map(|claim| claim.primary).find(|primary| *primary != latest);
        let successor = former.filter(|_| self.rng.chance(self.splits.returns)).unwrap_or(other);
        if self.rng.chance(self.splits.clears) {
            lock(&self.cables).cut.clear();
        }
        if self.rng.chance(self.splits.isolates) {
            self.isolate(latest);
        } else {
            self.part(latest, successor);
        }
        self.vote(successor);
        for node in 0..self.machines.len() {
            if node == successor || node != latest && self.rng.chance(self.splits.tells) {
                self.tell_of(node, self.claims.len() - 1);
            }
        }
    }

    /// A node dies and is back at once, and goes on with what was so before.
    fn relapse(&mut self, node: usize) {
        let claims = self.claims.len();
        let was = self.machines[node].process.as_ref().map(|process| process.known);
        let was = was.filter(|known| *known < claims).unwrap_or_else(|| claims.saturating_sub(2));
        self.kill(node);
        self.start(node);
        self.tell_of(node, was);
    }

    /// Several things are to happen.
    fn begin_plot(&mut self) {
        let Some(&Claim { primary: a, .. }) = self.claims.last() else { return };
        let mut others: Vec<usize> = (0..self.machines.len()).filter(|node| *node != a).collect();
        let turn = self.rng.below(others.len() as u64) as usize;
        others.rotate_left(turn);
        let (b, rest) = (others[0], others[1..].to_vec());
        let tell_rest = |acts: &mut Vec<Act>| acts.extend(rest.iter().map(|node| Act::Tell(*node)));
        // At first all is well, and all know the primary.
        let mut acts = vec![Act::Heal];
        acts.extend((0..self.machines.len()).map(Act::Wake));
        acts.push(Act::Rest);
        match self.rng.below(4) {
            // The primary is cut off, and does not hear of the next one.
            0 => {
                acts.extend([Act::Isolate(a), Act::Raise(b)]);
                tell_rest(&mut acts);
            }
            // Others have promised the next one, die, and meet the former one.
            1 if self.kill_chance > 0 => {
                acts.extend([Act::Part(a, b), Act::Raise(b)]);
                acts.extend(rest.iter().flat_map(|node| [Act::Restart(*node), Act::Mislead(*node)]));
                tell_rest(&mut acts);
            }
            // Primaries by turns, each of which has a record that nobody else has.
            2 => {
                acts.extend([Act::Isolate(a), Act::Raise(b), Act::Heal, Act::Isolate(b), Act::Slow, Act::Raise(a)]);
                tell_rest(&mut acts);
                acts.extend([Act::Heal, Act::Isolate(a), Act::Raise(b)]);
                tell_rest(&mut acts);
            }
            // The primary is restarted and goes on without those who have most of it, until they are asked.
            _ if self.kill_chance > 0 => {
                let (near, far) = others.split_at(1);
                acts.extend(far.iter().map(|node| Act::Part(a, *node)));
                acts.push(Act::Heal);
                acts.extend(near.iter().map(|node| Act::Isolate(*node)));
                acts.extend([Act::Restart(a), Act::Tell(a), Act::Heal, Act::Isolate(a), Act::Raise(b)]);
                tell_rest(&mut acts);
            }
            _ => {}
        }
        acts.extend([Act::Heal, Act::Fast]);
        self.plot.0 = acts.into_iter().map(|act| (0, act)).collect();
        for (wait, act) in &mut self.plot.0 {
            // What comes with what was before comes at once, mostly.
            *wait = match act {
                Act::Part(..) | Act::Isolate(_) | Act::Mislead(_) | Act::Wake(_) | Act::Slow | Act::Fast => 0,
                Act::Rest => self.rng.magnitude(1_000..=6_000),
                _ if self.rng.chance(150_000) => 0,
                _ => self.rng.magnitude(5..=2_000),
            };
        }
    }

    /// A step of a plot.
    pub(super) fn go_on_with_plot(&mut self) {
        while let Some((wait, act)) = self.plot.0.front_mut() {
            if *wait > 0 {
                *wait -= 1;
                return;
            }
            let act = *act;
            self.plot.0.pop_front();
            let latest = self.claims.len() - 1;
            match act {
                Act::Part(one, other) => self.part(one, other),
                Act::Isolate(node) => self.isolate(node),
                Act::Heal => lock(&self.cables).cut.clear(),
                Act::Raise(node) => {
                    self.vote(node);
                    self.tell_of(node, latest + 1);
                }
                Act::Tell(node) => self.tell_of(node, latest),
                Act::Mislead(node) => self.tell_of(node, latest.saturating_sub(1)),
                Act::Restart(node) => {
                    self.kill(node);
                    self.start(node);
                }
                Act::Wake(node) => {
                    if self.machines[node].process.is_none() {
                        self.start(node);
                    }
                    self.tell_of(node, latest);
                }
                Act::Rest => {}
                Act::Slow => self.thin = Some(self.rng.magnitude(1..=8)),
                Act::Fast => self.thin = None,
            }
        }
    }

    /// A node reaches nobody.
    fn isolate(&self, node: usize) {
        (0..self.machines.len()).for_each(|other| self.part(node, other));
    }
}

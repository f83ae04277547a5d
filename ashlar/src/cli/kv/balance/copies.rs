//! Who keeps a second copy of what.
//!
//! A copy that is the only one of slots is never taken away: an engine leaves a group that has slots only if another replica there has
//! everything. So where the engine that could help is on the wrong server, it first takes the place of one that is on the right server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Engine, Picture, Step, apply};

/// Who may be taken to keep a copy.
#[derive(Debug, Clone, Copy)]
enum Helpers {
    /// Second engines that nobody needs.
    Seconds,
    /// Those of primaries that have no slots yet, too.
    Waiting,
    /// First engines without slots, too.
    All,
}

const HELPERS: [Helpers; 3] = [Helpers::Seconds, Helpers::Waiting, Helpers::All];

impl Picture<'_> {
    /// Whether a replica on that server would be lost together with one of the group.
    fn is_beside(&self, server: &str, primary: usize) -> bool {
        self.0[primary].server() == server || self.replicas(primary).any(|at| self.0[at].server() == server)
    }

    fn is_near(&self, one: usize, other: usize) -> bool {
        !self.0[one].zone.is_empty() && self.0[one].zone == self.0[other].zone
    }

    /// The server whose group this is: that of its first engine.
    fn home_of(&self, primary: usize) -> &str {
        let first = self.replicas(primary).find(|at| !self.0[*at].is_second).filter(|_| self.0[primary].is_second);
        self.0[first.unwrap_or(primary)].server()
    }

    /// Which server keeps the replica of which, if all is as it should be: servers in a circle, in the order of the picture, those of one
    /// zone side by side, and each looks so far ahead that another zone is there.
    fn ahead(&self) -> BTreeMap<String, String> {
        let mut circle: Vec<(&str, &str)> = Vec::new();
        for engine in self.0.iter().filter(|engine| !engine.is_second) {
            let place = (engine.zone.as_str(), engine.server());
            if !circle.contains(&place) {
                circle.push(place);
            }
        }
        circle.sort_by_key(|(zone, _)| *zone);
        let largest = circle.iter().map(|(zone, _)| circle.iter().filter(|(other, _)| other == zone).count()).max();
        let step = largest.filter(|largest| *largest < circle.len()).unwrap_or(1);
        let follower = |(at, (_, server)): (usize, &(&str, &str))| {
            ((*server).to_owned(), circle[(at + step) % circle.len()].1.to_owned())
        };
        circle.iter().enumerate().map(follower).collect()
    }

    /// A primary that nobody needs: it has nothing, and nobody who answers follows it.
    fn is_free(&self, at: usize) -> bool {
        let engine = &self.0[at];
        engine.is_primary() && engine.slots.is_empty() && engine.strays.is_empty() && !self.is_covered(at)
    }

    /// A replica of slots of which another replica has everything too.
    fn is_extra(&self, at: usize) -> bool {
        let engine = &self.0[at];
        let Some(primary) = engine.primary.as_ref().and_then(|name| self.find(name)) else { return false };
        let has_all = |other: usize| other != at && self.0[other].is_linked;
        engine.is_reached
            && self.0[primary].is_primary()
            && !self.0[primary].slots.is_empty()
            && self.living(primary).any(has_all)
    }

    /// A replica of a known primary without slots. What it has is needed by nobody.
    fn has_empty_primary(&self, at: usize) -> bool {
        let engine = &self.0[at];
        let primary = engine.primary.as_ref().and_then(|name| self.find(name));
        let is_empty = |primary: usize| self.0[primary].primary.is_none() && self.0[primary].slots.is_empty();
        engine.is_reached && primary.is_some_and(is_empty)
    }

    /// A replica of a primary that has no slots and is not meant to have any: no group at all.
    fn is_astray(&self, at: usize, homes: &[usize]) -> bool {
        let primary = self.0[at].primary.as_ref().and_then(|name| self.find(name));
        self.has_empty_primary(at)
            && primary.is_some_and(|primary| self.0[primary].is_primary() && !homes.contains(&primary))
    }

    /// Primaries with slots of which no replica answers.
    fn alone(&self) -> Vec<usize> {
        let is_alone = |at: &usize| {
            let engine = &self.0[*at];
            engine.is_primary() && !engine.slots.is_empty() && !self.is_covered(*at)
        };
        (0..self.0.len()).filter(is_alone).collect()
    }

    /// Who is free follows: first engines the stand-ins of servers that are gone, second engines whoever has fewest replicas then.
    pub(super) fn follow(&self) -> Vec<Step> {
        let mut steps = self.succeed();
        if steps.is_empty() {
            return self.follow_seconds();
        }
        let mut engines = self.0.to_vec();
        apply(&mut engines, &steps);
        steps.extend(Picture(&engines).follow_seconds());
        steps
    }

    /// A second engine that stands in for a server which is gone for good (nobody knows that server's first engine), or which is away and
    /// has left no copy, is followed by the first engine of a new, empty server. That has a second copy of the slots then, and takes the
    /// part of the lost server by [`Step::GiveBack`].
    fn succeed(&self) -> Vec<Step> {
        let is_stand_in = |at: &usize| {
            let engine = &self.0[*at];
            let mut firsts = self.replicas(*at).filter(|replica| !self.0[*replica].is_second);
            let is_left = !self.is_covered(*at) || firsts.next().is_none();
            engine.is_second && engine.is_primary() && !engine.slots.is_empty() && is_left
        };
        let mut stand_ins: Vec<usize> = (0..self.0.len()).filter(is_stand_in).collect();
        // Those without any second copy first, then those with most slots.
        stand_ins.sort_by_key(|at| (self.living(*at).count(), core::cmp::Reverse(self.0[*at].slots.len()), *at));
        let mut free: Vec<usize> = (0..self.0.len()).filter(|at| !self.0[*at].is_second && self.is_free(*at)).collect();
        let mut steps = Vec::new();
        for primary in stand_ins {
            let fit = free.iter().copied().filter(|at| !self.is_beside(self.0[*at].server(), primary));
            if let Some(replica) = fit.min_by_key(|at| self.is_near(*at, primary)) {
                free.retain(|at| *at != replica);
                steps.push(Step::Follow { replica, primary });
            }
        }
        steps
    }

    fn follow_seconds(&self) -> Vec<Step> {
        let homes = self.homes();
        let is_idle = |at: &usize| self.0[*at].is_second && (self.is_free(*at) || self.is_astray(*at, &homes));
        let mut counts: BTreeMap<usize, usize> = homes.iter().map(|home| (*home, self.living(*home).count())).collect();
        let ahead = self.ahead();
        let mut steps = Vec::new();
        for replica in (0..self.0.len()).filter(is_idle) {
            let server = self.0[replica].server();
            let best = homes.iter().copied().filter(|home| !self.is_beside(server, *home)).min_by_key(|home| {
                let is_preferred = ahead.get(server).is_some_and(|server| server == self.home_of(*home));
                let is_empty = self.0[*home].slots.is_empty();
                (counts[home], is_empty, !is_preferred, self.is_near(replica, *home), *home)
            });
            if let Some(primary) = best {
                *counts.entry(primary).or_default() += 1;
                steps.push(Step::Follow { replica, primary });
            }
        }
        steps
    }

    /// Primaries without a replica get one that others can do without, if nobody else is left for them: those with slots first.
    pub(super) fn go_over(&self) -> Vec<Step> {
        let alone = self.alone();
        let steps = if alone.is_empty() { Vec::new() } else { self.help_all(&alone) };
        if !steps.is_empty() {
            return steps;
        }
        let mut bare = self.homes().into_iter().filter(|home| !self.is_covered(*home));
        bare.find_map(|home| self.help(home, Helpers::Seconds)).into_iter().collect()
    }

    /// Steps for as many of these as can be helped at once; of ways that take several steps only one.
    fn help_all(&self, alone: &[usize]) -> Vec<Step> {
        let mut engines = self.0.to_vec();
        let mut steps = Vec::new();
        for orphan in alone {
            let picture = Picture(&engines);
            let step = HELPERS.into_iter().find_map(|whom| picture.help(*orphan, whom));
            let Some(Step::Follow { replica, primary }) = step else { continue };
            let is_direct = primary == *orphan;
            if is_direct || steps.is_empty() {
                engines[replica].primary = Some(engines[primary].name.clone());
                // Nobody may leave because of a copy that is still to come.
                engines[replica].is_linked = false;
                steps.push(Step::Follow { replica, primary });
            }
            if !is_direct {
                break;
            }
        }
        steps
    }

    /// The next step on the shortest way to a copy for this primary: somebody whom nobody needs follows it, or takes a place where somebody
    /// else becomes free for it then.
    fn help(&self, orphan: usize, whom: Helpers) -> Option<Step> {
        let homes = self.homes();
        let is_helper = |at: &usize| {
            let is_unused = self.is_free(*at) || self.is_astray(*at, &homes);
            match (whom, self.0[*at].is_second) {
                (_, true) if self.is_extra(*at) || is_unused => true,
                (Helpers::Seconds, _) | (Helpers::Waiting, false) => false,
                (Helpers::Waiting, true) => self.has_empty_primary(*at),
                (Helpers::All, _) => self.is_extra(*at) || is_unused || self.has_empty_primary(*at),
            }
        };
        let helpers: Vec<usize> = (0..self.0.len()).filter(is_helper).collect();
        let mut seen = BTreeSet::from([orphan]);
        let mut groups = VecDeque::from([orphan]);
        while let Some(group) = groups.pop_front() {
            let fit = helpers.iter().copied().filter(|at| !self.is_beside(self.0[*at].server(), group));
            let order = |at: &usize| (!self.0[*at].is_second, self.is_near(*at, group), *at);
            if let Some(replica) = fit.min_by_key(order) {
                return Some(Step::Follow { replica, primary: group });
            }
            for at in (0..self.0.len()).filter(|at| !self.is_beside(self.0[*at].server(), group)) {
                let primary = self.0[at].primary.as_ref().and_then(|name| self.find(name));
                let primary = primary.filter(|primary| self.0[*primary].is_primary() && self.0[at].is_reached);
                groups.extend(primary.filter(|primary| seen.insert(*primary)));
            }
        }
        None
    }

    /// Copies that are on their way: of slots of which there is no other, and all where others could be of use elsewhere then.
    pub(super) fn await_copies(&self) -> Vec<Step> {
        let is_bare = |home: usize| !self.is_covered(home);
        let is_guest = |engine: &Engine| !engine.is_second && engine.is_reached && engine.primary.is_some();
        let is_needed =
            !self.alone().is_empty() || self.homes().into_iter().any(is_bare) || self.0.iter().any(is_guest);
        let groups = (0..self.0.len()).filter(|at| {
            let engine = &self.0[*at];
            let is_copied = self.living(*at).any(|replica| self.0[replica].is_linked);
            engine.is_primary() && !engine.slots.is_empty() && (is_needed || !is_copied)
        });
        let coming = groups.flat_map(|at| self.living(at)).filter(|replica| !self.0[*replica].is_linked);
        coming.map(|replica| Step::Await { replica }).collect()
    }

    /// Replicas of what is no group become free. A first engine that helped out has slots of its own again, once its group can do without
    /// it and a copy of its slots can be kept.
    pub(super) fn detach(&self) -> Vec<Step> {
        let homes = self.homes();
        let is_lost = |at: &usize| self.is_astray(*at, &homes) || !self.0[*at].is_second && self.has_empty_primary(*at);
        let steps: Vec<Step> = (0..self.0.len()).filter(is_lost).map(|replica| Step::Detach { replica }).collect();
        if !steps.is_empty() || !self.alone().is_empty() || homes.iter().any(|home| !self.is_covered(*home)) {
            return steps;
        }
        (0..self.0.len()).find_map(|at| self.bring_home(at)).into_iter().collect()
    }

    /// The next step for a first engine that keeps a copy for another one to have slots of its own again: somebody else takes its place,
    /// or it leaves. None if there would be no copy of its slots then.
    fn bring_home(&self, first: usize) -> Option<Step> {
        let engine = &self.0[first];
        let primary = engine.primary.as_ref().and_then(|name| self.find(name))?;
        let is_helper = !engine.is_second && engine.is_reached && !self.0[primary].is_second;
        if !is_helper || !self.0[primary].is_primary() {
            return None;
        }
        let (mut engines, mut steps) = (self.0.to_vec(), Vec::new());
        while !Picture(&engines).is_extra(first) {
            let step = Picture(&engines).help(primary, Helpers::Seconds)?;
            apply(&mut engines, core::slice::from_ref(&step));
            steps.push(step);
        }
        let step = Step::Detach { replica: first };
        apply(&mut engines, core::slice::from_ref(&step));
        steps.push(step);
        Picture(&engines).help(first, Helpers::Seconds)?;
        steps.into_iter().next()
    }
}

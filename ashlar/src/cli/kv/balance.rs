//! What has to be done so that a key-value cluster is as it should be: a pure function from a picture of it to the next steps.
//!
//! As it should be means: first engines are primaries and second engines replicas; every slot has an owner, and owners have as many as
//! each other; each primary has a replica on another server, in another zone if there is one. The steps come in batches, those of one
//! independent of each other; after a batch one looks again. No steps are left where all is well, so it may be done at any time and
//! broken off anywhere.
//!
//! Redundancy comes before evenness: no slot moves for the sake of even shares as long as an engine that is free could keep a second
//! copy of slots that have none. Who keeps a copy of what is decided in `copies`.

mod copies;

use std::collections::{BTreeMap, BTreeSet};

use ashlar_kv::keyspace::slot::SLOTS;

/// Letters of a node's name that say which server it is of.
const SERVER_LEN: usize = 32;

/// One engine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Engine {
    /// What clients call it.
    pub(super) name: String,
    /// `HOST:PORT`.
    pub(super) place: String,
    /// What its server may be lost together with; empty for nothing in particular.
    pub(super) zone: String,
    /// It is its server's second one.
    pub(super) is_second: bool,
    /// It has answered.
    pub(super) is_reached: bool,
    /// Whom it follows.
    pub(super) primary: Option<String>,
    /// What its primary does is done there too.
    pub(super) is_linked: bool,
    /// The slots that it owns.
    pub(super) slots: BTreeSet<u16>,
    /// Slots that are on their way to another.
    pub(super) leaving: Vec<(u16, String)>,
    /// Slots that are on their way here.
    pub(super) coming: Vec<(u16, String)>,
    /// Keys of slots that it does not own, by slot.
    pub(super) strays: BTreeMap<u16, u64>,
    /// A majority of copies acknowledges its writes, or is to: slots move from and to it key by key only.
    pub(super) is_quorum: bool,
}

impl Engine {
    /// Which server it is of.
    pub(super) fn server(&self) -> &str {
        self.name.get(..SERVER_LEN).unwrap_or(&self.name)
    }

    fn is_primary(&self) -> bool {
        self.is_reached && self.primary.is_none()
    }
}

/// Tells second engines from first ones: by the last bit of their names, where a server has two.
pub(super) fn tell_seconds(engines: &mut [Engine]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    engines.iter().for_each(|engine| *counts.entry(engine.server().to_owned()).or_default() += 1);
    for engine in engines {
        let last = engine.name.chars().last().and_then(|digit| digit.to_digit(16)).unwrap_or(0);
        engine.is_second = last % 2 == 1 && counts[engine.server()] > 1;
    }
}

/// Something to do. Engines are places in the picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// A first engine that follows a second one becomes primary in its place, by agreement: the two swap roles.
    GiveBack {
        /// The first engine, a replica now.
        replica: usize,
    },
    /// An engine takes slots that nobody owns.
    Claim {
        /// Who.
        engine: usize,
        /// Which.
        slots: Vec<u16>,
    },
    /// An engine follows another.
    Follow {
        /// Who.
        replica: usize,
        /// Whom.
        primary: usize,
    },
    /// A replica follows nobody any more, and has no data: it is free, or takes slots of its own.
    Detach {
        /// Who.
        replica: usize,
    },
    /// A replica gets its copy: until then its primary's slots have no second one.
    Await {
        /// Who.
        replica: usize,
    },
    /// Slots go whole from one owner to another that has no keys of them, while they are served (`CLUSTER MIGRATESLOTS`).
    Migrate {
        /// Which.
        slots: Vec<u16>,
        /// From whom.
        from: usize,
        /// To whom.
        to: usize,
    },
    /// A slot goes from one owner to another key by key, while it is served: where the other may have keys of it already, or cannot take it
    /// whole.
    Move {
        /// Which.
        slot: u16,
        /// From whom.
        from: usize,
        /// To whom.
        to: usize,
    },
    /// A slot is not on its way any more.
    Settle {
        /// Which.
        slot: u16,
        /// According to whom.
        engine: usize,
    },
}

/// The next steps; none where all is as it should be, as far as those that answer can see to it.
pub(crate) fn next(engines: &[Engine]) -> Vec<Step> {
    let picture = Picture(engines);
    PARTS.iter().map(|part| part(&picture)).find(|steps| !steps.is_empty()).unwrap_or_default()
}

/// What the picture is once these steps are done.
pub(super) fn apply(engines: &mut [Engine], steps: &[Step]) {
    for step in steps {
        match step {
            Step::GiveBack { replica } => {
                let (first, second) = (engines[*replica].name.clone(), engines[*replica].primary.take());
                let Some(at) = engines.iter().position(|engine| Some(&engine.name) == second.as_ref()) else {
                    continue;
                };
                engines[*replica].slots = core::mem::take(&mut engines[at].slots);
                for other in engines.iter_mut().filter(|other| other.primary == second) {
                    other.primary = Some(first.clone());
                }
                (engines[at].primary, engines[at].is_linked) = (Some(first), true);
            }
            Step::Claim { engine, slots } => {
                for slot in slots {
                    engines[*engine].slots.insert(*slot);
                    engines[*engine].strays.remove(slot);
                }
            }
            Step::Follow { replica, primary } => {
                engines[*replica].primary = Some(engines[*primary].name.clone());
                engines[*replica].is_linked = true;
            }
            Step::Detach { replica } => {
                (engines[*replica].primary, engines[*replica].is_linked) = (None, false);
            }
            Step::Await { replica } => engines[*replica].is_linked = true,
            Step::Migrate { slots, from, to } => slots.iter().for_each(|slot| take_over(engines, *slot, *from, *to)),
            Step::Move { slot, from, to } => take_over(engines, *slot, *from, *to),
            Step::Settle { slot, engine } => {
                engines[*engine].leaving.retain(|(other, _)| other != slot);
                engines[*engine].coming.retain(|(other, _)| other != slot);
            }
        }
    }
}

fn take_over(engines: &mut [Engine], slot: u16, from: usize, to: usize) {
    engines[from].slots.remove(&slot);
    engines[from].leaving.retain(|(other, _)| *other != slot);
    engines[to].coming.retain(|(other, _)| *other != slot);
    engines[to].strays.remove(&slot);
    engines[to].slots.insert(slot);
}

/// What is looked after, in this order.
const PARTS: [fn(&Picture<'_>) -> Vec<Step>; 9] = [
    |picture| picture.give_back(),
    |picture| picture.finish_moves(),
    |picture| picture.claim(),
    |picture| picture.follow(),
    |picture| picture.go_over(),
    |picture| picture.await_copies(),
    |picture| picture.detach(),
    |picture| picture.gather(),
    |picture| picture.even_out(),
];

struct Picture<'e>(&'e [Engine]);

impl Picture<'_> {
    fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|engine| engine.name == name)
    }

    fn owner(&self, slot: u16) -> Option<usize> {
        self.0.iter().position(|engine| engine.slots.contains(&slot))
    }

    fn replicas(&self, primary: usize) -> impl Iterator<Item = usize> {
        let name = &self.0[primary].name;
        (0..self.0.len()).filter(move |at| self.0[*at].primary.as_ref() == Some(name))
    }

    /// Replicas that answer.
    fn living(&self, primary: usize) -> impl Iterator<Item = usize> {
        self.replicas(primary).filter(|at| self.0[*at].is_reached)
    }

    fn is_covered(&self, primary: usize) -> bool {
        self.living(primary).next().is_some()
    }

    /// Primaries that are meant to have slots: first engines, and those that stand in for one. Where none of them answers, all who do.
    fn homes(&self) -> Vec<usize> {
        let is_home = |at: &usize| {
            let engine = &self.0[*at];
            let has_first = || self.replicas(*at).any(|replica| !self.0[replica].is_second);
            engine.is_primary() && (!engine.is_second || !engine.slots.is_empty() && has_first())
        };
        let homes: Vec<usize> = (0..self.0.len()).filter(is_home).collect();
        if !homes.is_empty() {
            return homes;
        }
        (0..self.0.len()).filter(|at| self.0[*at].is_primary()).collect()
    }

    /// Of those that are meant to have slots: who may get more of them. Not those that are empty and without a copy, as long as slots
    /// would lose a second copy there that they have elsewhere.
    fn takers(&self) -> Vec<usize> {
        let homes = self.homes();
        if !homes.iter().any(|home| self.is_covered(*home)) {
            return homes;
        }
        homes.into_iter().filter(|home| !self.0[*home].slots.is_empty() || self.is_covered(*home)).collect()
    }

    fn give_back(&self) -> Vec<Step> {
        let seconds = (0..self.0.len()).filter(|at| {
            let engine = &self.0[*at];
            engine.is_second && engine.is_primary() && !engine.slots.is_empty()
        });
        let first = |primary: usize| {
            let mut firsts = self.replicas(primary).filter(|at| !self.0[*at].is_second);
            firsts.find(|at| self.0[*at].is_reached && self.0[*at].is_linked)
        };
        seconds.filter_map(first).map(|replica| Step::GiveBack { replica }).collect()
    }

    /// What was begun before.
    fn finish_moves(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut under_way = BTreeSet::new();
        for (from, engine) in self.0.iter().enumerate().filter(|(_, engine)| engine.is_primary()) {
            for (slot, name) in engine.leaving.iter().filter(|(slot, _)| engine.slots.contains(slot)) {
                let to = self.find(name).filter(|to| self.0[*to].is_primary());
                under_way.extend(to.map(|to| (*slot, to)));
                steps.push(match to {
                    Some(to) => Step::Move { slot: *slot, from, to },
                    None => Step::Settle { slot: *slot, engine: from },
                });
            }
        }
        for (at, engine) in self.0.iter().enumerate().filter(|(_, engine)| engine.is_primary()) {
            for (slot, _) in engine.coming.iter().filter(|(slot, _)| !under_way.contains(&(*slot, at))) {
                let owner = self.owner(*slot).filter(|owner| self.0[*owner].is_primary());
                match owner.filter(|_| engine.strays.contains_key(slot)) {
                    Some(from) => steps.push(Step::Move { slot: *slot, from, to: at }),
                    None => steps.push(Step::Settle { slot: *slot, engine: at }),
                }
            }
        }
        steps
    }

    /// Slots that nobody owns go to whoever has keys of them, the others to whoever has fewest.
    fn claim(&self) -> Vec<Step> {
        let homes = self.homes();
        let owned: BTreeSet<u16> = self.0.iter().flat_map(|engine| engine.slots.iter().copied()).collect();
        let mut free: Vec<u16> = (0..SLOTS).filter(|slot| !owned.contains(slot)).collect();
        if homes.is_empty() || free.is_empty() {
            return Vec::new();
        }
        let mut claims: BTreeMap<usize, Vec<u16>> = homes.iter().map(|home| (*home, Vec::new())).collect();
        free.retain(|slot| {
            let keys = |home: &usize| self.0[*home].strays.get(slot).copied().unwrap_or(0);
            let holder = homes.iter().copied().max_by_key(|home| keys(home)).filter(|home| keys(home) > 0);
            if let Some(claim) = holder.and_then(|home| claims.get_mut(&home)) {
                claim.push(*slot);
            }
            holder.is_none()
        });
        let mut rest = free.into_iter();
        let takers = self.takers();
        for (home, share) in self.shares(&takers) {
            let claim = claims.entry(home).or_default();
            let missing = share.saturating_sub(self.0[home].slots.len() + claim.len());
            claim.extend(rest.by_ref().take(missing));
        }
        // Where holders of keys have more than their share, others have none left to take: what is left is nobody's share.
        claims.entry(takers[0]).or_default().extend(rest);
        let claims = claims.into_iter().filter(|(_, slots)| !slots.is_empty());
        claims.map(|(engine, slots)| Step::Claim { engine, slots }).collect()
    }

    /// How many slots each of these should have. Those that own most now have the odd ones, so that nothing moves for these alone.
    fn shares(&self, homes: &[usize]) -> Vec<(usize, usize)> {
        let out_of_reach = self.0.iter().filter(|engine| !engine.is_primary()).map(|engine| engine.slots.len());
        let total = usize::from(SLOTS) - out_of_reach.sum::<usize>();
        let mut order = homes.to_vec();
        order.sort_by_key(|home| (core::cmp::Reverse(self.0[*home].slots.len()), *home));
        let (each, odd) = (total / homes.len(), total % homes.len());
        let mut shares: Vec<(usize, usize)> =
            order.into_iter().enumerate().map(|(place, home)| (home, each + usize::from(place < odd))).collect();
        shares.sort_unstable();
        shares
    }

    /// Keys that lie where their slot is not are served only if the slot goes there.
    fn gather(&self) -> Vec<Step> {
        let mut seen = BTreeSet::new();
        let mut steps = Vec::new();
        for to in self.homes() {
            for slot in self.0[to].strays.keys() {
                let from = self.owner(*slot).filter(|from| self.0[*from].is_primary());
                if let Some(from) = from.filter(|_| seen.insert(*slot)) {
                    steps.push(Step::Move { slot: *slot, from, to });
                }
            }
        }
        steps
    }

    /// Slots go from those who are not meant to have any, and once there are none of these, from those who have more than others.
    fn even_out(&self) -> Vec<Step> {
        let homes = self.homes();
        let is_guest = |at: &usize| {
            let engine = &self.0[*at];
            engine.is_primary() && !engine.slots.is_empty() && !homes.contains(at)
        };
        let guests: Vec<usize> = (0..self.0.len()).filter(is_guest).collect();
        let mut takers = self.takers();
        let covered: Vec<usize> = takers.iter().copied().filter(|taker| self.is_covered(*taker)).collect();
        if !covered.is_empty() && guests.iter().any(|guest| self.is_covered(*guest)) {
            // They would lose their second copy elsewhere.
            takers = covered;
        }
        if takers.is_empty() {
            return Vec::new();
        }
        let shares: BTreeMap<usize, usize> = self.shares(&takers).into_iter().collect();
        let givers = if guests.is_empty() { &homes } else { &guests };
        let surplus = givers.iter().flat_map(|at| {
            let share = shares.get(at).copied().unwrap_or(0);
            self.0[*at].slots.iter().skip(share).map(move |slot| (*at, *slot))
        });
        let mut surplus = surplus.collect::<Vec<_>>().into_iter();
        let mut whole: BTreeMap<(usize, usize), Vec<u16>> = BTreeMap::new();
        let mut steps = Vec::new();
        for (to, share) in shares {
            let missing = share.saturating_sub(self.0[to].slots.len());
            for (from, slot) in surplus.by_ref().take(missing) {
                if self.0[from].is_quorum || self.0[to].is_quorum {
                    steps.push(Step::Move { slot, from, to });
                } else {
                    whole.entry((from, to)).or_default().push(slot);
                }
            }
        }
        steps.extend(whole.into_iter().map(|((from, to), slots)| Step::Migrate { slots, from, to }));
        steps
    }
}

#[cfg(test)]
mod tests;

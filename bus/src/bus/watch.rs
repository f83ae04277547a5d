//! Who is alive: turns of probing, doubts, suspicions, failures, and the member's own defence.

use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::id::{Incarnation, ServerId};
use ashlar_wire::time::Instant;

use super::{Bus, Hearers, NEWS_MAX, Sweep};
use crate::event::{Departure, Event, FailedBy, Role};
use crate::fingerprint::fingerprint;
use crate::gossip::Subject;
use crate::member::{LIFE_MAX, Life, Opinion};
use crate::packet::{Body, News, SILENCE_BYTES_MAX, Silence};
use crate::planted::Planted;
use crate::probe::Cause;
use crate::suspicion::Due;
use crate::voters::Voters;

/// Members that are passed over in search of one to probe.
const PASSED_MAX: usize = 16;
/// Voters that ask all others all the time; the rest learn from them whether a majority is in reach, and ask only if they do not, or
/// while something is amiss.
const ASKERS: usize = 3;
/// Voters that a doubt is told to; they tell the others.
const DOUBT_FANOUT: usize = 3;
/// Doubts at once, as a share of the members, that begin a sweep.
const SWEEP_SHARE: usize = 100;
const SWEEP_DOUBTS_MIN: usize = 3;
/// A doubt that lasts this long begins a sweep too, where it is not alone.
const SWEEP_SILENCE: Duration = Duration::from_millis(1_500);
/// A sweep has this many steps of this length.
const SWEEP_STEPS: usize = 15;
const SWEEP_STEP: Duration = Duration::from_millis(20);
/// Between two sweeps lies at least this part of the member timeout.
const SWEEP_REST: u32 = 5;
/// Each member is swept by this many voters.
const SWEEP_VOTERS: usize = 16;
/// A suspicion is reported to this many voters, when it is repeated to the next ones, and then to all. A voter that hears
/// a majority declares the failure, so a few that live are enough, and where half of a cluster dies, all voters telling
/// all others of all the dead would be a flood.
const REPORT_VOTERS: usize = 8;
/// So often it goes to a few.
const REPORTS_TO_FEW: u32 = 2;

impl Bus {
    pub(super) fn probe(&mut self, target: ServerId, cause: Cause, with_news: bool, now: Instant) -> Option<u32> {
        let token = self.prober.begin(target, cause, now)?;
        let beat = self.beat_for(target, now);
        let news = if with_news { self.take_news(now, self.config.piggyback_bytes_max) } else { Vec::new() };
        self.counters.probes_sent += 1;
        self.send(target, &Body::Probe(token, beat, news));
        Some(token)
    }

    pub(super) fn tick_probes(&mut self, now: Instant) {
        while let Some(probe) = self.prober.poll_silent(now) {
            self.counters.probes_silent += 1;
            if probe.cause == Cause::Turn {
                self.handle_silent(now, probe.target, probe.token, probe.sent_at);
            }
        }
        while let Some(asked) = self.prober.poll_unheard(now) {
            if !asked.in_doubt {
                self.raise_doubt(now, asked.target, asked.since, false);
            }
        }
        if now >= self.next_turn {
            self.next_turn = now + self.config.probe_interval;
            if let Some(target) = self.choose_target() {
                self.probe(target, Cause::Turn, true, now);
            }
        }
        if now >= self.reach.next_pulse() {
            let voter = self.reach.take_pulse(&self.voters, self.config.member_timeout, now);
            if let Some(voter) = voter.filter(|voter| *voter != self.identity.server)
                && (self.is_asker() || !self.is_calm() || !self.knows_of_majority(now))
            {
                self.probe(voter, Cause::Turn, false, now);
            }
        }
    }

    /// Whether this voter is one of the [`ASKERS`]: the first ones that live.
    fn is_asker(&self) -> bool {
        let own = self.identity.server;
        let before = self.voters.everybody().into_iter().take_while(|voter| *voter < own);
        let lives = |id: &ServerId| self.members.get(*id).is_some_and(|member| !member.life.failed);
        before.filter(lives).take(ASKERS).count() < ASKERS
    }

    /// Whether nobody is doubted here, and those whom this member spoke with last know the same.
    fn is_calm(&self) -> bool {
        self.suspicion.len() == 0 && self.standing.differs_since.is_none()
    }

    /// Whether this member has learned lately enough, be it from others, that a majority of the voters is in reach.
    fn knows_of_majority(&self, now: Instant) -> bool {
        let known = self.reach.majority_at(&self.voters, self.identity.server, now);
        known.is_some_and(|at| now.saturating_since(at) <= self.config.member_timeout / 3)
    }

    fn choose_target(&mut self) -> Option<ServerId> {
        let tries = self.members.len().min(PASSED_MAX);
        for _ in 0..tries {
            let member = self.members.at(self.prober.next_place(&mut self.chance)?);
            let is_watched = member.opinion != Opinion::Fine && !member.life.failed;
            if member.id != self.identity.server && !is_watched {
                return Some(member.id);
            }
        }
        None
    }

    /// A member did not answer a direct probe.
    fn handle_silent(&mut self, now: Instant, target: ServerId, token: u32, since: Instant) {
        let Some(member) = self.members.get(target) else { return };
        if member.life.failed || member.opinion != Opinion::Fine || member.heard_at >= since {
            return;
        }
        if self.ask_others(target, token) == 0 {
            // Nobody is left to ask.
            return self.raise_doubt(now, target, since, false);
        }
        self.prober.begin_indirect(target, token, since, false, now);
    }

    /// Asks some living members to probe `target`; how many.
    fn ask_others(&mut self, target: ServerId, token: u32) -> usize {
        let asked = self.choose_members(self.config.indirect_probes, |id| id != target);
        self.send_to_all(asked.iter().copied(), &Body::Ask(token, target));
        asked.len()
    }

    /// Up to `count` different living members that nothing speaks against, at random, without this one.
    pub(super) fn choose_members(&mut self, count: usize, fits: impl Fn(ServerId) -> bool) -> Vec<ServerId> {
        let mut chosen = Vec::with_capacity(count);
        let total = self.members.len();
        let is_fit = |bus: &Self, place: usize, chosen: &[ServerId]| {
            let member = bus.members.at(place);
            let is_fine = !member.life.failed && member.opinion == Opinion::Fine && member.id != bus.identity.server;
            (is_fine && fits(member.id) && !chosen.contains(&member.id)).then_some(member.id)
        };
        if total <= count * 4 {
            let mut places: Vec<usize> = (0..total).collect();
            self.chance.shuffle(&mut places);
            for place in places {
                chosen.extend(is_fit(self, place, &chosen).filter(|_| chosen.len() < count));
            }
            return chosen;
        }
        for _ in 0..count * 8 {
            let place = self.chance.below(total);
            chosen.extend(is_fit(self, place, &chosen).filter(|_| chosen.len() < count));
        }
        chosen
    }

    pub(super) fn handle_ask(&mut self, now: Instant, from: ServerId, token: u32, target: ServerId) {
        if self.members.place(target).is_some() && target != self.identity.server {
            self.probe(target, Cause::Asked(from, token), false, now);
        }
    }

    pub(super) fn handle_heard(&mut self, now: Instant, token: u32, target: ServerId, incarnation: Incarnation) {
        let asked = self.prober.handle_heard(target, token, self.bugs.has(Planted::AcceptReplay));
        let place = self.members.place(target).filter(|place| self.members.at(*place).incarnation <= incarnation);
        match place {
            Some(place) if asked => self.note_life(place, now),
            _ => self.counters.refused_unasked += 1,
        }
    }

    /// Whether this member watches doubted ones to the end: voters do, and everybody while there are none.
    fn watches(&self) -> bool {
        self.voters.set().is_none() || self.is_voter()
    }

    pub(super) fn is_voter(&self) -> bool {
        self.voters.has_say(self.identity.server)
    }

    /// A member has been silent since `since`, directly and by way of others; `told`: so a voter says.
    pub(super) fn raise_doubt(&mut self, now: Instant, id: ServerId, since: Instant, told: bool) {
        let Some(member) = self.members.get_mut(id) else { return };
        if member.life.failed || id == self.identity.server {
            return;
        }
        let heard_at = if self.bugs.has(Planted::SuspectUnprobed) { Instant::ORIGIN } else { member.heard_at };
        let since = since.max(heard_at);
        if now.saturating_since(since) < self.config.probe_wait_min {
            return;
        }
        if !self.suspicion.begin(id, since, now) {
            return;
        }
        member.opinion = Opinion::Doubted;
        self.counters.doubts_raised += 1;
        if told {
            return;
        }
        if self.is_voter() {
            self.outbound.relayed.push(id);
        } else {
            self.outbound.doubts.push(id);
        }
        self.arm_flush(now);
    }

    pub(super) fn handle_doubts(&mut self, now: Instant, from: ServerId, relayed: bool, silent: &[Silence]) {
        if relayed && !self.voters.has_say(from) {
            self.counters.refused_unentitled += 1;
            return;
        }
        if !self.is_voter() {
            return;
        }
        for silence in silent {
            let known = self.members.get(silence.id).is_some_and(|member| member.incarnation <= silence.incarnation);
            if known {
                self.raise_doubt(now, silence.id, before(now, silence.age_ms), relayed);
            }
        }
    }

    pub(super) fn handle_reports(&mut self, now: Instant, from: ServerId, silent: &[Silence]) {
        if !self.voters.has_say(from) {
            self.counters.refused_unentitled += 1;
            return;
        }
        if !self.is_voter() || self.bugs.has(Planted::LoseSuspicion) {
            return;
        }
        for silence in silent {
            let Some(member) = self.members.get(silence.id) else { continue };
            if silence.age_ms == 0 {
                self.suspicion.handle_withdrawn(&self.voters, from, silence.id);
                continue;
            }
            if member.life.failed || member.incarnation > silence.incarnation {
                continue;
            }
            let timeout = self.config.member_timeout;
            self.suspicion.handle_report(&self.voters, from, silence.id, silence.refuted, now, timeout);
            self.raise_doubt(now, silence.id, before(now, silence.age_ms), true);
            self.check_failed(now, silence.id);
        }
    }

    pub(super) fn tick_doubts(&mut self, now: Instant) {
        if now < self.suspicion.next_poll() {
            return;
        }
        let (timeout, wait) = (self.config.member_timeout, self.prober.wait());
        let unprobed = self.bugs.has(Planted::SuspectUnprobed);
        let found = self.suspicion.poll(now, timeout, wait, self.watches(), unprobed);
        for (id, silent) in &found.suspected {
            self.counters.suspicions += 1;
            self.counters.time_to_suspicion.add(*silent);
            if let Some(member) = self.members.get_mut(*id) {
                member.opinion = Opinion::Suspected;
            }
            self.event(Event::Suspected { id: *id });
            if self.bugs.has(Planted::VoteWithoutFailure) {
                self.stand_against(now, *id);
            }
        }
        for id in found.expired {
            if let Some(member) = self.members.get_mut(id) {
                member.opinion = Opinion::Fine;
            }
        }
        for (id, due) in found.probes {
            let token = self.probe(id, Cause::Doubt, false, now);
            if let (Due::ProbeAndAsk, Some(token)) = (due, token) {
                self.ask_others(id, token);
                self.prober.begin_indirect(id, token, now, true, now);
            }
        }
        if self.is_voter() {
            self.report(now, &found.reports);
            self.consider_sweep(now);
        }
    }

    /// Reports suspicions to the other voters, and counts them here.
    fn report(&mut self, now: Instant, suspected: &[ServerId]) {
        for id in suspected {
            let (Some(member), Some(doubt)) = (self.members.get(*id), self.suspicion.doubt(*id)) else { continue };
            let age_ms = millis(now.saturating_since(doubt.since)).max(1);
            let (incarnation, refuted) = (member.incarnation, member.life.refuted);
            let hearers = self.hearers(doubt.reported.saturating_sub(1));
            self.outbound.reports.push((Silence { id: *id, incarnation, refuted, age_ms }, hearers));
            let (own, timeout) = (self.identity.server, self.config.member_timeout);
            self.suspicion.handle_report(&self.voters, own, *id, refuted, now, timeout);
            self.check_failed(now, *id);
        }
        if !self.outbound.reports.is_empty() {
            self.flush_at = Some(now);
        }
    }

    /// A suspected member was heard again: the report is void.
    pub(super) fn withdraw(&mut self, id: ServerId, now: Instant) {
        if let Some(member) = self.members.get(id).filter(|_| self.voters.has_say(self.identity.server)) {
            let (incarnation, refuted) = (member.incarnation, member.life.refuted);
            self.outbound.reports.push((Silence { id, incarnation, refuted, age_ms: 0 }, Hearers::All));
            self.flush_at = Some(now);
        }
    }

    /// Declares a member failed if this voter suspects it and a majority has reported the same.
    fn check_failed(&mut self, now: Instant, id: ServerId) {
        let Some(place) = self.members.place(id) else { return };
        let Some(doubt) = self.suspicion.doubt(id).filter(|doubt| doubt.suspected) else { return };
        let silent = now.saturating_since(doubt.since);
        let life = self.members.at(place).life;
        let tally = self.suspicion.reports(id, now, self.config.member_timeout);
        let agreed = self.voters.is_majority(tally, self.bugs) || self.bugs.has(Planted::FailWithoutQuorum);
        if life.failed || !agreed {
            return;
        }
        self.counters.time_to_failure.add(silent);
        self.members.set_life(place, Life { failed: true, ..life }, now);
        self.gossip.add(Subject::Life(id), NEWS_MAX);
        self.outbound.declared.push(id);
        self.flush_at = Some(now);
        let voters = u16::try_from(self.voters.present().len()).unwrap_or(u16::MAX);
        self.handle_failed(now, id, FailedBy::Quorum { reports: Voters::count(tally), voters });
    }

    /// A member has failed; its table entry says so already.
    pub(super) fn handle_failed(&mut self, now: Instant, id: ServerId, by: FailedBy) {
        self.counters.failures += 1;
        self.suspicion.end(id);
        if let Some(member) = self.members.get_mut(id) {
            member.opinion = Opinion::Fine;
        }
        self.event(Event::Failed { id, by });
        self.note_change(now);
        self.govern.handle_changed(now);
        self.stand_against(now, id);
        self.consider_migration(now);
    }

    /// A failed member is back; its table entry says so already.
    pub(super) fn handle_recovered(&mut self, now: Instant, id: ServerId) {
        self.counters.recoveries += 1;
        self.event(Event::Recovered { id });
        self.note_change(now);
        self.govern.handle_changed(now);
        self.ballots.retain(|_, ballot| ballot.failed.is_none_or(|(failed, _)| failed != id));
    }

    /// Several members fell silent at once: look at all the others now, so that all that failed together are noticed together.
    fn consider_sweep(&mut self, now: Instant) {
        let many = self.suspicion.len() >= (self.members.len() / SWEEP_SHARE).max(SWEEP_DOUBTS_MIN);
        let lasting = self.suspicion.len() >= 2 && self.suspicion.silent_for(SWEEP_SILENCE, now) > 0;
        let is_fresh = self.suspicion.silent_for(Duration::ZERO, now) > 0;
        let rested = self.swept_at.is_none_or(|at| now >= at + self.config.member_timeout / SWEEP_REST);
        if (many || lasting) && is_fresh && rested {
            self.counters.sweeps += 1;
            self.swept_at = Some(now);
            self.sweep = Some(Sweep { cursor: 0, next: now });
        }
    }

    pub(super) fn tick_sweep(&mut self, now: Instant) {
        let Some(sweep) = self.sweep.filter(|sweep| sweep.next <= now) else { return };
        let step = self.members.len() / SWEEP_STEPS + 1;
        let end = (sweep.cursor + step).min(self.members.len());
        for place in sweep.cursor..end {
            let member = self.members.at(place);
            let id = member.id;
            let is_open = !member.life.failed && member.opinion == Opinion::Fine && id != self.identity.server;
            let is_recent = now.saturating_since(member.heard_at) < SWEEP_STEP;
            if is_open && !is_recent && self.has_share_in(id, SWEEP_VOTERS) {
                self.probe(id, Cause::Turn, false, now);
            }
        }
        self.sweep = (end < self.members.len()).then_some(Sweep { cursor: end, next: now + SWEEP_STEP });
    }

    /// Whether this voter is among the `count` voters that care for a member.
    fn has_share_in(&self, id: ServerId, count: usize) -> bool {
        self.share(self.identity.server, id).is_some_and(|place| place < count)
    }

    /// The place of a voter among those that care for a member: each member has another first one.
    fn share(&self, voter: ServerId, id: ServerId) -> Option<usize> {
        let voters = self.voters.present();
        let place = voters.binary_search(&voter).ok()?;
        let first = usize::try_from(fingerprint(id.as_bytes()) % voters.len() as u64).unwrap_or(0);
        Some((place + voters.len() - first) % voters.len())
    }

    /// Who hears a suspicion that was reported so often before.
    fn hearers(&self, before: u32) -> Hearers {
        let is_many = self.voters.present().len() > REPORT_VOTERS * 2 && self.voters.previous().is_empty();
        if is_many && before < REPORTS_TO_FEW { Hearers::Few(before) } else { Hearers::All }
    }

    /// Tells voters what waits for them.
    pub(super) fn flush_watch(&mut self, now: Instant) {
        let outbound = core::mem::take(&mut self.outbound);
        let voters = self.other_voters();
        if !outbound.doubts.is_empty() {
            let silent = self.silences(now, &outbound.doubts);
            let mut some = voters.clone();
            self.chance.shuffle(&mut some);
            some.truncate(DOUBT_FANOUT);
            self.send_silences(&some, &silent, |silent| Body::Doubt { relayed: false, silent });
        }
        if !outbound.relayed.is_empty() {
            let silent = self.silences(now, &outbound.relayed);
            self.send_silences(&voters, &silent, |silent| Body::Doubt { relayed: true, silent });
        }
        self.send_reports(&voters, &outbound.reports);
        if !outbound.declared.is_empty() {
            self.tell_replicas(&outbound.declared);
        }
    }

    fn send_reports(&mut self, voters: &[ServerId], reports: &[(Silence, Hearers)]) {
        let for_all = reports.iter().filter(|(_, hearers)| *hearers == Hearers::All).map(|(silence, _)| *silence);
        let for_all: Vec<Silence> = for_all.collect();
        self.send_silences(voters, &for_all, Body::Report);
        if for_all.len() == reports.len() {
            return;
        }
        for voter in voters {
            let hears = |(silence, hearers): &(Silence, Hearers)| match hearers {
                Hearers::All => None,
                Hearers::Few(round) => {
                    let place = self.share(*voter, silence.id)? / REPORT_VOTERS;
                    (u32::try_from(place) == Ok(*round)).then_some(*silence)
                }
            };
            let heard: Vec<Silence> = reports.iter().filter_map(hears).collect();
            self.send_silences(&[*voter], &heard, Body::Report);
        }
    }

    fn silences(&self, now: Instant, ids: &[ServerId]) -> Vec<Silence> {
        let silence = |id: &ServerId| {
            let (member, doubt) = (self.members.get(*id)?, self.suspicion.doubt(*id)?);
            let age_ms = millis(now.saturating_since(doubt.since)).max(1);
            Some(Silence { id: *id, incarnation: member.incarnation, refuted: member.life.refuted, age_ms })
        };
        ids.iter().filter_map(silence).collect()
    }

    fn send_silences(&mut self, to: &[ServerId], silent: &[Silence], body: impl Fn(Vec<Silence>) -> Body) {
        for part in silent.chunks(self.packet_room() / SILENCE_BYTES_MAX) {
            self.send_to_all(to.iter().copied(), &body(part.to_vec()));
        }
    }

    /// Voters without this one that are not known to have failed.
    pub(super) fn other_voters(&self) -> Vec<ServerId> {
        let lives = |id: &ServerId| self.members.get(*id).is_some_and(|member| !member.life.failed);
        let everybody = self.voters.everybody().into_iter();
        everybody.filter(|id| *id != self.identity.server && lives(id)).collect()
    }

    /// Replicas of primaries that were declared failed here hear it first.
    fn tell_replicas(&mut self, declared: &[ServerId]) {
        let mut told: Vec<(ServerId, Vec<News>)> = Vec::new();
        for member in self.members.iter().filter(|member| !member.life.failed && member.id != self.identity.server) {
            let primaries = member.description.follows.iter().filter_map(|group| Some(self.claims.get(*group)?.owner));
            let failed = primaries.filter(|owner| declared.contains(owner));
            let news: Vec<News> = failed.filter_map(|id| Some(News::Life(id, self.members.get(id)?.life))).collect();
            if !news.is_empty() {
                told.push((member.id, news));
            }
        }
        for (id, news) in told {
            self.send(id, &Body::News(news));
        }
    }

    /// Somebody thinks that this member has failed, at this number of refutations.
    pub(super) fn handle_accused(&mut self, now: Instant, refuted: u64) {
        // Whoever has stopped in order lives no more, and says so in its next life only.
        if self.departure == Departure::Left {
            return;
        }
        let place = self.members.place(self.identity.server).expect("a member knows itself");
        let refuted = self.bounded_refuted(refuted);
        let change = self.members.set_life(place, Life { refuted, failed: true }, now);
        if change.failed {
            self.standing.accused_since = Some(now);
            self.note_change(now);
            self.try_refute(now);
        }
    }

    /// Refutes this member's failure as soon as it may, by Valkey's rules: at once without slots, or where no replica could
    /// take them; else when they were taken, or when nobody took them for twice the member timeout.
    pub(super) fn try_refute(&mut self, now: Instant) {
        let Some(since) = self.standing.accused_since else { return };
        let could_lose = self.places.iter().any(|(group, place)| {
            place.role == Role::Primary && self.claims.owned_by(*group) > 0 && self.has_living_replica(*group)
        });
        if could_lose && now < since + self.config.member_timeout * 2 {
            return;
        }
        let own = self.identity.server;
        let place = self.members.place(own).expect("a member knows itself");
        let refuted = self.members.at(place).life.refuted.saturating_add(1).min(LIFE_MAX.0);
        self.members.set_life(place, Life { refuted, failed: false }, now);
        self.standing.accused_since = None;
        self.counters.refutations += 1;
        self.gossip.add(Subject::Life(own), NEWS_MAX);
        self.note_change(now);
        self.arm_flush(now);
    }

    pub(super) fn has_living_replica(&self, group: crate::slot::GroupId) -> bool {
        let lives = |member: &&crate::member::Member| !member.life.failed && member.id != self.identity.server;
        self.members.iter().filter(lives).any(|member| member.description.follows.contains(&group))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The point `ms` milliseconds before `now`.
fn before(now: Instant, ms: u64) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_sub(ms.saturating_mul(1_000_000)))
}

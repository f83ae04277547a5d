//! What must hold at every step of a small cluster, whatever fails.
//!
//! Verified, at the step where it breaks:
//! - a group and epoch has one primary, in all lives of all members; who is elected holds the votes of a majority of
//!   distinct voters of one set, and of a majority of the set before while nobody knows that set complete (`ballots`);
//! - a voter votes once for a group and epoch and never in an earlier epoch than before, as long as its memory lasts; it
//!   never votes under a set that counts on memory that it has lost (`sets`);
//! - it votes in an election only where the primary has failed or is no member, by hand only for whom an operator asked,
//!   and about slots only for the primary itself;
//! - a vote and an election are on stable storage when they are told of;
//! - the epoch of a claim never goes back in the eyes of one member within a life, and its own not even across lives;
//! - nobody stands in an election without a whole copy of the group's data from this life, nor with one that was older than
//!   `copy_age_max` when the primary failed (`ballots`);
//! - a failure is declared by a majority of voters, each of which suspects or did so recently that its report may still
//!   count, and of which a majority could miss the member, unless it has said goodbye: that it is about to stop is no reason;
//!   who is told of a failure is told of one that was declared;
//! - a primary that for the member timeout has reached no majority of the voters, nor anybody who has, takes no writes;
//! - a packet that came before, or from an earlier life of its sender than the receiver knows of, is refused;
//! - nobody of another cluster gets in; who was forgotten is kept out, at each member for all of every wish that it heard
//!   of; a wish ends nowhere before its time, and is nobody's but an operator's; a damaged record is not restored.
//!
//! Verified when everything has healed (see `agree`): all members agree on members, failures, voters and claims, every
//! group has one primary that takes writes, subscribers hear what is published, and a member that dies then is replaced
//! in time.
//!
//! Not verified: that two primaries never take writes at the same moment (clocks differ, so the time in which they may
//! is bounded, not zero), which replica is best, that a published message comes once, memory and time spent.

mod ballots;
mod sets;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use ashlar_bus::Config;
use ashlar_bus::event::{Departure, Event, FailedBy, Health, Role, VotersView};
use ashlar_bus::saved::Saved;
use ashlar_bus::slot::GroupId;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{Incarnation, ServerId};

use self::ballots::{Given, LastVote};
use self::sets::{Mask, Sets, bit, is_majority, mask};
use self::view::{Freeze, Spell, View};
use super::reach::Reach;
use super::swarm::CopyFact;
use super::world::{Odd, Scene, Watch, number_of};

/// Places in the lists of a checker: the members of a small world and a stranger.
pub(super) const MEMBERS_MAX: usize = 12;

/// What a checker has to know about its world.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// Members of the cluster; whoever has this number or a greater one is a stranger.
    pub(super) members: u32,
    /// How the members are set up.
    pub(super) config: Config,
    /// The longest that a packet is under way.
    pub(super) flight_ns_max: u64,
    /// The longest that a write takes.
    pub(super) persist_ns_max: u64,
}

impl Rules {
    fn timeout_ns(&self) -> u64 {
        self.config.member_timeout.as_nanos() as u64
    }

    /// How long ago a suspicion may have ended whose report still counts: a report counts for up to two timeouts of a clock
    /// that may be slow by a hundredth.
    fn report_ns(&self) -> u64 {
        2 * slow(self.timeout_ns()) + 2 * self.flight_ns_max
    }

    /// How long a member must have been out of reach at some time, if a voter's suspicion of it counts: one timeout for the
    /// suspicion to begin, two for its report to be forgotten.
    fn memory_ns(&self) -> u64 {
        slow(self.timeout_ns()) + self.report_ns() + self.persist_ns_max
    }

    /// How old knowledge of a majority may be: nine tenths of the timeout, and an answer may have been under way.
    fn lease_ns(&self) -> u64 {
        slow(self.timeout_ns() * 9 / 10) + 2 * self.flight_ns_max
    }

    /// For how long knowledge of voters that others have replaced may go on counting.
    fn grace_ns(&self) -> u64 {
        slow(self.timeout_ns() / 4)
    }

    /// The longest until what nobody waits for is on the drive.
    fn save_ns(&self) -> u64 {
        slow(self.config.save_interval.as_nanos() as u64) + self.decision_ns()
    }

    /// The longest from a decision until it is durable: the write that is under way, and its own.
    fn decision_ns(&self) -> u64 {
        2 * self.persist_ns_max + 1
    }
}

/// A span by the world's clock that is `span_ns` by a clock that is slow by a hundredth, the most that there is.
fn slow(span_ns: u64) -> u64 {
    span_ns / 98 * 100
}

/// What is known of one member.
#[derive(Debug, Default)]
struct Known {
    views: [View; MEMBERS_MAX],
    /// The last vote in each group, since its memory began.
    votes: BTreeMap<GroupId, LastVote>,
    /// The sets under which it has voted with the memory that it has, and with memory that it has lost.
    voted_under: BTreeSet<u64>,
    lost_under: BTreeSet<u64>,
    /// In which life its memory began; `None` from the loss of its disk until it starts again.
    memory_since: Option<Incarnation>,
    /// The greatest epoch that it was elected to in each group since it last lost its disk.
    elected: BTreeMap<GroupId, Epoch>,
    /// The greatest claim of each group that it has told of in this life.
    claims: BTreeMap<GroupId, Told>,
    /// The groups of which it says it is primary in this life.
    primary_of: Vec<GroupId>,
    /// The groups of which an operator asked it to become primary.
    asked: BTreeSet<GroupId>,
    /// The set of voters that it has, and those that it had a moment ago, with when it left them.
    set: u64,
    left: Vec<(u64, u64)>,
    freeze: Freeze,
    /// It has said goodbye in this life, or when it last had.
    farewell: Spell,
    /// What it has of the groups that it follows.
    copies: BTreeMap<GroupId, CopyFact>,
}

/// A claim that a member told of, and when.
#[derive(Debug, Clone, Copy)]
struct Told {
    epoch: Epoch,
    primary: ServerId,
    at_ns: u64,
}

/// What happened, for the summary of many seeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Votes given.
    pub votes: u64,
    /// Elections won.
    pub elections: u64,
    /// Failures declared by a quorum.
    pub failures: u64,
    /// Failures declared of members that ran at that moment.
    pub failures_of_living: u64,
    /// Failed members that came back, in the eyes of one.
    pub recoveries: u64,
}

/// An operator's wish that a member be forgotten.
#[derive(Debug, Clone, Copy)]
struct Wish {
    member: u32,
    ends_ns: u64,
}

/// Watches a small world.
#[derive(Debug)]
pub struct Checker {
    rules: Rules,
    pub(super) reach: Reach,
    known: Vec<Known>,
    sets: Sets,
    /// Who was primary, and by the voters of which cluster it was elected.
    primaries: BTreeMap<(GroupId, Epoch), Vec<(ServerId, u64)>>,
    ballots: BTreeMap<(GroupId, Epoch, ServerId), Vec<Given>>,
    /// Elections that were won, in each cluster.
    elections: BTreeSet<(GroupId, Epoch, u64)>,
    /// All wishes, by their tags.
    wishes: BTreeMap<u32, Wish>,
    /// Who is told at this moment to have whom forgotten.
    wishing: Option<(u32, u32)>,
    /// Who has heard a message since [`Checker::listen`].
    heard: [bool; MEMBERS_MAX],
    /// Members of which a quorum has ever declared a failure.
    declared: [bool; MEMBERS_MAX],
    counts: Counts,
    violation: Option<String>,
}

impl Checker {
    pub(super) fn new(rules: Rules) -> Self {
        let known = (0..MEMBERS_MAX).map(|_| Known::default()).collect();
        let mut reach = Reach::new();
        // Nobody knows anybody at first, and who does not know a member does not listen to it.
        for (from, to) in (0..rules.members).flat_map(|from| (0..rules.members).map(move |to| (from, to))) {
            reach.way(0, from, to, from == to);
        }
        Self {
            rules,
            reach,
            known,
            sets: Sets::default(),
            primaries: BTreeMap::new(),
            ballots: BTreeMap::new(),
            elections: BTreeSet::new(),
            wishes: BTreeMap::new(),
            wishing: None,
            heard: [false; MEMBERS_MAX],
            declared: [false; MEMBERS_MAX],
            counts: Counts::default(),
            violation: None,
        }
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What was broken first, in words.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// An operator is about to tell `by` to have a member forgotten, or has told it.
    pub(super) fn wishing(&mut self, wish: Option<(u32, u32)>) {
        self.wishing = wish;
    }

    /// An operator has asked a member to become primary of a group.
    pub(super) fn asked(&mut self, member: u32, group: GroupId) {
        self.known[member as usize].asked.insert(group);
    }

    /// A member is about to tell others that it is on its way out, or stays.
    pub(super) fn departing(&mut self, now_ns: u64, member: u32, departure: Departure) {
        self.known[member as usize].farewell.set(now_ns, departure == Departure::Left);
    }

    /// What a member has of a group that it follows.
    pub(super) fn note_copy(&mut self, member: u32, group: GroupId, fact: CopyFact) {
        self.known[member as usize].copies.insert(group, fact);
    }

    /// From now on it is noted who hears a published message.
    pub(super) fn listen(&mut self) {
        self.heard = [false; MEMBERS_MAX];
    }

    /// Whether a member has heard one.
    pub(super) fn has_heard(&self, member: u32) -> bool {
        self.heard[member as usize]
    }

    /// A member's disk is gone: what it was elected to, it need not know any more.
    pub(super) fn disk_lost(&mut self, member: u32) {
        let known = &mut self.known[member as usize];
        known.elected.clear();
        known.votes.clear();
        known.views.iter_mut().for_each(|view| view.out_until_ns = 0);
        known.lost_under.append(&mut known.voted_under);
        known.memory_since = None;
    }

    /// Whether a member remembers all that a set counts on, so that it votes under it.
    pub(super) fn remembers(&self, member: u32, voters: &VotersView<'_>) -> bool {
        let since = self.known[member as usize].memory_since;
        since.is_some_and(|since| self.sets.trusts(voters.fingerprint, member, since))
    }

    /// Whether somebody knew a set of voters complete.
    pub(super) fn is_complete(&self, voters: u64) -> bool {
        self.sets.get(voters).is_some_and(|set| set.is_complete)
    }

    /// A member has restored a record that was damaged.
    pub(super) fn damage_restored(&mut self, member: u32) {
        self.violated(|| format!("{member} took back a damaged record"));
    }

    fn violated(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violated(what);
        }
    }

    fn role(&mut self, scene: &Scene<'_>, group: GroupId, role: Role, epoch: Epoch) {
        let (member, me) = (scene.member, scene.bus.identity().server);
        let primary_of = &mut self.known[member as usize].primary_of;
        primary_of.retain(|other| *other != group);
        if role != Role::Primary {
            return;
        }
        primary_of.push(group);
        self.serve(group, epoch, me, 0);
    }

    /// A member is primary, elected by the voters of that cluster or by nobody. Clusters that began apart and have not met
    /// are two clusters, each with its own primaries; their sets have no first set in common.
    fn serve(&mut self, group: GroupId, epoch: Epoch, id: ServerId, cluster: u64) {
        let primaries = self.primaries.entry((group, epoch)).or_default();
        if primaries.iter().any(|(one, _)| *one == id) {
            return;
        }
        let other = primaries.iter().find(|(_, by)| *by == cluster).map(|(one, _)| *one);
        primaries.push((id, cluster));
        if let Some(other) = other {
            let [one, other] = [id, other].map(|id| number_of(id).unwrap_or(u32::MAX));
            self.violated(|| format!("group {group} has two primaries in epoch {epoch}: {other} and {one}"));
        }
    }

    fn claim(&mut self, scene: &Scene<'_>, group: GroupId, primary: ServerId, epoch: Epoch) {
        let (member, at_ns) = (scene.member, scene.now_ns);
        let last = self.known[member as usize].claims.insert(group, Told { epoch, primary, at_ns });
        let before = last.map_or(Epoch::ZERO, |last| last.epoch);
        self.expect(epoch >= before, || {
            format!("{member} sees the claim of group {group} go back from {before} to {epoch}")
        });
    }

    fn failed(&mut self, scene: &Scene<'_>, id: ServerId, by: FailedBy) {
        let Some(target) = self.inside(id) else { return };
        let FailedBy::Quorum { reports, voters: of } = by else {
            let declared = self.declared[target as usize];
            let member = scene.member;
            return self.expect(declared, || format!("{member} is told of a failure of {target} that nobody declared"));
        };
        self.counts.failures += 1;
        self.counts.failures_of_living += u64::from(self.reach.runs(target));
        self.declared[target as usize] = true;
        let view = scene.bus.voters();
        let (member, majority) = (scene.member, view.voters.len() / 2 + 1);
        self.expect(usize::from(reports) >= majority, || {
            format!("{member} declares {target} failed with {reports} of {of} voters")
        });
        let some = |fits: &dyn Fn(u32) -> bool| {
            (0..self.rules.members).filter(|no| fits(*no)).fold(0, |all, no| all | bit(no))
        };
        let report_ns = scene.now_ns.saturating_sub(self.rules.report_ns());
        let real = some(&|no| self.known[no as usize].views[target as usize].suspected.held_since(report_ns));
        let memory_ns = scene.now_ns.saturating_sub(self.rules.memory_ns());
        let has_left = self.known[target as usize].farewell.held_since(memory_ns);
        let entitled = some(&|no| no != target && (has_left || !self.reach.both_since(memory_ns, no, target)));
        for list in [view.voters, view.previous].into_iter().filter(|list| !list.is_empty()).map(mask) {
            let counts = [real & list, entitled & list].map(Mask::count_ones);
            self.expect(is_majority(real, list), || {
                format!(
                    "{member} declares {target} failed by {reports} of {of} voters, of which {} suspect it",
                    counts[0]
                )
            });
            self.expect(is_majority(entitled, list), || {
                format!(
                    "{member} declares {target} failed by {reports} of {of} voters, of which {} could miss it",
                    counts[1]
                )
            });
        }
    }

    fn inside(&self, id: ServerId) -> Option<u32> {
        number_of(id).filter(|no| *no < self.rules.members)
    }

    fn view(&mut self, scene: &Scene<'_>, id: ServerId, change: impl FnOnce(&mut View)) {
        if let Some(other) = self.inside(id) {
            change(&mut self.known[scene.member as usize].views[other as usize]);
        }
    }

    /// Another is a member for this one, or is none any more.
    fn know(&mut self, scene: &Scene<'_>, other: u32, is_known: bool, has_failed: bool) {
        let view = &mut self.known[scene.member as usize].views[other as usize];
        let was_known = view.is_known;
        view.set(scene.now_ns, is_known, has_failed);
        if is_known != was_known && other != scene.member {
            self.reach.way(scene.now_ns, other, scene.member, is_known);
        }
    }

    fn joined(&mut self, scene: &Scene<'_>, id: ServerId) {
        let member = scene.member;
        if member >= self.rules.members {
            return;
        }
        let Some(other) = self.inside(id) else {
            return self.violated(|| format!("{member} lets in a member of another cluster"));
        };
        let kept_out = scene.now_ns < self.known[member as usize].views[other as usize].out_until_ns;
        self.expect(!kept_out, || format!("{member} lets {other} in, which was forgotten a moment ago"));
        let has_failed = scene.bus.member(id).is_some_and(|view| view.health == Health::Failed);
        self.know(scene, other, true, has_failed);
    }

    /// A member has heard of a wish, and keeps the forgotten one out until its end. The end is the same for all, but for
    /// clocks and milliseconds that are lost where it is passed on; it may be later where the wish was long under way.
    fn kept_out(&mut self, scene: &Scene<'_>, id: ServerId, tag: u32, left_ns: u64) {
        let Some(other) = self.inside(id) else { return };
        let (member, now_ns) = (scene.member, scene.now_ns);
        let keep_out_ns = self.rules.config.keep_out.as_nanos() as u64;
        if self.wishing == Some((member, other)) && !self.wishes.contains_key(&tag) {
            self.expect(left_ns == keep_out_ns / 1_000_000 * 1_000_000, || {
                format!("{member} keeps {other} out for {left_ns} ns")
            });
            self.wishes.insert(tag, Wish { member: other, ends_ns: now_ns + keep_out_ns });
        }
        let wish = self.wishes.get(&tag).copied().filter(|wish| wish.member == other);
        let ends_ns = now_ns + left_ns / 102 * 100;
        let in_time = wish.is_some_and(|wish| ends_ns + keep_out_ns / 40 + LOST_NS_MAX >= wish.ends_ns);
        self.expect(in_time, || format!("{member} keeps {other} out for {left_ns} ns by a wish {wish:?} at {now_ns}"));
        self.view(scene, id, |view| {
            if ends_ns > view.out_until_ns {
                (view.out_until_ns, view.out_since_ns) = (ends_ns, now_ns);
            }
        });
    }

    /// A primary takes writes only if it may know of a majority: that it exchanged packets, within the member timeout, with
    /// enough voters, or that somebody did of whom it may have heard. What it knew of voters that were replaced a moment ago
    /// is as good, since it may still use it for a quarter of the timeout.
    fn settle_writes(&mut self, scene: &Scene<'_>) {
        let known = &self.known[scene.member as usize];
        let Some(group) = known.primary_of.iter().copied().find(|group| scene.bus.may_write(*group)) else { return };
        let since_ns = scene.now_ns.saturating_sub(self.rules.lease_ns());
        let member = scene.member;
        let is_enough =
            |set: u64, of: u32| self.sets.get(set).is_some_and(|set| set.is_enough(self.reach.reached(since_ns, of)));
        if is_enough(known.set, member) {
            return;
        }
        let left_ns = scene.now_ns.saturating_sub(self.rules.grace_ns());
        let left = known.left.iter().filter(|(_, at_ns)| *at_ns >= left_ns).map(|(set, _)| *set);
        let mut sets = core::iter::once(known.set).chain(left);
        let holds = sets.any(|set| self.reach.around(since_ns, member).any(|of| is_enough(set, of)));
        self.expect(holds, || format!("{member} takes writes for group {group} without a majority of the voters"));
    }

    /// A member has these voters now.
    fn governed(&mut self, now_ns: u64, member: u32, view: &VotersView<'_>) {
        self.sets.note(view, self.known[member as usize].set);
        let grace_ns = now_ns.saturating_sub(self.rules.grace_ns());
        let known = &mut self.known[member as usize];
        if known.set != view.fingerprint {
            known.left.retain(|(_, at_ns)| *at_ns >= grace_ns);
            known.left.push((known.set, now_ns));
            known.set = view.fingerprint;
        }
    }

    /// What a member remembers of others at the beginning of a life.
    fn remember(&mut self, scene: &Scene<'_>) {
        for other in 0..self.rules.members {
            let view = scene.bus.members().find(|view| number_of(view.id) == Some(other));
            let has_failed = view.is_some_and(|view| view.health == Health::Failed);
            self.know(scene, other, view.is_some(), has_failed);
        }
        let saved = scene.durable.and_then(|bytes| Saved::decode(bytes, scene.bus.identity(), &self.rules.config).ok());
        for kept in saved.map(|saved| saved.kept_out).unwrap_or_default() {
            let ends_ns = scene.now_ns + kept.left_ms * 1_000_000 / 102 * 100;
            self.view(scene, kept.id, |view| view.out_until_ns = view.out_until_ns.max(ends_ns));
        }
    }
}

/// Milliseconds that a wish loses where it is passed on, each time one.
const LOST_NS_MAX: u64 = 20 * 1_000_000;

impl Watch for Checker {
    fn started(&mut self, scene: &Scene<'_>) {
        let (member, me) = (scene.member, scene.bus.identity().server);
        self.reach.life(scene.now_ns, member, true);
        let known = &mut self.known[member as usize];
        known.claims.clear();
        known.primary_of.clear();
        known.copies.clear();
        (known.set, known.left) = (0, Vec::new());
        if scene.durable.is_none() {
            known.memory_since = Some(scene.bus.identity().incarnation);
        }
        let elected = &self.known[member as usize].elected;
        let lost = elected.iter().find(|(group, epoch)| !self.keeps(scene.bus, me, **group, **epoch));
        if let Some((group, epoch)) = lost.map(|(group, epoch)| (*group, *epoch)) {
            self.violated(|| format!("{member} has forgotten its election in group {group}, epoch {epoch}"));
        }
        if member < self.rules.members {
            self.remember(scene);
        }
    }

    fn stopped(&mut self, now_ns: u64, member: u32) {
        self.reach.life(now_ns, member, false);
        // A wish need not be on the drive sooner than that; then the next life knows it too.
        let saved_ns = self.rules.save_ns();
        let known = &mut self.known[member as usize];
        known.farewell.set(now_ns, false);
        let since_ns = known.freeze.before(now_ns, saved_ns);
        for view in &mut known.views {
            view.suspected.set(now_ns, false);
            if view.out_since_ns >= since_ns {
                view.out_until_ns = 0;
            }
        }
    }

    fn paused(&mut self, now_ns: u64, member: u32, paused: bool) {
        self.reach.member(now_ns, member, !paused);
        let freeze = &mut self.known[member as usize].freeze;
        if paused { freeze.begin(now_ns, self.rules.decision_ns()) } else { freeze.end(now_ns) }
    }

    fn way(&mut self, now_ns: u64, from: u32, to: u32, is_open: bool) {
        self.reach.way(now_ns, from, to, is_open);
    }

    fn event(&mut self, scene: &Scene<'_>, event: &Event) {
        let now_ns = scene.now_ns;
        match event {
            Event::Suspected { id } => self.view(scene, *id, |view| view.suspected.set(now_ns, true)),
            Event::Unsuspected { id } => self.view(scene, *id, |view| view.suspected.set(now_ns, false)),
            Event::Recovered { id } => {
                self.counts.recoveries += 1;
                self.view(scene, *id, |view| view.set(now_ns, view.is_known, false));
            }
            Event::Failed { id, by } => {
                self.failed(scene, *id, *by);
                self.view(scene, *id, |view| {
                    view.suspected.set(now_ns, false);
                    view.set(now_ns, view.is_known, true);
                });
            }
            Event::MemberJoined { id, .. } => self.joined(scene, *id),
            Event::Forgotten { id } => {
                self.view(scene, *id, |view| view.suspected.set(now_ns, false));
                self.inside(*id).into_iter().for_each(|other| self.know(scene, other, false, false));
            }
            Event::KeptOut { id, tag, left } => self.kept_out(scene, *id, *tag, left.as_nanos() as u64),
            Event::ForgottenHere { .. } => {
                let wished = self.wishes.values().any(|wish| wish.member == scene.member);
                let member = scene.member;
                self.expect(wished, || format!("{member} is told that it was forgotten, and nobody wished it"));
            }
            // The primary itself asks.
            Event::HandoverOffered { group } => self.asked(scene.member, *group),
            Event::RoleChanged { group, role, epoch } => self.role(scene, *group, *role, *epoch),
            Event::SlotsChanged { group, primary, epoch } => self.claim(scene, *group, *primary, *epoch),
            Event::Standing { group, .. } => self.standing(scene, *group),
            Event::Elected { group, epoch } => self.elected(scene, *group, *epoch),
            Event::VotersChanged { .. } => self.governed(now_ns, scene.member, &scene.bus.voters()),
            Event::Published { .. } => self.heard[scene.member as usize] = true,
            Event::Voted { group, epoch, candidate, purpose, voters } => {
                let vote = LastVote { epoch: *epoch, candidate: *candidate, voters: *voters };
                self.voted(scene, *group, vote, *purpose);
            }
            _ => {}
        }
    }

    fn odd(&mut self, scene: &Scene<'_>, odd: Odd, refused: bool) {
        let member = scene.member;
        self.expect(refused, || format!("{member} takes a packet that {}", odd.words()));
    }

    fn settled(&mut self, scene: &Scene<'_>) {
        self.settle_writes(scene);
    }

    fn is_over(&self) -> bool {
        self.violation.is_some()
    }
}

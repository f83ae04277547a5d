//! What must hold at every step of a small cluster, whatever fails.
//!
//! Verified, at the step where it breaks:
//! - a group and epoch has one primary, in all lives of all members; who is elected holds the votes of a majority of
//!   distinct voters, and of a majority of the old set while the voters change;
//! - a voter votes once for a group and epoch and never in an earlier epoch than before, restarts and lost disks
//!   included; it votes for a replica only while the primary does not answer it, unless an operator asked;
//! - a vote and an election are on stable storage when they are told of;
//! - the epoch of a claim never goes back in the eyes of one member within a life, and its own not even across lives;
//! - a failure is declared by a majority of voters, each of which really suspects or did a moment ago; who is told of a
//!   failure is told of one that was declared; no failure is declared of a member that too few voters could miss;
//! - a primary that for the member timeout has reached no majority of the voters, nor anybody who has, takes no writes;
//! - a packet that came before, or from an earlier life of its sender than the receiver knows of, is refused;
//! - nobody of another cluster gets in; a forgotten member is kept out; a damaged record is not restored.
//!
//! Verified when everything has healed (see `agree`): all members agree on members, failures, voters and claims, every
//! group has one primary that takes writes, subscribers hear what is published, and a member that dies then is replaced
//! in time.
//!
//! Not verified: that two primaries never take writes at the same moment (clocks differ, so the time in which they may
//! is bounded, not zero), which replica is best, that a published message comes once, memory and time spent.

use std::collections::BTreeMap;

use ashlar_bus::event::{Event, FailedBy, Health, Role};
use ashlar_bus::saved::Saved;
use ashlar_bus::slot::GroupId;
use ashlar_bus::{Bus, Config};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::reach::Reach;
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
    /// Whether operators ask for failovers in this world.
    pub(super) by_hand: bool,
}

impl Rules {
    fn timeout_ns(&self) -> u64 {
        self.config.member_timeout.as_nanos() as u64
    }

    /// How long a suspicion may go on counting after it has ended, and how long one may take to end.
    fn memory_ns(&self) -> u64 {
        3 * self.timeout_ns() + 2 * self.flight_ns_max + self.persist_ns_max
    }
}

/// What one member was last heard to think of another.
#[derive(Debug, Clone, Copy, Default)]
struct View {
    suspected: bool,
    failed: bool,
    /// When it last stopped to think so.
    until_ns: Option<u64>,
    /// Until when it has to keep the other out, since it has heard that it was forgotten.
    out_until_ns: u64,
}

impl View {
    fn set(&mut self, now_ns: u64, suspected: bool, failed: bool) {
        if (self.suspected || self.failed) && !(suspected || failed) {
            self.until_ns = Some(now_ns);
        }
        (self.suspected, self.failed) = (suspected, failed);
    }
}

/// A vote, and under which set of voters it was given.
#[derive(Debug, Clone)]
struct LastVote {
    epoch: Epoch,
    candidate: ServerId,
    under: Vec<ServerId>,
    /// The voter has lost its disk since. It may vote again under another set: a later one, whose floor stands in for its
    /// memory, or one of a cluster of its own.
    lost: bool,
}

/// A vote for one candidate, and the set of voters that it was given under.
#[derive(Debug)]
struct Given {
    voter: ServerId,
    under: Vec<ServerId>,
}

/// What is known of one member.
#[derive(Debug, Default)]
struct Known {
    views: [View; MEMBERS_MAX],
    /// The last vote in each group, in all lives.
    votes: BTreeMap<GroupId, LastVote>,
    /// The greatest epoch that it was elected to in each group since it last lost its disk.
    elected: BTreeMap<GroupId, Epoch>,
    /// The greatest claim of each group that it has told of in this life, and when.
    claims: BTreeMap<GroupId, (Epoch, u64)>,
    /// The groups of which it says it is primary in this life.
    primary_of: Vec<GroupId>,
    /// It has lost its disk, and knows of no voters since.
    is_blank: bool,
    /// When its first life without memory began.
    blank_since_ns: Option<u64>,
    /// The set of voters under which it lost its memory of votes, and does not vote.
    abstains: Option<Epoch>,
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

/// Watches a small world.
#[derive(Debug)]
pub struct Checker {
    rules: Rules,
    pub(super) reach: Reach,
    known: Vec<Known>,
    primaries: BTreeMap<(GroupId, Epoch), ServerId>,
    ballots: BTreeMap<(GroupId, Epoch, ServerId), Vec<Given>>,
    /// When an operator last had each member forgotten.
    forgotten_ns: [u64; MEMBERS_MAX],
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
        Self {
            rules,
            reach: Reach::new(),
            known,
            primaries: BTreeMap::new(),
            ballots: BTreeMap::new(),
            forgotten_ns: [0; MEMBERS_MAX],
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

    /// An operator has had a member forgotten.
    pub(super) fn forgotten(&mut self, now_ns: u64, member: u32) {
        self.forgotten_ns[member as usize] = now_ns;
    }

    /// From now on it is noted who hears a published message.
    pub(super) fn listen(&mut self) {
        self.heard = [false; MEMBERS_MAX];
    }

    /// Whether a member has heard one.
    pub(super) fn has_heard(&self, member: u32) -> bool {
        self.heard[member as usize]
    }

    /// A member's disk is gone: what it was elected to, it need not know any more. Its votes still bind it.
    pub(super) fn disk_lost(&mut self, member: u32) {
        let known = &mut self.known[member as usize];
        known.elected.clear();
        known.is_blank = true;
        known.votes.values_mut().for_each(|vote| vote.lost = true);
    }

    /// Whether a member remembers its votes under the voters of that epoch.
    pub(super) fn remembers(&self, member: u32, voters: Epoch) -> bool {
        let known = &self.known[member as usize];
        !known.is_blank && known.abstains.is_none_or(|epoch| epoch < voters)
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

    fn voted(&mut self, scene: &Scene<'_>, group: GroupId, epoch: Epoch, candidate: ServerId) {
        let voter = scene.member;
        self.counts.votes += 1;
        let under = scene.bus.voters().voters.to_vec();
        let vote = LastVote { epoch, candidate, under: under.clone(), lost: false };
        let last = self.known[voter as usize].votes.insert(group, vote);
        if let Some(LastVote { epoch: before, candidate: to, under: before_under, lost }) = last {
            let once = epoch > before || epoch == before && candidate == to || lost && under != before_under;
            self.expect(once, || {
                let [now, then] = [candidate, to].map(|id| number_of(id).unwrap_or(u32::MAX));
                format!("{voter} votes twice in group {group}: epoch {epoch} for {now}, after {before} for {then}")
            });
        }
        let ballot = self.ballots.entry((group, epoch, candidate)).or_default();
        let (me, view) = (scene.bus.identity().server, scene.bus.voters());
        if !ballot.iter().any(|vote| vote.voter == me) {
            ballot.push(Given { voter: me, under: view.voters.to_vec() });
        }
        let saved = scene.durable.and_then(|bytes| Saved::decode(bytes, scene.bus.identity(), &self.rules.config).ok());
        let kept = saved.is_some_and(|saved| saved.votes.iter().any(|(of, vote)| *of == group && vote.epoch >= epoch));
        self.expect(kept, || format!("{voter} tells of its vote in group {group}, epoch {epoch} before it is durable"));
        self.voted_with_reason(scene, group, epoch, candidate);
    }

    /// Votes without an operator's wish need a primary that does not answer this voter.
    fn voted_with_reason(&mut self, scene: &Scene<'_>, group: GroupId, epoch: Epoch, candidate: ServerId) {
        if self.rules.by_hand {
            return;
        }
        let Some(view) = scene.bus.groups().find(|view| view.group == group) else { return };
        // The vote was decided before it was written; what has changed since is no part of it.
        let decided_ns = scene.now_ns.saturating_sub(3 * self.rules.persist_ns_max);
        let known = &self.known[scene.member as usize];
        let claim_is_new = known.claims.get(&group).is_some_and(|(_, told_ns)| *told_ns >= decided_ns);
        let until_ns = self.inside(view.primary).and_then(|no| known.views[no as usize].until_ns);
        if claim_is_new || until_ns.is_some_and(|until_ns| until_ns >= decided_ns) {
            return;
        }
        let is_well = scene.bus.member(view.primary).is_some_and(|primary| primary.health == Health::Alive);
        let other = view.primary != candidate && view.primary != scene.bus.identity().server;
        let well = other && is_well && !view.slots.is_empty();
        self.expect(!well, || {
            format!("{} votes in group {group}, epoch {epoch}, whose primary it sees alive", scene.member)
        });
    }

    /// A bus that begins with what is on this member's disk now.
    fn shadow(&self, scene: &Scene<'_>) -> Option<Bus> {
        let identity = scene.bus.identity().clone();
        Bus::new(self.rules.config.clone(), identity, Some(scene.durable?), 1, Instant::ORIGIN).ok()
    }

    fn elected(&mut self, scene: &Scene<'_>, group: GroupId, epoch: Epoch) {
        let (member, me) = (scene.member, scene.bus.identity().server);
        self.counts.elections += 1;
        self.known[member as usize].elected.insert(group, epoch);
        let votes = self.ballots.get(&(group, epoch, me)).map(Vec::as_slice).unwrap_or_default();
        // Votes count under the set in which they were given, even if others have been told since; there they count for the
        // set before it too.
        let is_majority = |of: &[ServerId], under: &[ServerId]| {
            let given = votes.iter().filter(|vote| vote.under == under && of.contains(&vote.voter));
            given.count() > of.len() / 2
        };
        let view = scene.bus.voters();
        let under = votes.iter().any(|vote| is_majority(&vote.under, &vote.under));
        let needs_both = !view.previous.is_empty() && is_majority(view.voters, view.voters);
        let before = !needs_both || is_majority(view.previous, view.voters);
        if !(under && before || view.voters.is_empty()) {
            let count = votes.len();
            return self.violated(|| {
                format!("{member} is elected in group {group}, epoch {epoch} by {count} votes: no majority")
            });
        }
        let kept = self.shadow(scene).is_some_and(|shadow| owns(&shadow, me, group, epoch));
        self.expect(kept, || {
            format!("{member} tells of its election in group {group}, epoch {epoch} before it is durable")
        });
    }

    fn role(&mut self, scene: &Scene<'_>, group: GroupId, role: Role, epoch: Epoch) {
        let (member, me) = (scene.member, scene.bus.identity().server);
        let primary_of = &mut self.known[member as usize].primary_of;
        primary_of.retain(|other| *other != group);
        if role != Role::Primary {
            return;
        }
        primary_of.push(group);
        let first = *self.primaries.entry((group, epoch)).or_insert(me);
        self.expect(first == me, || {
            let other = number_of(first).unwrap_or(u32::MAX);
            format!("group {group} has two primaries in epoch {epoch}: {other} and {member}")
        });
    }

    fn claim(&mut self, scene: &Scene<'_>, group: GroupId, epoch: Epoch) {
        let member = scene.member;
        let last = self.known[member as usize].claims.insert(group, (epoch, scene.now_ns));
        let before = last.map_or(Epoch::ZERO, |(before, _)| before);
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
        let voters: Vec<u32> = scene.bus.voters().voters.iter().filter_map(|id| self.inside(*id)).collect();
        let majority = scene.bus.voters().voters.len() / 2 + 1;
        let since_ns = scene.now_ns.saturating_sub(self.rules.memory_ns());
        let real = voters.iter().filter(|voter| self.suspects_since(**voter, target, since_ns)).count();
        let entitled = voters
            .iter()
            .filter(|voter| **voter != target && !self.reach.both_since(since_ns, **voter, target))
            .count();
        let member = scene.member;
        self.expect(usize::from(reports) >= majority, || {
            format!("{member} declares {target} failed with {reports} of {of} voters")
        });
        self.expect(real >= majority, || {
            format!("{member} declares {target} failed by {reports} of {of} voters, of which {real} suspect it")
        });
        self.expect(entitled >= majority, || {
            format!("{member} declares {target} failed by {reports} of {of} voters, of which {entitled} could miss it")
        });
    }

    fn suspects_since(&self, voter: u32, target: u32, since_ns: u64) -> bool {
        let view = self.known[voter as usize].views[target as usize];
        view.suspected || view.failed || view.until_ns.is_some_and(|until_ns| until_ns >= since_ns)
    }

    fn inside(&self, id: ServerId) -> Option<u32> {
        number_of(id).filter(|no| *no < self.rules.members)
    }

    fn view(&mut self, scene: &Scene<'_>, id: ServerId, change: impl FnOnce(&mut View)) {
        if let Some(other) = self.inside(id) {
            change(&mut self.known[scene.member as usize].views[other as usize]);
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
    }

    /// A primary takes writes only if it may know of a majority: that it exchanged packets, within the member timeout, with
    /// enough voters, or that somebody did of whom it may have heard.
    fn settle_writes(&mut self, scene: &Scene<'_>) {
        let known = &self.known[scene.member as usize];
        let Some(group) = known.primary_of.iter().copied().find(|group| scene.bus.may_write(*group)) else { return };
        // A clock may run slow by a hundredth, and an answer may have been under way.
        let window_ns = self.rules.timeout_ns() / 95 * 100 + 2 * self.rules.flight_ns_max;
        let since_ns = scene.now_ns.saturating_sub(window_ns);
        let voters = || scene.bus.voters().voters.iter().filter_map(|id| self.inside(*id));
        let has_majority = |of: &u32| {
            let reached = voters().filter(|no| self.reach.once_since(since_ns, *of, *no)).count();
            reached > voters().count() / 2
        };
        let member = scene.member;
        let alone = !has_majority(&member) && !self.reach.around(since_ns, member).any(|of| has_majority(&of));
        self.expect(!alone, || format!("{member} takes writes for group {group} without a majority of the voters"));
    }
}

/// Whether that bus knows itself as the group's primary in that epoch or a later one.
fn owns(bus: &Bus, me: ServerId, group: GroupId, epoch: Epoch) -> bool {
    bus.groups().any(|view| view.group == group && (view.epoch > epoch || view.epoch == epoch && view.primary == me))
}

impl Watch for Checker {
    fn started(&mut self, scene: &Scene<'_>) {
        let (member, me) = (scene.member, scene.bus.identity().server);
        self.reach.member(scene.now_ns, member, true);
        let known = &mut self.known[member as usize];
        known.claims.clear();
        known.primary_of.clear();
        if known.is_blank {
            known.blank_since_ns = Some(scene.now_ns);
        }
        let lost = known.elected.iter().find(|(group, epoch)| !owns(scene.bus, me, **group, **epoch));
        if let Some((group, epoch)) = lost.map(|(group, epoch)| (*group, *epoch)) {
            self.violated(|| format!("{member} has forgotten its election in group {group}, epoch {epoch}"));
        }
    }

    fn stopped(&mut self, now_ns: u64, member: u32) {
        self.reach.member(now_ns, member, false);
        let known = &mut self.known[member as usize];
        for view in &mut known.views {
            view.set(now_ns, false, false);
            view.out_until_ns = 0;
        }
    }

    fn paused(&mut self, now_ns: u64, member: u32, paused: bool) {
        self.reach.member(now_ns, member, !paused);
    }

    fn way(&mut self, now_ns: u64, from: u32, to: u32, is_open: bool) {
        self.reach.way(now_ns, from, to, is_open);
    }

    fn event(&mut self, scene: &Scene<'_>, event: &Event) {
        let now_ns = scene.now_ns;
        match event {
            Event::Suspected { id } => self.view(scene, *id, |view| view.set(now_ns, true, view.failed)),
            Event::Unsuspected { id } => self.view(scene, *id, |view| view.set(now_ns, false, view.failed)),
            Event::Recovered { id } => {
                self.counts.recoveries += 1;
                self.view(scene, *id, |view| view.set(now_ns, view.suspected, false));
            }
            Event::Failed { id, by } => {
                self.failed(scene, *id, *by);
                self.view(scene, *id, |view| view.set(now_ns, view.suspected, true));
            }
            Event::MemberJoined { id, .. } => self.joined(scene, *id),
            Event::Forgotten { id } => {
                // Clocks differ by up to two hundredths, and who hears of it later keeps out for what is left.
                let keep_out_ns = self.rules.config.keep_out.as_nanos() as u64 / 100 * 90;
                let forgotten_ns = self.inside(*id).map_or(0, |no| self.forgotten_ns[no as usize]);
                self.view(scene, *id, |view| {
                    view.set(now_ns, false, false);
                    view.out_until_ns = forgotten_ns + keep_out_ns;
                });
            }
            Event::RoleChanged { group, role, epoch } => self.role(scene, *group, *role, *epoch),
            Event::SlotsChanged { group, epoch, .. } => self.claim(scene, *group, *epoch),
            Event::Elected { group, epoch } => self.elected(scene, *group, *epoch),
            Event::VotersChanged { epoch, .. } => {
                let known = &mut self.known[scene.member as usize];
                known.is_blank = false;
                // What a blank member hears of soon after its beginning, it may have voted under.
                let window_ns = self.rules.timeout_ns() / 95 * 100;
                if known.blank_since_ns.is_some_and(|since_ns| now_ns - since_ns <= window_ns) {
                    known.abstains = Some(*epoch);
                }
            }
            Event::Published { .. } => self.heard[scene.member as usize] = true,
            Event::Voted { group, epoch, candidate } => self.voted(scene, *group, *epoch, *candidate),
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

//! News comes and goes: learning, telling at once, riding on probes, looking for differences, meeting and forgetting.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::id::{Incarnation, ServerId};
use ashlar_wire::time::Instant;

use super::{Bus, KeptOut, NEWS_MAX};
use crate::event::{Event, FailedBy};
use crate::gossip::{Subject, Told};
use crate::member::{Change, Description, LIFE_MAX, Life, MemberRecord, Opinion};
use crate::packet::{Body, Forgetting, Header, News, PACKET_BYTES_MIN, Purpose, Sync, encode_news};
use crate::planted::Planted;
use crate::sync;

/// Bytes of a packet that a header and the fixed part of a body may take.
const HEAD_BYTES_MAX: usize = 128;
/// What one exchange of differences may send, bytes; the rest follows with the next.
const SYNC_BYTES_MAX: usize = 128 * 1_024;
/// Differences that last this long are looked into even while news comes in.
const DIFFERS_MAX: Duration = Duration::from_millis(1_500);
/// After so long without an end of differences with some, they are looked into although others are found to know the same.
const UNSETTLED_MAX: Duration = Duration::from_millis(1_500);
/// Fresh news that one packet to many may carry is sent on in this many packets at most; the rest rides on probes.
const FRESH_PACKETS_MAX: usize = 16;

/// Lives, or refutations, that a third member may tell beyond those that are known of a member: more than a server can have while another
/// hears nothing of it, even if it starts again and again for weeks.
const LIVES_AHEAD_MAX: u64 = 1 << 20;
/// The same of a member that is not known, and of this one: so far it goes at once to be believed again. Many steps of others are one here.
const OWN_LIVES_AHEAD_MAX: u64 = 1 << 32;
/// Lives that a member leaves out when it goes beyond one that was made up: its next starts, which count on from its file, must not meet it.
const LIVES_SKIPPED: u64 = 1 << 16;

impl Bus {
    /// Bytes that a packet has for lists.
    pub(super) fn packet_room(&self) -> usize {
        self.config.packet_bytes_max.max(PACKET_BYTES_MIN) - HEAD_BYTES_MAX
    }

    /// What members should agree on has changed here.
    pub(super) fn note_change(&mut self, now: Instant) {
        self.standing.changed_at = now;
        self.standing.recount = true;
        self.durable.need_soon(now, self.config.save_interval);
    }

    /// Takes in news. `is_fresh`: it comes by gossip and is to be passed on at once; else it was asked for, and most others know it.
    pub(super) fn learn_all(&mut self, now: Instant, from: ServerId, news: Vec<News>, is_fresh: bool) {
        for news in news {
            self.learn(now, from, news, is_fresh);
        }
    }

    fn learn(&mut self, now: Instant, from: ServerId, news: News, is_fresh: bool) {
        match news {
            News::Member(record) => self.learn_member(now, from, *record, is_fresh),
            News::Life(id, life) => self.learn_life(now, from, id, life, is_fresh),
            News::Claim(claim) => self.hear_claim(now, from, claim, is_fresh),
            News::Voters(set) => self.hear_voters(now, &set, is_fresh),
            News::Forget(forgetting) => self.forget(now, forgetting),
        }
    }

    pub(super) fn is_kept_out(&self, id: ServerId, now: Instant) -> bool {
        let is_kept_out = self.keep_outs.get(&id).is_some_and(|kept| kept.until > now);
        is_kept_out && !self.bugs.has(Planted::IgnoreKeepOut)
    }

    fn learn_member(&mut self, now: Instant, from: ServerId, record: MemberRecord, is_fresh: bool) {
        let id = record.id;
        if id == self.identity.server {
            self.overtake(now, &record.description);
            return self.learn_own(now, record.life);
        }
        if self.is_kept_out(id, now) || !self.is_credible(from, id, record.description.incarnation, record.life) {
            return;
        }
        if self.members.place(id).is_none() && self.members.len() >= self.config.members_max {
            self.counters.refused_full += 1;
            return;
        }
        let change = if self.ignores_recovery(id, record.life) {
            let place = self.members.place(id).expect("it has failed, so it is known");
            self.members.describe(place, record.description)
        } else {
            self.members.merge(record, now)
        };
        if change.is_news() {
            self.pass_on(now, Subject::Member(id), is_fresh);
        }
        self.handle_change(now, id, change);
    }

    fn learn_life(&mut self, now: Instant, from: ServerId, id: ServerId, life: Life, is_fresh: bool) {
        if id == self.identity.server {
            return self.learn_own(now, life);
        }
        let Some(place) = self.members.place(id) else { return };
        if !self.is_credible(from, id, Incarnation(0), life) {
            return;
        }
        if self.ignores_recovery(id, life) {
            return;
        }
        let change = self.members.set_life(place, life, now);
        if change.is_news() {
            self.pass_on(now, Subject::Life(id), is_fresh);
        }
        self.handle_change(now, id, change);
    }

    fn ignores_recovery(&self, id: ServerId, life: Life) -> bool {
        let has_failed = self.members.get(id).is_some_and(|member| member.life.failed);
        self.bugs.has(Planted::NeverClearFailure) && has_failed && !life.failed
    }

    /// Whether what `from` says of a life and of refutations may be true. Both are counted one by one, so that what a third member says is
    /// at most a little beyond what is known; it is refused otherwise. Whom it is about says itself what it is.
    fn is_credible(&mut self, from: ServerId, id: ServerId, incarnation: Incarnation, life: Life) -> bool {
        let known = self.members.get(id).map(|member| (member.incarnation.0, member.life.refuted));
        let ahead_max = match known {
            _ if from == id => LIFE_MAX.0,
            Some(_) => LIVES_AHEAD_MAX,
            None => OWN_LIVES_AHEAD_MAX,
        };
        let (lives, refuted) = known.unwrap_or_default();
        let is_within = |told: u64, known: u64| told <= known.saturating_add(ahead_max).min(LIFE_MAX.0);
        let is_credible = is_within(incarnation.0, lives) && is_within(life.refuted, refuted);
        self.counters.refused_unentitled += u64::from(!is_credible);
        is_credible
    }

    /// Others know of a later description of this member than it ever gave. It gives one that is later still, so that they take its packets
    /// and what it says of itself again. Step by step, so that nobody can drive it to the end of the numbers at once.
    fn overtake(&mut self, now: Instant, told: &Description) {
        let own = self.identity.server;
        let place = self.members.place(own).expect("a member knows itself");
        if told.version() <= self.members.at(place).description.version() {
            return;
        }
        let mut description = self.own_description();
        match told.revision.checked_add(1).filter(|_| told.incarnation == self.life) {
            Some(revision) => description.revision = revision,
            None => {
                let next = told.incarnation.0.saturating_add(LIVES_SKIPPED);
                self.life = Incarnation(next.min(self.life.0.saturating_add(OWN_LIVES_AHEAD_MAX))).min(LIFE_MAX);
                description.incarnation = self.life;
            }
        }
        self.members.describe(place, description);
        self.tell(now, Subject::Member(own));
        self.note_change(now);
    }

    /// What others say about this member.
    fn learn_own(&mut self, now: Instant, life: Life) {
        if life.failed {
            return self.handle_accused(now, life.refuted);
        }
        let place = self.members.place(self.identity.server).expect("a member knows itself");
        let life = Life { refuted: self.bounded_refuted(life.refuted), ..life };
        if self.members.set_life(place, life, now).life {
            // An earlier life has refuted more than this one remembers.
            self.standing.accused_since = None;
            self.note_change(now);
        }
    }

    /// How often others say that this member has refuted its failure, as far as it goes beyond its own count at once: if that was made up,
    /// it must be able to refute the next one still.
    pub(super) fn bounded_refuted(&self, refuted: u64) -> u64 {
        let own = self.members.get(self.identity.server).map_or(0, |own| own.life.refuted);
        refuted.min(own.saturating_add(OWN_LIVES_AHEAD_MAX))
    }

    fn handle_change(&mut self, now: Instant, id: ServerId, change: Change) {
        if change.joined {
            self.handle_joined(id);
        }
        if change.moved
            && let Some(member) = self.members.get(id)
        {
            let address = alloc::string::String::from(&*member.description.address);
            self.event(Event::AddressChanged { id, address });
        }
        if change.described && !change.joined {
            self.event(Event::Described { id });
        }
        if change.returned {
            self.event(Event::Returned { id });
        }
        if change.failed {
            self.handle_failed(now, id, FailedBy::News);
        }
        if change.recovered {
            self.handle_recovered(now, id);
        }
        if change.is_news() {
            self.note_change(now);
            self.govern.handle_changed(now);
            self.meetings.remove(&id);
        }
        if change.joined || change.described {
            self.consider_migration(now);
        }
    }

    fn handle_joined(&mut self, id: ServerId) {
        let place = self.members.place(id).expect("it has just joined");
        self.prober.handle_added(place, &mut self.chance);
        let is_voter = self.voters.has_say(id);
        let member = self.members.at_mut(place);
        member.is_voter = is_voter;
        member.opinion = Opinion::Fine;
        let has_failed = member.life.failed;
        // A forgotten primary that comes back still has what nobody took, even if it had failed before it was forgotten.
        let claims = &self.claims;
        self.ballots.retain(|group, ballot| {
            let is_owner = claims.get(*group).is_some_and(|claim| claim.owner == id);
            ballot.purpose != Purpose::Election || has_failed || !is_owner
        });
        let member = self.members.at(place);
        let address = alloc::string::String::from(&*member.description.address);
        self.event(Event::MemberJoined { id, address });
    }

    /// Others should hear of this too: soon if it is fresh; else it was found by comparing, and rides on probes.
    fn pass_on(&mut self, now: Instant, subject: Subject, is_fresh: bool) {
        if is_fresh {
            self.tell(now, subject);
        } else {
            self.gossip.add_told(subject, NEWS_MAX);
        }
    }

    /// Others should hear of this soon.
    pub(super) fn tell(&mut self, now: Instant, subject: Subject) {
        self.gossip.add(subject, NEWS_MAX);
        self.arm_flush(now);
    }

    /// What there is to tell about a subject.
    fn read_subject(&self, subject: Subject, now: Instant) -> Option<News> {
        Some(match subject {
            Subject::Member(id) => News::Member(Box::new(self.members.get(id)?.record())),
            Subject::Life(id) => News::Life(id, self.members.get(id)?.life),
            Subject::Claim(group) => News::Claim(self.claims.get(group)?.clone()),
            Subject::Voters => News::Voters(Box::new(self.voters.set()?.clone())),
            Subject::Forget(id) => {
                let forgetting = self.keep_outs.get(&id)?.forgetting(id, now);
                return (forgetting.left_ms > 0).then_some(News::Forget(forgetting));
            }
        })
    }

    /// News to go with a packet that has room for so many bytes of it.
    pub(super) fn take_news(&mut self, now: Instant, room: usize) -> Vec<News> {
        let mut news = Vec::new();
        if self.gossip.is_quiet() {
            return news;
        }
        let (mut left, mut written) = (room, Vec::new());
        let mut gossip = core::mem::take(&mut self.gossip);
        gossip.tell(self.tells_max(), |subject| {
            let Some(piece) = self.read_subject(subject, now) else { return Told::Gone };
            written.clear();
            encode_news(&mut written, &piece);
            // A piece that is longer than the room goes alone.
            if written.len() > left && !news.is_empty() {
                return Told::NoRoom;
            }
            left = left.saturating_sub(written.len());
            news.push(piece);
            Told::Yes
        });
        self.gossip = gossip;
        news
    }

    /// How often each piece is told.
    fn tells_max(&self) -> u32 {
        let members = u64::try_from(self.members.len()).unwrap_or(u64::MAX);
        self.config.news_tells_per_log2 * (u64::BITS - members.leading_zeros())
    }

    /// What waited to be told together leaves.
    pub(super) fn tick_flush(&mut self, now: Instant) {
        if self.flush_at.is_none_or(|at| at > now) {
            return;
        }
        self.flush_at = None;
        if !self.outbound.is_empty() {
            self.flush_watch(now);
        }
        if self.gossip.has_fresh() {
            self.flush_news(now);
        }
    }

    /// Fresh news leaves at once: to a few members at random, claims and voters to every voter as well.
    fn flush_news(&mut self, now: Instant) {
        let subjects = self.gossip.take_fresh();
        let is_for_voters = |subject: &Subject| matches!(subject, Subject::Voters);
        let for_voters: Vec<Subject> = subjects.iter().copied().filter(is_for_voters).collect();
        let to = self.choose_members(self.config.news_fanout, |_| true);
        for news in self.pack_subjects(&subjects, now).into_iter().take(FRESH_PACKETS_MAX) {
            self.send_to_all(to.iter().copied(), &Body::News(news));
        }
        if !for_voters.is_empty() {
            let voters = self.other_voters();
            for news in self.pack_subjects(&for_voters, now) {
                self.send_to_all(voters.iter().copied(), &Body::News(news));
            }
        }
    }

    fn pack_subjects(&self, subjects: &[Subject], now: Instant) -> Vec<Vec<News>> {
        let news = subjects.iter().filter_map(|subject| self.read_subject(*subject, now));
        pack(news, self.packet_room())
    }

    /// Compares fingerprints with those of a peer, and looks for what differs.
    pub(super) fn compare(&mut self, now: Instant, from: ServerId, theirs: (u64, u64)) {
        let is_same = theirs == (self.members.digest(), self.claims_digest());
        if self.gossip.handle_compared(is_same) {
            self.standing.unsettled_since = None;
        }
        if is_same {
            if let Some(since) = self.standing.differs_since.take() {
                self.counters.time_to_convergence.add(now.saturating_since(since));
            }
            return;
        }
        let since = *self.standing.differs_since.get_or_insert(now);
        let unsettled_since = *self.standing.unsettled_since.get_or_insert(now);
        let interval = self.config.sync_interval;
        let is_quiet = now >= self.standing.changed_at + interval / 2 && now >= since + interval;
        // Whoever has not found its claims confirmed must not wait: it may be a stale owner.
        let is_lost = !self.standing.matched;
        let is_old = now >= since + DIFFERS_MAX;
        // Where members fall into parties that differ, those of its own party must not keep it from asking the others.
        let is_split = now >= unsettled_since + UNSETTLED_MAX;
        if now < self.standing.next_sync
            || !(is_quiet || is_lost || is_old || is_split)
            || self.bugs.has(Planted::NoSync)
        {
            return;
        }
        if is_split {
            self.standing.unsettled_since = Some(now);
        }
        self.standing.next_sync = now + interval;
        self.counters.syncs_begun += 1;
        let sync = self.own_sync(true);
        self.send(from, &Body::Sync(sync));
    }

    fn own_sync(&self, wants_answer: bool) -> Sync {
        let members = sync::member_classes(&self.members, sync::class_count(self.members.len()));
        let claims = sync::claim_classes(&self.claims, sync::class_count(self.claims.len()));
        Sync { wants_answer, voters: self.voters.hash(), members, claims }
    }

    /// A peer told its fingerprints: it gets the facts of all classes that differ.
    pub(super) fn handle_sync(&mut self, now: Instant, from: ServerId, theirs: &Sync) {
        let (members, claims) = (theirs.members.len(), theirs.claims.len());
        let differing = sync::differing(&sync::member_classes(&self.members, members), &theirs.members);
        let differs = |member: &&crate::member::Member| differing[sync::member_class(member.id, members)];
        let facts = self.members.iter().filter(differs).map(|member| News::Member(Box::new(member.record())));
        let mut news: Vec<News> = facts.collect();
        let differing = sync::differing(&sync::claim_classes(&self.claims, claims), &theirs.claims);
        let differs = |claim: &&crate::claim::Claim| differing[sync::claim_class(claim.group, claims)];
        news.extend(self.claims.iter().filter(differs).map(|claim| News::Claim(claim.clone())));
        if theirs.voters != self.voters.hash() {
            news.extend(self.voters.set().cloned().map(Box::new).map(News::Voters));
        }
        let kept_out = self.keep_outs.keys().filter_map(|id| self.read_subject(Subject::Forget(*id), now));
        news.extend(kept_out);
        let room = self.packet_room();
        for part in pack(news.into_iter(), room).into_iter().take(SYNC_BYTES_MAX / room) {
            self.send(from, &Body::Records(part));
        }
        if theirs.wants_answer {
            let own = self.own_sync(false);
            self.send(from, &Body::Sync(own));
        }
    }

    /// A server introduces itself.
    pub(super) fn handle_meet(&mut self, now: Instant, from: ServerId, header: Header, record: MemberRecord) {
        if record.id != from || record.description.incarnation != header.incarnation {
            self.counters.refused_unentitled += 1;
            return;
        }
        let is_new = self.members.place(from).is_none();
        self.learn_member(now, from, record, true);
        let is_known = self.members.place(from).is_some();
        // Without a number the sender does not know this member.
        if is_known && (is_new || header.sequence == 0) {
            let own = self.own_record();
            self.send(from, &Body::Meet(own));
        }
        if is_known && is_new {
            let sync = self.own_sync(true);
            self.send(from, &Body::Sync(sync));
        }
    }

    /// Removes a member and keeps it out for a while. Each wish is taken once.
    pub(super) fn forget(&mut self, now: Instant, wish: Forgetting) {
        let id = wish.id;
        let until = now + Duration::from_millis(wish.left_ms).min(self.config.keep_out);
        let known = self.keep_outs.get(&id);
        let is_old = known.is_some_and(|kept| kept.tag == wish.tag || until <= kept.until);
        if id == self.identity.server || until <= now || is_old {
            return;
        }
        if known.is_none() && !self.has_room_for_wish(now) {
            self.counters.refused_full += 1;
            return;
        }
        let heard = self.members.get(id).map(|member| (member.incarnation, member.seen));
        let heard = heard.or_else(|| self.keep_outs.get(&id).and_then(|kept| kept.heard));
        self.keep_outs.insert(id, KeptOut { tag: wish.tag, until, heard });
        // Whoever loses the wish with its process remembers the member still, and tells the others of it again.
        self.durable.need();
        self.meetings.remove(&id);
        self.tell(now, Subject::Forget(id));
        self.event(Event::KeptOut { id, tag: wish.tag, left: until.saturating_since(now) });
        if self.members.remove(id).is_none() {
            return;
        }
        self.prober.handle_removed(self.members.len(), &mut self.chance);
        self.sweep = None;
        self.suspicion.end(id);
        [Subject::Member(id), Subject::Life(id)].into_iter().for_each(|subject| self.gossip.drop(subject));
        self.event(Event::Forgotten { id });
        self.note_change(now);
        self.govern.handle_changed(now);
        // Its groups stay as they are, so that no epoch goes back; whoever follows it may take its place.
        self.stand_against(now, id);
    }

    /// A server that is no member speaks to this one as if it were: if it was forgotten it is told so, however long ago that was. Says
    /// whether it was.
    pub(super) fn tell_forgotten(&mut self, now: Instant, to: ServerId) -> bool {
        let Some(kept) = self.keep_outs.get(&to) else { return false };
        let wish = kept.forgetting(to, now);
        self.send(to, &Body::Forgotten(wish));
        true
    }

    /// A member says that this one was forgotten. It is noted, once for each wish, and moves nothing: the others know best
    /// whom they keep out, and the word of one is no reason to leave the rest.
    pub(super) fn handle_forgotten(&mut self, from: ServerId, wish: &Forgetting) {
        if wish.id != self.identity.server {
            self.counters.refused_unentitled += 1;
            return;
        }
        self.forgotten_by = Some(from);
        if self.told_forgotten.replace(wish.tag) != Some(wish.tag) {
            let left = Duration::from_millis(wish.left_ms).min(self.config.keep_out);
            self.event(Event::ForgottenHere { by: from, left });
        }
    }

    /// Whether another wish can be remembered. Wishes are remembered after their end, so that a server that was away learns that it was
    /// forgotten; where there are too many, the one that ended first goes, if its server owns nothing any more.
    pub(super) fn has_room_for_wish(&mut self, now: Instant) -> bool {
        if self.keep_outs.len() < self.config.keep_outs_max {
            return true;
        }
        // What is over must not be taken again while others still tell it.
        let (keep_out, claims) = (self.config.keep_out, &self.claims);
        let is_over = |id: ServerId, kept: &KeptOut| kept.until + keep_out <= now && claims.owned_by_server(id) == 0;
        let over = self.keep_outs.iter().filter(|(id, kept)| is_over(**id, kept));
        let oldest = over.min_by_key(|(_, kept)| kept.until).map(|(id, _)| *id);
        oldest.is_some_and(|id| self.keep_outs.remove(&id).is_some())
    }
}

impl KeptOut {
    /// What is told of it.
    pub(super) fn forgetting(self, id: ServerId, now: Instant) -> Forgetting {
        let left = self.until.saturating_since(now);
        Forgetting { id, tag: self.tag, left_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX) }
    }
}

/// Puts news into packets of up to `room` bytes each, or one piece that is longer.
fn pack(news: impl Iterator<Item = News>, room: usize) -> Vec<Vec<News>> {
    let mut packets: Vec<Vec<News>> = Vec::new();
    let (mut left, mut written) = (0, Vec::new());
    for piece in news {
        written.clear();
        encode_news(&mut written, &piece);
        match packets.last_mut().filter(|_| written.len() <= left) {
            Some(packet) => packet.push(piece),
            None => {
                packets.push(alloc::vec![piece]);
                left = room;
            }
        }
        left = left.saturating_sub(written.len());
    }
    packets
}

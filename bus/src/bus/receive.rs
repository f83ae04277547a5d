//! Packets come in: who may say it, is it new, and where it goes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use ashlar_wire::id::{ClusterId, ServerId};
use ashlar_wire::time::Instant;

use super::Bus;
use crate::event::{Departure, Event, Health};
use crate::member::{LIFE_MAX, Opinion};
use crate::packet::{Beat, Body, Header, News, PacketError, decode};
use crate::planted::Planted;
use crate::probe::Cause;

impl Bus {
    /// A packet came from `from`, which the transport has authenticated. Bytes that are no valid packet for this member
    /// are counted and refused; no state moves.
    pub fn handle_packet(&mut self, now: Instant, from: ServerId, bytes: &[u8]) {
        self.notice_stall(now);
        self.counters.packets_received += 1;
        self.counters.bytes_received += bytes.len() as u64;
        match decode(bytes, self.expected_cluster(bytes), &self.config) {
            Ok((header, body)) => {
                if self.admit(now, from, header, &body) {
                    self.dispatch(now, from, header, body);
                }
            }
            Err(PacketError::Malformed) => self.counters.refused_malformed += 1,
            Err(PacketError::Version(_)) => self.counters.refused_version += 1,
            Err(PacketError::Cluster) => self.counters.refused_cluster += 1,
        }
        self.finish(now);
    }

    fn expected_cluster(&self, bytes: &[u8]) -> ClusterId {
        let told = bytes.get(2..18).and_then(|id| <[u8; 16]>::try_from(id).ok());
        match told {
            Some(id) if self.bugs.has(Planted::IgnoreCluster) => ClusterId::from_bytes(id),
            _ => self.identity.cluster,
        }
    }

    /// Whether the sender may speak to this member, in this life, with this number.
    fn admit(&mut self, now: Instant, from: ServerId, header: Header, body: &Body) -> bool {
        if header.incarnation > LIFE_MAX {
            self.counters.refused_unentitled += 1;
            return false;
        }
        if from == self.identity.server {
            self.counters.refused_stranger += 1;
            return false;
        }
        if self.is_kept_out(from, now) {
            self.counters.refused_kept_out += 1;
            if matches!(body, Body::Probe(..)) {
                self.tell_forgotten(now, from);
            }
            return false;
        }
        let Some(place) = self.members.place(from) else {
            // Strangers may introduce themselves. Whoever probes knows this member from before: if it was not forgotten, then this member has
            // lost what it knew, and lets itself be found, also where it has met others since.
            let is_meeting = matches!(body, Body::Meet(_));
            self.counters.refused_stranger += u64::from(!is_meeting);
            if matches!(body, Body::Probe(..)) && !self.tell_forgotten(now, from) {
                let own = self.own_record();
                self.send(from, &Body::Meet(own));
            }
            return is_meeting;
        };
        let member = self.members.at_mut(place);
        if header.incarnation < member.incarnation && !self.bugs.has(Planted::AcceptEarlierLife) {
            self.counters.refused_stale += 1;
            if matches!(body, Body::Probe(..)) {
                // If that later life was made up, the sender learns of it only so.
                let known = News::Member(Box::new(member.record()));
                self.send(from, &Body::News(Vec::from([known])));
            }
            return false;
        }
        if member.begin_life(header.incarnation) {
            self.event(Event::Returned { id: from });
        }
        let member = self.members.at_mut(place);
        if member.seen.is_empty()
            && let Some((incarnation, seen)) = self.keep_outs.get(&from).and_then(|kept| kept.heard)
            && incarnation == member.incarnation
        {
            // It was forgotten and is back in the same life: what was heard before counts.
            member.seen = seen;
        }
        // A sender that does not know this member has no number for it; then only what needs none is taken.
        let unnumbered = header.sequence == 0 && matches!(body, Body::Meet(_) | Body::Answer(..) | Body::Forgotten(_));
        if !unnumbered && !member.seen.take(header.sequence) && !self.bugs.has(Planted::AcceptReplay) {
            self.counters.refused_replayed += 1;
            return false;
        }
        if !unnumbered {
            self.note_life(place, now);
        }
        true
    }

    /// A sign of life of the member in `place`.
    pub(super) fn note_life(&mut self, place: usize, now: Instant) {
        let member = self.members.at_mut(place);
        member.heard_at = now;
        // Whoever has stopped in order may answer for a moment still.
        if member.opinion == Opinion::Fine || member.departure == Departure::Left {
            return;
        }
        let (id, was) = (member.id, member.health());
        member.opinion = Opinion::Fine;
        let doubt = self.suspicion.end(id);
        self.counters.doubts_cleared += u64::from(doubt.is_some());
        if was == Health::Suspected {
            self.event(Event::Unsuspected { id });
        }
        if doubt.is_some_and(|doubt| doubt.suspected) {
            self.withdraw(id, now);
        }
    }

    fn dispatch(&mut self, now: Instant, from: ServerId, header: Header, body: Body) {
        match body {
            Body::Probe(token, beat, news) => self.handle_probe(now, from, token, beat, news),
            Body::Answer(token, beat, news) => self.handle_answer(now, from, token, beat, news),
            Body::Ask(token, target) => self.handle_ask(now, from, token, target),
            Body::Heard(token, target, incarnation) => self.handle_heard(now, token, target, incarnation),
            Body::Doubt { relayed, silent } => self.handle_doubts(now, from, relayed, &silent),
            Body::Report(silent) => self.handle_reports(now, from, &silent),
            Body::News(news) => self.learn_all(now, from, news, true),
            Body::Sync(sync) => self.handle_sync(now, from, &sync),
            Body::Records(news) => self.learn_all(now, from, news, false),
            Body::Meet(record) => self.handle_meet(now, from, header, record),
            Body::Stand { group, base, offset } => self.handle_stand(now, from, group, base, offset),
            Body::Request(request) => self.handle_request(now, from, &request),
            Body::Vote(vote) => self.handle_vote(now, from, &vote),
            Body::Adopted(adoption) => self.handle_adopted(now, from, adoption),
            Body::HandoverAsk(group) => self.handle_handover_ask(now, from, group),
            Body::HandoverOffset { group, offset } => self.handle_handover_offset(now, from, group, offset),
            Body::Publish { channel, message } => self.deliver(from, &channel, &message),
            Body::Forgotten(wish) => self.handle_forgotten(from, &wish),
            Body::Departure(departure) => self.handle_departure(now, from, departure),
            Body::HandoverOffer { group, offset } => self.handle_offer(now, from, group, offset),
        }
    }

    pub(super) fn beat_for(&self, to: ServerId, now: Instant) -> Beat {
        let failed = self.members.get(to).filter(|member| member.life.failed);
        Beat {
            members: self.members.digest(),
            claims: self.claims_digest(),
            voters: self.voters.short_fingerprint(),
            quorum_age: self.reach.age(&self.voters, self.identity.server, now),
            you_failed: failed.map(|member| member.life.refuted),
        }
    }

    pub(super) fn claims_digest(&self) -> u64 {
        self.claims.digest() ^ self.voters.hash()
    }

    fn handle_probe(&mut self, now: Instant, from: ServerId, token: u32, beat: Beat, news: Vec<News>) {
        self.learn_all(now, from, news, true);
        self.handle_beat(now, from, beat, false);
        // Whoever knows the same needs no news.
        let differs = (beat.members, beat.claims) != (self.members.digest(), self.claims_digest());
        let own = self.beat_for(from, now);
        let news = if differs { self.take_news(now, self.config.piggyback_bytes_max) } else { Vec::new() };
        self.send(from, &Body::Answer(token, own, news));
    }

    fn handle_answer(&mut self, now: Instant, from: ServerId, token: u32, beat: Beat, news: Vec<News>) {
        let replay = self.bugs.has(Planted::AcceptReplay);
        let Some(probe) = self.prober.handle_answer(from, token, now, replay) else {
            self.counters.refused_unasked += 1;
            return;
        };
        self.forgotten_by = None;
        if let Some(place) = self.members.place(from) {
            self.note_life(place, now);
            if self.members.at(place).is_voter {
                self.reach.handle_voter(&self.voters, self.identity.server, from, probe.sent_at, now);
            }
        }
        if beat.voters == self.voters.short_fingerprint() {
            self.reach.handle_age(probe.sent_at, beat.quorum_age);
        }
        if let Cause::Asked(asker, asked) = probe.cause {
            let incarnation = self.members.get(from).map(|member| member.incarnation).unwrap_or_default();
            self.send(asker, &Body::Heard(asked, from, incarnation));
        }
        self.learn_all(now, from, news, true);
        self.handle_beat(now, from, beat, true);
    }

    /// What goes with every probe and answer.
    fn handle_beat(&mut self, now: Instant, from: ServerId, beat: Beat, is_answer: bool) {
        if let Some(refuted) = beat.you_failed {
            self.handle_accused(now, refuted);
        }
        if is_answer && beat.claims == self.claims_digest() && beat.quorum_age < Beat::AGE_MAX {
            self.standing.matched |= self.standing.held_since.is_some();
        }
        self.compare(now, from, (beat.members, beat.claims));
    }
}

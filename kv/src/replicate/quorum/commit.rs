//! What the stream of this server says of terms and members; and, on a primary, what is committed and which replies wait for that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::{Phase, Replication, Stream};
use super::planted::{self, Planted};
use super::{MEMBERS_MAX, Members, Term};
use crate::client::Farewell;
use crate::client::card::Card;
use crate::cluster::map::{Map, Name};
use crate::engine::Engine;
use crate::time::Now;

/// Whether clients are served, as far as the mode is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Gate {
    /// This server is no primary in this mode: nothing waits.
    Off,
    /// Replies wait until what they tell of is committed.
    Open,
    /// Too few members are there: nothing could be committed.
    Short,
}

/// Where the data of this server lack nothing that it ever acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blank {
    /// Here and now.
    Never,
    /// From this position of the primary's history on, which is the one that is followed.
    Until(u64),
    /// Nobody has said so yet.
    Unknown,
}

/// A primary's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Serving {
    term: Term,
    own: Name,
    /// Position behind the record that it began with.
    from: u64,
}

/// A reply that waits.
#[derive(Debug)]
struct Held {
    card: Arc<Card>,
    position: u64,
    since_ms: i64,
}

/// What a stream says of this mode.
#[derive(Debug)]
pub(crate) struct CommitState {
    /// That of the last record.
    term: Term,
    members: Members,
    /// Position behind the last record.
    noted_at: u64,
    blank: Blank,
    serving: Option<Serving>,
    /// The stream is that of a member whose data are taken over, and clients take this server for the primary.
    is_copying: bool,
    committed: u64,
    /// Where the last question to members begins and ends, which replies of reads wait for.
    marker: Option<(u64, u64)>,
    held: Vec<Held>,
}

impl Default for CommitState {
    fn default() -> Self {
        Self {
            term: Term::default(),
            members: Members::default(),
            noted_at: 0,
            blank: Blank::Unknown,
            serving: None,
            is_copying: false,
            committed: 0,
            marker: None,
            held: Vec::new(),
        }
    }
}

/// How far a member's log goes: by the term of its last record, then by its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// The term of the last record.
    pub term: Term,
    /// The position behind it in the stream.
    pub position: u64,
}

impl CommitState {
    /// The data are gone: others come, of which nothing is known yet.
    pub(crate) fn forget(&mut self) {
        let held = std::mem::take(&mut self.held);
        *self = Self { held, is_copying: self.is_copying, ..Self::default() };
        self.release_all();
    }

    /// Nobody is served by this server any more. Whoever waits is told nothing: it is not known whether it will hold.
    pub(crate) fn stop_serving(&mut self) {
        self.serving = None;
        self.marker = None;
        self.release_all();
    }

    fn release_all(&mut self) {
        for held in self.held.drain(..) {
            held.card.mailbox.dismiss(Farewell::Dismissed);
        }
    }
}

impl Stream {
    /// Appends a record: from here on this is the term, and these are the members.
    fn put_record(&mut self, term: Term, members: Members) {
        self.put_words(&[b"REPLCONF", b"ASHLAR-TERM", term.to_string().as_bytes(), members.to_string().as_bytes()]);
        let end = self.end;
        self.commit.note(term, members, end);
    }

    /// Nothing that was acknowledged in an earlier life is missing from here on: whatever is followed next, these data have it. A
    /// position of an earlier primary is not compared with the end of a later one's stream, so this is remembered when it is so.
    #[inline]
    pub(in crate::replicate) fn note_caught_up(&mut self) {
        if let Blank::Until(position) = self.commit.blank
            && self.end >= position
        {
            self.commit.blank = Blank::Never;
        }
    }

    /// How many members take what is appended, this one among them.
    fn is_attended(&self) -> bool {
        let Some(serving) = self.commit.serving else { return false };
        let there: BTreeSet<Name> = self
            .replicas
            .values()
            .filter(|replica| replica.phase() == Phase::Online && !replica.is_gone())
            .filter_map(|replica| replica.introduction.member)
            .chain([serving.own])
            .collect();
        self.commit.members.committed(|name| u64::from(there.contains(&name))) == 1
    }
}

impl CommitState {
    fn note(&mut self, term: Term, members: Members, at: u64) {
        (self.term, self.members, self.noted_at) = (term, members, at);
    }
}

impl Replication {
    /// Whether the stream is one of this mode: whoever follows it acknowledges at once.
    #[inline]
    pub(crate) fn is_quorum(&self) -> bool {
        self.is_quorum.load(Ordering::Relaxed)
    }

    /// Whether clients are served, as far as the mode is concerned.
    #[inline]
    pub(crate) fn gate(&self) -> Gate {
        match self.gate.load(Ordering::Acquire) {
            0 => Gate::Off,
            1 => Gate::Open,
            _ => Gate::Short,
        }
    }

    /// Position up to which replies may tell.
    #[inline]
    pub(crate) fn released(&self) -> u64 {
        self.released.load(Ordering::Acquire)
    }

    /// The term that this server serves, if it does in this mode.
    pub(crate) fn serving(&self) -> Option<Term> {
        self.stream().commit.serving.map(|serving| serving.term)
    }

    /// The term and the members that the data say, and how far they go; nothing while something may be missing that this server
    /// has acknowledged.
    pub(crate) fn extent(&self) -> (Option<Extent>, Members) {
        let stream = self.stream();
        let commit = &stream.commit;
        // A primary whose stream is its own has all of it; a replica only what was read whole. Data without a record are of no term.
        let has_term = commit.members.is_some() || planted::has(Planted::BlankAnswers);
        let is_there = (!stream.is_relay || stream.is_whole) && has_term;
        let is_whole = commit.blank == Blank::Never || planted::has(Planted::BlankAnswers);
        let extent = Extent { term: commit.term, position: stream.end };
        ((is_there && is_whole).then_some(extent), commit.members.clone())
    }

    /// The words that tell a dump of term and members, if there are any.
    pub(in crate::replicate) fn commit_words(stream: &Stream) -> Option<String> {
        let CommitState { term, members, .. } = &stream.commit;
        let term = if planted::has(Planted::DumpWithoutTerm) { Term::default() } else { *term };
        members.is_some().then(|| format!("{term} {members}"))
    }

    /// A dump said this of term and members.
    pub(crate) fn adopt_commit_state(&self, words: &str) {
        let read = words.split_once(' ').and_then(|(term, members)| Some((Term::read(term)?, Members::read(members)?)));
        let Some((term, members)) = read else { return };
        let mut stream = self.stream();
        let end = stream.end;
        stream.commit.note(term, members, end);
        self.recount(&mut stream);
    }

    /// The data have all that this server ever acknowledged, once they go this far. The primary that says so has accepted to go on
    /// from what is here, or its dump is here: only then is `position` one of the same history as the end of the data.
    pub(crate) fn catch_up_at(&self, position: u64) {
        let mut stream = self.stream();
        if stream.commit.blank != Blank::Never {
            stream.commit.blank = Blank::Until(position);
            stream.note_caught_up();
        }
    }

    /// A record came from the primary, and is behind what was relayed last. The members, if they are others now.
    pub(crate) fn note_record(&self, term: Term, members: Members) {
        let mut stream = self.stream();
        let end = stream.end;
        stream.commit.note(term, members, end);
        self.recount(&mut stream);
    }

    /// This server serves a term from now on: it has all that was committed, and the role of a primary. It is the first term of all
    /// if `is_genesis`. The stream has begun.
    pub(super) fn begin_term(&self, term: Term, own: Name, members: Members, is_genesis: bool) {
        let mut stream = self.stream();
        if is_genesis {
            stream.commit.blank = Blank::Never;
        }
        // The record's database is of no concern: the next command names its own.
        stream.database = None;
        stream.put_record(term, members);
        let from = stream.end;
        // Where the data were replaced since it last served, positions may be smaller ones than those of then.
        self.released.store(stream.commit.committed, Ordering::Release);
        stream.commit.serving = Some(Serving { term, own, from });
        stream.commit.marker = None;
        self.settle(&mut stream);
        self.review(&mut stream);
    }

    /// The data of another member are taken over, or not any more.
    pub(super) fn set_copying(&self, is_copying: bool) {
        let mut stream = self.stream();
        stream.commit.is_copying = is_copying;
        self.recount(&mut stream);
    }

    /// Another may serve now: nothing is told any more.
    pub(super) fn stop_serving(&self) {
        let mut stream = self.stream();
        stream.commit.stop_serving();
        self.recount(&mut stream);
    }

    /// Replicas came, went or acknowledged: what is committed, and whether enough are there.
    pub(in crate::replicate) fn review(&self, stream: &mut Stream) {
        self.recount(stream);
        self.commit(stream);
    }

    /// What is committed by now; whoever waits for that is told.
    fn commit(&self, stream: &mut Stream) {
        let Some(serving) = stream.commit.serving else { return };
        let acknowledged = |name: Name| {
            if name == serving.own {
                return stream.end;
            }
            let is_it = |replica: &&Arc<super::super::Replica>| replica.introduction.member == Some(name);
            // What one said whose connection was ended may have been of another history.
            let of_it = stream.replicas.values().filter(is_it).filter(|replica| !replica.is_gone());
            of_it.map(|replica| replica.acknowledged()).max().unwrap_or(0)
        };
        let committed = stream.commit.members.committed(acknowledged);
        // What an earlier term has appended is committed with this one's record, and not before.
        let is_own = committed >= serving.from || planted::has(Planted::CommitEarlierTerm);
        if !is_own || committed <= stream.commit.committed {
            return;
        }
        stream.commit.committed = committed;
        self.released.store(committed, Ordering::Release);
        stream.commit.held.retain(|held| {
            let waits = held.position > committed;
            if !waits {
                held.card.mailbox.nudge();
            }
            waits
        });
    }

    pub(in crate::replicate) fn recount(&self, stream: &mut Stream) {
        let commit = &stream.commit;
        self.is_quorum.store(commit.members.is_some(), Ordering::Relaxed);
        let is_enough = commit.members.copies() >= self.copies_min.load(Ordering::Relaxed);
        let gate = match commit.members.is_some() && !stream.is_relay {
            _ if commit.is_copying => Gate::Short,
            false => Gate::Off,
            true if is_enough && stream.is_attended() => Gate::Open,
            true => Gate::Short,
        };
        self.gate.store(gate as u8, Ordering::Release);
    }

    /// Replies to requests that came when the stream ended at `before` are to wait: up to which position. Nothing if they need not.
    pub(crate) fn hold(&self, card: &Arc<Card>, before: u64, now_ms: i64) -> Option<u64> {
        let mut stream = self.stream();
        if !stream.commit.members.is_some() || stream.is_relay || planted::has(Planted::NothingWaits) {
            return None;
        }
        if stream.end == before && stream.commit.serving.is_some() && !planted::has(Planted::ReadsDoNotWait) {
            self.mark(&mut stream);
        }
        // Who serves no term does not know what holds: it is told later that it was not told in time.
        let position = if stream.commit.serving.is_some() { stream.end } else { u64::MAX };
        stream.commit.held.push(Held { card: Arc::clone(card), position, since_ms: now_ms });
        self.commit(&mut stream);
        (stream.commit.committed < position).then_some(position)
    }

    /// Appends a question that members answer, unless one is there that none of them has got yet.
    fn mark(&self, stream: &mut Stream) {
        let is_fresh = stream.commit.marker.is_some_and(|(begin, end)| {
            end == stream.end && stream.replicas.values().all(|replica| !replica.has_got(begin))
        });
        if is_fresh {
            return;
        }
        let begin = stream.end;
        stream.put_words(&[b"REPLCONF", b"GETACK", b"*"]);
        let end = stream.end;
        stream.asked_at = end;
        stream.commit.marker = Some((begin, end));
        self.settle(stream);
    }

    /// A replica has acknowledged.
    pub(crate) fn review_now(&self) {
        if self.is_quorum() {
            self.review(&mut self.stream());
        }
    }

    /// How it is.
    fn quorum_status(&self) -> Option<QuorumStatus> {
        let (extent, _) = self.extent();
        let stream = self.stream();
        let CommitState { term, members, committed, serving, .. } = &stream.commit;
        members.is_some().then(|| QuorumStatus {
            term: *term,
            members: members.clone(),
            committed: *committed,
            is_serving: serving.is_some(),
            is_attended: stream.is_attended(),
            is_blank: extent.is_none(),
        })
    }
}

/// How a server is in a shard of this mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumStatus {
    /// The term of its data.
    pub term: Term,
    /// Who has a copy, as its data say.
    pub members: Members,
    /// Position up to which a majority has the stream; only a primary knows.
    pub committed: u64,
    /// It serves that term.
    pub is_serving: bool,
    /// As primary it has a majority of the members at hand.
    pub is_attended: bool,
    /// It may lack what it has acknowledged in an earlier life.
    pub is_blank: bool,
}

impl Engine {
    /// How this server is in its shard; nothing while its data are none of this mode.
    #[must_use]
    pub fn quorum_status(&self) -> Option<QuorumStatus> {
        self.replication.quorum_status()
    }

    /// Whether replies wait for a majority.
    pub(crate) fn has_held_replies(&self) -> bool {
        self.replication.gate() != Gate::Off && !self.replication.stream().commit.held.is_empty()
    }

    /// Goes on with what a primary does in this mode: members come and go, and replies that wait for too long end their
    /// connections. To be called with every tick.
    pub(crate) fn tend_quorum(&self, now: Now) {
        if self.replication.gate() == Gate::Off {
            return;
        }
        let Some(map) = self.map() else { return };
        let patience_ms = self.settings().replication.quorum_timeout_ms;
        let mut stream = self.replication.stream();
        self.replication.review(&mut stream);
        stream.commit.held.retain(|held| {
            let is_late = now.unix_ms().saturating_sub(held.since_ms) > patience_ms;
            if is_late {
                held.card.mailbox.dismiss(Farewell::Dismissed);
            }
            !is_late
        });
        let Some(serving) = stream.commit.serving else { return };
        if stream.commit.committed < stream.commit.noted_at {
            return;
        }
        let Some(members) = next_members(&stream, &map) else { return };
        tracing::info!(term = %serving.term, %members, "the members of the shard change");
        stream.put_record(serving.term, members.clone());
        self.replication.settle(&mut stream);
        self.replication.review(&mut stream);
        drop(stream);
        self.promises.note_members(map.own().shard, &members);
    }
}

/// What the members are to be next, if they are to change. What they are is committed.
fn next_members(stream: &Stream, map: &Map) -> Option<Members> {
    let members = &stream.commit.members;
    if let Some(settled) = members.settled() {
        return Some(settled);
    }
    let belongs = |name: Name| map.node(name).is_some_and(|node| node.shard == map.own().shard);
    let all = members.all();
    if let Some(gone) = all.iter().find(|name| !belongs(**name)) {
        let left: Vec<Name> = all.iter().copied().filter(|name| name != gone).collect();
        return (!left.is_empty()).then(|| members.towards(left));
    }
    if all.len() >= MEMBERS_MAX {
        return None;
    }
    let is_there = |replica: &&Arc<super::super::Replica>| replica.phase() == Phase::Online && !replica.is_gone();
    let newcomers = stream.replicas.values().filter(is_there);
    let is_near = |replica: &&Arc<super::super::Replica>| replica.acknowledged() >= stream.commit.noted_at;
    let newcomer = newcomers.filter(is_near).filter_map(|replica| replica.introduction.member);
    let mut newcomer = newcomer.chain(stream.commit.serving.map(|serving| serving.own));
    let newcomer = newcomer.find(|name| !members.has(*name) && belongs(*name))?;
    Some(members.towards(all.into_iter().chain([newcomer]).collect()))
}

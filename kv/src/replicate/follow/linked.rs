//! One connection to the primary, from its beginning to its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::apply::{Applied, Applier, is_record};
use super::talk::{Heard, Mandate, Opening, Talk};
use super::units::{Unit, Units};
use super::{Fault, LATER_SPAN, READ_SPAN, READ_SPAN_AT_REST, Step};
use crate::client::card::Card;
use crate::client::{Link, Mailbox};
use crate::cluster::map::Name;
use crate::cluster::migration::Copies;
use crate::engine::Engine;
use crate::identity::name_by_chance;
use crate::persist::snapshot::Purpose;
use crate::rdb::{ImportOptions, Loader};
use crate::replicate::relay::Point;
use crate::replicate::role::{LinkState, WholeCopy};
use crate::resp::number::Decimal;
use crate::settings::{DisklessLoad, Settings};
use crate::time::Now;

/// How often the primary is told what we have.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether the data are kept aside.
const ASIDE_SPAN: Duration = Duration::from_millis(20);
/// What others may leave for the primary, bytes: nobody has a reason to.
const MAIL_BYTES_MAX: usize = 64 << 10;
/// Positions of the log that are remembered with those of the stream.
const MARKS_MAX: usize = 1_024;

/// What is done with what comes.
#[derive(Debug)]
enum Stage {
    /// Both sides introduce themselves.
    Opening,
    /// A dump is kept, or awaited.
    Keeping,
    /// What was kept is to be read.
    Kept,
    /// A dump is read.
    Loading(Box<Loader>),
    /// The stream is applied.
    Following(Box<Applier>),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Linked {
    turn: u64,
    talk: Talk,
    stage: Stage,
    /// The point that the dump is of; the primary may not say.
    point: Option<(String, u64)>,
    dump_bytes: Option<u64>,
    /// What of the dump goes to the file next.
    kept: Vec<u8>,
    units: Units,
    /// What could not be done yet.
    pending: Option<Unit>,
    /// When something last came.
    heard: Instant,
    /// When we last said that we are there.
    told: Instant,
    wants_ack: bool,
    /// The primary knows no positions.
    is_old: bool,
    log: LogMarks,
    link: Option<Link>,
    card: Option<Arc<Card>>,
    /// Whose term it is, in which life, and where the stream ended when we came; nothing for a primary without terms.
    mandate: Option<((Name, u64), u64)>,
    /// The primary has said that it contains the data here.
    is_contained: bool,
}

impl Linked {
    pub(super) fn new(opening: Opening, link: Link, turn: u64, now: Now) -> Self {
        Self {
            turn,
            talk: Talk::new(opening),
            stage: Stage::Opening,
            point: None,
            dump_bytes: None,
            kept: Vec::new(),
            units: Units::default(),
            pending: None,
            heard: now.instant,
            told: now.instant,
            wants_ack: false,
            is_old: false,
            log: LogMarks::default(),
            link: Some(link),
            card: None,
            mandate: None,
            is_contained: false,
        }
    }

    /// Whether anything is taken from a primary but this life of this node. One that has not said who it is will be asked.
    pub(super) fn is_of_other(&self, holder: (Name, u64)) -> bool {
        let is_asked = !matches!(self.stage, Stage::Opening);
        self.mandate.map_or(is_asked, |(other, _)| other != holder)
    }

    /// Whether what the primary does is done here too.
    pub(super) fn is_following(&self) -> bool {
        matches!(self.stage, Stage::Following(_))
    }

    /// What to do next.
    pub(super) fn next_step(&mut self, engine: &Engine, settings: &Settings, now: Now) -> Result<Step, Fault> {
        if self.card.as_ref().is_some_and(|card| card.mailbox.take().farewell.is_some()) {
            return Err(Fault::new("somebody ended it"));
        }
        let silent = now.instant.saturating_since(self.heard);
        if silent.as_secs() > settings.replication.timeout_s.unsigned_abs() && !matches!(self.stage, Stage::Kept) {
            return Err(Fault::new("nothing has come for longer than `repl-timeout`"));
        }
        if self.pending.is_some() {
            self.apply(engine, now)?;
        }
        self.say(engine, now);
        let output = self.talk.take_output();
        if !output.is_empty() {
            return Ok(Step::Send(output));
        }
        if !self.kept.is_empty() {
            return Ok(Step::Keep(std::mem::take(&mut self.kept)));
        }
        if let Some(why) = engine.aside.take_failure() {
            return Err(Fault::text(format!(
                "the data here may have writes that the primary lacks, and cannot be kept aside ({why}): make room, or set \
                 `diverged-copies-max 0` to give them up"
            )));
        }
        if matches!(self.stage, Stage::Kept) && engine.aside.is_pending() {
            self.heard = now.instant;
            return Ok(Step::Rest(ASIDE_SPAN));
        }
        if matches!(self.stage, Stage::Kept) || self.is_reading_file() {
            return Ok(Step::Load);
        }
        let read = if engine.is_resting() && self.is_following() { READ_SPAN_AT_REST } else { READ_SPAN };
        Ok(if self.pending.is_some() { Step::Rest(LATER_SPAN) } else { Step::Receive(read) })
    }

    /// Tells the primary what we have, or that we are there.
    fn say(&mut self, engine: &Engine, now: Now) {
        let is_due = self.wants_ack || now.instant.saturating_since(self.told) >= ACK_EVERY;
        if !is_due || matches!(self.stage, Stage::Opening) {
            return;
        }
        (self.told, self.wants_ack) = (now.instant, false);
        if !self.is_following() {
            self.talk.say_alive();
        } else if !self.is_old {
            let number = |position: u64| Decimal::new(i64::try_from(position).unwrap_or(i64::MAX));
            let position = number(engine.replication.end());
            match self.log.durable(engine) {
                Some(durable) => {
                    let durable = number(durable);
                    self.talk.say(&[b"REPLCONF", b"ACK", position.as_bytes(), b"FACK", durable.as_bytes()]);
                }
                None => self.talk.say(&[b"REPLCONF", b"ACK", position.as_bytes()]),
            }
        }
    }

    pub(super) fn handle_bytes(&mut self, engine: &Engine, bytes: &[u8], now: Now) -> Result<(), Fault> {
        self.heard = now.instant;
        engine.replication.received_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Stage::Following(applier) = &mut self.stage {
            let client = applier.client();
            client.traffic.bytes_in += bytes.len() as u64;
            client.traffic.seen_ms = now.unix_ms();
        }
        self.talk.feed(bytes);
        self.listen(engine, now)?;
        let now_s = now.seconds();
        let read = engine.replication.end() + self.units.waiting() as u64;
        engine.role.note(self.turn, |view| {
            (view.heard_s, view.read) = (now_s, read);
            if let Some(copy) = view.copy.as_mut().filter(|_| view.state == LinkState::Connected) {
                copy.heard = now.instant;
            }
        });
        Ok(())
    }

    /// Looks at all that came, unless a file is to be read first.
    fn listen(&mut self, engine: &Engine, now: Now) -> Result<(), Fault> {
        while !matches!(self.stage, Stage::Kept) && !self.is_reading_file() {
            let Some(heard) = self.talk.next()? else { break };
            self.handle(engine, heard, now)?;
        }
        Ok(())
    }

    fn handle(&mut self, engine: &Engine, heard: Heard, now: Now) -> Result<(), Fault> {
        match heard {
            Heard::Mandate(mandate) => self.handle_mandate(engine, mandate)?,
            Heard::NoMandate(line) => check_unbound(engine, &line)?,
            Heard::Contains => self.is_contained = true,
            Heard::Continue(name) => {
                engine.failover_done(now);
                if engine.replication.go_on(self.turn, name.as_deref(), &engine.identity) {
                    tracing::info!("the primary goes on where we were");
                    if let Some((_, end)) = self.mandate {
                        engine.replication.catch_up_at(end);
                    }
                    self.begin_following(engine, now);
                }
            }
            Heard::Full(point) => {
                engine.failover_done(now);
                let (history, offset) = point.as_ref().map(|(name, offset)| (name.as_str(), *offset)).unzip();
                tracing::info!(history, offset, "the primary sends a dump");
                engine.consider_aside(self.is_contained);
                (self.is_old, self.point, self.stage) = (point.is_none(), point, Stage::Keeping);
                engine.role.note(self.turn, |view| view.state = LinkState::Sync);
            }
            Heard::Size(bytes) => {
                self.dump_bytes = bytes;
                engine.role.note(self.turn, |view| view.dump = (bytes.unwrap_or(0), 0));
                // What is kept aside must be on files first: the dump is kept in one meanwhile.
                let is_free = !engine.aside.is_pending();
                if is_free && engine.settings().replication.diskless_load != DisklessLoad::Disabled {
                    self.begin_load(engine, now)?;
                }
            }
            Heard::Dump(piece) => {
                engine.role.note(self.turn, |view| view.dump.1 += piece.len() as u64);
                match &mut self.stage {
                    Stage::Loading(_) => self.load(engine, &piece, now)?,
                    _ => self.kept.extend_from_slice(&piece),
                }
            }
            Heard::DumpEnd => match self.stage {
                Stage::Loading(_) => self.end_load(engine, now)?,
                _ => self.stage = Stage::Kept,
            },
            Heard::Stream(bytes) => {
                self.units.feed(&bytes);
                self.apply(engine, now)?;
            }
        }
        Ok(())
    }

    /// The primary has said which term it serves: no other is served from now on.
    fn handle_mandate(&mut self, engine: &Engine, mandate: Mandate) -> Result<(), Fault> {
        let Some(map) = engine.map() else { return Ok(()) };
        let shard = map.own().shard;
        let Mandate { term, holder, end, members } = mandate;
        let promised = engine.promises.promise(shard, term, holder);
        promised.map_err(|bound| Fault::text(format!("it serves term {term}, and {} was promised", bound.0)))?;
        engine.promises.note_members(shard, &members);
        self.mandate = Some(((holder, term.life), end));
        Ok(())
    }

    /// The data name a term. A primary that served none when this link was made has said neither that term nor how far its stream goes:
    /// it is asked again, since until it has this node's data count for no majority, and are acknowledged once a second only.
    fn check_mandate(&self, engine: &Engine) -> Result<(), Fault> {
        let is_told = self.mandate.is_some() || engine.cluster().is_none();
        if is_told { Ok(()) } else { Err(Fault::new("the primary serves terms by now: it is to say which")) }
    }

    /// A piece of the file; an empty one at its end.
    pub(super) fn handle_kept(&mut self, engine: &Engine, bytes: &[u8], now: Now) -> Result<(), Fault> {
        if matches!(self.stage, Stage::Kept) {
            self.begin_load(engine, now)?;
        }
        if !bytes.is_empty() {
            return self.load(engine, bytes, now);
        }
        self.end_load(engine, now)?;
        self.listen(engine, now)
    }

    /// Whether the dump that is read comes from a file, and the primary's stream has to wait.
    fn is_reading_file(&self) -> bool {
        matches!(self.stage, Stage::Loading(_)) && self.talk.is_streaming()
    }

    /// Forgets the data: those of the dump come instead. Nobody is served until they are all there.
    fn begin_load(&mut self, engine: &Engine, now: Now) -> Result<(), Fault> {
        engine.begin_loading(now);
        if !engine.replication.forget(self.turn) {
            engine.end_loading();
            return Err(Fault::new("it is not followed any more"));
        }
        engine.role.note(self.turn, |view| view.copy = None);
        engine.aside.forget();
        engine.replication.note_torn();
        // What is being written down is not what will be there.
        engine.saves.cancel();
        engine.journal.hold();
        engine.forget_data(now);
        let options = ImportOptions { file_bytes: self.dump_bytes, keeps_expired: true, ..ImportOptions::default() };
        self.stage = Stage::Loading(Box::new(Loader::new(options)));
        Ok(())
    }

    fn load(&mut self, engine: &Engine, bytes: &[u8], now: Now) -> Result<(), Fault> {
        let Stage::Loading(loader) = &mut self.stage else { return Ok(()) };
        let loaded = loader.load(bytes, engine, &engine.settings(), now, &mut &engine.keyspace);
        loaded.map_err(|error| Fault::text(format!("its dump cannot be read: {error}")))
    }

    fn end_load(&mut self, engine: &Engine, now: Now) -> Result<(), Fault> {
        let Stage::Loading(loader) = std::mem::replace(&mut self.stage, Stage::Keeping) else { return Ok(()) };
        let imported = match loader.finish() {
            Ok(imported) => imported,
            Err(error) => {
                give_up_load(engine, now);
                return Err(Fault::text(format!("its dump cannot be read: {error}")));
            }
        };
        engine.migration.copies.replace(Copies::read(&imported.copies));
        let chance = || name_by_chance([engine.draw(), engine.draw()]);
        let (history, position) = self.point.take().unwrap_or_else(|| (chance(), 0));
        let database = imported.point.as_ref().and_then(|point| point.database);
        let is_ours = engine.replication.adopt(self.turn, Point { history, position, database }, &engine.identity);
        if let Some((_, end)) = self.mandate.filter(|_| is_ours) {
            engine.replication.adopt_commit_state(imported.commit.as_deref().unwrap_or_default());
            engine.replication.catch_up_at(end);
        }
        engine.end_loading();
        if is_ours {
            tracing::info!(keys = imported.keys, "the primary's dump was read");
            if engine.journal.has_log() {
                // The log does not know of what is there now.
                self.log.await_base(engine);
                engine.saves.want(Purpose::LogBase);
            }
            self.begin_following(engine, now);
        }
        if imported.commit.is_some() { self.check_mandate(engine) } else { Ok(()) }
    }

    /// What the primary does is done here from now on.
    fn begin_following(&mut self, engine: &Engine, now: Now) {
        let database = engine.replication.database();
        let mailbox = Arc::new(Mailbox::new(Box::new(|| {})));
        mailbox.set_bytes_max(MAIL_BYTES_MAX);
        let link = self.link.take().unwrap_or_else(Link::nowhere);
        let card = Arc::new(Card::new(engine.clients.next_id(), link, now.unix_ms(), mailbox));
        let applier = Applier::new(engine, Arc::clone(&card), database);
        // Where there are too many clients it is not listed.
        engine.clients.enter(&card, &engine.settings().clients).ok();
        self.card = Some(card);
        self.stage = Stage::Following(Box::new(applier));
        self.wants_ack = true;
        let (now_s, read) = (now.seconds(), engine.replication.end());
        let shard = engine.map().map(|map| map.own().shard);
        engine.note_followed_data();
        engine.role.note(self.turn, |view| {
            (view.state, view.down_since_s, view.heard_s, view.read) = (LinkState::Connected, None, now_s, read);
            view.copy = Some(WholeCopy { shard, heard: now.instant });
        });
    }

    /// Does what has come whole.
    fn apply(&mut self, engine: &Engine, now: Now) -> Result<(), Fault> {
        let Stage::Following(applier) = &mut self.stage else { return Ok(()) };
        applier.client().meter.begin(now.instant);
        let (mut has_record, mut has_work) = (false, false);
        loop {
            if self.pending.is_none() {
                self.pending = self.units.next()?;
            }
            let Some(unit) = &self.pending else { break };
            match applier.apply(engine, unit, &self.units, self.turn, now)? {
                Applied::Done => {}
                // Next time; or never, since the link ends.
                Applied::Later | Applied::Stale => break,
            }
            if matches!(unit, Unit::One) {
                let args = self.units.args();
                self.wants_ack |= args.is(0, "REPLCONF") && args.is(1, "GETACK");
                has_record |= is_record(args);
                has_work |= !args.is(0, "REPLCONF") && !args.is(0, "PING");
            } else {
                has_work = true;
            }
            self.units.done();
            self.pending = None;
        }
        // Whoever waits for a majority waits for this.
        self.wants_ack |= self.mandate.is_some();
        let client = applier.client();
        client.meter.flush(engine, engine.settings().logs.counts_latency);
        client.publish();
        self.log.note(engine);
        if has_work {
            engine.rest.end();
        }
        if has_record { self.check_mandate(engine) } else { Ok(()) }
    }

    /// The connection is gone. A dump that was being read is not there.
    pub(super) fn end(&mut self, engine: &Engine, now: Now) {
        if matches!(self.stage, Stage::Loading(_)) {
            give_up_load(engine, now);
        }
        if let Some(card) = self.card.take() {
            engine.clients.leave(card.id);
        }
        self.stage = Stage::Opening;
    }
}

/// A primary that serves no term is nothing for a member of a shard that has them.
fn check_unbound(engine: &Engine, line: &[u8]) -> Result<(), Fault> {
    let is_bound = engine
        .map()
        .and_then(|map| engine.promises.of(map.own().shard))
        .is_some_and(|promise| promise.members.is_some());
    if is_bound { Err(Fault::of_line("it serves no term, and the shard has them", line)) } else { Ok(()) }
}

/// A dump cannot be read to its end: there are no data then.
fn give_up_load(engine: &Engine, now: Now) {
    engine.forget_data(now);
    engine.end_loading();
}

/// Which position of the stream our own log has durably.
#[derive(Debug, Default)]
struct LogMarks {
    /// Positions of the log, and of the stream when the log was so long.
    marks: VecDeque<(u64, u64)>,
    durable: u64,
    /// The log must begin anew with the dump: this many bases had been taken before.
    awaits_base: Option<u64>,
}

impl LogMarks {
    /// Nothing is durable before the log has a base that has the dump.
    fn await_base(&mut self, engine: &Engine) {
        self.marks.clear();
        self.awaits_base = Some(engine.saves.get().bases.count);
    }

    /// Something was applied.
    fn note(&mut self, engine: &Engine) {
        if !engine.journal.is_on() {
            return;
        }
        let mark = (engine.journal.end(), engine.replication.end());
        let is_full = self.marks.len() >= MARKS_MAX;
        match self.marks.back_mut() {
            Some(last) if last.0 == mark.0 || is_full => *last = mark,
            _ => self.marks.push_back(mark),
        }
    }

    /// What the log has durably; nothing without a log.
    fn durable(&mut self, engine: &Engine) -> Option<u64> {
        if !engine.journal.is_on() {
            return None;
        }
        if let Some(count) = self.awaits_base {
            if engine.saves.get().bases.count <= count {
                return Some(self.durable);
            }
            self.awaits_base = None;
        }
        let position = engine.replication.durable();
        while let Some((_, stream)) = self.marks.pop_front_if(|(log, _)| *log <= position) {
            self.durable = stream;
        }
        Some(self.durable)
    }
}

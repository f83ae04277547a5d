//! Slots that leave: what the source does next, until they have left or stay.

use std::sync::Arc;
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::Step;
use super::import::number;
use super::job::{Job, Stage};
use super::link::{self, Answer, Link};
use super::tap::Walk;
use crate::cluster::map::{Health, Map};
use crate::cluster::orders::Renewal;
use crate::command::run::access;
use crate::engine::Engine;
use crate::keyspace::Lock;
use crate::rdb::Encoder;
use crate::replicate::Upstream;
use crate::time::Now;

/// How long a connection may take to be made.
const DIAL_SPAN: Duration = Duration::from_secs(5);
/// What came is looked for so long, before it is looked whether there is a reason to go on.
const LOOK: Duration = Duration::from_millis(50);
/// The same where the log is waited for.
const LOG_LOOK: Duration = Duration::from_millis(1);
/// About so much is sent before an answer is waited for.
const PIECE_BYTES: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };
/// Slots that are looked at in one step, where most have no keys.
const SLOTS_TURN: usize = 256;
/// After how long a target that said nothing to TAKE is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// For how long at least it is asked, beside the time after which a silent node has failed.
const DOUBT_MIN: Duration = Duration::from_secs(5);
const NOT_OURS: &str = "Slots are no longer owned by myself";
const LOST: &str =
    "Connection lost to target. Check CLUSTER GETSLOTMIGRATIONS on the target node for more information.";

/// What is going on.
#[derive(Debug)]
enum Phase {
    /// There is no connection.
    Begin,
    /// The target is to agree.
    Greeting,
    /// Keys are copied, and what changes follows.
    Copying(Walk),
    /// Writes are held, all was sent: until then it must have said that it has all.
    Asking(Instant),
    /// It may take the slots, and has not said whether it has.
    Granted,
    /// It has: the map will say so.
    Taken,
    /// Nobody has said: since when, when to ask next, and whether there is a connection for that.
    Doubt { since: Instant, ask_at: Instant, is_asking: bool },
    /// It has not, and what this node claims is made greater than whatever the target may have stored: why it has not.
    Renewal(String, Renewal),
}

/// A migration that is under way.
#[derive(Debug)]
pub(super) struct Export {
    pub(super) job: Arc<Job>,
    phase: Phase,
    link: Link,
    /// Position of the log behind the note that keys of the slots are copies from now on.
    noted: Option<u64>,
    /// The connection itself proves to the target who we are.
    is_proved: bool,
}

/// Who owns the slots of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Source,
    Target,
    Others,
}

fn owner_of(map: &Map, job: &Job) -> Owner {
    let owned = |name| job.slots.slots().all(|slot| map.owner(slot).is_some_and(|owner| owner.name == name));
    match () {
        () if owned(job.source) => Owner::Source,
        () if owned(job.target) => Owner::Target,
        () => Owner::Others,
    }
}

impl Export {
    pub(super) fn new(job: Arc<Job>, now: Now) -> Self {
        Self { job, phase: Phase::Begin, link: Link::new(now), noted: None, is_proved: false }
    }

    /// Whether it is not known what the target has done, or is doing.
    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Granted | Phase::Taken | Phase::Doubt { .. } | Phase::Renewal(..))
    }

    /// What to do next; nothing once it is over.
    pub(super) fn next_step(&mut self, engine: &Engine, map: &Map, now: Now) -> Option<Step> {
        let step = self.go_on(engine, map, now);
        if step.is_none() {
            engine.migration.tap.close();
            engine.migration.hold.end();
        }
        step
    }

    fn go_on(&mut self, engine: &Engine, map: &Map, now: Now) -> Option<Step> {
        if !self.job.stage().is_under_way() {
            return None;
        }
        match owner_of(map, &self.job) {
            // Who follows another now has the same slots by it, and does nothing for them.
            _ if map.own().is_replica() => return self.fail("Source node is a replica now", now),
            Owner::Source => {}
            Owner::Target if self.is_open() => {
                self.job.end(Stage::Success, "", now);
                return None;
            }
            Owner::Target | Owner::Others => return self.fail(NOT_OURS, now),
        }
        match &mut self.phase {
            Phase::Begin => self.dial(engine, map, now),
            Phase::Greeting => self.listen(engine, now),
            Phase::Copying(_) if self.link.is_owed() => self.listen(engine, now),
            Phase::Copying(walk) => {
                let copied = copy(engine, walk, now);
                let is_whole = walk.is_over();
                match copied {
                    Ok(bytes) => self.send(engine, bytes, is_whole, now),
                    Err(why) => self.fail(why, now),
                }
            }
            Phase::Asking(until) if *until <= now.instant => self.fail("Timed out before streaming completed", now),
            Phase::Asking(_) if self.noted.is_some() => Some(Step::Rest(LOG_LOOK)),
            Phase::Asking(_) | Phase::Granted => self.listen(engine, now),
            Phase::Taken => Some(Step::Rest(LOOK)),
            Phase::Doubt { .. } => self.find_out(engine, map, now),
            Phase::Renewal(..) => self.renew(engine, now),
        }
    }

    fn fail(&self, why: &str, now: Now) -> Option<Step> {
        self.job.end(Stage::Failed, why, now);
        None
    }

    fn dial(&mut self, engine: &Engine, map: &Map, now: Now) -> Option<Step> {
        let Some(target) = map.node(self.job.target) else {
            return self.fail("Unable to connect to target node: target node not found", now);
        };
        let address = || Upstream::Address { host: target.place.host.clone(), port: target.place.port };
        let target = engine.network().map_or_else(address, |network| network.way_to(target));
        self.is_proved = target.proves_us();
        Some(Step::Dial { target, span: DIAL_SPAN })
    }

    /// There is a connection: what is said first.
    pub(super) fn handle_connected(&mut self, engine: &Engine, now: Now) -> Vec<u8> {
        let mut bytes = Vec::new();
        let answers = if self.is_proved { 0 } else { link::introduce(engine, &mut bytes) };
        self.link = Link::new(now);
        self.link.ask(answers + 1, now);
        if let Phase::Doubt { is_asking, .. } = &mut self.phase {
            *is_asking = true;
            link::describe("STATUS", &self.job, false, &mut bytes);
        } else {
            self.phase = Phase::Greeting;
            self.job.enter(if answers > 0 { Stage::Authenticating } else { Stage::Establishing }, now);
            link::describe("ESTABLISH", &self.job, true, &mut bytes);
        }
        bytes
    }

    /// The connection is gone, or was not made.
    pub(super) fn handle_broken(&mut self, why: &str, now: Now) {
        match &mut self.phase {
            Phase::Begin => drop(self.fail(&format!("Unable to connect to target node: {why}"), now)),
            Phase::Granted => self.doubt(now),
            Phase::Doubt { ask_at, is_asking, .. } => {
                (*ask_at, *is_asking) = (now.instant + ASK_AGAIN, false);
            }
            Phase::Taken | Phase::Renewal(..) => {}
            Phase::Greeting | Phase::Copying(_) | Phase::Asking(_) => drop(self.fail(LOST, now)),
        }
    }

    /// Nobody knows whether the target takes the slots.
    fn doubt(&mut self, now: Now) {
        tracing::warn!(name = %self.job.name, "the target does not say whether it has taken slots: writes to them wait");
        self.phase = Phase::Doubt { since: now.instant, ask_at: now.instant, is_asking: false };
    }

    /// Waits for an answer.
    fn listen(&mut self, engine: &Engine, now: Now) -> Option<Step> {
        let silence_max = Duration::from_secs(engine.settings().replication.timeout_s.unsigned_abs());
        if self.link.is_silent(silence_max, now) {
            if matches!(self.phase, Phase::Granted) {
                self.doubt(now);
                return Some(Step::HangUp);
            }
            return self.fail("Timed out after too long with no interaction", now);
        }
        Some(Step::Receive(LOOK))
    }

    /// These bytes came.
    pub(super) fn handle_bytes(&mut self, engine: &Engine, bytes: &[u8], now: Now) {
        self.job.note_heard(now);
        match self.link.handle_bytes(bytes, now) {
            Ok(answers) => answers.iter().for_each(|answer| self.handle_answer(engine, answer, now)),
            Err(why) if !self.is_open() => drop(self.fail(why, now)),
            // What a connection says that cannot be read is worth as much as one that is gone.
            Err(why) => self.handle_broken(why, now),
        }
    }

    fn handle_answer(&mut self, engine: &Engine, answer: &Answer, now: Now) {
        let Answer { text, is_refusal } = answer;
        match &mut self.phase {
            Phase::Greeting if *is_refusal => {
                drop(self.fail(&format!("Received error during handshake to target: -{text}"), now));
            }
            Phase::Greeting if self.link.owed() > 0 => drop(self.job.enter(Stage::Establishing, now)),
            Phase::Greeting => self.begin_copy(engine, now),
            Phase::Copying(_) | Phase::Asking(_) if *is_refusal => {
                drop(self.fail(&format!("The target has refused: -{text}"), now));
            }
            Phase::Granted if *is_refusal => {
                self.phase = Phase::Renewal(format!("The target has refused: -{text}"), Renewal::default());
            }
            Phase::Granted => self.phase = Phase::Taken,
            Phase::Doubt { ask_at, .. } if *is_refusal => *ask_at = now.instant + ASK_AGAIN,
            Phase::Doubt { .. } if self.link.owed() > 0 => {}
            Phase::Doubt { ask_at, .. } => match text.as_str() {
                "taken" => self.phase = Phase::Taken,
                "never" => {
                    self.phase = Phase::Renewal("The target has not taken the slots".to_owned(), Renewal::default());
                }
                _ => *ask_at = now.instant + ASK_AGAIN,
            },
            Phase::Begin | Phase::Copying(_) | Phase::Asking(_) | Phase::Taken | Phase::Renewal(..) => {}
        }
    }

    fn begin_copy(&mut self, engine: &Engine, now: Now) {
        let settings = engine.settings();
        let encoder = Encoder::new(settings.compresses, settings.list_fill);
        engine.migration.tap.open(encoder, settings.clients.output.replica.hard_bytes);
        self.job.enter(Stage::Copying, now);
        self.phase = Phase::Copying(Walk::new(&self.job.slots));
    }

    /// Sends a piece. If nothing is left to copy and little was written meanwhile, writes are held and the rest is sent with it.
    fn send(&mut self, engine: &Engine, mut bytes: Vec<u8>, is_whole: bool, now: Now) -> Option<Step> {
        self.job.note_left(bytes.len() as u64);
        if !is_whole {
            link::say("ACK", &mut bytes);
            self.link.ask(1, now);
            return Some(Step::Send(bytes));
        }
        if self.job.stage() == Stage::Copying {
            self.job.enter(Stage::Streaming, now);
        } else if may_hold(engine, bytes.len()) {
            self.job.enter(Stage::Pausing, now);
            return self.hold(engine, bytes, now);
        }
        link::say("ACK", &mut bytes);
        self.link.ask(1, now);
        Some(Step::Send(bytes))
    }

    fn hold(&mut self, engine: &Engine, mut bytes: Vec<u8>, now: Now) -> Option<Step> {
        if engine.replication.is_quorum() {
            return self.fail("The source's writes are acknowledged by a majority now", now);
        }
        engine.migration.hold.begin(&self.job.slots);
        // Who was let through before has its keys locked until it is done.
        let clock = access(&engine.settings(), now);
        drop(engine.keyspace.lock(Lock::Everything, 0, now.unix_ms(), clock));
        match engine.migration.tap.take() {
            Ok(rest) => bytes.extend(rest),
            Err(why) => return self.fail(why, now),
        }
        link::say("READY", &mut bytes);
        self.link.ask(1, now);
        self.job.enter(Stage::Paused, now);
        let span = Duration::from_millis(number(engine, b"cluster-manual-failover-timeout"));
        self.phase = Phase::Asking(now.instant + span);
        Some(Step::Send(bytes))
    }

    /// The target has all: it may take the slots, unless a client has called it off. What is said then.
    pub(super) fn grant(&mut self, engine: &Engine, now: Now) -> Option<Vec<u8>> {
        let is_due = matches!(self.phase, Phase::Asking(until) if now.instant < until) && !self.link.is_owed();
        if !is_due || !self.job.stage().is_under_way() {
            return None;
        }
        let noted = *self.noted.get_or_insert_with(|| {
            engine.note_copies(&self.job.slots, true, now);
            engine.journal.end()
        });
        // A source that starts again knows from its log that what it has are copies.
        if !engine.journal.write_out(noted, engine.settings().log_sync) {
            return None;
        }
        if !self.job.enter(Stage::Granted, now) {
            return None;
        }
        self.phase = Phase::Granted;
        let mut bytes = Vec::new();
        link::say("TAKE", &mut bytes);
        self.link.ask(1, now);
        Some(bytes)
    }

    /// Asks the target, or, if that leads to nothing, renews what this node claims.
    fn find_out(&mut self, engine: &Engine, map: &Map, now: Now) -> Option<Step> {
        let Phase::Doubt { since, ask_at, is_asking } = &mut self.phase else { return Some(Step::Rest(LOOK)) };
        let span = Duration::from_millis(number(engine, b"cluster-node-timeout")) + DOUBT_MIN;
        let target = map.node(self.job.target);
        let is_lost = target.is_none_or(|target| target.health == Health::Failed);
        if is_lost || now.instant.saturating_since(*since) > span {
            self.phase =
                Phase::Renewal("The target did not say whether it has taken the slots".to_owned(), Renewal::default());
            return Some(Step::HangUp);
        }
        if *is_asking && self.link.is_owed() {
            if self.link.is_silent(DIAL_SPAN, now) {
                (*ask_at, *is_asking) = (now.instant + ASK_AGAIN, false);
                return Some(Step::HangUp);
            }
            return Some(Step::Receive(LOOK));
        }
        if now.instant < *ask_at {
            return Some(Step::Rest(LOOK));
        }
        if std::mem::take(is_asking) { Some(Step::HangUp) } else { self.dial(engine, map, now) }
    }

    /// Claims again what this node has, in a greater epoch than anything that the target may have stored.
    fn renew(&mut self, engine: &Engine, now: Now) -> Option<Step> {
        let cluster = engine.cluster().expect("a migration belongs to a cluster");
        let Phase::Renewal(why, renewal) = &mut self.phase else { return Some(Step::Rest(LOOK)) };
        match renewal.poll(cluster) {
            None => Some(Step::Rest(LOOK)),
            Some(Ok(())) if owner_of(&cluster.map(), &self.job) == Owner::Source => {
                let why = why.clone();
                self.fail(&why, now)
            }
            Some(Ok(())) => Some(Step::Rest(LOOK)),
            Some(Err(refusal)) => {
                tracing::warn!(refusal, "slots that may have been taken cannot be claimed anew yet");
                Some(Step::Rest(ASK_AGAIN))
            }
        }
    }
}

/// Whether so little is left that writes can be held for it.
fn may_hold(engine: &Engine, left: usize) -> bool {
    let limit = engine.migration_left_max();
    // What was written during one exchange is always left.
    limit.is_none_or(|limit| left as u64 <= limit.max(PIECE_BYTES as u64))
}

/// Copies a piece, and takes what has come to be sent.
fn copy(engine: &Engine, walk: &mut Walk, now: Now) -> Result<Vec<u8>, &'static str> {
    let (tap, settings) = (&engine.migration.tap, engine.settings());
    let clock = access(&settings, now);
    for _ in 0..SLOTS_TURN {
        if walk.is_over() || tap.waiting() >= PIECE_BYTES {
            break;
        }
        // The time has not begun: nothing has expired that is not gone.
        let mut keys = engine.keyspace.lock(Lock::Slots(&[walk.slot()]), 0, 0, clock);
        if let Some(flow) = &mut *tap.flow() {
            walk.step(flow, &mut keys);
        }
    }
    tap.take()
}

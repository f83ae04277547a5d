//! The task that runs one engine's part in its cluster: does what the controller assigns, and reports how the engine is.
//!
//! An assignment may take as long as a slow script holds keys, and a promise one sync of a drive: so the task has a thread of its own.
//! A primary of a shard whose writes need a majority first takes the shard over: it asks the members, all at the same time, and looks at
//! their answers here, beside everything else that comes. So two candidates that ask each other never wait for each other.

use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::Arc;

use ashlar_grid::seam::BoxFuture;
use ashlar_kv::cluster::map::{Map, Name};
use ashlar_kv::replicate::Upstream;
use ashlar_kv::replicate::quorum::{PromiseAnswer, Round, TakeOver};
use ashlar_kv::{Engine, Now};
use ashlar_wire::time::Instant;

use super::assignment::{Assignment, EngineInfo, Report, shard_name};
use super::host::EngineHost;
use super::mailboxes::{Delivery, EngineMailboxes};
use super::planted::{self, Planted};

/// How often an engine reports that nothing calls for a report. A replica's position reaches the other members so late.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// The same while the engine rests. Its first work is reported at once.
const REPORT_AT_REST: Duration = Duration::from_secs(1);
/// The same while a replica takes over by agreement: a client waits for how far the data go.
const REPORT_CLOSELY: Duration = Duration::from_millis(5);
/// Pause after an attempt to take a shard over that too few members have answered.
const RETRY: Duration = Duration::from_millis(20);
/// Writes are held no longer than this for a replica that takes over.
const PAUSE_MAX: Duration = Duration::from_secs(6);
/// Messages of other nodes are taken for so long after the last subscriber has left: a client that subscribes again misses none.
const LISTENS_ON: Duration = Duration::from_secs(60);
/// How often it is written down how far a replica's data go.
const ORIGIN_EVERY: Duration = Duration::from_secs(1);

/// One engine of a server, as the task knows it at its start.
#[derive(Debug, Clone)]
pub struct EngineTask {
    /// The server's mailboxes.
    pub mailboxes: Arc<EngineMailboxes>,
    /// Which of the server's engines this is.
    pub number: usize,
    /// Its identity, as it was remembered.
    pub info: EngineInfo,
    /// Which life of the server this is.
    pub life: u64,
}

impl EngineTask {
    /// Tells the controller of the engine, before the server meets others: they never hear of an engine without its ports.
    pub fn introduce(&self, engine: &Engine, now: Now) {
        self.mailboxes.report(self.number, &Doing::new(&self.info, now).report(engine, now));
    }

    /// Runs the engine's part in the cluster until the mailboxes are closed.
    pub async fn run(self, engine: Arc<Engine>, host: Arc<dyn EngineHost>) {
        let mut doing = Doing::new(&self.info, host.now());
        loop {
            doing.begin_attempt(&engine, &self, host.now());
            let mut timer = host.sleep(doing.span(&engine, host.now()));
            match poll_fn(|cx| self.poll_next(&mut doing, &engine, &mut timer, cx)).await {
                Next::Delivery(delivery) => {
                    if self.take(*delivery, &mut doing, &engine, &*host) {
                        return;
                    }
                }
                Next::Answer(member, answer) => doing.handle_answer(&engine, member, answer, host.now()),
                Next::Time => {}
            }
            let now = host.now();
            self.mailboxes.report(self.number, &doing.report(&engine, now));
            doing.note_origin(&engine, now);
        }
    }

    fn poll_next(
        &self,
        doing: &mut Doing,
        engine: &Engine,
        timer: &mut BoxFuture<()>,
        cx: &mut Context<'_>,
    ) -> Poll<Next> {
        if let Poll::Ready(delivery) = self.mailboxes.poll_delivery(self.number, cx) {
            return Poll::Ready(Next::Delivery(Box::new(delivery)));
        }
        if let Poll::Ready((member, answer)) = doing.poll_answer(cx) {
            return Poll::Ready(Next::Answer(member, answer));
        }
        if engine.poll_report_wanted(cx).is_ready() {
            return Poll::Ready(Next::Time);
        }
        timer.as_mut().poll(cx).map(|()| Next::Time)
    }

    /// Does what has come. Says whether it was the last.
    fn take(&self, delivery: Delivery, doing: &mut Doing, engine: &Engine, host: &dyn EngineHost) -> bool {
        let Delivery { assignment, outcomes, promises, is_over } = delivery;
        for pending in promises {
            if planted::has(Planted::PromiseUnkept) {
                pending.answer(PromiseAnswer::Promised(None));
                continue;
            }
            let answer = engine.answer_promise(pending.request(), host.now());
            pending.answer(answer);
        }
        let is_last = is_over && assignment.is_none();
        if let Some((assignment, answers)) = assignment {
            doing.take_up(engine, *assignment, host);
            // What needs no majority is served before clients are told that their order is done.
            doing.begin_attempt(engine, self, host.now());
            answers.done(&self.mailboxes);
        }
        for (ticket, outcome) in outcomes {
            engine.finish_order(ticket, &outcome, host.now());
        }
        is_last
    }
}

/// What the task does next.
enum Next {
    Delivery(Box<Delivery>),
    /// A member has answered, or has not in time.
    Answer(Name, Option<PromiseAnswer>),
    Time,
}

/// A member that is asked.
type Asking = Pin<Box<dyn Future<Output = (Name, Option<PromiseAnswer>)> + Send>>;

/// A shard that is to be served once it was taken over.
struct Attempt {
    assignment: Assignment,
    /// The attempt under way, and the members that have not answered.
    round: Option<(Round, Vec<Asking>)>,
    /// When the next attempt begins.
    again_at: Instant,
}

/// What an engine does now.
struct Doing {
    info: EngineInfo,
    map: Option<Map>,
    is_paused: bool,
    is_awaited: bool,
    is_successor: bool,
    purges: u64,
    /// Until when messages are wanted although nobody may subscribe.
    listens_until: Instant,
    attempt: Option<Attempt>,
    /// When it is written down next how far a replica's data go.
    origin_at: Instant,
}

impl Doing {
    fn new(info: &EngineInfo, now: Now) -> Self {
        Self {
            info: info.clone(),
            map: None,
            is_paused: false,
            is_awaited: false,
            is_successor: false,
            purges: 0,
            listens_until: now.instant + LISTENS_ON,
            attempt: None,
            origin_at: Instant::ORIGIN,
        }
    }

    /// How long nothing may be looked at.
    fn span(&self, engine: &Engine, now: Now) -> Duration {
        let report = match self.is_paused || self.is_awaited {
            true => REPORT_CLOSELY,
            false if engine.is_resting() => REPORT_AT_REST,
            false => REPORT_EVERY,
        };
        match &self.attempt {
            Some(Attempt { round: None, again_at, .. }) => again_at.saturating_since(now.instant).min(report),
            _ => report,
        }
    }

    /// Begins an attempt to serve what was assigned last, if the shard has to be taken over first and no attempt is under way.
    fn begin_attempt(&mut self, engine: &Engine, task: &EngineTask, now: Now) {
        if self.attempt.is_none() {
            let assignment = self.present(engine);
            self.attempt = assignment.map(|assignment| Attempt { assignment, round: None, again_at: Instant::ORIGIN });
        }
        let Some(attempt) = self.attempt.as_mut() else { return };
        if attempt.round.is_some() || now.instant < attempt.again_at {
            return;
        }
        let life = if planted::has(Planted::OneTermForAllLives) { 1 } else { task.life };
        match engine.begin_take_over(&attempt.assignment.map, life, now) {
            Ok(round) => {
                let asking = round.asked().iter().map(|member| -> Asking {
                    let (member, asked) = (*member, task.mailboxes.call_promise(round.request(*member)));
                    Box::pin(async move { (member, asked.await) })
                });
                let asking: Vec<Asking> = asking.collect();
                let is_asking = !asking.is_empty();
                attempt.round = Some((round, asking));
                if !is_asking {
                    self.finish_attempt(engine, now);
                }
            }
            Err(ended) => self.end_attempt(engine, &ended, now),
        }
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<(Name, Option<PromiseAnswer>)> {
        let Some(Attempt { round: Some((_, asking)), .. }) = &mut self.attempt else { return Poll::Pending };
        for at in 0..asking.len() {
            if let Poll::Ready(answered) = asking[at].as_mut().poll(cx) {
                drop(asking.swap_remove(at));
                return Poll::Ready(answered);
            }
        }
        Poll::Pending
    }

    fn handle_answer(&mut self, engine: &Engine, member: Name, answer: Option<PromiseAnswer>, now: Now) {
        let Some(Attempt { round: Some((round, asking)), .. }) = &mut self.attempt else { return };
        if let Some(answer) = answer.filter(|_| !planted::has(Planted::LoseAnswers)) {
            round.handle_answer(member, answer);
        }
        // A majority is enough: nobody waits for a member that may be lost.
        if round.is_decided() || asking.is_empty() {
            self.finish_attempt(engine, now);
        }
    }

    fn finish_attempt(&mut self, engine: &Engine, now: Now) {
        let Some(attempt) = &mut self.attempt else { return };
        if let Some((round, _)) = attempt.round.take() {
            let ended = engine.finish_take_over(&attempt.assignment.map, round, now);
            self.end_attempt(engine, &ended, now);
        }
    }

    fn end_attempt(&mut self, engine: &Engine, ended: &TakeOver, now: Now) {
        let Some(attempt) = self.attempt.take() else { return };
        let epoch = attempt.assignment.map.own().epoch;
        match ended {
            TakeOver::Done => self.take_up_whole(engine, attempt.assignment, now),
            TakeOver::Waits(why) => {
                tracing::debug!(why, epoch, "the shard is not taken over yet");
                let again_at = if planted::has(Planted::AskOnce) { Instant::NEVER } else { now.instant + RETRY };
                self.attempt = Some(Attempt { round: None, again_at, ..attempt });
            }
            TakeOver::Superseded(term) => {
                tracing::debug!(%term, epoch, "a later primary was promised: waits for the next assignment");
            }
        }
    }

    fn take_up(&mut self, engine: &Engine, assignment: Assignment, host: &dyn EngineHost) {
        let next = &assignment.engine_info;
        if (self.info.tag, self.info.group) != (next.tag, next.group) {
            if !host.keep_engine_info(next) {
                tracing::error!("the engine's part in the cluster will be forgotten with the process");
            }
            self.info = next.clone();
        }
        // An attempt for an earlier assignment is given up.
        self.attempt = None;
        if engine.must_take_over(&assignment.map) && !planted::has(Planted::ServeUnasked) {
            // It serves what it served before, if anything, until it has taken over.
            self.attempt = Some(Attempt { assignment, round: None, again_at: Instant::ORIGIN });
            return;
        }
        engine.give_up_take_over();
        self.take_up_whole(engine, assignment, host.now());
    }

    fn take_up_whole(&mut self, engine: &Engine, assignment: Assignment, now: Now) {
        let keeps_map = planted::has(Planted::KeepMap) && self.map.is_some();
        let is_new_map = self.map.as_ref() != Some(&assignment.map) && !keeps_map;
        if assignment.upstream.is_none() && assignment.map.service().is_up && !assignment.map.own().slots.is_empty() {
            // On the drive before anything is written that the next primary may lack, and before the role changes: a sync between that and
            // the new map would leave the slots unserved meanwhile.
            engine.note_own_data();
        }
        // Demotion: install the map, then follow. Promotion: stop following, then install the map.
        let goes = assignment.upstream.is_some();
        if is_new_map && goes {
            engine.set_map(assignment.map.clone(), now);
        }
        if goes {
            engine.prepare_to_follow(assignment.map.own().shard, now);
        }
        let follows_on = planted::has(Planted::FollowOn) && !goes;
        if engine.upstream() != assignment.upstream && !follows_on {
            follow(engine, assignment.upstream.clone(), &assignment.map, now);
        }
        if self.purges != assignment.purges {
            self.purges = assignment.purges;
            engine.purge(now);
        }
        if is_new_map && !goes {
            engine.set_map(assignment.map.clone(), now);
        }
        self.map = Some(assignment.map);
        self.is_awaited = assignment.is_awaited;
        if self.is_successor != assignment.is_successor {
            self.is_successor = assignment.is_successor;
            engine.expect_slots(assignment.is_successor.then(|| now.instant + PAUSE_MAX));
        }
        if self.is_paused != assignment.is_paused {
            self.is_paused = assignment.is_paused;
            if self.is_paused {
                engine.hold_writes(PAUSE_MAX, now);
            } else {
                engine.release_writes();
            }
        }
    }

    /// The present assignment, if the shard has to be taken over for it: the mode has changed.
    fn present(&self, engine: &Engine) -> Option<Assignment> {
        let is_asked = !planted::has(Planted::ServeUnasked);
        let map = self.map.as_ref().filter(|map| engine.must_take_over(map) && is_asked)?;
        let Self { is_paused, is_awaited, is_successor, purges, .. } = *self;
        let (engine_info, map) = (self.info.clone(), map.clone());
        Some(Assignment { engine_info, map, upstream: None, is_paused, is_awaited, is_successor, purges })
    }

    /// Writes down how far the data of a replica go, about once a second.
    fn note_origin(&mut self, engine: &Engine, now: Now) {
        if now.instant >= self.origin_at {
            self.origin_at = now.instant + ORIGIN_EVERY;
            engine.note_copied_data();
        }
    }

    fn report(&mut self, engine: &Engine, now: Now) -> Report {
        if engine.has_subscribers() {
            self.listens_until = now.instant + LISTENS_ON;
        }
        Report {
            told: engine.announcement(),
            offset: engine.position(),
            copy: engine.copy_status(now.instant),
            // While another may be taking slots, nobody may rely on that no writes come.
            is_settled: self.is_paused && !engine.is_giving_slots(),
            needs_all_slots: engine.needs_all_slots(),
            listens: now.instant < self.listens_until,
            asks_majority: engine.has_promised(shard_name(self.info.group)),
        }
    }
}

/// Follows this primary, or nobody.
fn follow(engine: &Engine, upstream: Option<Upstream>, map: &Map, now: Now) {
    let turned = engine.follow(upstream.clone(), now);
    let primary = map.own().primary.and_then(|name| map.node(name));
    match upstream {
        Some(upstream) => {
            let called = primary.map(|node| node.nickname.as_str()).filter(|name| !name.is_empty());
            let (host, port) = upstream.place();
            tracing::info!(primary = format!("{host}:{port}"), called, offset = turned.position, "follows a primary");
        }
        None => tracing::info!(offset = turned.position, whole = turned.is_whole, "is primary of its shard"),
    }
}

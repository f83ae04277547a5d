//! An attached volume at one server: the runtime of an [`Initiator`].
//!
//! The initiator plans and paces requests; this hands its subrequests to servers, brings it the answers and wakes it when a
//! pause ends. Before a subrequest is sent, the configuration that it goes by is compared with the catalog's. A request waits
//! through a failover and gets no error.
//!
//! Durable on completion: a write or zeroing is on stable storage at every acting copy. So a flush has nothing to do.

use core::pin::Pin;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_grid::seam::BoxFuture;
use ashlar_placement::choose::PgTable;
use ashlar_placement::map::GroupId;
use ashlar_placement::part::Part;
use ashlar_replica::request::{BLOCK_BYTES, EXTENT_BYTES_MAX};
use ashlar_volume::Error;
use ashlar_volume::initiator::{Answer, Completion, Initiator, Op, Pacing, RequestId, Space, Subrequest, SubrequestId};
use ashlar_volume::message::{AnswerKind, Generation, GroupConfig};
use ashlar_volume::piece::Piece;
use ashlar_wire::id::VolumeId;
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::figures::{OpFigures, OpKind, VolumeFigures};
use super::subrequest::answered;
use crate::promise::promise;
use crate::together;

/// Pauses before a subrequest is sent again. The longest is what a guest waits at most after a group serves again, if the
/// catalog has not said that it does.
pub const PACING: Pacing =
    Pacing { pause_min: Duration::from_millis(2), pause_max: Duration::from_millis(200), prompt_max: 4 };

const _: () = assert!(BLOCK_BYTES == ashlar_volume::block::BLOCK_BYTES, "a block of a volume is one of a member");

/// What this server knows of a placement group's primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leader {
    /// By the catalog.
    Known(GroupConfig),
    /// Nothing, or nothing yet.
    Unknown,
    /// All its acting drives are given up: what it had is lost.
    Lost,
    /// This server stops, or may ask the group no more: nothing is sent again.
    Gone,
}

/// What an attachment needs of its server. Five methods.
pub trait Fabric: Send + Sync + 'static {
    /// Monotonic time.
    fn now(&self) -> Instant;

    /// Completes at `at` or a little later.
    fn sleep_until(&self, at: Instant) -> BoxFuture<()>;

    /// Runs a task.
    fn spawn(&self, task: BoxFuture<()>);

    /// The primary of a placement group. Called under the attachment's lock: it calls nothing of the attachment.
    fn leader(&self, group: GroupId) -> Leader;

    /// Sends a subrequest to its server and waits for the answer.
    fn ask(&self, subrequest: &Subrequest) -> BoxFuture<Answer>;
}

/// Why a request failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// See [`Error`].
    Volume(Error),
    /// This server stops, or has lost the volume's placement group. A change may be done or not. Safe to retry at another one.
    Stopping,
}

impl Failure {
    /// Whether a write was refused because it needs space that the drives have not. It may be done in part.
    pub(crate) const fn lacks_room(&self) -> bool {
        matches!(self, Self::Volume(Error::Full))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Volume(error)
    }
}

/// How a request ended.
pub type Ended = Result<Vec<Piece>, Failure>;

/// Who is told how a request ended.
type Notify = Box<dyn FnOnce(Ended) + Send>;

/// What the requests of a volume share.
struct State {
    initiator: Initiator,
    /// Bytes that users see. The last extent may reach further.
    size: u64,
    /// Number of the last request.
    last: u64,
    waiting: BTreeMap<RequestId, Waiting>,
    /// Requests beyond the initiator's limits, in the order of their coming. Whoever makes requests bounds how many it has.
    backlog: VecDeque<(RequestId, Op)>,
    /// When the earliest timer goes off.
    timer: Option<Instant>,
    /// Nothing is sent any more.
    is_closing: bool,
    /// Requests that have ended, by kind.
    ended: [OpFigures; OpKind::ALL.len()],
}

/// A request that somebody waits for.
struct Waiting {
    notify: Notify,
    kind: OpKind,
    bytes: u64,
    begun: Instant,
}

struct Shared {
    fabric: Arc<dyn Fabric>,
    volume: VolumeId,
    generation: Generation,
    state: Mutex<State>,
}

/// A volume that is attached here.
pub struct Attachment(Arc<Shared>);

/// What is done once the lock is free.
#[derive(Default)]
struct Work {
    asks: Vec<Subrequest>,
    ended: Vec<(Notify, Ended)>,
    timer: Option<Instant>,
}

impl Attachment {
    /// A volume of `size` bytes, on the extents of the initiator.
    ///
    /// # Panics
    /// Extents are longer than a replica's, or fewer than the size needs: the catalog has no such volume.
    #[must_use]
    pub fn new(fabric: Arc<dyn Fabric>, initiator: Initiator, size: u64) -> Self {
        let volume = initiator.volume();
        assert!(volume.rule().extent_size.bytes() <= EXTENT_BYTES_MAX.into(), "an extent is replicated as a whole");
        assert!(size <= volume.size(), "a volume lies on its extents");
        let (volume, generation) = (volume.id(), initiator.attachment().generation);
        let state = State {
            initiator,
            size,
            last: 0,
            waiting: BTreeMap::new(),
            backlog: VecDeque::new(),
            timer: None,
            is_closing: false,
            ended: Default::default(),
        };
        Self(Arc::new(Shared { fabric, volume, generation, state: Mutex::new(state) }))
    }

    /// Which volume.
    #[must_use]
    pub fn volume(&self) -> VolumeId {
        self.0.volume
    }

    /// The attachment's generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.0.generation
    }

    /// Bytes of the volume.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.lock().size
    }

    /// Begins a request. `ended` is called once, on any thread, and perhaps before this returns: with the pieces of a read in
    /// ascending order, or with none. A change is on stable storage at every acting copy then.
    pub fn begin(&self, op: Op, ended: impl FnOnce(Ended) + Send + 'static) -> RequestId {
        self.0.begin(op, Box::new(ended))
    }

    /// Nobody waits for a request any more: `ended` is not called. A change may be done or not, or in part; it is not done
    /// after a later request to the same range was answered.
    pub fn cancel(&self, id: RequestId) {
        let mut state = self.0.lock();
        if state.waiting.remove(&id).is_some() {
            state.backlog.retain(|(waiting, _)| *waiting != id);
            state.initiator.handle_cancel(id);
            drop(state);
            self.0.go_on();
        }
    }

    /// Does a request; dropped half-way, it is cancelled.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn run(&self, op: Op) -> Ended {
        let (kept, ended) = promise();
        let id = self.begin(op, move |result| kept.keep(result));
        let cancel = Cancel { attachment: self, id };
        let result = ended.await.unwrap_or(Err(Failure::Stopping));
        drop(cancel);
        result
    }

    /// Reads any bytes, in one piece. A byte that was never written is zero.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn read(&self, offset: u64, len: u32) -> Result<Bytes, Failure> {
        let mut pieces = self.run(Op::Read { offset, len: len.into() }).await?;
        if let [Piece::Data(_)] = &pieces[..]
            && let Some(Piece::Data(data)) = pieces.pop()
        {
            return Ok(data);
        }
        let mut bytes = Vec::with_capacity(len as usize);
        for piece in pieces {
            match piece {
                Piece::Data(data) => bytes.extend_from_slice(&data),
                // Pieces of a read of 32 bits have lengths of 32 bits.
                Piece::Zeroes(zeroes) => bytes.resize(bytes.len() + zeroes as usize, 0),
                Piece::Stored(_) => unreachable!("a read has content"),
            }
        }
        Ok(Bytes::from(bytes))
    }

    /// Writes any bytes. On return they are on stable storage at every acting copy.
    ///
    /// # Errors
    /// See [`Failure`]; after [`Failure::Stopping`] it is not known whether they were written.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), Failure> {
        self.run(Op::Write { offset, data }).await.map(drop)
    }

    /// Makes bytes zero; they may take no space any more. Durable as a write is.
    ///
    /// # Errors
    /// As [`Attachment::write`].
    pub async fn zero(&self, offset: u64, len: u64) -> Result<(), Failure> {
        self.run(Op::Zero { offset, len, space: Space::Release }).await.map(drop)
    }

    /// The catalog has changed: what pauses for a placement group that has another configuration now is sent.
    pub fn handle_news(&self) {
        {
            let state = &mut *self.0.lock();
            let mut groups: Vec<GroupId> = state.initiator.paused_groups().collect();
            groups.sort_unstable();
            groups.dedup();
            for group in groups {
                if let Leader::Known(config) = self.0.fabric.leader(group) {
                    state.initiator.handle_config(group, config);
                }
            }
        }
        self.0.go_on();
    }

    /// The volume was attached elsewhere, or deleted: every request fails with [`Error::Fenced`] from now on.
    pub fn fence(&self) {
        self.0.lock().initiator.handle_fence();
        self.0.go_on();
    }

    /// Whether requests fail because the volume was attached elsewhere, or deleted.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.0.lock().initiator.is_fenced()
    }

    /// The volume has `size` bytes by now, on these parts; a smaller size changes nothing. `tables` are of all their sets.
    ///
    /// # Errors
    /// The initiator's: a table is missing, or the parts make no volume.
    pub fn grow(&self, size: u64, parts: &[Part], tables: Vec<Arc<PgTable>>) -> Result<(), Error> {
        let state = &mut *self.0.lock();
        if size <= state.size {
            return Ok(());
        }
        tables.into_iter().try_for_each(|table| state.initiator.handle_table(table))?;
        let mut end = 0_u64;
        for part in parts {
            end = end.saturating_add(part.extents);
            let extents = end.saturating_sub(state.initiator.volume().extents());
            if extents > 0 {
                state.initiator.grow(Part { extents, ..*part })?;
            }
        }
        if size > state.initiator.volume().size() {
            return Err(Error::BadPart);
        }
        state.size = size;
        Ok(())
    }

    /// Asks every placement group that has extents of the volume for a block, so that none of them serves an earlier
    /// attachment any more when this returns. Waits for groups that do not serve, but for those that never will.
    ///
    /// # Errors
    /// See [`Failure`]. Some groups may have heard of this attachment.
    pub async fn reach_all(&self, is_lost: impl Fn(GroupId) -> bool) -> Result<(), Failure> {
        let samples = self.0.lock().initiator.group_samples();
        let reached = samples.into_iter().filter(|(group, _)| !is_lost(*group));
        let reads = reached.map(|(_, offset)| -> Pin<Box<dyn Future<Output = Ended> + Send + '_>> {
            Box::pin(self.run(Op::Read { offset, len: 1 }))
        });
        together::all(reads.collect()).await.into_iter().try_for_each(|ended| ended.map(drop))
    }

    /// What its requests have come to.
    #[must_use]
    pub fn figures(&self) -> VolumeFigures {
        let now = self.0.fabric.now();
        let state = self.0.lock();
        let begun = state.waiting.values().map(|waiting| waiting.begun);
        VolumeFigures {
            name: self.0.volume.to_string(),
            size_bytes: state.size,
            clients: 0,
            ops: state.ended,
            in_flight: state.waiting.len(),
            oldest: begun.min().map_or(Duration::ZERO, |begun| now.saturating_since(begun)),
        }
    }

    /// Nothing is sent any more: requests that servers have not answered end with [`Failure::Stopping`].
    pub fn close(&self) {
        self.0.lock().is_closing = true;
        self.0.go_on();
    }
}

struct Cancel<'a> {
    attachment: &'a Attachment,
    id: RequestId,
}

impl Drop for Cancel<'_> {
    fn drop(&mut self) {
        self.attachment.cancel(self.id);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>, op: Op, ended: Notify) -> RequestId {
        let now = self.fabric.now();
        let mut state = self.lock();
        state.last += 1;
        let id = RequestId(state.last);
        let (kind, bytes) = OpKind::of(&op);
        let refusal = match state.check(&op) {
            _ if state.is_closing => Err(Failure::Stopping),
            Err(error) => Err(error.into()),
            Ok(()) => state.take(now, id, op).map_err(Failure::from),
        };
        match refusal {
            Ok(()) => {
                state.waiting.insert(id, Waiting { notify: ended, kind, bytes, begun: now });
                drop(state);
                self.go_on();
            }
            Err(failure) => {
                state.ended[kind as usize].failed += 1;
                drop(state);
                ended(Err(failure));
            }
        }
        id
    }

    /// Sends what can be sent and tells whoever waits, until nothing is left to do now.
    fn go_on(self: &Arc<Self>) {
        let work = self.collect();
        for subrequest in work.asks {
            let (shared, ask) = (Arc::clone(self), self.fabric.ask(&subrequest));
            self.fabric.spawn(Box::pin(async move {
                let answer = ask.await;
                shared.handle_answer(subrequest.id, answer);
            }));
        }
        if let Some(at) = work.timer {
            let (shared, sleep) = (Arc::clone(self), self.fabric.sleep_until(at));
            self.fabric.spawn(Box::pin(async move {
                sleep.await;
                shared.handle_timer(at);
            }));
        }
        for (notify, ended) in work.ended {
            notify(ended);
        }
    }

    fn collect(&self) -> Work {
        let now = self.fabric.now();
        let state = &mut *self.lock();
        let mut work = Work::default();
        loop {
            state.take_backlog(now, &mut work);
            state.end_completed(now, &mut work);
            if state.is_closing {
                break;
            }
            let Some(subrequest) = state.initiator.poll_subrequest() else { break };
            match self.fabric.leader(subrequest.header.group) {
                Leader::Known(config) if config.epoch > subrequest.header.epoch => {
                    state.initiator.handle_config(subrequest.header.group, config);
                    state.initiator.handle_answer(now, subrequest.id, answered(AnswerKind::OtherEpoch(None)));
                }
                Leader::Known(_) | Leader::Unknown => work.asks.push(subrequest),
                Leader::Lost => state.initiator.handle_answer(now, subrequest.id, answered(AnswerKind::Damaged)),
                Leader::Gone => {
                    state.is_closing = true;
                    state.initiator.handle_answer(now, subrequest.id, Answer::Lost);
                }
            }
        }
        if state.is_closing && state.initiator.in_flight().0 == 0 {
            for waiting in core::mem::take(&mut state.waiting).into_values() {
                state.end(now, waiting, Err(Failure::Stopping), &mut work);
            }
            state.backlog.clear();
            return work;
        }
        if let Some(at) = state.initiator.poll_timeout().filter(|at| state.timer.is_none_or(|timer| *at < timer)) {
            state.timer = Some(at);
            work.timer = Some(at);
        }
        work
    }

    fn handle_answer(self: &Arc<Self>, id: SubrequestId, answer: Answer) {
        let now = self.fabric.now();
        self.lock().initiator.handle_answer(now, id, answer);
        self.go_on();
    }

    fn handle_timer(self: &Arc<Self>, at: Instant) {
        let now = self.fabric.now().max(at);
        {
            let mut state = self.lock();
            if state.timer == Some(at) {
                state.timer = None;
            }
            state.initiator.handle_timeout(now);
        }
        self.go_on();
    }
}

impl State {
    /// Refuses a range that is not within the volume.
    fn check(&self, op: &Op) -> Result<(), Error> {
        let (offset, len) = match op {
            Op::Read { offset, len }
            | Op::Zero { offset, len, .. }
            | Op::Discard { offset, len }
            | Op::Presence { offset, len } => (*offset, *len),
            Op::Write { offset, data } => (*offset, data.len() as u64),
            Op::Flush => return Ok(()),
        };
        let is_within = offset.checked_add(len).is_some_and(|end| end <= self.size);
        if is_within { Ok(()) } else { Err(Error::BehindEnd { offset, len, size: self.size }) }
    }

    /// Gives a request to the initiator, behind those that came before it.
    fn take(&mut self, now: Instant, id: RequestId, op: Op) -> Result<(), Error> {
        if !self.backlog.is_empty() {
            self.backlog.push_back((id, op));
            return Ok(());
        }
        match self.initiator.handle_request(now, id, op.clone(), None) {
            Err(Error::TooMuchInFlight) => self.backlog.push_back((id, op)),
            result => return result,
        }
        Ok(())
    }

    fn take_backlog(&mut self, now: Instant, work: &mut Work) {
        while let Some((id, op)) = self.backlog.front() {
            let result = self.initiator.handle_request(now, *id, op.clone(), None);
            if result == Err(Error::TooMuchInFlight) {
                return;
            }
            if let Err(error) = result
                && let Some(waiting) = self.waiting.remove(id)
            {
                self.end(now, waiting, Err(error.into()), work);
            }
            self.backlog.pop_front();
        }
    }

    fn end_completed(&mut self, now: Instant, work: &mut Work) {
        while let Some(Completion { id, result }) = self.initiator.poll_completion() {
            if let Some(waiting) = self.waiting.remove(&id) {
                self.end(now, waiting, result.map_err(Failure::from), work);
            }
        }
    }

    fn end(&mut self, now: Instant, waiting: Waiting, ended: Ended, work: &mut Work) {
        let Waiting { notify, kind, bytes, begun } = waiting;
        self.ended[kind as usize].note(bytes, now.saturating_since(begun), ended.is_ok());
        work.ended.push((notify, ended));
    }
}

#[cfg(test)]
mod tests;

//! The initiator itself: requests in, subrequests out, answers in, completions out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use core::time::Duration;

use ashlar_placement::choose::PgTable;
use ashlar_placement::map::GroupId;
use ashlar_placement::part::{Part, Volume};
use ashlar_placement::rule::ExtentId;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::config::{Attachment, Limits, Pacing};
use super::pacing::Pauses;
use super::plan::{Action, Method, Run};
use super::presence;
use super::requests::{RequestKey, Requests};
use super::route::{Learned, Routes};
use super::tasks::{FlightLimits, Task, Tasks, Work};
use super::{Answer, Completion, Op, RequestId, Space, Subrequest, SubrequestId};
use crate::block::{BLOCK_BYTES, ByteRange};
use crate::error::Error;
use crate::message::{AnswerKind, ExtentRange, GroupConfig, RequestNumber, SubrequestHeader, Verb};
use crate::piece::Piece;
use crate::qos::{Rates, Throttle};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A run that waits for the blocks at its ends.
#[derive(Debug)]
struct Merge {
    blocks: ByteRange,
    group: GroupId,
    range: ExtentRange,
    /// The run's bytes: what was read of its ends, zeroes elsewhere.
    buffer: Vec<u8>,
    /// Ends that are not read yet.
    missing: usize,
}

/// One attached volume.
#[derive(Debug)]
pub struct Initiator {
    attachment: Attachment,
    limits: Limits,
    routes: Routes,
    requests: Requests,
    /// Payload bytes of the requests that are not completed.
    held_bytes: u64,
    tasks: Tasks,
    /// By request and run.
    merges: BTreeMap<(RequestKey, usize), Merge>,
    deadlines: BTreeSet<(Instant, RequestKey)>,
    pauses: Pauses,
    throttle: Option<Throttle>,
    /// Requests that wait for tokens, in order.
    throttled: VecDeque<RequestKey>,
    /// When the first of them may try again.
    tokens_at: Option<Instant>,
    completions: VecDeque<Completion>,
    is_fenced: bool,
}

impl Initiator {
    /// A volume that was attached just now. `seed` decides the pauses.
    ///
    /// # Errors
    /// [`Error::UnknownSet`], the caller's: a part lies in a set of which there is no table.
    ///
    /// # Panics
    /// When the limits let nothing pass.
    pub fn new(
        attachment: Attachment,
        volume: Volume,
        tables: Vec<Arc<PgTable>>,
        limits: Limits,
        pacing: Pacing,
        seed: u64,
    ) -> Result<Self, Error> {
        Ok(Self::with_routes(attachment, Routes::new(volume, tables)?, limits, pacing, seed))
    }

    /// A volume whose extents all lie in one placement group, whatever placement says. `config` is the group's
    /// configuration now.
    ///
    /// # Panics
    /// When the limits let nothing pass.
    #[must_use]
    pub fn pinned(
        attachment: Attachment,
        volume: Volume,
        (group, config): (GroupId, GroupConfig),
        limits: Limits,
        pacing: Pacing,
        seed: u64,
    ) -> Self {
        Self::with_routes(attachment, Routes::pinned(volume, group, config), limits, pacing, seed)
    }

    fn with_routes(attachment: Attachment, routes: Routes, limits: Limits, pacing: Pacing, seed: u64) -> Self {
        limits.assert_valid();
        let flight = FlightLimits { tasks_max: limits.subrequests_max, bytes_max: limits.subrequest_bytes_max };
        Self {
            attachment,
            limits,
            routes,
            requests: Requests::default(),
            held_bytes: 0,
            tasks: Tasks::new(flight),
            merges: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            pauses: Pauses::new(pacing, seed),
            throttle: None,
            throttled: VecDeque::new(),
            tokens_at: None,
            completions: VecDeque::new(),
            is_fenced: false,
        }
    }

    /// Who it is to the servers.
    #[must_use]
    pub const fn attachment(&self) -> Attachment {
        self.attachment
    }

    /// The volume.
    #[must_use]
    pub const fn volume(&self) -> &Volume {
        self.routes.volume()
    }

    /// Requests that are not completed, and those whose subrequests servers still have.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Subrequests that servers have not answered, and their payload bytes.
    #[must_use]
    pub const fn in_flight(&self) -> (usize, u64) {
        (self.tasks.in_flight(), self.tasks.in_flight_bytes())
    }

    /// Takes a request. Its completion comes from [`Initiator::poll_completion`], exactly once; without a deadline it may
    /// take as long as servers are away.
    ///
    /// # Errors
    /// The caller's, and nothing was done: [`Error::EmptyRange`], [`Error::BehindEnd`], [`Error::TooMuchInFlight`] (try again
    /// after a completion), [`Error::Fenced`].
    pub fn handle_request(
        &mut self,
        now: Instant,
        id: RequestId,
        op: Op,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        if self.is_fenced {
            return Err(Error::Fenced);
        }
        let Some((action, data)) = self.plan(op)? else {
            self.completions.push_back(Completion { id, result: Ok(Vec::new()) });
            return Ok(());
        };
        let bytes = self.held_bytes + action.payload_len();
        let is_light = action.payload_len() == 0 || self.requests.len() == 0;
        let has_room = is_light || bytes <= self.limits.request_bytes_max;
        if self.requests.len() >= self.limits.requests_max || !has_room {
            return Err(Error::TooMuchInFlight);
        }
        self.held_bytes = bytes;
        let deadline = deadline.unwrap_or(Instant::NEVER);
        let key = self.requests.insert(id, action, data, deadline);
        if deadline < Instant::NEVER {
            self.deadlines.insert((deadline, key));
        }
        self.throttled.push_back(key);
        self.admit(now);
        Ok(())
    }

    /// What an operation does, or nothing if it has nothing to do.
    fn plan(&self, op: Op) -> Result<Option<(Action, Bytes)>, Error> {
        let (verb, offset, len, data) = match op {
            Op::Read { offset, len } => (Verb::Read, offset, len, Bytes::new()),
            Op::Write { offset, data } => (Verb::Write, offset, data.len() as u64, data),
            Op::Zero { offset, len, space: Space::Release } => (Verb::Zero, offset, len, Bytes::new()),
            Op::Zero { offset, len, space: Space::Keep } => (Verb::ZeroInPlace, offset, len, Bytes::new()),
            Op::Discard { offset, len } => (Verb::Discard, offset, len, Bytes::new()),
            Op::Presence { offset, len } => (Verb::Presence, offset, len, Bytes::new()),
            Op::Flush => return Ok(None),
        };
        let size = self.volume().size();
        let end = offset.checked_add(len).filter(|end| *end <= size);
        let end = end.ok_or(Error::BehindEnd { offset, len, size })?;
        if len == 0 {
            return Err(Error::EmptyRange);
        }
        let range = ByteRange { start: offset, end };
        let range = if verb == Verb::Discard { range.inner() } else { range };
        Ok((range.len() > 0).then_some((Action { verb, range }, data)))
    }

    /// Takes the table of a set: a new map, or that of a set into which the volume grows next.
    ///
    /// # Errors
    /// [`Error::OtherTable`], the caller's: the number of placement groups of a set never changes.
    pub fn handle_table(&mut self, table: Arc<PgTable>) -> Result<(), Error> {
        self.routes.handle_table(table)
    }

    /// Takes the configuration of a placement group from the catalog. Subrequests that paused for the group are sent
    /// again at once. An older configuration changes nothing.
    pub fn handle_config(&mut self, group: GroupId, config: GroupConfig) {
        if self.routes.handle_config(group, config) == Learned::News {
            self.tasks.wake_group(group);
        }
    }

    /// Adds extents at the end of the volume.
    ///
    /// # Errors
    /// The caller's: [`Error::UnknownSet`] without the table of the set, [`Error::BadPart`] if it is none that a volume
    /// can have.
    pub fn grow(&mut self, part: Part) -> Result<(), Error> {
        self.routes.grow(part)
    }

    /// Changes the limits of the class while attached; `None` for none. What a request has cost already stays.
    pub fn set_rates(&mut self, now: Instant, rates: Option<Rates>) {
        match (&mut self.throttle, rates) {
            (Some(throttle), Some(rates)) => throttle.change(now, rates),
            (throttle, rates) => *throttle = rates.map(|rates| Throttle::new(now, rates)),
        }
        self.admit(now);
    }

    /// Takes the answer to one sending. Answers that nobody waits for are ignored.
    pub fn handle_answer(&mut self, now: Instant, id: SubrequestId, answer: Answer) {
        let Some(epoch) = self.tasks.land(id) else { return };
        let number = id.number;
        if self.requests.get(self.tasks.get(number).request).is_completed {
            return self.forget(number);
        }
        match answer {
            Answer::Lost => self.retry(now, number, Duration::ZERO),
            Answer::Answered(kind, payload) => match kind {
                AnswerKind::Done => self.finish(number, &Piece::Data(payload)),
                AnswerKind::Zeroes => {
                    let len = u64::from(self.tasks.get(number).range.len);
                    self.finish(number, &Piece::Zeroes(len));
                }
                AnswerKind::OtherEpoch(hint) | AnswerKind::NotPrimary(hint) => self.follow(now, number, epoch, hint),
                AnswerKind::Busy { retry_after_ms } => {
                    self.retry(now, number, Duration::from_millis(u64::from(retry_after_ms)));
                }
                AnswerKind::Fenced => self.fence(),
                AnswerKind::Full => self.fail(number, Error::Full),
                AnswerKind::Damaged => self.fail(number, Error::Damaged),
                // What this side has settled it does not send again.
                AnswerKind::Settled => self.fail(number, Error::BadAnswer),
                AnswerKind::Wrong => self.fail(number, Error::Rejected),
            },
        }
    }

    /// Nobody waits for a request any more: it gets no completion. A change may be done or not, or in part; once a later
    /// request to the same range is answered, it will not be done any more. Nothing happens if it has ended.
    pub fn handle_cancel(&mut self, id: RequestId) {
        let is_it = |key: &RequestKey| {
            let request = self.requests.get(*key);
            request.id == id && !request.is_completed
        };
        let key = self.requests.keys().find(is_it);
        match key {
            Some(key) => {
                self.complete(key, Err(Error::TimedOut));
                self.completions.pop_back();
            }
            None => self.completions.retain(|completion| completion.id != id),
        }
    }

    /// Placement groups for which subrequests pause, in no order and perhaps more than once. A newer configuration of one
    /// ([`Initiator::handle_config`]) ends its pauses.
    pub fn paused_groups(&self) -> impl Iterator<Item = GroupId> {
        self.tasks.waiting_groups()
    }

    /// Does what is due: pauses that end, deadlines that pass, tokens that have come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.tasks.handle_timeout(now);
        while let Some((deadline, key)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.pop_first();
            self.complete(key, Err(Error::TimedOut));
        }
        self.admit(now);
    }

    /// When [`Initiator::handle_timeout`] has something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        [deadline, self.tasks.next_end_of_wait(), self.tokens_at].into_iter().flatten().min()
    }

    /// The next subrequest to send. Bring each exactly one answer.
    pub fn poll_subrequest(&mut self) -> Option<Subrequest> {
        loop {
            if let Some(number) = self.tasks.next_to_send() {
                return Some(self.launch(number));
            }
            // Nothing new is begun while something older waits for room.
            let key = self.requests.first().filter(|_| self.tasks.has_room() && !self.tasks.has_queued())?;
            self.requests.pop_first();
            self.begin_run(key);
            self.requests.queue(key, self.limits.runs_per_request_max);
        }
    }

    /// The next request that has ended.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn launch(&mut self, number: RequestNumber) -> Subrequest {
        let task = self.tasks.get(number);
        let leader = self.routes.leader(task.group);
        let header = SubrequestHeader {
            verb: task.verb(),
            group: task.group,
            epoch: leader.epoch,
            drive: leader.drive,
            range: task.range,
            generation: self.attachment.generation,
            session: self.attachment.session,
            number,
            settled_below: self.tasks.settled_below(task.group),
        };
        let (payload, deadline) = (task.payload(), self.requests.get(task.request).deadline);
        let id = self.tasks.launch(leader.epoch);
        Subrequest { id, server: leader.server, header, payload, deadline }
    }

    /// Lets requests run as far as there are tokens, in order.
    fn admit(&mut self, now: Instant) {
        self.tokens_at = None;
        while let Some(key) = self.throttled.front().copied() {
            let bytes = self.requests.get(key).action.payload_len();
            if let Some(throttle) = &mut self.throttle
                && let Err(at) = throttle.take(now, bytes)
            {
                self.tokens_at = Some(at);
                return;
            }
            self.throttled.pop_front();
            self.requests.get_mut(key).is_admitted = true;
            self.requests.queue(key, self.limits.runs_per_request_max);
        }
    }

    /// Makes the tasks of a request's next run.
    fn begin_run(&mut self, key: RequestKey) {
        let request = self.requests.get_mut(key);
        let at = request.cursor;
        let (location, group) = self.routes.place(at);
        let run = request.action.next_run(at, u64::from(location.len), self.limits.payload_bytes_max);
        let Run { blocks, method } = run;
        let index = request.pieces.len();
        request.cursor = blocks.end;
        request.runs_open += 1;
        request.pieces.push(None);
        if request.action.verb == Verb::Presence {
            request.presence.push(Vec::new());
        }
        let extent = ExtentId { volume: self.routes.volume().id(), extent: location.extent };
        let len = u32::try_from(blocks.len()).expect("an extent has at most 2^30 bytes");
        let range = ExtentRange { extent, offset: location.offset, len };
        match method {
            Method::Direct => {
                let payload = match request.action.verb {
                    Verb::Write => {
                        let from = blocks.start - request.action.range.start;
                        // Positions within bytes in memory are sizes.
                        request.data.slice(from as usize..(from + blocks.len()) as usize)
                    }
                    _ => Bytes::new(),
                };
                let work = Work::Run(request.action.verb, payload);
                self.push_task(Task::new(key, index, blocks.start, group, range, work));
            }
            Method::Merge { head, tail } => {
                let missing = usize::from(head) + usize::from(tail);
                let merge = Merge { blocks, group, range, buffer: vec![0; len as usize], missing };
                self.merges.insert((key, index), merge);
                let ends = [(head, 0), (tail, len - BLOCK_BYTES)];
                for (_, at) in ends.into_iter().filter(|(is_wanted, _)| *is_wanted) {
                    let range = ExtentRange { offset: range.offset + at, len: BLOCK_BYTES, ..range };
                    let start = blocks.start + u64::from(at);
                    self.push_task(Task::new(key, index, start, group, range, Work::Edge(at as usize)));
                }
            }
        }
    }

    fn push_task(&mut self, task: Task) {
        self.requests.get_mut(task.request).tasks_open += 1;
        self.tasks.push(task);
    }

    /// Removes a task that has landed.
    fn remove_task(&mut self, number: RequestNumber) -> Task {
        let task = self.tasks.remove(number);
        self.requests.get_mut(task.request).tasks_open -= 1;
        task
    }

    /// Removes a task whose request is completed already.
    fn forget(&mut self, number: RequestNumber) {
        let task = self.remove_task(number);
        self.remove_if_idle(task.request);
    }

    /// Sends a task again after a pause of at least `asked`.
    fn retry(&mut self, now: Instant, number: RequestNumber, asked: Duration) {
        let failures = self.tasks.count_failure(number);
        let pause = self.pauses.draw(failures, asked);
        self.tasks.wait(number, now + pause);
    }

    /// Sends a task again: at once if another configuration than that under which it was sent is known now.
    fn follow(&mut self, now: Instant, number: RequestNumber, sent: Epoch, hint: Option<GroupConfig>) {
        let group = self.tasks.get(number).group;
        if let Some(hint) = hint
            && self.routes.handle_hint(group, hint) == Learned::News
        {
            self.tasks.wake_group(group);
        }
        let is_newer = self.routes.leader(group).epoch > sent;
        if is_newer && self.pauses.is_prompt(self.tasks.get(number).failures + 1) {
            self.tasks.count_failure(number);
            self.tasks.requeue(number);
        } else {
            self.retry(now, number, Duration::ZERO);
        }
    }

    /// A task is done: with the bytes of a read, or with none.
    fn finish(&mut self, number: RequestNumber, piece: &Piece) {
        let task = self.tasks.get(number);
        let range_len = u64::from(task.range.len);
        let is_right = match (task.verb(), piece) {
            (Verb::Read, piece) => piece.len() == range_len,
            (Verb::Presence, Piece::Data(bits)) => bits.len() as u64 == (range_len / BLOCK).div_ceil(8),
            // Told by the kind of the answer, which has no payload.
            (Verb::Presence, Piece::Zeroes(_)) => true,
            (_, piece) => piece.is_empty(),
        };
        if !is_right {
            return self.fail(number, Error::BadAnswer);
        }
        let task = self.remove_task(number);
        match task.work {
            Work::Edge(at) => self.finish_edge(task.request, task.run, at, piece),
            Work::Run(..) => self.finish_run(&task, piece),
        }
    }

    /// A block at an end of a run has come. After the last, the guest's bytes go over what was read.
    fn finish_edge(&mut self, key: RequestKey, run: usize, at: usize, piece: &Piece) {
        let merge = self.merges.get_mut(&(key, run)).expect("a run waits for its ends");
        if let Piece::Data(bytes) = piece {
            merge.buffer[at..at + bytes.len()].copy_from_slice(bytes);
        }
        merge.missing -= 1;
        if merge.missing > 0 {
            return;
        }
        let Merge { blocks, group, range, mut buffer, .. } =
            self.merges.remove(&(key, run)).expect("it was there just now");
        let request = self.requests.get(key);
        let named = request.action.range.intersection(blocks);
        // Positions within bytes in memory are sizes.
        let target = &mut buffer[(named.start - blocks.start) as usize..(named.end - blocks.start) as usize];
        match request.action.verb {
            Verb::Write => {
                let from = (named.start - request.action.range.start) as usize;
                target.copy_from_slice(&request.data[from..from + target.len()]);
            }
            Verb::Zero | Verb::ZeroInPlace => target.fill(0),
            Verb::Read | Verb::Discard | Verb::Presence => unreachable!("only changes of bytes are merged"),
        }
        let work = Work::Run(Verb::Write, Bytes::from(buffer));
        self.push_task(Task::new(key, run, blocks.start, group, range, work));
    }

    fn finish_run(&mut self, task: &Task, piece: &Piece) {
        let Task { request: key, run, start, .. } = *task;
        let request = self.requests.get_mut(key);
        if request.action.verb == Verb::Presence {
            let blocks = ByteRange { start, end: start + u64::from(task.range.len) };
            request.presence[run] = presence::pieces(piece, blocks, request.action.range.intersection(blocks));
        }
        if request.action.verb == Verb::Read {
            let blocks = ByteRange { start, end: start + piece.len() };
            let named = request.action.range.intersection(blocks);
            request.pieces[run] = Some(piece.slice(named.start - start..named.end - start));
        }
        request.runs_open -= 1;
        if request.runs_open > 0 || !request.has_all_runs() {
            return self.requests.queue(key, self.limits.runs_per_request_max);
        }
        let pieces = std::mem::take(&mut request.pieces);
        let pieces = match request.action.verb {
            Verb::Read => pieces.into_iter().map(|piece| piece.expect("every run has come")).collect(),
            Verb::Presence => presence::joined(std::mem::take(&mut request.presence).into_iter().flatten()),
            _ => Vec::new(),
        };
        self.complete(key, Ok(pieces));
    }

    /// A task has failed for good, and so has its request.
    fn fail(&mut self, number: RequestNumber, error: Error) {
        let task = self.remove_task(number);
        self.complete(task.request, Err(error));
    }

    /// Gives a request its completion. What servers still have of it holds up those behind it until they have answered.
    fn complete(&mut self, key: RequestKey, result: Result<Vec<Piece>, Error>) {
        let request = self.requests.get_mut(key);
        assert!(!request.is_completed, "a request is completed once");
        request.is_completed = true;
        self.held_bytes -= request.action.payload_len();
        if request.deadline < Instant::NEVER {
            self.deadlines.remove(&(request.deadline, key));
        }
        self.completions.push_back(Completion { id: request.id, result });
        if !request.is_admitted {
            self.throttled.retain(|throttled| *throttled != key);
        }
        self.requests.unqueue(key);
        if self.requests.get(key).tasks_open > 0 {
            let gone = self.tasks.abandon(key);
            self.requests.get_mut(key).tasks_open -= gone;
        }
        while let Some((at, _)) = self.merges.range((key, 0)..=(key, usize::MAX)).next() {
            let at = *at;
            self.merges.remove(&at);
        }
        self.remove_if_idle(key);
    }

    fn remove_if_idle(&mut self, key: RequestKey) {
        let request = self.requests.get(key);
        if request.is_completed && request.tasks_open == 0 {
            self.requests.remove(key, self.limits.runs_per_request_max);
        }
    }

    /// One byte of the volume, at the beginning of an extent, for each placement group that has any of its extents.
    #[must_use]
    pub fn group_samples(&self) -> Vec<(GroupId, u64)> {
        let extent_bytes = self.volume().rule().extent_size.bytes();
        let groups_max = self.routes.groups();
        let mut samples = BTreeMap::new();
        for number in 0..self.volume().extents() {
            if samples.len() == groups_max {
                break;
            }
            let offset = number * extent_bytes;
            samples.entry(self.routes.place(offset).1).or_insert(offset);
        }
        samples.into_iter().collect()
    }

    /// The volume was attached elsewhere after this attachment, or deleted: nothing succeeds any more.
    pub fn handle_fence(&mut self) {
        self.fence();
    }

    fn fence(&mut self) {
        self.is_fenced = true;
        let keys: Vec<RequestKey> = self.requests.keys().collect();
        for key in keys {
            // Those that came later were let go on by those before, and end here too.
            if self.requests.contains(key) && !self.requests.get(key).is_completed {
                self.complete(key, Err(Error::Fenced));
            }
        }
    }

    /// Whether the volume was attached elsewhere or deleted: every request fails from then on.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        self.is_fenced
    }
}

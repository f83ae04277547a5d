//! Tasks: requests to servers, from their making to their last answer.
//!
//! A task is queued, in flight, or waits for its pause to end. Its number stays the same however often it is sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ashlar_placement::map::GroupId;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::SubrequestId;
use super::requests::RequestKey;
use crate::message::{ExtentRange, RequestNumber, Verb};

/// What a task is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// The request's own verb, with the bytes of a write.
    Run(Verb, Bytes),
    /// A block for a run that the guest names in part, to be put at this position of the run.
    Edge(usize),
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Queued,
    /// Sent under this epoch.
    InFlight(Epoch),
    Waiting(Instant),
    /// Answered; its owner decides.
    Landed,
}

/// One task.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) request: RequestKey,
    /// The run of the request to which it belongs.
    pub(super) run: usize,
    /// The volume's byte at which the range begins.
    pub(super) start: u64,
    pub(super) group: GroupId,
    pub(super) range: ExtentRange,
    pub(super) work: Work,
    /// Times that it was sent.
    attempts: u32,
    /// Times that it was answered with anything but a result.
    pub(super) failures: u32,
    state: State,
}

impl Task {
    pub(super) const fn new(
        request: RequestKey,
        run: usize,
        start: u64,
        group: GroupId,
        range: ExtentRange,
        work: Work,
    ) -> Self {
        Self { request, run, start, group, range, work, attempts: 0, failures: 0, state: State::Queued }
    }

    pub(super) const fn verb(&self) -> Verb {
        match self.work {
            Work::Run(verb, _) => verb,
            Work::Edge(_) => Verb::Read,
        }
    }

    pub(super) fn payload(&self) -> Bytes {
        match &self.work {
            Work::Run(_, payload) => payload.clone(),
            Work::Edge(_) => Bytes::new(),
        }
    }

    /// Payload bytes in either direction.
    const fn payload_len(&self) -> u64 {
        match self.verb() {
            Verb::Read | Verb::Write => self.range.len as u64,
            Verb::Zero | Verb::ZeroInPlace | Verb::Discard | Verb::Presence => 0,
        }
    }
}

/// How many tasks, and bytes of them, may be in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlightLimits {
    pub(super) tasks_max: usize,
    pub(super) bytes_max: u64,
}

/// All tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    limits: FlightLimits,
    all: BTreeMap<RequestNumber, Task>,
    next_number: u64,
    queued: VecDeque<RequestNumber>,
    waiting: BTreeSet<(Instant, RequestNumber)>,
    in_flight: usize,
    in_flight_bytes: u64,
    /// Changes that are not finished.
    unsettled: BTreeSet<(GroupId, RequestNumber)>,
}

impl Tasks {
    pub(super) const fn new(limits: FlightLimits) -> Self {
        Self {
            limits,
            all: BTreeMap::new(),
            next_number: 1,
            queued: VecDeque::new(),
            waiting: BTreeSet::new(),
            in_flight: 0,
            in_flight_bytes: 0,
            unsettled: BTreeSet::new(),
        }
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) const fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Whether another task may be made: no more exist than may be in flight, but for the edges of the last run.
    pub(super) fn has_room(&self) -> bool {
        self.all.len() < self.limits.tasks_max
    }

    pub(super) fn push(&mut self, task: Task) {
        let number = RequestNumber(self.next_number);
        self.next_number += 1;
        if task.verb().changes() {
            self.unsettled.insert((task.group, number));
        }
        self.all.insert(number, task);
        self.queued.push_back(number);
    }

    pub(super) fn get(&self, number: RequestNumber) -> &Task {
        self.all.get(&number).expect("a task stays until it is removed")
    }

    fn get_mut(&mut self, number: RequestNumber) -> &mut Task {
        self.all.get_mut(&number).expect("a task stays until it is removed")
    }

    /// The next task to send, if it may be in flight now.
    pub(super) fn next_to_send(&self) -> Option<RequestNumber> {
        let number = *self.queued.front()?;
        let bytes = self.in_flight_bytes + self.get(number).payload_len();
        let fits = self.in_flight < self.limits.tasks_max && bytes <= self.limits.bytes_max;
        (self.in_flight == 0 || fits).then_some(number)
    }

    /// Whether a task waits to be sent.
    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Sends that task.
    pub(super) fn launch(&mut self, epoch: Epoch) -> SubrequestId {
        let number = self.queued.pop_front().expect("a task was next");
        let task = self.get_mut(number);
        assert_eq!(task.state, State::Queued, "what is queued is not in flight");
        task.state = State::InFlight(epoch);
        task.attempts += 1;
        let id = SubrequestId { number, attempt: task.attempts };
        let bytes = task.payload_len();
        self.in_flight += 1;
        self.in_flight_bytes += bytes;
        id
    }

    /// Takes an answer: the epoch under which the task was sent, or nothing if nobody waits for this answer.
    pub(super) fn land(&mut self, id: SubrequestId) -> Option<Epoch> {
        let task = self.all.get_mut(&id.number)?;
        let State::InFlight(epoch) = task.state else { return None };
        if task.attempts != id.attempt {
            return None;
        }
        task.state = State::Landed;
        let bytes = task.payload_len();
        self.in_flight -= 1;
        self.in_flight_bytes -= bytes;
        Some(epoch)
    }

    /// Counts a failure of a task that has landed.
    pub(super) fn count_failure(&mut self, number: RequestNumber) -> u32 {
        let task = self.get_mut(number);
        task.failures = task.failures.saturating_add(1);
        task.failures
    }

    /// Sends a task again that has landed.
    pub(super) fn requeue(&mut self, number: RequestNumber) {
        self.get_mut(number).state = State::Queued;
        self.queued.push_back(number);
    }

    /// Sends a task again that has landed, at a time.
    pub(super) fn wait(&mut self, number: RequestNumber, until: Instant) {
        self.get_mut(number).state = State::Waiting(until);
        self.waiting.insert((until, number));
    }

    /// When the next pause ends.
    pub(super) fn next_end_of_wait(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, _)| *until)
    }

    /// Queues the tasks whose pause has ended.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while let Some((until, number)) = self.waiting.first().copied()
            && until <= now
        {
            self.waiting.pop_first();
            self.requeue(number);
        }
    }

    /// The groups of tasks that pause.
    pub(super) fn waiting_groups(&self) -> impl Iterator<Item = GroupId> {
        self.waiting.iter().map(|(_, number)| self.get(*number).group)
    }

    /// Ends the pauses of a group's tasks.
    pub(super) fn wake_group(&mut self, group: GroupId) {
        let (woken, rest) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<BTreeSet<_>, _>(|(_, number)| self.all[number].group == group);
        self.waiting = rest;
        woken.into_iter().for_each(|(_, number)| self.requeue(number));
    }

    /// The number below which every change of this session to a group is finished.
    pub(super) fn settled_below(&self, group: GroupId) -> RequestNumber {
        let from = (group, RequestNumber(0));
        let first = self.unsettled.range(from..).next().filter(|(of, _)| *of == group);
        first.map_or(RequestNumber(self.next_number), |(_, number)| *number)
    }

    /// Removes a task that has landed.
    pub(super) fn remove(&mut self, number: RequestNumber) -> Task {
        let task = self.all.remove(&number).expect("a task is removed once");
        assert_eq!(task.state, State::Landed, "a task is removed after its answer");
        self.unsettled.remove(&(task.group, number));
        task
    }

    /// Removes a request's tasks that are not in flight, and says how many.
    pub(super) fn abandon(&mut self, request: RequestKey) -> usize {
        let is_gone = |task: &Task| task.request == request && !matches!(task.state, State::InFlight(_));
        let gone: Vec<RequestNumber> =
            self.all.iter().filter(|(_, task)| is_gone(task)).map(|(number, _)| *number).collect();
        for number in &gone {
            let task = self.all.remove(number).expect("it was listed");
            self.unsettled.remove(&(task.group, *number));
            match task.state {
                State::Queued => self.queued.retain(|queued| queued != number),
                State::Waiting(until) => drop(self.waiting.remove(&(until, *number))),
                State::InFlight(_) | State::Landed => {}
            }
        }
        gone.len()
    }
}

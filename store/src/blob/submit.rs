//! IOs on their way: three queues by urgency, and what each completion means.

use std::collections::{BTreeMap, VecDeque};

use super::Blobs;
use super::operation::OpId;
use crate::io::{Io, IoError, IoId, IoKind, IoOutput};

/// How urgent an IO is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The log: all changes wait for it.
    Log,
    /// A request waits for it.
    Request,
    /// Nobody waits for it.
    Background,
}

/// What an IO is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The batch or summary in flight.
    Log,
    /// A part of a record that an operation reads.
    Read {
        op: OpId,
        /// Which of its records.
        record: usize,
        /// Which part of it.
        span: usize,
        len: usize,
    },
    /// The summary of the segment that is compacted.
    Summary { len: usize },
    /// Records of the segment that is compacted.
    Records { len: usize },
    /// A mark of a segment that is erased.
    Erase(u32),
}

/// IOs that wait for the executor or are with it.
#[derive(Debug, Default)]
pub(super) struct Submissions {
    queues: [VecDeque<Io>; 3],
    /// All that were not completed, those in the queues too.
    purposes: BTreeMap<IoId, Purpose>,
    /// Those that the executor has.
    in_flight: usize,
    next_id: u64,
}

impl Submissions {
    pub(super) fn submit(&mut self, urgency: Urgency, purpose: Purpose, kind: IoKind) {
        let id = IoId(self.next_id);
        self.next_id += 1;
        self.purposes.insert(id, purpose);
        self.queues[urgency as usize].push_back(Io { id, kind });
    }

    pub(super) fn poll(&mut self, ios_max: usize) -> Option<Io> {
        if self.in_flight >= ios_max {
            return None;
        }
        let io = self.queues.iter_mut().find_map(VecDeque::pop_front)?;
        self.in_flight += 1;
        Some(io)
    }

    pub(super) fn complete(&mut self, id: IoId) -> Purpose {
        let purpose = self.purposes.remove(&id).expect("an IO is completed once");
        self.in_flight -= 1;
        purpose
    }

    /// Drops what the executor does not have yet.
    pub(super) fn abandon(&mut self) {
        for io in self.queues.iter_mut().flat_map(core::mem::take) {
            self.purposes.remove(&io.id);
        }
    }
}

impl Blobs {
    pub(super) fn finish_io(&mut self, purpose: Purpose, result: Result<IoOutput, IoError>) {
        match (purpose, result) {
            (Purpose::Read { op, record, span, len }, result) => {
                self.finish_read(op, record, span, result.map(|output| output.into_data(len)));
            }
            (Purpose::Summary { len }, result) => {
                self.finish_summary_read(result.ok().map(|output| output.into_data(len)));
            }
            (Purpose::Records { len }, result) => {
                self.finish_records_read(result.ok().map(|output| output.into_data(len)));
            }
            (_, Err(error)) => self.poison(error),
            (Purpose::Log, Ok(_)) => self.finish_log_write(),
            (Purpose::Erase(segment), Ok(_)) => self.finish_erase(segment),
        }
    }
}

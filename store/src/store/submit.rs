//! IOs on their way: three queues by urgency, and what each completion means.

use std::collections::{BTreeMap, VecDeque};

use super::Store;
use crate::gate::OpId;
use crate::io::{Io, IoError, IoId, IoKind, IoOutput};
use crate::layout::SlotId;
use crate::page::PageId;

/// How urgent an IO is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The journal: all changes wait for it.
    Journal,
    /// A request waits for it.
    Request,
    /// Nobody waits for it.
    Background,
}

/// What an IO is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The batch in flight.
    Journal,
    /// Data of a large write, to its slot.
    Direct(OpId),
    /// Blocks that an operation reads.
    Read { op: OpId, len: usize },
    /// A copy of a table page.
    Page { page: PageId, copy: usize },
    /// Data that is written back to its slot.
    WriteBack(SlotId),
    /// A table page that is written back.
    WriteBackPage,
    /// A sync of the write-back.
    Sync,
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

impl Store {
    pub(super) fn finish_io(&mut self, purpose: Purpose, result: Result<IoOutput, IoError>) {
        match (purpose, result) {
            (Purpose::Read { op, len }, result) => {
                self.finish_read(op, result.map(|output| output.into_data(len)));
            }
            (Purpose::Page { page, copy }, result) => {
                self.finish_page(page, copy, result.map(|output| output.into_data(crate::buffer::BLOCK_BYTES)));
            }
            (_, Err(error)) => self.poison(error),
            (Purpose::Journal, Ok(_)) => self.finish_batch(),
            (Purpose::Direct(op), Ok(_)) => self.finish_direct(op),
            (Purpose::WriteBack(slot), Ok(_)) => {
                self.index.end_writing(slot);
                self.finish_round_io();
            }
            (Purpose::WriteBackPage | Purpose::Sync, Ok(_)) => self.finish_round_io(),
        }
    }
}

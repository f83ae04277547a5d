//! Operations: requests and internal work on their way, step by step.

use ashlar_wire::time::Instant;

use super::Store;
use super::read::{ReadPlan, Salvage};
use crate::error::Error;
use crate::gate::{GateKey, Mode, OpId};
use crate::journal::entry::Entry;
use crate::page::{CellId, PageId};
use crate::request::{Reply, Request, RequestId, RequestKind};

/// For whom an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A request of the caller.
    Request(RequestId),
    /// An extent of a deleted volume is dropped.
    Drop,
    /// The scrub reads an extent.
    Scrub,
}

/// How an operation stands to its gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Outside,
    InLine,
    Inside(Mode),
}

/// What an operation waits for.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing was begun: it can be dropped without a trace.
    Waiting,
    /// Its data is being written to a slot; then its entry is journaled.
    Direct { entry: Entry, outstanding: usize },
    /// Its entry is in the journal's queue or in flight.
    Journaled,
    /// Its blocks are being read.
    Reading(ReadPlan),
    /// The drive failed to read them at once: they are read one by one.
    Salvaging(ReadPlan, Salvage),
}

/// One request or piece of internal work.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) owner: Owner,
    pub(super) deadline: Instant,
    pub(super) kind: RequestKind,
    pub(super) admission: Admission,
    pub(super) pinned: Option<PageId>,
    pub(super) stage: Stage,
}

/// What a step gave.
#[derive(Debug)]
pub(super) enum Flow {
    /// Something has to happen first, and then the operation is ready again or completed.
    Wait,
    /// It is done.
    Done(Result<Reply, Error>),
}

impl From<Error> for Flow {
    fn from(error: Error) -> Self {
        Self::Done(Err(error))
    }
}

impl Operation {
    /// The gate of a change; none for reads.
    pub(super) fn gate_key(&self) -> Option<GateKey> {
        match &self.kind {
            RequestKind::Write { extent, .. }
            | RequestKind::Clear { extent, .. }
            | RequestKind::Replace { extent, .. }
            | RequestKind::ForgetExtent { extent, .. } => Some(GateKey::Extent(*extent)),
            RequestKind::DeleteVolume { volume } | RequestKind::ForgetVolume { volume } => {
                Some(GateKey::Volume(*volume))
            }
            RequestKind::PutRecord { key, .. } | RequestKind::DeleteRecord { key } => {
                Some(GateKey::Record(key.clone()))
            }
            RequestKind::Read { .. }
            | RequestKind::Salvage { .. }
            | RequestKind::Checksums { .. }
            | RequestKind::List { .. }
            | RequestKind::Scan { .. } => None,
        }
    }
}

impl Store {
    pub(super) fn start(&mut self, owner: Owner, request: Request) {
        let id = OpId(self.next_op);
        self.next_op += 1;
        let operation = Operation {
            owner,
            deadline: request.deadline,
            kind: request.kind,
            admission: Admission::Outside,
            pinned: None,
            stage: Stage::Waiting,
        };
        self.operations.insert(id, operation);
        self.ready.push_back(id);
    }

    /// Takes an operation as far as it gets.
    pub(super) fn step(&mut self, id: OpId) {
        let mut operation = self.operations.remove(&id).expect("a ready operation exists");
        let flow =
            if operation.deadline <= self.now { Error::Expired.into() } else { self.advance(id, &mut operation) };
        match flow {
            Flow::Wait => drop(self.operations.insert(id, operation)),
            Flow::Done(result) => self.finish(operation, result),
        }
    }

    fn advance(&mut self, id: OpId, operation: &mut Operation) -> Flow {
        if let Some(flow) = self.enter_gate(id, operation) {
            return flow;
        }
        match &operation.kind {
            RequestKind::Write { .. }
            | RequestKind::Clear { .. }
            | RequestKind::Replace { .. }
            | RequestKind::ForgetExtent { .. } => self.change_extent(id, operation),
            RequestKind::Read { .. } | RequestKind::Salvage { .. } | RequestKind::Checksums { .. } => {
                self.advance_read(id, operation)
            }
            RequestKind::List { group, after } => Flow::Done(Ok(self.list(*group, *after))),
            RequestKind::Scan { after } => Flow::Done(Ok(self.scan(after.as_ref()))),
            RequestKind::DeleteVolume { .. }
            | RequestKind::ForgetVolume { .. }
            | RequestKind::PutRecord { .. }
            | RequestKind::DeleteRecord { .. } => self.change_table(id, operation),
        }
    }

    /// Puts a change behind those that came before it. A small write shares.
    fn enter_gate(&mut self, id: OpId, operation: &mut Operation) -> Option<Flow> {
        let key = operation.gate_key()?;
        if operation.admission != Admission::Outside {
            return None;
        }
        let mode = match &operation.kind {
            RequestKind::Write { data, .. } if data.blocks() < self.config.direct_blocks_min => Mode::Shared,
            _ => Mode::Exclusive,
        };
        self.enter_gate_as(id, operation, &key, mode)
    }

    fn enter_gate_as(&mut self, id: OpId, operation: &mut Operation, key: &GateKey, mode: Mode) -> Option<Flow> {
        if self.gates.acquire(key, mode, id) {
            operation.admission = Admission::Inside(mode);
            return None;
        }
        operation.admission = Admission::InLine;
        Some(Flow::Wait)
    }

    /// Leaves the gate and waits for it to be empty.
    pub(super) fn wait_alone(&mut self, id: OpId, operation: &mut Operation) -> Flow {
        self.leave_gate(operation);
        self.unpin(operation);
        let key = operation.gate_key().expect("a change has a gate");
        match self.enter_gate_as(id, operation, &key, Mode::Exclusive) {
            Some(flow) => flow,
            None => {
                self.ready.push_back(id);
                Flow::Wait
            }
        }
    }

    fn leave_gate(&mut self, operation: &mut Operation) {
        let Admission::Inside(mode) = operation.admission else { return };
        operation.admission = Admission::Outside;
        let key = operation.gate_key().expect("who is inside has a gate");
        let released = self.gates.release(&key, mode);
        for (id, mode) in released.admitted {
            let admitted = self.operations.get_mut(&id).expect("who waits in line exists");
            admitted.admission = Admission::Inside(mode);
            self.ready.push_back(id);
        }
        if let Some(issued) = released.issued {
            self.take_back(issued);
        }
    }

    /// Makes sure that the page of a cell is in memory and stays there; otherwise the operation waits for it.
    pub(super) fn pin(&mut self, id: OpId, operation: &mut Operation, cell: CellId) -> Result<(), Flow> {
        let page = cell.page();
        if operation.pinned == Some(page) {
            return Ok(());
        }
        self.unpin(operation);
        if self.damaged.contains(&page) {
            return Err(Error::Damaged.into());
        }
        let Some(resident) = self.tables.pages.get_mut(&page) else {
            self.load(page, id);
            return Err(Flow::Wait);
        };
        resident.pins += 1;
        operation.pinned = Some(page);
        Ok(())
    }

    pub(super) fn unpin(&mut self, operation: &mut Operation) {
        if let Some(page) = operation.pinned.take() {
            self.tables.pages.get_mut(&page).expect("a pinned page is in memory").pins -= 1;
        }
    }

    /// Ends an operation.
    pub(super) fn finish(&mut self, mut operation: Operation, result: Result<Reply, Error>) {
        self.unpin(&mut operation);
        self.leave_gate(&mut operation);
        self.tables.evict(self.config.pages_cached_max);
        if let (RequestKind::Read { extent, .. }, Err(Error::Damaged | Error::ReadFailed(_))) =
            (&operation.kind, &result)
        {
            self.report_damage(*extent);
        }
        match operation.owner {
            Owner::Request(id) => {
                self.requests -= 1;
                self.completions.push_back((id, result));
            }
            Owner::Drop => self.drops -= 1,
            Owner::Scrub => self.scrub.due = self.config.scrub_interval.map(|interval| self.now + interval),
        }
    }
}

//! Gates: the order of changes to one extent, record or volume.
//!
//! Small writes share an extent's gate: they are ordered by the journal, so many may be in one batch. Everything else has
//! the gate alone, because it looks at what is durable before it decides. Who comes later waits in line.

use std::collections::{BTreeMap, VecDeque};

use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_wire::id::VolumeId;

use crate::page::{CellId, ExtentInfo};
use crate::record::Key;

/// Names an operation inside the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OpId(pub(crate) u64);

/// What is changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GateKey {
    Extent(ExtentId),
    Record(Key),
    Volume(VolumeId),
}

/// With whom a gate is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// What an extent will be once everything that was let through is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Issued {
    pub(crate) cell: CellId,
    /// Version zero: no entry names the cell yet.
    pub(crate) info: ExtentInfo,
}

#[derive(Debug, Default)]
struct Gate {
    shared: usize,
    is_exclusive: bool,
    waiting: VecDeque<(OpId, Mode)>,
    issued: Option<Issued>,
}

impl Gate {
    const fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Shared => !self.is_exclusive,
            Mode::Exclusive => !self.is_exclusive && self.shared == 0,
        }
    }

    const fn enter(&mut self, mode: Mode) {
        match mode {
            Mode::Shared => self.shared += 1,
            Mode::Exclusive => self.is_exclusive = true,
        }
    }
}

/// What the end of an operation causes.
#[derive(Debug, Default)]
pub(crate) struct Released {
    /// Operations that are let through now.
    pub(crate) admitted: Vec<(OpId, Mode)>,
    /// What was planned, when nobody is inside any more.
    pub(crate) issued: Option<Issued>,
}

/// All gates that somebody uses.
#[derive(Debug, Default)]
pub(crate) struct Gates(BTreeMap<GateKey, Gate>);

impl Gates {
    /// Lets an operation through, or puts it in line: then it comes back with [`Gates::release`] of another.
    pub(crate) fn acquire(&mut self, key: &GateKey, mode: Mode, op: OpId) -> bool {
        let gate = self.0.entry(key.clone()).or_default();
        let is_admitted = gate.waiting.is_empty() && gate.admits(mode);
        if is_admitted {
            gate.enter(mode);
        } else {
            gate.waiting.push_back((op, mode));
        }
        is_admitted
    }

    /// An operation that was let through is done.
    pub(crate) fn release(&mut self, key: &GateKey, mode: Mode) -> Released {
        let gate = self.0.get_mut(key).expect("a gate that is left exists");
        match mode {
            Mode::Shared => gate.shared -= 1,
            Mode::Exclusive => gate.is_exclusive = false,
        }
        let mut released = Released::default();
        if gate.shared == 0 {
            released.issued = gate.issued.take();
        }
        while let Some((op, mode)) = gate.waiting.front().copied().filter(|(_, mode)| gate.admits(*mode)) {
            gate.waiting.pop_front();
            gate.enter(mode);
            released.admitted.push((op, mode));
        }
        if gate.shared == 0 && !gate.is_exclusive {
            assert!(gate.waiting.is_empty(), "an open gate has no line");
            self.0.remove(key);
        }
        released
    }

    /// What the extent behind a gate will be.
    pub(crate) fn issued(&mut self, key: &GateKey) -> &mut Option<Issued> {
        &mut self.0.get_mut(key).expect("who asks is inside").issued
    }

    /// Whether others are inside, too.
    pub(crate) fn is_crowded(&self, key: &GateKey) -> bool {
        self.0.get(key).is_some_and(|gate| gate.shared > 1)
    }

    /// Whether somebody changes an extent.
    pub(crate) fn is_used(&self, id: ExtentId) -> bool {
        self.0.contains_key(&GateKey::Extent(id))
    }

    /// Whether somebody changes an extent of a volume.
    pub(crate) fn is_volume_used(&self, volume: VolumeId) -> bool {
        let key = |extent| GateKey::Extent(ExtentId { volume, extent: Extent(extent) });
        self.0.range(key(0)..=key(u64::MAX)).next().is_some()
    }
}

//! One view of a cluster: its nodes, and who owns each slot.

use std::fmt;
use std::str::FromStr;

use crate::keyspace::slot::{SLOTS, Slot};

/// The most nodes that a map has.
pub const NODES_MAX: usize = 16_384;
/// No node: the slot has no owner.
const NOBODY: u16 = u16::MAX;
/// Bytes of a name.
const NAME_BYTES: usize = 20;

/// What a node or a shard is called: 40 letters for clients. It is chosen once and never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name([u8; NAME_BYTES]);

impl Name {
    /// From bytes that nobody else has.
    #[must_use]
    pub const fn new(bytes: [u8; NAME_BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; NAME_BYTES] {
        &self.0
    }

    /// The one that is written so.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        std::str::from_utf8(text).ok()?.parse().ok()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is no name: it has not 40 lower-case hexadecimal letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoName;

impl FromStr for Name {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if text.len() != NAME_BYTES * 2 || !is_hex {
            return Err(NoName);
        }
        let mut name = [0; NAME_BYTES];
        for (at, byte) in name.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).map_err(|_| NoName)?;
        }
        Ok(Self(name))
    }
}

/// Slots from the first to the last, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotRange {
    /// The least slot.
    pub first: Slot,
    /// The greatest slot; not below `first`.
    pub last: Slot,
}

impl SlotRange {
    /// Slots by their numbers, if these are slots in their order.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        match (Slot::new(first), Slot::new(last)) {
            (Some(from), Some(to)) if first <= last => Some(Self { first: from, last: to }),
            _ => None,
        }
    }

    /// Every slot.
    #[must_use]
    pub fn all() -> Self {
        Self::new(0, SLOTS - 1).expect("these are slots in their order")
    }

    /// Their numbers.
    pub fn numbers(self) -> impl Iterator<Item = u16> {
        self.first.number()..=self.last.number()
    }

    /// Sorted slots as ranges that do not touch.
    pub fn gather(slots: impl IntoIterator<Item = u16>) -> Vec<Self> {
        let mut ranges: Vec<Self> = Vec::new();
        for slot in slots.into_iter().filter_map(Slot::new) {
            match ranges.last_mut() {
                Some(range) if range.last.number() + 1 == slot.number() => range.last = slot,
                _ => ranges.push(Self { first: slot, last: slot }),
            }
        }
        ranges
    }
}

impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.first.number(), self.last.number());
        if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }
    }
}

/// How a node is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Health {
    /// Nothing speaks against it.
    #[default]
    Alive,
    /// It was silent for too long, as this node sees it (`fail?`).
    Suspected,
    /// A majority has said so (`fail`).
    Failed,
}

/// Where clients reach a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// The address; empty where the node does not know its own: clients take the one that they are connected to.
    pub host: String,
    /// The name of its machine; empty for none.
    pub hostname: String,
    /// The port without encryption; 0 for none.
    pub port: u16,
    /// That with encryption; 0 for none.
    pub tls_port: u16,
    /// Where other nodes reach it.
    pub bus_port: u16,
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// What it is called.
    pub name: Name,
    /// The shard that it belongs to.
    pub shard: Name,
    /// Where clients reach it.
    pub place: Place,
    /// What people call it; empty for nothing.
    pub nickname: String,
    /// What it may be lost together with; empty for nothing in particular.
    pub zone: String,
    /// Whom it follows, if it is a replica.
    pub primary: Option<Name>,
    /// The epoch of its claim, or of its primary's.
    pub epoch: u64,
    /// How it is seen.
    pub health: Health,
    /// Whether there is a connection to it.
    pub is_connected: bool,
    /// Since when, Unix milliseconds.
    pub connected_ms: i64,
    /// It stands in no ballot.
    pub never_stands: bool,
    /// When it was asked for a sign of life that it has not given yet, Unix milliseconds; 0 for not.
    pub asked_ms: i64,
    /// When it last gave a sign of life, Unix milliseconds.
    pub heard_ms: i64,
    /// How far its data goes: its position in the stream of its shard, as far as that is known here. A replica at 0 has none.
    pub offset: u64,
    /// Nodes that say it is silent.
    pub reports: usize,
    /// The slots that it owns: sorted ranges that do not touch.
    pub slots: Vec<SlotRange>,
}

impl Node {
    /// Whether it follows another.
    #[must_use]
    pub const fn is_replica(&self) -> bool {
        self.primary.is_some()
    }

    /// How many slots it owns.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slots.iter().map(|range| range.numbers().count()).sum()
    }
}

/// What the node's bus counts, for `CLUSTER INFO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BusFigures {
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
}

/// Whether the cluster serves, as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Service {
    /// Calls with keys are served (`cluster_state:ok`).
    pub is_up: bool,
    /// The greatest epoch that is known.
    pub epoch: u64,
    /// Figures of the bus.
    pub bus: BusFigures,
}

/// One view of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// By name.
    nodes: Vec<Node>,
    /// The place of the node itself.
    own: usize,
    /// The place of each slot's owner, or [`NOBODY`].
    owners: Box<[u16]>,
    /// The place of whoever owns the slots that this node has data of: itself, or its primary.
    source: u16,
    service: Service,
}

impl Map {
    /// A view of these nodes, of which one is called `own`. Where several own a slot the one with the greatest epoch does.
    ///
    /// # Panics
    /// None is called so, or there are more than [`NODES_MAX`], or two of a name.
    #[must_use]
    pub fn new(own: Name, mut nodes: Vec<Node>, service: Service) -> Self {
        assert!(nodes.len() <= NODES_MAX, "there are only so many slots");
        nodes.sort_by_key(|node| node.name);
        assert!(nodes.windows(2).all(|pair| pair[0].name != pair[1].name), "each node is there once");
        let place = |name: Name| nodes.binary_search_by_key(&name, |node| node.name).ok();
        let own = place(own).expect("a node knows itself");
        let mut owners = vec![NOBODY; usize::from(SLOTS)].into_boxed_slice();
        for (at, node) in (0_u16..).zip(&nodes) {
            for slot in node.slots.iter().flat_map(|range| range.numbers()) {
                let owner = &mut owners[usize::from(slot)];
                if *owner == NOBODY || nodes[usize::from(*owner)].epoch < node.epoch {
                    *owner = at;
                }
            }
        }
        let owns = |at: u16, slot: &u16| owners[usize::from(*slot)] == at;
        let held: Vec<Vec<SlotRange>> = (0_u16..)
            .zip(&nodes)
            .map(|(at, node)| {
                let slots = node.slots.iter().flat_map(|range| range.numbers());
                SlotRange::gather(slots.filter(|slot| owns(at, slot)))
            })
            .collect();
        nodes.iter_mut().zip(held).for_each(|(node, held)| node.slots = held);
        let place = |name: Name| nodes.binary_search_by_key(&name, |node| node.name).ok();
        let source = nodes[own].primary.map_or(Some(own), place);
        let source = source.and_then(|at| u16::try_from(at).ok()).unwrap_or(NOBODY);
        Self { nodes, own, owners, source, service }
    }

    /// A node that is alone, and whose cluster serves nothing.
    #[must_use]
    pub fn alone(node: Node) -> Self {
        Self::new(node.name, vec![node], Service::default())
    }

    /// All nodes, by name.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node itself.
    #[must_use]
    pub fn own(&self) -> &Node {
        &self.nodes[self.own]
    }

    /// The node of a name.
    #[must_use]
    pub fn node(&self, name: Name) -> Option<&Node> {
        self.nodes.binary_search_by_key(&name, |node| node.name).ok().map(|at| &self.nodes[at])
    }

    /// Who owns a slot.
    #[must_use]
    pub fn owner(&self, slot: Slot) -> Option<&Node> {
        self.nodes.get(usize::from(self.owners[slot.index()]))
    }

    /// Whether this node owns a slot.
    #[inline]
    #[must_use]
    pub fn holds(&self, slot: Slot) -> bool {
        usize::from(self.owners[slot.index()]) == self.own
    }

    /// Whether this node has the data of a slot: it, or its primary, owns it.
    #[inline]
    #[must_use]
    pub fn serves(&self, slot: Slot) -> bool {
        let owner = self.owners[slot.index()];
        owner != NOBODY && owner == self.source
    }

    /// Whether the cluster serves.
    #[inline]
    #[must_use]
    pub const fn service(&self) -> &Service {
        &self.service
    }

    /// Those that follow a node, by name.
    pub fn replicas(&self, of: Name) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.primary == Some(of))
    }

    /// Runs of slots that one node owns, in their order.
    pub fn runs(&self) -> impl Iterator<Item = (SlotRange, &Node)> {
        let mut first = 0_u16;
        self.owners.chunk_by(|one, other| one == other).filter_map(move |run| {
            let count = u16::try_from(run.len()).expect("there are so many slots");
            let range = SlotRange::new(first, first + count - 1).expect("these are slots in their order");
            first += count;
            Some((range, self.nodes.get(usize::from(run[0]))?))
        })
    }

    /// Slots that have an owner.
    #[must_use]
    pub fn slots_assigned(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != NOBODY).count()
    }

    /// Primaries that own slots.
    pub fn shards_with_slots(&self) -> usize {
        self.nodes.iter().filter(|node| !node.slots.is_empty()).count()
    }

    /// Whether another view has other owners, another role for this node, or another service.
    pub(crate) fn differs_in_service(&self, other: &Self) -> bool {
        let owner = |map: &Self, at: usize| map.nodes.get(usize::from(map.owners[at])).map(|node| node.name);
        self.own().name != other.own().name
            || self.own().primary != other.own().primary
            || self.service.is_up != other.service.is_up
            || (0..self.owners.len()).any(|at| owner(self, at) != owner(other, at))
    }
}

//! Model client: reads and writes random blocks, repeats what is not answered, follows configurations, gives up in the end.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ashlar_placement::map::GroupId;
use ashlar_wire::id::VolumeId;

use super::history::Block;
use crate::config::Configuration;
use crate::request::{Generation, Operation, RequestId, SessionId};

/// A request that is not answered.
#[derive(Debug, Clone)]
pub struct Outstanding {
    /// What is asked for.
    pub operation: Operation,
    /// Its blocks, all of one extent.
    pub blocks: Vec<Block>,
    /// For a read: what it must not be older than.
    pub floors: Vec<usize>,
    /// For a write: its number in the world.
    pub write: u64,
    /// For a write: what it writes.
    pub tag: u64,
    /// Its group.
    pub group: GroupId,
    /// When it began.
    pub begun: u64,
    /// When the client gives up.
    pub until: u64,
    /// When the request is sent again.
    pub again_at: u64,
    /// How often it was sent.
    pub tries: u32,
}

/// One client.
#[derive(Debug)]
pub struct Client {
    /// Its session.
    pub session: SessionId,
    /// Number of its next request.
    pub next: u64,
    /// The generation with which it has attached each volume that it may write.
    pub attached: BTreeMap<VolumeId, Generation>,
    /// What it has asked.
    pub outstanding: BTreeMap<RequestId, Outstanding>,
    /// What it knows of configurations.
    pub configurations: BTreeMap<GroupId, Configuration>,
}

impl Client {
    /// A client with nothing outstanding.
    #[must_use]
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            next: 1,
            attached: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            configurations: BTreeMap::new(),
        }
    }

    /// Every request below it is answered or given up.
    #[must_use]
    pub fn floor(&self) -> RequestId {
        self.outstanding.keys().next().copied().unwrap_or(RequestId(self.next))
    }

    /// Whether a write of one of these blocks is outstanding.
    #[must_use]
    pub fn is_writing(&self, blocks: &[Block]) -> bool {
        let writes = |request: &&Outstanding| matches!(request.operation, Operation::Write(_));
        self.outstanding.values().filter(writes).any(|request| request.blocks.iter().any(|b| blocks.contains(b)))
    }

    /// Takes a configuration over if it is newer.
    pub fn learn(&mut self, configuration: &Configuration) {
        let known = self.configurations.get(&configuration.group).map(|known| known.epoch);
        if known.is_none_or(|epoch| configuration.epoch > epoch) {
            self.configurations.insert(configuration.group, configuration.clone());
        }
    }
}

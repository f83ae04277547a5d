//! What the controller and the engines tell each other: identity, assignment and report of one engine.

use ashlar_bus::slot::GroupId;
use ashlar_kv::cluster::Announcement;
use ashlar_kv::cluster::map::{Map, Name};
use ashlar_kv::replicate::{CopyStatus, Upstream};
use ashlar_wire::id::ServerId;

/// An engine of a server, as a member of a replica group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineInfo {
    /// Tells it from others that the server has or ever had.
    pub tag: u32,
    /// Its replica group.
    pub group: GroupId,
    /// What it tells of itself.
    pub told: Announcement,
    /// It has the data of its group, as far as it follows one.
    pub has_data: bool,
}

impl EngineInfo {
    /// A tag for the server's engine of this number, from chance. Its last bit tells the second engine from the first, so that whoever knows a
    /// node's name knows which of the two it is.
    #[must_use]
    pub fn tag(number: usize, chance: u32) -> u32 {
        chance & !1 | u32::from(number > 0)
    }

    /// What clients call it.
    #[must_use]
    pub fn name(&self, server: ServerId) -> Name {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(server.as_bytes());
        bytes[16..].copy_from_slice(&self.tag.to_be_bytes());
        Name::new(bytes)
    }
}

/// What clients call a group.
#[must_use]
pub fn shard_name(group: GroupId) -> Name {
    let mut bytes = [0; 20];
    bytes[12..].copy_from_slice(&group.0.to_be_bytes());
    Name::new(bytes)
}

/// The server that a node belongs to, and its tag there.
#[must_use]
pub fn server_of(name: Name) -> (ServerId, u32) {
    let (server, tag) = name.bytes().split_at(16);
    let server: [u8; 16] = server.try_into().expect("a name has 20 bytes");
    let tag: [u8; 4] = tag.try_into().expect("a name has 20 bytes");
    (ServerId::from_bytes(server), u32::from_be_bytes(tag))
}

/// What an engine is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Its tag and group, to be remembered over restarts.
    pub engine_info: EngineInfo,
    /// The cluster, for its clients.
    pub map: Map,
    /// Where its primary is, if it follows one.
    pub upstream: Option<Upstream>,
    /// Until told otherwise it takes no writes, and tells how far its data go then.
    pub is_paused: bool,
    /// It takes over from its primary by agreement, which waits for how far its data go.
    pub is_awaited: bool,
    /// Its primary has paused for it: clients that it would send there wait, until it serves them itself or its part is another one.
    pub is_successor: bool,
    /// How often it was to throw all its data away so far.
    pub purges: u64,
}

/// What an engine tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What it tells of itself.
    pub told: Announcement,
    /// How far its data go; nothing while they are not whole.
    pub offset: Option<u64>,
    /// What it has of its primary's data, if it follows one.
    pub copy: CopyStatus,
    /// Its writes have ended, as the pause demands: the offset is final.
    pub is_settled: bool,
    /// Slots without an owner stop all service.
    pub needs_all_slots: bool,
    /// Its clients subscribe to something, or did not long ago.
    pub listens: bool,
    /// It is bound to ask a majority of the copies of its shard before it serves it: no other may have leave to take its slots.
    pub asks_majority: bool,
}

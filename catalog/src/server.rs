//! Servers and drives: what the catalog knows of the machines.
//!
//! Liveness is not here: who is alive now is for the bus. A state in the catalog is a decision that outlives a restart.

use ashlar_placement::map::{self, Rack, SetId, Weight, Zone};
use ashlar_wire::id::{DriveId, ServerId};

use crate::codec::{Fields, Sink, Source, read_list, read_server, words, write_list};
use crate::error::FormError;
use crate::table::Row;

/// Most servers of a cluster.
pub const SERVERS_MAX: usize = 4_096;
/// Most drives of a cluster.
pub const DRIVES_MAX: usize = 65_536;
/// Most bytes of an address, `host:port`.
pub const ADDRESS_BYTES_MAX: usize = 262;

words! {
    /// What a server is for now.
    pub ServerState {
        /// Known, holds nothing yet.
        Joining = "joining",
        /// Serves, may hold data and vote.
        Active = "active",
        /// Is being emptied, and is given nothing new.
        Draining = "draining",
        /// Given up: it is not expected back.
        Dead = "dead",
    }
}

words! {
    /// What a drive is made of.
    pub DriveClass {
        /// Rotating.
        Hdd = "hdd",
        /// Flash.
        Ssd = "ssd",
        /// Flash without a cap.
        Nvme = "nvme",
    }
}

words! {
    /// What a drive may be given.
    pub DriveState {
        /// Holds its share.
        Active = "active",
        /// Keeps what it holds and is given nothing more.
        Full = "full",
        /// Is being emptied.
        Draining = "draining",
        /// Given up with all that is on it, for good: what it held is made anew elsewhere, and its id is never used again.
        Failed = "failed",
        /// Not there: its server runs without it. It holds its share still, and comes back or is given up.
        Missing = "missing",
        /// Not there, but at another server, which has told so: moved with its folder, or confused with another one.
        Misplaced = "misplaced",
        /// Not used: it has failed a write or a sync since its server started. It holds its share still.
        Broken = "broken",
    }
}

impl DriveState {
    /// Whether its server runs without it, and may have it again.
    #[must_use]
    pub const fn is_away(self) -> bool {
        matches!(self, Self::Missing | Self::Misplaced | Self::Broken)
    }

    /// The same as placement maps say it.
    #[must_use]
    pub const fn in_map(self) -> map::DriveState {
        match self {
            Self::Active | Self::Missing | Self::Misplaced | Self::Broken => map::DriveState::In,
            Self::Full => map::DriveState::Full,
            Self::Draining | Self::Failed => map::DriveState::Out,
        }
    }
}

/// How many of an object's shards are parity, where so many drives can have one: as many drives may be lost.
#[must_use]
pub const fn parity_shards(drives: usize) -> u8 {
    match drives {
        0 | 1 => 0,
        2 | 3 => 1,
        4 | 5 => 2,
        6 | 7 => 3,
        _ => 4,
    }
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Who it is.
    pub id: ServerId,
    /// Where others reach it, `host:port`, at most [`ADDRESS_BYTES_MAX`] bytes.
    pub address: String,
    /// Its zone. Fixed: another place is another server.
    pub zone: Zone,
    /// Its rack, which stands in the zone. Fixed.
    pub rack: Rack,
    /// The release of the program that it runs, as a number that grows. Gates of features look at it.
    pub release: u32,
    /// What it is for now.
    pub state: ServerState,
}

impl Row for Server {
    type Key = ServerId;
    const KIND: &'static str = "server";
    const ROWS_MAX: usize = SERVERS_MAX;

    fn key(&self) -> ServerId {
        self.id
    }
}

impl Fields for Server {
    fn write(&self, out: &mut impl Sink) {
        out.id("id", self.id.as_bytes());
        out.text("address", &self.address);
        out.uint("zone", u64::from(self.zone.0));
        out.uint("rack", u64::from(self.rack.0));
        out.uint("release", u64::from(self.release));
        self.state.write(out, "state");
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self {
            id: read_server(from, "id")?,
            address: from.text("address", ADDRESS_BYTES_MAX)?,
            zone: Zone(from.uint32("zone")?),
            rack: Rack(from.uint32("rack")?),
            release: from.uint32("release")?,
            state: ServerState::read(from, "state")?,
        })
    }
}

/// One drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// Who it is.
    pub id: DriveId,
    /// The server that it is in. Fixed as far as the catalog goes.
    pub server: ServerId,
    /// What it is made of.
    pub class: DriveClass,
    /// Bytes that it can hold, at least one GiB.
    pub size_bytes: u64,
    /// What it may be given.
    pub state: DriveState,
    /// The set that it belongs to, if any. Kept by the catalog itself.
    pub set: Option<SetId>,
}

/// Bytes of the unit in which maps weigh drives.
pub const WEIGHT_BYTES: u64 = 1 << 30;

impl Drive {
    /// Its share in a placement map: whole GiB, 1 to 2^32 - 1.
    #[must_use]
    pub fn weight(&self) -> Weight {
        Weight(u32::try_from((self.size_bytes / WEIGHT_BYTES).max(1)).unwrap_or(u32::MAX))
    }
}

impl Row for Drive {
    type Key = DriveId;
    const KIND: &'static str = "drive";
    const ROWS_MAX: usize = DRIVES_MAX;

    fn key(&self) -> DriveId {
        self.id
    }
}

impl Fields for Drive {
    fn write(&self, out: &mut impl Sink) {
        out.id("id", self.id.as_bytes());
        out.id("server", self.server.as_bytes());
        self.class.write(out, "class");
        out.uint("bytes", self.size_bytes);
        self.state.write(out, "state");
        write_list(out, "sets", self.set.as_slice(), |out, set| out.uint("set", u64::from(set.0)));
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self {
            id: from.id("id").map(DriveId::from_bytes)?,
            server: read_server(from, "server")?,
            class: DriveClass::read(from, "class")?,
            size_bytes: from.uint("bytes")?,
            state: DriveState::read(from, "state")?,
            set: read_list(from, "sets", 1, |from| from.uint32("set").map(SetId))?.pop(),
        })
    }
}

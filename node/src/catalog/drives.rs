//! Drives that leave: those of this server that are not here any more, and those that a person removes.
//!
//! A server opens all of its drives before it starts, so a drive that the catalog knows of this server and that was not
//! opened is missing for the whole life of the process: its folder was removed, or the machine's drive was replaced or is not
//! mounted. After [`MISSING_MAX`] it is given up for good, unless it may be the last that has some of its data. Until then a person can
//! stop the server and bring the drive back.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;

use ashlar_catalog::change::{Change, Command, ProposalId};
use ashlar_catalog::plan::placement::plan_target;
use ashlar_catalog::raft::catalog::Error;
use ashlar_catalog::server::{Drive, DriveState};
use ashlar_catalog::state::State;
use ashlar_wire::id::{DriveId, ServerId};

use super::CatalogHandle;
use super::context::Place;

/// How long a drive of a running server may be missing before it is given up.
pub const MISSING_MAX: Duration = Duration::from_secs(60);
/// Pause before a proposal that was not taken is made again.
const RETRY: Duration = Duration::from_secs(1);

/// The drives of a server that are neither here nor given up.
fn missing(state: &State, server: ServerId, here: &BTreeSet<DriveId>) -> Vec<DriveId> {
    let is_missing =
        |drive: &&Drive| drive.server == server && drive.state != DriveState::Failed && !here.contains(&drive.id);
    state.drives().filter(is_missing).map(|drive| drive.id).collect()
}

/// How a drive is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveRemoval {
    /// Emptied first, while it serves: nothing is less redundant for it.
    Drain,
    /// Given up at once, because it is lost.
    GiveUp,
}

/// Why a drive is not removed. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoveDriveError {
    // The caller's; no retry helps.
    /// No drive's id begins so.
    Unknown,
    /// Several drives' ids begin so.
    Several(usize),
    /// It was given up before.
    GivenUp,
    /// With the other drives of its set there are not as many servers as there are copies.
    TooFewOthers,

    // Ours. Whether it was taken is not known; a retry is safe.
    /// The catalog has not taken it.
    Catalog(Error),
}

impl fmt::Display for RemoveDriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no drive's id begins so"),
            Self::Several(count) => write!(f, "{count} drives' ids begin so: give more of the id"),
            Self::GivenUp => f.write_str("this drive was given up before"),
            Self::TooFewOthers => f.write_str(
                "the drives of the other servers are too few for the copies: start a server with another drive first, or give this drive up as lost",
            ),
            Self::Catalog(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RemoveDriveError {}

/// The change that begins to remove the drive whose id begins so.
fn plan_removal(state: &State, beginning: &str, how: DriveRemoval) -> Result<(DriveId, Change), RemoveDriveError> {
    let found: Vec<&Drive> = state.drives().filter(|drive| drive.id.to_string().starts_with(beginning)).collect();
    let drive = match found[..] {
        [drive] => drive,
        [] => return Err(RemoveDriveError::Unknown),
        _ => return Err(RemoveDriveError::Several(found.len())),
    };
    if drive.state == DriveState::Failed {
        return Err(RemoveDriveError::GivenUp);
    }
    let state_of = match how {
        DriveRemoval::GiveUp => DriveState::Failed,
        DriveRemoval::Drain => DriveState::Draining,
    };
    let change = Change::SetDriveState { id: drive.id, state: state_of };
    if let (DriveRemoval::Drain, Some(set)) = (how, drive.set) {
        let is_free =
            |other: &&Drive| other.set.is_none() && other.state == DriveState::Active && other.class == drive.class;
        let added: Vec<DriveId> = state.drives().filter(is_free).map(|drive| drive.id).collect();
        let mut next = state.clone();
        let command = Command { id: ProposalId([0; 16]), seen: next.version(), change: change.clone() };
        // On a copy, to see whether the set has a map without the drive.
        let fits = next.apply(&command).is_ok() && plan_target(&next, set, &added).is_ok();
        if !fits {
            return Err(RemoveDriveError::TooFewOthers);
        }
    }
    Ok((drive.id, change))
}

impl CatalogHandle {
    /// Begins to remove the drive whose id begins so. When it returns, the drive is given nothing new: what is on it moves to
    /// others, or is made anew there, while everything is served. Dropping the future leaves open whether it has begun.
    ///
    /// # Errors
    /// See [`RemoveDriveError`].
    pub async fn remove_drive(&self, beginning: &str, how: DriveRemoval) -> Result<DriveId, RemoveDriveError> {
        let state = self.state().await.map_err(RemoveDriveError::Catalog)?;
        let (drive, change) = plan_removal(&state, beginning, how)?;
        self.propose(change).await.map_err(RemoveDriveError::Catalog)?;
        Ok(drive)
    }

    /// Gives up the drives that the catalog knows of this server and that are not among `here`, once the server has run
    /// for so long without them, [`MISSING_MAX`] as a rule. Ends when that is done or the service closes. Dropping the future is safe.
    pub async fn give_up_missing_drives(&self, here: &BTreeSet<DriveId>, after: Duration) {
        let (Ok(catalog), Some(Place { me, host, .. })) = (self.catalog().await, self.0.place.get()) else { return };
        let first = missing(&catalog.state(), *me, here);
        for drive in &first {
            tracing::warn!(
                %drive,
                "the drive is known to the cluster as one of this server and is not here: in {} s it is given up and its data are made anew elsewhere; to keep it, stop this server now and bring the drive's folder back",
                after.as_secs()
            );
        }
        // Also without a missing drive: this server's copy of the catalog may be old.
        host.sleep_until(host.now() + after).await;
        let mut told = BTreeSet::new();
        while !self.0.is_closed() {
            let due = missing(&catalog.state(), *me, here);
            if due.is_empty() {
                return;
            }
            for id in due {
                match catalog.propose(Change::GiveUpMissing(id)).await {
                    Ok(_) => tracing::warn!(drive = %id, "the missing drive is given up"),
                    Err(Error::Stopped) => return,
                    Err(Error::Refused(refused)) if told.insert(id) => tracing::error!(
                        drive = %id,
                        reason = refused.reason,
                        "the missing drive is not given up: it may be the last that has some of its data; stop this server and bring the drive's folder back, or, if it is lost, give it up with `ashlar drives remove ID --lost`"
                    ),
                    // The next look tells whether it was taken.
                    Err(error) => tracing::debug!(drive = %id, %error, "the missing drive is not given up yet"),
                }
            }
            host.sleep_until(host.now() + RETRY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use ashlar_catalog::plan::placement::plan_set;
    use ashlar_catalog::server::{DriveClass, Server, ServerState};
    use ashlar_catalog::set::Copies;
    use ashlar_placement::domains::Conflict;
    use ashlar_placement::map::{Rack, SetId, Shape, Zone};
    use ashlar_wire::id::ClusterId;

    use super::*;

    fn server(id: u8) -> ServerId {
        ServerId::from_bytes([id; 16])
    }

    fn drive(id: u8) -> DriveId {
        DriveId::from_bytes([id; 16])
    }

    /// A state and the number of its last change.
    struct World(State, u8);

    impl World {
        /// Servers 1 and on, and drives with the servers that have them.
        fn new(servers: u8, drives: &[(u8, u8)]) -> Self {
            let mut world = Self(State::new(ClusterId::from_bytes([1; 16])), 0);
            for id in 1..=servers {
                let (id, address, state) = (server(id), format!("host-{id}:1"), ServerState::Active);
                let (zone, rack) = (Zone(0), Rack(0));
                world.make(Change::AddServer(Server { id, address, zone, rack, release: 1, state }));
            }
            for (id, of) in drives {
                let (id, server, class, state) = (drive(*id), server(*of), DriveClass::Ssd, DriveState::Active);
                world.make(Change::AddDrive(Drive { id, server, class, size_bytes: 1 << 30, state, set: None }));
            }
            world
        }

        fn make(&mut self, change: Change) {
            self.1 += 1;
            let command = Command { id: ProposalId([self.1; 16]), seen: self.0.version(), change };
            self.0.apply(&command).unwrap();
        }
    }

    #[test]
    fn what_a_server_has_not_opened_is_missing_until_it_is_given_up() {
        let mut world = World::new(2, &[(1, 1), (2, 1), (3, 2)]);
        let here = |ids: &[u8]| ids.iter().copied().map(drive).collect::<BTreeSet<_>>();
        assert_eq!(missing(&world.0, server(1), &here(&[1, 2])), []);
        assert_eq!(missing(&world.0, server(1), &here(&[2, 9])), [drive(1)], "the other server's is not its own");
        world.make(Change::SetDriveState { id: drive(1), state: DriveState::Failed });
        assert_eq!(missing(&world.0, server(1), &here(&[2])), [], "given up once");
    }

    #[test]
    fn a_drive_is_drained_where_others_can_take_what_it_has() {
        use DriveRemoval::{Drain, GiveUp};
        let mut world = World::new(4, &[(0x11, 1), (0x12, 2), (0x13, 3)]);
        let shape = Shape { pgs: 8, seats: 3, conflict: Conflict::Server };
        let copies = Copies { write_min: 2, acting_min: 1 };
        let set = plan_set(&world.0, SetId(0), shape, DriveClass::Ssd, copies, &[]).unwrap();
        world.make(set);
        let plan = |world: &World, beginning, how| plan_removal(&world.0, beginning, how);
        assert_eq!(plan(&world, "99", Drain), Err(RemoveDriveError::Unknown));
        assert_eq!(plan(&world, "1", Drain), Err(RemoveDriveError::Several(3)));
        assert_eq!(plan(&world, "12", Drain), Err(RemoveDriveError::TooFewOthers));
        let set_state = |state| (drive(0x12), Change::SetDriveState { id: drive(0x12), state });
        assert_eq!(plan(&world, "12", GiveUp), Ok(set_state(DriveState::Failed)));
        let (class, state) = (DriveClass::Ssd, DriveState::Active);
        let row = Drive { id: drive(0x14), server: server(4), class, size_bytes: 1 << 30, state, set: None };
        world.make(Change::AddDrive(row));
        assert_eq!(plan(&world, "1212", Drain), Ok(set_state(DriveState::Draining)));
        world.make(Change::SetDriveState { id: drive(0x12), state: DriveState::Failed });
        assert_eq!(plan(&world, "12", Drain), Err(RemoveDriveError::GivenUp));
    }
}

//! Drives that are away or leave: those of this server that are not here any more, and those that a person removes.
//!
//! A server opens all of its drives before it starts, so a drive that the catalog knows of this server and that was not
//! opened is missing for the whole life of the process: its folder was removed, or the machine's drive was replaced or is not
//! mounted. The catalog is told at once, so that placement groups go on without it. After [`MISSING_MAX`] it is given up for good,
//! unless it may be the last that has some of its data, or another server has told that it is there. Until then a person can stop
//! the server and bring the drive back.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;

use ashlar_catalog::change::{CatalogVersion, Change, Command, ProposalId};
use ashlar_catalog::plan::placement::plan_target;
use ashlar_catalog::raft::catalog::Error;
use ashlar_catalog::server::{Drive, DriveState, parity_shards};
use ashlar_catalog::state::State;
use ashlar_wire::id::{DriveId, ServerId};

use super::CatalogHandle;
use super::context::Place;

/// How long a drive of a running server may be missing before it is given up.
pub const MISSING_MAX: Duration = Duration::from_secs(60);
/// Pause before a proposal that was not taken is made again.
const RETRY: Duration = Duration::from_secs(1);

/// A drive that its server has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveHere {
    /// A write or a sync has failed since.
    pub is_broken: bool,
    /// It has room for objects: whoever walks over its shards tells when it has none left.
    pub keeps_objects: bool,
}

/// What the catalog should say of drives that are here or should be, as a server sees it.
fn plan_places(
    state: &State,
    me: ServerId,
    look: impl Fn(DriveId) -> Option<DriveHere>,
    gives_up: bool,
) -> Vec<(DriveId, Change)> {
    use DriveState::{Active, Broken, Draining, Failed, Full, Misplaced, Missing};
    let change = |drive: &Drive| {
        let say = |state| Some(Change::SetDriveState { id: drive.id, state });
        let here = look(drive.id);
        if drive.server != me {
            // Before its own server has said that it is missing, it may be a copy.
            return if drive.state == Missing && here.is_some() { say(Misplaced) } else { None };
        }
        match (here, drive.state) {
            (None, Active | Full | Broken) => say(Missing),
            (None, Missing | Draining) if gives_up => Some(Change::GiveUpMissing(drive.id)),
            (Some(DriveHere { is_broken: true, .. }), Active | Full) => say(Broken),
            (Some(DriveHere { is_broken: false, .. }), Missing | Misplaced | Broken) => say(Active),
            // No placement group has it any more.
            (Some(DriveHere { keeps_objects: false, .. }), Draining) if drive.set.is_none() => say(Failed),
            _ => None,
        }
    };
    state.drives().filter_map(|drive| Some((drive.id, change(drive)?))).collect()
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
                "the other drives are too few for the copies, which lie on different servers (with `copies_on = \"drives\"`: on different drives): add a drive first, or give this one up as lost",
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

    /// Has the catalog say which drives of this server are missing or broken, which are back or empty, and which are another server's,
    /// by what `look` tells of a drive that is here. Gives the missing ones up once the server has run for so long without them,
    /// [`MISSING_MAX`] as a rule. Ends when the service closes. Dropping the future is safe.
    pub async fn keep_drives(&self, look: impl Fn(DriveId) -> Option<DriveHere> + Send + Sync, after: Duration) {
        let (Ok(catalog), Some(Place { me, host, .. })) = (self.catalog().await, self.0.place.get()) else { return };
        let gives_up_at = host.now() + after;
        let (mut refused, mut said) = (BTreeSet::new(), CatalogVersion::default());
        while !self.0.is_closed() {
            let state = catalog.state();
            // What was said comes back with the log.
            let is_old = state.version() < said;
            let due = if is_old { Vec::new() } else { plan_places(&state, *me, &look, host.now() >= gives_up_at) };
            for (id, change) in due {
                if change == Change::GiveUpMissing(id) && !may_give_up(&state) {
                    if refused.insert(id) {
                        tell_not_given_up(
                            id,
                            "more drives are missing than objects can lose on the others, as many of which may be new and empty",
                        );
                    }
                    continue;
                }
                match catalog.propose(change.clone()).await {
                    Ok(applied) => {
                        said = said.max(applied.version);
                        tell_place(&state, id, &change, after);
                    }
                    Err(Error::Stopped) => return,
                    Err(Error::Refused(why)) if change == Change::GiveUpMissing(id) && refused.insert(id) => {
                        tell_not_given_up(id, &why.reason.to_string());
                    }
                    // The next look tells whether it was taken.
                    Err(error) => {
                        tracing::debug!(drive = %id, %error, "the catalog does not know yet where the drive is");
                    }
                }
            }
            host.sleep_until(host.now() + RETRY).await;
        }
    }
}

/// Whether the drives that are missing may be given up as far as objects go: the others must have what a stripe needs. As many of
/// these as are missing count for nothing: a server makes an empty drive where it finds none. The catalog asks for less, as
/// servers of all releases must agree on what it does.
fn may_give_up(state: &State) -> bool {
    let missing = state.drives().filter(|drive| drive.state == DriveState::Missing).count();
    let all = state.drives().filter(|drive| drive.state != DriveState::Failed).count();
    missing <= usize::from(parity_shards(all.saturating_sub(missing))).max(1)
}

fn tell_not_given_up(drive: DriveId, reason: &str) {
    tracing::error!(
        %drive,
        reason,
        "the missing drive is not given up: some of its data may be nowhere else; stop this server and bring the drive's folder back, or, if it is lost, give it up with `ashlar drives remove ID --lost`"
    );
}

/// Tells of a change of [`plan_places`] that is made.
fn tell_place(state: &State, drive: DriveId, change: &Change, after: Duration) {
    let owner = state.drive(drive).and_then(|drive| state.server(drive.server));
    match change {
        Change::SetDriveState { state: DriveState::Missing, .. } => tracing::warn!(
            %drive,
            "the drive is known to the cluster as one of this server and is not here: after {} s it is given up and its data are made anew elsewhere; to keep it, stop this server now and bring the drive's folder back",
            after.as_secs()
        ),
        Change::SetDriveState { state: DriveState::Misplaced, .. } => tracing::error!(
            %drive,
            "the drive is not used: it is one of server {}; stop both servers and bring the drive's folder back there; it is not given up meanwhile",
            owner.map_or_else(String::new, |owner| format!("{} at {}", owner.id, owner.address))
        ),
        Change::SetDriveState { state: DriveState::Broken, .. } => {
            tracing::warn!(%drive, "placement groups go on without the drive until the server is restarted");
        }
        Change::SetDriveState { state: DriveState::Failed, .. } => {
            tracing::info!(%drive, "the drive is empty and belongs to the cluster no more: it can be taken away");
        }
        Change::GiveUpMissing(_) => tracing::warn!(%drive, "the missing drive is given up"),
        _ => tracing::info!(%drive, "the drive is back"),
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

        /// A set of these drives, or of all, with so many copies.
        fn make_set(&mut self, copies: u8, drives: &[DriveId]) {
            let shape = Shape { pgs: 8, width: copies, conflict: Conflict::Server };
            let needed = Copies { write_min: 2, acting_min: 1 };
            self.make(plan_set(&self.0, SetId(0), shape, DriveClass::Ssd, needed, drives).unwrap());
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
        let plan = |world: &World, me, ids: &[u8], gives_up| {
            let here: BTreeSet<DriveId> = ids.iter().copied().map(drive).collect();
            let works = DriveHere { is_broken: false, keeps_objects: true };
            let planned = plan_places(&world.0, server(me), |id| here.contains(&id).then_some(works), gives_up);
            planned.into_iter().map(|(_, change)| change).collect::<Vec<_>>()
        };
        let set_state = |id, state| Change::SetDriveState { id: drive(id), state };
        assert_eq!(plan(&world, 1, &[1, 2], true), []);
        let is_missing = set_state(1, DriveState::Missing);
        assert_eq!(
            plan(&world, 1, &[2, 9], true),
            std::slice::from_ref(&is_missing),
            "the other server's is not its own"
        );
        assert_eq!(plan(&world, 2, &[1, 3], true), [], "it may be a copy: its own server has it");
        world.make(is_missing);
        assert_eq!(plan(&world, 1, &[2], false), []);
        assert_eq!(plan(&world, 1, &[2], true), [Change::GiveUpMissing(drive(1))]);
        assert_eq!(plan(&world, 1, &[1, 2], true), [set_state(1, DriveState::Active)]);
        let is_elsewhere = set_state(1, DriveState::Misplaced);
        assert_eq!(plan(&world, 2, &[1, 3], true), std::slice::from_ref(&is_elsewhere));
        world.make(is_elsewhere);
        assert_eq!(plan(&world, 2, &[1, 3], true), []);
        assert_eq!(plan(&world, 1, &[2], true), [], "it is there still");
        assert_eq!(plan(&world, 1, &[1, 2], true), [set_state(1, DriveState::Active)]);
        let is_broken = Some(DriveHere { is_broken: true, keeps_objects: false });
        let broken = |world: &World, me| plan_places(&world.0, server(me), |_| is_broken, true);
        assert_eq!(broken(&world, 2), [(drive(3), set_state(3, DriveState::Broken))]);
        world.make(set_state(3, DriveState::Broken));
        assert_eq!(broken(&world, 2), []);
        assert_eq!(plan(&world, 2, &[3], true), [set_state(3, DriveState::Active)], "restarted");
        assert_eq!(plan(&world, 2, &[], true), [set_state(3, DriveState::Missing)]);
        world.make(set_state(1, DriveState::Failed));
        assert_eq!(plan(&world, 1, &[2], true), [], "given up once");
    }

    #[test]
    fn drives_are_not_given_up_on_the_word_of_empty_ones() {
        // Servers with a drive each, of which some are missing, and as many empty ones instead, or none.
        let may = |drives: u8, missing: u8, new: u8| {
            let places: Vec<(u8, u8)> = (1..=drives + new).map(|id| (id, (id - 1) % drives + 1)).collect();
            let mut world = World::new(drives, &places);
            for id in 1..=missing {
                world.make(Change::SetDriveState { id: drive(id), state: DriveState::Missing });
            }
            may_give_up(&world.0)
        };
        assert!(may(3, 1, 0) && may(3, 1, 1), "objects can lose one of three");
        assert!(!may(3, 2, 0) && !may(3, 2, 2), "two new ones are not worth two that had something");
        assert!(may(4, 2, 2) && !may(4, 3, 3) && !may(4, 2, 0));
        assert!(may(16, 4, 4) && !may(16, 5, 5) && may(16, 4, 0));
        let mut world = World::new(3, &[(1, 1), (2, 2), (3, 3), (4, 1)]);
        world.make(Change::SetDriveState { id: drive(1), state: DriveState::Failed });
        world.make(Change::SetDriveState { id: drive(2), state: DriveState::Missing });
        assert!(may_give_up(&world.0), "what is given up counts no more");
    }

    #[test]
    fn an_empty_drive_without_objects_is_given_up() {
        let mut world = World::new(3, &[(1, 1), (2, 2), (3, 3)]);
        world.make_set(2, &[drive(1), drive(2)]);
        let plan = |world: &World, number: u8, keeps_objects| {
            let here = DriveHere { is_broken: false, keeps_objects };
            plan_places(&world.0, server(number), |id| (id == drive(number)).then_some(here), true)
        };
        for number in [1, 3] {
            world.make(Change::SetDriveState { id: drive(number), state: DriveState::Draining });
        }
        assert_eq!(plan(&world, 1, false), [], "placement groups have it");
        let is_empty = Change::SetDriveState { id: drive(3), state: DriveState::Failed };
        assert_eq!(plan(&world, 3, false), [(drive(3), is_empty)]);
        assert_eq!(plan(&world, 3, true), [], "who walks over its shards says so");
    }

    #[test]
    fn a_drive_is_drained_where_others_can_take_what_it_has() {
        use DriveRemoval::{Drain, GiveUp};
        let mut world = World::new(4, &[(0x11, 1), (0x12, 2), (0x13, 3)]);
        world.make_set(3, &[]);
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

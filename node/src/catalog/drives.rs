//! Drives of this server that are not here any more: given up, after a pause.
//!
//! A server opens all of its drives before it starts, so a drive that the catalog knows of this server and that was not
//! opened is missing for the whole life of the process: its folder was removed, or the machine's drive was replaced or is not
//! mounted. After [`MISSING_MAX`] it is given up for good. Until then a person can stop the server and bring the drive back.

use core::time::Duration;
use std::collections::BTreeSet;

use ashlar_catalog::change::Change;
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

impl CatalogHandle {
    /// Gives up the drives that the catalog knows of this server and that are not among `here`, once the server has run
    /// for [`MISSING_MAX`] without them. Ends when that is done or the service closes. Dropping the future is safe.
    pub async fn give_up_missing_drives(&self, here: &BTreeSet<DriveId>) {
        let (Ok(catalog), Some(Place { me, host, .. })) = (self.catalog().await, self.0.place.get()) else { return };
        let first = missing(&catalog.state(), *me, here);
        for drive in &first {
            tracing::warn!(
                %drive,
                "the drive is known to the cluster as one of this server and is not here: in {} s it is given up and its data are made anew elsewhere; to keep it, stop this server now and bring the drive's folder back",
                MISSING_MAX.as_secs()
            );
        }
        // Also without a missing drive: this server's copy of the catalog may be old.
        host.sleep_until(host.now() + MISSING_MAX).await;
        while !self.0.is_closed() {
            let due = missing(&catalog.state(), *me, here);
            if due.is_empty() {
                return;
            }
            for id in due {
                match catalog.propose(Change::SetDriveState { id, state: DriveState::Failed }).await {
                    Ok(_) => tracing::warn!(drive = %id, "the missing drive is given up"),
                    Err(Error::Stopped) => return,
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
    use ashlar_catalog::change::{Command, ProposalId};
    use ashlar_catalog::server::{DriveClass, Server, ServerState};
    use ashlar_placement::map::{Rack, Zone};
    use ashlar_wire::id::ClusterId;

    use super::*;

    #[test]
    fn what_a_server_has_not_opened_is_missing_until_it_is_given_up() {
        let mut state = State::new(ClusterId::from_bytes([1; 16]));
        let mut number = 0;
        let mut make = |state: &mut State, change| {
            number += 1;
            let command = Command { id: ProposalId([number; 16]), seen: state.version(), change };
            state.apply(&command).unwrap();
        };
        let (server, drive) = (|id| ServerId::from_bytes([id; 16]), |id| DriveId::from_bytes([id; 16]));
        for id in 1..=2 {
            let (id, address, state_of) = (server(id), format!("host-{id}:1"), ServerState::Active);
            let (zone, rack) = (Zone(0), Rack(0));
            make(&mut state, Change::AddServer(Server { id, address, zone, rack, release: 1, state: state_of }));
        }
        for (id, of) in [(1, 1), (2, 1), (3, 2)] {
            let (class, state_of) = (DriveClass::Ssd, DriveState::Active);
            let row =
                Drive { id: drive(id), server: server(of), class, size_bytes: 1 << 30, state: state_of, set: None };
            make(&mut state, Change::AddDrive(row));
        }
        let here = |ids: &[u8]| ids.iter().copied().map(drive).collect::<BTreeSet<_>>();
        assert_eq!(missing(&state, server(1), &here(&[1, 2])), []);
        assert_eq!(missing(&state, server(1), &here(&[2, 9])), [drive(1)], "the other server's is not its own");
        make(&mut state, Change::SetDriveState { id: drive(1), state: DriveState::Failed });
        assert_eq!(missing(&state, server(1), &here(&[2])), [], "given up once");
    }
}

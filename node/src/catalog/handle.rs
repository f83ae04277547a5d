//! The catalog as other services of the server use it.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use ashlar_catalog::change::{Applied, CatalogVersion, Change};
use ashlar_catalog::error::RefusalKind;
use ashlar_catalog::raft::catalog::{Catalog, CatalogStatus, Error, News};
use ashlar_catalog::server::{Drive, DriveClass, DriveState};
use ashlar_catalog::state::State;
use ashlar_wire::id::{DriveId, ServerId};

use super::context::{Begun, CatalogContext, Place};
use super::reports::{Report, ReportError};
use crate::together;

/// Between two tries to register a drive, or to bring a report to the leader.
const RETRY: Duration = Duration::from_millis(300);
/// Between two times that a server says that it departs.
const DEPART_AGAIN: Duration = Duration::from_millis(50);
/// How long a server that departs waits for others to take over.
const DEPART_MAX: Duration = Duration::from_secs(3);
/// How long a leader is looked for, for a report.
const REPORT_MAX: Duration = Duration::from_secs(5);

/// Why a drive was not registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterError {
    /// Another server has registered a drive of this id. No retry helps: the drive was moved or copied.
    OfAnother(ServerId),
    /// The drive was given up: its data are made anew elsewhere. No retry helps: what is on it is not wanted any more.
    GivenUp,
    /// The catalog refuses the drive, as too small for example. No retry helps.
    Refused(Error),
    /// The catalog of this server does not run. No retry helps before the server is restarted.
    Stopped(Error),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfAnother(server) => write!(f, "server {server} has registered a drive of this id"),
            Self::GivenUp => f.write_str(
                "the cluster has given up this drive, and makes its data anew from the other copies; as long as objects cannot be read, or are not healed (ashlar_objects_to_heal), leave it here: its shards are read; then stop the server, remove the drive's folder, and start it again: the drive joins as a new one",
            ),
            Self::Refused(error) | Self::Stopped(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RegisterError {}

/// Reads, follows and changes the catalog. Usable from the beginning: whatever needs the catalog waits until it has begun.
/// Copies are the same.
#[derive(Clone)]
pub struct CatalogHandle(pub(super) Arc<CatalogContext>);

impl fmt::Debug for CatalogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogHandle").finish_non_exhaustive()
    }
}

impl CatalogHandle {
    /// The catalog, once it has begun.
    pub(super) async fn catalog(&self) -> Result<Catalog, Error> {
        loop {
            let seen = self.0.beginning.count();
            match self.0.begun() {
                Begun::Running(catalog) => return Ok(catalog),
                Begun::Failed(error) => return Err(error),
                Begun::NotYet if self.0.is_closed() => return Err(Error::Stopped),
                Begun::NotYet => self.0.beginning.notified_since(seen).await,
            }
        }
    }

    /// The state as this server knows it: one version as a whole, perhaps not the latest. Dropping the future is safe.
    ///
    /// # Errors
    /// The catalog of this server could not begin: as [`Catalog::start`] says. No retry helps.
    pub async fn state(&self) -> Result<Arc<State>, Error> {
        Ok(self.catalog().await?.state())
    }

    /// The same without waiting: `None` before the catalog has begun.
    #[must_use]
    pub fn state_now(&self) -> Option<Arc<State>> {
        Some(self.0.catalog()?.state())
    }

    /// The servers that have failed or left, as this one knows. They may be back at any time.
    #[must_use]
    pub fn failed_servers(&self) -> BTreeSet<ServerId> {
        self.0.members().failed()
    }

    /// Whether the state has shown, since this server started, everything that was decided before its start. Until then a key
    /// that was deleted may be there still, and a bucket that was made last is not.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.0.is_caught_up()
    }

    /// Asks the leader how far the log is decided, and waits until the state shows that. Callers at the same time share the
    /// question. Dropping the future is safe.
    ///
    /// # Errors
    /// No leader has answered, or this server stops. A retry is safe.
    pub async fn catch_up(&self) -> Result<(), Error> {
        let catalog = self.catalog().await?;
        let is_answered = self.0.catching_up.ask(|| async { catalog.catch_up().await.is_ok() }).await;
        if is_answered { Ok(()) } else { Err(Error::Unknown) }
    }

    /// The state with all that was decided before this was asked; where nobody says before `late` how far that is, the state as this server
    /// knew it last. Dropping the future is safe.
    ///
    /// # Errors
    /// The server has not [caught up](Self::is_caught_up) since it started. A retry is safe.
    pub async fn recent_state(&self, late: impl Future<Output = ()>) -> Result<Arc<State>, Error> {
        let asked = together::first(self.catch_up(), late).await;
        match self.state_now().filter(|_| self.is_caught_up() || matches!(asked, Some(Ok(())))) {
            Some(state) => Ok(state),
            None => Err(asked.and_then(Result::err).unwrap_or(Error::Unknown)),
        }
    }

    /// Waits for a version after `version`, and tells what has happened. Dropping the future is safe.
    ///
    /// # Errors
    /// As for [`CatalogHandle::state`].
    pub async fn watch(&self, version: CatalogVersion) -> Result<News, Error> {
        Ok(self.catalog().await?.watch(version).await)
    }

    /// Proposes a change, as [`Catalog::propose`].
    ///
    /// # Errors
    /// As there. [`Error::Unknown`] leaves open whether it is applied; so does dropping the future.
    pub async fn propose(&self, change: Change) -> Result<Applied, Error> {
        self.catalog().await?.propose(change).await
    }

    /// How the catalog stands; `None` before it has begun.
    #[must_use]
    pub fn status(&self) -> Option<CatalogStatus> {
        Some(self.0.catalog()?.status())
    }

    /// Makes a drive of this server known to the catalog, with its size of now, and tries until that is done. When it
    /// returns, the drive is part of every later version of the catalog. Dropping the future leaves open whether it is.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub async fn register_drive(&self, id: DriveId, size_bytes: u64, class: DriveClass) -> Result<(), RegisterError> {
        let catalog = self.catalog().await.map_err(RegisterError::Stopped)?;
        let Some(Place { me, host, .. }) = self.0.place.get() else {
            return Err(RegisterError::Stopped(Error::Stopped));
        };
        loop {
            let state = catalog.state();
            let change = match state.drive(id) {
                Some(drive) if drive.server != *me => return Err(RegisterError::OfAnother(drive.server)),
                Some(drive) if drive.state == DriveState::Failed => return Err(RegisterError::GivenUp),
                Some(drive) if drive.state.is_away() => Some(Change::SetDriveState { id, state: DriveState::Active }),
                Some(drive) if drive.size_bytes == size_bytes => return Ok(()),
                Some(_) => Some(Change::SetDriveSize { id, size_bytes }),
                // The leader makes this server known first.
                None if state.server(*me).is_none() => None,
                None => {
                    let (server, state) = (*me, DriveState::Active);
                    Some(Change::AddDrive(Drive { id, server, class, size_bytes, state, set: None }))
                }
            };
            if let Some(change) = change {
                match catalog.propose(change).await {
                    // This server's copy may show it a little later.
                    Ok(_) | Err(Error::Unknown) => {}
                    Err(Error::Refused(refused)) => {
                        let is_passing = matches!(
                            refused.kind,
                            RefusalKind::Stale | RefusalKind::Unknown | RefusalKind::Exists | RefusalKind::BadState
                        );
                        if !is_passing {
                            return Err(RegisterError::Refused(Error::Refused(refused)));
                        }
                    }
                    Err(error) => return Err(RegisterError::Stopped(error)),
                }
            }
            if self.0.is_closed() {
                return Err(RegisterError::Stopped(Error::Stopped));
            }
            host.sleep_until(host.now() + RETRY).await;
        }
    }

    /// Brings what a member of a placement group reports to the leader. When this returns, the leader has it in memory: whoever
    /// reports does so again until the placement group has another epoch. Dropping the future leaves open whether the
    /// leader has it.
    ///
    /// # Errors
    /// See [`ReportError`].
    pub async fn report(&self, report: Report) -> Result<(), ReportError> {
        let catalog = self.catalog().await.map_err(|_| ReportError::NoLeader)?;
        let Some(Place { me, host, peers }) = self.0.place.get() else { return Err(ReportError::NoLeader) };
        let deadline = host.now() + REPORT_MAX;
        loop {
            let done = match catalog.status().leader {
                Some(leader) if leader == *me => self.0.take_report(&catalog, *me, report),
                Some(leader) => peers.report(leader, report).await,
                None => Err(ReportError::NoLeader),
            };
            if done != Err(ReportError::NoLeader) || host.now() + RETRY >= deadline {
                return done;
            }
            host.sleep_until(host.now() + RETRY).await;
        }
    }

    /// Before this server stops: has others lead its placement groups, and go on without its copies where enough are left for writes.
    /// Whether nothing is left that others can take over. Returns at once where nobody can decide, after 3 seconds at the
    /// latest; then others go on once they miss this server. Dropping the future is safe.
    pub async fn depart(&self) -> bool {
        let (Some(catalog), Some(Place { me, host, peers })) = (self.0.catalog(), self.0.place.get()) else {
            return true;
        };
        let deadline = host.now() + DEPART_MAX;
        loop {
            let (status, failed) = (catalog.status(), self.failed_servers());
            let there = status.voters.iter().filter(|voter| !failed.contains(voter)).count();
            if !status.is_running || 2 * there <= status.voters.len() {
                return false;
            }
            let answered = match status.leader {
                Some(leader) if leader == *me => self.0.take_departure(&catalog, *me),
                Some(leader) => peers.depart(leader).await,
                None => Err(ReportError::NoLeader),
            };
            match answered {
                Ok(true) => return true,
                Err(ReportError::NotEntitled) => return false,
                _ => {}
            }
            if host.now() + DEPART_AGAIN >= deadline {
                return false;
            }
            host.sleep_until(host.now() + DEPART_AGAIN).await;
        }
    }
}

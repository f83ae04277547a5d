//! Who has a volume attached: one server at a time, by a generation that fences those before.
//!
//! The catalog says where. The first client of a server attaches, the last one that leaves detaches; the catalog hears of the latter a
//! moment later, or after its leader is back. So a client that comes to another server meanwhile is let wait for [`LEAVING_MAX`],
//! and a detachment that could not be told is told again until it is.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use ashlar_catalog::change::{Change, Outcome as ChangeOutcome};
use ashlar_catalog::raft::catalog::Error as CatalogError;
use ashlar_catalog::state::State;
use ashlar_catalog::volume::{Generation, VolumeRecord};
use ashlar_grid::seam::Runtime;
use ashlar_placement::choose::PgTable;
use ashlar_placement::map::SetId;
use ashlar_volume::Error as VolumeError;
use ashlar_volume::initiator::{self, Initiator, Limits};
use ashlar_volume::message;
use ashlar_wire::id::{ServerId, VolumeId};

use super::{Routes, VolumeService, lock};
use crate::volume::attachment::{Attachment, Failure, PACING};
use crate::{Node, together};

/// How long all placement groups of a volume may take to hear of a new attachment. Less than a client of the admin API waits.
const REACH_MAX: Duration = Duration::from_secs(8);
/// How long a client waits for another server to let a volume go, whose last client may just have left there.
const LEAVING_MAX: Duration = Duration::from_secs(5);
/// Pause before the catalog is told again that a volume is detached.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// Why a volume cannot be attached here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachError {
    /// The caller's: no volume is called so.
    Unknown,
    /// The caller's: another server has it. Safe to retry once it is detached there.
    Elsewhere(ServerId),
    /// The catalog cannot be asked, or refuses. Safe to retry.
    Catalog(CatalogError),
    /// The volume's record makes no volume: ours.
    Damaged,
    /// Some placement groups do not serve now. Safe to retry once they do.
    NotReached,
    /// Another server attached the volume meanwhile. Safe to retry.
    Overtaken,
}

impl core::fmt::Display for AttachError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unknown => f.write_str("no volume is called so"),
            Self::Elsewhere(server) => {
                write!(f, "it is attached at server {server}: connect there, or disconnect its clients there")
            }
            Self::Catalog(error) => error.fmt(f),
            Self::Damaged => f.write_str("its record in the catalog makes no volume"),
            Self::NotReached => f.write_str(
                "some placement groups do not serve now, and may still serve its clients: run the same command again",
            ),
            Self::Overtaken => f.write_str("it was attached again meanwhile: run the same command again"),
        }
    }
}

impl core::error::Error for AttachError {}

impl<R: Runtime> VolumeService<R> {
    /// Attaches a volume here, or joins the clients that have it attached here already. Ends with [`VolumeService::detach`].
    ///
    /// # Errors
    /// See [`AttachError`].
    pub async fn attach(&self, name: &str) -> Result<Arc<Attachment>, AttachError> {
        let id = self.named(name).await?.id;
        // Connections of one client come at the same time, and each attachment would fence the one before.
        let _turn = self.0.turns.take(id).await;
        self.await_leaving(id).await?;
        let state = self.0.catalog.state().await.map_err(AttachError::Catalog)?;
        let record = state.volume_named(name).cloned().ok_or(AttachError::Unknown)?;
        if let Some((attachment, clients)) = lock(&self.0.attached).get_mut(&record.id)
            && !attachment.is_fenced()
        {
            let tables = tables_of(&state, &record);
            attachment.grow(record.size_bytes, &record.parts, tables).map_err(|_| AttachError::Damaged)?;
            *clients += 1;
            return Ok(Arc::clone(attachment));
        }
        let (_, own) = self.here()?;
        let fence = match record.attached {
            Some(other) if other != own => return Err(AttachError::Elsewhere(other)),
            // By an earlier life of this server, or by a client whose leaving was not told.
            Some(_) => Some(record.generation),
            None => None,
        };
        let attachment = Arc::new(self.begin_attachment(&state, &record, own, fence).await?);
        // One that was there is fenced.
        lock(&self.0.attached).insert(record.id, (Arc::clone(&attachment), 1));
        Ok(attachment)
    }

    /// The volume of a name. Where this server has not heard of one, it asks first what was decided meanwhile: it may have been away.
    ///
    /// # Errors
    /// [`AttachError::Unknown`], or [`AttachError::Catalog`].
    pub async fn named(&self, name: &str) -> Result<VolumeRecord, AttachError> {
        let state = self.0.catalog.state().await.map_err(AttachError::Catalog)?;
        if let Some(record) = state.volume_named(name) {
            return Ok(record.clone());
        }
        self.0.catalog.catch_up().await.map_err(AttachError::Catalog)?;
        let state = self.0.catalog.state().await.map_err(AttachError::Catalog)?;
        state.volume_named(name).cloned().ok_or(AttachError::Unknown)
    }

    /// Waits until no other server has the volume, [`LEAVING_MAX`] at most.
    async fn await_leaving(&self, id: VolumeId) -> Result<(), AttachError> {
        let (node, own) = self.here()?;
        let leaving = async {
            loop {
                let state = self.0.catalog.state().await.map_err(AttachError::Catalog)?;
                if state.volume(id).and_then(|record| record.attached).is_none_or(|server| server == own) {
                    return Ok(());
                }
                self.0.catalog.watch(state.version()).await.map_err(AttachError::Catalog)?;
            }
        };
        let late = node.runtime().sleep_until(node.runtime().now() + LEAVING_MAX);
        together::first(leaving, late).await.unwrap_or(Ok(()))
    }

    /// This server, which has started and does not stop.
    fn here(&self) -> Result<(Node<R>, ServerId), AttachError> {
        let stopped = AttachError::Catalog(CatalogError::Stopped);
        Ok((self.node().ok_or(stopped.clone())?, *self.0.own.get().ok_or(stopped)?))
    }

    /// Attaches the volume by the next generation.
    async fn begin_attachment(
        &self,
        state: &State,
        record: &VolumeRecord,
        server: ServerId,
        fence: Option<Generation>,
    ) -> Result<Attachment, AttachError> {
        let change = Change::AttachVolume { id: record.id, server, fence };
        let applied = self.0.catalog.propose(change).await.map_err(AttachError::Catalog)?;
        let ChangeOutcome::Attached(generation) = applied.outcome else { return Err(AttachError::Damaged) };
        self.attachment(state, record, generation.0)
    }

    /// Takes a volume from the server that it is attached to, and detaches it. When this returns, no placement group
    /// serves the attachment that was any more; its requests fail. A volume that is not attached stays so.
    ///
    /// # Errors
    /// See [`AttachError`]. After [`AttachError::NotReached`] the volume is attached at this server, without a client.
    pub async fn take_away(&self, name: &str) -> Result<(), AttachError> {
        let record = self.named(name).await?;
        let state = self.0.catalog.state().await.map_err(AttachError::Catalog)?;
        if record.attached.is_none() {
            return Ok(());
        }
        let (node, own) = self.here()?;
        let attachment = self.begin_attachment(&state, &record, own, Some(record.generation)).await?;
        let late = node.runtime().sleep_until(node.runtime().now() + REACH_MAX);
        // Of these no drive serves anybody again.
        let is_lost = |group| state.pg(group).is_some_and(|config| state.is_given_up(&config));
        let reached = together::first(attachment.reach_all(is_lost), late).await;
        match reached {
            Some(Ok(())) => {}
            Some(Err(Failure::Volume(VolumeError::Fenced))) => return Err(AttachError::Overtaken),
            Some(Err(_)) | None => return Err(AttachError::NotReached),
        }
        let generation = Generation(attachment.generation().0);
        attachment.close();
        let change = Change::DetachVolume { id: record.id, generation };
        self.0.catalog.propose(change).await.map(drop).map_err(AttachError::Catalog)
    }

    fn attachment(&self, state: &State, record: &VolumeRecord, generation: u64) -> Result<Attachment, AttachError> {
        let (node, _) = self.here()?;
        let placed = record.placed().map_err(|_| AttachError::Damaged)?;
        let attachment = initiator::Attachment {
            generation: message::Generation(generation),
            session: message::SessionId(node.draw()),
        };
        let (limits, seed) = (Limits::default(), node.draw());
        let initiator = Initiator::new(attachment, placed, tables_of(state, record), limits, PACING, seed);
        let initiator = initiator.map_err(|_| AttachError::Damaged)?;
        Ok(Attachment::new(Arc::new(Routes(self.clone())), initiator, record.size_bytes))
    }

    /// A client has left. The last one of a volume detaches it, so that another server may have it.
    pub async fn detach(&self, attachment: &Attachment) {
        let (id, generation) = (attachment.volume(), attachment.generation());
        {
            let mut attached = lock(&self.0.attached);
            // One that was fenced may have a successor here by now.
            let Some((_, clients)) = attached.get_mut(&id).filter(|(known, _)| known.generation() == generation) else {
                return;
            };
            *clients -= 1;
            if *clients > 0 {
                return;
            }
            attached.remove(&id);
        }
        attachment.close();
        self.tell_detached(id, Generation(generation.0)).await;
    }

    /// Tells the catalog that this attachment is over, until it knows, the volume is attached here anew, or the server stops.
    async fn tell_detached(&self, id: VolumeId, generation: Generation) {
        loop {
            match self.0.catalog.propose(Change::DetachVolume { id, generation }).await {
                // Refused: it is over, or has a successor.
                Ok(_) | Err(CatalogError::Refused(_)) => return,
                Err(error) => {
                    tracing::info!(%error, volume = %id, "that a volume is detached is not in the catalog yet: it is told again");
                }
            }
            let Ok((node, _)) = self.here() else { return };
            node.runtime().sleep_until(node.runtime().now() + TELL_AGAIN).await;
            if self.is_over() || lock(&self.0.attached).contains_key(&id) {
                return;
            }
        }
    }

    /// Detaches what an earlier life of this server had attached: its clients are gone, and others may have it elsewhere. One that
    /// comes back here attaches anew, by a later generation, which the catalog does not detach then.
    pub(super) async fn release_earlier(self) {
        // What was attached last may not be in the state yet, as the log tells with the next entry only how far it is decided.
        while self.0.catalog.catch_up().await.is_err() {
            let Ok((node, _)) = self.here() else { return };
            node.runtime().sleep_until(node.runtime().now() + TELL_AGAIN).await;
            if self.is_over() {
                return;
            }
        }
        let (Some(own), Ok(state)) = (self.0.own.get().copied(), self.0.catalog.state().await) else { return };
        for record in state.volumes().filter(|record| record.attached == Some(own)) {
            let _turn = self.0.turns.take(record.id).await;
            if lock(&self.0.attached).contains_key(&record.id) {
                continue;
            }
            self.tell_detached(record.id, record.generation).await;
        }
    }
}

/// The tables of the sets that a volume has extents in.
fn tables_of(state: &State, record: &VolumeRecord) -> Vec<Arc<PgTable>> {
    let sets: BTreeSet<SetId> = record.parts.iter().map(|part| part.set).collect();
    // The number of placement groups of a set is fixed, so the first map's is that of all later ones.
    sets.into_iter().filter_map(|set| Some(Arc::new(PgTable::new((*state.set(set)?.first).clone())))).collect()
}

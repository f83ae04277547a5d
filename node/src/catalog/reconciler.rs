//! Reconciler of the catalog: while this server leads the catalog, it makes the catalog follow what the bus and the servers say.
//!
//! It works in rounds. In each it looks at the state, at the members of the bus and at the reports that wait, and does what
//! [`plan`](super::plan) says. A change that comes from elsewhere in between has its proposals refused as stale; the
//! next round decides anew. Two reconcilers at a time, while leaders change, do no harm.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ashlar_catalog::change::{CatalogVersion, Change};
use ashlar_catalog::raft::catalog::{Catalog, CatalogStatus, Error};
use ashlar_catalog::record::{Expected, RecordKey};
use ashlar_catalog::set::{PG_STEPS_MAX, PgStep};
use ashlar_catalog::state::State;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;
use tracing::{debug, error, info, warn};

use super::calls::Membership;
use super::context::{CatalogContext, Members, Place};
use super::plan::{Due, Scene};
use super::{GROUP_NAME_KEY, first};
use crate::together;

/// A round comes this long after the one before, if nothing rings.
const ROUND_EVERY: Duration = Duration::from_millis(500);
/// A round comes no sooner than this after the one before.
const ROUND_MIN: Duration = Duration::from_millis(100);
/// A round does not wait longer for a change of voters.
const VOTERS_WAIT: Duration = Duration::from_secs(2);
/// Servers with a catalog of their own are told of again after this.
const FOREIGN_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// For so long a server says that a leader has given it some of a log, and nothing more, before this leader does.
const GIVEN_WAIT: Duration = Duration::from_secs(10);
/// Steps of placement groups from reports, in one round.
const REPORTED_STEPS_MAX: usize = 4 * PG_STEPS_MAX;

/// See the head of this file.
pub(super) struct Reconciler {
    context: Arc<CatalogContext>,
    catalog: Catalog,
    leads: bool,
    is_failed: bool,
    /// When a server with a catalog of its own was told of.
    foreign_told_at: Option<Instant>,
    /// Since when servers have had a log by a leader that is gone, as it seems.
    given: BTreeMap<ServerId, Instant>,
}

impl Reconciler {
    pub(super) const fn new(context: Arc<CatalogContext>, catalog: Catalog) -> Self {
        Self { context, catalog, leads: false, is_failed: false, foreign_told_at: None, given: BTreeMap::new() }
    }

    /// Runs until the service closes, and stops the catalog then.
    pub(super) async fn run(mut self) {
        loop {
            let seen = self.context.news.count();
            if self.context.is_closed() {
                return self.catalog.stop().await;
            }
            let began = self.now();
            self.look().await;
            let host = &self.place().host;
            host.sleep_until(began + ROUND_MIN).await;
            first(host.sleep_until(began + ROUND_EVERY), self.context.news.notified_since(seen)).await;
        }
    }

    fn place(&self) -> &Place {
        self.context.place.get().expect("the reconciler begins after the service")
    }

    fn now(&self) -> Instant {
        self.place().host.now()
    }

    /// One round, if this server leads.
    async fn look(&mut self) {
        let status = self.catalog.status();
        if !status.is_running && !self.is_failed {
            self.is_failed = true;
            error!(
                "the catalog of this server has stopped: its drive has failed, see above; restart the server once it is repaired"
            );
        }
        let leads = status.is_running && status.leader == Some(self.place().me);
        if leads != self.leads {
            info!(
                leads,
                term = status.term,
                "this server {} the catalog",
                if leads { "leads" } else { "does not lead" }
            );
            self.leads = leads;
            self.given.clear();
            self.context.reports().clear();
            self.context.departures().clear();
        }
        if leads && let Err(error) = self.round().await {
            debug!(%error, "a round of the catalog's reconciler was cut short");
        }
    }

    /// Everything that is due: first what clients wait for. An error ends the round; the next one begins anew.
    async fn round(&mut self) -> Result<(), Error> {
        self.name_group().await?;
        let due = self.plan(|scene| scene.drives());
        self.propose_all(due).await?;
        let due = self.plan(|scene| scene.failures());
        self.propose_all(due).await?;
        self.work_off_reports().await?;
        self.let_servers_depart().await?;
        self.add_servers().await?;
        let due = self.plan(|scene| scene.update_servers());
        self.propose_all(due).await?;
        self.give_logs().await?;
        self.remove_servers().await?;
        self.change_voters().await?;
        let options = self.context.options.clone();
        let due = self.plan(|scene| scene.first_set(&options).into_iter().collect());
        self.propose_all(due).await?;
        let due = self.plan(|scene| scene.settled());
        self.propose_all(due).await?;
        let context = Arc::clone(&self.context);
        let departing = self.departing();
        let due = self.plan(|scene| scene.fillings(&context.reports(), &departing));
        self.propose_all(due).await
    }

    /// Plans over the state and the members of now.
    fn plan<T>(&self, choose: impl FnOnce(&Scene<'_>) -> T) -> T {
        let state: Arc<State> = self.catalog.state();
        let members: Members = self.context.members().clone();
        choose(&Scene { state: &state, members: &members, now: self.now() })
    }

    async fn propose_all(&self, due: Vec<Due>) -> Result<(), Error> {
        for (change, told) in due {
            self.propose(change, &told).await?;
        }
        Ok(())
    }

    /// Proposes a change, and tells of it once it is made. A refusal is no error: the next round decides anew.
    async fn propose(&self, change: Change, told: &str) -> Result<Option<CatalogVersion>, Error> {
        match self.catalog.propose(change).await {
            Ok(applied) => {
                info!(version = applied.version.0, "{told}");
                Ok(Some(applied.version))
            }
            Err(Error::Refused(refused)) => {
                debug!(reason = refused.reason, "the catalog refuses: {told}");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the group a name, by which servers tell whether they are of the same one.
    async fn name_group(&self) -> Result<(), Error> {
        let (space, name) = GROUP_NAME_KEY;
        let key = RecordKey { space: space.into(), name: name.into() };
        if self.catalog.state().record(&key).is_some() {
            return Ok(());
        }
        let host = &self.place().host;
        let value = [host.random().to_be_bytes(), host.random().to_be_bytes()].concat();
        let change = Change::PutRecord { key, expected: Expected::Absent, value };
        self.propose(change, "the catalog of this cluster is founded").await.map(|_| ())
    }

    /// The servers that are about to stop.
    fn departing(&self) -> BTreeSet<ServerId> {
        let members = self.context.members().clone();
        self.context.departures().servers(&members, self.now())
    }

    async fn let_servers_depart(&self) -> Result<(), Error> {
        let departing = self.departing();
        let due = self.plan(|scene| scene.departures(&departing));
        if due.is_empty() {
            self.context.departures().set_done(&departing);
            return Ok(());
        }
        let is_due = self.context.departures().are_due(self.now());
        if is_due { self.propose_all(due).await } else { Ok(()) }
    }

    /// Makes members of the bus known that are of no other catalog.
    async fn add_servers(&mut self) -> Result<(), Error> {
        for id in self.plan(|scene| scene.unknown()) {
            let Some(release) = self.release_of(id).await else { continue };
            if let Some((change, told)) = self.plan(|scene| scene.add_server(id, release)) {
                self.propose(change, &told).await?;
            }
        }
        Ok(())
    }

    /// The release of a server that may join the catalog; none if it does not answer or is of another one.
    async fn release_of(&mut self, id: ServerId) -> Option<u32> {
        if id == self.place().me {
            return Some(super::RELEASE);
        }
        let introduced = self.place().peers.introduce(id).await?;
        let (own, now) = (super::membership_of(&self.catalog, self.place().me), self.now());
        if introduced.membership != Membership::Given {
            self.given.remove(&id);
        }
        match introduced.membership {
            Membership::None => Some(introduced.release),
            same @ Membership::Named(_) if same == own => Some(introduced.release),
            Membership::Unnamed => None,
            // By this catalog's leader of before, as a rule. Another one's would have said more by then.
            Membership::Given => {
                let since = *self.given.entry(id).or_insert(now);
                (now >= since + GIVEN_WAIT).then_some(introduced.release)
            }
            Membership::Named(_) => {
                if self.foreign_told_at.is_none_or(|told| told + FOREIGN_AGAIN_AFTER <= now) {
                    self.foreign_told_at = Some(now);
                    warn!(server = %id, "a server has a catalog of its own and is left out: stop it, move the folder `catalog` of its data directory away, and start it to join this one");
                }
                None
            }
        }
    }

    fn with_log(status: &CatalogStatus) -> BTreeSet<ServerId> {
        status.voters.iter().chain(&status.learners).copied().collect()
    }

    /// Sends the log to servers that do not get it, and makes those active that do.
    async fn give_logs(&mut self) -> Result<(), Error> {
        let with_log = Self::with_log(&self.catalog.status());
        for id in self.plan(|scene| scene.without_log(&with_log)) {
            // It may have lost its log, or have been given another, since it became known.
            if self.release_of(id).await.is_some() {
                self.reconfigured(self.catalog.add_learner(id).await, &format!("server {id} gets the catalog's log"))?;
            }
        }
        let with_log = Self::with_log(&self.catalog.status());
        let due = self.plan(|scene| scene.activate(&with_log));
        self.propose_all(due).await
    }

    async fn remove_servers(&self) -> Result<(), Error> {
        let status = self.catalog.status();
        for id in self.plan(|scene| scene.removable(&status.voters)) {
            if status.learners.contains(&id) {
                self.reconfigured(
                    self.catalog.remove(id).await,
                    &format!("server {id} gets the catalog's log no more"),
                )?;
            }
            self.propose(Change::RemoveServer(id), &format!("server {id} is known to the catalog no more")).await?;
        }
        Ok(())
    }

    async fn change_voters(&self) -> Result<(), Error> {
        let status = self.catalog.status();
        let with_log = Self::with_log(&status);
        let Some(planned) = self.plan(|scene| scene.voters(&status, &with_log)) else { return Ok(()) };
        let told = format!("the catalog has {} voters: {planned:?}", planned.len());
        let host = &self.place().host;
        let late = host.sleep_until(host.now() + VOTERS_WAIT);
        match together::first(self.catalog.change_voters(&planned), late).await {
            Some(done) => self.reconfigured(done, &told),
            // A new voter does not answer. The next round tries again; what else is due is not kept waiting.
            None => Ok(()),
        }
    }

    fn reconfigured(&self, done: Result<(), Error>, told: &str) -> Result<(), Error> {
        match done {
            Ok(()) => info!("{told}"),
            Err(Error::Refused(refused)) => debug!(reason = refused.reason, "the catalog refuses: {told}"),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn work_off_reports(&self) -> Result<(), Error> {
        let state = self.catalog.state();
        let alive = self.context.members().alive_for(Duration::ZERO, self.now());
        let steps = self.context.reports().plan_steps(&state, &alive, self.now(), REPORTED_STEPS_MAX);
        for steps in steps.chunks(PG_STEPS_MAX) {
            let told = format!("{} placement groups change as their members have reported", steps.len());
            if self.propose(Change::ConfigurePgs(steps.to_vec()), &told).await?.is_none() {
                self.propose_apart(steps).await?;
            }
        }
        Ok(())
    }

    /// One of these steps was refused, so that none was taken: each for itself.
    async fn propose_apart(&self, steps: &[PgStep]) -> Result<(), Error> {
        for step in steps {
            if self.plan(|scene| scene.is_due(step)) {
                let told = "a placement group changes as its members have reported";
                self.propose(Change::ConfigurePgs(vec![step.clone()]), told).await?;
            }
        }
        Ok(())
    }
}

//! The catalog as a service of the node: its calls, how it begins, its tasks.

use std::sync::Arc;

use ashlar_catalog::change::Change;
use ashlar_catalog::raft::catalog::{Begin, Catalog, CatalogConfig, Error};
use ashlar_catalog::raft::host::StoredLog;
use ashlar_grid::error::Refusal;
use ashlar_grid::handler::{Handlers, RegisteredTwice};
use ashlar_grid::seam::Runtime;
use ashlar_wire::id::{ClusterId, ServerId};
use tracing::{error, info};

use super::agent::Watcher;
use super::calls::{Depart, Departed, Departing, Introduce, Introduced, Membership, Messages, TakeBrought, TakeReport};
use super::context::{Begun, CatalogContext, Place};
use super::host::GridHost;
use super::reconciler::Reconciler;
use super::reports::{Report, ReportError};
use super::{ASK_AGAIN, CatalogService, RELEASE, membership_of};
use crate::service::{Agent, Service};
use crate::{Node, WeakNode, detour, no_member, stopped};

/// Refused: this server's catalog has not begun, or could not.
const NOT_BEGUN: u32 = 14;

fn not_begun() -> Refusal {
    Refusal::new(NOT_BEGUN, "the catalog of this server does not run")
}

/// Refuses callers that are no members: a server that was forgotten may still know this one.
fn check_member<R: Runtime>(node: &WeakNode<R>, caller: ServerId) -> Result<(), Refusal> {
    let node = node.upgrade().ok_or_else(stopped)?;
    if node.is_met(caller) { Ok(()) } else { Err(no_member()) }
}

impl<R: Runtime> Service<R> for CatalogService {
    fn register(&self, node: &WeakNode<R>, handlers: Handlers) -> Result<Handlers, RegisteredTwice> {
        let (messages, introduces, reports, brings) = (self.0.clone(), self.0.clone(), self.0.clone(), self.0.clone());
        let (sender, reporter, bringer) = (node.clone(), node.clone(), node.clone());
        let handlers = handlers.serve::<Messages, _>(move |call, message| {
            let (context, node) = (messages.clone(), sender.clone());
            async move {
                check_member(&node, call.caller)?;
                let catalog = context.catalog().ok_or_else(not_begun)?;
                Ok(catalog.handle(&message).await)
            }
        })?;
        let handlers = handlers.serve::<Introduce, _>(move |_, ()| {
            let context = introduces.clone();
            async move { introduce(&context).await }
        })?;
        let handlers = handlers.serve::<TakeReport, _>(move |call, report| {
            let (context, node) = (reports.clone(), reporter.clone());
            async move {
                check_member(&node, call.caller)?;
                take_report(&context, call.caller, report)
            }
        })?;
        let handlers = handlers.serve::<TakeBrought, _>(move |call, brought| {
            let (context, node) = (brings.clone(), bringer.clone());
            async move {
                check_member(&node, call.caller)?;
                check_member(&node, brought.from)?;
                take_report(&context, brought.from, brought.report)
            }
        })?;
        let (departs, departing) = (self.0.clone(), node.clone());
        let handlers = handlers.serve::<Depart, _>(move |call, Departing { server }| {
            let (context, node) = (departs.clone(), departing.clone());
            async move {
                check_member(&node, call.caller)?;
                check_member(&node, server)?;
                let catalog = context.catalog().ok_or_else(not_begun)?;
                context.take_departure(&catalog, server).map(|is_done| Departed { is_done }).map_err(refused)
            }
        })?;
        let handlers = detour::serve::<R, Messages>(handlers, node)?;
        let handlers = detour::serve::<R, Introduce>(handlers, node)?;
        let handlers = detour::serve::<R, Depart>(handlers, node)?;
        detour::serve::<R, TakeBrought>(handlers, node)
    }

    fn start(&self, node: &Node<R>) -> Box<dyn Agent> {
        let host = Arc::new(GridHost { runtime: Arc::clone(&node.0.runtime), node: node.downgrade() });
        let grid = &node.0.plan.grid;
        let place = Place { me: grid.server, host: host.clone(), peers: host };
        assert!(self.0.place.set(place).is_ok(), "a service is started once");
        let founds = !node.is_joining();
        let beginning = begin(Arc::clone(&self.0), grid.cluster, founds, node.0.plan.met.is_empty());
        node.runtime().spawn(Box::pin(beginning));
        Box::new(Watcher::new(Arc::clone(&self.0)))
    }

    fn close(&self) {
        self.0.close();
    }
}

impl CatalogContext {
    /// Takes a report of a server, if this one leads.
    pub(super) fn take_report(&self, catalog: &Catalog, from: ServerId, report: Report) -> Result<(), ReportError> {
        if !catalog.is_leader() {
            return Err(ReportError::NoLeader);
        }
        self.reports().handle_report(&catalog.state(), from, report)?;
        self.news.notify();
        Ok(())
    }

    /// A server says that it is about to stop, if this one leads; whether nothing is left that others can take over.
    pub(super) fn take_departure(&self, catalog: &Catalog, from: ServerId) -> Result<bool, ReportError> {
        if !catalog.is_leader() {
            return Err(ReportError::NoLeader);
        }
        let now = self.place.get().ok_or(ReportError::NoLeader)?.host.now();
        let is_done = self.departures().say(from, now);
        self.news.notify();
        Ok(is_done)
    }
}

fn refused(error: ReportError) -> Refusal {
    Refusal::new(error.code(), error.to_string())
}

fn take_report(context: &CatalogContext, from: ServerId, report: Report) -> Result<(), Refusal> {
    let catalog = context.catalog().ok_or_else(not_begun)?;
    context.take_report(&catalog, from, report).map_err(refused)
}

async fn introduce(context: &CatalogContext) -> Result<Introduced, Refusal> {
    let me = context.place.get().ok_or_else(not_begun)?.me;
    let membership = match context.begun() {
        Begun::Running(catalog) => membership_of(&catalog, me),
        // A server that still looks for its catalog has none.
        Begun::NotYet if context.looks_for_catalog() => Membership::None,
        Begun::NotYet | Begun::Failed(_) => return Err(not_begun()),
    };
    Ok(Introduced { release: RELEASE, membership })
}

/// Begins the catalog, and runs what belongs to it until the service closes.
async fn begin(context: Arc<CatalogContext>, cluster: ClusterId, founds: bool, is_new: bool) {
    let place = context.place.get().expect("set before the service begins");
    match begin_catalog(&context, place, cluster, founds, is_new).await {
        Ok(catalog) => {
            context.set_begun(Begun::Running(catalog.clone()));
            let (following, following_catalog) = (Arc::clone(&context), catalog.clone());
            place.host.spawn(Box::pin(async move { keep_release(&following, &following_catalog).await }));
            let (behind, behind_catalog) = (Arc::clone(&context), catalog.clone());
            place.host.spawn(Box::pin(async move { catch_up(&behind, &behind_catalog).await }));
            Reconciler::new(Arc::clone(&context), catalog).run().await;
        }
        Err(error) => {
            error!(%error, "the catalog of this server cannot begin: volumes of this server wait; see the folder `catalog` of its data directory");
            context.set_begun(Begun::Failed(error));
        }
    }
}

/// Asks how far the log was decided until somebody knows, and waits for that.
async fn catch_up(context: &CatalogContext, catalog: &Catalog) {
    let place = context.place.get().expect("set before the service begins");
    while !context.is_closed() {
        match catalog.catch_up().await {
            Ok(()) => return context.set_caught_up(),
            Err(Error::Stopped) => return,
            Err(_) => place.host.sleep_until(place.host.now() + ASK_AGAIN).await,
        }
    }
}

async fn begin_catalog(
    context: &CatalogContext,
    place: &Place,
    cluster: ClusterId,
    founds: bool,
    is_new: bool,
) -> Result<Catalog, Error> {
    let is_empty = context.storage.load().await? == StoredLog::default();
    let begin = match (is_empty, founds) {
        (true, true) if is_new => Begin::First,
        (true, true) => choose_begin(context, place).await,
        // What is said here counts for an empty log only.
        _ => Begin::Join,
    };
    let (host, storage) = (Arc::clone(&place.host), Arc::clone(&context.storage));
    Catalog::start(host, storage, CatalogConfig::default(), cluster, place.me, begin).await
}

/// A server that founds its cluster, has met others and has no log: it was stopped before it had one, or has lost it. It
/// founds only once every server that it has met says that it knows of no catalog; if one does, that one's leader adds it.
async fn choose_begin(context: &CatalogContext, place: &Place) -> Begin {
    context.set_looking();
    let mut told = false;
    loop {
        let mut waits_for = None;
        for server in place.peers.met() {
            match place.peers.introduce(server).await.map(|introduced| introduced.membership) {
                Some(Membership::None) => {}
                Some(Membership::Unnamed | Membership::Given | Membership::Named(_)) => return Begin::Join,
                None => waits_for = Some(server),
            }
        }
        let Some(server) = waits_for else { return Begin::First };
        if !core::mem::replace(&mut told, true) {
            info!(%server, "before this server founds a catalog, every server that it has met must say that there is none; this one does not answer");
        }
        if context.is_closed() {
            return Begin::Join;
        }
        place.host.sleep_until(place.host.now() + ASK_AGAIN).await;
    }
}

/// Tells the catalog which release this server runs, if it says another.
async fn keep_release(context: &CatalogContext, catalog: &Catalog) {
    let place = context.place.get().expect("set before the catalog begins");
    while !context.is_closed() {
        let state = catalog.state();
        let server = state.server(place.me);
        if server.is_some_and(|server| server.release == RELEASE) {
            return;
        }
        if let Some(server) = server {
            let (id, address, release) = (place.me, server.address.clone(), RELEASE);
            // Whatever comes of it, the next look tells.
            let _ = catalog.propose(Change::UpdateServer { id, address, release }).await;
        }
        place.host.sleep_until(place.host.now() + ASK_AGAIN).await;
    }
}

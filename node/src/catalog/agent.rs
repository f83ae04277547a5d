//! The catalog's part on the control thread: tells the reconciler who is there, who is alive and since when.

use ashlar_bus::event::Health;
use ashlar_bus::{Bus, Event};
use ashlar_wire::time::Instant;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::context::{CatalogContext, Seen};
use crate::service::{Agent, NodeAction};

/// See the head of this file.
pub(super) struct Watcher {
    context: Arc<CatalogContext>,
    /// Something has changed since the last look. True at first: what the bus remembers comes without events.
    has_news: bool,
}

impl Watcher {
    pub(super) fn new(context: Arc<CatalogContext>) -> Self {
        Self { context, has_news: true }
    }

    fn look(&self, bus: &Bus, now: Instant) {
        let own = bus.identity().server;
        let mut members = self.context.members();
        let mut seen = BTreeMap::new();
        for member in bus.members() {
            let is_alive = member.id == own || member.health != Health::Failed && !member.has_left;
            let before = members.seen.get(&member.id).filter(|before| before.is_alive == is_alive);
            let since = before.map_or(now, |before| before.since);
            let (address, zone) = (member.address.to_owned(), member.zone.0);
            seen.insert(member.id, Seen { address, zone, is_alive, since });
        }
        members.forgotten.retain(|id| !seen.contains_key(id));
        members.seen = seen;
        drop(members);
        self.context.news.notify();
    }
}

impl Agent for Watcher {
    fn handle_event(&mut self, event: &Event, _now: Instant) {
        match event {
            Event::Forgotten { id } => {
                self.context.members().forgotten.insert(*id);
                self.has_news = true;
            }
            Event::MemberJoined { .. }
            | Event::AddressChanged { .. }
            | Event::Recovered { .. }
            | Event::Returned { .. }
            | Event::Failed { .. }
            | Event::Left { .. } => self.has_news = true,
            _ => {}
        }
    }

    fn turn(&mut self, bus: &mut Bus, now: Instant, _chance: &mut dyn FnMut() -> u64) -> Vec<NodeAction> {
        if core::mem::take(&mut self.has_news) {
            self.look(bus, now);
        }
        Vec::new()
    }

    fn due(&self) -> Instant {
        Instant::NEVER
    }

    fn begin_alone(&mut self, bus: &mut Bus, now: Instant) {
        self.context.members().forgotten.clear();
        self.look(bus, now);
    }

    fn nickname(&self, _description: &[u8]) -> Option<String> {
        None
    }
}

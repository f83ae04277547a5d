//! Whole servers with objects: clients put, read, replace, list and delete objects at all of them, on a fake world.
//!
//! The world is that of [`super::cluster`], with the same faults, stages and healing. Each server keeps shards on its drive, too,
//! and answers for all objects. Clients at each server use the same few keys of two buckets, one of which keeps versions: plain and
//! conditional puts, uploads, ranges, lists and deletions, several at a time.
//!
//! Where as many shards are parity as data, one of the drives may also rot, lose and misplace shards: an object is acknowledged when
//! one shard more is durable than gives it back. Elsewhere that would be one fault more than objects bear, for shards may be missing
//! of what was put while a server was away.
//!
//! Verified: the history of every key is one of a register, as reads, lists and conditions show it; no byte that was read is of
//! another object, or of none; no object is damaged. After everything heals every server reads everything that was ever put,
//! and all shards of all objects are there once more. The same after the power failed everywhere, with a link cut, without one
//! of the servers (then some shards are missing), and after it came back, in half of the worlds with an empty drive.
//!
//! Not verified: that servers make shards anew by themselves in time, for whoever looks whether all are there heals; HTTP, signatures, policies, encryption, locks and rules of lifecycles; space that runs out.

mod client;
mod oracle;
pub(super) mod planted;
mod shelf;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ashlar_grid::seam::Threads as _;

use ashlar_node::object::ObjectNode;
use ashlar_node::service::Service;

use self::client::{Clients, Visit};
use self::shelf::Shelf;
use super::cluster::device::{Habits, Wrongs};
use super::cluster::load::{Birth, Load};
use super::cluster::{ClusterCase, DriveHabits};
use super::lock;
use crate::swarm::Params;
use crate::world::{Control, ServerNo, SimRuntime};

/// The case for one world.
#[must_use]
pub fn case(control: &Control, params: &Params) -> ClusterCase {
    let bears_damage = params.servers.is_multiple_of(2) && params.servers <= 8;
    ClusterCase::with_load(control, params, |_, habits| {
        let worse = if bears_damage { habits.worse } else { Habits { wrong_ppm: 0, ..habits.worse } };
        Box::new(ObjectLoad {
            habits: DriveHabits { worse, ..habits },
            shelves: BTreeMap::new(),
            born: None,
            clients: Arc::default(),
        })
    })
}

/// See the head of this file.
struct ObjectLoad {
    habits: DriveHabits,
    shelves: BTreeMap<ServerNo, Shelf>,
    /// The objects of the life that begins just now.
    born: Option<ObjectNode<SimRuntime>>,
    clients: Arc<Mutex<Clients>>,
}

impl Load for ObjectLoad {
    fn services(&mut self, birth: &Birth) -> Result<Vec<Box<dyn Service<SimRuntime>>>, String> {
        let Birth { control, runtime, drive, volumes } = birth;
        let server = runtime.server();
        let place = u64::from(server.0) << 32 | u64::from(runtime.life());
        if self.shelves.get(&server).is_none_or(|shelf| shelf.drive() != *drive) {
            let habits = if self.shelves.contains_key(&server) { self.habits.good } else { self.habits.of(server) };
            self.shelves.insert(server, Shelf::new(server, *drive, habits, &mut control.rng("shelf", place)));
        }
        let port = self.shelves[&server].open(runtime, control.rng("shards", place))?;
        let clock = control.clone();
        let objects = ObjectNode::new(volumes.clone(), move || {
            u64::try_from(clock.wall_clock_ns(server) / 1_000_000).unwrap_or_default()
        });
        objects.set_blobs(port.map(|port| (*drive, port)).into_iter().collect());
        self.born = Some(objects.clone());
        Ok(vec![Box::new(objects)])
    }

    fn begin(&mut self, birth: &Birth) {
        let Birth { control, runtime, .. } = birth;
        let Some(objects) = self.born.take() else { return };
        let place = u64::from(runtime.server().0) << 32 | u64::from(runtime.life());
        let clients = Arc::clone(&self.clients);
        let visit = Visit::new(control.clone(), runtime.clone(), objects, clients, control.rng("client", place));
        runtime.spawn(Box::pin(visit.run()));
    }

    fn killed(&mut self, control: &Control, runtime: &SimRuntime) {
        lock(&self.clients).left((runtime.server().0, runtime.life()));
        if let Some(shelf) = self.shelves.get(&runtime.server()) {
            let place = u64::from(runtime.server().0) << 32 | u64::from(runtime.life());
            shelf.crash(&mut control.rng("tear of shards", place));
        }
    }

    fn can_lose_one(&self) -> bool {
        // Shards of what was put a moment ago may be on no other drive but this server's and one that was away.
        false
    }

    fn healed(&mut self) {
        self.shelves.values().for_each(Shelf::heal);
    }

    fn has_failed(&self, server: ServerNo) -> bool {
        self.shelves.get(&server).is_some_and(Shelf::has_failed)
    }

    fn ask_for_a_round(&mut self, is_whole: bool) {
        lock(&self.clients).ask_for_a_round(is_whole);
    }

    fn check_round(&self, lives: &[&SimRuntime]) -> Result<(), String> {
        lock(&self.clients).check_round(lives.iter().map(|life| (life.server().0, life.life())))
    }

    fn wrong(&self) -> Option<String> {
        lock(&self.clients).wrong.clone()
    }

    fn check_histories(&self) -> Result<(), String> {
        lock(&self.clients).oracle.check()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        lock(&self.clients).counters()
    }

    fn wrongs(&self) -> Wrongs {
        let mut wrongs = Wrongs::default();
        self.shelves.values().for_each(|shelf| wrongs.add(shelf.wrongs()));
        wrongs
    }
}

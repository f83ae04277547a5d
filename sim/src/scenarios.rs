//! What is put into the world: each scenario is a [`Case`] with its load and its judgement.

mod agreement;
pub mod catalog;
pub mod cluster;
pub mod echo;
pub mod grid;
pub mod kv;
pub mod node;
pub mod object;
mod whole;

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bars::{self, Bars};
use crate::swarm::{Case, Class, Params};
use crate::world::Control;

/// Servers of one world, where nothing else is said.
pub const SERVERS_MAX: u32 = 7;

/// A scenario by name.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// What the command line calls it.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// The faults that it stands.
    pub classes: &'static [Class],
    /// A world has 3 to so many servers.
    pub servers_max: u32,
    /// How long nothing strikes at first in half of the seeds, nanoseconds.
    pub calm_ns: u64,
    /// Makes of what a seed drew what the scenario can stand.
    pub adapt: fn(&mut Params),
    /// The names of bugs that can be planted in what it runs.
    pub bugs: fn() -> Vec<String>,
    /// Plants the bug of that number in all worlds of this thread, or none.
    pub plant: fn(Option<usize>),
    /// How well many seeds must go.
    pub bars: Bars,
    /// Makes its case for one world.
    pub make: fn(&Control, &Params) -> Box<dyn Case>,
}

impl Scenario {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self {
            name: "grid",
            about: "calls and streams between all servers, while everything below them fails",
            classes: Class::ALL,
            servers_max: SERVERS_MAX,
            calm_ns: 0,
            adapt: |_| {},
            bugs: Vec::new,
            plant: drop,
            bars: bars::GRID,
            make: |control, params| Box::new(grid::GridCase::new(control, params)),
        },
        Self {
            name: "node",
            about: "whole servers with a toy service: joining, failing, leaving and coming back",
            classes: Class::OF_TCP,
            servers_max: SERVERS_MAX,
            calm_ns: 0,
            adapt: |_| {},
            bugs: Vec::new,
            plant: drop,
            bars: bars::NODE,
            make: |control, params| Box::new(node::NodeCase::new(control, params)),
        },
        Self {
            name: "kv",
            about: "whole servers with key-value engines, with and without majorities",
            classes: Class::OF_TCP,
            servers_max: 9,
            calm_ns: kv::CALM_NS,
            adapt: |_| {},
            bugs: kv::bugs,
            plant: kv::plant,
            bars: bars::KV,
            make: |control, params| Box::new(kv::KvCase::new(control, params)),
        },
        Self {
            name: "catalog",
            about: "whole servers with the catalog: proposals, voters, members that leave and come back",
            classes: Class::OF_TCP,
            servers_max: SERVERS_MAX,
            calm_ns: 0,
            adapt: |_| {},
            bugs: Vec::new,
            plant: drop,
            bars: bars::CATALOG,
            make: |control, params| Box::new(catalog::CatalogCase::new(control, params)),
        },
        Self {
            name: "cluster",
            about: "whole servers with the catalog, drives and volumes: guests move, drives fail and are replaced",
            classes: Class::OF_TCP,
            servers_max: 9,
            calm_ns: cluster::CALM_NS,
            adapt: cluster::adapt,
            bugs: cluster::bugs,
            plant: cluster::plant,
            bars: bars::CLUSTER,
            make: |control, params| Box::new(cluster::ClusterCase::new(control, params)),
        },
        Self {
            name: "object",
            about: "whole servers with objects: put, read, listed and deleted, while drives fail and are replaced",
            classes: Class::OF_TCP,
            servers_max: 9,
            calm_ns: cluster::CALM_NS,
            adapt: cluster::adapt,
            bugs: object::planted::bugs,
            plant: object::planted::plant,
            bars: bars::OBJECT,
            make: |control, params| Box::new(object::case(control, params)),
        },
        Self {
            name: "echo",
            about: "servers echo bytes over plain connections: shows that the swarm works",
            classes: Class::OF_TCP,
            servers_max: SERVERS_MAX,
            calm_ns: 0,
            adapt: |_| {},
            bugs: Vec::new,
            plant: drop,
            bars: Bars::NONE,
            make: |control, params| Box::new(echo::Echo::new(control, params, None)),
        },
    ];

    /// The scenario of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.name == name)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Cloud disks of a server: drives that hold copies of extents, and volumes that are attached here.
//!
//! In reading order: [`attachment`] (reads and writes of any bytes of a volume), `ranges` (overlapping writes take turns), [`form`]
//! (requests and outcomes as they travel), [`drive_host`] (one drive: its store and the members of placement groups), `link`
//! (messages between servers), `route` (extents and their placement groups by the catalog), [`service`] (all of it together, over the catalog and the grid).

pub mod attachment;
pub mod drive_host;
pub mod form;
mod link;
mod ranges;
mod route;
pub mod service;

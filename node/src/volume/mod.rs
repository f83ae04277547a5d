//! Cloud disks of a server: drives that hold copies of extents, and volumes that are attached here.
//!
//! In reading order: [`attachment`] (reads and writes of any bytes of a volume), `subrequest` (what it asks servers, as calls and as
//! requests of members), [`drive_host`] (one drive: its store and the members of placement groups), [`drive_port`] (the way to it), `link`
//! (messages between servers), `route` (extents and their placement groups by the catalog), `turns` (who attaches a volume),
//! [`space`] (how full drives are), [`figures`] (what requests come to), [`service`] (all of it together, over the catalog and the
//! grid, and who has a volume attached).

pub mod attachment;
pub mod drive_host;
pub mod drive_port;
pub mod figures;
mod link;
mod route;
pub mod service;
pub mod space;
mod subrequest;
mod turns;

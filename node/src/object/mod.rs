//! Objects as a service of the node: the index of buckets beside placement groups, shards on drives, buckets in the catalog.
//!
//! The server that has the primary of a placement group owns the index range of that group, and keeps it in the group's own
//! extents. Any server answers for any object: it asks the owner of the bucket's range, and the drives that have the shards.
//!
//! Parts: [`service`] (calls between servers, tasks), `index_set` (the placement groups of ranges), `index_host` (one range at its owner), `reach` (what the object crate
//! needs of the cluster), `relay` (calls by way of a third server), `buckets` (the list of buckets), [`keys`] (the root key and the master key),
//! [`users`] (who else may ask), [`rights`] (how old what is known of them may be), [`quotas`] (what buckets have and may have), `healing` (when shards are made anew), [`asked_healing`] (of a bucket that an operator asks for), [`damage`] (what drives find to be damaged), [`shards`] (shards as blobs of a drive), `discarding` (when shards of replaced objects are removed), `collecting` (when shards without a record are removed), `expiring` (when objects are deleted by rules of their buckets),
//! `form` (written forms).

pub mod asked_healing;
mod buckets;
mod collecting;
pub mod damage;
mod discarding;
mod expiring;
mod form;
mod healing;
mod index_host;
mod index_set;
pub mod keys;
pub mod quotas;
mod reach;
mod relay;
pub mod rights;
pub mod service;
pub mod shards;
pub mod users;

pub use service::{BlobPort, ObjectNode};

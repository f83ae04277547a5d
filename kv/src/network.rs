//! What the engine needs of the network: doors that move, and connections to other servers.
//!
//! The program lends a [`Network`]. An engine without one, as in tests, has no doors and reaches nobody.

use std::fmt::Debug;
use std::time::Duration;

use crate::cluster::map::Node;
use crate::replicate::Upstream;

/// The network.
pub trait Network: Send + Sync + Debug {
    /// Clients connect at these addresses and this port from now on, and nowhere else; 0 is no port at all. A word is an address,
    /// `*` or `::*` for all of their kind, with `-` before it where it need not be there. Connections that are there stay.
    ///
    /// # Errors
    /// Why not; everything is as before. Retry safe.
    fn listen(&self, addresses: &[&str], port: u16) -> Result<(), String>;

    /// Connects to another server, which takes `span` at most.
    ///
    /// # Errors
    /// It was not reached. Retry safe.
    fn dial(&self, host: &str, port: u16, span: Duration) -> Result<Box<dyn Line>, Broken>;

    /// How another node of the cluster is reached: [`Upstream::Server`] where that proves to it who asks, so that no password is needed.
    fn way_to(&self, node: &Node) -> Upstream {
        Upstream::Address { host: node.place.host.clone(), port: node.place.port }
    }
}

/// A connection to another server. Each call waits, `span` at most.
pub trait Line: Send + Debug {
    /// Sends all of it.
    ///
    /// # Errors
    /// It is not known how much was sent. The connection is of no use any more.
    fn write(&mut self, bytes: &[u8], span: Duration) -> Result<(), Broken>;

    /// Takes some of what came, at least one byte, and says how much.
    ///
    /// # Errors
    /// Nothing came. The connection is of no use any more, unless it only took too long: then it is as it was.
    fn read(&mut self, room: &mut [u8], span: Duration) -> Result<usize, Broken>;

    /// Between whom it is, as people write it: the other end and ours.
    fn ends(&self) -> (String, String) {
        (String::new(), String::new())
    }
}

/// Why a connection failed. The other server's fault, or that of what lies between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// It took too long.
    TooLate,
    /// It is not there, or not any more.
    Gone,
}

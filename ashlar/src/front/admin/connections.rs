//! Connection limits of the admin listener: how many in all, how many from one address, and a reserve for health.
//!
//! A connection counts from its acceptance to its end, as one of the grid too. Beyond a limit a connection is not refused
//! at once: as long as the reserve lasts it may ask one question about health, within seconds, so that a client that
//! holds thousands of connections open does not blind those who watch the server.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of all kinds at once.
pub(super) const CONNECTIONS_MAX: usize = 16_384;

/// Connections from one address. The largest `ashlar up` has 64 servers on one address with at most 9 connections each.
pub(super) const ADDRESS_MAX: u32 = 1_024;

/// Short connections beyond these limits, for questions about health.
pub(super) const RESERVE_MAX: usize = 128;

/// Who is counted together: an IPv4 address, or the network of an IPv6 address (its first 64 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source([u8; 16]);

impl Source {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => Self((u128::from(address) >> 64 << 64).to_be_bytes()),
        }
    }
}

/// All connections that are open. Clones share the counts.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    all: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    sources: Arc<Mutex<BTreeMap<Source, u32>>>,
}

/// What a new connection may do.
#[derive(Debug)]
pub(super) enum Admitted {
    /// Everything.
    Full(Permit),
    /// One question about health.
    Brief(Permit),
}

/// One connection in the counts, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    _place: OwnedSemaphorePermit,
    /// `None` for a connection of the reserve.
    source: Option<(Connections, Source)>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((connections, source)) = &self.source {
            let mut sources = connections.sources();
            let left = sources.get(source).map_or(0, |count| count.saturating_sub(1));
            if left == 0 {
                sources.remove(source);
            } else {
                sources.insert(*source, left);
            }
        }
    }
}

impl Connections {
    /// None are open.
    #[must_use]
    pub(super) fn new() -> Self {
        let (all, reserve) = (Semaphore::new(CONNECTIONS_MAX), Semaphore::new(RESERVE_MAX));
        Self { all: Arc::new(all), reserve: Arc::new(reserve), sources: Arc::default() }
    }

    fn sources(&self) -> MutexGuard<'_, BTreeMap<Source, u32>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that are open now, those of the reserve included.
    #[must_use]
    pub(super) fn open(&self) -> usize {
        CONNECTIONS_MAX - self.all.available_permits() + RESERVE_MAX - self.reserve.available_permits()
    }

    /// Counts a new connection from `address`; `None` if it has to be closed at once.
    #[must_use]
    pub(super) fn admit(&self, address: IpAddr) -> Option<Admitted> {
        let source = Source::of(address);
        let mut sources = self.sources();
        let count = sources.get(&source).copied().unwrap_or_default();
        if count < ADDRESS_MAX
            && let Ok(place) = self.all.clone().try_acquire_owned()
        {
            sources.insert(source, count + 1);
            drop(sources);
            return Some(Admitted::Full(Permit { _place: place, source: Some((self.clone(), source)) }));
        }
        drop(sources);
        let place = self.reserve.clone().try_acquire_owned().ok()?;
        Some(Admitted::Brief(Permit { _place: place, source: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn one_address_leaves_room_for_others_and_for_health() {
        let connections = Connections::new();
        let mut held: Vec<Admitted> = (0..ADDRESS_MAX).filter_map(|_| connections.admit(ip("10.0.0.1"))).collect();
        assert!(held.iter().all(|one| matches!(one, Admitted::Full(_))) && held.len() == ADDRESS_MAX as usize);
        // The same address, written as IPv6, is the same source; another one has its own limit.
        assert!(matches!(connections.admit(ip("::ffff:10.0.0.1")), Some(Admitted::Brief(_))));
        assert!(matches!(connections.admit(ip("10.0.0.2")), Some(Admitted::Full(_))));
        let brief: Vec<Admitted> = (0..RESERVE_MAX).filter_map(|_| connections.admit(ip("10.0.0.1"))).collect();
        assert_eq!((brief.len(), connections.open()), (RESERVE_MAX, ADDRESS_MAX as usize + RESERVE_MAX));
        assert!(connections.admit(ip("10.0.0.1")).is_none(), "the reserve has a limit too");
        held.pop();
        assert!(matches!(connections.admit(ip("10.0.0.1")), Some(Admitted::Full(_))), "a place is free again");
        drop((held, brief));
        assert!(connections.open() == 0 && connections.sources().is_empty(), "nothing is left behind");
    }

    #[test]
    fn one_network_of_ipv6_is_one_source() {
        let connections = Connections::new();
        let network = u128::from("2001:db8:1:2::".parse::<core::net::Ipv6Addr>().expect("an address"));
        let address = |host: u32| IpAddr::from(core::net::Ipv6Addr::from(network | u128::from(host)));
        let held: Vec<Admitted> = (0..ADDRESS_MAX).filter_map(|host| connections.admit(address(host))).collect();
        assert!(matches!(connections.admit(address(ADDRESS_MAX)), Some(Admitted::Brief(_))));
        assert!(matches!(connections.admit(ip("2001:db8:1:3::1")), Some(Admitted::Full(_))));
        drop(held);
    }

    #[test]
    fn all_together_have_a_limit() {
        let connections = Connections::new();
        let address = |number: usize| IpAddr::from((0x0a00_0000 + (number / 1_000) as u32).to_be_bytes());
        let held: Vec<Admitted> =
            (0..CONNECTIONS_MAX).filter_map(|number| connections.admit(address(number))).collect();
        assert!(held.iter().all(|one| matches!(one, Admitted::Full(_))));
        assert!(matches!(connections.admit(ip("10.9.9.9")), Some(Admitted::Brief(_))));
    }
}

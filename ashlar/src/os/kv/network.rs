//! The network for the key-value engine: doors that open and close while it runs, and connections to other servers.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ashlar_kv::Network;
use ashlar_kv::cluster::map::Node;
use ashlar_kv::network::{Broken, Line};
use ashlar_kv::replicate::Upstream;
use ashlar_wire::id::ServerId;
use tokio::sync::{mpsc, watch};

use super::doors::BACKLOG;
use crate::failure::Failure;
use crate::front::resp::Door;
use crate::os::sockets::{self, Listen};
use ashlar_node::keyvalue::assignment::server_of;

/// A door of one worker, until `closed` says that it is to be closed.
pub(super) struct Opened {
    pub(super) door: Door,
    pub(super) closed: watch::Receiver<bool>,
}

/// The network as the engine sees it.
#[derive(Debug)]
pub(super) struct Doorman {
    /// How each worker gets doors.
    workers: Vec<mpsc::UnboundedSender<Opened>>,
    /// Addresses for plain TCP, each with what closes its doors.
    open: Mutex<BTreeMap<SocketAddr, watch::Sender<bool>>>,
    /// Doors of other kinds are never closed.
    _never: watch::Sender<bool>,
    /// Which server this is, if engines of other servers are reached by streams of the grid.
    streams_of: Option<ServerId>,
}

impl Doorman {
    /// Gives each worker its doors, and keeps what closes them.
    pub(super) fn new(
        doors: Vec<Vec<Door>>,
        streams_of: Option<ServerId>,
    ) -> (Self, Vec<mpsc::UnboundedReceiver<Opened>>) {
        let mut open: BTreeMap<SocketAddr, watch::Sender<bool>> = BTreeMap::new();
        let (mut workers, mut receivers) = (Vec::new(), Vec::new());
        let never = watch::Sender::new(false);
        for doors in doors {
            let (sender, receiver) = mpsc::unbounded_channel();
            for door in doors {
                let address = match &door {
                    Door::Tcp(listener) => listener.local_addr().ok(),
                    Door::Tls(..) | Door::Unix(..) => None,
                };
                let close = match address {
                    Some(address) => open.entry(address).or_insert_with(|| watch::Sender::new(false)),
                    None => &never,
                };
                // The receiver is below: nobody has dropped it.
                sender.send(Opened { door, closed: close.subscribe() }).ok();
            }
            workers.push(sender);
            receivers.push(receiver);
        }
        (Self { workers, open: Mutex::new(open), _never: never, streams_of }, receivers)
    }
}

impl Network for Doorman {
    fn listen(&self, addresses: &[&str], port: u16) -> Result<(), String> {
        let wanted = if port == 0 { Vec::new() } else { places(addresses, port)? };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = Vec::new();
        for (place, may_fail) in &wanted {
            if open.contains_key(place) {
                continue;
            }
            match listeners(*place, self.workers.len(), &open) {
                Ok(listeners) => fresh.push((*place, listeners)),
                Err(_) if *may_fail => {}
                // Those that were opened before it are closed with `fresh`.
                Err(failure) => return Err(failure.to_string()),
            }
        }
        open.retain(|place, close| {
            let stays = wanted.iter().any(|(other, _)| other == place);
            if !stays {
                close.send_replace(true);
            }
            stays
        });
        for (place, listeners) in fresh {
            let close = watch::Sender::new(false);
            for (worker, listener) in self.workers.iter().zip(listeners) {
                // A worker that is gone serves nobody.
                worker.send(Opened { door: Door::Tcp(listener), closed: close.subscribe() }).ok();
            }
            open.insert(place, close);
        }
        Ok(())
    }

    fn dial(&self, host: &str, port: u16, span: Duration) -> Result<Box<dyn Line>, Broken> {
        let mut why = Broken::Gone;
        for address in (host, port).to_socket_addrs().map_err(|error| broken(&error))? {
            match TcpStream::connect_timeout(&address, span) {
                Ok(stream) => {
                    // A refused option costs speed only.
                    stream.set_nodelay(true).ok();
                    return Ok(Box::new(TcpLine(stream)));
                }
                Err(error) => why = broken(&error),
            }
        }
        Err(why)
    }

    fn way_to(&self, node: &Node) -> Upstream {
        let (host, port) = (node.place.host.clone(), node.place.port);
        let id = server_of(node.name).0;
        // No server has a stream to itself.
        match self.streams_of {
            Some(own) if own != id => Upstream::Server { id, host, port },
            _ => Upstream::Address { host, port },
        }
    }
}

/// The places that words name, and whether each need not be there.
fn places(words: &[&str], port: u16) -> Result<Vec<(SocketAddr, bool)>, String> {
    let place = |word: &&str| {
        let (name, may_fail) = word.strip_prefix('-').map_or((*word, false), |name| (name, true));
        let address = match name {
            "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            "::*" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            name => name.parse().map_err(|_| format!("{name} is no address"))?,
        };
        Ok((SocketAddr::new(address, port), may_fail))
    };
    words.iter().map(place).collect()
}

/// A listener for each worker. Where one of our own is in the way, which listens for all addresses of the machine or for one of
/// them, both share the port.
fn listeners(
    place: SocketAddr,
    count: usize,
    open: &BTreeMap<SocketAddr, watch::Sender<bool>>,
) -> Result<Vec<TcpListener>, Failure> {
    let is_ours = open.keys().any(|other| {
        other.port() == place.port()
            && other.is_ipv4() == place.is_ipv4()
            && (other.ip().is_unspecified() || place.ip().is_unspecified())
    });
    let how = Listen { backlog: BACKLOG.into(), port_flags: "--port", address_flag: "--bind" };
    if is_ours { sockets::listen_beside(place, count, how) } else { sockets::listen_as(place, count, how) }
}

/// A TCP connection to another server.
#[derive(Debug)]
struct TcpLine(TcpStream);

impl Line for TcpLine {
    fn write(&mut self, bytes: &[u8], span: Duration) -> Result<(), Broken> {
        let set = self.0.set_write_timeout(Some(span));
        set.and_then(|()| self.0.write_all(bytes)).map_err(|error| broken(&error))
    }

    fn ends(&self) -> (String, String) {
        let shown = |address: io::Result<SocketAddr>| address.map(|address| address.to_string()).unwrap_or_default();
        (shown(self.0.peer_addr()), shown(self.0.local_addr()))
    }

    fn read(&mut self, room: &mut [u8], span: Duration) -> Result<usize, Broken> {
        let set = self.0.set_read_timeout(Some(span));
        match set.and_then(|()| self.0.read(room)) {
            Ok(0) => Err(Broken::Gone),
            Ok(count) => Ok(count),
            Err(error) => Err(broken(&error)),
        }
    }
}

fn broken(error: &io::Error) -> Broken {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Broken::TooLate,
        _ => Broken::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;
    const SPAN: Duration = Duration::from_secs(5);

    #[test]
    fn words_name_places() {
        let place = |address: &str, may_fail| (address.parse().unwrap(), may_fail);
        let found = places(&["*", "-::*", "127.0.0.1", "-::1"], 7);
        let expected =
            [place("0.0.0.0:7", false), place("[::]:7", true), place("127.0.0.1:7", false), place("[::1]:7", true)];
        assert_eq!(found, Ok(expected.to_vec()));
        assert_eq!(places(&["nowhere"], 7), Err("nowhere is no address".to_owned()));
    }

    #[test]
    fn doors_open_and_close_all_or_nothing() {
        let first = sockets::listen_as(SocketAddr::from((LOCAL, 0)), 2, Listen::SERVER).unwrap();
        let port = first[0].local_addr().unwrap().port();
        let (doorman, mut workers) =
            Doorman::new(first.into_iter().map(|listener| vec![Door::Tcp(listener)]).collect(), None);
        let mut next = || workers.iter_mut().map(|worker| worker.try_recv().ok()).collect::<Option<Vec<_>>>();
        let before = next().expect("each worker has the door that it began with");
        let taken = TcpListener::bind((LOCAL, 0)).unwrap();
        assert!(doorman.listen(&["127.0.0.1"], taken.local_addr().unwrap().port()).is_err());
        assert!(before.iter().all(|opened| !*opened.closed.borrow()) && next().is_none());
        // All addresses of the machine, this one among them.
        doorman.listen(&["*"], port).unwrap();
        let after = next().expect("each worker has the new door");
        assert!(before.iter().all(|opened| *opened.closed.borrow()));
        assert!(after.iter().all(|opened| !*opened.closed.borrow()));
        doorman.listen(&["*"], 0).unwrap();
        assert!(after.iter().all(|opened| *opened.closed.borrow()) && next().is_none());
    }

    #[test]
    fn a_line_carries_bytes_and_knows_why_it_broke() {
        let (doorman, _) = Doorman::new(Vec::new(), None);
        let other = TcpListener::bind((LOCAL, 0)).unwrap();
        let port = other.local_addr().unwrap().port();
        let mut line = doorman.dial("127.0.0.1", port, SPAN).unwrap();
        let (mut accepted, _) = other.accept().unwrap();
        line.write(b"ping", SPAN).unwrap();
        let mut room = [0; 8];
        accepted.read_exact(&mut room[..4]).unwrap();
        accepted.write_all(&room[..4]).unwrap();
        assert_eq!((line.read(&mut room, SPAN), &room[..4]), (Ok(4), &b"ping"[..]));
        assert_eq!(line.read(&mut room, Duration::from_millis(1)), Err(Broken::TooLate));
        drop(accepted);
        assert_eq!(line.read(&mut room, SPAN), Err(Broken::Gone));
        drop(other);
        assert_eq!(doorman.dial("127.0.0.1", port, SPAN).map(drop), Err(Broken::Gone));
    }
}

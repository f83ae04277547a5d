//! Listeners shared by all workers, and the options of a connection between servers.
#![allow(unsafe_code, reason = "SIOCOUTQ is not offered by std: one ioctl, with its safe twin in the tests")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::failure::Failure;

/// Connections that wait in the kernel for a worker.
const BACKLOG_MAX: i32 = 4_096;

/// Unsent bytes the kernel takes per connection: enough to keep the link busy, few enough that what is written later
/// and is more urgent does not wait long.
const UNSENT_BYTES_MAX: u32 = 128 << 10;

/// One listener per worker on the same address; the kernel spreads connections over them. With port 0 all of them
/// share one free port, which the first one's address tells.
///
/// # Errors
/// The address is in use or not this machine's. Retry safe.
pub fn listen(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, Failure> {
    listen_as(address, count, Listen::SERVER)
}

/// How to listen, and which flags a failure names.
#[derive(Debug, Clone, Copy)]
pub struct Listen {
    /// Connections that wait in the kernel for a worker.
    pub backlog: i32,
    /// The flags that choose another port.
    pub port_flags: &'static str,
    /// The flag that chooses another address.
    pub address_flag: &'static str,
}

impl Listen {
    /// A server's port.
    pub const SERVER: Self =
        Self { backlog: BACKLOG_MAX, port_flags: "--port-base or --listen", address_flag: "--listen" };
}

/// As [`listen`], for another purpose.
///
/// # Errors
/// The address is in use or not this machine's. Retry safe.
pub fn listen_as(address: SocketAddr, count: usize, how: Listen) -> Result<Vec<TcpListener>, Failure> {
    let first = exclusive(address, how).map_err(|error| cannot_listen(address, how, &error))?;
    let open = || -> io::Result<Vec<TcpListener>> {
        // Only now may others share the port: before, a second server would have shared it unnoticed.
        first.set_reuse_port(true)?;
        let shared = first.local_addr()?;
        let address = shared.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut listeners = Vec::with_capacity(count);
        for _ in 1..count {
            let socket = socket(address)?;
            socket.set_reuse_port(true)?;
            socket.bind(&shared)?;
            socket.listen(how.backlog)?;
            listeners.push(socket.into());
        }
        listeners.insert(0, first.try_clone()?.into());
        Ok(listeners)
    };
    open().map_err(|error| cannot_listen(address, how, &error))
}

/// As [`listen_as`], beside listeners of this process on the same port, for more addresses or for fewer.
///
/// # Errors
/// The address is in use or not this machine's. Retry safe.
pub fn listen_beside(address: SocketAddr, count: usize, how: Listen) -> Result<Vec<TcpListener>, Failure> {
    let open = || -> io::Result<TcpListener> {
        let socket = socket(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(how.backlog)?;
        Ok(socket.into())
    };
    let listeners: io::Result<_> = (0..count).map(|_| open()).collect();
    listeners.map_err(|error| cannot_listen(address, how, &error))
}

/// Whether a server could listen there now.
///
/// # Errors
/// Why not, and what to do. Retry safe.
pub fn check_free(address: SocketAddr) -> Result<(), Failure> {
    check_free_as(address, Listen::SERVER)
}

/// As [`check_free`], for another purpose.
///
/// # Errors
/// Why not, and what to do. Retry safe.
pub fn check_free_as(address: SocketAddr, how: Listen) -> Result<(), Failure> {
    exclusive(address, how).map(drop).map_err(|error| cannot_listen(address, how, &error))
}

fn exclusive(address: SocketAddr, how: Listen) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.bind(&address.into())?;
    socket.listen(how.backlog)?;
    Ok(socket)
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn cannot_listen(address: SocketAddr, how: Listen, error: &io::Error) -> Failure {
    let Listen { port_flags, address_flag, .. } = how;
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure::world(
            format!("port {} of {} is in use by another process", address.port(), address.ip()),
            format!(
                "stop that process (`ss -ltnp 'sport = :{}'` names it), or choose other ports with {port_flags}",
                address.port()
            ),
        ),
        io::ErrorKind::AddrNotAvailable => Failure::world(
            format!("{} is not an address of this machine", address.ip()),
            format!("give one of its own with {address_flag}, or 0.0.0.0 for all"),
        ),
        io::ErrorKind::PermissionDenied => Failure::world(
            format!("this user may not listen on port {}", address.port()),
            format!("choose a port from 1024 on with {port_flags}"),
        ),
        _ => Failure::world(
            format!("cannot listen on {address}: {error}"),
            format!("choose another address with {address_flag}"),
        ),
    }
}

/// The address under which others are likely to reach this machine, of the same kind as `like`: that from which it would send to far
/// away. Nothing is sent.
#[must_use]
pub fn own_address(like: IpAddr) -> IpAddr {
    let (any, far): (SocketAddr, SocketAddr) = match like {
        // Addresses of documentation (RFC 5737, RFC 3849): nobody has them.
        IpAddr::V4(_) => ((Ipv4Addr::UNSPECIFIED, 0).into(), (Ipv4Addr::new(192, 0, 2, 1), 9).into()),
        IpAddr::V6(_) => {
            ((Ipv6Addr::UNSPECIFIED, 0).into(), (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into())
        }
    };
    let found = UdpSocket::bind(any).and_then(|socket| socket.connect(far).and_then(|()| socket.local_addr()));
    found.map_or(if like.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }, |local| {
        local.ip()
    })
}

/// Sets what a connection between servers needs. A refused option costs speed only, so it is not an error.
pub fn tune(stream: &tokio::net::TcpStream) {
    let socket = SockRef::from(stream);
    for (option, set) in [
        ("TCP_NODELAY", socket.set_tcp_nodelay(true)),
        ("TCP_NOTSENT_LOWAT", socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)),
    ] {
        if let Err(error) = set {
            tracing::debug!(option, %error, "socket option refused");
        }
    }
}

/// Has the kernel ask the peer whether it is there after so long without a word, and twice more before the connection is given up;
/// never if `after` is nothing.
///
/// # Errors
/// The kernel refuses. Not retry safe: the connection is gone.
pub fn keep_alive(stream: &tokio::net::TcpStream, after: Option<Duration>) -> io::Result<()> {
    let socket = SockRef::from(stream);
    match after {
        None => socket.set_keepalive(false),
        Some(after) => {
            let interval = (after / 3).max(Duration::from_secs(1));
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(after).with_interval(interval).with_retries(3))
        }
    }
}

/// Bytes in the socket's send queue that the peer's kernel has not acknowledged; `None` if the kernel does not say.
pub fn unacked_bytes(socket: &impl AsRawFd) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (SIOCOUTQ) writes one c_int through the pointer, which points to a live c_int of ours; the
    // descriptor is open because `socket` is borrowed for the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    const ANY: &str = "127.0.0.1:0";

    #[test]
    fn workers_share_a_port_and_others_do_not() {
        let listeners = listen(ANY.parse().unwrap(), 3).unwrap();
        let address = listeners[0].local_addr().unwrap();
        assert!(listeners.iter().all(|listener| listener.local_addr().unwrap() == address));
        let failure = listen(address, 3).expect_err("the port is taken");
        assert!(failure.what.contains("is in use") && failure.remedy.contains("--port-base"), "{failure}");
        assert!(check_free(address).is_err());
        let _clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
        let served = listeners.iter().map(|listener| std::iter::from_fn(|| listener.accept().ok()).count());
        let served: Vec<_> = served.collect();
        assert_eq!(served.iter().sum::<usize>(), 64);
        assert!(served.iter().filter(|&&count| count > 0).count() > 1, "one listener got all: {served:?}");
        drop(listeners);
    }

    #[test]
    fn says_what_to_do_about_a_foreign_address() {
        let failure = listen("192.0.2.1:7800".parse().unwrap(), 1).expect_err("a documentation address");
        assert!(failure.what.contains("not an address of this machine"), "{failure}");
    }

    /// The safe twin: what was written and not yet read by anybody, counted by hand.
    #[test]
    fn unacked_bytes_rise_and_fall() {
        let listener = TcpListener::bind(ANY).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        assert_eq!(unacked_bytes(&near), Some(0));
        near.set_nonblocking(true).unwrap();
        let chunk = vec![1; 1 << 20];
        let mut written = 0;
        while let Ok(count) = near.write(&chunk) {
            written += count;
        }
        let unacked = unacked_bytes(&near).unwrap();
        assert!(unacked > 0 && unacked <= written as u64, "{unacked} of {written}");
        let mut buffer = vec![0; written];
        far.read_exact(&mut buffer).unwrap();
        let is_empty = (0..1_000_000).any(|_| unacked_bytes(&near) == Some(0));
        assert!(is_empty, "all was read, so all is acknowledged");
    }
}

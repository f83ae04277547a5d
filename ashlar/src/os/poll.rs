//! Connections of a load generator: sockets that never block, and one wait for all of a thread's.
//!
//! A generator must not be the bottleneck of what it measures: here stand the calls of the kernel and nothing above them. The
//! servers' own connections go through tokio.
#![allow(unsafe_code, reason = "epoll is not offered by std: four calls, with their safe twin in the tests")]

use std::io::{self, Read as _, Write as _};
use std::net::ToSocketAddrs as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

/// Where a generator connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `HOST:PORT`.
    Tcp(String),
    /// A unix socket.
    Unix(PathBuf),
}

impl core::fmt::Display for Target {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// One connection. Blocks, for `patience` at most, until [`Stream::make_nonblocking`].
#[derive(Debug)]
pub struct Stream(Socket);

impl Stream {
    /// Connects. No step takes longer than `patience`.
    ///
    /// # Errors
    /// Nobody answers there, or the name is unknown. Retry safe.
    pub fn connect(target: &Target, patience: Duration) -> io::Result<Self> {
        let socket = match target {
            Target::Tcp(address) => tcp(address, patience)?,
            Target::Unix(path) => unix(path)?,
        };
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        Ok(Self(socket))
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// `WouldBlock` where nothing is there; else the connection is lost.
    #[inline]
    pub fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }

    /// Writes as much as the kernel takes.
    ///
    /// # Errors
    /// `WouldBlock` where it takes nothing; else the connection is lost.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    /// From now on nothing waits.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn make_nonblocking(&self) -> io::Result<()> {
        self.0.set_nonblocking(true)
    }
}

fn tcp(address: &str, patience: Duration) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        match socket.connect_timeout(&address.into(), patience) {
            Ok(()) => {
                SockRef::from(&socket).set_tcp_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn unix(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket)
}

/// Waits for many connections at once.
#[derive(Debug)]
pub struct Poller {
    descriptor: OwnedFd,
    events: Vec<libc::epoll_event>,
}

/// Events that one wait gives at most.
const EVENTS_MAX: usize = 256;

impl Poller {
    /// One that watches nothing yet.
    ///
    /// # Errors
    /// The operating system refused. Retry safe.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no memory.
        let descriptor = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just made the descriptor, and nobody else has it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { descriptor, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX] })
    }

    /// From now on a wait gives `number` when bytes came or there is room for bytes again, once each time: whoever is told reads
    /// until less came than there was room for, and writes until it would block.
    ///
    /// # Errors
    /// The operating system refused. Retry safe.
    pub fn watch(&self, stream: &Stream, number: usize) -> io::Result<()> {
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: interest.cast_unsigned(), u64: number as u64 };
        let (epoll, socket) = (self.descriptor.as_raw_fd(), stream.0.as_raw_fd());
        // SAFETY: the kernel reads one event through the pointer, which points to one of ours; both descriptors are open
        // because they are borrowed for the call.
        check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, socket, &raw mut event) }).map(drop)
    }

    /// Puts the numbers of those that have something to do into `ready`, after `patience` at the latest.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn wait(&mut self, patience: Duration, ready: &mut Vec<usize>) -> io::Result<()> {
        ready.clear();
        let seconds = libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX);
        let span = libc::timespec { tv_sec: seconds, tv_nsec: patience.subsec_nanos().into() };
        let mut watched = libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        if !patience.is_zero() {
            // epoll_wait counts in milliseconds, which is too coarse for a rate; ppoll counts in nanoseconds.
            // SAFETY: the kernel reads and writes one pollfd and reads one timespec, both ours; no signal mask is given.
            let result = unsafe { libc::ppoll(&raw mut watched, 1, &raw const span, std::ptr::null()) };
            match check(result) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        let room = libc::c_int::try_from(self.events.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the kernel writes at most `room` events from the pointer on, and so many are ours.
        let result = unsafe { libc::epoll_wait(self.descriptor.as_raw_fd(), self.events.as_mut_ptr(), room, 0) };
        let count = match check(result) {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        ready.extend(self.events[..count].iter().map(|event| usize::try_from(event.u64).unwrap_or(usize::MAX)));
        Ok(())
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// The safe twin: what a blocking peer on the other side has written, counted by hand.
    #[test]
    fn tells_of_bytes_and_of_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Tcp(listener.local_addr().unwrap().to_string());
        let mut poller = Poller::new().unwrap();
        let mut near: Vec<Stream> = (0..3).map(|_| Stream::connect(&target, PATIENCE).unwrap()).collect();
        let mut far: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        for (number, stream) in near.iter().enumerate() {
            stream.make_nonblocking().unwrap();
            poller.watch(stream, number).unwrap();
        }
        let mut ready = Vec::new();
        poller.wait(PATIENCE, &mut ready).unwrap();
        assert_eq!(ready.len(), 3, "each has room to write at the beginning: {ready:?}");
        poller.wait(Duration::ZERO, &mut ready).unwrap();
        assert_eq!(ready, [0; 0], "and is told so once");
        far[1].write_all(b"hello").unwrap();
        poller.wait(PATIENCE, &mut ready).unwrap();
        assert_eq!(ready, [1]);
        let mut bytes = [0; 16];
        assert_eq!(near[1].read(&mut bytes).unwrap(), 5);
        assert_eq!(near[0].read(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(far);
        poller.wait(PATIENCE, &mut ready).unwrap();
        assert_eq!(near[ready[0]].read(&mut bytes).unwrap(), 0, "the other side is gone");
    }

    #[test]
    fn nobody_there_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Tcp(listener.local_addr().unwrap().to_string());
        drop(listener);
        assert_eq!(Stream::connect(&target, PATIENCE).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let unix = Target::Unix("/nowhere/at/all".into());
        assert_eq!(Stream::connect(&unix, PATIENCE).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

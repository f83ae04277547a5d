//! Where clients reach the engine: plain TCP, TLS, a unix socket, each on its own or together.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fs, iter};

use ashlar_kv::Certificates;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::failure::Failure;
use crate::front::resp::Door;
use crate::os::sockets::{self, Listen};
use crate::os::tls::clients;

/// Connections that wait in the kernel for a worker, unless somebody wants another number.
pub const BACKLOG: u16 = 4_096;

/// Everything that can be listened on.
#[derive(Debug, Clone)]
pub struct Doors {
    /// The machine's addresses for TCP, plain and TLS.
    pub addresses: Vec<IpAddr>,
    /// Port for plain TCP; 0 takes any free one.
    pub port: Option<u16>,
    /// TLS.
    pub tls: Option<TlsDoor>,
    /// A socket in the file system.
    pub unix: Option<UnixDoor>,
    /// Connections that wait in the kernel for a worker; the kernel may allow fewer.
    pub backlog: u16,
    /// The flags that choose other ports for plain TCP.
    pub port_flag: &'static str,
    /// The flags that choose other ports for TLS.
    pub tls_port_flag: &'static str,
    /// The flag that chooses other addresses.
    pub address_flag: &'static str,
}

/// A port under TLS.
#[derive(Debug, Clone)]
pub struct TlsDoor {
    /// Port; 0 takes any free one.
    pub port: u16,
    /// Certificate, key, authorities.
    pub files: clients::Files,
}

/// A socket in the file system.
#[derive(Debug, Clone)]
pub struct UnixDoor {
    /// Where.
    pub path: PathBuf,
    /// Its permissions; `None` leaves them to the process's mask.
    pub mode: Option<u32>,
}

/// A door that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// `tcp`, `tls` or `unix`.
    pub kind: &'static str,
    /// An address with its port, or a path.
    pub place: String,
}

/// All doors, open.
pub(super) struct Open {
    /// Each worker's.
    pub(super) doors: Vec<Vec<Door>>,
    pub(super) listening: Vec<Listening>,
    /// What clients are shown under TLS, if it is spoken.
    pub(super) certificates: Option<Certificates>,
    /// Removed when nobody listens any more.
    pub(super) file: Option<SocketFile>,
}

impl Doors {
    /// One port for plain TCP, and nothing else: that of a server in a cluster.
    #[must_use]
    pub fn of_server(address: SocketAddr) -> Self {
        Self {
            addresses: vec![address.ip()],
            port: Some(address.port()),
            tls: None,
            unix: None,
            backlog: BACKLOG,
            port_flag: "--kv-port (0 for none)",
            tls_port_flag: "--kv-tls-port and --kv-replica-tls-port",
            address_flag: "--kv-bind",
        }
    }

    /// Listens everywhere, once for each of `workers`.
    pub(super) fn open(&self, workers: usize) -> Result<Open, Failure> {
        let doors = iter::repeat_with(Vec::new).take(workers).collect();
        let mut open = Open { doors, listening: Vec::new(), certificates: None, file: None };
        if let Some(port) = self.port {
            self.open_port(port, "tcp", &mut open, Door::Tcp)?;
        }
        if let Some(tls) = &self.tls {
            let (config, certificates) = clients::config(&tls.files)?;
            open.certificates = Some(certificates);
            self.open_port(tls.port, "tls", &mut open, |listener| Door::Tls(listener, config.clone()))?;
        }
        if let Some(unix) = &self.unix {
            self.open_unix(unix, &mut open)?;
        }
        if open.listening.is_empty() {
            return Err(Failure::usage(
                "clients have no way in",
                "leave out --no-tcp, or give --unix PATH or --tls-port PORT",
            ));
        }
        Ok(open)
    }

    fn open_port(
        &self,
        port: u16,
        kind: &'static str,
        open: &mut Open,
        door: impl Fn(std::net::TcpListener) -> Door,
    ) -> Result<(), Failure> {
        for &address in &self.addresses {
            let how = Listen {
                backlog: self.backlog.into(),
                port_flags: if kind == "tls" { self.tls_port_flag } else { self.port_flag },
                address_flag: self.address_flag,
            };
            let address = SocketAddr::new(address, port);
            let listeners = sockets::listen_as(address, open.doors.len(), how)?;
            let place = listeners.first().and_then(|listener| listener.local_addr().ok()).unwrap_or(address);
            open.listening.push(Listening { kind, place: place.to_string() });
            for (doors, listener) in open.doors.iter_mut().zip(listeners) {
                doors.push(door(listener));
            }
        }
        Ok(())
    }

    fn open_unix(&self, unix: &UnixDoor, open: &mut Open) -> Result<(), Failure> {
        make_way(&unix.path)?;
        let refused = |error: io::Error| cannot_listen(&unix.path, &error);
        let listener = listen(unix, self.backlog).map_err(refused)?;
        open.file = Some(SocketFile(unix.path.clone()));
        let place = unix.path.display().to_string();
        for doors in &mut open.doors {
            doors.push(Door::Unix(listener.try_clone().map_err(refused)?, place.clone()));
        }
        open.listening.push(Listening { kind: "unix", place });
        Ok(())
    }
}

fn listen(unix: &UnixDoor, backlog: u16) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(&unix.path)?)?;
    // Nobody can connect before `listen`, so nobody gets in by the permissions of the mask.
    if let Some(mode) = unix.mode {
        fs::set_permissions(&unix.path, fs::Permissions::from_mode(mode))?;
    }
    socket.listen(backlog.into())?;
    Ok(socket.into())
}

/// Removes the socket of a server that has ended without removing it.
fn make_way(path: &Path) -> Result<(), Failure> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        let what = format!("{} is there and is no socket", path.display());
        return Err(Failure::usage(what, "give another path with --unix, or remove what is there"));
    }
    if UnixStream::connect(path).is_ok() {
        let what = format!("another process listens on {}", path.display());
        return Err(Failure::world(what, "stop that process, or give another path with --unix"));
    }
    fs::remove_file(path).map_err(|error| cannot_listen(path, &error))
}

fn cannot_listen(path: &Path, error: &io::Error) -> Failure {
    Failure::world(
        format!("cannot listen on {}: {error}", path.display()),
        "give a path in a directory that this user can write with --unix; 107 bytes are the most that it may have",
    )
}

/// A socket's place in the file system, removed at the end.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have removed it already.
        fs::remove_file(&self.0).ok();
    }
}

//! This process, as the tasks of an engine see it: clocks, plain TCP, files for dumps, the file of its identity.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ashlar_grid::seam::BoxFuture;
use ashlar_kv::network::Broken;
use ashlar_kv::{Engine, Now};
use ashlar_node::keyvalue::assignment::EngineInfo;
use ashlar_node::keyvalue::host::{BoxFutureOf, Connection, DumpFile, EngineHost};
use tokio::net::TcpStream;

use super::cluster::keep_engine_info;
use crate::os::clock;
use crate::os::files::{self, Creation};

/// See the head of this file.
pub(super) struct ProcessEngineHost {
    engine: Arc<Engine>,
    /// Where the engine's identity is remembered; nothing outside a cluster.
    info_file: Option<PathBuf>,
}

impl ProcessEngineHost {
    pub(super) fn new(engine: Arc<Engine>, info_file: Option<PathBuf>) -> Self {
        Self { engine, info_file }
    }
}

impl EngineHost for ProcessEngineHost {
    fn now(&self) -> Now {
        clock::now_both()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        Box::pin(clock::sleep(span))
    }

    fn connect(&self, host: &str, port: u16) -> BoxFuture<Result<Box<dyn Connection>, Broken>> {
        let host = host.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|error| broken(&error))?;
            // A refused option costs speed only.
            stream.set_nodelay(true).ok();
            Ok(Box::new(TcpConnection(stream)) as Box<dyn Connection>)
        })
    }

    /// The file has no name, so that nothing is left of it when the process dies.
    fn dump_file(&self) -> io::Result<Box<dyn DumpFile>> {
        let folder = self.engine.files().directory;
        let path = Path::new(&folder).join(format!("primary-{}.rdb", clock::now_both().unix_us));
        let file = files::create(&path, Creation::New)?;
        fs::remove_file(&path)?;
        Ok(Box::new(NamelessFile { file, is_read: false }))
    }

    fn keep_engine_info(&self, info: &EngineInfo) -> bool {
        let Some(file) = &self.info_file else { return true };
        keep_engine_info(file, info)
            .inspect_err(|failure| tracing::error!(%failure, "the identity is not kept"))
            .is_ok()
    }
}

struct NamelessFile {
    file: File,
    /// It was rewound to be read.
    is_read: bool,
}

impl DumpFile for NamelessFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if !std::mem::replace(&mut self.is_read, true) {
            self.file.rewind()?;
        }
        self.file.read(room)
    }
}

struct TcpConnection(TcpStream);

impl Connection for TcpConnection {
    fn write<'c>(&'c mut self, bytes: &'c [u8]) -> BoxFutureOf<'c, Result<(), Broken>> {
        Box::pin(async move {
            let mut left = bytes;
            while !left.is_empty() {
                self.0.writable().await.map_err(|error| broken(&error))?;
                match self.0.try_write(left) {
                    Ok(count) => left = &left[count..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(broken(&error)),
                }
            }
            Ok(())
        })
    }

    fn read<'c>(&'c mut self, room: &'c mut [u8]) -> BoxFutureOf<'c, Result<usize, Broken>> {
        Box::pin(async move {
            loop {
                self.0.readable().await.map_err(|error| broken(&error))?;
                match self.0.try_read(room) {
                    Ok(0) => return Err(Broken::Gone),
                    Ok(count) => return Ok(count),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(broken(&error)),
                }
            }
        })
    }

    fn ends(&self) -> (String, String) {
        let shown = |address: io::Result<std::net::SocketAddr>| address.map(|at| at.to_string()).unwrap_or_default();
        (shown(self.0.peer_addr()), shown(self.0.local_addr()))
    }
}

fn broken(error: &io::Error) -> Broken {
    if error.kind() == io::ErrorKind::TimedOut { Broken::TooLate } else { Broken::Gone }
}

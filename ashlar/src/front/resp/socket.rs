//! The stream under a connection: TCP, TLS over TCP, or a unix socket.
//!
//! A trait and not an enum: the code of a connection is made once for each kind, so plain TCP pays for no other.

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::os::clock;

/// Pause between two looks whether a client is gone that has sent something nobody reads yet.
const GONE_LOOK: Duration = Duration::from_millis(100);

/// What a connection needs of its stream. Nothing but the futures waits.
pub(super) trait Socket: Send + Sync + 'static {
    /// Something may have come. Cancel-safe.
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;

    /// There may be room. Cancel-safe.
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send;

    /// Reads what is there; `WouldBlock` if nothing is. Zero bytes are the end.
    fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<usize>;

    /// Writes what there is room for; `WouldBlock` if there is none. No bytes push on what [`Socket::is_unsent`].
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Whether something that was written has not left yet.
    fn is_unsent(&self) -> bool {
        false
    }

    /// Completes when the client has closed its side, and not for bytes that came. Cancel-safe.
    fn gone(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Says goodbye, if the protocol has a word for it.
    fn close(&mut self) {}
}

impl Socket for TcpStream {
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::readable(self)
    }

    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::writable(self)
    }

    fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Self::try_read(self, bytes)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::try_write(self, bytes)
    }

    fn gone(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        tcp_gone(self)
    }
}

/// Completes when the other side has closed, and not for bytes that came.
pub(super) async fn tcp_gone(stream: &TcpStream) -> io::Result<()> {
    loop {
        stream.ready(Interest::READABLE).await?;
        if stream.peek(&mut [0; 1]).await? == 0 {
            return Ok(());
        }
        // Bytes are there, and stay there: look again after a while.
        clock::sleep(GONE_LOOK).await;
    }
}

impl Socket for UnixStream {
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::readable(self)
    }

    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::writable(self)
    }

    fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Self::try_read(self, bytes)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::try_write(self, bytes)
    }

    async fn gone(&mut self) -> io::Result<()> {
        let look = || SockRef::from(&*self).peek(&mut [core::mem::MaybeUninit::uninit(); 1]);
        loop {
            self.ready(Interest::READABLE).await?;
            match self.try_io(Interest::READABLE, look) {
                Ok(0) => return Ok(()),
                Ok(_) => clock::sleep(GONE_LOOK).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

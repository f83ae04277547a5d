//! The stream under a connection: TCP, TLS over TCP, or a unix socket.
//!
//! A trait and not an enum: the code of a connection is made once for each kind, so plain TCP pays for no other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::os::clock;

/// Pause between two looks whether a client is gone that has sent something nobody reads yet.
const GONE_LOOK: Duration = Duration::from_millis(100);

/// What a connection needs of its stream. Nothing but the futures waits.
pub(super) trait Socket: Send + Sync + 'static {
    /// There may be room. Cancel-safe.
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send;

    /// Reads what is there, or what comes. Zero bytes are the end. Once all is read, no system call asks for more before the
    /// kernel says that there is.
    fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>>;

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

/// A partial read tells that the kernel has no more: then tokio knows, and the next look costs no system call.
fn poll_stream<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    bytes: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut room = ReadBuf::new(bytes);
    ready!(Pin::new(stream).poll_read(cx, &mut room))?;
    Poll::Ready(Ok(room.filled().len()))
}

impl Socket for TcpStream {
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::writable(self)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        poll_stream(self, cx, bytes)
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
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::writable(self)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        poll_stream(self, cx, bytes)
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

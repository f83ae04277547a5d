//! One connection after its upgrade, as the grid sees it: a TCP stream, plain or under TLS.
//!
//! An idle connection holds no read buffer: bytes are read into one buffer per thread and handed on at once. On a plain
//! connection a batch costs one system call. Under TLS, bytes that the kernel did not take yet stay in the TLS session;
//! they are pushed on by the next write and by every read, so whoever keeps polling reads needs no separate flush.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ashlar_grid::seam::{Wire, WireError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::turns::Ticket;
use super::{sockets, spin, tls};

/// The longest batch that one read hands on.
const BATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    static SCRATCH: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// What is held as long as a connection is open: its place in the listener's counts.
pub type Held = Arc<dyn core::any::Any + Send + Sync>;

/// A connection of the operating system.
pub struct OsWire {
    io: Io,
    /// What was read past the upgrade and comes before everything else.
    early: Vec<u8>,
    binding: [u8; tls::BINDING_LEN],
    ticket: Ticket,
    /// Held as long as the connection counts as one of the listener's.
    _permit: Option<Held>,
}

/// What is below.
pub enum Io {
    /// No encryption.
    Plain(TcpStream),
    /// TLS, with what it has not passed on to the kernel yet.
    Tls(Box<TlsStream<TcpStream>>),
}

impl OsWire {
    /// The wire over `io`; `early` is what was read past the upgrade.
    ///
    /// # Errors
    /// The TLS handshake is not over.
    pub fn new(io: Io, early: &[u8], permit: Option<Held>) -> Result<Self, WireError> {
        let (socket, binding) = match &io {
            Io::Plain(stream) => (stream, [0; tls::BINDING_LEN]),
            Io::Tls(stream) => {
                let binding = tls::channel_binding(stream).map_err(|error| WireError(format!("TLS: {error}")))?;
                (stream.get_ref().0, binding)
            }
        };
        sockets::tune(socket);
        Ok(Self { io, early: early.to_vec(), binding, ticket: Ticket::default(), _permit: permit })
    }

    fn socket(&self) -> &TcpStream {
        match &self.io {
            Io::Plain(stream) => stream,
            Io::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl Wire for OsWire {
    fn poll_read(&mut self, cx: &mut Context<'_>, sink: &mut dyn FnMut(&mut [u8])) -> Poll<Result<usize, WireError>> {
        if !self.early.is_empty() {
            let mut early = core::mem::take(&mut self.early);
            sink(&mut early);
            return Poll::Ready(Ok(early.len()));
        }
        // Taken, not borrowed: a sink that reads another wire on this thread finds none and makes its own.
        let mut scratch = SCRATCH.take().unwrap_or_else(|| vec![0; BATCH_BYTES_MAX].into_boxed_slice());
        let read = match &mut self.io {
            Io::Plain(stream) => poll_read_plain(stream, cx, &mut scratch),
            Io::Tls(stream) => poll_read_tls(stream, cx, &mut scratch),
        };
        if let Poll::Ready(Ok(length @ 1..)) = read {
            spin::note_received();
            sink(&mut scratch[..length]);
        }
        SCRATCH.set(Some(scratch));
        read.map_err(lost)
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ticket.poll_turn(cx)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize, WireError>> {
        let written = match &mut self.io {
            // One frame is the usual case, and cheaper for the kernel without a list.
            Io::Plain(stream) => match bufs {
                [only] => Pin::new(stream).poll_write(cx, only),
                several => Pin::new(stream).poll_write_vectored(cx, several),
            },
            Io::Tls(stream) => poll_write_tls(stream, cx, bufs),
        };
        match ready!(written) {
            Ok(0) if bufs.iter().any(|buf| !buf.is_empty()) => Poll::Ready(Err(lost(io::ErrorKind::WriteZero.into()))),
            other => Poll::Ready(other.map_err(lost)),
        }
    }

    fn unacked_bytes(&self) -> Option<u64> {
        sockets::unacked_bytes(self.socket())
    }

    fn channel_binding(&self) -> [u8; tls::BINDING_LEN] {
        self.binding
    }
}

fn poll_read_plain(stream: &mut TcpStream, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(scratch);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Collects what the session has until it has no more: records are 16 KiB at most, batches may be longer.
fn poll_read_tls(
    stream: &mut TlsStream<TcpStream>,
    cx: &mut Context<'_>,
    scratch: &mut [u8],
) -> Poll<io::Result<usize>> {
    if let Poll::Ready(Err(error)) = Pin::new(&mut *stream).poll_flush(cx) {
        return Poll::Ready(Err(error));
    }
    let mut buffer = ReadBuf::new(scratch);
    while buffer.remaining() > 0 {
        let before = buffer.filled().len();
        match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {}
            // The end, or an error, comes again at the next call.
            Poll::Ready(Ok(())) => break,
            Poll::Ready(Err(_)) | Poll::Pending if before > 0 => break,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Encrypts only when the kernel has taken what was encrypted before, so at most one batch waits in the session.
fn poll_write_tls(
    stream: &mut TlsStream<TcpStream>,
    cx: &mut Context<'_>,
    bufs: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    ready!(Pin::new(&mut *stream).poll_flush(cx))?;
    let written = ready!(Pin::new(&mut *stream).poll_write_vectored(cx, bufs))?;
    match Pin::new(stream).poll_flush(cx) {
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        // Pending: the session keeps the rest and the task is woken when there is room.
        Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(written)),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn lost(error: io::Error) -> WireError {
    WireError(match error.kind() {
        io::ErrorKind::ConnectionReset => "the peer reset the connection".into(),
        io::ErrorKind::UnexpectedEof => "the peer closed the connection without TLS's farewell".into(),
        _ => error.to_string(),
    })
}

#[cfg(test)]
mod tests;

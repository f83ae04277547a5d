//! A connection under TLS: the session's bytes through a [`ServerConnection`], which neither reads nor writes by itself.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::net::TcpStream;

use super::socket::{Socket, tcp_gone};

/// A TCP stream with a TLS connection over it whose handshake is done.
pub(super) struct TlsSocket {
    stream: TcpStream,
    tls: ServerConnection,
    /// Decrypted bytes may lie here that were not read: the stream may stay silent although there is something.
    has_more: bool,
}

impl TlsSocket {
    /// Of what a handshake gave.
    pub(super) fn new(stream: TcpStream, tls: ServerConnection) -> Self {
        // What came with the last message of the handshake is decrypted already.
        Self { stream, tls, has_more: true }
    }

    /// Takes encrypted bytes from the kernel, once. The number of decrypted bytes that wait; `None` at the end.
    fn take_in(&mut self) -> io::Result<Option<usize>> {
        if self.tls.read_tls(&mut Kernel(&self.stream))? == 0 {
            return Ok(None);
        }
        let state = self.tls.process_new_packets().map_err(|error| {
            // The other side is told what was wrong, if it takes that at once.
            self.flush().ok();
            io::Error::new(io::ErrorKind::InvalidData, error)
        })?;
        // The protocol itself may have something to answer.
        if_possible(self.flush())?;
        let waiting = state.plaintext_bytes_to_read();
        Ok(if state.peer_has_closed() && waiting == 0 { None } else { Some(waiting) })
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut Kernel(&self.stream))?;
        }
        Ok(())
    }
}

impl Socket for TlsSocket {
    fn writable(&self) -> impl Future<Output = io::Result<()>> + Send {
        self.stream.writable()
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.tls.reader().read(bytes) {
                Ok(count) => {
                    self.has_more = count == bytes.len();
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.has_more = false,
                // It closed without saying so; no request can be cut by that, for requests tell their lengths.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.stream.poll_read_ready(cx))?;
            match self.take_in() {
                Ok(Some(_)) => {}
                Ok(None) => return Poll::Ready(Ok(0)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let count = self.tls.writer().write(bytes)?;
        if_possible(self.flush())?;
        Ok(count)
    }

    fn is_unsent(&self) -> bool {
        self.tls.wants_write()
    }

    async fn gone(&mut self) -> io::Result<()> {
        while !self.has_more {
            self.stream.readable().await?;
            match self.take_in() {
                Ok(None) => return Ok(()),
                Ok(Some(waiting)) => self.has_more = waiting > 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        tcp_gone(&self.stream).await
    }

    fn close(&mut self) {
        self.tls.send_close_notify();
        // Who does not take it at once sees the end of the stream instead.
        self.flush().ok();
    }
}

/// That the kernel takes no more is no failure here: the rest leaves later.
fn if_possible(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

/// The stream as TLS wants it: reads and writes that do not wait.
struct Kernel<'a>(&'a TcpStream);

impl io::Read for Kernel<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(bytes)
    }
}

impl io::Write for Kernel<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

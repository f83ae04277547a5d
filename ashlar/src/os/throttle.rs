//! A slow link: a relay between two addresses that passes a given number of bytes per second each way.
//!
//! It reads little ahead and keeps little, so that back-pressure reaches the sender as on a slow wire.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::clock;
use crate::failure::Failure;

/// Bytes passed on at once at most.
const PIECE_BYTES: usize = 16 << 10;
/// What the relay's own sockets may hold, bytes.
const SOCKET_BYTES: usize = 64 << 10;

/// A running relay.
pub struct Throttle {
    /// Where to connect to.
    pub address: String,
    rate: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Throttle {
    /// Relays connections to `target` at `bytes_per_s`, each way and each connection.
    ///
    /// # Errors
    /// No free port.
    pub fn start(handle: &Handle, target: String, bytes_per_s: u64) -> Result<Self, Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = super::sockets::listen(address, 1)?.swap_remove(0);
        let failed = |error: io::Error| Failure::world(format!("cannot relay: {error}"), "");
        let address = listener.local_addr().map_err(failed)?.to_string();
        let rate = Arc::new(AtomicU64::new(bytes_per_s));
        let shared = rate.clone();
        let task = handle.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((near, _)) = listener.accept().await {
                if let Ok(far) = TcpStream::connect(&target).await {
                    let (near, far) = (Arc::new(near), Arc::new(far));
                    for socket in [&near, &far] {
                        // Best effort: larger buffers make the link less slow, not wrong.
                        let _ = SockRef::from(&**socket).set_recv_buffer_size(SOCKET_BYTES);
                        let _ = SockRef::from(&**socket).set_send_buffer_size(SOCKET_BYTES);
                    }
                    tokio::spawn(pass(near.clone(), far.clone(), shared.clone()));
                    tokio::spawn(pass(far, near, shared.clone()));
                }
            }
        });
        Ok(Self { address, rate, task })
    }

    /// Changes the speed.
    pub fn set_rate(&self, bytes_per_s: u64) {
        self.rate.store(bytes_per_s, Ordering::Relaxed);
    }

    /// Accepts no more; what was accepted goes on until one end closes it.
    pub fn stop(&self) {
        self.task.abort();
    }
}

/// Passes bytes from one socket to another until either ends.
async fn pass(from: Arc<TcpStream>, to: Arc<TcpStream>, rate: Arc<AtomicU64>) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let Ok(len) = from.async_io(Interest::READABLE, || from.try_read(&mut piece)).await else { break };
        if len == 0 {
            break;
        }
        let mut sent = 0;
        while sent < len {
            match to.async_io(Interest::WRITABLE, || to.try_write(&piece[sent..len])).await {
                Ok(more) => sent += more,
                Err(_) => return close(&from, &to),
            }
        }
        let nanos = len as u64 * 1_000_000_000 / rate.load(Ordering::Relaxed).max(1);
        clock::sleep(Duration::from_nanos(nanos)).await;
    }
    close(&from, &to);
}

fn close(one: &TcpStream, other: &TcpStream) {
    for socket in [one, other] {
        // It may be closed already.
        let _ = SockRef::from(socket).shutdown(std::net::Shutdown::Both);
    }
}

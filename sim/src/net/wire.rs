//! One end of a connection, as the code under test sees it.

use core::fmt;
use core::future::Future as _;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::io::IoSlice;
use std::sync::Arc;

use ashlar_grid::seam::{Wire, WireError};

use super::{ConnId, EndState, Side, window_is_news};
use crate::rng::Rng;
use crate::trace::Kind;
use crate::world::runtime::Sleep;
use crate::world::{Shared, State};

/// Longest batch that one read hands over, as the seam promises.
const READ_BYTES_MAX: u64 = 128 << 10;

/// The longest wait for a turn to write.
const LINE_NS_MAX: u64 = 2_000_000;

/// One end of a fake connection. Dropping it closes: what was written still arrives, unless something was left unread.
pub struct SimWire {
    shared: Arc<Shared>,
    conn: ConnId,
    side: Side,
    binding: [u8; 32],
    scratch: Vec<u8>,
    /// Waits until its turn to write comes.
    line: Option<Sleep>,
}

impl SimWire {
    pub(crate) fn new(shared: Arc<Shared>, conn: ConnId, side: Side, binding: [u8; 32]) -> Self {
        Self { shared, conn, side, binding, scratch: Vec::new(), line: None }
    }

    /// Which connection this is an end of.
    #[must_use]
    pub fn conn(&self) -> ConnId {
        self.conn
    }

    /// Which end this is.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }
}

impl fmt::Debug for SimWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimWire").field("conn", &self.conn).field("side", &self.side).finish_non_exhaustive()
    }
}

impl Drop for SimWire {
    fn drop(&mut self) {
        self.shared.with(|state| state.close_end(self.conn, self.side));
    }
}

impl Wire for SimWire {
    fn poll_read(&mut self, cx: &mut Context<'_>, sink: &mut dyn FnMut(&mut [u8])) -> Poll<Result<usize, WireError>> {
        let (conn, side, scratch) = (self.conn, self.side, &mut self.scratch);
        scratch.clear();
        let poll = self.shared.with(|state| state.read(conn, side, cx, scratch));
        if let Poll::Ready(Ok(1..)) = poll {
            sink(&mut self.scratch);
        }
        poll
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.line.is_none() {
            self.line = self.shared.with(State::stand_in_line).map(|span_ns| Sleep::span(&self.shared, span_ns));
        }
        if let Some(line) = &mut self.line {
            ready!(Pin::new(line).poll(cx));
            self.line = None;
        }
        Poll::Ready(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize, WireError>> {
        self.shared.with(|state| state.write(self.conn, self.side, cx, bufs))
    }

    fn unacked_bytes(&self) -> Option<u64> {
        self.shared.with(|state| {
            let pipe = state.net.conns.get(&self.conn).map(|held| &held.pipes[self.side as usize]);
            let unacked = pipe.map_or(0, |pipe| pipe.accepted.saturating_sub(pipe.acked));
            state.options.shows_unacked.then_some(unacked)
        })
    }

    fn channel_binding(&self) -> [u8; 32] {
        self.binding
    }
}

impl State {
    /// How long a connection that wants to write stands in line, if at all.
    fn stand_in_line(&mut self) -> Option<u64> {
        let stands = self.rng_net.chance(self.options.lines_ppm);
        stands.then(|| self.rng_net.magnitude(1..=LINE_NS_MAX))
    }

    fn read(
        &mut self,
        conn: ConnId,
        side: Side,
        cx: &Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<Result<usize, WireError>> {
        let (now_ns, receive_bytes_max) = (self.now_ns, self.options.receive_bytes_max);
        let Some(held) = self.net.conns.get_mut(&conn) else { return lost("this connection is over") };
        let end = &mut held.ends[side as usize];
        let pipe = &mut held.pipes[side.other() as usize];
        if matches!(end.state, EndState::Closed | EndState::Vanished) {
            return lost("this server is gone");
        }
        let unread = pipe.unread().min(READ_BYTES_MAX);
        if unread == 0 {
            return match end.state {
                EndState::Reset => lost("connection reset by peer"),
                _ if pipe.fin_delivered => Poll::Ready(Ok(0)),
                _ => {
                    end.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
        }
        let len = shortened(&mut self.rng_net, unread, self.options.short_reads_ppm);
        let (first, second) = pipe.bytes.as_slices();
        let of_first = first.len().min(len as usize);
        into.extend_from_slice(&first[..of_first]);
        into.extend_from_slice(&second[..len as usize - of_first]);
        pipe.bytes.drain(..len as usize);
        pipe.read += len;
        let news = window_is_news(pipe, receive_bytes_max) && end.state == EndState::Open;
        self.trace.record(now_ns, Kind::Read, [conn.0, side as u64, len]);
        self.trace.bytes(into);
        if news {
            self.send_ack(conn, side.other());
        }
        Poll::Ready(Ok(len as usize))
    }

    fn write(
        &mut self,
        conn: ConnId,
        side: Side,
        cx: &Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize, WireError>> {
        let now_ns = self.now_ns;
        let Some(held) = self.net.conns.get_mut(&conn) else { return lost("this connection is over") };
        let end = &mut held.ends[side as usize];
        let pipe = &mut held.pipes[side as usize];
        match end.state {
            EndState::Open => {}
            EndState::Reset => return lost("connection reset by peer"),
            EndState::Closed | EndState::Vanished => return lost("this server is gone"),
        }
        let wanted: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let free = self.options.send_bytes_max - (pipe.accepted - pipe.acked);
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        if free == 0 {
            end.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let len = shortened(&mut self.rng_net, wanted.min(free), self.options.short_writes_ppm);
        let mut left = len as usize;
        for buf in bufs {
            let part = left.min(buf.len());
            pipe.bytes.extend(&buf[..part]);
            left -= part;
        }
        pipe.accepted += len;
        self.trace.record(now_ns, Kind::Write, [conn.0, side as u64, len]);
        self.kick(conn, side);
        Poll::Ready(Ok(len as usize))
    }
}

/// All of `len`, or by chance only a part of it, often very little.
fn shortened(rng: &mut Rng, len: u64, short_ppm: u32) -> u64 {
    if len > 1 && rng.chance(short_ppm) { rng.magnitude(1..=len) } else { len }
}

fn lost<T>(why: &str) -> Poll<Result<T, WireError>> {
    Poll::Ready(Err(WireError(why.to_owned())))
}

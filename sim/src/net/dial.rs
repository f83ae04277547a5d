//! Dialing and accepting: two round trips, of which only the second needs the peer's process.
//!
//! `Syn` and `SynAck` are the kernels' affair, so a paused server still completes them; the upgrade request then waits
//! in the listener's backlog until a task of the server takes it. A dialer that gives up drops its future.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::sync::Arc;

use ashlar_grid::seam::{Lane, WireError};

use super::{Conn, ConnId, Packet, Side, SimWire};
use crate::executor::Owner;
use crate::trace::Kind;
use crate::world::{ServerNo, Shared, State};

/// A dialer's kernel tries again after this long when the backlog is full.
const SYN_AGAIN_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct Dial {
    pub(crate) from: ServerNo,
    pub(crate) to: ServerNo,
    addr: String,
    lane: Lane,
    pub(crate) state: DialState,
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialState {
    Waiting,
    Connected(ConnId),
    Refused,
}

#[derive(Debug)]
pub(crate) struct ListenerState {
    pub(crate) server: ServerNo,
    backlog: VecDeque<u64>,
    waker: Option<Waker>,
}

/// A listening address of one life of a server. Dropping it refuses whoever dials.
pub struct Listener {
    shared: Arc<Shared>,
    addr: String,
    owner: Owner,
}

impl Listener {
    /// The next connection and its lane; never completes after its server died. Cancel-safe.
    pub async fn accept(&self) -> (SimWire, Lane) {
        core::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&self, cx: &Context<'_>) -> Poll<(SimWire, Lane)> {
        let taken = self.shared.with(|state| {
            if !state.is_alive(self.owner) {
                return None;
            }
            state.accept(&self.addr, cx)
        });
        match taken {
            Some((conn, binding, lane)) => {
                Poll::Ready((SimWire::new(Arc::clone(&self.shared), conn, Side::Acceptor, binding), lane))
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.with(|state| {
            if state.is_alive(self.owner) {
                state.close_listener(&self.addr);
            }
        });
    }
}

/// A dial under way.
pub(crate) struct Dialing {
    shared: Arc<Shared>,
    dial: u64,
}

impl Future for Dialing {
    type Output = Result<SimWire, WireError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = self.shared.with(|state| {
            let Some(dial) = state.net.dials.get_mut(&self.dial) else { return Poll::Ready(Err("dialer is gone")) };
            match dial.state {
                DialState::Waiting => {
                    dial.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                DialState::Connected(conn) => {
                    state.net.dials.remove(&self.dial);
                    let binding = state.net.conns.get(&conn).map(|held| held.binding);
                    Poll::Ready(binding.map(|binding| (conn, binding)).ok_or("connection reset by peer"))
                }
                DialState::Refused => Poll::Ready(Err("connection refused")),
            }
        });
        outcome.map(|outcome| match outcome {
            Ok((conn, binding)) => Ok(SimWire::new(Arc::clone(&self.shared), conn, Side::Dialer, binding)),
            Err(why) => Err(WireError(why.to_owned())),
        })
    }
}

impl Drop for Dialing {
    fn drop(&mut self) {
        self.shared.with(|state| state.abandon_dial(self.dial));
    }
}

pub(crate) fn listen(shared: &Arc<Shared>, owner: Owner, addr: &str) -> Result<Listener, WireError> {
    shared.with(|state| {
        let server = state.server_at(addr);
        let own = matches!((owner, server), (Owner::Server(no, _), Some(at)) if no == at);
        if !own || !state.is_alive(owner) {
            return Err(WireError(format!("{addr} is not an address of this server")));
        }
        if state.net.listeners.contains_key(addr) {
            return Err(WireError(format!("{addr} is in use")));
        }
        let server = server.expect("checked above");
        state.net.listeners.insert(addr.to_owned(), ListenerState { server, backlog: VecDeque::new(), waker: None });
        Ok(())
    })?;
    Ok(Listener { shared: Arc::clone(shared), addr: addr.to_owned(), owner })
}

/// Starts a dial; an address without a server fails at once.
pub(crate) fn dial(shared: &Arc<Shared>, owner: Owner, addr: &str, lane: Lane) -> Result<Dialing, WireError> {
    shared.with(|state| {
        let Owner::Server(from, _) = owner else { return Err(WireError("only servers dial".to_owned())) };
        if !state.is_alive(owner) {
            return Err(WireError("this server is gone".to_owned()));
        }
        let to = state.server_at(addr).ok_or_else(|| WireError(format!("{addr}: no such host")))?;
        let number = state.net.next_number();
        let dial = Dial { from, to, addr: addr.to_owned(), lane, state: DialState::Waiting, waker: None };
        state.net.dials.insert(number, dial);
        state.trace.record(state.now_ns, Kind::Dial, [number, u64::from(from.0), u64::from(to.0)]);
        state.send_packet((from, to), Packet::Syn { dial: number }, 0);
        Ok(Dialing { shared: Arc::clone(shared), dial: number })
    })
}

impl State {
    pub(crate) fn syn_arrived(&mut self, dial: u64) {
        let backlog_max = self.options.backlog_max;
        let Some(held) = self.net.dials.get(&dial) else { return };
        let (there, back) = ((held.from, held.to), (held.to, held.from));
        match self.net.listeners.get(&held.addr) {
            None => self.send_packet(back, Packet::Refusal { dial }, 0),
            Some(listener) if listener.backlog.len() >= backlog_max => {
                self.send_packet(there, Packet::Syn { dial }, SYN_AGAIN_NS);
            }
            Some(_) => self.send_packet(back, Packet::SynAck { dial }, 0),
        }
    }

    pub(crate) fn syn_ack_arrived(&mut self, dial: u64) {
        if let Some(held) = self.net.dials.get(&dial) {
            let there = (held.from, held.to);
            self.send_packet(there, Packet::Request { dial }, 0);
        }
    }

    pub(crate) fn request_arrived(&mut self, dial: u64) {
        let Some(held) = self.net.dials.get(&dial) else { return };
        let back = (held.to, held.from);
        match self.net.listeners.get_mut(&held.addr) {
            Some(listener) => {
                listener.backlog.push_back(dial);
                self.wakes.extend(listener.waker.take());
            }
            None => self.send_packet(back, Packet::Refusal { dial }, 0),
        }
    }

    fn accept(&mut self, addr: &str, cx: &Context<'_>) -> Option<(ConnId, [u8; 32], Lane)> {
        let dial = loop {
            let listener = self.net.listeners.get_mut(addr)?;
            let Some(dial) = listener.backlog.pop_front() else {
                listener.waker = Some(cx.waker().clone());
                return None;
            };
            if self.net.dials.contains_key(&dial) {
                break dial;
            }
        };
        let held = &self.net.dials[&dial];
        let (from, to, lane) = (held.from, held.to, held.lane);
        let conn = ConnId(self.net.next_number());
        let mut binding = [0; 32];
        if self.options.binds_channels {
            self.rng_net.fill(&mut binding);
        }
        self.net.conns.insert(conn, Conn::new([from, to], lane, binding, self.options.receive_bytes_max));
        self.trace.record(self.now_ns, Kind::Accepted, [dial, conn.0, u64::from(to.0)]);
        self.send_packet((to, from), Packet::Answer { dial, conn }, 0);
        Some((conn, binding, lane))
    }

    pub(crate) fn answer_arrived(&mut self, dial: u64, conn: ConnId) {
        let now_ns = self.now_ns;
        if let Some(held) = self.net.dials.get_mut(&dial) {
            held.state = DialState::Connected(conn);
            self.wakes.extend(held.waker.take());
            self.trace.record(now_ns, Kind::Connected, [dial, conn.0, 0]);
        } else {
            self.close_end(conn, Side::Dialer);
        }
    }

    pub(crate) fn refusal_arrived(&mut self, dial: u64) {
        let now_ns = self.now_ns;
        if let Some(held) = self.net.dials.get_mut(&dial) {
            held.state = DialState::Refused;
            self.wakes.extend(held.waker.take());
            self.trace.record(now_ns, Kind::Refused, [dial, u64::from(held.from.0), u64::from(held.to.0)]);
        }
    }

    /// The dialer gave up: whatever was opened for it is closed.
    pub(crate) fn abandon_dial(&mut self, dial: u64) {
        let Some(held) = self.net.dials.remove(&dial) else { return };
        if let DialState::Connected(conn) = held.state {
            self.close_end(conn, Side::Dialer);
        }
        for route in [(held.from, held.to), (held.to, held.from)] {
            self.net.link(route).held.retain(|packet| packet.dial() != Some(dial));
            self.server_mut(route.1).held.retain(|(_, packet)| packet.dial() != Some(dial));
        }
    }

    /// Stops listening; whoever waits in the backlog is refused.
    pub(crate) fn close_listener(&mut self, addr: &str) {
        let Some(listener) = self.net.listeners.remove(addr) else { return };
        for dial in listener.backlog {
            if let Some(held) = self.net.dials.get(&dial) {
                let back = (held.to, held.from);
                self.send_packet(back, Packet::Refusal { dial }, 0);
            }
        }
    }
}

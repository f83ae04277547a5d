//! The fake network: TCP connections over directed links between servers.
//!
//! The model of one direction of a connection (a *pipe*): bytes pass four marks, `accepted` by the writer's kernel,
//! `sent` onto the link, `delivered` into the reader's kernel, `read` by the reader. The writer's kernel learns of the
//! last two by acknowledgements that travel back over the opposite link, so a one-way cut stalls both directions of
//! TCP, as it does in life. `accepted - acked` is bounded by the send buffer, `sent - read` by the receive buffer:
//! back-pressure is real. Segments of all connections share a link's bandwidth in turns.
//!
//! A packet that reaches a cut link or a machine without power waits there (retransmission, abbreviated) and goes on
//! when the fault heals. Loss delays a segment, and all behind it, by a retransmission timeout.
//!
//! Not modelled: the kernel giving up on its own after minutes without an acknowledgement, urgent data, half-close by
//! the program (no seam offers it), congestion windows.

mod dial;
mod faults;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use ashlar_grid::seam::Lane;

pub use self::dial::Listener;
pub(crate) use self::dial::{Dial, ListenerState, dial, listen};
pub use self::wire::SimWire;
use crate::trace::Kind;
use crate::world::{Happening, ServerNo, State};

/// One connection of the world, for its whole life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnId(pub(crate) u64);

/// Which end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The server that dialed.
    Dialer,
    /// The server that accepted.
    Acceptor,
}

impl Side {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Dialer => Self::Acceptor,
            Self::Acceptor => Self::Dialer,
        }
    }
}

/// What a directed link between two servers is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkOptions {
    /// One-way travel time of a packet.
    pub latency_ns: u64,
    /// A packet takes up to this much longer.
    pub jitter_ns: u64,
    /// Bytes per second, shared by all connections on the link; 0 is without limit.
    pub bytes_per_s: u64,
    /// Longest segment; connections take turns by segments.
    pub segment_bytes_max: u32,
    /// Chance that a segment is lost once and comes a retransmission timeout later.
    pub loss_ppm: u32,
    /// Chance that one bit of a segment is flipped unnoticed. TCP does this hardly ever: for tests of checksums.
    pub corrupt_ppm: u32,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            latency_ns: 50_000,
            jitter_ns: 10_000,
            bytes_per_s: 1_250_000_000,
            segment_bytes_max: 64 << 10,
            loss_ppm: 0,
            corrupt_ppm: 0,
        }
    }
}

/// First retransmission timeout of Linux.
const RETRANSMISSION_NS: u64 = 200_000_000;

pub(crate) type Route = (ServerNo, ServerNo);

#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) options: LinkOptions,
    pub(crate) cut: bool,
    pub(crate) clogged_until_ns: u64,
    /// A segment is being put on the link.
    busy: bool,
    queue: VecDeque<(ConnId, Side)>,
    pub(crate) held: Vec<Packet>,
}

impl Link {
    pub(crate) fn new(options: LinkOptions) -> Self {
        Self { options, ..Self::default() }
    }
}

/// What travels over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packet {
    /// Dial, first leg: is anybody listening?
    Syn { dial: u64 },
    /// Dial, second leg, back: the kernel took it.
    SynAck { dial: u64 },
    /// Dial, third leg: the upgrade request.
    Request { dial: u64 },
    /// Dial, last leg, back: the server took the upgrade.
    Answer { dial: u64, conn: ConnId },
    /// Dial, any leg back: nobody listens.
    Refusal { dial: u64 },
    /// The oldest flight of the pipe that `writer` writes.
    Segment { conn: ConnId, writer: Side },
    /// To `writer`: what its reader has received, and up to where it may send.
    Ack { conn: ConnId, writer: Side, delivered: u64, window_end: u64 },
    /// The other end of `to` is gone.
    Reset { conn: ConnId, to: Side },
}

impl Packet {
    pub(crate) fn dial(&self) -> Option<u64> {
        match *self {
            Self::Syn { dial } | Self::SynAck { dial } | Self::Request { dial } | Self::Refusal { dial } => Some(dial),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndState {
    Open,
    /// The connection was lost; the server still holds its end.
    Reset,
    /// The server let go of its end.
    Closed,
    /// The machine of this end lost power with the connection open.
    Vanished,
}

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) state: EndState,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    len: u32,
    fin: bool,
}

/// One direction of a connection. Marks are byte counts since the connection began:
/// `read <= delivered <= sent <= accepted`.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// The bytes from mark `read` to mark `accepted`.
    pub(crate) bytes: VecDeque<u8>,
    pub(crate) accepted: u64,
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) read: u64,
    /// What the writer's kernel knows of `delivered`.
    pub(crate) acked: u64,
    /// How far the writer's kernel may send.
    pub(crate) window_end: u64,
    /// The writer has let go: after `accepted` comes the end.
    pub(crate) fin: bool,
    fin_sent: bool,
    pub(crate) fin_delivered: bool,
    in_flight: VecDeque<Flight>,
    last_arrival_ns: u64,
    queued: bool,
    ack_flying: bool,
    /// Nothing that travels this way arrives any more, and nobody is told.
    pub(crate) black_hole: bool,
    /// The connection is reset when `delivered` reaches this mark.
    pub(crate) trap: Option<u64>,
}

impl Pipe {
    fn can_send(&self) -> bool {
        let data = self.sent < self.accepted.min(self.window_end);
        data || (self.fin && !self.fin_sent && self.sent == self.accepted)
    }

    /// Takes the next segment out of the send buffer.
    fn next_flight(&mut self, segment_bytes_max: u32) -> Flight {
        let len = (self.accepted.min(self.window_end) - self.sent).min(u64::from(segment_bytes_max));
        self.sent += len;
        let fin = self.fin && self.sent == self.accepted;
        self.fin_sent |= fin;
        let flight = Flight { len: len as u32, fin };
        self.in_flight.push_back(flight);
        flight
    }

    pub(crate) fn unread(&self) -> u64 {
        self.delivered - self.read
    }

    /// Forgets every byte after mark `delivered`: they will never arrive.
    pub(crate) fn forget_undelivered(&mut self) {
        self.bytes.truncate(self.unread() as usize);
        (self.accepted, self.sent, self.fin, self.fin_sent) = (self.delivered, self.delivered, false, false);
        self.in_flight.clear();
    }

    /// Forgets what the reader has not read.
    pub(crate) fn forget_unread(&mut self) {
        self.bytes.drain(..self.unread() as usize);
        self.read = self.delivered;
    }
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) hosts: [ServerNo; 2],
    pub(crate) lane: Lane,
    pub(crate) binding: [u8; 32],
    pub(crate) ends: [End; 2],
    /// By the side that writes.
    pub(crate) pipes: [Pipe; 2],
}

impl Conn {
    fn new(hosts: [ServerNo; 2], lane: Lane, binding: [u8; 32], receive_bytes_max: u64) -> Self {
        let end = || End { state: EndState::Open, reader: None, writer: None };
        let pipe = || Pipe { window_end: receive_bytes_max, ..Pipe::default() };
        Self { hosts, lane, binding, ends: [end(), end()], pipes: [pipe(), pipe()] }
    }

    /// The way that the bytes of `writer` take.
    pub(crate) fn route(&self, writer: Side) -> Route {
        (self.hosts[writer as usize], self.hosts[writer.other() as usize])
    }
}

/// All links, connections, listeners and dials.
#[derive(Debug, Default)]
pub(crate) struct Net {
    pub(crate) links: BTreeMap<Route, Link>,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    pub(crate) listeners: BTreeMap<String, ListenerState>,
    pub(crate) dials: BTreeMap<u64, Dial>,
    pub(crate) sequence: u64,
}

impl Net {
    pub(crate) fn link(&mut self, route: Route) -> &mut Link {
        self.links.get_mut(&route).expect("every pair of servers has a link")
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

impl State {
    /// Sends a packet that takes no bandwidth; it arrives `extra_ns` later than the link alone would make it.
    pub(crate) fn send_packet(&mut self, route: Route, packet: Packet, extra_ns: u64) {
        let options = self.net.link(route).options;
        let travel_ns = options.latency_ns + self.rng_net.within(0..=options.jitter_ns);
        self.plan(self.now_ns + travel_ns + extra_ns, Happening::Arrival { route, packet });
    }

    /// Puts the pipe in its link's queue if it has something to send and is not there yet.
    pub(crate) fn kick(&mut self, conn: ConnId, writer: Side) {
        let Some(held) = self.net.conns.get_mut(&conn) else { return };
        let route = held.route(writer);
        let pipe = &mut held.pipes[writer as usize];
        if pipe.queued || !pipe.can_send() {
            return;
        }
        pipe.queued = true;
        let link = self.net.link(route);
        link.queue.push_back((conn, writer));
        if !link.busy {
            self.transmit(route);
        }
    }

    /// The link is free: puts the next segment on it.
    pub(crate) fn transmit(&mut self, route: Route) {
        loop {
            let link = self.net.link(route);
            link.busy = false;
            let options = link.options;
            let Some((conn, writer)) = link.queue.pop_front() else { return };
            let Some(held) = self.net.conns.get_mut(&conn) else { continue };
            let pipe = &mut held.pipes[writer as usize];
            pipe.queued = false;
            if !pipe.can_send() {
                continue;
            }
            let flight = pipe.next_flight(options.segment_bytes_max.max(1));
            let again = pipe.can_send();
            pipe.queued = again;
            let nanos = u128::from(flight.len) * 1_000_000_000;
            let line_ns = nanos.checked_div(u128::from(options.bytes_per_s)).map_or(0, |nanos| nanos as u64);
            let late_ns = if self.rng_net.chance(options.loss_ppm) { RETRANSMISSION_NS } else { 0 };
            let travel_ns = line_ns + options.latency_ns + self.rng_net.within(0..=options.jitter_ns) + late_ns;
            pipe.last_arrival_ns = pipe.last_arrival_ns.max(self.now_ns + travel_ns);
            let arrival_ns = pipe.last_arrival_ns;
            self.plan(arrival_ns, Happening::Arrival { route, packet: Packet::Segment { conn, writer } });
            let link = self.net.link(route);
            if again {
                link.queue.push_back((conn, writer));
            }
            if line_ns > 0 {
                link.busy = true;
                self.plan(self.now_ns + line_ns, Happening::LinkFree { route });
                return;
            }
        }
    }

    /// A packet reaches the far end of its link, or the fault that holds it up.
    pub(crate) fn arrive(&mut self, route: Route, packet: Packet) {
        let now_ns = self.now_ns;
        let link = self.net.link(route);
        if link.cut {
            link.held.push(packet);
        } else if link.clogged_until_ns > now_ns {
            let until_ns = link.clogged_until_ns;
            self.plan(until_ns, Happening::Arrival { route, packet });
        } else if !self.server(route.1).machine_up {
            self.server_mut(route.1).held.push((route, packet));
        } else {
            match packet {
                Packet::Syn { dial } => self.syn_arrived(dial),
                Packet::SynAck { dial } => self.syn_ack_arrived(dial),
                Packet::Request { dial } => self.request_arrived(dial),
                Packet::Answer { dial, conn } => self.answer_arrived(dial, conn),
                Packet::Refusal { dial } => self.refusal_arrived(dial),
                Packet::Segment { conn, writer } => self.segment_arrived(conn, writer),
                Packet::Ack { conn, writer, delivered, window_end } => {
                    self.ack_arrived(conn, writer, delivered, window_end);
                }
                Packet::Reset { conn, to } => self.reset_end(conn, to),
            }
        }
    }

    fn segment_arrived(&mut self, conn: ConnId, writer: Side) {
        let Some(held) = self.net.conns.get_mut(&conn) else { return };
        let reader = writer.other();
        let state = held.ends[reader as usize].state;
        let pipe = &mut held.pipes[writer as usize];
        let Some(flight) = pipe.in_flight.pop_front() else { return };
        if pipe.black_hole {
            return;
        }
        match state {
            EndState::Open => self.deliver(conn, writer, flight),
            EndState::Vanished => self.send_reset(conn, writer),
            EndState::Closed if flight.len > 0 => self.send_reset(conn, writer),
            EndState::Closed | EndState::Reset => {}
        }
    }

    fn deliver(&mut self, conn: ConnId, writer: Side, flight: Flight) {
        let now_ns = self.now_ns;
        let held = self.net.conns.get_mut(&conn).expect("the caller found it");
        let corrupt_ppm = self.net.links[&held.route(writer)].options.corrupt_ppm;
        let pipe = &mut held.pipes[writer as usize];
        let whole = u64::from(flight.len);
        let len = pipe.trap.map_or(whole, |trap| whole.min(trap.saturating_sub(pipe.delivered)));
        let trapped = pipe.trap.is_some_and(|trap| pipe.delivered + whole >= trap);
        if len > 0 && self.rng_net.chance(corrupt_ppm) {
            let at = pipe.unread() + self.rng_net.below(len);
            pipe.bytes[at as usize] ^= 1 << self.rng_net.below(8);
            let mark = pipe.read + at;
            self.trace.record(now_ns, Kind::Corrupted, [conn.0, writer as u64, mark]);
        }
        pipe.delivered += len;
        if len > 0 {
            self.trace.record(now_ns, Kind::Delivered, [conn.0, writer as u64, len]);
        }
        if flight.fin && !trapped {
            pipe.fin_delivered = true;
            self.trace.record(now_ns, Kind::Finished, [conn.0, writer as u64, 0]);
        }
        let reader = &mut held.ends[writer.other() as usize].reader;
        self.wakes.extend(reader.take());
        if trapped {
            self.reset_now(conn);
        } else {
            self.send_ack(conn, writer);
        }
    }

    /// The reader's kernel tells the writer's how far it is; one such packet is under way at a time.
    pub(crate) fn send_ack(&mut self, conn: ConnId, writer: Side) {
        let receive_bytes_max = self.options.receive_bytes_max;
        let Some(held) = self.net.conns.get_mut(&conn) else { return };
        let reader = writer.other();
        let route = held.route(reader);
        let lost = held.pipes[reader as usize].black_hole;
        let pipe = &mut held.pipes[writer as usize];
        if pipe.ack_flying || lost {
            return;
        }
        pipe.ack_flying = true;
        let (delivered, window_end) = (pipe.delivered, pipe.read + receive_bytes_max);
        self.send_packet(route, Packet::Ack { conn, writer, delivered, window_end }, 0);
    }

    fn ack_arrived(&mut self, conn: ConnId, writer: Side, delivered: u64, window_end: u64) {
        let now_ns = self.now_ns;
        let (send_bytes_max, receive_bytes_max) = (self.options.send_bytes_max, self.options.receive_bytes_max);
        let Some(held) = self.net.conns.get_mut(&conn) else { return };
        let lost = held.pipes[writer.other() as usize].black_hole;
        let pipe = &mut held.pipes[writer as usize];
        if lost {
            return;
        }
        pipe.ack_flying = false;
        pipe.acked = pipe.acked.max(delivered);
        pipe.window_end = pipe.window_end.max(window_end);
        let more = pipe.delivered > delivered || window_is_news(pipe, receive_bytes_max);
        let free = send_bytes_max.saturating_sub(pipe.accepted - pipe.acked.min(pipe.accepted));
        if free * 3 >= send_bytes_max {
            self.wakes.extend(held.ends[writer as usize].writer.take());
        }
        self.trace.record(now_ns, Kind::Ack, [conn.0, writer as u64, delivered]);
        self.kick(conn, writer);
        if more {
            self.send_ack(conn, writer);
        }
    }

    /// Tells the end `to` that the other one is gone.
    pub(crate) fn send_reset(&mut self, conn: ConnId, to: Side) {
        let Some(held) = self.net.conns.get(&conn) else { return };
        let from = to.other();
        if !held.pipes[from as usize].black_hole {
            self.send_packet(held.route(from), Packet::Reset { conn, to }, 0);
        }
    }

    /// The server lets go of its end: what it wrote still arrives, then the end; unless it left something unread.
    pub(crate) fn close_end(&mut self, conn: ConnId, side: Side) {
        let now_ns = self.now_ns;
        let Some(held) = self.net.conns.get_mut(&conn) else { return };
        let end = &mut held.ends[side as usize];
        let was = end.state;
        if matches!(was, EndState::Closed | EndState::Vanished) {
            return;
        }
        (end.state, end.reader, end.writer) = (EndState::Closed, None, None);
        let incoming = &mut held.pipes[side.other() as usize];
        let unread = incoming.unread();
        incoming.forget_unread();
        self.trace.record(now_ns, Kind::Closed, [conn.0, side as u64, unread]);
        if was == EndState::Open && unread > 0 {
            held.pipes[side as usize].forget_undelivered();
            self.send_reset(conn, side.other());
        } else if was == EndState::Open {
            held.pipes[side as usize].fin = true;
            self.kick(conn, side);
        }
        self.forget_if_over(conn);
    }

    /// Nobody can observe a connection that both ends have left.
    pub(crate) fn forget_if_over(&mut self, conn: ConnId) {
        let over = |end: &End| matches!(end.state, EndState::Closed | EndState::Vanished);
        if self.net.conns.get(&conn).is_some_and(|held| held.ends.iter().all(over)) {
            self.net.conns.remove(&conn);
        }
    }
}

/// Whether the reader has made so much room since the writer last heard of it that it is worth a packet.
fn window_is_news(pipe: &Pipe, receive_bytes_max: u64) -> bool {
    let room = pipe.read + receive_bytes_max - pipe.window_end.min(pipe.read + receive_bytes_max);
    room > 0 && room * 2 >= receive_bytes_max
}

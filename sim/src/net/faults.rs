//! What goes wrong between servers, on request.

use super::{ConnId, EndState, LinkOptions, Packet, Route, Side};
use crate::trace::Kind;
use crate::world::{Happening, Kill, ServerNo, State};

/// Half of all resets also lose what the reader's kernel had received.
const LOSE_UNREAD_PPM: u32 = 500_000;

impl State {
    /// Both ends learn at once that the connection is lost; some prefix of what was under way still arrived.
    pub(crate) fn reset_now(&mut self, conn: ConnId) {
        let Some(held) = self.net.conns.get_mut(&conn) else { return };
        let mut kept = [0; 2];
        for (pipe, kept) in held.pipes.iter_mut().zip(&mut kept) {
            let limit = pipe.trap.map_or(pipe.sent, |trap| pipe.sent.min(trap.max(pipe.delivered)));
            *kept = if pipe.black_hole { 0 } else { self.rng_net.within(0..=limit - pipe.delivered) };
            pipe.delivered += *kept;
            pipe.trap = None;
        }
        self.trace.record(self.now_ns, Kind::Reset, [conn.0, kept[0], kept[1]]);
        self.reset_end(conn, Side::Dialer);
        self.reset_end(conn, Side::Acceptor);
    }

    /// One end learns that the connection is lost.
    pub(crate) fn reset_end(&mut self, conn: ConnId, side: Side) {
        let Some(held) = self.net.conns.get_mut(&conn) else { return };
        let end = &mut held.ends[side as usize];
        if end.state != EndState::Open {
            return;
        }
        end.state = EndState::Reset;
        self.wakes.extend(end.reader.take());
        self.wakes.extend(end.writer.take());
        for pipe in &mut held.pipes {
            pipe.forget_undelivered();
        }
        if self.rng_net.chance(LOSE_UNREAD_PPM) {
            held.pipes[side.other() as usize].forget_unread();
        }
        self.trace.record(self.now_ns, Kind::ResetSeen, [conn.0, side as u64, 0]);
    }

    /// The connection is reset once `bytes` more of what `writer` writes have arrived.
    pub(crate) fn reset_after(&mut self, conn: ConnId, writer: Side, bytes: u64) {
        if let Some(held) = self.net.conns.get_mut(&conn) {
            let pipe = &mut held.pipes[writer as usize];
            pipe.trap = Some(pipe.delivered + bytes);
        }
    }

    /// Whatever `writer` sends from here on is lost, acknowledgements too, and nobody is told.
    pub(crate) fn black_hole(&mut self, conn: ConnId, writer: Side) {
        if let Some(held) = self.net.conns.get_mut(&conn) {
            held.pipes[writer as usize].black_hole = true;
            self.trace.record(self.now_ns, Kind::BlackHole, [conn.0, writer as u64, 0]);
        }
    }

    pub(crate) fn set_cut(&mut self, route: Route, cut: bool) {
        let link = self.net.link(route);
        if link.cut == cut {
            return;
        }
        link.cut = cut;
        let held = core::mem::take(&mut link.held);
        let kind = if cut { Kind::Cut } else { Kind::Heal };
        self.trace.record(self.now_ns, kind, [u64::from(route.0.0), u64::from(route.1.0), held.len() as u64]);
        for packet in held {
            self.send_packet(route, packet, 0);
        }
    }

    pub(crate) fn clog(&mut self, route: Route, nanos: u64) {
        let until_ns = self.now_ns.saturating_add(nanos);
        self.net.link(route).clogged_until_ns = until_ns;
        self.trace.record(self.now_ns, Kind::Clog, [u64::from(route.0.0), u64::from(route.1.0), until_ns]);
    }

    pub(crate) fn set_link(&mut self, route: Route, options: LinkOptions) {
        self.net.link(route).options = options;
        let numbers = [u64::from(route.0.0), u64::from(route.1.0), options.bytes_per_s];
        self.trace.record(self.now_ns, Kind::LinkChanged, numbers);
    }

    /// Ends every connection, listener and dial of a server that dies.
    pub(crate) fn drop_sockets(&mut self, server: ServerNo, how: Kill) {
        let theirs: Vec<String> =
            self.net.listeners.iter().filter(|(_, l)| l.server == server).map(|(a, _)| a.clone()).collect();
        for addr in theirs {
            match how {
                Kill::Process => self.close_listener(&addr),
                Kill::Machine => drop(self.net.listeners.remove(&addr)),
            }
        }
        let dials: Vec<u64> =
            self.net.dials.iter().filter(|(_, dial)| dial.from == server).map(|(no, _)| *no).collect();
        for dial in dials {
            self.abandon_dial(dial);
        }
        let conns: Vec<ConnId> = self.net.conns.keys().copied().collect();
        for conn in conns {
            for side in [Side::Dialer, Side::Acceptor] {
                if self.net.conns.get(&conn).is_some_and(|held| held.hosts[side as usize] == server) {
                    match how {
                        Kill::Process => self.close_end(conn, side),
                        Kill::Machine => self.vanish(conn, side),
                    }
                }
            }
        }
    }

    fn vanish(&mut self, conn: ConnId, side: Side) {
        let Some(held) = self.net.conns.get_mut(&conn) else { return };
        let end = &mut held.ends[side as usize];
        if end.state != EndState::Closed {
            (end.state, end.reader, end.writer) = (EndState::Vanished, None, None);
            held.pipes[side as usize].forget_undelivered();
        }
        self.forget_if_over(conn);
    }

    /// The machine has power again: what waited for it goes on.
    pub(crate) fn release_held(&mut self, server: ServerNo) {
        let held: Vec<(Route, Packet)> = core::mem::take(&mut self.server_mut(server).held);
        for (route, packet) in held {
            self.plan(self.now_ns, Happening::Arrival { route, packet });
        }
    }
}

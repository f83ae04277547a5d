//! Where received bytes become answers: frames, messages, handlers.
//!
//! Inline handlers run right here, without the connection's lock; everything else goes through the mux, and what it
//! gives back as [`Work`] becomes tasks.

use std::sync::Arc;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::error::Outcome;
use crate::frame::{self, Decoder, Piece, Side};
use crate::handler::{Answered, CallContext, Handler, Handlers, RouteIndex};
use crate::link::Link;
use crate::message::{Assembler, Flags, Message, MuxId, Op};
use crate::mux::streams::StreamKey;
use crate::mux::{ProtocolError, Work, encode_refusal};
use crate::seam::Runtime;
use crate::serve;

/// Bytes of WebSocket control answers waiting at most: a peer that pings without reading is not answered.
const RAW_OUT_MAX: usize = 4_096;

/// Why no more bytes are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveEnd {
    /// The peer said good-bye.
    Closed,
    /// The peer's proof of the newest secret is wrong.
    Unproved,
    /// The peer broke the protocol.
    Protocol(ProtocolError),
}

impl From<ProtocolError> for ReceiveEnd {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

impl From<crate::message::MessageError> for ReceiveEnd {
    fn from(error: crate::message::MessageError) -> Self {
        Self::Protocol(error.into())
    }
}

/// The receiving side of one connection.
pub struct Inlet<R: Runtime> {
    decoder: Decoder,
    assembler: Assembler,
    dispatch: Dispatch<R>,
    /// Whole WebSocket control frames to be written between batches.
    pub(crate) raw_out: Vec<u8>,
}

struct Dispatch<R: Runtime> {
    runtime: Arc<R>,
    side: Side,
    link: Arc<Link>,
    handlers: Arc<Handlers>,
    caller: ServerId,
    /// The answer of an inline handler; kept for its room.
    answer: Vec<u8>,
}

impl<R: Runtime> Inlet<R> {
    /// An inlet that goes on where the hello's `decoder` stopped.
    pub fn new(
        runtime: Arc<R>,
        side: Side,
        link: Arc<Link>,
        handlers: Arc<Handlers>,
        decoder: Decoder,
        assembler: Assembler,
    ) -> Self {
        let caller = link.session().peer;
        let dispatch = Dispatch { runtime, side, link, handlers, caller, answer: Vec::new() };
        Self { decoder, assembler, dispatch, raw_out: Vec::new() }
    }

    /// Which side of the connection this is.
    pub fn side(&self) -> Side {
        self.dispatch.side
    }

    /// Takes received bytes.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub fn handle_bytes(&mut self, now: Instant, mut bytes: &mut [u8]) -> Result<(), ReceiveEnd> {
        let accepts_inline = {
            let mut mux = self.dispatch.link.lock();
            mux.awake();
            mux.handle_received(now);
            mux.accepts_inline()
        };
        while let Some(piece) = self.decoder.next_piece(&mut bytes).map_err(ProtocolError::from)? {
            match piece {
                Piece::Payload { bytes, .. } => {
                    let dispatch = &mut self.dispatch;
                    self.assembler.handle_bytes(bytes, |message| dispatch.handle(now, accepts_inline, message))?;
                }
                Piece::Ping(payload) if self.raw_out.len() < RAW_OUT_MAX => {
                    self.raw_out.extend(frame::encode_pong(self.dispatch.side, &payload));
                }
                Piece::Ping(_) => {}
                Piece::Close { .. } => return Err(ReceiveEnd::Closed),
            }
        }
        Ok(())
    }
}

impl<R: Runtime> Dispatch<R> {
    #[inline]
    fn handle(&mut self, now: Instant, accepts_inline: bool, message: Option<Message<'_>>) -> Result<(), ReceiveEnd> {
        let Some(message) = message else {
            self.link.lock().handle_unknown();
            return Ok(());
        };
        if accepts_inline && message.header.op == Op::Call && !message.header.flags.contains(Flags::MORE) {
            let plain = u16::try_from(message.header.handler).ok();
            let handler = plain.and_then(|number| self.handlers.get(RouteIndex::default(), number));
            if let Some(Handler::Inline(run)) = handler {
                let answered = run(self.caller, message.payload, &mut self.answer);
                self.answer_inline(message.header.id, answered);
                return Ok(());
            }
        }
        let work = self.link.lock().handle_message(now, &message)?;
        if message.header.op == Op::Datagram {
            self.hand_over(&message);
        }
        match work {
            Some(work) => self.start(work),
            None => Ok(()),
        }
    }

    /// Gives a datagram to its handler. One without a handler, or in parts, is a later version's: nobody waits for it.
    fn hand_over(&self, message: &Message<'_>) {
        let plain = u16::try_from(message.header.handler).ok().filter(|_| !message.header.flags.contains(Flags::MORE));
        let handler = plain.and_then(|number| self.handlers.get(RouteIndex::default(), number));
        if let Some(Handler::Datagram(run)) = handler {
            run(self.caller, message.payload);
        }
    }

    #[inline]
    fn answer_inline(&mut self, id: MuxId, answered: Answered) {
        let outcome = match answered {
            Answered::Ok => Outcome::Ok,
            Answered::Refused(refusal) => {
                self.answer = encode_refusal(&refusal);
                Outcome::Refused
            }
            Answered::Malformed => {
                self.answer.clear();
                Outcome::Malformed
            }
        };
        self.link.lock().reply_inline(id, outcome, &mut self.answer);
    }

    fn start(&mut self, work: Work) -> Result<(), ReceiveEnd> {
        match work {
            Work::Challenge(challenge) => {
                // A secret that is not held here yet cannot be proved: the peer closes if it never is.
                if let Ok(proof) = self.link.proofs().answer(&challenge) {
                    self.link.lock().push_proof(&proof);
                }
            }
            Work::Proof(answer) => self.link.proofs().verify(&answer).map_err(|_| ReceiveEnd::Unproved)?,
            Work::Route { number, name } => {
                let route = self.handlers.route(&name);
                self.link.lock().set_route(number, route);
            }
            Work::Call { id, route, handler, request, deadline, cancelled } => {
                let context = CallContext { caller: self.caller, deadline, cancelled };
                self.start_call(id, route, handler, context, request);
            }
            Work::Stream { key, route, handler, initial, deadline, cancelled } => {
                let context = CallContext { caller: self.caller, deadline, cancelled };
                self.start_stream(key, route, handler, context, initial);
            }
        }
        Ok(())
    }

    fn start_call(&mut self, id: MuxId, route: RouteIndex, handler: u16, context: CallContext, request: Vec<u8>) {
        match self.handlers.get(route, handler) {
            Some(Handler::Served(run)) => {
                let task = serve::call(self.link.clone(), id, run.clone(), context, request);
                self.runtime.spawn(Box::pin(task));
            }
            // Inline, but its request came in chunks.
            Some(Handler::Inline(run)) => {
                let mut answer = Vec::new();
                let answered = run(self.caller, &request, &mut answer);
                serve::reply(&self.link, id, answered, answer);
            }
            Some(Handler::Stream(_) | Handler::Datagram(_)) | None => {
                self.link.lock().reply(id, Outcome::UnknownHandler, Vec::new());
            }
        }
    }

    fn start_stream(
        &mut self,
        key: StreamKey,
        route: RouteIndex,
        handler: u16,
        context: CallContext,
        initial: Vec<u8>,
    ) {
        match self.handlers.get(route, handler) {
            Some(Handler::Stream(run)) => {
                let task = serve::stream(self.link.clone(), key, run.clone(), context, initial);
                self.runtime.spawn(Box::pin(task));
            }
            _ => self.link.lock().refuse_stream(key, Outcome::UnknownHandler),
        }
    }
}

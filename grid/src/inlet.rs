//! Where received bytes become messages: frames, and what they hold.

use std::sync::Arc;

use ashlar_wire::time::Instant;

use crate::dispatch::Dispatch;
use crate::frame::{self, Decoder, Piece, Side};
use crate::handler::Handlers;
use crate::link::Link;
use crate::message::Assembler;
use crate::mux::ProtocolError;
use crate::seam::Runtime;

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
    side: Side,
    /// Whole WebSocket control frames to be written between batches.
    pub(crate) raw_out: Vec<u8>,
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
        Self { decoder, assembler, dispatch: Dispatch::new(runtime, link, handlers), side, raw_out: Vec::new() }
    }

    /// Which side of the connection this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Takes received bytes.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub fn handle_bytes(&mut self, now: Instant, mut bytes: &mut [u8]) -> Result<(), ReceiveEnd> {
        self.dispatch.begin_batch(now);
        while let Some(piece) = self.decoder.next_piece(&mut bytes).map_err(ProtocolError::from)? {
            match piece {
                Piece::Payload { bytes, .. } => {
                    let dispatch = &mut self.dispatch;
                    self.assembler.handle_bytes(bytes, |message| dispatch.handle(now, message))?;
                }
                Piece::Ping(payload) if self.raw_out.len() < RAW_OUT_MAX => {
                    self.raw_out.extend(frame::encode_pong(self.side, &payload));
                }
                Piece::Ping(_) => {}
                Piece::Close { .. } => return Err(ReceiveEnd::Closed),
            }
        }
        Ok(())
    }

    /// Bytes of requests that wait for [`Inlet::serve`].
    pub(crate) fn put_down_len(&self) -> usize {
        self.dispatch.put_down_len()
    }

    /// Serves the calls that have come, once all that has come was taken; whether there were any.
    ///
    /// # Errors
    /// The connection has to be closed.
    pub(crate) fn serve(&mut self, now: Instant) -> Result<bool, ReceiveEnd> {
        self.dispatch.serve(now)
    }

    /// Frees buffers: the connection is idle.
    pub(crate) fn release_memory(&mut self) {
        self.dispatch.release_memory();
    }
}

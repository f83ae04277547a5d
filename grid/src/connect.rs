//! From an upgraded connection to an authenticated one: the hello's messages over a [`Wire`], each step under a deadline.

use core::fmt;
use core::future::poll_fn;
use core::task::Poll;
use std::io::IoSlice;

use crate::frame::{self, Decoder, FrameError, Piece, Side};
use crate::hello::{Acceptor, Dialer, HELLO_LEN_MAX, HelloError, PeerHello, RefusalCode, Session, Step};
use crate::race::before;
use crate::seam::{Runtime, Wire, WireError};

/// WebSocket close code for a peer that did not authenticate (RFC 6455, section 7.4.1: policy violation).
const POLICY_VIOLATION: u16 = 1008;

/// Why a connection did not come to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectError {
    /// Nobody there, or the transport failed. Dial again.
    Wire(WireError),
    /// The peer stayed silent for longer than a step may take.
    Timeout,
    /// The peer closed: its code and text.
    Closed(u16, String),
    /// The peer does not speak frames.
    Frame(FrameError),
    /// The hello failed.
    Hello(HelloError),
    /// This side refused the peer.
    Refused(RefusalCode),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(error) => error.fmt(f),
            Self::Timeout => f.write_str("the peer did not answer in time"),
            Self::Closed(code, text) => write!(f, "the peer closed the connection ({code}): {text}"),
            Self::Frame(error) => error.fmt(f),
            Self::Hello(error) => error.fmt(f),
            Self::Refused(code) => write!(f, "refused here: {code}"),
        }
    }
}

impl core::error::Error for ConnectError {}

impl From<WireError> for ConnectError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl From<HelloError> for ConnectError {
    fn from(error: HelloError) -> Self {
        Self::Hello(error)
    }
}

/// A connection whose messages are whole frames, as long as the hello lasts.
pub(crate) struct Framed<'a, R: Runtime> {
    pub(crate) wire: R::Wire,
    pub(crate) decoder: Decoder,
    /// Received, not yet looked at.
    pub(crate) rest: Vec<u8>,
    side: Side,
    runtime: &'a R,
    step_max: core::time::Duration,
}

impl<'a, R: Runtime> Framed<'a, R> {
    pub(crate) fn new(runtime: &'a R, wire: R::Wire, side: Side, step_max: core::time::Duration) -> Self {
        Self { wire, decoder: Decoder::new(side), rest: Vec::new(), side, runtime, step_max }
    }

    /// The next whole frame's payload, at most [`HELLO_LEN_MAX`] bytes.
    async fn receive(&mut self) -> Result<Vec<u8>, ConnectError> {
        let at = self.runtime.now() + self.step_max;
        let runtime = self.runtime;
        before(runtime, at, self.receive_untimed()).await.unwrap_or(Err(ConnectError::Timeout))
    }

    async fn receive_untimed(&mut self) -> Result<Vec<u8>, ConnectError> {
        let mut message = Vec::new();
        loop {
            if let Some(pong) = self.take_pieces(&mut message)? {
                match pong {
                    Taken::Message => return Ok(message),
                    Taken::Ping(payload) => self.send_raw(&frame::encode_pong(self.side, &payload)).await?,
                }
                continue;
            }
            let rest = &mut self.rest;
            let wire = &mut self.wire;
            let len = poll_fn(|cx| wire.poll_read(cx, &mut |bytes| rest.extend_from_slice(bytes))).await?;
            if len == 0 {
                return Err(ConnectError::Closed(1006, "connection ended".to_owned()));
            }
        }
    }

    /// Moves what is in `rest` into `message`; `None` when more must be read.
    fn take_pieces(&mut self, message: &mut Vec<u8>) -> Result<Option<Taken>, ConnectError> {
        let mut bytes = core::mem::take(&mut self.rest);
        let mut input = bytes.as_mut_slice();
        let taken = loop {
            match self.decoder.next_piece(&mut input).map_err(ConnectError::Frame)? {
                None => break None,
                Some(Piece::Payload { bytes, ends_frame }) => {
                    if message.len() + bytes.len() > HELLO_LEN_MAX {
                        return Err(ConnectError::Hello(HelloError::too_long()));
                    }
                    message.extend_from_slice(bytes);
                    if ends_frame {
                        break Some(Taken::Message);
                    }
                }
                Some(Piece::Ping(payload)) => break Some(Taken::Ping(payload)),
                Some(Piece::Close { code, text }) => return Err(ConnectError::Closed(code, text)),
            }
        };
        self.rest = input.to_vec();
        Ok(taken)
    }

    pub(crate) async fn send(&mut self, message: &[u8]) -> Result<(), ConnectError> {
        self.send_raw(&frame::encode_binary(self.side, message)).await
    }

    async fn send_raw(&mut self, mut bytes: &[u8]) -> Result<(), ConnectError> {
        let at = self.runtime.now() + self.step_max;
        let (runtime, wire) = (self.runtime, &mut self.wire);
        let all = async {
            while !bytes.is_empty() {
                let len = poll_fn(|cx| wire.poll_write(cx, &[IoSlice::new(bytes)])).await?;
                bytes = &bytes[len..];
            }
            Ok(())
        };
        before(runtime, at, all).await.unwrap_or(Err(ConnectError::Timeout))
    }

    /// Tells the peer why it goes, as far as it listens.
    pub(crate) async fn farewell(&mut self, text: &str) {
        let bytes = frame::encode_close(self.side, POLICY_VIOLATION, text);
        // The connection ends either way.
        let _ = self.send_raw(&bytes).await;
        let _ = poll_fn(|cx| Poll::Ready(self.wire.poll_read(cx, &mut |_| {}))).await;
    }

    /// The dialer's part. `proved` is told who the peer is when this side is about to prove itself; `false` gives up.
    pub(crate) async fn dial(
        &mut self,
        mut dialer: Dialer,
        hello: Vec<u8>,
        mut proved: impl FnMut(&PeerHello) -> bool,
    ) -> Result<Session, ConnectError> {
        self.send(&hello).await?;
        loop {
            let message = self.receive().await?;
            let step = match dialer.handle_message(&message) {
                Ok(step) => step,
                Err(error) => {
                    if let Some(refusal) = error.refusal_to_send() {
                        // So that the other side's log tells why; this side's error is the same without it.
                        let _ = self.send(&refusal).await;
                    }
                    return Err(error.into());
                }
            };
            match step {
                Step::Send(bytes) => {
                    if let Some(peer) = dialer.peer()
                        && !proved(peer)
                    {
                        // Else the other side would take the end for a broken connection.
                        self.farewell("another connection is there already").await;
                        return Err(ConnectError::Refused(RefusalCode::Duplicate));
                    }
                    self.send(&bytes).await?;
                }
                Step::Done(session) => return Ok(session),
                Step::Authenticated(_) => unreachable!("only an acceptor is asked to decide"),
            }
        }
    }

    /// The acceptor's part, up to the peer's proof; the owner decides.
    pub(crate) async fn accept(&mut self, acceptor: &mut Acceptor) -> Result<PeerHello, ConnectError> {
        loop {
            let message = self.receive().await?;
            match acceptor.handle_message(&message) {
                Ok(Step::Send(bytes)) => self.send(&bytes).await?,
                Ok(Step::Authenticated(peer)) => return Ok(peer),
                Ok(Step::Done(_)) => unreachable!("an acceptor ends with its owner's decision"),
                Err(error) => {
                    if let Some(refusal) = error.refusal_to_send() {
                        self.send(&refusal).await?;
                    }
                    return Err(error.into());
                }
            }
        }
    }

    pub(crate) async fn refuse(&mut self, acceptor: &Acceptor, code: RefusalCode) -> ConnectError {
        // The refusal is a courtesy; the connection ends either way.
        let _ = self.send(&acceptor.refuse(code)).await;
        ConnectError::Refused(code)
    }
}

enum Taken {
    Message,
    Ping(Vec<u8>),
}

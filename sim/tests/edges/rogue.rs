//! A peer that has the secret, or not, and says what it likes.

use core::future::poll_fn;
use std::io::IoSlice;

use ashlar_grid::config::Limits;
use ashlar_grid::frame::{self, Decoder, Piece, Side};
use ashlar_grid::hello::{Acceptor, Dialer, HelloConfig, PeerLimits, Secrets, Session, Step};
use ashlar_grid::message::{self, Assembler, Header, MessageError, MuxId, Op};
use ashlar_grid::seam::{Lane, Runtime as _, Wire as _};
use ashlar_sim::SimRuntime;
use ashlar_sim::net::SimWire;
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::secret::Secret;

use crate::rig::{CLUSTER, SECRET};

/// Who the rogue says it is.
pub(crate) const ROGUE: ServerId = ServerId::from_bytes([0xee; 16]);

/// One connection, by hand.
pub(crate) struct Rogue {
    wire: SimWire,
    side: Side,
    decoder: Decoder,
    session: Option<Session>,
    assembler: Option<Assembler>,
    received: Vec<(Header, Vec<u8>)>,
    /// Sequence of the present life, so that a later connection of the same rogue is not a duplicate.
    life: u64,
}

impl Rogue {
    pub(crate) fn new(wire: SimWire, side: Side, life: u64) -> Self {
        let (decoder, received) = (Decoder::new(side), Vec::new());
        Self { wire, side, decoder, session: None, assembler: None, received, life }
    }

    /// Dials `addr`, without a word.
    pub(crate) async fn dial(runtime: &SimRuntime, addr: &str, life: u64) -> Self {
        let wire = runtime.dial(addr, Lane::Small).await.expect("somebody listens");
        Self::new(wire, Side::Dialer, life)
    }

    /// Dials `addr` and is let in.
    pub(crate) async fn enter(runtime: &SimRuntime, addr: &str, life: u64) -> Self {
        let mut rogue = Self::dial(runtime, addr, life).await;
        rogue.say_hello(CLUSTER, SECRET).await.expect("the hello is a good one");
        rogue
    }

    pub(crate) fn hello_config(&self, cluster: ClusterId, secret: [u8; 32]) -> HelloConfig {
        HelloConfig {
            cluster,
            server: ROGUE,
            incarnation: Incarnation(self.life),
            address: String::new(),
            secrets: Secrets::new(Secret::from_bytes(secret)),
            limits: PeerLimits::of(Limits::for_lane(Lane::Small)),
            always_checksum: false,
            lane: Lane::Small,
            expected_peer: None,
            channel_binding: self.wire.channel_binding(),
        }
    }

    /// The whole hello of a dialer; an error in words if it does not end well.
    pub(crate) async fn say_hello(&mut self, cluster: ClusterId, secret: [u8; 32]) -> Result<(), String> {
        let (mut dialer, hello) = Dialer::new(self.hello_config(cluster, secret), [self.life as u8; 32]);
        self.send_frame(&hello).await?;
        loop {
            let answer = self.next_frame().await?;
            match dialer.handle_message(&answer).map_err(|error| format!("{error:?}"))? {
                Step::Send(bytes) => self.send_frame(&bytes).await?,
                Step::Done(session) => {
                    self.assembler = Some(Assembler::new(1 << 20, session.salt));
                    self.session = Some(session);
                    return Ok(());
                }
                Step::Authenticated(_) => return Err("a dialer decides nothing".to_owned()),
            }
        }
    }

    /// A dialer's part up to the proof, which is returned and not sent.
    pub(crate) async fn hold_proof(&mut self) -> Result<Vec<u8>, String> {
        let (mut dialer, hello) = Dialer::new(self.hello_config(CLUSTER, SECRET), [self.life as u8; 32]);
        self.send_frame(&hello).await?;
        let challenge = self.next_frame().await?;
        match dialer.handle_message(&challenge).map_err(|error| format!("{error:?}"))? {
            Step::Send(proof) => Ok(proof),
            other => Err(format!("{other:?}")),
        }
    }

    /// An acceptor's part up to its challenge; then silence.
    pub(crate) async fn only_challenge(&mut self) -> Result<(), String> {
        self.challenge().await.map(drop)
    }

    /// An acceptor's part up to the peer's proof, which is read; the welcome is returned and not sent.
    pub(crate) async fn hold_welcome(&mut self) -> Result<Vec<u8>, String> {
        let mut acceptor = self.challenge().await?;
        let proof = self.next_frame().await?;
        match acceptor.handle_message(&proof).map_err(|error| format!("{error:?}"))? {
            Step::Authenticated(_) => Ok(acceptor.welcome(77).0),
            other => Err(format!("{other:?}")),
        }
    }

    async fn challenge(&mut self) -> Result<Acceptor, String> {
        let mut acceptor = Acceptor::new(self.hello_config(CLUSTER, SECRET), [3; 32]);
        let hello = self.next_frame().await?;
        match acceptor.handle_message(&hello).map_err(|error| format!("{error:?}"))? {
            Step::Send(challenge) => self.send_frame(&challenge).await?,
            other => return Err(format!("{other:?}")),
        }
        Ok(acceptor)
    }

    pub(crate) async fn send_raw(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let wire = &mut self.wire;
            let len = poll_fn(|cx| wire.poll_write(cx, &[IoSlice::new(bytes)])).await.map_err(|error| error.0)?;
            bytes = &bytes[len..];
        }
        Ok(())
    }

    pub(crate) async fn send_frame(&mut self, payload: &[u8]) -> Result<(), String> {
        self.send_raw(&frame::encode_binary(self.side, payload)).await
    }

    /// Sends one message.
    pub(crate) async fn send(&mut self, header: Header, payload: &[u8]) {
        let mut bytes = Vec::new();
        message::encode(&mut bytes, &header, payload, self.session.as_ref().and_then(|session| session.salt));
        self.send_frame(&bytes).await.expect("the connection lives");
    }

    /// Some received bytes; an error when the connection is over.
    async fn read(&mut self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let wire = &mut self.wire;
        let len = poll_fn(|cx| wire.poll_read(cx, &mut |batch| bytes.extend_from_slice(batch))).await;
        match len.map_err(|error| error.0)? {
            0 => Err("the connection ended".to_owned()),
            _ => Ok(bytes),
        }
    }

    /// The next whole frame of a hello, which comes alone.
    pub(crate) async fn next_frame(&mut self) -> Result<Vec<u8>, String> {
        let mut payload = Vec::new();
        loop {
            let mut bytes = self.read().await?;
            let mut input = bytes.as_mut_slice();
            while let Some(piece) = self.decoder.next_piece(&mut input).map_err(|error| error.to_string())? {
                match piece {
                    Piece::Payload { bytes, ends_frame } => {
                        payload.extend_from_slice(bytes);
                        if ends_frame {
                            return Ok(payload);
                        }
                    }
                    Piece::Close { code, text } => return Err(format!("closed ({code}): {text}")),
                    Piece::Ping(_) => {}
                }
            }
        }
    }

    /// The next message but pings, which are answered; an error when the connection is over.
    pub(crate) async fn next(&mut self) -> Result<(Header, Vec<u8>), String> {
        loop {
            if !self.received.is_empty() {
                let (header, payload) = self.received.remove(0);
                if header.op == Op::Ping {
                    self.send(Header::new(Op::Pong, MuxId::CONNECTION, header.sequence), &[]).await;
                    continue;
                }
                return Ok((header, payload));
            }
            let mut bytes = self.read().await?;
            let (decoder, received) = (&mut self.decoder, &mut self.received);
            let assembler = self.assembler.as_mut().expect("the hello is over");
            let mut input = bytes.as_mut_slice();
            while let Some(piece) = decoder.next_piece(&mut input).map_err(|error| error.to_string())? {
                let Piece::Payload { bytes, .. } = piece else { return Err(format!("{piece:?}")) };
                let taken = assembler.handle_bytes::<MessageError>(bytes, |message| {
                    received.extend(message.map(|message| (message.header, message.payload.to_vec())));
                    Ok(())
                });
                taken.map_err(|error| error.to_string())?;
            }
        }
    }

    /// The next message of that operation.
    pub(crate) async fn next_of(&mut self, op: Op) -> Result<(Header, Vec<u8>), String> {
        loop {
            let (header, payload) = self.next().await?;
            if header.op == op {
                return Ok((header, payload));
            }
        }
    }

    /// Reads until the other side ends the connection; its last word, if it says one.
    pub(crate) async fn until_closed(&mut self) -> String {
        loop {
            match self.read().await {
                Err(error) => return error,
                Ok(mut bytes) => {
                    let mut input = bytes.as_mut_slice();
                    while let Ok(Some(piece)) = self.decoder.next_piece(&mut input) {
                        if let Piece::Close { code, text } = piece {
                            return format!("closed ({code}): {text}");
                        }
                    }
                }
            }
        }
    }
}

//! The hello: who is there, do we share a secret, how shall we speak. Once per connection, before anything else.
//!
//! | | from | message | proves |
//! |---|---|---|---|
//! | 1 | dialer | `Hello`: version range, features, ids, life, address, lane, keys, nonce, limits, zeroes | |
//! | 2 | acceptor | `Challenge`: what was chosen, ids, life, key, nonce, limits, zeroes, proof | acceptor knows the secret |
//! | 3 | dialer | `Proof` | dialer knows the secret |
//! | 4 | acceptor | `Welcome`: session id, proof; or at any step `Refusal`: code and text | both heard the same |
//!
//! Every proof is keyed BLAKE3 over the exact bytes of all that was said before it on the connection, its own message
//! included, and the TLS channel binding (RFC 9266), each message under its own context: nothing can be altered,
//! replayed, reflected or relayed through another channel. The secret itself never travels. No clock takes part.
//!
//! The first two are longer than a packet of 1,500 bytes: a path that loses full packets, and lets small ones pass, carries no connection.
//!
//! Each side is a value: messages in, [`Step`]s out. A message that is not the next one ends it.
//!
//! Not proved: a refusal. Whoever can write to the connection can refuse in the peer's name, as he could cut it; so a
//! refusal is a reason to dial later, never to forget a peer. Where the difference matters ([`RefusalCode::OwnEcho`]),
//! the dialer finds it out itself from a proved challenge.
//!
//! A secret that is replaced while connections live is proved on them by [`rekey`].

mod error;
mod form;
pub mod rekey;

use std::sync::Arc;

use ashlar_wire::checksum::Salt;
use ashlar_wire::id::{ClusterId, Incarnation, ServerId};
use ashlar_wire::pack::write_bin;
use ashlar_wire::secret::{KeyId, Secret};

use crate::config::Limits;
use crate::seam::Lane;
pub use error::{HelloError, RefusalCode};
use form::{Challenge, Form, Hello, Proof, Refusal, Welcome};

/// Longest message of a hello, bytes.
pub const HELLO_LEN_MAX: usize = 2_048;
/// Longest address that is told, bytes.
pub const ADDRESS_LEN_MAX: usize = 256;
/// Protocol versions that this program speaks.
pub const VERSIONS: (u16, u16) = (1, 1);
/// Features that this program knows, as bits. None so far: each later addition gets one.
pub const FEATURES: u64 = 0;

const ACCEPTOR_CONTEXT: &str = "ashlar grid acceptor v1";
const DIALER_CONTEXT: &str = "ashlar grid dialer v1";
const WELCOME_CONTEXT: &str = "ashlar grid welcome v1";

/// The greatest version in both ranges.
fn common_version(one: (u16, u16), other: (u16, u16)) -> Option<u16> {
    let version = one.1.min(other.1);
    (version >= one.0.max(other.0)).then_some(version)
}

/// The cluster secret, and during a rotation the one before it.
#[derive(Debug, Clone)]
pub struct Secrets(Arc<[Secret]>);

impl Secrets {
    /// One secret.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self(Arc::new([secret]))
    }

    /// Two secrets, for the time of a rotation: the newer one is used with every peer that has it.
    #[must_use]
    pub fn rotating(newer: Secret, older: Secret) -> Self {
        Self(Arc::new([newer, older]))
    }

    /// The one that is used with every peer that has it.
    #[must_use]
    pub fn newest(&self) -> &Secret {
        self.0.first().expect("there is always one secret")
    }

    /// The one before, during a rotation.
    #[must_use]
    pub fn older(&self) -> Option<&Secret> {
        self.0.get(1)
    }

    /// Which they are, the newest first.
    #[must_use]
    pub fn key_ids(&self) -> Vec<KeyId> {
        self.0.iter().map(Secret::key_id).collect()
    }

    /// Whether one of them has that id.
    #[must_use]
    pub fn holds(&self, id: KeyId) -> bool {
        self.get(id).is_some()
    }

    /// The one with that id.
    #[must_use]
    pub fn get(&self, id: KeyId) -> Option<&Secret> {
        self.0.iter().find(|secret| secret.key_id() == id)
    }

    /// The newest secret that a peer with `theirs` has too.
    fn newest_common(&self, theirs: &[KeyId]) -> Option<&Secret> {
        self.0.iter().find(|secret| theirs.contains(&secret.key_id()))
    }
}

/// The limits that the other side has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerLimits {
    /// Calls that it may have in flight.
    pub calls_in_flight_max: u32,
    /// Streams that it may have open.
    pub streams_open_max: u32,
    /// Longest payload of one message, bytes.
    pub chunk_max: u32,
    /// Longest payload in all, bytes.
    pub payload_max: u32,
    /// Routes that it may name.
    pub routes_max: u16,
}

impl PeerLimits {
    /// What of `limits` is told.
    #[must_use]
    pub fn of(limits: Limits) -> Self {
        let narrow = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        Self {
            calls_in_flight_max: limits.calls_in_flight_max,
            streams_open_max: limits.streams_open_max,
            chunk_max: narrow(limits.chunk_max),
            payload_max: narrow(limits.payload_max),
            routes_max: limits.routes_max,
        }
    }

    /// `own` limits with what the peer said in their place.
    #[must_use]
    pub fn apply_to(self, own: Limits) -> Limits {
        let wide = |len: u32| usize::try_from(len).unwrap_or(usize::MAX);
        Limits {
            calls_in_flight_max: self.calls_in_flight_max,
            streams_open_max: self.streams_open_max,
            chunk_max: wide(self.chunk_max).max(CHUNK_MIN),
            payload_max: wide(self.payload_max),
            routes_max: self.routes_max,
            ..own
        }
    }
}

/// No peer can force chunks shorter than this, bytes.
const CHUNK_MIN: usize = 1_024;

/// What one side brings into a hello.
#[derive(Debug, Clone)]
pub struct HelloConfig {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Itself.
    pub server: ServerId,
    /// Its present life.
    pub incarnation: Incarnation,
    /// Where it is reached; cut at [`ADDRESS_LEN_MAX`].
    pub address: String,
    /// What it knows.
    pub secrets: Secrets,
    /// Its limits.
    pub limits: PeerLimits,
    /// Whether it wants checksums even under TLS.
    pub always_checksum: bool,
    /// Which lane the connection is for.
    pub lane: Lane,
    /// Whom the dialer expects, if it knows.
    pub expected_peer: Option<ServerId>,
    /// From the transport; zeroes without TLS.
    pub channel_binding: [u8; 32],
}

impl HelloConfig {
    fn wants_checksum(&self) -> bool {
        self.always_checksum || self.channel_binding == [0; 32]
    }

    fn short_address(&self) -> &str {
        let mut end = self.address.len().min(ADDRESS_LEN_MAX);
        while !self.address.is_char_boundary(end) {
            end -= 1;
        }
        &self.address[..end]
    }
}

/// What a peer says about itself, once it has proved that it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerHello {
    /// Who.
    pub server: ServerId,
    /// In which life.
    pub incarnation: Incarnation,
    /// Where it is reached.
    pub address: String,
    /// For which lane.
    pub lane: Lane,
    /// What it accepts.
    pub limits: PeerLimits,
}

/// What both sides agree on when the hello is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Who is at the other end.
    pub peer: ServerId,
    /// In which life.
    pub incarnation: Incarnation,
    /// Where it is reached.
    pub peer_address: String,
    /// Which lane.
    pub lane: Lane,
    /// What the peer accepts.
    pub peer_limits: PeerLimits,
    /// The protocol version that is spoken.
    pub version: u16,
    /// The features that both know.
    pub features: u64,
    /// The secret that was used.
    pub key: KeyId,
    /// Chosen by the acceptor; in the logs of both.
    pub id: u64,
    /// With it messages carry checksums.
    pub salt: Option<Salt>,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this and wait for the answer.
    Send(Vec<u8>),
    /// The acceptor's peer has proved itself: decide, then [`Acceptor::welcome`] or [`Acceptor::refuse`] it.
    Authenticated(PeerHello),
    /// The dialer is welcome.
    Done(Session),
}

/// The side that dialed.
#[derive(Debug)]
pub struct Dialer {
    config: HelloConfig,
    hello: Vec<u8>,
    state: Dialing,
}

#[derive(Debug)]
enum Dialing {
    /// The hello is sent.
    Greeted,
    /// The acceptor has proved itself, and this side's proof is sent.
    Proved { peer: PeerHello, agreed: Agreed, challenge: Vec<u8>, proof: Vec<u8> },
    /// Welcome, refused or failed.
    Ended,
}

/// The side that was dialed.
#[derive(Debug)]
pub struct Acceptor {
    config: HelloConfig,
    nonce: [u8; 32],
    state: Accepting,
}

#[derive(Debug)]
enum Accepting {
    /// Nothing is known of the peer.
    Waiting,
    /// This side has proved itself to whoever it is.
    Challenged(Challenged),
    /// The peer has proved itself with this message; the owner decides.
    Authenticated(Challenged, Vec<u8>),
    /// Refused or failed.
    Ended,
}

/// What was said, by whom, and what was agreed.
#[derive(Debug)]
struct Challenged {
    hello: Vec<u8>,
    challenge: Vec<u8>,
    peer: PeerHello,
    agreed: Agreed,
    secret: Secret,
}

#[derive(Debug, Clone, Copy)]
struct Agreed {
    version: u16,
    features: u64,
    key: KeyId,
    checksum: bool,
}

impl Agreed {
    fn into_session(self, peer: PeerHello, id: u64) -> Session {
        Session {
            peer: peer.server,
            incarnation: peer.incarnation,
            peer_address: peer.address,
            lane: peer.lane,
            peer_limits: peer.limits,
            version: self.version,
            features: self.features,
            key: self.key,
            id,
            salt: self.checksum.then(|| Salt::new(&[b"ashlar grid session", &id.to_be_bytes()])),
        }
    }
}

impl Dialer {
    /// A dialer, and the first message to send. `nonce` is chance that was never used before.
    #[must_use]
    pub fn new(config: HelloConfig, nonce: [u8; 32]) -> (Self, Vec<u8>) {
        let hello = Hello {
            versions: VERSIONS,
            features: FEATURES,
            cluster: config.cluster,
            server: config.server,
            incarnation: config.incarnation,
            address: config.short_address().to_owned(),
            expected_peer: config.expected_peer,
            lane: config.lane,
            keys: config.secrets.key_ids(),
            nonce,
            limits: config.limits,
            wants_checksum: config.wants_checksum(),
        };
        let hello = hello.encode();
        (Self { config, hello: hello.clone(), state: Dialing::Greeted }, hello)
    }

    /// Who is there, once it has proved itself: from the step that sends this side's own proof on.
    #[must_use]
    pub fn peer(&self) -> Option<&PeerHello> {
        match &self.state {
            Dialing::Proved { peer, .. } => Some(peer),
            Dialing::Greeted | Dialing::Ended => None,
        }
    }

    /// Takes the acceptor's next message.
    ///
    /// # Errors
    /// The connection has to be closed; [`HelloError::will_heal`] tells whether dialing again can help.
    pub fn handle_message(&mut self, bytes: &[u8]) -> Result<Step, HelloError> {
        match (core::mem::replace(&mut self.state, Dialing::Ended), Form::decode(bytes)?) {
            (Dialing::Greeted | Dialing::Proved { .. }, Form::Refusal(refusal)) => {
                Err(HelloError::RefusedByPeer(refusal.code, refusal.text))
            }
            (Dialing::Greeted, Form::Challenge(challenge)) => self.handle_challenge(bytes, challenge),
            (Dialing::Proved { peer, agreed, challenge, proof }, Form::Welcome(welcome)) => {
                let said = &bytes[..welcome.proof_at];
                let parts: [&[u8]; 5] = [&self.hello, &challenge, &proof, said, &self.config.channel_binding];
                let secret = self.config.secrets.get(agreed.key);
                if !secret.is_some_and(|secret| secret.verify(WELCOME_CONTEXT, &parts, &welcome.proof)) {
                    return Err(HelloError::Refused(RefusalCode::BadProof));
                }
                Ok(Step::Done(agreed.into_session(peer, welcome.session_id)))
            }
            _ => Err(HelloError::OutOfOrder),
        }
    }

    fn handle_challenge(&mut self, bytes: &[u8], challenge: Challenge) -> Result<Step, HelloError> {
        let config = &self.config;
        if !(VERSIONS.0..=VERSIONS.1).contains(&challenge.version) {
            return Err(HelloError::Refused(RefusalCode::WrongVersion));
        }
        if challenge.cluster != config.cluster {
            return Err(HelloError::Refused(RefusalCode::WrongCluster));
        }
        let secret = config.secrets.get(challenge.key).ok_or(HelloError::Refused(RefusalCode::UnknownKey))?;
        let said = &bytes[..challenge.proof_at];
        if !secret.verify(ACCEPTOR_CONTEXT, &[&self.hello, said, &config.channel_binding], &challenge.proof) {
            return Err(HelloError::Refused(RefusalCode::BadProof));
        }
        if challenge.server == config.server {
            return Err(HelloError::Refused(RefusalCode::OwnEcho));
        }
        if config.expected_peer.is_some_and(|expected| expected != challenge.server) {
            return Err(HelloError::Refused(RefusalCode::WrongServer));
        }
        let proof = secret.mac(DIALER_CONTEXT, &[&self.hello, bytes, &config.channel_binding]);
        let proof = Proof { proof }.encode();
        let peer = PeerHello {
            server: challenge.server,
            incarnation: challenge.incarnation,
            address: challenge.address,
            lane: config.lane,
            limits: challenge.limits,
        };
        let agreed = Agreed {
            version: challenge.version,
            features: challenge.features & FEATURES,
            key: challenge.key,
            checksum: challenge.checksum,
        };
        self.state = Dialing::Proved { peer, agreed, challenge: bytes.to_vec(), proof: proof.clone() };
        Ok(Step::Send(proof))
    }
}

impl Acceptor {
    /// An acceptor that waits for a hello. `nonce` is chance that was never used before.
    #[must_use]
    pub fn new(config: HelloConfig, nonce: [u8; 32]) -> Self {
        Self { config, nonce, state: Accepting::Waiting }
    }

    /// Takes the dialer's next message.
    ///
    /// # Errors
    /// The connection has to be closed, after [`HelloError::refusal_to_send`] was sent.
    pub fn handle_message(&mut self, bytes: &[u8]) -> Result<Step, HelloError> {
        match (core::mem::replace(&mut self.state, Accepting::Ended), Form::decode(bytes)?) {
            (_, Form::Refusal(refusal)) => Err(HelloError::RefusedByPeer(refusal.code, refusal.text)),
            (Accepting::Waiting, Form::Hello(hello)) => self.handle_hello(bytes, hello),
            (Accepting::Challenged(challenged), Form::Proof(proof)) => {
                let parts: [&[u8]; 3] = [&challenged.hello, &challenged.challenge, &self.config.channel_binding];
                if !challenged.secret.verify(DIALER_CONTEXT, &parts, &proof.proof) {
                    return Err(HelloError::Refused(RefusalCode::BadProof));
                }
                // Not earlier: the dialer shall have the proof that it reached itself, to stop dialing.
                if challenged.peer.server == self.config.server {
                    return Err(HelloError::Refused(RefusalCode::OwnEcho));
                }
                let peer = challenged.peer.clone();
                self.state = Accepting::Authenticated(challenged, bytes.to_vec());
                Ok(Step::Authenticated(peer))
            }
            _ => Err(HelloError::OutOfOrder),
        }
    }

    fn handle_hello(&mut self, bytes: &[u8], hello: Hello) -> Result<Step, HelloError> {
        let config = &self.config;
        let version = common_version(hello.versions, VERSIONS);
        let version = version.ok_or(HelloError::Refused(RefusalCode::WrongVersion))?;
        if hello.cluster != config.cluster {
            return Err(HelloError::Refused(RefusalCode::WrongCluster));
        }
        if hello.expected_peer.is_some_and(|expected| expected != config.server) {
            return Err(HelloError::Refused(RefusalCode::WrongServer));
        }
        if hello.lane != config.lane {
            return Err(HelloError::Refused(RefusalCode::WrongLane));
        }
        let secret = config.secrets.newest_common(&hello.keys).ok_or(HelloError::Refused(RefusalCode::UnknownKey))?;
        let agreed = Agreed {
            version,
            features: hello.features & FEATURES,
            key: secret.key_id(),
            checksum: hello.wants_checksum || config.wants_checksum(),
        };
        let mut challenge = Challenge {
            version,
            features: agreed.features,
            cluster: config.cluster,
            server: config.server,
            incarnation: config.incarnation,
            address: config.short_address().to_owned(),
            key: agreed.key,
            nonce: self.nonce,
            limits: config.limits,
            checksum: agreed.checksum,
            proof: [0; 32],
            proof_at: 0,
        }
        .encode_without_proof();
        let proof = secret.mac(ACCEPTOR_CONTEXT, &[bytes, &challenge, &config.channel_binding]);
        write_bin(&mut challenge, &proof);
        let peer = PeerHello {
            server: hello.server,
            incarnation: hello.incarnation,
            address: hello.address,
            lane: hello.lane,
            limits: hello.limits,
        };
        let (hello, secret) = (bytes.to_vec(), secret.clone());
        self.state = Accepting::Challenged(Challenged { hello, challenge: challenge.clone(), peer, agreed, secret });
        Ok(Step::Send(challenge))
    }

    /// The secret with which the peer has proved itself, from [`Step::Authenticated`] on. It may have been replaced since
    /// the hello began.
    #[must_use]
    pub fn key(&self) -> Option<KeyId> {
        match &self.state {
            Accepting::Authenticated(challenged, _) => Some(challenged.agreed.key),
            Accepting::Waiting | Accepting::Challenged(_) | Accepting::Ended => None,
        }
    }

    /// Welcomes the peer: the message to send, and what both agree on.
    ///
    /// # Panics
    /// Before [`Step::Authenticated`].
    #[must_use]
    pub fn welcome(self, session_id: u64) -> (Vec<u8>, Session) {
        let Accepting::Authenticated(Challenged { hello, challenge, peer, agreed, secret }, proof) = self.state else {
            panic!("only an authenticated peer is welcomed");
        };
        let mut welcome = Welcome::encode_without_proof(session_id);
        let parts: [&[u8]; 5] = [&hello, &challenge, &proof, &welcome, &self.config.channel_binding];
        let proof = secret.mac(WELCOME_CONTEXT, &parts);
        write_bin(&mut welcome, &proof);
        (welcome, agreed.into_session(peer, session_id))
    }

    /// The message that refuses the peer.
    #[must_use]
    pub fn refuse(&self, code: RefusalCode) -> Vec<u8> {
        Refusal { code, text: code.to_string() }.encode()
    }
}

#[cfg(test)]
mod tests;

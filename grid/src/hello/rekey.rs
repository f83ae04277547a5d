//! Proof of the newest secret on a live connection, so that replacing the cluster's secret needs no reconnect.
//!
//! Rotation: every server gets the new secret beside the old one; then each asks its peers to prove the new one; once
//! all have, the old one is taken away everywhere, and no connection rests on it any more.
//!
//! One exchange proves one side: `Challenge` (key id, nonce), answered by a keyed BLAKE3 over the session, prover and
//! verifier in this order, nonce and channel binding. The order keeps an answer from being sent back as one's own; the
//! session keeps it to its connection. Both sides may ask at the same time. What travels are two small payloads; how
//! they travel is the owner's matter.

use core::fmt;

use ashlar_wire::id::ServerId;
use ashlar_wire::pack::{PackError, Reader, write_array_len, write_bin, write_uint};
use ashlar_wire::secret::{KeyId, Secret};

use super::{Secrets, Session};

/// Longest message of a rekey, bytes.
pub const REKEY_LEN_MAX: usize = 64;

const CONTEXT: &str = "ashlar grid rekey v1";

/// Why the newest secret was not proved. The connection stays as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RekeyError {
    /// This side does not hold the secret that the peer asks for. Retry when it has been distributed.
    UnknownKey(KeyId),
    /// The peer's answer does not prove the secret. Not safe to retry: another secret, or not the peer.
    BadProof,
    /// The peer's message is not one of a rekey.
    Malformed(PackError),
}

impl fmt::Display for RekeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey(key) => {
                write!(f, "the peer asks for the cluster secret {:016x}, which is not held here: copy it", key.0)
            }
            Self::BadProof => f.write_str("the peer did not prove the newest cluster secret"),
            Self::Malformed(error) => write!(f, "the peer's rekey message is malformed: {error}"),
        }
    }
}

impl core::error::Error for RekeyError {}

impl From<PackError> for RekeyError {
    fn from(error: PackError) -> Self {
        Self::Malformed(error)
    }
}

/// One connection, as a rekey sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rekey {
    session: u64,
    own: ServerId,
    peer: ServerId,
    channel_binding: [u8; 32],
}

/// A challenge that waits for its answer. Good for one answer that proves the secret.
#[derive(Debug)]
pub struct Pending {
    secret: Secret,
    nonce: [u8; 32],
}

impl Rekey {
    /// For the connection of `session`, seen from the server `own`.
    #[must_use]
    pub fn new(own: ServerId, session: &Session, channel_binding: [u8; 32]) -> Self {
        Self { session: session.id, own, peer: session.peer, channel_binding }
    }

    /// Asks the peer to prove the newest of `secrets`. `nonce` is chance that was never used before.
    #[must_use]
    pub fn challenge(&self, secrets: &Secrets, nonce: [u8; 32]) -> (Pending, Vec<u8>) {
        let secret = secrets.newest().clone();
        let mut out = Vec::with_capacity(REKEY_LEN_MAX);
        write_array_len(&mut out, 2);
        write_uint(&mut out, secret.key_id().0);
        write_bin(&mut out, &nonce);
        (Pending { secret, nonce }, out)
    }

    /// Answers the peer's challenge.
    ///
    /// # Errors
    /// The message is malformed, or asks for a secret that is not among `secrets`; see [`RekeyError`].
    pub fn answer(&self, secrets: &Secrets, challenge: &[u8]) -> Result<Vec<u8>, RekeyError> {
        let mut reader = open(challenge, 2)?;
        let key = KeyId(reader.read_uint()?);
        let nonce = reader.read_bin_array()?;
        close(&reader)?;
        let secret = secrets.get(key).ok_or(RekeyError::UnknownKey(key))?;
        let mut out = Vec::with_capacity(REKEY_LEN_MAX);
        write_array_len(&mut out, 1);
        write_bin(&mut out, &secret.mac(CONTEXT, &self.parts(&self.session_bytes(), &self.own, &self.peer, &nonce)));
        Ok(out)
    }

    /// Takes the peer's answer; the secret that it has proved.
    ///
    /// # Errors
    /// The message is malformed, or proves nothing; see [`RekeyError`].
    pub fn verify(&self, pending: &Pending, answer: &[u8]) -> Result<KeyId, RekeyError> {
        let mut reader = open(answer, 1)?;
        let proof = reader.read_bin_array()?;
        close(&reader)?;
        let Pending { secret, nonce } = pending;
        let session = self.session_bytes();
        let proved = secret.verify(CONTEXT, &self.parts(&session, &self.peer, &self.own, nonce), &proof);
        if proved { Ok(secret.key_id()) } else { Err(RekeyError::BadProof) }
    }

    const fn session_bytes(&self) -> [u8; 8] {
        self.session.to_be_bytes()
    }

    fn parts<'a>(
        &'a self,
        session: &'a [u8; 8],
        prover: &'a ServerId,
        verifier: &'a ServerId,
        nonce: &'a [u8; 32],
    ) -> [&'a [u8]; 5] {
        [session, prover.as_bytes(), verifier.as_bytes(), nonce, &self.channel_binding]
    }
}

fn open(bytes: &[u8], elements: u8) -> Result<Reader<'_>, PackError> {
    if bytes.len() > REKEY_LEN_MAX {
        return Err(PackError::TooLong { len: bytes.len(), max: REKEY_LEN_MAX });
    }
    let mut reader = Reader::new(bytes);
    if reader.read_array_len()? == elements { Ok(reader) } else { Err(PackError::Malformed) }
}

fn close(reader: &Reader<'_>) -> Result<(), PackError> {
    if reader.remaining().is_empty() { Ok(()) } else { Err(PackError::Malformed) }
}

#[cfg(test)]
mod tests;

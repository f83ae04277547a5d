//! Replacing the cluster's secret while connections live on.
//!
//! New connections use the newest secret that both sides hold (see [`hello`](crate::hello)); live ones prove it in band
//! (see [`rekey`](crate::hello::rekey)). A connection whose peer has not proved a secret that is still held when the time
//! for it is over is closed, and made again with a secret that is. A hello takes time, and the secret may be replaced
//! meanwhile: what it has proved is compared with what is held when the connection starts, and again by each rotation.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_wire::id::ServerId;
use ashlar_wire::secret::KeyId;

use crate::error::Lost;
use crate::grid::Grid;
use crate::hello::rekey::{Pending, Rekey, RekeyError};
use crate::hello::{Secrets, Session};
use crate::link::Link;
use crate::seam::{Lane, Runtime};

/// The secrets that this server holds now, shared by all its connections.
#[derive(Debug, Clone)]
pub struct Keyring(Arc<Mutex<Secrets>>);

impl Keyring {
    /// A ring that holds `secrets`.
    #[must_use]
    pub fn new(secrets: Secrets) -> Self {
        Self(Arc::new(Mutex::new(secrets)))
    }

    /// The secrets.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether one of the secrets has that id.
    #[must_use]
    pub fn holds(&self, key: KeyId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).holds(key)
    }

    fn replace(&self, secrets: Secrets) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = secrets;
    }
}

/// What one connection has proved.
#[derive(Debug)]
pub struct Proofs {
    keyring: Keyring,
    rekey: Rekey,
    state: Mutex<State>,
}

/// Challenges of one connection that wait for an answer. A rotation sends three at most; of more, the oldest is dropped.
const PENDING_MAX: usize = 8;

#[derive(Debug)]
struct State {
    /// The last secret that the peer has proved.
    key: KeyId,
    /// Challenges without an answer, oldest first. A second one may be sent while the answer to the first travels.
    pending: VecDeque<Pending>,
}

impl Proofs {
    /// For the connection of `session`, at the server `own`.
    #[must_use]
    pub fn new(keyring: Keyring, own: ServerId, session: &Session, channel_binding: [u8; 32]) -> Self {
        let state = State { key: session.key, pending: VecDeque::new() };
        Self { keyring, rekey: Rekey::new(own, session, channel_binding), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last secret that the peer has proved.
    #[must_use]
    pub fn key(&self) -> KeyId {
        self.lock().key
    }

    /// Whether the last secret that the peer has proved is held here now.
    pub(crate) fn is_held(&self) -> bool {
        self.keyring.holds(self.key())
    }

    /// A challenge for the peer. Earlier ones may still be answered.
    fn challenge(&self, nonce: [u8; 32]) -> Vec<u8> {
        let (pending, challenge) = self.rekey.challenge(&self.keyring.secrets(), nonce);
        let mut state = self.lock();
        if state.pending.len() == PENDING_MAX {
            state.pending.pop_front();
        }
        state.pending.push_back(pending);
        drop(state);
        challenge
    }

    /// Answers the peer's challenge.
    ///
    /// # Errors
    /// It asks for a secret that is not held here, or is none.
    pub fn answer(&self, challenge: &[u8]) -> Result<Vec<u8>, RekeyError> {
        self.rekey.answer(&self.keyring.secrets(), challenge)
    }

    /// Takes the peer's answer to any challenge that waits, found by its nonce; one that was not asked for is ignored.
    ///
    /// # Errors
    /// It proves nothing.
    pub fn verify(&self, answer: &[u8]) -> Result<(), RekeyError> {
        let mut state = self.lock();
        let mut result = Ok(());
        for at in 0..state.pending.len() {
            match self.rekey.verify(&state.pending[at], answer) {
                Ok(key) => {
                    // Answers come in the order of the challenges: earlier ones will not be answered any more.
                    state.pending.drain(..=at);
                    state.key = key;
                    return Ok(());
                }
                Err(error) => result = Err(error),
            }
        }
        result
    }
}

impl<R: Runtime> Grid<R> {
    /// The secrets that are held now.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        self.0.keyring.secrets()
    }

    /// Holds `secrets` from now on, newest first, and has every connected peer prove the newest. A rotation is two of these
    /// on every server: first with the new secret beside the old one, then, when all have both, with the new one alone.
    ///
    /// Peers that do not prove a secret that is held here within the time of a hello's step are disconnected.
    pub fn rotate(&self, secrets: Secrets) {
        let shared = self.0.clone();
        shared.keyring.replace(secrets);
        let links = shared.links();
        for link in &links {
            let challenge = link.proofs().challenge(shared.nonce());
            link.lock().push_challenge(&challenge);
        }
        let task = async move {
            shared.runtime.sleep_until(shared.runtime.now() + shared.config.timing.handshake_step_max).await;
            for link in links.iter().filter(|link: &&Arc<Link>| !link.proofs().is_held()) {
                link.lock().close(Lost::Unproved);
            }
        };
        self.0.spawn(Lane::Small, task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;
    use crate::hello::PeerLimits;
    use ashlar_wire::id::Incarnation;
    use ashlar_wire::secret::Secret;

    const A: ServerId = ServerId::from_bytes([1; 16]);
    const B: ServerId = ServerId::from_bytes([2; 16]);

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes([byte; 32])
    }

    fn proofs(own: ServerId, peer: ServerId, secrets: Secrets) -> Proofs {
        let session = Session {
            peer,
            incarnation: Incarnation(1),
            peer_address: String::new(),
            lane: Lane::Small,
            peer_limits: PeerLimits::of(Limits::for_lane(Lane::Small)),
            version: 1,
            features: 0,
            key: secret(1).key_id(),
            id: 5,
            salt: None,
        };
        Proofs::new(Keyring::new(secrets), own, &session, [9; 32])
    }

    #[test]
    fn an_answer_to_an_earlier_challenge_counts() {
        let both = Secrets::rotating(secret(2), secret(1));
        let (a, b) = (proofs(A, B, both.clone()), proofs(B, A, both));
        let (first, second) = (a.challenge([3; 32]), a.challenge([4; 32]));
        let (early, late) = (b.answer(&first).expect("held"), b.answer(&second).expect("held"));
        assert_eq!(a.verify(&early), Ok(()), "the second challenge does not outdate the first");
        assert_eq!(a.key(), secret(2).key_id());
        assert_eq!(a.verify(&late), Ok(()));
        assert_eq!(a.verify(&late), Ok(()), "nothing waits any more: ignored");
        // An answer to a later challenge ends the earlier ones.
        let (third, fourth) = (a.challenge([5; 32]), a.challenge([6; 32]));
        let (third, fourth) = (b.answer(&third).expect("held"), b.answer(&fourth).expect("held"));
        assert_eq!(a.verify(&fourth), Ok(()));
        a.challenge([7; 32]);
        assert_eq!(a.verify(&third), Err(RekeyError::BadProof));
    }

    #[test]
    fn challenges_that_wait_are_limited() {
        let proofs = proofs(A, B, Secrets::new(secret(1)));
        for nonce in 0..40 {
            proofs.challenge([nonce; 32]);
        }
        assert_eq!(proofs.lock().pending.len(), PENDING_MAX);
    }
}

//! Replacing the cluster's secret while connections live on.
//!
//! New connections use the newest secret that both sides hold (see [`hello`](crate::hello)); live ones prove it in band
//! (see [`rekey`](crate::hello::rekey)). A connection whose peer has not proved a secret that is still held when the time
//! for it is over is closed, and made again with a secret that is.

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

#[derive(Debug)]
struct State {
    /// The last secret that the peer has proved.
    key: KeyId,
    pending: Option<Pending>,
}

impl Proofs {
    /// For the connection of `session`, at the server `own`.
    #[must_use]
    pub fn new(keyring: Keyring, own: ServerId, session: &Session, channel_binding: [u8; 32]) -> Self {
        let state = State { key: session.key, pending: None };
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

    fn is_held(&self) -> bool {
        self.keyring.secrets().holds(self.key())
    }

    /// A challenge for the peer; an earlier one is no longer answered.
    fn challenge(&self, nonce: [u8; 32]) -> Vec<u8> {
        let (pending, challenge) = self.rekey.challenge(&self.keyring.secrets(), nonce);
        self.lock().pending = Some(pending);
        challenge
    }

    /// Answers the peer's challenge.
    ///
    /// # Errors
    /// It asks for a secret that is not held here, or is none.
    pub fn answer(&self, challenge: &[u8]) -> Result<Vec<u8>, RekeyError> {
        self.rekey.answer(&self.keyring.secrets(), challenge)
    }

    /// Takes the peer's answer; one that was not asked for is passed over.
    ///
    /// # Errors
    /// It proves nothing.
    pub fn verify(&self, answer: &[u8]) -> Result<(), RekeyError> {
        let mut state = self.lock();
        if let Some(pending) = state.pending.take() {
            state.key = self.rekey.verify(pending, answer)?;
        }
        Ok(())
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

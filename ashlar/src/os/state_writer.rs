//! State writer: the thread that writes what a server must not forget, so that no other thread waits for a drive.
//!
//! What waits is at most one thing of each kind, the newest: a slow drive makes writes fewer, not a queue longer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ashlar_grid::hello::Secrets;
use ashlar_wire::id::{ClusterId, ServerId};

use super::clock;
use super::datadir::{DataDir, MetPeer, SecretPlace, Token};
use crate::failure::Failure;
use ashlar_node::Memory;

/// Pause after the drive refused.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The bus's state, and who wants to know when it is on the drive.
struct State {
    bytes: Vec<u8>,
    stored: Box<dyn FnOnce(Duration) + Send>,
    since: ashlar_wire::time::Instant,
}

/// Secrets to keep, and who wants to know what became of them.
struct Keys {
    token: Token,
    stored: Box<dyn FnOnce(Result<(), String>) + Send>,
}

/// What waits to be written, the newest of each kind.
#[derive(Default)]
struct Pending {
    peers: Option<Vec<MetPeer>>,
    state: Option<State>,
    keys: Option<Keys>,
    is_closed: bool,
}

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }
}

struct Places {
    root: PathBuf,
    secret: SecretPlace,
}

/// A server's memory in its data directory. Dropped, it finishes what waits.
pub struct StateWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl StateWriter {
    /// Starts the thread for the data directory at `root`, and the secret at its place.
    ///
    /// # Errors
    /// The operating system gives no more threads.
    pub fn start(root: &Path, secret: &SecretPlace) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (theirs, places) = (shared.clone(), Places { root: root.to_owned(), secret: secret.clone() });
        let thread = thread::Builder::new().name("state-writer".into()).spawn(move || work(&theirs, &places))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for StateWriter {
    fn drop(&mut self) {
        self.shared.put(|pending| pending.is_closed = true);
        if let Some(thread) = self.thread.take() {
            // One that panicked has ended the process already.
            thread.join().ok();
        }
    }
}

impl Memory for StateWriter {
    fn remember(&self, members: Vec<(ServerId, String)>) {
        let peers = members.into_iter().map(|(server, address)| MetPeer { server, address }).collect();
        self.shared.put(|pending| pending.peers = Some(peers));
    }

    fn keep(&self, bytes: Vec<u8>, stored: Box<dyn FnOnce(Duration) + Send>) {
        let since = clock::now();
        self.shared.put(|pending| pending.state = Some(State { bytes, stored, since }));
    }

    fn keep_secrets(&self, cluster: ClusterId, secrets: &Secrets, stored: Box<dyn FnOnce(Result<(), String>) + Send>) {
        let token = Token { cluster, secrets: secrets.clone() };
        self.shared.put(|pending| pending.keys = Some(Keys { token, stored }));
    }
}

fn work(shared: &Shared, places: &Places) {
    let mut complaint = String::new();
    loop {
        let mut pending = shared.lock();
        while pending.peers.is_none() && pending.state.is_none() && pending.keys.is_none() && !pending.is_closed {
            pending = shared.changed.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        let (peers, state, keys, is_closed) =
            (pending.peers.take(), pending.state.take(), pending.keys.take(), pending.is_closed);
        drop(pending);
        if peers.is_none() && state.is_none() && keys.is_none() {
            return;
        }
        if let Some(keys) = keys {
            // Whoever replaces the secret decides what becomes of a refusal: it is not tried again.
            (keys.stored)(DataDir::keep_secrets(&places.secret, &keys.token).map_err(|failure| failure.to_string()));
        }
        let refused = write(shared, &places.root, peers, state);
        let Err(failure) = refused else {
            complaint.clear();
            continue;
        };
        let text = failure.to_string();
        if text != complaint {
            tracing::error!(%failure, "cannot write what this server must not forget; tried again until the drive takes it");
            complaint = text;
        }
        if is_closed {
            return;
        }
        let pending = shared.lock();
        // Whatever ends this wait early, the next attempt is due.
        drop(shared.changed.wait_timeout_while(pending, RETRY_PAUSE, |pending| !pending.is_closed));
    }
}

/// Writes both; what the drive refused is put back, unless something newer waits already.
fn write(shared: &Shared, root: &Path, peers: Option<Vec<MetPeer>>, state: Option<State>) -> Result<(), Failure> {
    let mut result = Ok(());
    // The bus waits for its state, nobody for the addresses.
    if let Some(state) = state {
        match DataDir::keep_bus(root, &state.bytes) {
            Ok(()) => (state.stored)(clock::now().saturating_since(state.since)),
            Err(failure) => {
                shared.lock().state.get_or_insert(state);
                result = Err(failure);
            }
        }
    }
    if let Some(peers) = peers
        && let Err(failure) = DataDir::remember_peers(root, &peers)
    {
        shared.lock().peers.get_or_insert(peers);
        result = Err(failure);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::datadir::Opening;
    use crate::os::files::tests::Scratch;
    use std::sync::mpsc;

    #[test]
    fn what_is_said_to_be_stored_is_there_and_the_newest_wins() {
        let scratch = Scratch::new();
        let data = DataDir::open(&scratch.0, Opening::default()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let writer = StateWriter::start(data.root(), &data.secret_place).unwrap();
        for number in 0..50_u8 {
            let (sender, root) = (sender.clone(), data.root().to_owned());
            let stored = move |_| {
                let there = std::fs::read(root.join("bus")).unwrap()[0];
                sender.send((number, there)).unwrap();
            };
            writer.keep(vec![number], Box::new(stored));
        }
        writer.remember(vec![(ServerId::from_bytes([7; 16]), "host1:7800".into())]);
        drop(writer);
        drop(sender);
        let told: Vec<(u8, u8)> = receiver.iter().collect();
        assert!(told.iter().all(|(number, there)| number == there), "{told:?}");
        assert!(told.is_sorted() && told.last() == Some(&(49, 49)), "{told:?}");
        drop(data);
        let data = DataDir::open(&scratch.0, Opening::default()).unwrap();
        assert_eq!((data.bus, data.peers.len()), (vec![49], 1));
    }

    #[test]
    fn a_drive_that_refuses_is_asked_again() {
        let scratch = Scratch::new();
        let data = DataDir::open(&scratch.0, Opening::default()).unwrap();
        // A directory where the new file has to be cannot be removed as a file.
        let obstacle = data.root().join("bus.new");
        std::fs::create_dir(&obstacle).unwrap();
        let (sender, receiver) = mpsc::channel();
        let writer = StateWriter::start(data.root(), &data.secret_place).unwrap();
        writer.keep(vec![1], Box::new(move |_| sender.send(()).unwrap()));
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "nothing is stored, so nothing is told");
        std::fs::remove_dir(&obstacle).unwrap();
        receiver.recv().unwrap();
        assert_eq!(std::fs::read(data.root().join("bus")).unwrap(), [1]);
    }
}

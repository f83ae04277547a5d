//! The file that a server's engines share for settings and users, so that what was set once holds after every restart.
//!
//! Each change is in the file, whole and synced, before the engine that was told of it replies. A thread of its own brings it to the
//! server's other engine, takes in what other servers say of users, and applies that to both.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use ashlar_kv::kept::{Change, KEPT_BYTES_MAX, Kept, SettingsStore};
use ashlar_kv::{AclFile, Engine};
use ashlar_wire::id::ServerId;

use crate::failure::Failure;
use crate::os::datadir::{self, DataDir};
use crate::os::files::{self, Readers};
use ashlar_node::keyvalue::users::SharedUsers;

/// The file's name in the data directory, which its checksum binds.
const NAME: &str = "kv.settings";
/// What other servers have said and was not taken in yet; what comes then is said again.
const OFFERED_MAX: usize = 16;

/// Settings and users of a server's engines.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    shown: String,
    own: ServerId,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    kept: Kept,
    /// Grows with every change.
    version: u64,
    /// What other servers have, not taken in yet.
    offered: VecDeque<Kept>,
    is_over: bool,
}

impl Store {
    /// What was kept in the data directory.
    ///
    /// # Errors
    /// It cannot be read, or is damaged: the engines must not start without, because they could be open then.
    pub fn open(data: &DataDir) -> Result<Arc<Self>, Failure> {
        let path = data.root().join(NAME);
        let failed = |why: &str| {
            let what = format!("{} cannot be used: {why}", path.display());
            let remedy = "restore the file from a backup. If it is lost, remove it: the server starts without its settings, \
                          users and password then, and takes users and password from the others of its cluster once it \
                          reaches them; a server alone is open, so set a password at once (`ashlar kv password`)";
            Failure::world(what, remedy)
        };
        let kept = match files::read_text(&path).map_err(|error| failed(&error.to_string()))? {
            None => Kept::default(),
            Some(text) => {
                let body = datadir::unseal(NAME, &text).map_err(|why| failed(&why))?;
                Kept::read(body).map_err(|line| failed(&format!("line {line} of its content makes no sense")))?
            }
        };
        let shown = path.display().to_string();
        let state = Mutex::new(State { kept, ..State::default() });
        Ok(Arc::new(Self { path, shown, own: data.server, state, news: Condvar::new() }))
    }

    /// Everything that is kept.
    #[must_use]
    pub fn kept(&self) -> Kept {
        self.lock().kept.clone()
    }

    /// Brings changes to these engines, which have everything that was kept until now, until the store is closed.
    pub(super) fn attend(&self, engines: &[Arc<Engine>]) {
        let mut applied = 0;
        while let Some((version, kept)) = self.wait(applied) {
            for engine in engines {
                if let Err(why) = engine.apply_kept(&kept) {
                    tracing::error!(why, "an engine cannot take in settings or users of the cluster");
                }
            }
            applied = version;
        }
    }

    /// What is kept once it is of another version than that one; nothing once the store is closed.
    fn wait(&self, applied: u64) -> Option<(u64, Kept)> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            while let Some(other) = state.offered.pop_front() {
                self.take_in(&mut state, &other);
            }
            if state.version != applied {
                return Some((state.version, state.kept.clone()));
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take_in(&self, state: &mut State, other: &Kept) {
        let mut merged = state.kept.clone();
        if merged.merge(other) {
            match self.replace(state, merged) {
                Ok(()) => tracing::info!("users of the key-value engines are as another server of the cluster says"),
                // It is offered again.
                Err(why) => tracing::error!(why, "users that another server has cannot be kept"),
            }
        }
    }

    /// Nothing is waited for any more.
    pub(super) fn close(&self) {
        self.lock().is_over = true;
        self.news.notify_all();
    }

    fn replace(&self, state: &mut State, kept: Kept) -> Result<(), String> {
        let text = kept.write();
        if text.len() > KEPT_BYTES_MAX {
            return Err(format!("settings and users would take {} bytes, {KEPT_BYTES_MAX} are the most", text.len()));
        }
        let sealed = datadir::seal(NAME, &text);
        files::write_whole(&self.path, sealed.as_bytes(), Readers::Owner).map_err(|error| {
            tracing::error!(%error, path = self.shown, "settings and users cannot be kept");
            format!("cannot write {}: {error}", self.shown)
        })?;
        (state.kept, state.version) = (kept, state.version + 1);
        self.news.notify_all();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SettingsStore for Store {
    fn keep(&self, changes: &[Change]) -> Result<(), String> {
        let mut state = self.lock();
        let mut kept = state.kept.clone();
        kept.change(changes, self.own);
        self.replace(&mut state, kept)
    }
}

impl SharedUsers for Store {
    fn text(&self) -> String {
        self.lock().kept.shared()
    }

    fn offer(&self, text: &str) -> Result<(), usize> {
        let other = Kept::read(text)?;
        let mut state = self.lock();
        if state.offered.len() < OFFERED_MAX {
            state.offered.push_back(other);
            self.news.notify_all();
        }
        Ok(())
    }
}

/// The users of a store, as `ACL SAVE` and `ACL LOAD` see them.
#[derive(Debug)]
pub(super) struct StoredUsers(pub(super) Arc<Store>);

impl AclFile for StoredUsers {
    fn name(&self) -> &str {
        &self.0.shown
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        Ok(self.0.kept().acl_text())
    }

    /// All users are there already: each change was written when it was made. What is missing is a drive that has lost them.
    fn write(&self, _text: &[u8]) -> Result<(), String> {
        self.0.keep(&[])
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::os::datadir::Opening;
    use crate::os::files::tests::Scratch;

    fn user(rules: &str) -> Change {
        Change::User(b"default".to_vec(), Some(rules.into()))
    }

    #[test]
    fn what_was_kept_is_there_again_and_damage_is_refused() {
        let scratch = Scratch::new();
        let open = || Store::open(&DataDir::open(&scratch.0, Opening::default()).unwrap());
        let store = open().unwrap();
        store.keep(&[Change::Setting("maxmemory", b"5".to_vec()), user("user default on #x")]).unwrap();
        let kept = store.kept();
        drop(store);
        assert_eq!(open().unwrap().kept(), kept);
        let path = scratch.0.join(NAME);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        // A missing end of the last line harms nothing.
        for at in 0..text.trim_end().len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert!(open().is_err(), "a bit of byte {at} has changed");
            std::fs::write(&path, &text.as_bytes()[..at]).unwrap();
            assert!(open().is_err(), "cut at {at}");
        }
        assert!(open().unwrap_err().remedy.contains("ashlar kv password"));
    }

    #[test]
    fn what_cannot_be_written_is_not_kept() {
        let scratch = Scratch::new();
        let store = Store::open(&DataDir::open(&scratch.0, Opening::default()).unwrap()).unwrap();
        store.keep(&[user("user default on #x")]).unwrap();
        let kept = store.kept();
        // A directory is in the way of the file that is written first.
        std::fs::create_dir(store.path.with_added_extension("new")).unwrap();
        assert!(store.keep(&[user("user default on nopass")]).is_err());
        let long = vec![b'x'; KEPT_BYTES_MAX];
        assert!(store.keep(&[Change::Setting("maxmemory", long)]).is_err());
        assert_eq!(store.kept(), kept);
    }

    #[test]
    fn what_others_have_is_taken_in_if_it_is_newer() {
        let (here, there) = (Scratch::new(), Scratch::new());
        let open = |scratch: &Scratch| Store::open(&DataDir::open(&scratch.0, Opening::default()).unwrap()).unwrap();
        let (one, two) = (open(&here), open(&there));
        one.keep(&[user("user default on #x")]).unwrap();
        two.offer(&one.text()).unwrap();
        let (version, kept) = two.wait(0).unwrap();
        assert_eq!((version, kept.shared()), (1, one.text()));
        assert_eq!(two.offer("nonsense"), Err(1));
        (0..2 * OFFERED_MAX).for_each(|_| two.offer(&one.text()).unwrap());
        assert_eq!(two.lock().offered.len(), OFFERED_MAX);
        two.close();
        assert_eq!(two.wait(version), None);
    }
}

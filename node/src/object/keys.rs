//! Keys of the object service that every server has: the root key, one pair that may do everything; and the master key and keys with
//! names, under which the keys of encrypted objects are wrapped. Named records of the catalog.
//!
//! Written forms, version 1. The root key: version, length and text of the access key, length and text of the secret key. The
//! master key and keys with names: version, 32 bytes.
//!
//! Deliberately absent: deleting a key with a name. Nobody could read any more what it has encrypted, and nothing says what that is.

use core::time::Duration;

use ashlar_catalog::change::Change;
use ashlar_catalog::error::RefusalKind;
use ashlar_catalog::raft::catalog::Error;
use ashlar_catalog::record::{Expected, RecordKey};
use ashlar_grid::seam::Runtime;
use ashlar_object::s3::{KeyName, NoKey};
use ashlar_wire::secret::Secret;

use super::service::ObjectNode;
use crate::Node;

const VERSION: u8 = 1;
const ROOT: &str = "root";
const MASTER: &str = "master";
/// Keys with names.
const KMS: &str = "object/kms-key";
/// Keys with names, all together.
pub const KMS_KEYS_MAX: usize = 1_000;
/// Letters and digits that no eye takes for another.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Letters of an access key; S3's clients know keys of this length.
const ACCESS_LETTERS: usize = 20;
/// Letters of a secret key: 200 bits.
const SECRET_LETTERS: usize = 40;
/// Pause before the catalog is asked again.
const RETRY: Duration = Duration::from_millis(300);

/// A pair of keys.
#[derive(Clone, PartialEq, Eq)]
pub struct RootKey {
    /// What a client is called.
    pub access_key: String,
    /// With what it signs.
    pub secret_key: String,
}

impl core::fmt::Debug for RootKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RootKey").field("access_key", &self.access_key).field("secret_key", &"***").finish()
    }
}

impl RootKey {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for text in [&self.access_key, &self.secret_key] {
            out.push(u8::try_from(text.len()).expect("keys are short"));
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (access_key, rest) = take(rest)?;
        let (secret_key, rest) = take(rest)?;
        (*version == VERSION && rest.is_empty()).then_some(Self { access_key, secret_key })
    }
}

pub(super) fn take(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*len))?;
    Some((core::str::from_utf8(text).ok()?.to_owned(), rest))
}

/// Why a key with a name was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KmsKeyError {
    /// The caller's fault: no key may be called so, one is called so already, or there are too many.
    Refused(&'static str),
    /// The catalog has not answered. A retry is safe; if it is refused, the key may have been made by the request before.
    Unavailable,
}

/// Why the root key was not replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceError {
    /// This server was given its root key, and would put it back when it starts again. The caller's fault.
    Given,
    /// The catalog has not answered: the key may have been replaced by one that nobody knows. A retry is safe.
    Unavailable,
}

fn record_key(name: &str) -> RecordKey {
    RecordKey { space: "object/key".into(), name: name.into() }
}

fn kms_record_key(name: &str) -> RecordKey {
    RecordKey { space: KMS.into(), name: name.into() }
}

fn encode_wrapping(key: &[u8; 32]) -> Vec<u8> {
    [&[VERSION], &key[..]].concat()
}

fn decode_wrapping(bytes: &[u8]) -> Option<Secret> {
    let (version, rest) = bytes.split_first()?;
    let key = <[u8; 32]>::try_from(rest).ok()?;
    (*version == VERSION).then(|| Secret::from_bytes(key))
}

/// A pair of keys that nobody can guess.
pub(super) fn draw_key<R: Runtime>(node: &Node<R>) -> RootKey {
    let letters = |count: usize| {
        let mut bytes = vec![0; count];
        node.runtime().random(&mut bytes);
        bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect::<String>()
    };
    RootKey { access_key: letters(ACCESS_LETTERS), secret_key: letters(SECRET_LETTERS) }
}

impl<R: Runtime> ObjectNode<R> {
    /// The root key, once there is one.
    #[must_use]
    pub fn root_key(&self) -> Option<RootKey> {
        self.catalog().state_now()?.record(&record_key(ROOT)).and_then(|record| RootKey::decode(&record.value))
    }

    /// The root key as people are told it: not the one that this server is about to replace by the one that it was given.
    #[must_use]
    pub fn lasting_root_key(&self) -> Option<RootKey> {
        let given = self.given_root().get();
        self.root_key().filter(|key| given.is_none_or(|given| given == key))
    }

    /// Whether this server knows all keys and buckets that there were when it started.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.catalog().is_caught_up()
    }

    /// A key under which data keys are wrapped.
    ///
    /// # Errors
    /// See [`NoKey`].
    pub fn wrapping_key(&self, name: &KeyName) -> Result<Secret, NoKey> {
        let (key, unknown) = match name {
            KeyName::Master => (record_key(MASTER), NoKey::Unavailable),
            KeyName::Kms(name) => (kms_record_key(name), NoKey::Unknown),
        };
        let state = self.catalog().state_now().ok_or(NoKey::Unavailable)?;
        state.record(&key).and_then(|record| decode_wrapping(&record.value)).ok_or(unknown)
    }

    /// The names of the keys that administrators have made.
    #[must_use]
    pub fn kms_keys(&self) -> Vec<String> {
        let state = self.catalog().state_now();
        state.map_or_else(Vec::new, |state| state.records_of(KMS).map(|record| record.key.name.clone()).collect())
    }

    /// Makes a key with a name. Durable at a majority of the catalog's voters on return; a server knows it as soon as its copy of the
    /// catalog has it. It is never deleted.
    ///
    /// # Errors
    /// See [`KmsKeyError`].
    pub async fn make_kms_key(&self, name: &str) -> Result<(), KmsKeyError> {
        if KeyName::named(name.to_owned()).is_none() {
            return Err(KmsKeyError::Refused("a key is called by 1 to 64 letters, digits, '-', '_' and '.'"));
        }
        let node = self.node().ok_or(KmsKeyError::Unavailable)?;
        let state = self.catalog().state().await.map_err(|_| KmsKeyError::Unavailable)?;
        if state.records_of(KMS).count() >= KMS_KEYS_MAX {
            return Err(KmsKeyError::Refused("there are 1,000 keys already"));
        }
        let mut key = [0; 32];
        node.runtime().random(&mut key);
        let (value, expected) = (encode_wrapping(&key), Expected::Absent);
        match self.catalog().propose(Change::PutRecord { key: kms_record_key(name), expected, value }).await {
            Ok(_) => Ok(()),
            Err(Error::Refused(refused)) if refused.kind == RefusalKind::Stale => {
                Err(KmsKeyError::Refused("a key is called so already"))
            }
            Err(_) => Err(KmsKeyError::Unavailable),
        }
    }

    /// The root key that a person has given this server. Only the first call does anything; before the node starts.
    pub fn give_root_key(&self, key: RootKey) {
        drop(self.given_root().set(key));
    }

    /// Replaces the root key by another one that nobody can guess. Durable at a majority of the catalog's voters on return; every server
    /// goes by it within seconds, and refuses what the old one has signed, sessions too.
    ///
    /// # Errors
    /// See [`ReplaceError`].
    pub async fn replace_root_key(&self) -> Result<RootKey, ReplaceError> {
        if self.given_root().get().is_some() {
            return Err(ReplaceError::Given);
        }
        let node = self.node().ok_or(ReplaceError::Unavailable)?;
        let key = draw_key(&node);
        let (value, expected) = (key.encode(), Expected::Anything);
        let change = Change::PutRecord { key: record_key(ROOT), expected, value };
        self.catalog().propose(change).await.map(|_| key).map_err(|_| ReplaceError::Unavailable)
    }

    /// Makes the keys of a new cluster, and replaces the root key by the one that was given.
    pub(super) async fn make_keys(self, node: Node<R>) {
        // Nobody makes a bucket without a key, and buckets that are made later have their index where it has enough copies.
        while !self.has_index_set() && self.root_key().is_none() && !self.is_over() {
            node.runtime().sleep_until(node.runtime().now() + RETRY).await;
        }
        let given = self.given_root().get().cloned();
        self.make_record(&node, record_key(ROOT), given.clone().unwrap_or_else(|| draw_key(&node)).encode()).await;
        let mut master = [0; 32];
        node.runtime().random(&mut master);
        self.make_record(&node, record_key(MASTER), encode_wrapping(&master)).await;
        if let Some(given) = given {
            self.put_root_key(&node, &given).await;
        }
    }

    /// Makes the root key the one that was given.
    async fn put_root_key(&self, node: &Node<R>, given: &RootKey) {
        while !self.is_over() {
            if let Ok(state) = self.catalog().state().await
                && let Some(record) = state.record(&record_key(ROOT))
            {
                if RootKey::decode(&record.value).as_ref() == Some(given) {
                    return;
                }
                if self.user_key(&given.access_key).is_some() {
                    tracing::error!(
                        access_key = given.access_key,
                        "a user has a key of the name of the root key that this server was given: the root key stays as it is"
                    );
                    return;
                }
                let (value, expected) = (given.encode(), Expected::Revision(record.revision));
                match self.catalog().propose(Change::PutRecord { key: record_key(ROOT), expected, value }).await {
                    Ok(_) => {
                        tracing::warn!(
                            access_key = given.access_key,
                            "the root key of S3 is replaced by the one that this server was given"
                        );
                        return;
                    }
                    Err(Error::Stopped) => return,
                    Err(_) => {}
                }
            }
            node.runtime().sleep_until(node.runtime().now() + RETRY).await;
        }
    }

    /// Makes a record, unless it is there. Of several servers that do so at once, one succeeds.
    async fn make_record(&self, node: &Node<R>, key: RecordKey, value: Vec<u8>) {
        let change = Change::PutRecord { key: key.clone(), expected: Expected::Absent, value };
        loop {
            let is_there = self.catalog().state().await.is_ok_and(|state| state.record(&key).is_some());
            if is_there || self.is_over() {
                return;
            }
            match self.catalog().propose(change.clone()).await {
                Ok(_) | Err(Error::Refused(_) | Error::Stopped) => return,
                Err(_) => node.runtime().sleep_until(node.runtime().now() + RETRY).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let root = RootKey { access_key: "AB".into(), secret_key: "xyz".into() };
        let bytes = root.encode();
        assert_eq!(bytes, [1, 2, b'A', b'B', 3, b'x', b'y', b'z']);
        assert_eq!(RootKey::decode(&bytes), Some(root.clone()));
        assert_eq!(RootKey::decode(&bytes[..7]), None);
        assert_eq!(RootKey::decode(&[&bytes[..], &[0]].concat()), None);
        assert!(!format!("{root:?}").contains("xyz"));
        let master = [&[1][..], &[7; 32]].concat();
        assert_eq!(encode_wrapping(&[7; 32]), master);
        assert_eq!(decode_wrapping(&master), Some(Secret::from_bytes([7; 32])));
        assert_eq!(decode_wrapping(&master[..32]), None);
        assert_eq!(decode_wrapping(&[&[2][..], &[7; 32]].concat()), None);
    }
}

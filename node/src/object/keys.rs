//! Keys of the object service that every server has: the root key, one pair that may do everything; and the master key, under which
//! the keys of encrypted objects are wrapped. Named records of the catalog.
//!
//! Written forms, version 1. The root key: version, length and text of the access key, length and text of the secret key. The
//! master key: version, 32 bytes.

use core::time::Duration;

use ashlar_catalog::change::Change;
use ashlar_catalog::raft::catalog::Error;
use ashlar_catalog::record::{Expected, RecordKey};
use ashlar_grid::seam::Runtime;
use ashlar_wire::secret::Secret;

use super::service::ObjectNode;
use crate::Node;

const VERSION: u8 = 1;
const ROOT: &str = "root";
const MASTER: &str = "master";
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

fn record_key(name: &str) -> RecordKey {
    RecordKey { space: "object/key".into(), name: name.into() }
}

fn decode_master(bytes: &[u8]) -> Option<Secret> {
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

    /// Whether this server knows all keys and buckets that there were when it started.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.catalog().is_caught_up()
    }

    /// The master key, once there is one.
    #[must_use]
    pub fn master_key(&self) -> Option<Secret> {
        self.catalog().state_now()?.record(&record_key(MASTER)).and_then(|record| decode_master(&record.value))
    }

    /// Makes the keys of a new cluster.
    pub(super) async fn make_keys(self, node: Node<R>) {
        // Nobody makes a bucket without a key, and buckets that are made later have their index where it has enough copies.
        while !self.has_index_set() && self.root_key().is_none() && !self.is_over() {
            node.runtime().sleep_until(node.runtime().now() + RETRY).await;
        }
        self.make_record(&node, record_key(ROOT), draw_key(&node).encode()).await;
        let mut master = [0; 32];
        node.runtime().random(&mut master);
        self.make_record(&node, record_key(MASTER), [&[VERSION][..], &master].concat()).await;
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
        assert_eq!(decode_master(&master), Some(Secret::from_bytes([7; 32])));
        assert_eq!(decode_master(&master[..32]), None);
        assert_eq!(decode_master(&[&[2][..], &[7; 32]].concat()), None);
    }
}

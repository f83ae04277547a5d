//! Whether a bucket keeps versions: an entry of its index, and what this server has last seen of it.
//!
//! A write goes by what this server has seen, and its commit checks that the entry is still the same: so no write that
//! begins after a change was answered goes by what held before, and none asks the index for it each time.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::{Committed, ObjectService, TRIES_MAX, unchanged};
use crate::api::{Error, Versioning};
use crate::cluster::Cluster;
use crate::index::Change;
use crate::index::key::{self, BucketId};

/// Buckets of which is remembered whether they keep versions. Beyond that one that was met is forgotten.
const KNOWN_MAX: usize = 8_192;
/// For how long a read goes by what was seen, in milliseconds.
const READ_MS_MAX: u64 = 5_000;
/// Version of the written form: a byte, and a byte for the state.
const VERSION: u8 = 1;

/// What was seen of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) state: Versioning,
    /// The version of the entry; nothing where there is none.
    pub(super) entry: Option<u64>,
    seen_ms: u64,
}

/// What was seen of all buckets.
#[derive(Debug, Default)]
pub(super) struct KnownBuckets(Mutex<BTreeMap<BucketId, Known>>);

impl KnownBuckets {
    fn get(&self, bucket: BucketId) -> Option<Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&bucket).copied()
    }

    fn set(&self, bucket: BucketId, known: Known) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KNOWN_MAX && !all.contains_key(&bucket) {
            all.pop_first();
        }
        all.insert(bucket, known);
    }

    pub(super) fn forget(&self, bucket: BucketId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&bucket);
    }
}

pub(super) fn encode(state: Versioning) -> Vec<u8> {
    let state = match state {
        Versioning::Never => 0,
        Versioning::Enabled => 1,
        Versioning::Suspended => 2,
        Versioning::Locked => 3,
    };
    vec![VERSION, state]
}

pub(super) fn decode(bytes: &[u8]) -> Result<Versioning, Error> {
    match bytes {
        [VERSION, 0] => Ok(Versioning::Never),
        [VERSION, 1] => Ok(Versioning::Enabled),
        [VERSION, 2] => Ok(Versioning::Suspended),
        [VERSION, 3] => Ok(Versioning::Locked),
        _ => Err(Error::Damaged),
    }
}

impl<C: Cluster> ObjectService<C> {
    async fn look_at_versioning(&self, bucket: BucketId) -> Result<Known, Error> {
        let seen_ms = self.cluster.moment().now_ms;
        let entry = self.get_entry(bucket, key::versioning(bucket)).await?;
        let state = entry.as_ref().map_or(Ok(Versioning::Never), |entry| decode(&entry.value))?;
        let known = Known { state, entry: entry.map(|entry| entry.version), seen_ms };
        self.known.set(bucket, known);
        Ok(known)
    }

    /// What a write goes by; its commit checks it.
    pub(super) async fn versioning_for_write(&self, bucket: BucketId) -> Result<Known, Error> {
        match self.known.get(bucket) {
            Some(known) => Ok(known),
            None => self.look_at_versioning(bucket).await,
        }
    }

    /// What a read goes by: some seconds old at most.
    pub(super) async fn versioning_for_read(&self, bucket: BucketId) -> Result<Versioning, Error> {
        let now_ms = self.cluster.moment().now_ms;
        match self.known.get(bucket) {
            Some(known) if now_ms.saturating_sub(known.seen_ms) <= READ_MS_MAX => Ok(known.state),
            _ => Ok(self.look_at_versioning(bucket).await?.state),
        }
    }

    /// What a write of a lock goes by; its commit checks it.
    pub(super) async fn check_lockable(&self, bucket: BucketId) -> Result<Known, Error> {
        let mut known = self.versioning_for_write(bucket).await?;
        if known.state != Versioning::Locked {
            // Another server may have been asked to let its versions be locked.
            known = self.look_at_versioning(bucket).await?;
        }
        if known.state == Versioning::Locked { Ok(known) } else { Err(Error::NotLockable) }
    }

    pub(super) async fn versioning_now(&self, bucket: &str) -> Result<Versioning, Error> {
        let (bucket, _) = self.bucket(bucket).await?;
        Ok(self.look_at_versioning(bucket).await?.state)
    }

    pub(super) async fn set_versioning(&self, bucket: &str, state: Versioning) -> Result<(), Error> {
        if state == Versioning::Never {
            return Err(Error::BadRequest("a bucket that has kept versions can only stop to"));
        }
        let (bucket, _) = self.bucket(bucket).await?;
        for _ in 0..TRIES_MAX {
            let known = self.look_at_versioning(bucket).await?;
            match (known.state, state) {
                (now, wanted) if now == wanted => return Ok(()),
                (Versioning::Locked, Versioning::Enabled) => return Ok(()),
                (Versioning::Locked, _) | (Versioning::Never | Versioning::Suspended, Versioning::Locked) => {
                    return Err(Error::BadState);
                }
                _ => {}
            }
            let key = key::versioning(bucket);
            let change = Change { key: key.clone(), value: Some(Bytes::from(encode(state))) };
            let committed = self.commit(bucket, vec![unchanged(key, known.entry)], vec![change]).await;
            self.known.forget(bucket);
            if let Committed::Done(_) = committed? {
                return Ok(());
            }
        }
        Err(Error::Unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(encode(Versioning::Enabled), [1, 1]);
        assert_eq!(encode(Versioning::Suspended), [1, 2]);
        assert_eq!(encode(Versioning::Locked), [1, 3]);
        for state in [Versioning::Never, Versioning::Enabled, Versioning::Suspended, Versioning::Locked] {
            assert_eq!(decode(&encode(state)), Ok(state));
        }
        for wrong in [&[][..], &[1], &[1, 4], &[2, 1], &[1, 1, 1]] {
            assert_eq!(decode(wrong), Err(Error::Damaged));
        }
    }

    #[test]
    fn so_many_buckets_are_known_and_not_more() {
        let buckets = KnownBuckets::default();
        let known = Known { state: Versioning::Enabled, entry: Some(1), seen_ms: 0 };
        for number in 0..=KNOWN_MAX {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(number as u64).to_be_bytes());
            buckets.set(BucketId(id), known);
        }
        assert_eq!(buckets.0.lock().unwrap().len(), KNOWN_MAX);
        assert_eq!((buckets.get(BucketId([0; 16])), buckets.get(BucketId([9; 16]))), (None, None));
        // One that is known takes no other one's place.
        let last = *buckets.0.lock().unwrap().last_key_value().unwrap().0;
        let newer = Known { state: Versioning::Locked, ..known };
        buckets.set(last, newer);
        assert_eq!(buckets.get(last), Some(newer));
        assert_eq!(buckets.0.lock().unwrap().len(), KNOWN_MAX);
    }
}

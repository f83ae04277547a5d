//! The list of buckets: named records of the catalog. Written form, version 1: version, id, time of creation. Version 2 has
//! attributes behind that: pairs of a name and a value, each with a length of four bytes.

use core::time::Duration;

use ashlar_catalog::change::Change;
use ashlar_catalog::error::RefusalKind;
use ashlar_catalog::raft::catalog::Error;
use ashlar_catalog::record::{Expected, NamedRecord, RecordKey};
use ashlar_catalog::state::State;
use ashlar_grid::seam::Runtime;
use ashlar_object::api::{Attributes, BoxFuture};
use ashlar_object::cluster::{BucketList, BucketListError, BucketRecord};
use ashlar_object::index::key::BucketId;
use ashlar_wire::time::Instant;

use super::service::ObjectNode;
use crate::together;

const SPACE: &str = "object/bucket";
const VERSION: u8 = 1;
const VERSION_WITH_ATTRIBUTES: u8 = 2;
/// How long this server's copy of the catalog may take to show a change that was decided.
const SHOWN_MAX: Duration = Duration::from_secs(5);

fn key(name: &str) -> RecordKey {
    RecordKey { space: SPACE.into(), name: name.into() }
}

fn encode(bucket: &BucketRecord) -> Vec<u8> {
    let version = if bucket.attributes.0.is_empty() { VERSION } else { VERSION_WITH_ATTRIBUTES };
    let mut out = [&[version][..], &bucket.id.0, &bucket.created_ms.to_be_bytes()].concat();
    for text in bucket.attributes.0.iter().flat_map(|(name, value)| [name, value]) {
        out.extend_from_slice(&u32::try_from(text.len()).expect("attributes are limited").to_be_bytes());
        out.extend_from_slice(text.as_bytes());
    }
    out
}

fn decode(record: &NamedRecord) -> Option<BucketRecord> {
    let (version, rest) = record.value.split_first()?;
    let (id, rest) = rest.split_first_chunk::<16>()?;
    let (created, mut rest) = rest.split_first_chunk::<8>()?;
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        pairs.push((take_text(&mut rest)?, take_text(&mut rest)?));
    }
    let is_known = match *version {
        VERSION => pairs.is_empty(),
        VERSION_WITH_ATTRIBUTES => true,
        _ => false,
    };
    let created_ms = u64::from_be_bytes(*created);
    is_known.then_some(BucketRecord { id: BucketId(*id), created_ms, attributes: Attributes(pairs) })
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let (len, behind) = rest.split_first_chunk::<4>()?;
    let (text, behind) = behind.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
    *rest = behind;
    core::str::from_utf8(text).ok().map(str::to_owned)
}

fn refused(error: &Error, otherwise: BucketListError) -> BucketListError {
    match error {
        Error::Refused(refused) if refused.kind == RefusalKind::Exists => BucketListError::Exists,
        Error::Refused(_) => otherwise,
        _ => BucketListError::Unavailable,
    }
}

/// All buckets of a state, ascending by name.
pub(super) fn buckets_of(state: &State) -> impl Iterator<Item = (String, BucketRecord)> {
    state.records_of(SPACE).filter_map(|record| Some((record.key.name.clone(), decode(record)?)))
}

impl<R: Runtime> ObjectNode<R> {
    fn bucket_now(&self, name: &str) -> Option<BucketRecord> {
        self.catalog().state_now()?.record(&key(name)).and_then(decode)
    }

    /// A bucket that this server's copy of the catalog does not have: another server may have made it, so the copy is brought up
    /// to what was decided before it is told that there is none.
    async fn look_for(&self, name: &str) -> Result<Option<BucketRecord>, BucketListError> {
        let node = self.node().ok_or(BucketListError::Unavailable)?;
        let late = node.runtime().sleep_until(node.runtime().now() + SHOWN_MAX);
        match together::first(Box::pin(self.catalog().catch_up()), late).await {
            Some(Ok(())) => Ok(self.bucket_now(name)),
            Some(Err(_)) | None => Err(BucketListError::Unavailable),
        }
    }

    async fn add_bucket(&self, name: &str, bucket: BucketRecord) -> Result<(), BucketListError> {
        let change = Change::PutRecord { key: key(name), expected: Expected::Absent, value: encode(&bucket) };
        match self.catalog().propose(change).await {
            Ok(_) => Ok(()),
            // Refused as a second one, it may be this one: a proposal whose answer was lost is repeated.
            Err(_) if self.bucket_now(name).is_some_and(|now| now.id == bucket.id) => Ok(()),
            Err(error) => Err(refused(&error, BucketListError::Exists)),
        }
    }

    async fn replace_bucket(
        &self,
        name: &str,
        seen: &BucketRecord,
        bucket: BucketRecord,
    ) -> Result<(), BucketListError> {
        let node = self.node().ok_or(BucketListError::Unavailable)?;
        let state = self.catalog().state().await.map_err(|_| BucketListError::Unavailable)?;
        let record = state.record(&key(name)).ok_or(BucketListError::Unknown)?;
        match decode(record) {
            Some(now) if now == *seen => {}
            Some(now) if now.id == seen.id => return Err(BucketListError::Changed),
            _ => return Err(BucketListError::Unknown),
        }
        let expected = Expected::Revision(record.revision);
        let change = Change::PutRecord { key: key(name), expected, value: encode(&bucket) };
        let until = node.runtime().now() + SHOWN_MAX;
        match self.catalog().propose(change).await {
            // This server's copy may show it a little later; who changed it sees it at once.
            Ok(applied) => {
                let is_shown = |state: &State| state.version() >= applied.version;
                self.wait_for(is_shown, until).await
            }
            // Another server's change came first. It may have made what was there already, so what counts is the record's
            // revision. The next try needs a copy that shows it.
            Err(Error::Refused(error)) if error.kind == RefusalKind::Stale => {
                let revision = record.revision;
                let is_shown = |state: &State| state.record(&key(name)).is_none_or(|now| now.revision != revision);
                self.wait_for(is_shown, until).await?;
                Err(BucketListError::Changed)
            }
            Err(error) => Err(refused(&error, BucketListError::Unavailable)),
        }
    }

    /// Waits until this server's copy of the catalog shows something.
    async fn wait_for(&self, is_shown: impl Fn(&State) -> bool, until: Instant) -> Result<(), BucketListError> {
        let node = self.node().ok_or(BucketListError::Unavailable)?;
        loop {
            let state = self.catalog().state().await.map_err(|_| BucketListError::Unavailable)?;
            if is_shown(&state) {
                return Ok(());
            }
            let watch = Box::pin(async { self.catalog().watch(state.version()).await.is_ok() });
            if together::first(watch, node.runtime().sleep_until(until)).await != Some(true) {
                return Err(BucketListError::Unavailable);
            }
        }
    }

    async fn remove_bucket(&self, name: &str, bucket: BucketId) -> Result<(), BucketListError> {
        let state = self.catalog().state().await.map_err(|_| BucketListError::Unavailable)?;
        let record = state.record(&key(name)).filter(|record| decode(record).is_some_and(|known| known.id == bucket));
        let revision = record.ok_or(BucketListError::Unknown)?.revision;
        let change = Change::RemoveRecord { key: key(name), expected: Expected::Revision(revision) };
        match self.catalog().propose(change).await {
            Ok(_) => Ok(()),
            Err(error) => Err(refused(&error, BucketListError::Unknown)),
        }
    }
}

impl<R: Runtime> BucketList for ObjectNode<R> {
    fn find<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<BucketRecord>, BucketListError>> {
        Box::pin(async move {
            match self.bucket_now(name) {
                Some(bucket) => Ok(Some(bucket)),
                None => self.look_for(name).await,
            }
        })
    }

    fn all(&self) -> BoxFuture<'_, Result<Vec<(String, BucketRecord)>, BucketListError>> {
        Box::pin(async move {
            let state = self.catalog().state().await.map_err(|_| BucketListError::Unavailable)?;
            Ok(buckets_of(&state).collect())
        })
    }

    fn add<'a>(&'a self, name: &'a str, bucket: BucketRecord) -> BoxFuture<'a, Result<(), BucketListError>> {
        Box::pin(self.add_bucket(name, bucket))
    }

    fn replace<'a>(
        &'a self,
        name: &'a str,
        seen: &'a BucketRecord,
        bucket: BucketRecord,
    ) -> BoxFuture<'a, Result<(), BucketListError>> {
        Box::pin(self.replace_bucket(name, seen, bucket))
    }

    fn remove<'a>(&'a self, name: &'a str, bucket: BucketId) -> BoxFuture<'a, Result<(), BucketListError>> {
        Box::pin(self.remove_bucket(name, bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashlar_catalog::change::CatalogVersion;

    #[test]
    fn golden_bytes() {
        let bucket = BucketRecord { id: BucketId([7; 16]), created_ms: 0x0102, attributes: Attributes::default() };
        let value = encode(&bucket);
        assert_eq!(value, [&[1][..], &[7; 16], &[0, 0, 0, 0, 0, 0, 1, 2]].concat());
        let record = |value| NamedRecord { key: key("b"), revision: CatalogVersion(1), value };
        assert_eq!(decode(&record(value.clone())), Some(bucket.clone()));
        let owned = BucketRecord { attributes: Attributes(vec![("n".into(), "vw".into())]), ..bucket };
        let form = encode(&owned);
        assert_eq!(form, [&[2], &value[1..], &[0, 0, 0, 1, b'n', 0, 0, 0, 2, b'v', b'w']].concat());
        assert_eq!(decode(&record(form.clone())), Some(owned));
        assert_eq!(decode(&record(form[..form.len() - 1].to_vec())), None);
        assert_eq!(decode(&record([&[1], &form[1..]].concat())), None);
        assert_eq!(decode(&record(value[..24].to_vec())), None);
        assert_eq!(decode(&record([&[3], &value[1..]].concat())), None);
    }
}

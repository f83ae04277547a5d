//! Buckets: made and deleted in the catalog's list, emptied in the index.

use super::{ObjectService, TRIES_MAX, list_error, versioning};
use crate::api::{Attributes, BUCKET_ATTRIBUTES_BYTES_MAX, BoxFuture, Bucket, BucketEdit, Buckets, Error, Versioning};
use crate::cluster::{BucketListError, BucketRecord, Cluster};
use crate::index::key::{self, BucketId};
use crate::index::request::CHANGES_MAX;
use crate::index::{Change, Check, Reply, Request};
use crate::record::PartRecord;

pub(super) fn bucket(name: &str, record: BucketRecord) -> Bucket {
    Bucket { name: name.to_owned(), created_ms: record.created_ms, attributes: record.attributes }
}

fn check_attributes(attributes: &Attributes) -> Result<(), Error> {
    if attributes.len_bytes() > BUCKET_ATTRIBUTES_BYTES_MAX {
        return Err(Error::BadRequest("what a bucket says about itself has at most 60 KiB"));
    }
    Ok(())
}

/// Whether a bucket may be called so: as S3 has it, without names that are addresses.
#[must_use]
pub(super) fn is_bucket_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let ends = bytes.first().copied().is_some_and(is_letter) && bytes.last().copied().is_some_and(is_letter);
    let is_address = name.split('.').count() == 4 && name.split('.').all(|part| part.parse::<u8>().is_ok());
    (3..=63).contains(&bytes.len())
        && ends
        && bytes.iter().all(|byte| is_letter(*byte) || matches!(byte, b'.' | b'-'))
        && !name.contains("..")
        && !name.contains(".-")
        && !name.contains("-.")
        && !is_address
}

impl<C: Cluster> ObjectService<C> {
    /// Marks a bucket as going, if it has no objects: from then on nothing is put into it, and no upload is completed.
    pub(super) async fn seal(&self, bucket: BucketId) -> Result<(), Error> {
        let empty = |from, to| Check::Empty(from, to);
        let checks = vec![
            empty(key::object(bucket, b""), key::objects_end(bucket)),
            empty(key::versions(bucket, ""), key::versions_end(bucket)),
        ];
        let seal = Change { key: key::seal(bucket), value: Some(bytes::Bytes::from_static(&[1])) };
        let versioning = Change { key: key::versioning(bucket), value: None };
        match self.cluster.index(bucket, Request::Commit { checks, changes: vec![seal, versioning] }).await {
            Reply::Committed { .. } => Ok(()),
            Reply::Refused(_) => Err(Error::BucketNotEmpty),
            Reply::Full => Err(Error::Full),
            _ => Err(Error::Unavailable),
        }
    }

    /// Gives up the uploads of a bucket that is going.
    async fn discard_uploads(&self, bucket: BucketId) -> Result<(), Error> {
        let found = self.scan_all(bucket, key::uploads(bucket), key::all_parts_end(bucket)).await?;
        for some in found.chunks(CHANGES_MAX) {
            let changes = some.iter().map(|(key, _)| Change { key: key.clone(), value: None }).collect();
            match self.cluster.index(bucket, Request::Commit { checks: vec![], changes }).await {
                Reply::Committed { .. } => {}
                Reply::Full => return Err(Error::Full),
                _ => return Err(Error::Unavailable),
            }
            for (_, entry) in some.iter().filter(|(key, _)| key::part_number(key).is_some()) {
                if let Ok(record) = PartRecord::decode(&entry.value) {
                    self.discard_unread(record.content);
                }
            }
        }
        Ok(())
    }
}

impl<C: Cluster> ObjectService<C> {
    /// Lets a bucket that is not in the list yet keep versions. If it never comes into it, the entry of its index stays: a few
    /// bytes under a name that was drawn by chance.
    async fn set_first_state(&self, bucket: BucketId, state: Versioning) -> Result<(), Error> {
        let key = key::versioning(bucket);
        let change = Change { key: key.clone(), value: Some(bytes::Bytes::from(versioning::encode(state))) };
        let request = Request::Commit { checks: vec![Check::Absent(key)], changes: vec![change] };
        match self.cluster.index(bucket, request).await {
            Reply::Committed { .. } => Ok(()),
            Reply::Full => Err(Error::Full),
            _ => Err(Error::Unavailable),
        }
    }
}

impl<C: Cluster> Buckets for ObjectService<C> {
    fn create<'a>(
        &'a self,
        name: &'a str,
        attributes: Attributes,
        versioning: Versioning,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            if !is_bucket_name(name) {
                return Err(Error::BadBucketName);
            }
            check_attributes(&attributes)?;
            let moment = self.cluster.moment();
            let id = moment.bucket;
            if versioning != Versioning::Never {
                // Before the bucket is in the list: nothing can be put into it while it keeps no versions.
                self.set_first_state(id, versioning).await?;
            }
            let record = BucketRecord { id, created_ms: moment.now_ms, attributes };
            self.buckets.add(name, record).await.map_err(list_error)
        })
    }

    fn edit<'a>(&'a self, name: &'a str, edit: BucketEdit<'a>) -> BoxFuture<'a, Result<Bucket, Error>> {
        Box::pin(async move {
            for _ in 0..TRIES_MAX {
                let seen = self.buckets.find(name).await.map_err(list_error)?.ok_or(Error::NoSuchBucket)?;
                let attributes = edit(&bucket(name, seen.clone()))?;
                check_attributes(&attributes)?;
                let changed = BucketRecord { attributes, ..seen.clone() };
                match self.buckets.replace(name, &seen, changed.clone()).await {
                    Ok(()) => return Ok(bucket(name, changed)),
                    Err(BucketListError::Changed) => {}
                    Err(error) => return Err(list_error(error)),
                }
            }
            Err(Error::Unavailable)
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let (id, _) = self.bucket(name).await?;
            self.seal(id).await?;
            self.discard_uploads(id).await?;
            self.buckets.remove(name, id).await.map_err(list_error)
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Bucket, Error>> {
        Box::pin(async move { Ok(self.bucket(name).await?.1) })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Bucket>, Error>> {
        Box::pin(async move {
            let all = self.buckets.all().await.map_err(list_error)?;
            Ok(all.into_iter().map(|(name, record)| bucket(&name, record)).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::is_bucket_name;

    #[test]
    fn names() {
        for name in ["abc", "a-b.c1", "123", "my-bucket", &"a".repeat(63)] {
            assert!(is_bucket_name(name), "{name}");
        }
        for name in ["", "ab", "Abc", "a_b", "-ab", "ab-", "a..b", "a.-b", "a-.b", "10.0.0.1", "äbc", &"a".repeat(64)]
        {
            assert!(!is_bucket_name(name), "{name}");
        }
    }
}

//! How much a bucket has, and how much it may have.
//!
//! The most that counts is that of the bucket's list as the server of a request knows it: a new one holds everywhere within
//! seconds. The owner of the bucket's index checks it with each commit, so what is put at several servers at once keeps it too.

use super::ObjectService;
use crate::api::{Attributes, Bucket, Buckets, Error};
use crate::cluster::Cluster;
use crate::index::key::BucketId;
use crate::index::{Reply, Request, Usage};

/// The attribute of a bucket that has its quota, in bytes.
const QUOTA: &str = "quota-bytes";

/// The most bytes that a bucket may have: its objects, their versions, and parts of uploads. Nothing if there is no limit.
#[must_use]
pub fn of(attributes: &Attributes) -> Option<u64> {
    attributes.get(QUOTA)?.parse().ok()
}

impl<C: Cluster> ObjectService<C> {
    /// Gives a bucket a quota, or takes it. One that has more already keeps what it has.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::Unavailable`]: it may take effect. A retry is safe.
    pub async fn set_quota(&self, bucket: &str, bytes_max: Option<u64>) -> Result<Bucket, Error> {
        let edit = |bucket: &Bucket| Ok(bucket.attributes.with(QUOTA, bytes_max.map(|bytes| bytes.to_string())));
        self.edit(bucket, &edit).await
    }

    /// What a bucket has: everything that was committed before the call.
    ///
    /// # Errors
    /// [`Error::NoSuchBucket`]; [`Error::Unavailable`]: the owner of its index has not answered. A retry is safe.
    pub async fn usage(&self, bucket: &str) -> Result<Usage, Error> {
        let (bucket, _) = self.bucket(bucket).await?;
        self.usage_of(bucket).await
    }

    async fn usage_of(&self, bucket: BucketId) -> Result<Usage, Error> {
        match self.cluster.index(bucket, Request::Usage(bucket)).await {
            Reply::Usage(usage) => Ok(usage),
            _ => Err(Error::Unavailable),
        }
    }

    /// Refuses a body for which there is no room, before its bytes are read: `bytes` of it, as far as that is known, in the place
    /// of the object `name`. What counts is the check at the commit.
    pub(super) async fn check_quota(
        &self,
        (bucket, name): (BucketId, &str),
        quota: Option<u64>,
        bytes: Option<u64>,
    ) -> Result<(), Error> {
        let Some(bytes_max) = quota else { return Ok(()) };
        let room = bytes_max.saturating_sub(self.usage_of(bucket).await?.bytes);
        if bytes.unwrap_or(0) <= room {
            return Ok(());
        }
        let replaced = self.record(bucket, name).await?.map_or(0, |(record, _)| record.bytes());
        if bytes.unwrap_or(0) <= room + replaced { Ok(()) } else { Err(Error::OverQuota) }
    }
}

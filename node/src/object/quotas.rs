//! Buckets for operators: what each has, and may have.

use core::fmt;
use core::time::Duration;

use ashlar_grid::seam::Runtime;
use ashlar_object::api::{self, Bucket, Buckets as _};
pub use ashlar_object::index::Usage;
use ashlar_object::service::quota;
use ashlar_wire::time::Instant;

use super::index_set::INDEX_SET;
use super::service::ObjectNode;
use crate::together;

/// How long the owners of indexes are waited for, all together.
const USAGE_MAX: Duration = Duration::from_secs(10);

/// A bucket, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketFigures {
    /// Its name.
    pub name: String,
    /// The most bytes that it may have; nothing if there is no limit.
    pub quota_bytes: Option<u64>,
    /// What it has; nothing if the owner of its index has not answered within ten seconds.
    pub usage: Option<Usage>,
}

/// Why buckets are not told, or a quota is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaError {
    /// No bucket has this name: the caller's fault.
    NoSuchBucket,
    /// A server of an earlier release would not keep quotas. No retry helps until it is updated.
    EarlierRelease,
    /// The catalog has not answered. A change may take effect; a retry is safe.
    Unavailable,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchBucket => "no bucket has this name",
            Self::EarlierRelease => "some servers are of a release without quotas: update them first",
            Self::Unavailable => "the catalog has not answered: ask again",
        })
    }
}

impl core::error::Error for QuotaError {}

impl From<api::Error> for QuotaError {
    fn from(error: api::Error) -> Self {
        if error == api::Error::NoSuchBucket { Self::NoSuchBucket } else { Self::Unavailable }
    }
}

impl<R: Runtime> ObjectNode<R> {
    /// All buckets, ascending by name.
    ///
    /// # Errors
    /// [`QuotaError::Unavailable`].
    pub async fn bucket_figures(&self) -> Result<Vec<BucketFigures>, QuotaError> {
        let until = self.usage_until();
        let mut figures = Vec::new();
        for bucket in self.objects().list().await? {
            figures.push(self.figures(bucket, until).await);
        }
        Ok(figures)
    }

    /// Gives a bucket a quota, or takes it. Every server goes by it within seconds, and the owner of the bucket's index checks it with
    /// each commit.
    ///
    /// # Errors
    /// [`QuotaError`].
    pub async fn set_quota(&self, bucket: &str, bytes_max: Option<u64>) -> Result<BucketFigures, QuotaError> {
        let keeps = self.catalog().state_now().is_some_and(|state| state.set(INDEX_SET).is_some());
        if bytes_max.is_some() && !keeps {
            return Err(QuotaError::EarlierRelease);
        }
        let bucket = self.objects().set_quota(bucket, bytes_max).await?;
        Ok(self.figures(bucket, self.usage_until()).await)
    }

    fn usage_until(&self) -> Instant {
        self.node().map_or(Instant::ORIGIN, |node| node.runtime().now() + USAGE_MAX)
    }

    async fn figures(&self, bucket: Bucket, until: Instant) -> BucketFigures {
        let quota_bytes = quota::of(&bucket.attributes);
        let usage = match self.node() {
            Some(node) => {
                let objects = self.objects();
                let asked = Box::pin(objects.usage(&bucket.name));
                together::first(asked, node.runtime().sleep_until(until)).await.and_then(Result::ok)
            }
            None => None,
        };
        BucketFigures { name: bucket.name, quota_bytes, usage }
    }
}

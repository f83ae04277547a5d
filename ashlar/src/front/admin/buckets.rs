//! `GET /v1/buckets`: the buckets of the object service, what they have and what they may have.
//!
//! `PUT /v1/buckets/NAME/quota?bytes=BYTES` gives a bucket a quota, `DELETE` takes it.
//!
//! `PUT /v1/buckets/NAME/healing` has the server that is asked read all shards of a bucket and make anew what is lost, `GET` tells how
//! far it is, `DELETE` stops it.

use ashlar_node::object::asked_healing::{BucketHealing, Healed, HealingRefusal, HealingState, Lack, Unwhole};
use ashlar_node::object::quotas::{BucketFigures, QuotaError, Usage};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::Front;
use super::objects::no_objects;
use super::routes::{json, refuse};

/// A bucket, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketView {
    /// Its name.
    pub name: String,
    /// The most bytes that it may have; nothing if there is no limit.
    pub quota_bytes: Option<u64>,
    /// What it has; nothing if the server that keeps its index has not answered.
    pub usage: Option<UsageView>,
}

/// What a bucket has. Bytes are those of contents as they were put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageView {
    /// Current objects.
    pub objects: u64,
    /// Older versions, and marks of deletions.
    pub versions: u64,
    /// Parts of uploads that are not completed.
    pub parts: u64,
    /// Bytes of all of these.
    pub bytes: u64,
}

impl From<BucketFigures> for BucketView {
    fn from(BucketFigures { name, quota_bytes, usage }: BucketFigures) -> Self {
        let usage =
            usage.map(|Usage { objects, versions, parts, bytes }| UsageView { objects, versions, parts, bytes });
        Self { name, quota_bytes, usage }
    }
}

/// All buckets, ascending by name.
pub(super) async fn list(front: &Front) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    match objects.bucket_figures().await {
        Ok(figures) => json(StatusCode::OK, &figures.into_iter().map(BucketView::from).collect::<Vec<_>>()),
        Err(error) => refused(error),
    }
}

/// Gives a bucket a quota.
pub(super) async fn set_quota(front: &Front, name: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    let bytes = query.and_then(|query| query.strip_prefix("bytes=")).and_then(|bytes| bytes.parse().ok());
    let Some(bytes) = bytes else {
        return refuse(StatusCode::BAD_REQUEST, "malformed_query", "the query here is ?bytes=BYTES");
    };
    change_quota(front, name, Some(bytes)).await
}

/// Takes the quota of a bucket.
pub(super) async fn remove_quota(front: &Front, name: &str) -> Response<Full<Bytes>> {
    change_quota(front, name, None).await
}

async fn change_quota(front: &Front, name: &str, bytes_max: Option<u64>) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    match objects.set_quota(name, bytes_max).await {
        Ok(figures) => json(StatusCode::OK, &BucketView::from(figures)),
        Err(error) => refused(error),
    }
}

fn refused(error: QuotaError) -> Response<Full<Bytes>> {
    let (status, word) = match error {
        QuotaError::NoSuchBucket => (StatusCode::NOT_FOUND, "no_such_bucket"),
        QuotaError::EarlierRelease => (StatusCode::CONFLICT, "earlier_release"),
        QuotaError::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    refuse(status, word, &error.to_string())
}

/// How far the healing of a bucket is, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealingView {
    /// The name of the bucket.
    pub bucket: String,
    /// `running`, `done`, `stopped` or `failed`.
    pub state: String,
    /// Objects, older versions and parts of uploads that were looked at.
    pub looked_at: u64,
    /// Those that had lost shards, and are whole again.
    pub healed: u64,
    /// Those with shards on a drive that does not answer.
    pub waiting: u64,
    /// Those with shards for which there is no drive.
    pub lacking: u64,
    /// Those that are not whole for another reason.
    pub failed: u64,
    /// The first hundred of those that are not whole.
    #[serde(default)]
    pub unwhole: Vec<UnwholeView>,
}

/// Something that is not whole, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwholeView {
    /// The key of the object; nothing for a part of an upload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its version, unless it is the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `waiting`, `lacking` or `failed`: as counted.
    pub why: String,
}

impl From<Unwhole> for UnwholeView {
    fn from(Unwhole { key, version, why }: Unwhole) -> Self {
        let why = match why {
            Lack::Waits => "waiting",
            Lack::Drive => "lacking",
            Lack::Failed => "failed",
        };
        let key = Some(key).filter(|key| !key.is_empty());
        Self { key, version: version.map(|version| version.to_string()), why: why.to_owned() }
    }
}

impl From<BucketHealing> for HealingView {
    fn from(BucketHealing { bucket, healed, unwhole, state }: BucketHealing) -> Self {
        let state = match state {
            HealingState::Running => "running",
            HealingState::Done => "done",
            HealingState::Stopped => "stopped",
            HealingState::Failed => "failed",
        };
        let Healed { objects: looked_at, healed, waiting, lacking, failed } = healed;
        let unwhole = unwhole.into_iter().map(UnwholeView::from).collect();
        Self { bucket, state: state.to_owned(), looked_at, healed, waiting, lacking, failed, unwhole }
    }
}

/// Begins to heal a bucket.
pub(super) async fn begin_healing(front: &Front, name: &str) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    match objects.begin_healing(name).await {
        Ok(begun) => json(StatusCode::OK, &HealingView::from(begun)),
        Err(HealingRefusal::NoSuchBucket) => refuse(StatusCode::NOT_FOUND, "no_such_bucket", "no bucket has this name"),
        Err(HealingRefusal::Busy(other)) => {
            let text = format!("this server heals the bucket {other}: wait, stop that, or ask another server");
            refuse(StatusCode::CONFLICT, "busy", &text)
        }
        Err(HealingRefusal::Unavailable) => {
            refuse(StatusCode::SERVICE_UNAVAILABLE, "no_catalog", "the catalog has not answered: ask again")
        }
    }
}

/// How far it is.
pub(super) fn healing(front: &Front, name: &str) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    told(objects.bucket_healing(name))
}

/// Stops it.
pub(super) fn stop_healing(front: &Front, name: &str) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else { return no_objects() };
    told(objects.stop_healing(name))
}

fn told(healing: Option<BucketHealing>) -> Response<Full<Bytes>> {
    match healing {
        Some(healing) => json(StatusCode::OK, &HealingView::from(healing)),
        None => {
            let text = "this server heals no such bucket, and has healed none since it started, or another one since";
            refuse(StatusCode::NOT_FOUND, "no_healing", text)
        }
    }
}

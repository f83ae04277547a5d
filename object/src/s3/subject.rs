//! What a request was about, for metrics and the audit log: its operation by S3's name, bucket, key, and who has signed it.

use super::authenticate::Authenticated;
use super::error::S3Error;
use super::route::{BucketConfiguration as Kind, Operation, Route};

/// What a request was about, as far as it could be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// The operation.
    pub operation: Option<Operation>,
    /// Name of the bucket; empty where there is none.
    pub bucket: String,
    /// Key of the object; empty for operations on buckets.
    pub key: String,
    /// Id of the user that has signed it. A form of a browser is signed inside.
    pub user: Option<String>,
    /// The access key that it names, also where its signature was refused.
    pub access_key: Option<String>,
    /// S3's name of the error that it was refused with.
    pub error: Option<&'static str>,
}

impl Subject {
    pub(super) fn of(route: &Route, gate: &Result<Authenticated, S3Error>, access_key: Option<String>) -> Self {
        let user = gate.as_ref().ok().and_then(|who| Some(who.user()?.id.clone()));
        let (operation, bucket, key) = (Some(route.operation), route.bucket.clone(), route.key.clone());
        Self { operation, bucket, key, user, access_key, error: None }
    }

    /// S3's name of the operation, as policies and logs of S3 spell it.
    #[must_use]
    pub fn api(&self) -> &'static str {
        self.operation.map_or("Unknown", name)
    }
}

/// S3's name of an operation.
const fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::ListBuckets => "ListBuckets",
        Operation::CreateBucket => "CreateBucket",
        Operation::DeleteBucket => "DeleteBucket",
        Operation::HeadBucket => "HeadBucket",
        Operation::GetBucketAcl => "GetBucketAcl",
        Operation::PutBucketAcl => "PutBucketAcl",
        Operation::GetBucketLocation => "GetBucketLocation",
        Operation::GetBucketVersioning => "GetBucketVersioning",
        Operation::PutBucketVersioning => "PutBucketVersioning",
        Operation::GetBucketConfiguration(kind) => names(kind)[0],
        Operation::PutBucketConfiguration(kind) => names(kind)[1],
        Operation::DeleteBucketConfiguration(kind) => names(kind)[2],
        Operation::Preflight => "OptionsObject",
        Operation::AssumeRole => "AssumeRole",
        Operation::GetCallerIdentity => "GetCallerIdentity",
        Operation::ListObjects => "ListObjects",
        Operation::ListObjectsV2 => "ListObjectsV2",
        Operation::ListObjectVersions => "ListObjectVersions",
        Operation::ListMultipartUploads => "ListMultipartUploads",
        Operation::DeleteObjects => "DeleteObjects",
        Operation::PostObject => "PostObject",
        Operation::GetObject => "GetObject",
        Operation::HeadObject => "HeadObject",
        Operation::PutObject => "PutObject",
        Operation::CopyObject => "CopyObject",
        Operation::DeleteObject => "DeleteObject",
        Operation::GetObjectAcl => "GetObjectAcl",
        Operation::PutObjectAcl => "PutObjectAcl",
        Operation::GetObjectAttributes => "GetObjectAttributes",
        Operation::GetObjectTagging => "GetObjectTagging",
        Operation::PutObjectTagging => "PutObjectTagging",
        Operation::DeleteObjectTagging => "DeleteObjectTagging",
        Operation::GetObjectRetention => "GetObjectRetention",
        Operation::PutObjectRetention => "PutObjectRetention",
        Operation::GetObjectLegalHold => "GetObjectLegalHold",
        Operation::PutObjectLegalHold => "PutObjectLegalHold",
        Operation::CreateMultipartUpload => "CreateMultipartUpload",
        Operation::UploadPart => "UploadPart",
        Operation::UploadPartCopy => "UploadPartCopy",
        Operation::CompleteMultipartUpload => "CompleteMultipartUpload",
        Operation::AbortMultipartUpload => "AbortMultipartUpload",
        Operation::ListParts => "ListParts",
    }
}

/// S3's names of reading, setting and deleting a configuration; "Unknown" where S3 has no such operation.
const fn names(kind: Kind) -> [&'static str; 3] {
    const NONE: &str = "Unknown";
    match kind {
        Kind::Accelerate => ["GetBucketAccelerateConfiguration", "PutBucketAccelerateConfiguration", NONE],
        Kind::Cors => ["GetBucketCors", "PutBucketCors", "DeleteBucketCors"],
        Kind::Encryption => ["GetBucketEncryption", "PutBucketEncryption", "DeleteBucketEncryption"],
        Kind::Lifecycle => {
            ["GetBucketLifecycleConfiguration", "PutBucketLifecycleConfiguration", "DeleteBucketLifecycle"]
        }
        Kind::Logging => ["GetBucketLogging", "PutBucketLogging", NONE],
        Kind::Notification => ["GetBucketNotificationConfiguration", "PutBucketNotificationConfiguration", NONE],
        Kind::ObjectLock => ["GetObjectLockConfiguration", "PutObjectLockConfiguration", NONE],
        Kind::OwnershipControls => {
            ["GetBucketOwnershipControls", "PutBucketOwnershipControls", "DeleteBucketOwnershipControls"]
        }
        Kind::Policy => ["GetBucketPolicy", "PutBucketPolicy", "DeleteBucketPolicy"],
        Kind::PolicyStatus => ["GetBucketPolicyStatus", NONE, NONE],
        Kind::PublicAccessBlock => ["GetPublicAccessBlock", "PutPublicAccessBlock", "DeletePublicAccessBlock"],
        Kind::Replication => ["GetBucketReplication", "PutBucketReplication", "DeleteBucketReplication"],
        Kind::RequestPayment => ["GetBucketRequestPayment", "PutBucketRequestPayment", NONE],
        Kind::Tagging => ["GetBucketTagging", "PutBucketTagging", "DeleteBucketTagging"],
        Kind::Website => ["GetBucketWebsite", "PutBucketWebsite", "DeleteBucketWebsite"],
    }
}

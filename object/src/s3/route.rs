//! Routing: from method, host, path and query to one operation on a bucket or an object.
//!
//! S3 tells operations of one method apart by parameters without a value ("subresources"). Every subresource that S3
//! knows is known here, so that one without an implementation is refused and never taken for the plain operation:
//! `PUT key?restore` must not overwrite `key`.

use super::encoding::Query;
use super::error::{Code, S3Error};
use super::head::{Method, RequestHead};
use super::versions::invalid_version;
use crate::api::{KEY_BYTES_MAX, VersionId};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// `GET /`.
    ListBuckets,
    /// `PUT /bucket`.
    CreateBucket,
    /// `DELETE /bucket`.
    DeleteBucket,
    /// `HEAD /bucket`.
    HeadBucket,
    /// `GET /bucket?acl`.
    GetBucketAcl,
    /// `PUT /bucket?acl`.
    PutBucketAcl,
    /// `GET /bucket?location`.
    GetBucketLocation,
    /// `GET /bucket?versioning`.
    GetBucketVersioning,
    /// `PUT /bucket?versioning`.
    PutBucketVersioning,
    /// `GET /bucket?policy` and the like.
    GetBucketConfiguration(BucketConfiguration),
    /// `PUT /bucket?policy` and the like.
    PutBucketConfiguration(BucketConfiguration),
    /// `DELETE /bucket?policy` and the like.
    DeleteBucketConfiguration(BucketConfiguration),
    /// `OPTIONS /bucket` and `OPTIONS /bucket/key`.
    Preflight,
    /// `AssumeRole` of the token service.
    AssumeRole,
    /// `GetCallerIdentity` of the token service.
    GetCallerIdentity,
    /// `GET /bucket`.
    ListObjects,
    /// `GET /bucket?list-type=2`.
    ListObjectsV2,
    /// `GET /bucket?versions`.
    ListObjectVersions,
    /// `GET /bucket?uploads`.
    ListMultipartUploads,
    /// `POST /bucket?delete`.
    DeleteObjects,
    /// `POST /bucket`: a form of a browser.
    PostObject,
    /// `GET /bucket/key`.
    GetObject,
    /// `HEAD /bucket/key`.
    HeadObject,
    /// `PUT /bucket/key`.
    PutObject,
    /// `PUT /bucket/key` with `x-amz-copy-source`.
    CopyObject,
    /// `DELETE /bucket/key`.
    DeleteObject,
    /// `GET /bucket/key?acl`.
    GetObjectAcl,
    /// `PUT /bucket/key?acl`.
    PutObjectAcl,
    /// `GET /bucket/key?attributes`.
    GetObjectAttributes,
    /// `GET /bucket/key?tagging`.
    GetObjectTagging,
    /// `PUT /bucket/key?tagging`.
    PutObjectTagging,
    /// `DELETE /bucket/key?tagging`.
    DeleteObjectTagging,
    /// `GET /bucket/key?retention`.
    GetObjectRetention,
    /// `PUT /bucket/key?retention`.
    PutObjectRetention,
    /// `GET /bucket/key?legal-hold`.
    GetObjectLegalHold,
    /// `PUT /bucket/key?legal-hold`.
    PutObjectLegalHold,
    /// `POST /bucket/key?uploads`.
    CreateMultipartUpload,
    /// `PUT /bucket/key?partNumber=1&uploadId=ID`.
    UploadPart,
    /// `PUT /bucket/key?partNumber=1&uploadId=ID` with `x-amz-copy-source`.
    UploadPartCopy,
    /// `POST /bucket/key?uploadId=ID`.
    CompleteMultipartUpload,
    /// `DELETE /bucket/key?uploadId=ID`.
    AbortMultipartUpload,
    /// `GET /bucket/key?uploadId=ID`.
    ListParts,
}

/// A configuration of a bucket. Of some no bucket has one here: asking for it is answered with the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BucketConfiguration {
    /// `accelerate`: transfers by way of a network of caches.
    Accelerate,
    /// `cors`: which pages of other origins may ask.
    Cors,
    /// `encryption`: the default of new objects.
    Encryption,
    /// `lifecycle`: when objects end.
    Lifecycle,
    /// `logging`: where requests are written down.
    Logging,
    /// `notification`: who hears of changes.
    Notification,
    /// `object-lock`: the default retention of new objects.
    ObjectLock,
    /// `ownershipControls`: whose objects are, and whether access control lists count.
    OwnershipControls,
    /// `policy`: who may do what.
    Policy,
    /// `policyStatus`: whether the policy lets everybody in.
    PolicyStatus,
    /// `publicAccessBlock`: whether policies may do so.
    PublicAccessBlock,
    /// `replication`: where objects are copied to.
    Replication,
    /// `requestPayment`: who pays.
    RequestPayment,
    /// `tagging`: tags of the bucket.
    Tagging,
    /// `website`: how the bucket is served to browsers.
    Website,
}

impl BucketConfiguration {
    /// The configuration that a parameter asks for.
    #[must_use]
    pub fn named(parameter: &str) -> Option<Self> {
        Some(match parameter {
            "accelerate" => Self::Accelerate,
            "cors" => Self::Cors,
            "encryption" => Self::Encryption,
            "lifecycle" => Self::Lifecycle,
            "logging" => Self::Logging,
            "notification" => Self::Notification,
            "object-lock" => Self::ObjectLock,
            "ownershipControls" => Self::OwnershipControls,
            "policy" => Self::Policy,
            "policyStatus" => Self::PolicyStatus,
            "publicAccessBlock" => Self::PublicAccessBlock,
            "replication" => Self::Replication,
            "requestPayment" => Self::RequestPayment,
            "tagging" => Self::Tagging,
            "website" => Self::Website,
            _ => return None,
        })
    }

    /// Whether a bucket can have it here.
    #[must_use]
    pub const fn is_kept(self) -> bool {
        matches!(
            self,
            Self::Cors
                | Self::Encryption
                | Self::Lifecycle
                | Self::ObjectLock
                | Self::OwnershipControls
                | Self::Policy
                | Self::PublicAccessBlock
                | Self::Tagging
        )
    }

    /// Whether S3 has an operation that deletes it. Where there is none, that is done already.
    #[must_use]
    pub const fn is_deletable(self) -> bool {
        matches!(
            self,
            Self::Cors
                | Self::Encryption
                | Self::Lifecycle
                | Self::OwnershipControls
                | Self::Policy
                | Self::PublicAccessBlock
                | Self::Replication
                | Self::Tagging
                | Self::Website
        )
    }
}

/// One operation and what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The operation.
    pub operation: Operation,
    /// Name of the bucket; empty for [`Operation::ListBuckets`].
    pub bucket: String,
    /// Key of the object; empty for operations on buckets.
    pub key: String,
    /// The version that is named.
    pub version: Option<VersionId>,
}

/// Parameters by which S3 tells operations apart, and which are answered by no operation of [`Operation`] as such.
const NOT_IMPLEMENTED: [&str; 29] = [
    "abac",
    "accelerate",
    "analytics",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "lifecycle",
    "logging",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "select",
    "select-type",
    "session",
    "torrent",
    "website",
];

/// Parameters that choose an operation. At most one of them may be there, but for `partNumber` with `uploadId`.
const CHOOSING: [&str; 12] = [
    "acl",
    "attributes",
    "delete",
    "legal-hold",
    "location",
    "retention",
    "tagging",
    "uploadId",
    "uploads",
    "versioning",
    "versions",
    "list-type",
];

/// The route of a request. `domains` are the names behind which a bucket may stand in front of the host's name.
///
/// # Errors
/// [`Code::NotImplemented`] for what S3 knows and this server does not, [`Code::MethodNotAllowed`], and names that
/// nothing can have.
pub fn route(head: &RequestHead, domains: &[String]) -> Result<Route, S3Error> {
    let path = head.path.strip_prefix('/').ok_or(Code::InvalidURI)?;
    let host = head.header("host").unwrap_or_default();
    let (bucket, key) = match bucket_of_host(host, domains) {
        Some(bucket) => (bucket, path),
        None => path.split_once('/').unwrap_or((path, "")),
    };
    check_names(bucket, key)?;
    if let Some(operation) = of_configuration(head.method, bucket, key, &head.query) {
        return Ok(Route { operation, bucket: bucket.to_owned(), key: String::new(), version: None });
    }
    if head.method == Method::Options && !bucket.is_empty() {
        let key = key.to_owned();
        return Ok(Route { operation: Operation::Preflight, bucket: bucket.to_owned(), key, version: None });
    }
    let subresource = subresource(&head.query)?;
    let operation = if bucket.is_empty() {
        of_service(head.method, subresource)?
    } else if key.is_empty() {
        of_bucket(head.method, subresource, &head.query)?
    } else {
        of_object(head, subresource)?
    };
    let version = head.query.get("versionId").map(|text| text.parse().map_err(|_| invalid_version())).transpose()?;
    Ok(Route { operation, bucket: bucket.to_owned(), key: key.to_owned(), version })
}

/// The operation of a request that reads or deletes a configuration of a bucket.
fn of_configuration(method: Method, bucket: &str, key: &str, query: &Query) -> Option<Operation> {
    if bucket.is_empty() || !key.is_empty() {
        return None;
    }
    let configuration = query.iter().find_map(|(name, _)| BucketConfiguration::named(name))?;
    match method {
        Method::Get => Some(Operation::GetBucketConfiguration(configuration)),
        Method::Delete if configuration.is_deletable() => Some(Operation::DeleteBucketConfiguration(configuration)),
        Method::Put if configuration.is_kept() => Some(Operation::PutBucketConfiguration(configuration)),
        _ => None,
    }
}

/// The bucket before one of these domains; nothing in the path style.
pub(super) fn bucket_of_host<'a>(host: &'a str, domains: &[String]) -> Option<&'a str> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let prefix = |domain: &String| name.strip_suffix(domain.as_str())?.strip_suffix('.');
    domains.iter().find_map(prefix).filter(|bucket| !bucket.is_empty())
}

fn check_names(bucket: &str, key: &str) -> Result<(), S3Error> {
    if bucket.is_empty() && !key.is_empty() {
        return Err(Code::InvalidBucketName.into());
    }
    if !bucket.is_empty() && !is_bucket_name(bucket) {
        return Err(Code::InvalidBucketName.into());
    }
    check_key(key)
}

/// Whether a bucket may be called so: 3 to 63 lower-case letters, digits, dots and hyphens, the
/// latter inside of what the dots part.
#[must_use]
pub fn is_bucket_name(name: &str) -> bool {
    let labels = || name.split('.');
    (3..=63).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-'))
        && labels().all(|label| label.starts_with(|char: char| char != '-') && !label.ends_with('-'))
        && !(labels().count() == 4 && labels().all(|label| label.parse::<u8>().is_ok()))
}

/// Whether an object may have this key.
///
/// # Errors
/// [`Code::KeyTooLongError`].
pub fn check_key(key: &str) -> Result<(), S3Error> {
    if key.len() > KEY_BYTES_MAX { Err(Code::KeyTooLongError.into()) } else { Ok(()) }
}

/// The parameter that chooses the operation; empty for the plain one.
fn subresource(query: &Query) -> Result<&str, S3Error> {
    if query.iter().any(|(name, _)| NOT_IMPLEMENTED.contains(&name)) {
        return Err(Code::NotImplemented.into());
    }
    let mut chosen = query.iter().map(|(name, _)| name).filter(|name| CHOOSING.contains(name));
    match (chosen.next(), chosen.next()) {
        (chosen, None) => Ok(chosen.unwrap_or_default()),
        _ => Err(Code::InvalidArgument.because("Conflicting query string parameters")),
    }
}

fn of_service(method: Method, subresource: &str) -> Result<Operation, S3Error> {
    match (method, subresource) {
        (Method::Get, "") => Ok(Operation::ListBuckets),
        _ => Err(Code::MethodNotAllowed.into()),
    }
}

fn of_bucket(method: Method, subresource: &str, query: &Query) -> Result<Operation, S3Error> {
    use Operation as Op;
    Ok(match (method, subresource) {
        (Method::Get, "") => Op::ListObjects,
        (Method::Get, "list-type") if query.get("list-type") == Some("2") => Op::ListObjectsV2,
        (Method::Get, "list-type") if query.get("list-type") == Some("1") => Op::ListObjects,
        (Method::Get, "list-type") => return Err(Code::InvalidArgument.because("Invalid List Type specified in Query")),
        (Method::Get, "versions") => Op::ListObjectVersions,
        (Method::Get, "uploads") => Op::ListMultipartUploads,
        (Method::Get, "acl") => Op::GetBucketAcl,
        (Method::Get, "location") => Op::GetBucketLocation,
        (Method::Get, "versioning") => Op::GetBucketVersioning,
        (Method::Head, "") => Op::HeadBucket,
        (Method::Put, "") => Op::CreateBucket,
        (Method::Delete, "") => Op::DeleteBucket,
        (Method::Post, "delete") => Op::DeleteObjects,
        (Method::Put, "acl") => Op::PutBucketAcl,
        (Method::Put, "versioning") => Op::PutBucketVersioning,
        // A form from a browser is a POST to the bucket itself.
        (Method::Post, "") => Op::PostObject,
        _ => return Err(Code::MethodNotAllowed.into()),
    })
}

fn of_object(head: &RequestHead, subresource: &str) -> Result<Operation, S3Error> {
    use Operation as Op;
    let is_copy = head.header("x-amz-copy-source").is_some();
    let has_part = head.query.has("partNumber");
    Ok(match (head.method, subresource) {
        (Method::Get, "") => Op::GetObject,
        (Method::Get, "acl") => Op::GetObjectAcl,
        (Method::Get, "attributes") => Op::GetObjectAttributes,
        (Method::Get, "tagging") => Op::GetObjectTagging,
        (Method::Get, "retention") => Op::GetObjectRetention,
        (Method::Get, "legal-hold") => Op::GetObjectLegalHold,
        (Method::Put, "retention") => Op::PutObjectRetention,
        (Method::Put, "legal-hold") => Op::PutObjectLegalHold,
        (Method::Get, "uploadId") => Op::ListParts,
        (Method::Head, "") => Op::HeadObject,
        (Method::Put, "uploadId") if has_part && is_copy => Op::UploadPartCopy,
        (Method::Put, "uploadId") if has_part => Op::UploadPart,
        (Method::Put, "uploadId") => return Err(Code::InvalidArgument.because("This operation needs a partNumber")),
        (Method::Put, "") if has_part => return Err(Code::InvalidArgument.because("This operation needs an uploadId")),
        (Method::Put, "") if is_copy => Op::CopyObject,
        (Method::Put, "") => Op::PutObject,
        (Method::Delete, "") => Op::DeleteObject,
        (Method::Delete, "uploadId") => Op::AbortMultipartUpload,
        (Method::Post, "uploads") => Op::CreateMultipartUpload,
        (Method::Post, "uploadId") => Op::CompleteMultipartUpload,
        (Method::Put, "acl") => Op::PutObjectAcl,
        (Method::Put, "tagging") => Op::PutObjectTagging,
        (Method::Delete, "tagging") => Op::DeleteObjectTagging,
        _ => return Err(Code::MethodNotAllowed.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(method: &str, target: &str, headers: &[(&str, &str)]) -> Result<Route, Code> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let head = RequestHead::new(Method::named(method), target, headers).map_err(|error| error.code)?;
        route(&head, &["s3.example.com".to_owned()]).map_err(|error| error.code)
    }

    fn operation(method: &str, target: &str) -> Result<Operation, Code> {
        routed(method, target, &[]).map(|route| route.operation)
    }

    #[test]
    fn each_operation_has_its_route() {
        use Operation as Op;
        let table = [
            ("GET", "/", Op::ListBuckets),
            ("PUT", "/bucket", Op::CreateBucket),
            ("PUT", "/bucket/", Op::CreateBucket),
            ("DELETE", "/bucket", Op::DeleteBucket),
            ("HEAD", "/bucket", Op::HeadBucket),
            ("GET", "/bucket?acl", Op::GetBucketAcl),
            ("GET", "/bucket?location", Op::GetBucketLocation),
            ("GET", "/bucket?versioning", Op::GetBucketVersioning),
            ("PUT", "/bucket?versioning", Op::PutBucketVersioning),
            ("PUT", "/bucket?tagging", Op::PutBucketConfiguration(BucketConfiguration::Tagging)),
            ("PUT", "/bucket?acl", Op::PutBucketAcl),
            ("PUT", "/bucket/key?acl", Op::PutObjectAcl),
            ("OPTIONS", "/bucket/key?policy", Op::Preflight),
            ("OPTIONS", "/bucket", Op::Preflight),
            ("PUT", "/bucket/key?tagging&versionId=null", Op::PutObjectTagging),
            ("DELETE", "/bucket/key?tagging", Op::DeleteObjectTagging),
            ("PUT", "/bucket?object-lock", Op::PutBucketConfiguration(BucketConfiguration::ObjectLock)),
            ("GET", "/bucket/key?retention&versionId=null", Op::GetObjectRetention),
            ("PUT", "/bucket/key?retention", Op::PutObjectRetention),
            ("GET", "/bucket/key?legal-hold", Op::GetObjectLegalHold),
            ("PUT", "/bucket/key?legal-hold", Op::PutObjectLegalHold),
            ("GET", "/bucket?prefix=a&marker=b", Op::ListObjects),
            ("GET", "/bucket?list-type=1&prefix=", Op::ListObjects),
            ("GET", "/bucket?list-type=2&prefix=", Op::ListObjectsV2),
            ("GET", "/bucket?versions", Op::ListObjectVersions),
            ("GET", "/bucket?uploads", Op::ListMultipartUploads),
            ("POST", "/bucket?delete", Op::DeleteObjects),
            ("POST", "/bucket", Op::PostObject),
            ("POST", "/bucket/", Op::PostObject),
            ("GET", "/bucket/key", Op::GetObject),
            ("GET", "/bucket/key?partNumber=1", Op::GetObject),
            ("HEAD", "/bucket/key", Op::HeadObject),
            ("PUT", "/bucket/key?x-id=PutObject", Op::PutObject),
            ("DELETE", "/bucket/key?versionId=null", Op::DeleteObject),
            ("GET", "/bucket/key?acl", Op::GetObjectAcl),
            ("GET", "/bucket/key?attributes", Op::GetObjectAttributes),
            ("GET", "/bucket/key?tagging", Op::GetObjectTagging),
            ("POST", "/bucket/key?uploads", Op::CreateMultipartUpload),
            ("PUT", "/bucket/key?partNumber=1&uploadId=u", Op::UploadPart),
            ("POST", "/bucket/key?uploadId=u", Op::CompleteMultipartUpload),
            ("DELETE", "/bucket/key?uploadId=u", Op::AbortMultipartUpload),
            ("GET", "/bucket/key?uploadId=u", Op::ListParts),
        ];
        for (method, target, expected) in table {
            assert_eq!(operation(method, target), Ok(expected), "{method} {target}");
        }
        let copy = [("x-amz-copy-source", "/a/b")];
        assert_eq!(routed("PUT", "/bucket/key", &copy).map(|route| route.operation), Ok(Op::CopyObject));
        let part = routed("PUT", "/bucket/key?partNumber=1&uploadId=u", &copy);
        assert_eq!(part.map(|route| route.operation), Ok(Op::UploadPartCopy));
    }

    #[test]
    fn configurations_of_a_bucket_are_read_and_those_that_it_can_have_are_put_and_deleted() {
        use BucketConfiguration as Kind;
        for (name, kind, is_put, is_deleted) in [
            ("accelerate", Kind::Accelerate, false, false),
            ("cors", Kind::Cors, true, true),
            ("encryption", Kind::Encryption, true, true),
            ("lifecycle", Kind::Lifecycle, true, true),
            ("logging", Kind::Logging, false, false),
            ("notification", Kind::Notification, false, false),
            ("object-lock", Kind::ObjectLock, true, false),
            ("ownershipControls", Kind::OwnershipControls, true, true),
            ("policy", Kind::Policy, true, true),
            ("policyStatus", Kind::PolicyStatus, false, false),
            ("publicAccessBlock", Kind::PublicAccessBlock, true, true),
            ("replication", Kind::Replication, false, true),
            ("requestPayment", Kind::RequestPayment, false, false),
            ("tagging", Kind::Tagging, true, true),
            ("website", Kind::Website, false, true),
        ] {
            let target = format!("/bucket?{name}");
            assert_eq!(operation("GET", &target), Ok(Operation::GetBucketConfiguration(kind)), "{name}");
            let put = operation("PUT", &target) == Ok(Operation::PutBucketConfiguration(kind));
            let deleted = operation("DELETE", &target) == Ok(Operation::DeleteBucketConfiguration(kind));
            assert_eq!((put, deleted), (is_put, is_deleted), "{name}");
        }
    }

    #[test]
    fn no_subresource_is_taken_for_the_plain_operation() {
        for name in NOT_IMPLEMENTED {
            for method in ["GET", "PUT", "POST", "DELETE", "HEAD"] {
                for path in ["/", "/bucket", "/bucket/key"] {
                    let routed = operation(method, &format!("{path}?{name}"));
                    match (method, BucketConfiguration::named(name).filter(|_| path == "/bucket")) {
                        ("GET", Some(kind)) => {
                            assert_eq!(routed, Ok(Operation::GetBucketConfiguration(kind)), "{name}");
                        }
                        ("DELETE", Some(kind)) if kind.is_deletable() => {
                            assert_eq!(routed, Ok(Operation::DeleteBucketConfiguration(kind)), "{name}");
                        }
                        ("PUT", Some(kind)) if kind.is_kept() => {
                            assert_eq!(routed, Ok(Operation::PutBucketConfiguration(kind)), "{name}");
                        }
                        _ => assert_eq!(routed, Err(Code::NotImplemented), "{name}"),
                    }
                }
            }
        }
        assert_eq!(operation("PUT", "/bucket/key?partNumber=1"), Err(Code::InvalidArgument));
        assert_eq!(operation("PUT", "/bucket/key?uploadId=u"), Err(Code::InvalidArgument));
        assert_eq!(operation("DELETE", "/bucket/key?versionId=7"), Err(Code::InvalidArgument));
        assert_eq!(operation("GET", "/bucket/key?acl&tagging"), Err(Code::InvalidArgument));
        assert_eq!(operation("PATCH", "/bucket/key"), Err(Code::MethodNotAllowed));
        assert_eq!(operation("PUT", "/bucket/key?uploads"), Err(Code::MethodNotAllowed));
        assert_eq!(operation("DELETE", "/bucket/key?retention"), Err(Code::MethodNotAllowed));
        assert_eq!(operation("PUT", "/bucket?retention"), Err(Code::MethodNotAllowed));
    }

    #[test]
    fn names() {
        let route = routed("GET", "/bucket/a%2Fb//c%20+", &[]).expect("a route");
        assert_eq!((route.bucket.as_str(), route.key.as_str()), ("bucket", "a/b//c +"));
        for host in ["bucket.s3.example.com", "bucket.s3.example.com:9000"] {
            let route = routed("GET", "/a/b", &[("host", host)]).expect("a route");
            assert_eq!((route.bucket.as_str(), route.key.as_str()), ("bucket", "a/b"), "{host}");
        }
        for host in ["s3.example.com", ".s3.example.com", "other.s3.example.com:port", "others3.example.com"] {
            let plain = routed("GET", "/bucket/b", &[("host", host)]).expect("a route");
            assert_eq!((plain.bucket.as_str(), plain.key.as_str()), ("bucket", "b"), "{host}");
        }
        let long = |len: usize| operation("GET", &format!("/bucket/{}", "k".repeat(len)));
        assert_eq!((long(1_024), long(1_025)), (Ok(Operation::GetObject), Err(Code::KeyTooLongError)));
        for name in ["ab", "Bucket", "a_b", "-ab", "ab-", "a..b", "foo-.bar", "foo.-bar", ".ab", "10.0.0.1", "a b"] {
            assert!(!is_bucket_name(name), "{name}");
        }
        assert!(["abc", "a.b", "a--b", "10.0.0.256", &"a".repeat(63)].iter().all(|name| is_bucket_name(name)));
        assert_eq!(operation("GET", "//key"), Err(Code::InvalidBucketName));
        assert_eq!(operation("GET", "/bucket/%ff"), Err(Code::InvalidURI));
        assert_eq!(operation("GET", "*"), Err(Code::InvalidURI));
    }

    #[test]
    fn any_target_is_routed_or_refused() {
        arbtest::arbtest(|u| {
            let target: String = u.arbitrary()?;
            let method = *u.choose(&["GET", "PUT", "POST", "DELETE", "HEAD", "PATCH"])?;
            if let Ok(route) = routed(method, &format!("/{target}"), &[]) {
                assert_eq!(route.bucket.is_empty(), route.operation == Operation::ListBuckets);
                assert!(route.bucket.is_empty() || is_bucket_name(&route.bucket));
                assert!(route.key.len() <= KEY_BYTES_MAX);
            }
            Ok(())
        });
    }
}

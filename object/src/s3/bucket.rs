//! Operations on buckets.

use super::body::ChecksumAbout;
use super::date::iso8601;
use super::document::check_bucket_configuration;
use super::encoding::{from_base64, to_base64};
use super::error::{Code, S3Error};
use super::metadata::check_functions;
use super::response::Response;
use super::route::BucketConfiguration;
use super::service::{Call, Integrity, S3Service};
use super::xml::XmlWriter;
use crate::api::{Content, Error, VersionsRequest};

/// Buckets of one page.
const BUCKETS_MAX: usize = 10_000;

pub(super) async fn list(call: Call<'_>) -> Result<Response, S3Error> {
    let query = &call.head.query;
    let limit = call.head.query_number("max-buckets")?.map_or(BUCKETS_MAX, |limit| usize::try_from(limit).unwrap_or(0));
    if !(1..=BUCKETS_MAX).contains(&limit) {
        return Err(Code::InvalidArgument.because("max-buckets must be between 1 and 10000"));
    }
    let prefix = query.get("prefix").unwrap_or_default();
    let after = query.get("continuation-token").map(decode_token).transpose()?.unwrap_or_default();
    let buckets = call.s3.service.buckets.list().await?;
    let mut wanted = buckets.iter().filter(|bucket| bucket.name.starts_with(prefix) && bucket.name > after);
    let page: Vec<_> = wanted.by_ref().take(limit).collect();
    let is_truncated = wanted.next().is_some();
    let mut xml = XmlWriter::new("ListAllMyBucketsResult");
    owner(&mut xml, "Owner", call.s3);
    xml.element("Buckets", |xml| {
        for bucket in &page {
            xml.element("Bucket", |xml| {
                xml.text("Name", &bucket.name);
                xml.text("CreationDate", &iso8601(bucket.created_ms));
                xml.text("BucketRegion", &call.s3.settings.region);
            });
        }
    });
    if !prefix.is_empty() {
        xml.text("Prefix", prefix);
    }
    if let Some(last) = page.last().filter(|_| is_truncated) {
        xml.text("ContinuationToken", &encode_token(&last.name));
    }
    Ok(Response::xml(xml))
}

/// A place in a list as clients hand it back.
pub(super) fn encode_token(after: &str) -> String {
    to_base64(after.as_bytes())
}

/// The place that a client hands back.
pub(super) fn decode_token(token: &str) -> Result<String, S3Error> {
    let after = from_base64(token).and_then(|bytes| String::from_utf8(bytes).ok()).filter(|after| !after.is_empty());
    after.ok_or(Code::InvalidArgument.because("The continuation token provided is incorrect"))
}

pub(super) fn owner(xml: &mut XmlWriter, element: &'static str, s3: &S3Service) {
    xml.element(element, |xml| {
        xml.text("ID", &s3.settings.owner_id);
        xml.text("DisplayName", &s3.settings.owner_name);
    });
}

pub(super) async fn create(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    check_functions(call.head)?;
    let document = call.document(body, Integrity::Optional, ChecksumAbout::Body).await?;
    check_bucket_configuration(&document)?;
    call.s3.service.buckets.create(&call.route.bucket).await?;
    Ok(Response::empty(200).with("location", format!("/{}", call.route.bucket)))
}

pub(super) async fn delete(call: Call<'_>) -> Result<Response, S3Error> {
    let (service, bucket) = (&call.s3.service, &call.route.bucket);
    match service.buckets.delete(bucket).await {
        Err(Error::BucketNotEmpty) if has_only_uploads(&call).await? => {
            for (upload, _) in service.uploads.list(bucket, None).await? {
                match service.uploads.abort(bucket, &upload.key, &upload.id).await {
                    Err(Error::NoSuchUpload) => {}
                    aborted => aborted?,
                }
            }
            service.buckets.delete(bucket).await?;
        }
        deleted => deleted?,
    }
    Ok(Response::empty(204))
}

/// In S3 uploads that were never completed do not keep a bucket: its deletion gives them up.
async fn has_only_uploads(call: &Call<'_>) -> Result<bool, S3Error> {
    let one = VersionsRequest { limit: 1, ..VersionsRequest::default() };
    let page = call.s3.service.versions.list(&call.route.bucket, &one).await?;
    Ok(page.entries.is_empty())
}

pub(super) async fn head(call: Call<'_>) -> Result<Response, S3Error> {
    call.s3.service.buckets.get(&call.route.bucket).await?;
    Ok(Response::empty(200).with("x-amz-bucket-region", call.s3.settings.region.clone()))
}

pub(super) async fn location(call: Call<'_>) -> Result<Response, S3Error> {
    call.s3.service.buckets.get(&call.route.bucket).await?;
    let region = call.s3.settings.region.as_str();
    let mut xml = XmlWriter::new("LocationConstraint");
    // The first region of S3 is told as none.
    if region != "us-east-1" {
        xml.content(region);
    }
    Ok(Response::xml(xml))
}

pub(super) async fn acl(call: Call<'_>) -> Result<Response, S3Error> {
    call.s3.service.buckets.get(&call.route.bucket).await?;
    Ok(private(call.s3))
}

/// The access control list of everything: its owner may do all.
pub(super) fn private(s3: &S3Service) -> Response {
    let mut xml = XmlWriter::new("AccessControlPolicy");
    owner(&mut xml, "Owner", s3);
    xml.element("AccessControlList", |xml| {
        xml.element("Grant", |xml| {
            let attributes = "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"CanonicalUser\"";
            xml.element_with("Grantee", attributes, |xml| {
                xml.text("ID", &s3.settings.owner_id);
                xml.text("DisplayName", &s3.settings.owner_name);
            });
            xml.text("Permission", "FULL_CONTROL");
        });
    });
    Response::xml(xml)
}

/// What is answered about a configuration that no bucket has: an error of its own, or the document that says so.
pub(super) async fn configuration(call: Call<'_>, kind: BucketConfiguration) -> Result<Response, S3Error> {
    use BucketConfiguration as Kind;
    call.s3.service.buckets.get(&call.route.bucket).await?;
    let document = match kind {
        Kind::Cors => return Err(Code::NoSuchCORSConfiguration.into()),
        Kind::Encryption => return Err(Code::ServerSideEncryptionConfigurationNotFoundError.into()),
        Kind::Lifecycle => return Err(Code::NoSuchLifecycleConfiguration.into()),
        Kind::ObjectLock => return Err(Code::ObjectLockConfigurationNotFoundError.into()),
        Kind::Policy => return Err(Code::NoSuchBucketPolicy.into()),
        Kind::PublicAccessBlock => return Err(Code::NoSuchPublicAccessBlockConfiguration.into()),
        Kind::Replication => return Err(Code::ReplicationConfigurationNotFoundError.into()),
        Kind::Tagging => return Err(Code::NoSuchTagSet.into()),
        Kind::Website => return Err(Code::NoSuchWebsiteConfiguration.into()),
        Kind::Accelerate => XmlWriter::new("AccelerateConfiguration"),
        Kind::Logging => XmlWriter::new("BucketLoggingStatus"),
        Kind::Notification => XmlWriter::new("NotificationConfiguration"),
        Kind::OwnershipControls => {
            let mut xml = XmlWriter::new("OwnershipControls");
            xml.element("Rule", |xml| xml.text("ObjectOwnership", "BucketOwnerEnforced"));
            xml
        }
        Kind::PolicyStatus => {
            let mut xml = XmlWriter::new("PolicyStatus");
            xml.flag("IsPublic", false);
            xml
        }
        Kind::RequestPayment => {
            let mut xml = XmlWriter::new("RequestPaymentConfiguration");
            xml.text("Payer", "BucketOwner");
            xml
        }
    };
    Ok(Response::xml(document))
}

/// There is none to delete.
pub(super) async fn delete_configuration(call: Call<'_>) -> Result<Response, S3Error> {
    call.s3.service.buckets.get(&call.route.bucket).await?;
    Ok(Response::empty(204))
}

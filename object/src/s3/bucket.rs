//! Operations on buckets.

use super::acl::{ACL, Acl, Owners, write_user};
use super::body::ChecksumAbout;
use super::date::iso8601;
use super::document::check_bucket_configuration;
use super::encoding::{from_base64, to_base64};
use super::error::{Code, S3Error};
use super::lock::versioning_of_new_bucket;
use super::metadata::check_functions;
use super::ownership::{OWNERSHIP, check_new_list, list_of};
use super::response::Response;
use super::service::{Call, Integrity};
use super::xml::XmlWriter;
use crate::api::{Attributes, Bucket, Content, Error, Versioning};

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
    let is_within = |bucket: &&Bucket| bucket.name.starts_with(prefix) && bucket.name > after;
    let own = call.own_policy()?;
    let mut wanted = buckets.iter().filter(|bucket| is_within(bucket) && call.is_listed(bucket, own.as_ref()));
    let page: Vec<_> = wanted.by_ref().take(limit).collect();
    let is_truncated = wanted.next().is_some();
    let mut xml = XmlWriter::new("ListAllMyBucketsResult");
    if let Some(user) = call.user() {
        write_user(&mut xml, "Owner", user);
    }
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

pub(super) async fn create(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    check_functions(call.head)?;
    if call.names_encryption() {
        return Err(Code::NotImplemented.into());
    }
    let document = call.document(body, Integrity::Optional, ChecksumAbout::Body).await?;
    check_bucket_configuration(&document)?;
    let attributes = call.ownership_of_new_bucket()?;
    let versioning = versioning_of_new_bucket(call.head)?;
    match call.s3.service.buckets.create(&call.route.bucket, attributes.clone(), versioning).await {
        Err(Error::BucketExists) => check_existing(&call, &attributes, versioning).await?,
        created => created?,
    }
    Ok(Response::empty(200).with("location", format!("/{}", call.route.bucket)))
}

/// In the first region of S3 a bucket can be created again by its owner, as it is.
async fn check_existing(call: &Call<'_>, attributes: &Attributes, versioning: Versioning) -> Result<(), S3Error> {
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    if call.user_id() != call.owner_of_bucket(&bucket) {
        return Err(Code::BucketAlreadyExists.into());
    }
    if call.s3.settings.region != "us-east-1" {
        return Err(Code::BucketAlreadyOwnedByYou.into());
    }
    let is_locked = call.s3.service.versions.state(&call.route.bucket).await? == Versioning::Locked;
    let has_same = |name| bucket.attributes.get(name) == attributes.get(name);
    let is_same = has_same(ACL) && has_same(OWNERSHIP) && (versioning == Versioning::Never || is_locked);
    if is_same { Ok(()) } else { Err(Code::BucketAlreadyExists.into()) }
}

pub(super) async fn delete(call: Call<'_>) -> Result<Response, S3Error> {
    let (service, bucket) = (&call.s3.service, &call.route.bucket);
    service.buckets.delete(bucket).await?;
    Ok(Response::empty(204))
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
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    let owner = call.user_of(call.owner_of_bucket(&bucket));
    Ok(Response::xml(list_of(&bucket, &bucket.attributes).write(&owner, &*call.s3.credentials)))
}

pub(super) async fn put_acl(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    let owner = call.owner_of_bucket(&bucket);
    let acl = asked_acl(&call, body, Owners { owner, bucket_owner: owner }).await?;
    check_new_list(&acl, &bucket)?;
    let edit = |bucket: &Bucket| Ok(bucket.attributes.with(ACL, Some(acl.text())));
    call.s3.service.buckets.edit(&call.route.bucket, &edit).await?;
    Ok(Response::empty(200))
}

/// The access control list that a request asks for: by its headers or by a document.
pub(super) async fn asked_acl(call: &Call<'_>, body: &mut dyn Content, owners: Owners<'_>) -> Result<Acl, S3Error> {
    let document = call.document(body, Integrity::Optional, ChecksumAbout::Body).await?;
    let users = &*call.s3.credentials;
    match Acl::of_headers(call.head, owners, users)? {
        Some(_) if !document.is_empty() => Err(Code::InvalidRequest.into()),
        Some(acl) => Ok(acl),
        None if document.is_empty() => Err(Code::MissingSecurityHeader.into()),
        None => Acl::decode(&document, owners.owner, users),
    }
}

//! Configurations of a bucket: policy, default retention, default encryption, lifecycle, ownership of objects, tags, cross-origin rules, public access block; and what is answered about those that no
//! bucket has here.

use super::access::POLICY;
use super::acl::{Acl, Owners};
use super::body::ChecksumAbout;
use super::cors::{CORS, decode_cors, write_cors};
use super::document::decode_tagging;
use super::encoding::Query;
use super::encryption::{DefaultEncryption, ENCRYPTION};
use super::error::{Code, S3Error};
use super::lifecycle::{LIFECYCLE, decode_lifecycle, write_lifecycle};
use super::lock;
use super::metadata::tag_text;
use super::ownership::{OWNERSHIP, Ownership};
use super::policy::Policy;
use super::public_access::{PUBLIC_ACCESS_BLOCK, PublicAccessBlock};
use super::response::Response;
use super::route::BucketConfiguration as Kind;
use super::service::{Call, Integrity};
use super::tagging::write_tags;
use super::xml::XmlWriter;
use crate::api::{Bucket, Content};

/// Tags of a bucket.
const BUCKET_TAGS_MAX: usize = 50;
/// The attribute of a bucket with its tags.
const TAGGING: &str = "tagging";

/// The attribute that keeps a configuration, if it is one that a bucket can have.
const fn attribute(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Cors => Some(CORS),
        Kind::Encryption => Some(ENCRYPTION),
        Kind::Lifecycle => Some(LIFECYCLE),
        Kind::OwnershipControls => Some(OWNERSHIP),
        Kind::Policy => Some(POLICY),
        Kind::PublicAccessBlock => Some(PUBLIC_ACCESS_BLOCK),
        Kind::Tagging => Some(TAGGING),
        _ => None,
    }
}

pub(super) async fn get(call: Call<'_>, kind: Kind) -> Result<Response, S3Error> {
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    let kept = |code: Code| attribute(kind).and_then(|name| bucket.attributes.get(name)).ok_or(S3Error::from(code));
    let document = match kind {
        Kind::Cors => {
            let text = kept(Code::NoSuchCORSConfiguration)?;
            write_cors(&decode_cors(text.as_bytes()).map_err(|_| Code::InternalError)?)
        }
        Kind::Encryption => {
            let default = DefaultEncryption::of(&bucket.attributes);
            default.ok_or(Code::ServerSideEncryptionConfigurationNotFoundError)?.write()
        }
        Kind::Lifecycle => {
            let text = kept(Code::NoSuchLifecycleConfiguration)?;
            write_lifecycle(&decode_lifecycle(text.as_bytes()).map_err(|_| Code::InternalError)?)
        }
        Kind::OwnershipControls => {
            kept(Code::OwnershipControlsNotFoundError)?;
            Ownership::of(&bucket).write()
        }
        Kind::Policy => return Ok(Response::json(kept(Code::NoSuchBucketPolicy)?.to_owned())),
        Kind::PolicyStatus => policy_status(&bucket),
        Kind::PublicAccessBlock => {
            kept(Code::NoSuchPublicAccessBlockConfiguration)?;
            PublicAccessBlock::of(&bucket.attributes).write()
        }
        Kind::Tagging => {
            let tags = Query::decode(kept(Code::NoSuchTagSet)?).map_err(|_| Code::InternalError)?;
            let mut xml = XmlWriter::new("Tagging");
            write_tags(&mut xml, tags.iter());
            xml
        }
        Kind::ObjectLock => lock::get_configuration(&call, &bucket).await?,
        absent => none(absent)?,
    };
    Ok(Response::xml(document))
}

fn policy_status(bucket: &Bucket) -> XmlWriter {
    let policy = bucket.attributes.get(POLICY).and_then(|text| Policy::decode(text.as_bytes()).ok());
    let mut xml = XmlWriter::new("PolicyStatus");
    xml.flag("IsPublic", policy.is_some_and(|policy| policy.is_public()));
    xml
}

/// What is answered about a configuration that no bucket has: an error of its own, or the document that says so.
fn none(kind: Kind) -> Result<XmlWriter, S3Error> {
    Ok(match kind {
        Kind::Replication => return Err(Code::ReplicationConfigurationNotFoundError.into()),
        Kind::Website => return Err(Code::NoSuchWebsiteConfiguration.into()),
        Kind::Accelerate => XmlWriter::new("AccelerateConfiguration"),
        Kind::Logging => XmlWriter::new("BucketLoggingStatus"),
        Kind::Notification => XmlWriter::new("NotificationConfiguration"),
        Kind::RequestPayment => {
            let mut xml = XmlWriter::new("RequestPaymentConfiguration");
            xml.text("Payer", "BucketOwner");
            xml
        }
        Kind::Cors
        | Kind::Encryption
        | Kind::Lifecycle
        | Kind::ObjectLock
        | Kind::OwnershipControls
        | Kind::Policy
        | Kind::PolicyStatus
        | Kind::PublicAccessBlock
        | Kind::Tagging => unreachable!("a bucket can have it"),
    })
}

pub(super) async fn put(call: Call<'_>, body: &mut dyn Content, kind: Kind) -> Result<Response, S3Error> {
    if kind == Kind::ObjectLock {
        return lock::put_configuration(call, body).await;
    }
    let document = call.document(body, Integrity::Optional, ChecksumAbout::Body).await?;
    let name = attribute(kind).ok_or(Code::NotImplemented)?;
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    let mut is_public = false;
    let text = match kind {
        Kind::Cors => write_cors(&decode_cors(&document)?).finish(),
        Kind::Encryption => {
            let default = DefaultEncryption::decode(&document)?;
            call.s3.keys.key(&default.key)?;
            default.text()
        }
        Kind::Lifecycle => write_lifecycle(&decode_lifecycle(&document)?).finish(),
        Kind::OwnershipControls => {
            let (ownership, owner) = (Ownership::decode(&document)?, call.owner_of_bucket(&bucket));
            let owners = Owners { owner, bucket_owner: owner };
            ownership.check_list_of_bucket(&Acl::of(&bucket.attributes), owners)?;
            ownership.text()
        }
        Kind::PublicAccessBlock => PublicAccessBlock::decode(&document)?.text(),
        Kind::Tagging => tag_text(&decode_tagging(&document, BUCKET_TAGS_MAX)?),
        _ => {
            let policy = Policy::decode(&document)?;
            policy.check(&call.route.bucket)?;
            is_public = policy.is_public();
            String::from_utf8(document).map_err(|_| Code::MalformedPolicy)?
        }
    };
    if is_public && PublicAccessBlock::of(&bucket.attributes).blocks_policy {
        return Err(Code::AccessDenied.into());
    }
    let edit = |bucket: &Bucket| Ok(bucket.attributes.with(name, Some(text.clone())));
    call.s3.service.buckets.edit(&call.route.bucket, &edit).await?;
    Ok(Response::empty(if matches!(kind, Kind::Policy | Kind::Tagging) { 204 } else { 200 }))
}

/// Where there is none, that is done already.
pub(super) async fn delete(call: Call<'_>, kind: Kind) -> Result<Response, S3Error> {
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    if let Some(name) = attribute(kind).filter(|name| bucket.attributes.get(name).is_some()) {
        let edit = |bucket: &Bucket| Ok(bucket.attributes.with(name, None));
        call.s3.service.buckets.edit(&call.route.bucket, &edit).await?;
    }
    Ok(Response::empty(204))
}

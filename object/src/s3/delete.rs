//! Deletion of one object and of many.

use super::access::{Grounds, Wish, rule_of};
use super::acl::OWNER;
use super::body::ChecksumAbout;
use super::document::{DoomedObject, decode_deletion};
use super::error::{Code, S3Error};
use super::response::Response;
use super::route::{Operation, check_key};
use super::service::{Call, Integrity};
use super::xml::XmlWriter;
use super::{concurrent, document};
use crate::api::{Attributes, BoxFuture, Bucket, Condition, Content, DeleteRequest, Deletion, Permit, Target};

/// Objects of one request that are deleted at the same time.
const AT_ONCE_MAX: usize = 16;

pub(super) async fn one(call: Call<'_>) -> Result<Response, S3Error> {
    let condition = call.write_condition().await?;
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    let attributes = owner_of_marker(&call, &bucket);
    let deletion = remove(&call, call.grounds, call.target(), &condition, &attributes).await?;
    let mut response = Response::empty(204);
    if deletion.is_marker {
        response = response.with("x-amz-delete-marker", "true".to_owned());
    }
    Ok(match deletion.version {
        Some(version) => response.with("x-amz-version-id", version.to_string()),
        None => response,
    })
}

pub(super) async fn many(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let document = call.document(body, Integrity::Required, ChecksumAbout::Body).await?;
    let document::Deletion { objects, is_quiet } = decode_deletion(&document)?;
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    let attributes = owner_of_marker(&call, &bucket);
    let mut xml = XmlWriter::new("DeleteResult");
    let deletions = objects.iter().map(|object| -> BoxFuture<'_, _> { Box::pin(delete(&call, object, &attributes)) });
    let results = concurrent::all(deletions, AT_ONCE_MAX).await;
    for (object, result) in objects.iter().zip(results) {
        match result {
            Ok(_) if is_quiet => {}
            Ok(deletion) => xml.element("Deleted", |xml| {
                write_names(xml, object);
                if let Some(version) = deletion.version.filter(|_| deletion.is_marker) {
                    xml.flag("DeleteMarker", true);
                    xml.text("DeleteMarkerVersionId", &version.to_string());
                }
            }),
            Err(error) => xml.element("Error", |xml| {
                write_names(xml, object);
                xml.text("Code", error.code.name());
                xml.text("Message", error.message);
            }),
        }
    }
    Ok(Response::xml(xml))
}

/// What a mark of a deletion says about itself: who has put it.
fn owner_of_marker(call: &Call<'_>, bucket: &Bucket) -> Attributes {
    Attributes::default().with(OWNER, call.new_owner_in(bucket))
}

async fn delete(call: &Call<'_>, object: &DoomedObject, attributes: &Attributes) -> Result<Deletion, S3Error> {
    check_key(&object.key)?;
    let named = object.version.as_deref().filter(|version| !version.is_empty());
    let version = named.map(|text| text.parse().map_err(|_| Code::NoSuchVersion)).transpose()?;
    let condition = Condition { etag_is: object.etag.clone().map(|etag| vec![etag]), ..Condition::default() };
    let target = Target { bucket: &call.route.bucket, key: &object.key, version };
    let grounds = call.allow(&Wish::new(rule_of(Operation::DeleteObject), target)).await?;
    call.allow_condition(&condition, target).await?;
    match remove(call, grounds, target, &condition, attributes).await {
        Ok(deletion) => Ok(deletion),
        Err(error) => Err(call.told_of_absence(error, target).await),
    }
}

/// Deletes what was let pass. Where that rests on the object that there was, the object that is found then is asked for again.
async fn remove(
    call: &Call<'_>,
    grounds: Grounds,
    target: Target<'_>,
    condition: &Condition,
    attributes: &Attributes,
) -> Result<Deletion, S3Error> {
    let bypass = call.bypass(target).await?;
    let (law, wishes, decide);
    let permit = match grounds {
        Grounds::Apart => Permit::ALWAYS,
        Grounds::Object => {
            (law, wishes) = (call.law(target.bucket).await?, call.wishes(target, bypass));
            decide = law.decides(&wishes);
            Permit::by(&decide)
        }
    };
    Ok(call.s3.service.objects.delete(DeleteRequest { target, condition, attributes, bypass, permit }).await?)
}

fn write_names(xml: &mut XmlWriter, object: &DoomedObject) {
    xml.text("Key", &object.key);
    if let Some(version) = &object.version {
        xml.text("VersionId", version);
    }
}

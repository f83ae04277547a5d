//! Deletion of one object and of many.

use super::body::ChecksumAbout;
use super::concurrent;
use super::condition::write_condition;
use super::document::{Deletion, DoomedObject, decode_deletion};
use super::error::{Code, S3Error};
use super::response::Response;
use super::route::check_key;
use super::service::{Call, Integrity};
use super::xml::XmlWriter;
use crate::api::{BoxFuture, Condition, Content};

/// Objects of one request that are deleted at the same time.
const AT_ONCE_MAX: usize = 16;

pub(super) async fn one(call: Call<'_>) -> Result<Response, S3Error> {
    let condition = write_condition(call.head)?;
    call.s3.service.objects.delete(&call.route.bucket, &call.route.key, &condition).await?;
    Ok(Response::empty(204))
}

pub(super) async fn many(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let document = call.document(body, Integrity::Required, ChecksumAbout::Body).await?;
    let Deletion { objects, is_quiet } = decode_deletion(&document)?;
    call.s3.service.buckets.get(&call.route.bucket).await?;
    let mut xml = XmlWriter::new("DeleteResult");
    let deletions = objects.iter().map(|object| -> BoxFuture<'_, _> { Box::pin(delete(&call, object)) });
    let results = concurrent::all(deletions, AT_ONCE_MAX).await;
    for (object, result) in objects.iter().zip(results) {
        match result {
            Ok(()) if is_quiet => {}
            Ok(()) => xml.element("Deleted", |xml| write_names(xml, object)),
            Err(error) => xml.element("Error", |xml| {
                write_names(xml, object);
                xml.text("Code", error.code.name());
                xml.text("Message", error.message);
            }),
        }
    }
    Ok(Response::xml(xml))
}

async fn delete(call: &Call<'_>, object: &DoomedObject) -> Result<(), S3Error> {
    check_key(&object.key)?;
    if object.version.as_ref().is_some_and(|version| version != "null") {
        return Err(Code::InvalidArgument.because("Invalid version id specified"));
    }
    let condition = Condition { etag_is: object.etag.clone().map(|etag| vec![etag]), etag_is_not: None };
    Ok(call.s3.service.objects.delete(&call.route.bucket, &object.key, &condition).await?)
}

fn write_names(xml: &mut XmlWriter, object: &DoomedObject) {
    xml.text("Key", &object.key);
    if let Some(version) = &object.version {
        xml.text("VersionId", version);
    }
}

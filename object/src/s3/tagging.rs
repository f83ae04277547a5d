//! Tags of objects: put, get, delete. They are kept as the attribute that a put with `x-amz-tagging` makes.

use super::access::{Wish, rule_of};
use super::body::ChecksumAbout;
use super::document::decode_tagging;
use super::error::S3Error;
use super::metadata::{TAGS_MAX, retagged, tags, version_header};
use super::response::Response;
use super::route::Operation;
use super::service::{Call, Integrity};
use super::xml::XmlWriter;
use crate::api::{Content, Error, Object};

pub(super) async fn get(call: Call<'_>) -> Result<Response, S3Error> {
    let object = call.s3.service.objects.head(call.target()).await?;
    call.allow_own_found(&object).await?;
    let mut xml = XmlWriter::new("Tagging");
    write_tags(&mut xml, tags(&object.attributes).iter());
    Ok(Response::xml(xml).with_all(version_header(&object)))
}

/// Tags in the order of their names.
pub(super) fn write_tags<'a>(xml: &mut XmlWriter, tags: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut tags: Vec<_> = tags.collect();
    tags.sort_unstable();
    xml.element("TagSet", |xml| {
        for (name, value) in tags {
            xml.element("Tag", |xml| {
                xml.text("Key", name);
                xml.text("Value", value);
            });
        }
    });
}

pub(super) async fn put(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let document = call.document(body, Integrity::Optional, ChecksumAbout::Body).await?;
    let tags = decode_tagging(&document, TAGS_MAX)?;
    call.allow(&Wish { tags: Some(&tags), ..Wish::new(rule_of(Operation::PutObjectTagging), call.target()) }).await?;
    let object = replace(&call, Operation::PutObjectTagging, &tags).await?;
    Ok(Response::empty(200).with_all(version_header(&object)))
}

pub(super) async fn delete(call: Call<'_>) -> Result<Response, S3Error> {
    let object = replace(&call, Operation::DeleteObjectTagging, &[]).await?;
    Ok(Response::empty(204).with_all(version_header(&object)))
}

async fn replace(call: &Call<'_>, operation: Operation, tags: &[(String, String)]) -> Result<Object, S3Error> {
    let law = call.law(&call.route.bucket).await?;
    let wish = Wish { tags: Some(tags), ..Wish::new(rule_of(operation), call.target()) };
    let edit = |found: &Object| {
        law.check(&wish, found).map_err(|_| Error::Denied)?;
        Ok(retagged(&found.attributes, tags))
    };
    Ok(call.s3.service.versions.edit(call.target(), &edit).await?)
}

//! Operations on one object: put, get, head, attributes, tags.

use bytes::Bytes;

use super::access::{Wish, rule_of};
use super::acl::{ACL, Owners};
use super::body::{ChecksumAbout, Promises, Unasked, VerifiedBody};
use super::bucket::asked_acl;
use super::checksum::ChecksumType;
use super::condition::{About, ReadCondition, Verdict, decode_range, is_same};
use super::date::http_date;
use super::error::{Code, S3Error};
use super::metadata::{
    CHECKSUM_TYPE, attributes_of, check_functions, checksum_headers, checksums, new_version_header, object_headers,
    quoted, storage_class, version_header,
};
use super::ownership::{check_new_list, list_of};
use super::response::{Response, ResponseBody};
use super::route::Operation;
use super::service::{Call, refusal};
use super::xml::XmlWriter;
use crate::api::{BoxFuture, Condition, Content, Error, Object, ObjectContent, Opened, PutRequest, Range};

/// How often a read of a part begins again because the object was replaced meanwhile.
const REPLACED_MAX: usize = 8;

pub(super) async fn put(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let object = store(&call, body, call.promises(ChecksumAbout::Body)?).await?;
    let expiration = call.expiration_header(&object).await?;
    let headers = checksum_headers(&object.attributes).into_iter().chain(new_version_header(&object));
    let headers = headers.chain(call.encryption_headers(object.envelope.as_ref())).chain(expiration);
    Ok(Response::empty(200).with("etag", quoted(&object.etag)).with_all(headers))
}

/// Puts the object that the head describes, if the body is as promised.
pub(super) async fn store(call: &Call<'_>, body: &mut dyn Content, promises: Promises) -> Result<Object, S3Error> {
    let mut attributes = attributes_of(call.head)?;
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    attributes.0.extend(call.ownership(&bucket)?);
    attributes.0.push((CHECKSUM_TYPE.to_owned(), ChecksumType::FullObject.name().to_owned()));
    let request = PutRequest {
        bucket: call.route.bucket.clone(),
        key: call.route.key.clone(),
        attributes,
        lock: call.lock_of_new(&bucket).await?,
        condition: call.write_condition().await?,
        bytes: promises.exact_bytes(),
        encryption: call.encryption_of_new(&bucket)?,
    };
    let mut body = VerifiedBody::new(body, promises, Unasked::Crc64Nvme);
    let put = call.s3.service.objects.put(request, &mut body).await;
    put.map_err(|error| refusal(error, &body))
}

pub(super) async fn get(call: Call<'_>) -> Result<Response, S3Error> {
    check_read(&call)?;
    let condition = ReadCondition::of(call.head, About::Target);
    let (opened, is_partial) = match call.head.query_number("partNumber")? {
        Some(number) => open_part(&call, number, &condition).await?,
        None => {
            let range = call.head.header("range").and_then(decode_range);
            open_range(&call, range, &condition.etags).await?
        }
    };
    let mut opened = match opened {
        Ok(opened) => opened,
        Err(object) => {
            call.allow_own_found(&object).await?;
            call.key_of_read(&object)?;
            return Ok(not_modified(&call, &object));
        }
    };
    call.allow_own_found(&opened.object).await?;
    if let Some(key) = call.key_of_read(&opened.object)? {
        opened.content.decrypt_with(key);
    }
    match condition.judge(&opened.object) {
        Verdict::Read => {
            let locks = call.lock_headers(&opened.object).await?;
            let expiration = call.expiration_header(&opened.object).await?;
            // Before anything is said: what cannot be read at all is refused, and clients repeat it.
            let first = opened.content.next().await?;
            Ok(content(&call, opened, first, is_partial).with_all(locks).with_all(expiration))
        }
        Verdict::NotModified => Ok(not_modified(&call, &opened.object)),
        Verdict::Failed => Err(Code::PreconditionFailed.into()),
    }
}

fn check_read(call: &Call<'_>) -> Result<(), S3Error> {
    if call.head.query.has("partNumber") && call.head.header("range").is_some() {
        let message = "Cannot specify both Range header and partNumber query parameter";
        return Err(Code::InvalidRequest.because(message));
    }
    check_functions(call.head)
}

/// What a read opens: the object with its content, or the object that the reader has already.
type OpenedOrKnown = Result<Opened, Box<Object>>;

async fn open(call: &Call<'_>, range: Option<Range>, condition: &Condition) -> Result<OpenedOrKnown, S3Error> {
    match call.s3.service.objects.get(call.target(), range, condition).await {
        Ok(opened) => Ok(Ok(opened)),
        Err(Error::NotModified(object)) => Ok(Err(object)),
        Err(error) => Err(error.into()),
    }
}

/// Opens a range, or the whole object if it is not the one of which the client has the rest (`If-Range`). Says whether it is the range.
async fn open_range(
    call: &Call<'_>,
    range: Option<Range>,
    condition: &Condition,
) -> Result<(OpenedOrKnown, bool), S3Error> {
    let Some(validator) = call.head.header("if-range").filter(|_| range.is_some()) else {
        return Ok((open(call, range, condition).await?, range.is_some()));
    };
    match call.s3.service.objects.get(call.target(), range, condition).await {
        Ok(opened) if is_same(validator, &opened.object) => Ok((Ok(opened), true)),
        Ok(_) => Ok((open(call, None, condition).await?, false)),
        Err(Error::BadRange(_)) => match open(call, None, condition).await? {
            Ok(whole) if is_same(validator, &whole.object) => Err(Code::InvalidRange.into()),
            other => Ok((other, false)),
        },
        Err(Error::NotModified(object)) => Ok((Err(object), true)),
        Err(error) => Err(error.into()),
    }
}

/// Opens one part of an object, as it was uploaded. An object that came in one request is its own part 1.
async fn open_part(call: &Call<'_>, number: u64, condition: &ReadCondition) -> Result<(OpenedOrKnown, bool), S3Error> {
    for _ in 0..REPLACED_MAX {
        let object = call.s3.service.objects.head(call.target()).await?;
        if condition.judge(&object) != Verdict::Read {
            // The caller judges again, and answers.
            return Ok((open(call, None, &condition.etags).await?, false));
        }
        let (first, bytes) = part_span(&object, number)?;
        let range = (bytes > 0).then(|| Range::Between(first, first + bytes - 1));
        let is_this = Condition { etag_is: Some(vec![object.etag.clone()]), ..Condition::default() };
        match open(call, range, &is_this).await {
            Err(error) if error.code == Code::PreconditionFailed => {}
            opened => return Ok((opened?, true)),
        }
    }
    Err(Code::ServiceUnavailable.into())
}

/// First byte and length of a part.
fn part_span(object: &Object, number: u64) -> Result<(u64, u64), S3Error> {
    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    let index = index.ok_or(Code::InvalidArgument.because("Part number must be an integer between 1 and 10000"))?;
    if object.parts.is_empty() {
        return if index == 0 { Ok((0, object.bytes)) } else { Err(Code::InvalidPart.into()) };
    }
    let bytes = *object.parts.get(index).ok_or(Code::InvalidPartNumber)?;
    Ok((object.parts[..index].iter().sum(), bytes))
}

fn not_modified(call: &Call<'_>, object: &Object) -> Response {
    let headers = object_headers(object, &call.head.query);
    Response::empty(304).with_all(headers).with_all(call.encryption_headers(object.envelope.as_ref()))
}

/// Content of which the beginning is there.
struct Begun {
    first: Option<Bytes>,
    rest: Box<dyn ObjectContent>,
}

impl Content for Begun {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        match self.first.take() {
            Some(first) => Box::pin(core::future::ready(Ok(Some(first)))),
            None => self.rest.next(),
        }
    }
}

fn content(call: &Call<'_>, opened: Opened, begun: Option<Bytes>, is_partial: bool) -> Response {
    let Opened { object, range: (first, bytes), content } = opened;
    let content = Box::new(Begun { first: begun, rest: content });
    let has_range = is_partial && bytes > 0;
    let response = described(call, &object, if has_range { 206 } else { 200 }, bytes == object.bytes);
    let mut response = response.with("content-length", bytes.to_string());
    if has_range {
        let last = first + bytes - 1;
        response = response.with("content-range", format!("bytes {first}-{last}/{}", object.bytes));
    }
    response.body = ResponseBody::Content(content, bytes);
    response
}

/// The head of a reply with an object. Checksums are of the whole object, so a part of it is told none.
fn described(call: &Call<'_>, object: &Object, status: u16, is_whole: bool) -> Response {
    let mut response = Response::empty(status).with_all(object_headers(object, &call.head.query));
    response = response.with_all(call.encryption_headers(object.envelope.as_ref()));
    if call.head.query.has("partNumber") && !object.parts.is_empty() {
        response = response.with("x-amz-mp-parts-count", object.parts.len().to_string());
    }
    let wants_checksums =
        call.head.header("x-amz-checksum-mode").is_some_and(|mode| mode.eq_ignore_ascii_case("enabled"));
    if wants_checksums && is_whole {
        response = response.with_all(checksum_headers(&object.attributes));
    }
    response
}

pub(super) async fn head(call: Call<'_>) -> Result<Response, S3Error> {
    check_read(&call)?;
    let object = call.s3.service.objects.head(call.target()).await?;
    call.allow_own_found(&object).await?;
    call.key_of_read(&object)?;
    match ReadCondition::of(call.head, About::Target).judge(&object) {
        Verdict::Read => {}
        Verdict::NotModified => return Ok(not_modified(&call, &object)),
        Verdict::Failed => return Err(Code::PreconditionFailed.into()),
    }
    let has_rest = call.head.header("if-range").is_none_or(|validator| is_same(validator, &object));
    let (span, is_partial) = match call.head.query_number("partNumber")? {
        Some(number) => (part_span(&object, number)?, true),
        None => match call.head.header("range").filter(|_| has_rest).and_then(decode_range) {
            Some(range) => (range.within(object.bytes).ok_or(Code::InvalidRange)?, true),
            None => ((0, object.bytes), false),
        },
    };
    let (first, bytes) = span;
    let has_range = is_partial && bytes > 0;
    let response = described(&call, &object, if has_range { 206 } else { 200 }, bytes == object.bytes);
    let response = response.with_all(call.lock_headers(&object).await?);
    let response = response.with_all(call.expiration_header(&object).await?);
    let response = response.with("content-length", bytes.to_string());
    if !has_range {
        return Ok(response);
    }
    let last = first + bytes - 1;
    Ok(response.with("content-range", format!("bytes {first}-{last}/{}", object.bytes)))
}

pub(super) async fn acl(call: Call<'_>) -> Result<Response, S3Error> {
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    let object = call.s3.service.objects.head(call.target()).await?;
    call.allow_own_found(&object).await?;
    let owner = call.user_of(call.owner_in(&bucket, &object.attributes));
    let document = list_of(&bucket, &object.attributes).write(&owner, &*call.s3.credentials);
    Ok(Response::xml(document).with_all(version_header(&object)))
}

pub(super) async fn put_acl(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    let object = call.s3.service.objects.head(call.target()).await?;
    let (owner, bucket_owner) = (call.owner_in(&bucket, &object.attributes), call.owner_of_bucket(&bucket));
    let acl = asked_acl(&call, body, Owners { owner, bucket_owner }).await?;
    check_new_list(&acl, &bucket)?;
    let (law, wish) = (call.law(&call.route.bucket).await?, Wish::new(rule_of(Operation::PutObjectAcl), call.target()));
    let edit = |found: &Object| {
        law.check(&wish, found).map_err(|_| Error::Denied)?;
        // The list names the owner of the object that there was.
        if call.owner_in(&bucket, &found.attributes) != owner {
            return Err(Error::Unavailable);
        }
        Ok(found.attributes.with(ACL, Some(acl.text())))
    };
    let object = call.s3.service.versions.edit(call.target(), &edit).await?;
    Ok(Response::empty(200).with_all(version_header(&object)))
}

pub(super) async fn attributes(call: Call<'_>) -> Result<Response, S3Error> {
    check_functions(call.head)?;
    let values = call.head.headers.iter().filter(|(name, _)| name == "x-amz-object-attributes");
    let wanted: Vec<&str> = values.flat_map(|(_, value)| value.split(',')).map(str::trim).collect();
    if wanted.iter().all(|name| name.is_empty()) {
        return Err(Code::InvalidArgument.because(
            "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty",
        ));
    }
    if wanted.iter().any(|name| !["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"].contains(name)) {
        return Err(Code::InvalidArgument.because("Invalid attribute name specified."));
    }
    // They tell what a read tells.
    let read = Wish::new(rule_of(Operation::GetObject), call.target());
    let grounds = call.allow(&read).await?;
    let object = call.s3.service.objects.head(call.target()).await?;
    call.allow_own_found(&object).await?;
    call.allow_found(grounds, &read, &object).await?;
    call.key_of_read(&object)?;
    let mut xml = XmlWriter::new("GetObjectAttributesResponse");
    if wanted.contains(&"ETag") {
        xml.text("ETag", &object.etag);
    }
    if wanted.contains(&"Checksum") && checksums(&object.attributes).next().is_some() {
        xml.element("Checksum", |xml| write_checksums(xml, &object));
    }
    if wanted.contains(&"ObjectParts") && !object.parts.is_empty() {
        write_parts(&mut xml, &call, &object)?;
    }
    if wanted.contains(&"StorageClass") {
        xml.text("StorageClass", storage_class(&object.attributes));
    }
    if wanted.contains(&"ObjectSize") {
        xml.number("ObjectSize", object.bytes);
    }
    let response = Response::xml(xml).with("last-modified", http_date(object.modified_ms));
    Ok(response.with_all(version_header(&object)))
}

/// The checksums of an object and what they are of.
pub(super) fn write_checksums(xml: &mut XmlWriter, object: &Object) {
    for (algorithm, value) in checksums(&object.attributes) {
        xml.text(algorithm.element(), value);
    }
    if let Some(kind) = object.attributes.get(CHECKSUM_TYPE) {
        xml.text("ChecksumType", kind);
    }
}

fn write_parts(xml: &mut XmlWriter, call: &Call<'_>, object: &Object) -> Result<(), S3Error> {
    let limit = call.head.header_number("x-amz-max-parts")?.unwrap_or(1_000).min(1_000);
    let marker = call.head.header_number("x-amz-part-number-marker")?.unwrap_or(0);
    let count = object.parts.len() as u64;
    let numbered = (1u64..).zip(&object.parts);
    let page: Vec<_> = numbered.filter(|(number, _)| *number > marker).take(limit as usize).collect();
    let last = page.last().map_or(marker, |(number, _)| *number);
    xml.element("ObjectParts", |xml| {
        xml.number("PartsCount", count);
        xml.number("PartNumberMarker", marker);
        xml.number("NextPartNumberMarker", last);
        xml.number("MaxParts", limit);
        xml.flag("IsTruncated", last < count);
        for (number, bytes) in page {
            xml.element("Part", |xml| {
                xml.number("PartNumber", number);
                xml.number("Size", *bytes);
            });
        }
    });
    Ok(())
}

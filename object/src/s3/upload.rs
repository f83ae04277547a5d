//! Uploads in parts: create, put a part, complete, abort, list.

use std::collections::BTreeMap;

use md5::{Digest as _, Md5};

use super::acl::{INITIATOR, write_user};
use super::body::{ChecksumAbout, Unasked, VerifiedBody};
use super::checksum::{Algorithm, ChecksumType};
use super::date::iso8601;
use super::document::{CompletedPart, decode_completion};
use super::encoding::{encode_path, from_hex, to_hex};
use super::error::{Code, S3Error};
use super::head::RequestHead;
use super::list::{KeyEncoding, page_limit};
use super::metadata::{
    CHECKSUM_ALGORITHM, CHECKSUM_TYPE, algorithm_of_upload, attributes_of, checksum_headers, checksums,
    new_version_header, quoted, storage_class,
};
use super::object::write_checksums;
use super::response::Response;
use super::service::{Call, Integrity, refusal};
use super::xml::XmlWriter;
use crate::api::{
    Attributes, BodyDigest, Bucket, Completion, Content, Error, OBJECT_BYTES_MAX, PART_BYTES_MIN, PART_NUMBER_MAX,
    Part, Upload, UploadId,
};

pub(super) async fn create(call: Call<'_>) -> Result<Response, S3Error> {
    let mut attributes = attributes_of(call.head)?;
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    attributes.0.extend(call.ownership(&bucket)?);
    let mut attributes = attributes.with(INITIATOR, call.new_initiator_in(&bucket));
    let chosen = chosen_checksum(call.head)?;
    let mut headers = Vec::new();
    if let Some((algorithm, kind)) = chosen {
        attributes.0.push((CHECKSUM_ALGORITHM.to_owned(), algorithm.name().to_owned()));
        attributes.0.push((CHECKSUM_TYPE.to_owned(), kind.name().to_owned()));
        headers.push((CHECKSUM_ALGORITHM.into(), algorithm.name().to_owned()));
        headers.push((CHECKSUM_TYPE.into(), kind.name().to_owned()));
    }
    let lock = call.lock_of_new(&bucket).await?;
    let envelope = call.encryption_of_new(&bucket)?.map(|encryption| encryption.envelope);
    headers.extend(call.encryption_headers(envelope.as_ref()));
    let uploads = &call.s3.service.uploads;
    let upload = uploads.begin(&call.route.bucket, &call.route.key, attributes, lock, envelope).await?;
    let mut xml = XmlWriter::new("InitiateMultipartUploadResult");
    xml.text("Bucket", &call.route.bucket);
    xml.text("Key", &call.route.key);
    xml.text("UploadId", &upload.0);
    Ok(Response::xml(xml).with_all(headers))
}

/// The checksum that the creator of an upload has chosen, if any.
fn chosen_checksum(head: &RequestHead) -> Result<Option<(Algorithm, ChecksumType)>, S3Error> {
    let unsupported = Code::InvalidRequest.because("Checksum algorithm provided is unsupported.");
    let algorithm =
        head.header(CHECKSUM_ALGORITHM).map(|name| Algorithm::named(name).ok_or(unsupported)).transpose()?;
    let wrong = Code::InvalidRequest.because("Value for x-amz-checksum-type header is invalid.");
    let kind = head.header(CHECKSUM_TYPE).map(|name| ChecksumType::named(name).ok_or(wrong)).transpose()?;
    match (algorithm, kind) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Code::InvalidRequest
            .because("The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.")),
        (Some(algorithm), kind) => {
            let kind = kind.unwrap_or(algorithm.default_type());
            let wrong = Code::InvalidRequest.because("The checksum type cannot be used with the checksum algorithm.");
            if algorithm.has_type(kind) { Ok(Some((algorithm, kind))) } else { Err(wrong) }
        }
    }
}

/// The upload that a request is about.
pub(super) fn upload_of(call: &Call<'_>) -> UploadId {
    UploadId(call.head.query.get("uploadId").unwrap_or_default().to_owned())
}

/// The number of the part that a request is about.
pub(super) fn part_number_of(call: &Call<'_>) -> Result<u32, S3Error> {
    let number = call.head.query_number("partNumber")?.and_then(|number| u32::try_from(number).ok());
    let number = number.filter(|number| (1..=PART_NUMBER_MAX).contains(number));
    number.ok_or(Code::InvalidArgument.because("Part number must be an integer between 1 and 10000, inclusive"))
}

pub(super) async fn part(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    super::metadata::check_functions(call.head)?;
    let (upload, number) = (upload_of(&call), part_number_of(&call)?);
    let mut body = VerifiedBody::new(body, call.promises(ChecksumAbout::Body)?, Unasked::Crc64Nvme);
    let (bucket, key) = (&call.route.bucket, &call.route.key);
    let unwrap = call.key_of_part()?;
    let put = call.s3.service.uploads.put_part(bucket, key, &upload, number, &unwrap, &mut body).await;
    let part = put.map_err(|error| refusal(error, &body))?;
    let response = Response::empty(200).with("etag", quoted(&part.etag)).with_all(checksum_headers(&part.attributes));
    Ok(response.with_all(call.encryption_headers(part.envelope.as_ref())))
}

pub(super) async fn abort(call: Call<'_>) -> Result<Response, S3Error> {
    call.s3.service.uploads.abort(&call.route.bucket, &call.route.key, &upload_of(&call)).await?;
    Ok(Response::empty(204))
}

pub(super) async fn complete(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let condition = call.write_condition().await?;
    let document = call.document(body, Integrity::Optional, ChecksumAbout::CompletedObject).await?;
    let named = last_of_each(decode_completion(&document)?)?;
    let upload = upload_of(&call);
    let attributes = match find(&call, &upload).await {
        Ok((upload, parts)) => {
            call.check_key_of_completion(&upload)?;
            attributes_of_parts(call.head, &upload, &parts, &named)?
        }
        // It may have been completed already, and then the answer is the same again: the service knows.
        Err(Error::NoSuchUpload) => Attributes::default(),
        Err(error) => return Err(error.into()),
    };
    let digest = BodyDigest { etag: etag_of_parts(&named)?, attributes };
    let parts = named.into_iter().map(|part| (part.number, part.etag)).collect();
    let completion = Completion { parts, digest, condition };
    let (bucket, key) = (&call.route.bucket, &call.route.key);
    let object = call.s3.service.uploads.complete(bucket, key, &upload, completion).await?;
    let mut xml = XmlWriter::new("CompleteMultipartUploadResult");
    let host = call.head.header("host").unwrap_or_default();
    xml.text("Location", &format!("http://{host}/{bucket}/{}", encode_path(key)));
    xml.text("Bucket", bucket);
    xml.text("Key", key);
    xml.text("ETag", &quoted(&object.etag));
    write_checksums(&mut xml, &object);
    let response = Response::xml(xml).with_all(new_version_header(&object));
    let response = response.with_all(call.expiration_header(&object).await?);
    Ok(response.with_all(call.encryption_headers(object.envelope.as_ref())))
}

/// The parts that a completion names. Their numbers ascend strictly, with one exception that ceph/s3-tests asks for
/// (`test_multipart_resend_first_finishes_last`): a part that was sent twice may be named by both entity tags, and the last one counts.
fn last_of_each(named: Vec<CompletedPart>) -> Result<Vec<CompletedPart>, S3Error> {
    let mut parts: Vec<CompletedPart> = Vec::with_capacity(named.len());
    for part in named {
        match parts.last_mut() {
            Some(last) if last.number == part.number && last.etag != part.etag => *last = part,
            Some(last) if last.number >= part.number => return Err(Code::InvalidPartOrder.into()),
            _ => parts.push(part),
        }
    }
    Ok(parts)
}

pub(super) async fn find(call: &Call<'_>, upload: &UploadId) -> Result<(Upload, Vec<Part>), Error> {
    let found = call.s3.service.uploads.list(&call.route.bucket, Some((&call.route.key, upload))).await?;
    found.into_iter().next().ok_or(Error::NoSuchUpload)
}

/// The MD5 of the parts' MD5s, and how many they are. Parts of an upload that is there were compared before: one that can be no part is
/// of none.
fn etag_of_parts(parts: &[CompletedPart]) -> Result<String, S3Error> {
    let mut md5 = Md5::new();
    for part in parts {
        md5.update(from_hex::<16>(&part.etag).ok_or(Code::NoSuchUpload)?);
    }
    Ok(format!("{}-{}", to_hex(&<[u8; 16]>::from(md5.finalize())), parts.len()))
}

/// Checks the parts that a completion names against those that were put, and makes the object's checksum of theirs.
fn attributes_of_parts(
    head: &RequestHead,
    upload: &Upload,
    put: &[Part],
    named: &[CompletedPart],
) -> Result<Attributes, S3Error> {
    let known: BTreeMap<u32, &Part> = put.iter().map(|part| (part.number, part)).collect();
    let mut parts = Vec::with_capacity(named.len());
    for (index, name) in named.iter().enumerate() {
        let part = *known.get(&name.number).filter(|part| part.etag == name.etag).ok_or(Code::InvalidPart)?;
        if part.bytes < PART_BYTES_MIN && index + 1 < named.len() {
            return Err(Code::EntityTooSmall.into());
        }
        let is_same = |(algorithm, value): &(Algorithm, String)| part.attributes.get(algorithm.header()) == Some(value);
        if !name.checksums.iter().all(is_same) {
            return Err(Code::InvalidPart.into());
        }
        parts.push(part);
    }
    let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    if bytes > OBJECT_BYTES_MAX {
        return Err(Code::EntityTooLarge.into());
    }
    if head.header_number("x-amz-mp-object-size")?.is_some_and(|promised| promised != bytes) {
        return Err(Code::InvalidRequest
            .because("The provided 'x-amz-mp-object-size' header does not match what was computed."));
    }
    checksum_of_parts(head, upload, &parts)
}

fn checksum_of_parts(head: &RequestHead, upload: &Upload, parts: &[&Part]) -> Result<Attributes, S3Error> {
    let chosen = algorithm_of_upload(&upload.attributes);
    let has = |algorithm: &Algorithm| parts.iter().all(|part| part.attributes.get(algorithm.header()).is_some());
    let algorithm = match chosen {
        Some(chosen) if !has(&chosen) => {
            return Err(
                Code::InvalidRequest.because("A part has no checksum of the algorithm that was chosen for the upload.")
            );
        }
        Some(chosen) => chosen,
        None => match Algorithm::ALL.into_iter().find(has) {
            Some(algorithm) => algorithm,
            None => return Ok(Attributes::default()),
        },
    };
    let kind = upload.attributes.get(CHECKSUM_TYPE).and_then(ChecksumType::named).unwrap_or(algorithm.default_type());
    if head.header(CHECKSUM_TYPE).is_some_and(|asked| asked != kind.name()) {
        let text = match kind {
            ChecksumType::FullObject => {
                "The upload was created with the checksum type FULL_OBJECT: the completion has to name the same."
            }
            ChecksumType::Composite => {
                "The upload was created with the checksum type COMPOSITE: the completion has to name the same."
            }
        };
        return Err(Code::InvalidRequest.because(text));
    }
    let checksum = |part: &&Part| {
        let value = part.attributes.get(algorithm.header()).unwrap_or_default();
        algorithm.decode(value).map(|checksum| (checksum, part.bytes))
    };
    let checksums = parts.iter().map(checksum).collect::<Result<Vec<_>, _>>()?;
    let value = algorithm.of_parts(kind, &checksums);
    let promised = head.header(algorithm.header());
    // A composed checksum may be told without its number of parts.
    if promised.is_some_and(|promised| promised != value && Some(promised) != value.split_once('-').map(|(sum, _)| sum))
    {
        return Err(Code::BadDigest.because("The checksum you specified did not match the calculated checksum."));
    }
    let mut attributes = vec![(algorithm.header().to_owned(), value)];
    if upload.attributes.get(CHECKSUM_TYPE).is_none() {
        attributes.push((CHECKSUM_TYPE.to_owned(), kind.name().to_owned()));
    }
    Ok(Attributes(attributes))
}

pub(super) async fn list_parts(call: Call<'_>) -> Result<Response, S3Error> {
    let limit = page_limit(&call, "max-parts")?;
    let marker = call.head.query_number("part-number-marker")?.unwrap_or(0);
    let encoding = KeyEncoding::of(&call)?;
    let (upload, mut parts) = find(&call, &upload_of(&call)).await?;
    parts.sort_unstable_by_key(|part| part.number);
    parts.retain(|part| u64::from(part.number) > marker);
    let is_truncated = parts.len() > limit;
    parts.truncate(limit);
    let mut xml = XmlWriter::new("ListPartsResult");
    xml.text("Bucket", &call.route.bucket);
    encoding.text(&mut xml, "Key", &upload.key);
    encoding.write(&mut xml);
    xml.text("UploadId", &upload.id.0);
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    write_owner(&mut xml, &call, &upload, &bucket);
    xml.text("StorageClass", storage_class(&upload.attributes));
    write_choice(&mut xml, &upload);
    xml.number("PartNumberMarker", marker);
    xml.number("NextPartNumberMarker", parts.last().map_or(0, |part| part.number.into()));
    xml.number("MaxParts", limit as u64);
    xml.flag("IsTruncated", is_truncated);
    for part in &parts {
        xml.element("Part", |xml| {
            xml.number("PartNumber", part.number.into());
            xml.text("LastModified", &iso8601(part.modified_ms));
            xml.text("ETag", &quoted(&part.etag));
            xml.number("Size", part.bytes);
            checksums(&part.attributes).for_each(|(algorithm, value)| xml.text(algorithm.element(), value));
        });
    }
    Ok(Response::xml(xml))
}

/// Who has begun an upload, and whose it is.
fn write_owner(xml: &mut XmlWriter, call: &Call<'_>, upload: &Upload, bucket: &Bucket) {
    write_user(xml, "Initiator", &call.user_of(call.initiator_in(bucket, upload)));
    write_user(xml, "Owner", &call.user_of(call.owner_in(bucket, &upload.attributes)));
}

/// The checksum that was chosen for an upload.
fn write_choice(xml: &mut XmlWriter, upload: &Upload) {
    if let Some(algorithm) = upload.attributes.get(CHECKSUM_ALGORITHM) {
        xml.text("ChecksumAlgorithm", algorithm);
    }
    if let Some(kind) = upload.attributes.get(CHECKSUM_TYPE) {
        xml.text("ChecksumType", kind);
    }
}

/// One line of a list of uploads.
enum Line {
    Upload(Upload),
    Prefix(String),
}

/// A page of a list of uploads, and where the next one begins.
struct UploadPage {
    lines: Vec<Line>,
    next: Option<(String, String)>,
}

pub(super) async fn list(call: Call<'_>) -> Result<Response, S3Error> {
    let parameter = |name: &str| call.head.query.get(name).unwrap_or_default();
    let (prefix, delimiter) = (parameter("prefix"), parameter("delimiter"));
    let (key_marker, upload_marker) = (parameter("key-marker"), parameter("upload-id-marker"));
    let limit = page_limit(&call, "max-uploads")?;
    let encoding = KeyEncoding::of(&call)?;
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    let found = call.s3.service.uploads.list(&call.route.bucket, None).await?;
    let mut uploads: Vec<Upload> = found.into_iter().map(|(upload, _)| upload).collect();
    uploads.retain(|upload| upload.key.starts_with(prefix) && is_behind(upload, key_marker, upload_marker));
    uploads.sort_unstable_by(|one, other| (&one.key, &one.id).cmp(&(&other.key, &other.id)));
    let UploadPage { lines, next } = page(uploads, prefix, delimiter, key_marker, limit);
    let mut xml = XmlWriter::new("ListMultipartUploadsResult");
    xml.text("Bucket", &call.route.bucket);
    encoding.text(&mut xml, "KeyMarker", key_marker);
    xml.text("UploadIdMarker", upload_marker);
    if let Some((key, upload)) = &next {
        encoding.text(&mut xml, "NextKeyMarker", key);
        xml.text("NextUploadIdMarker", upload);
    }
    encoding.text(&mut xml, "Prefix", prefix);
    if !delimiter.is_empty() {
        encoding.text(&mut xml, "Delimiter", delimiter);
    }
    encoding.write(&mut xml);
    xml.number("MaxUploads", limit as u64);
    xml.flag("IsTruncated", next.is_some());
    for line in &lines {
        match line {
            Line::Prefix(prefix) => xml.element("CommonPrefixes", |xml| encoding.text(xml, "Prefix", prefix)),
            Line::Upload(upload) => xml.element("Upload", |xml| {
                encoding.text(xml, "Key", &upload.key);
                xml.text("UploadId", &upload.id.0);
                write_owner(xml, &call, upload, &bucket);
                xml.text("StorageClass", storage_class(&upload.attributes));
                xml.text("Initiated", &iso8601(upload.begun_ms));
                write_choice(xml, upload);
            }),
        }
    }
    Ok(Response::xml(xml))
}

/// Whether an upload comes behind the markers: behind the key, or at the key and behind the upload.
fn is_behind(upload: &Upload, key_marker: &str, upload_marker: &str) -> bool {
    match upload.key.as_str().cmp(key_marker) {
        core::cmp::Ordering::Greater => true,
        core::cmp::Ordering::Equal => !upload_marker.is_empty() && upload.id.0.as_str() > upload_marker,
        core::cmp::Ordering::Less => false,
    }
}

fn page(uploads: Vec<Upload>, prefix: &str, delimiter: &str, key_marker: &str, limit: usize) -> UploadPage {
    let mut lines: Vec<Line> = Vec::new();
    let mut last = None;
    for upload in uploads {
        let rest = &upload.key[prefix.len()..];
        let common = (!delimiter.is_empty()).then(|| rest.find(delimiter)).flatten();
        let common = common.map(|at| upload.key[..prefix.len() + at + delimiter.len()].to_owned());
        let is_known = |common: &String| {
            common.as_str() <= key_marker || matches!(lines.last(), Some(Line::Prefix(known)) if known == common)
        };
        if common.as_ref().is_some_and(is_known) {
            continue;
        }
        if lines.len() == limit {
            return UploadPage { lines, next: last.filter(|_| limit > 0) };
        }
        match common {
            Some(common) => {
                last = Some((common.clone(), String::new()));
                lines.push(Line::Prefix(common));
            }
            None => {
                last = Some((upload.key.clone(), upload.id.0.clone()));
                lines.push(Line::Upload(upload));
            }
        }
    }
    UploadPage { lines, next: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::head::Method;

    /// What is answered to a completion that names parts of these lengths, with these headers and attributes of the upload.
    fn completed(bytes: &[u64], headers: &[(&str, &str)], chosen: &[(&str, &str)]) -> Result<Attributes, Code> {
        let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let head = RequestHead::new(Method::Post, "/bucket/key", pairs(headers)).expect("a head");
        let part = |(number, bytes): (u32, &u64)| {
            let (etag, attributes) = (format!("{number:032x}"), Attributes::default());
            Part { number, bytes: *bytes, etag, modified_ms: 0, attributes, envelope: None }
        };
        let put: Vec<Part> = (1..).zip(bytes).map(part).collect();
        let name = |part: &Part| CompletedPart { number: part.number, etag: part.etag.clone(), checksums: Vec::new() };
        let named: Vec<CompletedPart> = put.iter().map(name).collect();
        let (id, attributes) = (UploadId("u".into()), Attributes(pairs(chosen)));
        let upload = Upload { id, key: "key".into(), begun_ms: 0, attributes, envelope: None };
        attributes_of_parts(&head, &upload, &put, &named).map_err(|error| error.code)
    }

    #[test]
    fn parts_of_a_completion_are_neither_too_short_nor_too_long() {
        let (least, most) = (PART_BYTES_MIN, OBJECT_BYTES_MAX);
        for (bytes, expected) in [
            (&[1][..], Ok(())),
            (&[least, 1], Ok(())),
            (&[least, least, 1], Ok(())),
            (&[least - 1, least], Err(Code::EntityTooSmall)),
            (&[least, least - 1, least], Err(Code::EntityTooSmall)),
            (&[most - 1], Ok(())),
            (&[most - least, least], Ok(())),
            (&[most, 1], Err(Code::EntityTooLarge)),
        ] {
            assert_eq!(completed(bytes, &[], &[]).map(drop), expected, "{bytes:?}");
        }
        let promised = |bytes| completed(&[least, 2], &[("x-amz-mp-object-size", bytes)], &[]).map(drop);
        assert_eq!((promised("5242882"), promised("5242881")), (Ok(()), Err(Code::InvalidRequest)));
    }

    #[test]
    fn parts_without_the_checksum_of_the_upload_are_refused() {
        assert_eq!(completed(&[1], &[], &[]), Ok(Attributes::default()));
        assert_eq!(completed(&[1], &[], &[(CHECKSUM_ALGORITHM, "CRC32")]), Err(Code::InvalidRequest));
    }
}

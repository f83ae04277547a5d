//! Copies inside the service: of an object to an object, and of a range of one to a part of an upload.

use bytes::Bytes;
use md5::{Digest as _, Md5};

use super::access::{Wish, rule_of};
use super::checksum::{Algorithm, ChecksumType, Hasher};
use super::condition::{About, ReadCondition, Verdict, decode_range};
use super::date::iso8601;
use super::encoding::{Query, decode_path, to_base64, to_hex};
use super::encryption::KeyOf;
use super::error::{Code, S3Error};
use super::metadata::{
    CHECKSUM_TYPE, Header, algorithm_of_upload, attributes_of, check_functions, checksums, copied_attributes,
    new_version_header, quoted, storage_class_of, tagging, tagging_of, website_redirect_of,
};
use super::object::write_checksums;
use super::response::Response;
use super::route::{Operation, check_key, is_bucket_name};
use super::service::Call;
use super::upload::{part_number_of, upload_of};
use super::versions::invalid_version;
use super::xml::XmlWriter;
use crate::api::{
    self, Attributes, BodyDigest, BoxFuture, Content, Error, Object, Opened, PART_BYTES_MAX, PutRequest, Range, Target,
    VersionId,
};

/// Which object is copied.
struct Source {
    bucket: String,
    key: String,
    version: Option<VersionId>,
}

impl Source {
    fn of(call: &Call<'_>) -> Result<Self, S3Error> {
        let invalid = Code::InvalidArgument.because("Invalid copy source object key");
        let text = call.head.header("x-amz-copy-source").unwrap_or_default();
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let query = Query::decode(query).map_err(|_| invalid)?;
        let version = query.get("versionId").map(|text| text.parse().map_err(|_| invalid_version())).transpose()?;
        let path = decode_path(path).map_err(|_| invalid)?;
        let (bucket, key) = path.strip_prefix('/').unwrap_or(&path).split_once('/').ok_or(invalid)?;
        check_key(key)?;
        if !is_bucket_name(bucket) || key.is_empty() {
            return Err(invalid);
        }
        Ok(Self { bucket: bucket.to_owned(), key: key.to_owned(), version })
    }

    /// Opens it if the conditions on it hold.
    async fn open(&self, call: &Call<'_>, range: Option<Range>) -> Result<Opened, S3Error> {
        let condition = ReadCondition::of(call.head, About::CopySource);
        let objects = &call.s3.service.objects;
        let target = Target { bucket: &self.bucket, key: &self.key, version: self.version };
        let read = Wish::new(rule_of(Operation::GetObject), target);
        let grounds = call.allow(&read).await?;
        let customer = call.customer_key(KeyOf::CopySource)?;
        let mut opened = match objects.get(target, range, &condition.etags).await {
            Err(Error::NotModified(_)) => return Err(Code::PreconditionFailed.into()),
            Err(Error::IsMarker(_)) => {
                return Err(Code::InvalidRequest.because(
                    "The source of a copy request may not specifically refer to a delete marker by version id.",
                ));
            }
            Err(error) => return Err(call.told_of_absence(error.into(), target).await),
            Ok(opened) => opened,
        };
        if let Some(expected) = call.head.header("x-amz-source-expected-bucket-owner") {
            let bucket = call.s3.service.buckets.get(&self.bucket).await?;
            if call.owner_of_bucket(&bucket) != expected {
                return Err(Code::AccessDenied.into());
            }
        }
        call.allow_found(grounds, &read, &opened.object).await?;
        let name = (self.bucket.as_str(), self.key.as_str());
        if let Some(key) = call.unwrap(opened.object.envelope.as_ref(), name, customer.as_ref())? {
            opened.content.decrypt_with(key);
        }
        if condition.judge(&opened.object) != Verdict::Read {
            return Err(Code::PreconditionFailed.into());
        }
        if opened.range.1 > PART_BYTES_MAX {
            let message =
                "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120";
            return Err(Code::InvalidRequest.because(message));
        }
        Ok(opened)
    }
}

/// What becomes of something that the source says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Directive {
    Copy,
    Replace,
}

impl Directive {
    fn of(call: &Call<'_>, name: &str) -> Result<Self, S3Error> {
        match call.head.header(name) {
            None | Some("COPY") => Ok(Self::Copy),
            Some("REPLACE") => Ok(Self::Replace),
            Some(_) => Err(Code::InvalidArgument.because("Unknown metadata directive.")),
        }
    }
}

pub(super) async fn object(call: Call<'_>) -> Result<Response, S3Error> {
    check_functions(call.head)?;
    let source = Source::of(&call)?;
    let is_itself = source.bucket == call.route.bucket && source.key == call.route.key && source.version.is_none();
    let metadata = Directive::of(&call, "x-amz-metadata-directive")?;
    let tags = Directive::of(&call, "x-amz-tagging-directive")?;
    let is_changed = call.head.header("x-amz-storage-class").is_some()
        || website_redirect_of(call.head).is_some()
        || call.names_encryption();
    if is_itself && metadata == Directive::Copy && !is_changed {
        return Err(Code::InvalidRequest.because(
            "This copy request is illegal because it is trying to copy an object to itself without changing the object's \
             metadata, storage class, website redirect location or encryption attributes.",
        ));
    }
    let Opened { object, content, range: (_, bytes) } = source.open(&call, None).await?;
    if tags == Directive::Copy && tagging(&object.attributes).is_some() {
        let target = Target { bucket: &source.bucket, key: &source.key, version: source.version };
        let read = Wish::new(rule_of(Operation::GetObjectTagging), target);
        let grounds = call.allow(&read).await?;
        call.allow_found(grounds, &read, &object).await?;
        call.allow_beside_put(Operation::PutObjectTagging, Some(&tags_of(&object))).await?;
    }
    let mut attributes = attributes_of_copy(&call, &object, metadata, tags)?;
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    attributes.0.extend(call.ownership(&bucket)?);
    let request = PutRequest {
        bucket: call.route.bucket.clone(),
        key: call.route.key.clone(),
        attributes,
        lock: call.lock_of_new(&bucket).await?,
        condition: call.write_condition().await?,
        bytes: Some(bytes),
        encryption: call.encryption_of_new(&bucket)?,
    };
    let mut body = CopiedBody::new(content, algorithm_of_copy(&call, &object)?);
    let copied = match call.s3.service.objects.put(request, &mut body).await {
        Ok(copied) => copied,
        Err(error) => return Err(call.told_of_absence(error.into(), call.target()).await),
    };
    let mut xml = XmlWriter::new("CopyObjectResult");
    xml.text("LastModified", &iso8601(copied.modified_ms));
    xml.text("ETag", &quoted(&copied.etag));
    write_checksums(&mut xml, &copied);
    let expiration = call.expiration_header(&copied).await?;
    let headers = new_version_header(&copied).into_iter().chain(source_version(&object)).chain(expiration);
    Ok(Response::xml(xml).with_all(headers).with_all(call.encryption_headers(copied.envelope.as_ref())))
}

/// The tags of a source, as conditions of policies see them.
fn tags_of(source: &Object) -> Vec<(String, String)> {
    let tags = super::metadata::tags(&source.attributes);
    tags.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn attributes_of_copy(
    call: &Call<'_>,
    source: &Object,
    metadata: Directive,
    tags: Directive,
) -> Result<Attributes, S3Error> {
    let mut attributes = match metadata {
        Directive::Copy => {
            let mut attributes = copied_attributes(&source.attributes);
            attributes.0.extend(storage_class_of(call.head)?);
            attributes.0.extend(website_redirect_of(call.head));
            attributes
        }
        Directive::Replace => {
            let mut attributes = attributes_of(call.head)?;
            attributes.0.retain(|(name, _)| name != "x-amz-tagging");
            attributes
        }
    };
    attributes.0.extend(match tags {
        Directive::Copy => tagging(&source.attributes),
        Directive::Replace => tagging_of(call.head)?,
    });
    attributes.0.push((CHECKSUM_TYPE.to_owned(), ChecksumType::FullObject.name().to_owned()));
    Ok(attributes)
}

/// The checksum that a copy gets: the one that is asked for, the source's, or the default.
fn algorithm_of_copy(call: &Call<'_>, source: &Object) -> Result<Algorithm, S3Error> {
    let unsupported = Code::InvalidRequest.because("Checksum algorithm provided is unsupported.");
    match call.head.header("x-amz-checksum-algorithm") {
        Some(name) => Algorithm::named(name).ok_or(unsupported),
        None => Ok(checksums(&source.attributes).next().map_or(Algorithm::Crc64Nvme, |(algorithm, _)| algorithm)),
    }
}

pub(super) async fn part(call: Call<'_>) -> Result<Response, S3Error> {
    check_functions(call.head)?;
    let (source, upload, number) = (Source::of(&call)?, upload_of(&call), part_number_of(&call)?);
    let malformed = Code::InvalidArgument.because("The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy");
    let range = match call.head.header("x-amz-copy-source-range").map(decode_range) {
        None => None,
        Some(Some(range @ Range::Between(..))) => Some(range),
        Some(_) => return Err(malformed),
    };
    let Opened { object, content, .. } = source.open(&call, range).await?;
    if let Some(Range::Between(_, last)) = range
        && last >= object.bytes
    {
        return Err(Code::InvalidRange.into());
    }
    let mut body = CopiedBody::new(content, algorithm_of_copy(&call, &object)?);
    let (bucket, key) = (&call.route.bucket, &call.route.key);
    let unwrap = call.key_of_part()?;
    let part = call.s3.service.uploads.put_part(bucket, key, &upload, number, &unwrap, &mut body).await?;
    let mut xml = XmlWriter::new("CopyPartResult");
    xml.text("LastModified", &iso8601(part.modified_ms));
    xml.text("ETag", &quoted(&part.etag));
    checksums(&part.attributes).for_each(|(algorithm, value)| xml.text(algorithm.element(), value));
    let response = Response::xml(xml).with_all(source_version(&object));
    Ok(response.with_all(call.encryption_headers(part.envelope.as_ref())))
}

/// Which version was copied.
fn source_version(source: &Object) -> Option<Header> {
    source.version.map(|version| ("x-amz-copy-source-version-id".into(), version.to_string()))
}

/// Content on its way out of one object and into another.
struct CopiedBody {
    content: Box<dyn Content>,
    md5: Md5,
    checksum: Hasher,
}

impl CopiedBody {
    fn new(content: Box<dyn Content>, algorithm: Algorithm) -> Self {
        Self { content, md5: Md5::new(), checksum: Hasher::new(algorithm) }
    }
}

impl api::Body for CopiedBody {
    fn join_upload(&mut self, upload: &Attributes) -> Result<(), Error> {
        if let Some(chosen) = algorithm_of_upload(upload) {
            self.checksum = Hasher::new(chosen);
        }
        Ok(())
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(async {
            let next = self.content.next().await?;
            if let Some(bytes) = &next {
                self.md5.update(bytes);
                self.checksum.update(bytes);
            }
            Ok(next)
        })
    }

    fn digest(&mut self) -> BodyDigest {
        let header = self.checksum.algorithm().header().to_owned();
        BodyDigest {
            etag: to_hex(&<[u8; 16]>::from(self.md5.clone().finalize())),
            attributes: Attributes(vec![(header, to_base64(&self.checksum.finish()))]),
        }
    }
}

//! Lists of objects: versions 1 and 2 of the operation.

use super::acl::write_user;
use super::bucket::{decode_token, encode_token};
use super::date::iso8601;
use super::encoding::encode_path;
use super::error::{Code, S3Error};
use super::metadata::{CHECKSUM_TYPE, checksums, quoted, storage_class};
use super::response::Response;
use super::service::Call;
use super::xml::XmlWriter;
use crate::api::{Bucket, ListRequest, Listed, Object, PAGE_MAX, Page};

/// How keys stand in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyEncoding {
    /// As they are, as far as XML can hold them.
    Plain,
    /// Percent-encoded.
    Url,
}

impl KeyEncoding {
    pub(super) fn of(call: &Call<'_>) -> Result<Self, S3Error> {
        match call.head.query.get("encoding-type") {
            None => Ok(Self::Plain),
            Some("url") => Ok(Self::Url),
            Some(_) => Err(Code::InvalidArgument.because("Invalid Encoding Method specified in Request")),
        }
    }

    pub(super) fn text(self, xml: &mut XmlWriter, element: &'static str, key: &str) {
        match self {
            Self::Plain => xml.text(element, key),
            Self::Url => xml.text(element, &encode_path(key)),
        }
    }

    pub(super) fn write(self, xml: &mut XmlWriter) {
        if self == Self::Url {
            xml.text("EncodingType", "url");
        }
    }
}

/// The limit of a page that a request names under `name`.
pub(super) fn page_limit(call: &Call<'_>, name: &str) -> Result<usize, S3Error> {
    let limit = call.head.query_number(name)?.unwrap_or(PAGE_MAX as u64);
    if limit > i32::MAX as u64 {
        return Err(Code::InvalidArgument.because("Argument must be an integer between 0 and 2147483647"));
    }
    Ok(usize::try_from(limit).unwrap_or(PAGE_MAX).min(PAGE_MAX))
}

/// What both lists have in common.
struct Listing<'a, 'c> {
    call: &'a Call<'c>,
    encoding: KeyEncoding,
    request: ListRequest,
    bucket: Bucket,
}

impl<'a, 'c> Listing<'a, 'c> {
    async fn of(call: &'a Call<'c>, after: String) -> Result<Self, S3Error> {
        let parameter = |name: &str| call.head.query.get(name).unwrap_or_default().to_owned();
        let limit = page_limit(call, "max-keys")?;
        let request = ListRequest { prefix: parameter("prefix"), delimiter: parameter("delimiter"), after, limit };
        let encoding = KeyEncoding::of(call)?;
        let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
        Ok(Self { call, encoding, request, bucket })
    }

    /// The page. One of no entries is complete.
    async fn page(&self) -> Result<Page, S3Error> {
        let service = &self.call.s3.service;
        if self.request.limit == 0 {
            return Ok(Page::default());
        }
        Ok(service.objects.list(&self.call.route.bucket, &self.request).await?)
    }

    /// The elements that every list begins with.
    fn write_request(&self, xml: &mut XmlWriter, prefix_encoding: KeyEncoding) {
        xml.text("Name", &self.call.route.bucket);
        prefix_encoding.text(xml, "Prefix", &self.request.prefix);
        if !self.request.delimiter.is_empty() {
            self.encoding.text(xml, "Delimiter", &self.request.delimiter);
        }
        xml.number("MaxKeys", self.request.limit as u64);
        self.encoding.write(xml);
    }

    /// All objects, then all common prefixes.
    fn write_entries(&self, xml: &mut XmlWriter, page: &Page, write_object: impl Fn(&mut XmlWriter, &Object)) {
        for entry in &page.entries {
            if let Listed::Object(object) = entry {
                write_object(xml, object);
            }
        }
        for entry in &page.entries {
            if let Listed::Prefix(prefix) = entry {
                xml.element("CommonPrefixes", |xml| self.encoding.text(xml, "Prefix", prefix));
            }
        }
    }
}

/// What the lists say about an object.
pub(super) fn write_object(
    xml: &mut XmlWriter,
    call: &Call<'_>,
    encoding: KeyEncoding,
    object: &Object,
    owner_in: Option<&Bucket>,
) {
    encoding.text(xml, "Key", &object.key);
    xml.text("LastModified", &iso8601(object.modified_ms));
    xml.text("ETag", &quoted(&object.etag));
    for (algorithm, _) in checksums(&object.attributes) {
        xml.text("ChecksumAlgorithm", algorithm.name());
    }
    if let Some(kind) = object.attributes.get(CHECKSUM_TYPE).filter(|_| checksums(&object.attributes).next().is_some())
    {
        xml.text("ChecksumType", kind);
    }
    xml.number("Size", object.bytes);
    if let Some(bucket) = owner_in {
        write_user(xml, "Owner", &call.user_of(call.owner_in(bucket, &object.attributes)));
    }
    xml.text("StorageClass", storage_class(&object.attributes));
}

pub(super) async fn objects(call: Call<'_>) -> Result<Response, S3Error> {
    let marker = call.head.query.get("marker").unwrap_or_default().to_owned();
    let listing = Listing::of(&call, marker).await?;
    let page = listing.page().await?;
    let mut xml = XmlWriter::new("ListBucketResult");
    // Clients do not decode the prefix of this list, though that of the others.
    listing.write_request(&mut xml, KeyEncoding::Plain);
    listing.encoding.text(&mut xml, "Marker", &listing.request.after);
    xml.flag("IsTruncated", page.next.is_some());
    // Without a delimiter the last key is where the next page begins, and S3 does not repeat it.
    if let Some(next) = page.next.as_ref().filter(|_| !listing.request.delimiter.is_empty()) {
        listing.encoding.text(&mut xml, "NextMarker", next);
    }
    listing.write_entries(&mut xml, &page, |xml, object| {
        xml.element("Contents", |xml| write_object(xml, &call, listing.encoding, object, Some(&listing.bucket)));
    });
    Ok(Response::xml(xml))
}

pub(super) async fn objects_v2(call: Call<'_>) -> Result<Response, S3Error> {
    let query = &call.head.query;
    let start_after = query.get("start-after");
    let token = query.get("continuation-token");
    let after = match token.filter(|token| !token.is_empty()) {
        Some(token) => decode_token(token)?,
        None => start_after.unwrap_or_default().to_owned(),
    };
    let has_owner = query.get("fetch-owner") == Some("true");
    let listing = Listing::of(&call, after).await?;
    let page = listing.page().await?;
    let mut xml = XmlWriter::new("ListBucketResult");
    listing.write_request(&mut xml, listing.encoding);
    if let Some(token) = token {
        xml.text("ContinuationToken", token);
    }
    if let Some(start_after) = start_after {
        listing.encoding.text(&mut xml, "StartAfter", start_after);
    }
    xml.number("KeyCount", page.entries.len() as u64);
    xml.flag("IsTruncated", page.next.is_some());
    if let Some(next) = &page.next {
        xml.text("NextContinuationToken", &encode_token(next));
    }
    listing.write_entries(&mut xml, &page, |xml, object| {
        xml.element("Contents", |xml| {
            write_object(xml, &call, listing.encoding, object, has_owner.then_some(&listing.bucket));
        });
    });
    Ok(Response::xml(xml))
}

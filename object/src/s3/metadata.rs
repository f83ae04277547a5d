//! What an object says about itself: from headers of a request to attributes, and from attributes to headers of a reply.
//!
//! Attributes keep the names of the headers. Headers that ask for what is not there are refused here, so that no write pretends
//! to have done it.

use std::borrow::Cow;

use super::checksum::Algorithm;
use super::date::http_date;
use super::document::check_tags;
use super::encoding::{Query, encode_tag};
use super::error::{Code, S3Error};
use super::head::RequestHead;
use crate::api::{ATTRIBUTES_BYTES_MAX, Attributes, Object, REDUCED_REDUNDANCY, STORAGE_CLASS, VersionId};

/// Bytes of all `x-amz-meta-` headers, without that prefix.
pub const METADATA_BYTES_MAX: usize = 2 << 10;
/// Tags of an object.
pub const TAGS_MAX: usize = 10;
/// Room that is left for attributes which follow from the bytes: a checksum and what it is of.
const CHECKSUM_BYTES_MAX: usize = 256;

/// Content type of an object whose sender has named none.
const DEFAULT_TYPE: &str = "binary/octet-stream";
/// Prefix of a client's own metadata.
const METADATA: &str = "x-amz-meta-";
/// The attribute with the tags, as they stand in the header of that name.
const TAGGING: &str = "x-amz-tagging";
/// The attribute that says what a checksum is of.
pub(super) const CHECKSUM_TYPE: &str = "x-amz-checksum-type";
/// The attribute of an upload that says how its checksums are made, if its creator has chosen.
pub(super) const CHECKSUM_ALGORITHM: &str = "x-amz-checksum-algorithm";

/// The algorithm that was chosen for the checksums of an upload.
pub(super) fn algorithm_of_upload(upload: &Attributes) -> Option<Algorithm> {
    upload.get(CHECKSUM_ALGORITHM).and_then(Algorithm::named)
}

/// Headers that are kept, beside a client's own.
const KEPT: [&str; 6] =
    ["cache-control", "content-disposition", "content-encoding", "content-language", "expires", WEBSITE_REDIRECT];

/// Headers of functions that are not there.
const NOT_IMPLEMENTED: [&str; 1] = ["x-amz-write-offset-bytes"];

/// Parameters of a read that replace headers of the reply.
const OVERRIDES: [(&str, &str); 6] = [
    ("response-cache-control", "cache-control"),
    ("response-content-disposition", "content-disposition"),
    ("response-content-encoding", "content-encoding"),
    ("response-content-language", "content-language"),
    ("response-content-type", "content-type"),
    ("response-expires", "expires"),
];

/// Whether a request wants headers of the reply replaced.
pub fn has_overrides(query: &Query) -> bool {
    OVERRIDES.iter().any(|(parameter, _)| query.has(parameter))
}

/// A header of a reply.
pub type Header = (Cow<'static, str>, String);

/// Refuses headers of functions that are not there.
///
/// # Errors
/// [`Code::NotImplemented`].
pub fn check_functions(head: &RequestHead) -> Result<(), S3Error> {
    let mut names = head.headers.iter().map(|(name, _)| name.as_str());
    if names.any(|name| NOT_IMPLEMENTED.contains(&name)) {
        return Err(Code::NotImplemented.into());
    }
    Ok(())
}

/// The attributes of the object that a request puts.
///
/// # Errors
/// [`Code::MetadataTooLarge`], [`Code::InvalidTag`], [`Code::InvalidStorageClass`], and functions that are not there.
pub fn attributes_of(head: &RequestHead) -> Result<Attributes, S3Error> {
    check_functions(head)?;
    let mut attributes: Vec<(String, String)> = Vec::new();
    let content_type = head.header("content-type").filter(|value| !value.is_empty()).unwrap_or(DEFAULT_TYPE);
    attributes.push(("content-type".to_owned(), content_type.to_owned()));
    for name in KEPT {
        if let Some(value) = head.header(name).map(|value| kept_value(name, value)).filter(|value| !value.is_empty()) {
            attributes.push((name.to_owned(), value));
        }
    }
    let mut metadata_bytes = 0;
    for (name, value) in head.headers.iter().filter(|(name, _)| name.starts_with(METADATA)) {
        metadata_bytes += name.len() - METADATA.len() + value.len();
        match attributes.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = format!("{known},{value}"),
            None => attributes.push((name.clone(), value.clone())),
        }
    }
    attributes.extend(tagging_of(head)?);
    attributes.extend(storage_class_of(head)?);
    let attributes = Attributes(attributes);
    if metadata_bytes > METADATA_BYTES_MAX || attributes.len_bytes() > ATTRIBUTES_BYTES_MAX - CHECKSUM_BYTES_MAX {
        return Err(Code::MetadataTooLarge.into());
    }
    Ok(attributes)
}

/// A value as it is kept: `aws-chunked` is the framing of the request and not an encoding of the object.
fn kept_value(name: &str, value: &str) -> String {
    if name != "content-encoding" {
        return value.to_owned();
    }
    let encodings = value.split(',').map(str::trim).filter(|encoding| !encoding.eq_ignore_ascii_case("aws-chunked"));
    encodings.collect::<Vec<_>>().join(", ")
}

/// The attribute of the tags in a request's header, if it has some.
///
/// # Errors
/// [`Code::InvalidTag`].
pub fn tagging_of(head: &RequestHead) -> Result<Option<(String, String)>, S3Error> {
    let Some(text) = head.header(TAGGING) else { return Ok(None) };
    let tags = Query::decode(text).map_err(|_| Code::InvalidTag)?;
    check_tags(tags.iter(), TAGS_MAX)?;
    Ok((tags.iter().next().is_some()).then(|| (TAGGING.to_owned(), text.to_owned())))
}

/// The attributes of an object with other tags.
#[must_use]
pub fn retagged(attributes: &Attributes, tags: &[(String, String)]) -> Attributes {
    let mut kept: Vec<_> = attributes.0.iter().filter(|(name, _)| name != TAGGING).cloned().collect();
    if !tags.is_empty() {
        kept.push((TAGGING.to_owned(), tag_text(tags)));
    }
    Attributes(kept)
}

/// Tags in one text, as a header has them.
#[must_use]
pub fn tag_text(tags: &[(String, String)]) -> String {
    let pair = |(name, value): &(String, String)| format!("{}={}", encode_tag(name), encode_tag(value));
    tags.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// The attribute of the storage class in a request's header, if it is not the usual one.
///
/// # Errors
/// [`Code::InvalidStorageClass`]: there is none of that name.
pub fn storage_class_of(head: &RequestHead) -> Result<Option<(String, String)>, S3Error> {
    match head.header(STORAGE_CLASS) {
        None | Some("STANDARD") => Ok(None),
        Some(class @ REDUCED_REDUNDANCY) => Ok(Some((STORAGE_CLASS.to_owned(), class.to_owned()))),
        Some(_) => Err(Code::InvalidStorageClass.into()),
    }
}

/// Where requests of the object are to go instead, for web sites.
const WEBSITE_REDIRECT: &str = "x-amz-website-redirect-location";

/// What a request says about where requests of the object are to go instead.
pub fn website_redirect_of(head: &RequestHead) -> Option<(String, String)> {
    head.header(WEBSITE_REDIRECT).map(|place| (WEBSITE_REDIRECT.to_owned(), place.to_owned()))
}

/// The attributes of a copy that keeps its source's: without what follows from its bytes, class, redirection and tags.
#[must_use]
pub fn copied_attributes(source: &Attributes) -> Attributes {
    let is_copied = |name: &str| {
        !name.starts_with("x-amz-checksum-")
            && !is_own(name)
            && ![STORAGE_CLASS, WEBSITE_REDIRECT, TAGGING].contains(&name)
    };
    Attributes(source.0.iter().filter(|(name, _)| is_copied(name)).cloned().collect())
}

/// Whether an attribute is the service's own: no header makes it, and none tells it.
fn is_own(name: &str) -> bool {
    name.starts_with("x-ashlar-")
}

/// The tags of an object.
#[must_use]
pub fn tags(attributes: &Attributes) -> Query {
    // They were checked when they were put.
    attributes.get(TAGGING).and_then(|text| Query::decode(text).ok()).unwrap_or_default()
}

/// The attribute of an object's tags, as it is kept.
#[must_use]
pub fn tagging(attributes: &Attributes) -> Option<(String, String)> {
    attributes.get(TAGGING).map(|text| (TAGGING.to_owned(), text.to_owned()))
}

/// The storage class of an object.
#[must_use]
pub fn storage_class(attributes: &Attributes) -> &str {
    attributes.get(STORAGE_CLASS).unwrap_or("STANDARD")
}

/// The checksums of an object or part, in Base64.
pub fn checksums(attributes: &Attributes) -> impl Iterator<Item = (Algorithm, &str)> {
    Algorithm::ALL.into_iter().filter_map(|algorithm| Some((algorithm, attributes.get(algorithm.header())?)))
}

/// An entity tag as it stands in headers and XML.
#[must_use]
pub fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// The headers of a reply with an object: all that it says about itself but its checksums.
#[must_use]
pub fn object_headers(object: &Object, query: &Query) -> Vec<Header> {
    let mut headers: Vec<Header> = vec![
        ("etag".into(), quoted(&object.etag)),
        ("last-modified".into(), http_date(object.modified_ms)),
        ("accept-ranges".into(), "bytes".to_owned()),
    ];
    headers.extend(version_header(object));
    let is_shown = |name: &str| !name.starts_with("x-amz-checksum-") && !is_own(name) && name != TAGGING;
    for (name, value) in object.attributes.0.iter().filter(|(name, _)| is_shown(name)) {
        headers.push((name.clone().into(), value.clone()));
    }
    let tags = tags(&object.attributes).iter().count();
    if tags > 0 {
        headers.push(("x-amz-tagging-count".into(), tags.to_string()));
    }
    for (parameter, name) in OVERRIDES {
        if let Some(value) = query.get(parameter) {
            headers.retain(|(known, _)| known != name);
            headers.push((name.into(), value.to_owned()));
        }
    }
    headers
}

/// The header that says which version an object is, in a bucket that keeps versions or has kept them.
pub fn version_header(object: &Object) -> Option<Header> {
    object.version.map(|version| ("x-amz-version-id".into(), version.to_string()))
}

/// The header that says which version a put has made, if it is one that is kept.
pub fn new_version_header(object: &Object) -> Option<Header> {
    version_header(object).filter(|_| object.version != Some(VersionId::Null))
}

/// The headers with an object's checksums and what they are of.
#[must_use]
pub fn checksum_headers(attributes: &Attributes) -> Vec<Header> {
    let mut headers: Vec<Header> =
        checksums(attributes).map(|(algorithm, value)| (algorithm.header().into(), value.to_owned())).collect();
    if let Some(kind) = attributes.get(CHECKSUM_TYPE).filter(|_| !headers.is_empty()) {
        headers.push((CHECKSUM_TYPE.into(), kind.to_owned()));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::head::Method;

    fn attributes(headers: &[(&str, &str)]) -> Result<Attributes, Code> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let head = RequestHead::new(Method::Put, "/bucket/key", headers).expect("a head");
        attributes_of(&head).map_err(|error| error.code)
    }

    #[test]
    fn kept_headers() {
        let headers = [
            ("content-encoding", "aws-chunked, gzip"),
            ("x-amz-meta-a", "1"),
            ("x-amz-meta-a", "2"),
            ("x-amz-tagging", "a=b&c=d"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("x-amz-acl", "private"),
            ("user-agent", "x"),
        ];
        let kept = attributes(&headers).expect("attributes");
        assert_eq!(
            (kept.get("content-type"), kept.get("content-encoding")),
            (Some("binary/octet-stream"), Some("gzip"))
        );
        assert_eq!((kept.get("x-amz-meta-a"), kept.0.len()), (Some("1,2"), 5));
        assert_eq!((tags(&kept).get("c"), storage_class(&kept)), (Some("d"), "REDUCED_REDUNDANCY"));
        let alone = attributes(&[("content-encoding", "aws-chunked")]).expect("attributes");
        assert_eq!((alone.get("content-encoding"), storage_class(&alone)), (None, "STANDARD"));
    }

    #[test]
    fn refused_headers() {
        let long = "x".repeat(METADATA_BYTES_MAX);
        let tags = |count: usize| (0..count).map(|index| format!("k{index}=v")).collect::<Vec<_>>().join("&");
        let cases = [
            ("x-amz-meta-a", long.as_str(), Code::MetadataTooLarge),
            ("x-amz-write-offset-bytes", "1", Code::NotImplemented),
            ("x-amz-storage-class", "GLACIER", Code::InvalidStorageClass),
            ("x-amz-tagging", "a=1&a=2", Code::InvalidTag),
            ("x-amz-tagging", "aws%3Aa=1", Code::InvalidTag),
            ("x-amz-tagging", &tags(TAGS_MAX + 1), Code::InvalidTag),
        ];
        for (name, value, code) in cases {
            assert_eq!(attributes(&[(name, value)]), Err(code), "{name}");
        }
        assert!(attributes(&[("x-amz-meta-a", &long[1..])]).is_ok());
        // The bytes of names count, without their prefix, and all headers together.
        let both = |len: usize| attributes(&[("x-amz-meta-of-many", &long[..len]), ("x-amz-meta-b", "b")]).is_ok();
        assert_eq!((both(METADATA_BYTES_MAX - 9), both(METADATA_BYTES_MAX - 8)), (true, false));
        assert!(attributes(&[("x-amz-tagging", &tags(TAGS_MAX))]).is_ok());
        let long = "x".repeat(ATTRIBUTES_BYTES_MAX);
        assert_eq!(attributes(&[("cache-control", &long)]), Err(Code::MetadataTooLarge));
        // A checksum and what it is of must find room beside what is kept.
        let empty = attributes(&[("cache-control", "x")]).expect("attributes").len_bytes() - 1;
        let most = ATTRIBUTES_BYTES_MAX - CHECKSUM_BYTES_MAX - empty;
        assert!(attributes(&[("cache-control", &long[..most])]).is_ok());
        assert_eq!(attributes(&[("cache-control", &long[..=most])]), Err(Code::MetadataTooLarge));
    }

    #[test]
    fn a_copy_keeps_what_a_client_said_and_nothing_that_follows_from_the_source() {
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let kept = [("content-type", "a/b"), ("x-amz-meta-a", "1"), ("expires", "never")];
        let left = [
            ("x-amz-checksum-crc32", "y/Q5Jg=="),
            ("x-amz-checksum-type", "FULL_OBJECT"),
            ("x-ashlar-owner", "ann"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("x-amz-website-redirect-location", "/there"),
            ("x-amz-tagging", "a=b"),
        ];
        let source = Attributes(left.iter().chain(&kept).copied().map(pair).collect());
        assert_eq!(copied_attributes(&source).0, kept.map(pair));
        let retagged = retagged(&source, &[("c".to_owned(), "d e".to_owned())]);
        assert_eq!((retagged.get("x-amz-tagging"), retagged.0.len()), (Some("c=d e"), source.0.len()));
        assert_eq!(retagged.get("x-ashlar-owner"), Some("ann"));
    }

    #[test]
    fn overrides_replace_headers() {
        let mut kept = attributes(&[("content-type", "a/b"), ("x-amz-tagging", "a=b")]).expect("attributes");
        kept.0.push(("x-ashlar-owner".to_owned(), "ann".to_owned()));
        let object = Object {
            key: "k".into(),
            version: None,
            bytes: 0,
            etag: "e".into(),
            modified_ms: 0,
            attributes: kept,
            lock: crate::lock::Lock::default(),
            parts: Vec::new(),
            envelope: None,
        };
        let query = Query::decode("response-content-type=c/d&response-expires=never").expect("a query");
        let headers = object_headers(&object, &query);
        let value = |name: &str| {
            headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(
            (value("content-type"), value("expires"), value("etag")),
            (vec!["c/d"], vec!["never"], vec!["\"e\""])
        );
        assert_eq!((value("x-amz-tagging-count"), value("x-amz-tagging")), (vec!["1"], vec![]));
        assert_eq!(value("x-ashlar-owner"), [""; 0], "the service's own attributes are told to nobody");
    }
}

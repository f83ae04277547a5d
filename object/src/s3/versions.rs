//! Versions of objects: whether a bucket keeps them, and the list of them.

use super::acl::write_user;
use super::body::ChecksumAbout;
use super::date::iso8601;
use super::document::decode_versioning;
use super::error::{Code, S3Error};
use super::list::{KeyEncoding, page_limit, write_object};
use super::response::Response;
use super::service::{Call, Integrity};
use super::xml::XmlWriter;
use crate::api::{
    Bucket, Content, DeleteMarker, ListedVersion, Object, VersionId, Versioning, VersionsPage, VersionsRequest,
};

pub(super) async fn state(call: Call<'_>) -> Result<Response, S3Error> {
    let state = call.s3.service.versions.state(&call.route.bucket).await?;
    let mut xml = XmlWriter::new("VersioningConfiguration");
    match state {
        Versioning::Never => {}
        Versioning::Enabled | Versioning::Locked => xml.text("Status", "Enabled"),
        Versioning::Suspended => xml.text("Status", "Suspended"),
    }
    Ok(Response::xml(xml))
}

pub(super) async fn set_state(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    let document = call.document(body, Integrity::Optional, ChecksumAbout::Body).await?;
    let state = decode_versioning(&document)?;
    call.s3.service.versions.set_state(&call.route.bucket, state).await?;
    Ok(Response::empty(200))
}

pub(super) async fn list(call: Call<'_>) -> Result<Response, S3Error> {
    let parameter = |name: &str| call.head.query.get(name).unwrap_or_default().to_owned();
    let (after, version) = (parameter("key-marker"), parameter("version-id-marker"));
    if !version.is_empty() && after.is_empty() {
        return Err(Code::InvalidArgument.because("A version-id marker cannot be specified without a key marker."));
    }
    let after_version = match version.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_| invalid_version())?),
    };
    let encoding = KeyEncoding::of(&call)?;
    let (prefix, delimiter, limit) = (parameter("prefix"), parameter("delimiter"), page_limit(&call, "max-keys")?);
    let request = VersionsRequest { prefix, delimiter, after, after_version, limit };
    let bucket = call.s3.service.buckets.get(&call.route.bucket).await?;
    let page = call.s3.service.versions.list(&call.route.bucket, &request).await?;
    let mut xml = XmlWriter::new("ListVersionsResult");
    xml.text("Name", &call.route.bucket);
    encoding.text(&mut xml, "Prefix", &request.prefix);
    if !request.delimiter.is_empty() {
        encoding.text(&mut xml, "Delimiter", &request.delimiter);
    }
    xml.number("MaxKeys", limit as u64);
    encoding.write(&mut xml);
    encoding.text(&mut xml, "KeyMarker", &request.after);
    xml.text("VersionIdMarker", &version);
    xml.flag("IsTruncated", page.next.is_some());
    if let Some((key, version)) = &page.next {
        encoding.text(&mut xml, "NextKeyMarker", key);
        if let Some(version) = version {
            xml.text("NextVersionIdMarker", &version.to_string());
        }
    }
    Entries { call: &call, encoding, bucket: &bucket }.write(&mut xml, &page);
    Ok(Response::xml(xml))
}

/// The text names no version.
pub(super) const fn invalid_version() -> S3Error {
    Code::InvalidArgument.because("Invalid version id specified")
}

/// How the entries of a list are told.
struct Entries<'a> {
    call: &'a Call<'a>,
    encoding: KeyEncoding,
    bucket: &'a Bucket,
}

impl Entries<'_> {
    /// All versions, then all common prefixes.
    fn write(&self, xml: &mut XmlWriter, page: &VersionsPage) {
        for entry in &page.entries {
            match entry {
                ListedVersion::Object(object, is_latest) => self.write_version(xml, object, *is_latest),
                ListedVersion::Marker(marker, is_latest) => self.write_marker(xml, marker, *is_latest),
                ListedVersion::Prefix(_) => {}
            }
        }
        for entry in &page.entries {
            if let ListedVersion::Prefix(prefix) = entry {
                xml.element("CommonPrefixes", |xml| self.encoding.text(xml, "Prefix", prefix));
            }
        }
    }

    fn write_version(&self, xml: &mut XmlWriter, object: &Object, is_latest: bool) {
        xml.element("Version", |xml| {
            xml.text("VersionId", &object.version.unwrap_or(VersionId::Null).to_string());
            xml.flag("IsLatest", is_latest);
            write_object(xml, self.call, self.encoding, object, Some(self.bucket));
        });
    }

    fn write_marker(&self, xml: &mut XmlWriter, marker: &DeleteMarker, is_latest: bool) {
        xml.element("DeleteMarker", |xml| {
            xml.text("VersionId", &marker.version.to_string());
            xml.flag("IsLatest", is_latest);
            self.encoding.text(xml, "Key", &marker.key);
            xml.text("LastModified", &iso8601(marker.modified_ms));
            write_user(xml, "Owner", &self.call.user_of(self.call.owner_in(self.bucket, &marker.attributes)));
        });
    }
}

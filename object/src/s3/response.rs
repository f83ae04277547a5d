//! The reply to a request, as the edge sends it.

use std::borrow::Cow;

use bytes::Bytes;

use super::date::http_date;
use super::error::{Code, S3Error};
use super::head::{Method, RequestHead};
use super::metadata::Header;
use super::xml::XmlWriter;
use crate::api::Content;

/// The body of a reply.
pub enum ResponseBody {
    /// None.
    Empty,
    /// All of it.
    Whole(Bytes),
    /// Bytes of an object: so many.
    Content(Box<dyn Content>, u64),
}

/// A reply.
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Headers: lower-case names and values. The length of the body is among them.
    pub headers: Vec<Header>,
    /// The body. Replies to `HEAD` have none.
    pub body: ResponseBody,
}

impl Response {
    /// A reply without a body.
    #[must_use]
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: ResponseBody::Empty }
    }

    /// A reply with a document.
    #[must_use]
    pub fn xml(document: XmlWriter) -> Self {
        Self::document(200, document)
    }

    /// A reply with JSON that is kept as it came.
    #[must_use]
    pub fn json(text: String) -> Self {
        let body = ResponseBody::Whole(Bytes::from(text));
        Self { status: 200, headers: Vec::new(), body }.with("content-type", "application/json".to_owned())
    }

    fn document(status: u16, document: XmlWriter) -> Self {
        let body = Bytes::from(document.finish());
        Self { status, headers: Vec::new(), body: ResponseBody::Whole(body) }
            .with("content-type", "application/xml".to_owned())
    }

    /// With one more header.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: String) -> Self {
        self.headers.push((name.into(), value));
        self
    }

    /// With more headers.
    #[must_use]
    pub fn with_all(mut self, headers: impl IntoIterator<Item = Header>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// The reply that tells an error. `head` is missing if the request could not even be taken apart.
    #[must_use]
    pub fn error(error: S3Error, head: Option<&RequestHead>, request_id: &str) -> Self {
        let mut headers: Vec<Header> = Vec::new();
        if let Some(marker) = error.marker {
            headers.push(("x-amz-delete-marker".into(), "true".to_owned()));
            headers.push(("x-amz-version-id".into(), marker.version.to_string()));
            if error.code == Code::MethodNotAllowed {
                headers.push(("last-modified".into(), http_date(marker.modified_ms)));
                headers.push(("allow".into(), "DELETE".to_owned()));
            }
        }
        if head.is_some_and(|head| head.method == Method::Head) || error.code.status() == 304 {
            return Self::empty(error.code.status()).with_all(headers);
        }
        let mut xml = XmlWriter::bare("Error");
        xml.text("Code", error.code.name());
        xml.text("Message", error.message);
        // A path with U+0000 cannot be told in XML.
        if let Some(path) = head.map(|head| head.path.as_str()).filter(|path| !path.contains('\0')) {
            xml.text("Resource", path);
        }
        xml.text("RequestId", request_id);
        xml.text("HostId", "ashlar");
        Self::document(error.code.status(), xml).with_all(headers)
    }
}

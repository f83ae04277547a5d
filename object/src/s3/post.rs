//! `PostObject`: a browser puts an object with a form.
//!
//! The fields before the file say who asks (a signature over a policy), which key the object gets, and what would otherwise stand
//! in headers. They become the head of a put: of the request's own headers only those are kept that ask for nothing, since no
//! signature covers them. Then the put takes its usual way, with the file as its body.

use bytes::Bytes;

use super::authenticate::{Authenticated, authenticate_form};
use super::body::Promises;
use super::document::decode_tagging;
use super::encoding::{encode_component, encode_path, from_base64};
use super::error::{Code, S3Error};
use super::form::{FormDecoder, FormError, FormEvent, boundary_of};
use super::form_policy::FormPolicy;
use super::head::{RequestHead, is_header};
use super::metadata::{TAGS_MAX, new_version_header, quoted, tag_text};
use super::object;
use super::response::Response;
use super::route::{Operation, Route, check_key};
use super::service::Call;
use super::xml::XmlWriter;
use crate::api::{BoxFuture, Content, Error, Object, PART_BYTES_MAX};

/// Headers of the request that are kept.
const KEPT: [&str; 5] = ["host", "origin", "referer", "user-agent", "x-amz-expected-bucket-owner"];
/// Fields that are headers of a put by the same name, beside those that begin with `x-amz-`.
const HEADERS: [&str; 6] =
    ["cache-control", "content-disposition", "content-encoding", "content-md5", "content-type", "expires"];
/// Fields that are about the signature.
const OF_THE_SIGNATURE: [&str; 5] =
    ["x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-security-token", "x-amz-signature"];
/// Bytes behind the file that are read, so that its sender hears the answer.
const EPILOGUE_BYTES_MAX: usize = 64 << 10;

/// The bytes of a form as they come, taken apart.
struct FormReader<'a> {
    source: &'a mut dyn Content,
    decoder: FormDecoder,
    is_over: bool,
}

impl FormReader<'_> {
    async fn event(&mut self) -> Result<FormEvent, S3Error> {
        loop {
            let event = self.decoder.poll().map_err(|error| match error {
                FormError::Malformed => Code::MalformedPOSTRequest,
                FormError::TooLarge => Code::MaxPostPreDataLengthExceededError,
            })?;
            if let Some(event) = event {
                return Ok(event);
            }
            let bytes = self.source.next().await?;
            self.decoder.handle_bytes(bytes.ok_or(Code::MalformedPOSTRequest)?);
        }
    }

    /// The fields before the file, and what its sender calls the file.
    async fn fields(&mut self) -> Result<(Vec<(String, String)>, String), S3Error> {
        let mut fields = Vec::new();
        loop {
            match self.event().await? {
                FormEvent::Field(name, value) => fields.push((name, value)),
                FormEvent::File(name) => return Ok((fields, name)),
                FormEvent::End | FormEvent::Data(_) => {
                    return Err(Code::InvalidArgument.because("POST requires exactly one file upload per request."));
                }
            }
        }
    }

    async fn next_of_file(&mut self) -> Result<Option<Bytes>, Error> {
        if self.is_over {
            return Ok(None);
        }
        loop {
            match self.decoder.poll().map_err(|_| Error::BadBody)? {
                Some(FormEvent::Data(bytes)) => return Ok(Some(bytes)),
                Some(_) => break,
                None => self.decoder.handle_bytes(self.source.next().await?.ok_or(Error::BadBody)?),
            }
        }
        self.is_over = true;
        let mut behind = 0;
        while behind < EPILOGUE_BYTES_MAX {
            match self.source.next().await? {
                Some(bytes) => behind += bytes.len(),
                None => break,
            }
        }
        Ok(None)
    }
}

impl Content for FormReader<'_> {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
        Box::pin(self.next_of_file())
    }
}

/// What a form asks for.
struct Form {
    fields: Vec<(String, String)>,
    file_name: String,
}

impl Form {
    fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The key of the object, with the name of the file where it asks for that.
    fn key(&self) -> Result<String, S3Error> {
        let missing = Code::InvalidArgument.because("Bucket POST must contain a field named 'key'.");
        let file_name = self.file_name.rsplit(['/', '\\']).next().unwrap_or_default();
        let key = self.get("key").filter(|key| !key.is_empty()).ok_or(missing)?.replace("${filename}", file_name);
        check_key(&key)?;
        if key.is_empty() { Err(missing) } else { Ok(key) }
    }

    /// Least and greatest length of the file, if the form is signed and its policy allows what it asks for.
    fn check_policy(&self, who: &Authenticated, bucket: &str, now_ms: u64) -> Result<(u64, u64), S3Error> {
        let (Some(policy), Some(_)) = (self.get("policy"), who.user()) else { return Ok((0, PART_BYTES_MAX)) };
        let unreadable = Code::InvalidPolicyDocument.because("Invalid Policy: Invalid Base64.");
        let policy = FormPolicy::decode(&from_base64(policy).ok_or(unreadable)?)?;
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        policy.check(bucket, fields, now_ms)?;
        let (least, most) = policy.length();
        Ok((least, most.min(PART_BYTES_MAX)))
    }

    /// The head of the put that the form asks for.
    fn head(&self, asked: &RequestHead) -> Result<RequestHead, S3Error> {
        let is_kept = |name: &str| KEPT.contains(&name);
        let mut headers: Vec<_> = asked.headers.iter().filter(|(name, _)| is_kept(name)).cloned().collect();
        for (name, value) in &self.fields {
            let header = match name.as_str() {
                "acl" => ("x-amz-acl".to_owned(), value.clone()),
                "tagging" => ("x-amz-tagging".to_owned(), tag_text(&decode_tagging(value.as_bytes(), TAGS_MAX)?)),
                name if OF_THE_SIGNATURE.contains(&name) || is_kept(name) => continue,
                name if HEADERS.contains(&name) || name.starts_with("x-amz-") => (name.to_owned(), value.clone()),
                _ => continue,
            };
            if !is_header(&header.0, &header.1) {
                return Err(Code::InvalidArgument.because("A field has a name or a value that no header can have."));
            }
            headers.push((header.0, header.1.trim().to_owned()));
        }
        let mut head = RequestHead { headers, ..asked.clone() };
        head.join_headers();
        Ok(head)
    }
}

pub(super) async fn object(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    if call.user().is_some() {
        return Err(Code::InvalidArgument.because("Only one auth mechanism allowed"));
    }
    let boundary = call
        .head
        .header("content-type")
        .and_then(boundary_of)
        .ok_or(Code::PreconditionFailed.because("Bucket POST must be of the enclosure-type multipart/form-data"))?;
    let mut reader = FormReader { source: body, decoder: FormDecoder::new(boundary), is_over: false };
    let (fields, file_name) = reader.fields().await?;
    let form = Form { fields, file_name };
    let who = authenticate_form(|name| form.get(name), call.from.now_ms, &*call.s3.credentials)?;
    let key = form.key()?;
    let bucket = call.route.bucket.clone();
    let length = form.check_policy(&who, &bucket, call.from.now_ms)?;
    let head = form.head(call.head)?;
    let route = Route { operation: Operation::PutObject, bucket, key, version: None };
    let put = Call { head: &head, route: &route, who: &who, ..call };
    put.authorize().await?;
    put.check_expected_owner().await?;
    let promises = Promises::of_file(&head, length)?;
    let object = object::store(&put, &mut reader, promises).await?;
    Ok(answer(&form, &put, &object))
}

/// The reply that the form asks for.
fn answer(form: &Form, call: &Call<'_>, object: &Object) -> Response {
    let Route { bucket, key, .. } = call.route;
    let host = call.head.header("host").unwrap_or_default();
    let location =
        format!("http{}://{host}/{bucket}/{}", if call.from.is_encrypted { "s" } else { "" }, encode_path(key));
    let etag = quoted(&object.etag);
    let redirect = form.get("success_action_redirect").or(form.get("redirect")).filter(|url| is_url(url));
    let response = match (redirect, form.get("success_action_status")) {
        (Some(url), _) => {
            let separator = if url.contains('?') { '&' } else { '?' };
            let pairs = [("bucket", bucket.as_str()), ("key", key), ("etag", &etag)];
            let query = pairs.map(|(name, value)| format!("{name}={}", encode_component(value))).join("&");
            Response::empty(303).with("location", format!("{url}{separator}{query}"))
        }
        (None, Some("201")) => {
            let mut xml = XmlWriter::bare("PostResponse");
            xml.text("Location", &location);
            xml.text("Bucket", bucket);
            xml.text("Key", key);
            xml.text("ETag", &etag);
            Response { status: 201, ..Response::xml(xml) }.with("location", location)
        }
        (None, status) => Response::empty(if status == Some("200") { 200 } else { 204 }).with("location", location),
    };
    let response = response.with("etag", etag).with_all(new_version_header(object));
    response.with_all(call.encryption_headers(object.envelope.as_ref()))
}

/// Whether a browser can be sent there.
fn is_url(text: &str) -> bool {
    let is_web = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    is_web && text.bytes().all(|byte| byte.is_ascii_graphic())
}

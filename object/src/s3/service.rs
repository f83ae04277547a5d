//! The S3 service: a request and its body in, a reply out, over the object service behind it.
//!
//! In this order, for every request: take the head apart, authenticate, route, authorize, run one operation. An operation takes
//! a `Call`, and a call holds an [`Authenticated`], which only the gate makes.

use core::net::IpAddr;
use std::sync::Arc;

use super::access::Grounds;
use super::authenticate::{Authenticated, Credentials, OF_VERSION_4, Place, authenticate, named_access_key};
use super::body::{ChecksumAbout, Promises, Unasked, VerifiedBody};
use super::cors::{CORS, CorsRule, cors_headers, decode_cors, preflight};
use super::encryption::KeyService;
use super::error::{Code, S3Error};
use super::head::{Method, RequestHead, is_header};
use super::response::Response;
use super::route::{Operation, Route, route};
use super::subject::Subject;
use super::xml::DOCUMENT_BYTES_MAX;
use super::{bucket, configuration, copy, delete, list, lock, object, post, sts, tagging, upload, versions};
use crate::api::{self, Body as _, Content, Service, Target};

/// What a deployment chooses.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// The region that clients are told. Requests may name any.
    pub region: String,
    /// Names of this service behind which `bucket.NAME` is the bucket's own host.
    pub domains: Vec<String>,
    /// Id of the owner of all buckets that nobody else has made.
    pub owner_id: String,
    /// Name of that owner.
    pub owner_name: String,
}

impl Default for S3Settings {
    fn default() -> Self {
        Self {
            region: "us-east-1".to_owned(),
            domains: Vec::new(),
            owner_id: "ashlar".to_owned(),
            owner_name: "ashlar".to_owned(),
        }
    }
}

/// A request without its body, as the edge has received it.
#[derive(Debug, Clone)]
pub struct IncomingRequest {
    /// The method.
    pub method: Method,
    /// Path and query as they stand in the request line.
    pub target: String,
    /// Headers: lower-case names and values.
    pub headers: Vec<(String, String)>,
    /// Where it came from, if that is known.
    pub peer: Option<IpAddr>,
    /// Whether nobody on the way could read it.
    pub is_encrypted: bool,
    /// When it came, in milliseconds since 1970 (UTC).
    pub now_ms: u64,
    /// What it is called in logs and in its reply.
    pub id: String,
}

/// The S3 service. Clones share everything.
#[derive(Clone)]
pub struct S3Service {
    pub(super) service: Service,
    pub(super) credentials: Arc<dyn Credentials>,
    pub(super) keys: Arc<dyn KeyService>,
    pub(super) settings: Arc<S3Settings>,
}

/// One authenticated request while its operation runs. Its body is beside it: it is not shared.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) s3: &'a S3Service,
    pub(super) head: &'a RequestHead,
    pub(super) route: &'a Route,
    pub(super) who: &'a Authenticated,
    /// What its operation was let pass for.
    pub(super) grounds: Grounds,
    pub(super) from: From,
}

impl S3Service {
    /// The service over this object service, for holders of these credentials, that encrypts with these keys.
    #[must_use]
    pub fn new(
        service: Service,
        credentials: Arc<dyn Credentials>,
        keys: Arc<dyn KeyService>,
        settings: S3Settings,
    ) -> Self {
        Self { service, credentials, keys, settings: Arc::new(settings) }
    }

    /// Whether this server knows who may do what as it is: while it does not, [`S3Service::handle`] refuses everybody.
    #[must_use]
    pub fn are_rights_known(&self) -> bool {
        self.credentials.are_known()
    }

    /// Answers one request, and says what it was about. Errors are replies. Dropped half-way, a change has happened or not.
    pub async fn handle(&self, request: IncomingRequest, body: &mut dyn Content) -> (Response, Subject) {
        let IncomingRequest { method, target, headers, peer, is_encrypted, now_ms, id } = request;
        let mut subject = Subject::default();
        let refused = |error: S3Error, head: Option<&RequestHead>, subject: &mut Subject| {
            subject.error = Some(error.code.name());
            Response::error(error, head, &id)
        };
        let reply = match RequestHead::new(method, &target, headers) {
            Err(error) => refused(error, None, &mut subject),
            Ok(head) if sts::is_asked(&head) => {
                let from = From { peer, is_encrypted, now_ms };
                sts::handle(self, &head, from, (body, &id), &mut subject).await
            }
            Ok(mut head) => {
                let from = From { peer, is_encrypted, now_ms };
                let (reply, rules) = self.answer(&mut head, from, body, &mut subject).await;
                let reply = reply.unwrap_or_else(|error| refused(error, Some(&head), &mut subject));
                reply.with_all(cors_headers(&head, &rules))
            }
        };
        (reply.with("x-amz-request-id", id), subject)
    }

    /// The answer, and the rules by which pages of other origins are told it.
    async fn answer(
        &self,
        head: &mut RequestHead,
        from: From,
        body: &mut dyn Content,
        subject: &mut Subject,
    ) -> (Result<Response, S3Error>, Vec<CorsRule>) {
        if head.method == Method::Options {
            subject.operation = Some(Operation::Preflight);
            return (self.preflight(head).await, Vec::new());
        }
        let gate = authenticate(head, from.now_ms, &*self.credentials, &self.settings.domains);
        let access_key = named_access_key(head);
        let mechanism = gate.as_ref().ok().and_then(Authenticated::mechanism);
        if mechanism.is_some_and(|mechanism| mechanism.place == Place::Query)
            && let Err(error) = take_headers_from_query(head)
        {
            return (Err(error), Vec::new());
        }
        let route = match route(head, &self.settings.domains) {
            Ok(route) => route,
            Err(error) => return (Err(gate.err().unwrap_or(error)), Vec::new()),
        };
        *subject = Subject::of(&route, &gate, access_key);
        let is_of_a_page = head.header("origin").is_some() && !route.bucket.is_empty();
        let rules = if is_of_a_page { self.cors_rules(&route.bucket).await } else { None };
        let answer = async {
            let (who, grounds) = (gate?, Grounds::Apart);
            let mut call = Call { s3: self, head, route: &route, who: &who, grounds, from };
            call.grounds = call.authorize().await?;
            call.check_expected_owner().await?;
            match run(call, body).await {
                Err(error) if is_absence(&error, route.operation) => {
                    Err(call.told_of_absence(error, call.target()).await)
                }
                other => other,
            }
        };
        (answer.await, rules.unwrap_or_default())
    }

    /// A browser asks before it sends what a page of another origin wants. Nobody can sign that.
    async fn preflight(&self, head: &RequestHead) -> Result<Response, S3Error> {
        let route = route(head, &self.settings.domains)?;
        let rules = self.cors_rules(&route.bucket).await;
        Ok(Response::empty(200).with_all(preflight(head, rules.as_deref())?))
    }

    async fn cors_rules(&self, bucket: &str) -> Option<Vec<CorsRule>> {
        let bucket = self.service.buckets.get(bucket).await.ok()?;
        bucket.attributes.get(CORS).and_then(|text| decode_cors(text.as_bytes()).ok())
    }
}

/// Whether an operation fails because the object, or version, that its request names is not there. A copy names two, and has
/// seen to this itself.
const fn is_absence(error: &S3Error, operation: Operation) -> bool {
    let is_copy = matches!(operation, Operation::CopyObject | Operation::UploadPartCopy);
    !is_copy && matches!(error.code, Code::NoSuchKey | Code::NoSuchVersion)
}

/// What the edge knows of a request beside its head.
#[derive(Clone, Copy)]
pub(super) struct From {
    pub(super) peer: Option<IpAddr>,
    pub(super) is_encrypted: bool,
    pub(super) now_ms: u64,
}

impl From {
    /// Whether nobody on the way can read what is sent: TLS, or a way that does not leave the machine.
    pub(super) fn is_private(&self) -> bool {
        self.is_encrypted || self.peer.is_some_and(|peer| peer.is_loopback())
    }
}

/// A presigned request may carry in its query, under the signature, what otherwise stands in `x-amz-` headers.
///
/// # Errors
/// [`Code::InvalidRequest`]: one can stand in no header. Signature Version 2 would not tell it from several.
fn take_headers_from_query(head: &mut RequestHead) -> Result<(), S3Error> {
    let lower = head.query.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let taken: Vec<_> = lower
        .filter(|(name, _)| name.starts_with("x-amz-") && !OF_VERSION_4.contains(&name.as_str()))
        .filter(|(name, _)| head.header(name).is_none())
        // A key of a client does not stand in what servers on the way write down.
        .filter(|(name, _)| !name.ends_with("-customer-key"))
        .collect();
    if !taken.iter().all(|(name, value)| is_header(name, value)) {
        return Err(Code::InvalidRequest.because("A parameter of the query stands for a header that cannot be."));
    }
    head.headers.extend(taken);
    head.join_headers();
    Ok(())
}

async fn run(call: Call<'_>, body: &mut dyn Content) -> Result<Response, S3Error> {
    match call.route.operation {
        Operation::ListBuckets => bucket::list(call).await,
        Operation::CreateBucket => bucket::create(call, body).await,
        Operation::DeleteBucket => bucket::delete(call).await,
        Operation::HeadBucket => bucket::head(call).await,
        Operation::GetBucketAcl => bucket::acl(call).await,
        Operation::PutBucketAcl => bucket::put_acl(call, body).await,
        Operation::GetBucketLocation => bucket::location(call).await,
        Operation::GetBucketVersioning => versions::state(call).await,
        Operation::PutBucketVersioning => versions::set_state(call, body).await,
        Operation::GetBucketConfiguration(kind) => configuration::get(call, kind).await,
        Operation::PutBucketConfiguration(kind) => configuration::put(call, body, kind).await,
        Operation::DeleteBucketConfiguration(kind) => configuration::delete(call, kind).await,
        // They are answered before there is a call.
        Operation::Preflight | Operation::AssumeRole | Operation::GetCallerIdentity => {
            Err(Code::MethodNotAllowed.into())
        }
        Operation::ListObjects => list::objects(call).await,
        Operation::ListObjectsV2 => list::objects_v2(call).await,
        Operation::ListObjectVersions => versions::list(call).await,
        Operation::ListMultipartUploads => upload::list(call).await,
        Operation::DeleteObjects => delete::many(call, body).await,
        Operation::PostObject => post::object(call, body).await,
        Operation::GetObject => object::get(call).await,
        Operation::HeadObject => object::head(call).await,
        Operation::PutObject => object::put(call, body).await,
        Operation::CopyObject => copy::object(call).await,
        Operation::DeleteObject => delete::one(call).await,
        Operation::GetObjectAcl => object::acl(call).await,
        Operation::PutObjectAcl => object::put_acl(call, body).await,
        Operation::GetObjectAttributes => object::attributes(call).await,
        Operation::GetObjectTagging => tagging::get(call).await,
        Operation::PutObjectTagging => tagging::put(call, body).await,
        Operation::DeleteObjectTagging => tagging::delete(call).await,
        Operation::GetObjectRetention => lock::get_retention(call).await,
        Operation::PutObjectRetention => lock::put_retention(call, body).await,
        Operation::GetObjectLegalHold => lock::get_legal_hold(call).await,
        Operation::PutObjectLegalHold => lock::put_legal_hold(call, body).await,
        Operation::CreateMultipartUpload => upload::create(call).await,
        Operation::UploadPart => upload::part(call, body).await,
        Operation::UploadPartCopy => copy::part(call).await,
        Operation::CompleteMultipartUpload => upload::complete(call, body).await,
        Operation::AbortMultipartUpload => upload::abort(call).await,
        Operation::ListParts => upload::list_parts(call).await,
    }
}

/// Whether a document needs a digest of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Integrity {
    /// It does: `Content-MD5` or a checksum.
    Required,
    /// It does not.
    Optional,
}

impl Call<'_> {
    /// A client may say whose bucket it means.
    pub(super) async fn check_expected_owner(&self) -> Result<(), S3Error> {
        let Some(expected) = self.head.header("x-amz-expected-bucket-owner") else { return Ok(()) };
        let bucket = self.s3.service.buckets.get(&self.route.bucket).await?;
        if self.owner_of_bucket(&bucket) == expected { Ok(()) } else { Err(Code::AccessDenied.into()) }
    }

    /// The object that the request is about.
    pub(super) fn target(&self) -> Target<'_> {
        Target { bucket: &self.route.bucket, key: &self.route.key, version: self.route.version }
    }

    /// What the head promises about the body.
    pub(super) fn promises(&self, about: ChecksumAbout) -> Result<Promises, S3Error> {
        Promises::of(self.head, self.who, about)
    }

    /// Reads the body as a document. A request without a length has none.
    pub(super) async fn document(
        &self,
        body: &mut dyn Content,
        integrity: Integrity,
        about: ChecksumAbout,
    ) -> Result<Vec<u8>, S3Error> {
        let promises = match self.promises(about) {
            Err(error) if error.code == Code::MissingContentLength => return Ok(Vec::new()),
            promises => promises?,
        };
        if promises.bytes_max() > DOCUMENT_BYTES_MAX as u64 {
            return Err(Code::MaxMessageLengthExceeded.into());
        }
        if integrity == Integrity::Required && !promises.has_digest() {
            let message = "Missing required header for this request: Content-MD5 OR x-amz-checksum-*";
            return Err(Code::InvalidRequest.because(message));
        }
        let mut body = VerifiedBody::new(body, promises, Unasked::Nothing);
        let mut document = Vec::new();
        loop {
            match body.next().await {
                Ok(Some(bytes)) => document.extend_from_slice(&bytes),
                Ok(None) => return Ok(document),
                Err(error) => return Err(refusal(error, &body)),
            }
        }
    }
}

/// Why a request with a body fails: the body's own reason where the service only knows that it was bad.
pub(super) fn refusal(error: api::Error, body: &VerifiedBody<'_>) -> S3Error {
    match (error, body.failure()) {
        (api::Error::BadBody, Some(failure)) => failure,
        (error, _) => error.into(),
    }
}

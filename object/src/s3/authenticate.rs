//! The one gate in front of every operation: who sent this request, and how its body is bound to the signature.
//!
//! [`authenticate`] is the only maker of [`Authenticated`], and no operation runs without one. It takes the signature from
//! the `Authorization` header or from a presigned query, never from both. A request without either has no user: it may do
//! what everybody may (`access`).
//!
//! Forms of browsers are signed over their policy (`form`). Older clients sign requests and forms with Signature Version 2
//! (`version_2`).
//!
//! The region of a scope may be any: a client needs to change nothing but the address.

use core::fmt;

use ashlar_wire::secret::Secret;
use zeroize::Zeroizing;

use super::date::{amz_date, parse_amz_date, parse_http_date};
use super::encoding::{Query, from_hex, to_hex};
use super::error::{Code, S3Error};
use super::head::{Method, RequestHead};
use super::metadata::has_overrides;
use super::policy::Policy;
use super::session::Session;
use super::signature::{
    ALGORITHM, ChunkChain, SERVICE, STS, Scope, Signature, SigningKey, TERMINATOR, canonical_request, sha256,
    string_to_sign,
};

mod form;
mod version_2;

pub use form::authenticate_form;

/// Parameters of Signature Version 4 in a query, in lower case: they stand for no header.
pub(super) const OF_VERSION_4: [&str; 7] = [
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-signature",
    "x-amz-signedheaders",
];

/// How far the clocks of client and server may differ, in seconds.
pub const CLOCK_SKEW_SECONDS_MAX: u64 = 15 * 60;
/// How long a presigned request may be good, in seconds: a week.
pub const PRESIGNED_SECONDS_MAX: u64 = 7 * 24 * 3_600;

/// A secret access key. Wiped when dropped, printed as `***`.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<String>);

impl SecretKey {
    /// The secret of this text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text, for who has just been given the key.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Which access keys there are.
pub trait Credentials: Send + Sync + 'static {
    /// The secret of an access key and whose it is; nothing if nobody has it.
    fn lookup(&self, access_key: &str) -> Option<(SecretKey, User)>;

    /// The user of an id.
    fn user(&self, id: &str) -> Option<User>;

    /// The policy of a user, as it was put; nothing if the user has none.
    fn user_policy(&self, _id: &str) -> Option<String> {
        None
    }

    /// The secret under which temporary credentials are sealed; nothing while it is not known.
    fn session_secret(&self) -> Option<Secret> {
        None
    }

    /// Whether keys, users and buckets are known here as they are: a server that has just started may know them as they were. Until then
    /// everybody is told to come again: a key may be deleted, and clients do not try again after they hear that one, or a bucket, does
    /// not exist.
    fn are_known(&self) -> bool {
        true
    }
}

/// Somebody who has keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// What policies, grants and owners name: letters, digits, `-`, `_` and `.`.
    pub id: String,
    /// What people are shown.
    pub name: String,
    /// Whether this one may do everything.
    pub is_root: bool,
}

impl User {
    /// Longest id and longest name, bytes.
    pub const NAME_BYTES_MAX: usize = 64;

    /// The user whose everything is that nobody else has made.
    #[must_use]
    pub fn root() -> Self {
        Self { id: "ashlar".to_owned(), name: "ashlar".to_owned(), is_root: true }
    }

    /// Whether a user may have this id.
    #[must_use]
    pub fn is_id(id: &str) -> bool {
        let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        (1..=Self::NAME_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_kept)
    }
}

/// One pair of keys that may do everything.
#[derive(Debug, Clone)]
pub struct RootCredentials {
    access_key: String,
    secret: SecretKey,
}

impl RootCredentials {
    /// This pair.
    #[must_use]
    pub const fn new(access_key: String, secret: SecretKey) -> Self {
        Self { access_key, secret }
    }
}

impl Credentials for RootCredentials {
    fn lookup(&self, access_key: &str) -> Option<(SecretKey, User)> {
        (access_key == self.access_key).then(|| (self.secret.clone(), User::root()))
    }

    fn user(&self, id: &str) -> Option<User> {
        Some(User::root()).filter(|root| root.id == id)
    }
}

/// How the body is bound to the request's signature.
#[derive(Debug, Clone)]
pub enum Payload {
    /// Its SHA-256 is signed.
    Exact([u8; 32]),
    /// It is not bound.
    Unsigned,
    /// It comes in chunks, each of them signed.
    SignedChunks(ChunkChain, Trailers),
    /// It comes in chunks without signatures, with checksums behind the last one.
    UnsignedChunks,
}

/// Whether lines follow the last chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trailers {
    /// None do.
    Absent,
    /// Some do.
    Present,
}

/// Proof that a request was signed with a known secret, or that it does not say so.
#[derive(Debug, Clone)]
pub struct Authenticated {
    user: Option<User>,
    payload: Payload,
    session: Option<SessionBounds>,
    /// Nothing of a request that nobody has signed.
    mechanism: Option<Mechanism>,
}

/// How a request is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mechanism {
    pub(super) place: Place,
    pub(super) version: Version,
}

/// Where a signature stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the `Authorization` header.
    Header,
    /// In the query: the request is presigned.
    Query,
    /// In the fields of a form.
    Form,
}

/// Which of AWS's signatures it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// HMAC-SHA-1.
    Two,
    /// HMAC-SHA-256 under a key for one day.
    Four,
}

/// What bounds a session beside the rights of its user.
#[derive(Debug, Clone)]
struct SessionBounds {
    policy: Option<Policy>,
}

impl Authenticated {
    /// How it is signed; nothing if nobody has signed it.
    pub(super) const fn mechanism(&self) -> Option<Mechanism> {
        self.mechanism
    }

    /// Who sent it; nothing if nobody has signed it.
    #[must_use]
    pub const fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// Whether it was signed with temporary credentials.
    pub(super) const fn is_session(&self) -> bool {
        self.session.is_some()
    }

    /// The policy without whose word nothing is allowed, if temporary credentials have one.
    pub(super) fn session_policy(&self) -> Option<&Policy> {
        self.session.as_ref()?.policy.as_ref()
    }

    /// How its body is bound.
    #[must_use]
    pub const fn payload(&self) -> &Payload {
        &self.payload
    }
}

/// Characters of a named access key that are told.
const ACCESS_KEY_CHARS_MAX: usize = 128;

/// What a request says about its signature.
struct Claim<'a> {
    access_key: &'a str,
    scope: Scope,
    date: String,
    signed: Vec<&'a str>,
    signature: Signature,
    payload: &'a str,
    place: Place,
}

/// Checks the signature of a request at `now_ms` (milliseconds since 1970). `domains` are the names behind which a bucket may stand in
/// front of the host's name.
///
/// # Errors
/// As S3 answers: [`Code::AccessDenied`] too late, [`Code::InvalidAccessKeyId`], [`Code::ServiceUnavailable`] while keys are not known,
/// [`Code::SignatureDoesNotMatch`], [`Code::RequestTimeTooSkewed`], [`Code::InvalidToken`], [`Code::ExpiredToken`], and malformed claims.
pub fn authenticate(
    head: &RequestHead,
    now_ms: u64,
    credentials: &dyn Credentials,
    domains: &[String],
) -> Result<Authenticated, S3Error> {
    if !credentials.are_known() {
        return Err(Code::ServiceUnavailable.into());
    }
    let has = |names: [&str; 2]| names.iter().any(|name| head.query.has(name));
    let (is_presigned, is_presigned_by_2) =
        (has(["X-Amz-Algorithm", "X-Amz-Signature"]), has(["AWSAccessKeyId", "Signature"]));
    match head.header("authorization") {
        Some(_) if is_presigned || is_presigned_by_2 => {
            Err(Code::InvalidArgument.because("Only one auth mechanism allowed"))
        }
        Some(value) if value.starts_with(version_2::SCHEME) => {
            version_2::authenticate_header(head, value, now_ms, credentials, domains)
        }
        Some(value) => check(head, header_claim(head, value, now_ms, &SIGNED_FOR_S3)?, now_ms, credentials),
        None if is_presigned => check(head, query_claim(head, now_ms)?, now_ms, credentials),
        None if is_presigned_by_2 => version_2::authenticate_query(head, now_ms, credentials, domains),
        None => anonymous(head),
    }
}

/// The access key that a request names in its head, whether it has signed with that or not: what stands before the scope.
pub(super) fn named_access_key(head: &RequestHead) -> Option<String> {
    let key = match head.header("authorization") {
        Some(value) => match value.strip_prefix(version_2::SCHEME) {
            Some(parts) => parts.split(':').next(),
            None => value.split_once("Credential=").and_then(|(_, rest)| rest.split(['/', ',']).next()),
        },
        None => match head.query.get("X-Amz-Credential") {
            Some(credential) => credential.split('/').next(),
            None => head.query.get("AWSAccessKeyId"),
        },
    };
    let key = key.filter(|key| !key.is_empty())?;
    Some(key.chars().take(ACCESS_KEY_CHARS_MAX).collect())
}

/// Checks the signature of a request to the token service, whose body is bound by its digest. Gives the access key that signed, too.
///
/// # Errors
/// As [`authenticate`].
pub(super) fn authenticate_sts(
    head: &RequestHead,
    body: &[u8],
    now_ms: u64,
    credentials: &dyn Credentials,
) -> Result<(Authenticated, String), S3Error> {
    if !credentials.are_known() {
        return Err(Code::ServiceUnavailable.into());
    }
    let value = head.header("authorization").ok_or(Code::AccessDenied)?;
    let digest = to_hex(&sha256(body));
    let claim = header_claim(head, value, now_ms, &SignedFor { service: STS, payload: Some(&digest) })?;
    let access_key = claim.access_key.to_owned();
    Ok((check(head, claim, now_ms, credentials)?, access_key))
}

fn check(
    head: &RequestHead,
    claim: Claim<'_>,
    now_ms: u64,
    credentials: &dyn Credentials,
) -> Result<Authenticated, S3Error> {
    check_signed_headers(head, &claim.signed)?;
    let (secret, user, session) = holder(head, claim.access_key, now_ms, credentials)?;
    let key = SigningKey::derive(&secret.0, &claim.scope);
    let canonical = canonical_request(head, &claim.signed, claim.payload);
    let expected = key.sign(&string_to_sign(&claim.date, &claim.scope, &canonical));
    if !expected.is_same(&claim.signature) {
        return Err(Code::SignatureDoesNotMatch.into());
    }
    let payload = payload(claim.payload, key, claim.date, claim.scope, expected)?;
    let mechanism = Some(Mechanism { place: claim.place, version: Version::Four });
    Ok(Authenticated { user: Some(user), payload, session, mechanism })
}

/// The secret of an access key, whose it is, and what bounds it if the request has the token of temporary credentials.
fn holder(
    head: &RequestHead,
    access_key: &str,
    now_ms: u64,
    credentials: &dyn Credentials,
) -> Result<(SecretKey, User, Option<SessionBounds>), S3Error> {
    let in_query = || head.query.iter().find(|(name, _)| name.eq_ignore_ascii_case("x-amz-security-token"));
    match head.header("x-amz-security-token").or_else(|| in_query().map(|(_, token)| token)) {
        None => {
            let (secret, user) = credentials.lookup(access_key).ok_or(Code::InvalidAccessKeyId)?;
            Ok((secret, user, None))
        }
        Some(token) => of_session(access_key, token, now_ms, credentials),
    }
}

/// The secret and the user of temporary credentials, and what bounds them.
fn of_session(
    access_key: &str,
    token: &str,
    now_ms: u64,
    credentials: &dyn Credentials,
) -> Result<(SecretKey, User, Option<SessionBounds>), S3Error> {
    let secret = credentials.session_secret().ok_or(Code::ServiceUnavailable)?;
    // It ends with the key that it was made with.
    let (session, user) = Session::open(&secret, token, |maker| credentials.lookup(maker))?;
    if session.until_ms <= now_ms {
        return Err(Code::ExpiredToken.into());
    }
    if session.access_key != access_key {
        return Err(Code::InvalidAccessKeyId.into());
    }
    let policy = session.policy.as_ref().map(|text| Policy::decode_of_user(text.as_bytes()));
    // A server of another release may have taken it.
    let policy = policy.transpose().map_err(|_| Code::AccessDenied)?;
    Ok((session.secret_key(&secret), user, Some(SessionBounds { policy })))
}

/// A request that nobody has signed. Its body can be bound by a digest, and not by a signature.
fn anonymous(head: &RequestHead) -> Result<Authenticated, S3Error> {
    if has_overrides(&head.query) && matches!(head.method, Method::Get | Method::Head) {
        return Err(Code::InvalidRequest
            .because("Request specific response headers cannot be used for anonymous GET requests."));
    }
    Ok(Authenticated { user: None, payload: unsigned_payload(head)?, session: None, mechanism: None })
}

/// How the body is bound to a request of which no signature covers it.
fn unsigned_payload(head: &RequestHead) -> Result<Payload, S3Error> {
    Ok(match head.header("x-amz-content-sha256") {
        None | Some("UNSIGNED-PAYLOAD") => Payload::Unsigned,
        Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER") => Payload::UnsignedChunks,
        Some(text) => Payload::Exact(from_hex(text).ok_or(Code::AccessDenied)?),
    })
}

fn payload(text: &str, key: SigningKey, date: String, scope: Scope, seed: Signature) -> Result<Payload, S3Error> {
    let chain = |trailers| Payload::SignedChunks(ChunkChain::new(key, date, scope, seed), trailers);
    Ok(match text {
        "UNSIGNED-PAYLOAD" => Payload::Unsigned,
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => chain(Trailers::Absent),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => chain(Trailers::Present),
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Payload::UnsignedChunks,
        digest => Payload::Exact(from_hex(digest).ok_or(Code::InvalidArgument.because(
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
             STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.",
        ))?),
    })
}

/// What a signature in the header is for.
struct SignedFor<'a> {
    service: &'static str,
    /// What stands for the body, where no header says it.
    payload: Option<&'a str>,
}

const SIGNED_FOR_S3: SignedFor<'_> = SignedFor { service: SERVICE, payload: None };

fn header_claim<'a>(
    head: &'a RequestHead,
    value: &'a str,
    now_ms: u64,
    signed_for: &SignedFor<'a>,
) -> Result<Claim<'a>, S3Error> {
    let malformed = |why| Code::AuthorizationHeaderMalformed.because(why);
    let Some(parts) = value.strip_prefix(ALGORITHM) else {
        return Err(Code::InvalidRequest
            .because("The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256."));
    };
    let field = |name: &str| {
        let mut parts = parts.split(',').map(str::trim);
        parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
    };
    let missing = malformed("The authorization header needs Credential, SignedHeaders and Signature.");
    let credential = field("Credential").ok_or(missing)?;
    let signed = field("SignedHeaders").ok_or(missing)?;
    let signature = Signature::from_hex(field("Signature").ok_or(missing)?).ok_or(Code::SignatureDoesNotMatch)?;
    let seconds = signed_at(head)?;
    check_clock(seconds, now_ms)?;
    let date = amz_date(seconds * 1_000);
    let scope = scope(credential, &date, signed_for.service).map_err(malformed)?;
    let payload = signed_for.payload.or_else(|| head.header("x-amz-content-sha256")).ok_or_else(|| {
        Code::InvalidRequest.because("Missing required header for this request: x-amz-content-sha256")
    })?;
    Ok(Claim {
        access_key: access_key(credential),
        scope,
        date,
        signed: signed.split(';').collect(),
        signature,
        payload,
        place: Place::Header,
    })
}

/// When the headers say that a request was signed, in seconds since 1970.
fn signed_at(head: &RequestHead) -> Result<u64, S3Error> {
    let seconds = match (head.header("x-amz-date"), head.header("date")) {
        (Some(date), _) => parse_amz_date(date).or_else(|| parse_http_date(date)),
        (None, Some(date)) => parse_http_date(date).or_else(|| parse_amz_date(date)),
        (None, None) => None,
    };
    seconds.ok_or(Code::AccessDenied.because("AWS authentication requires a valid Date or x-amz-date header"))
}

fn check_clock(signed_at_seconds: u64, now_ms: u64) -> Result<(), S3Error> {
    let is_near = signed_at_seconds.abs_diff(now_ms / 1_000) <= CLOCK_SKEW_SECONDS_MAX;
    is_near.then_some(()).ok_or_else(|| Code::RequestTimeTooSkewed.into())
}

fn query_claim(head: &RequestHead, now_ms: u64) -> Result<Claim<'_>, S3Error> {
    let malformed = |why| Code::AuthorizationQueryParametersError.because(why);
    let query: &Query = &head.query;
    let field = |name: &str| query.get(name).filter(|value| !value.is_empty());
    let missing = malformed(
        "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, \
         X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
    );
    if field("X-Amz-Algorithm").ok_or(missing)? != ALGORITHM {
        return Err(malformed("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
    }
    let credential = field("X-Amz-Credential").ok_or(missing)?;
    let signed = field("X-Amz-SignedHeaders").ok_or(missing)?;
    let signature = field("X-Amz-Signature").ok_or(missing)?;
    let signature = Signature::from_hex(signature).ok_or(Code::SignatureDoesNotMatch)?;
    let date = field("X-Amz-Date").ok_or(missing)?;
    let begin = parse_amz_date(date).ok_or(malformed("X-Amz-Date must be in the ISO8601 Long Format"))?;
    let span: u64 =
        field("X-Amz-Expires").ok_or(missing)?.parse().map_err(|_| malformed("X-Amz-Expires should be a number"))?;
    if span > PRESIGNED_SECONDS_MAX {
        return Err(malformed("X-Amz-Expires must be less than a week (in seconds)"));
    }
    let now = now_ms / 1_000;
    if begin > now + CLOCK_SKEW_SECONDS_MAX {
        return Err(Code::AccessDenied.because("Request is not valid yet"));
    }
    // A span of nothing is over when it begins, on every clock.
    if span == 0 || now > begin + span {
        return Err(Code::AccessDenied.because("Request has expired"));
    }
    let scope = scope(credential, date, SERVICE).map_err(malformed)?;
    let payload = head.header("x-amz-content-sha256").or_else(|| field("X-Amz-Content-Sha256"));
    let payload = payload.unwrap_or("UNSIGNED-PAYLOAD");
    let signed = signed.split(';').collect();
    let (access_key, date) = (access_key(credential), date.to_owned());
    Ok(Claim { access_key, scope, date, signed, signature, payload, place: Place::Query })
}

/// The part of a credential before its scope. An access key may hold slashes.
fn access_key(credential: &str) -> &str {
    credential.rsplitn(5, '/').nth(4).unwrap_or_default()
}

fn scope(credential: &str, date: &str, service: &'static str) -> Result<Scope, &'static str> {
    let parts: Vec<&str> = credential.rsplitn(5, '/').collect();
    let (region, day) = match *parts.as_slice() {
        [TERMINATOR, named, region, day, _] if named == service => (region, day),
        _ => {
            return Err(
                "The credential must be KEY/YYYYMMDD/REGION/SERVICE/aws4_request, of the service that is asked.",
            );
        }
    };
    if !date.starts_with(day) || day.len() != 8 {
        return Err("The date of the credential is not the date of the request.");
    }
    if region.is_empty() {
        return Err("The region of the credential is empty.");
    }
    Ok(Scope { day: day.to_owned(), region: region.to_owned(), service })
}

/// The host and all headers that S3 acts on are under the signature, in the order in which it has them.
fn check_signed_headers(head: &RequestHead, signed: &[&str]) -> Result<(), S3Error> {
    let is_signed = |name: &str| signed.contains(&name);
    let must_be = |name: &str| name == "host" || name.starts_with("x-amz-") && name != "x-amz-content-sha256";
    let unsigned = head.headers.iter().any(|(name, _)| must_be(name) && !is_signed(name));
    if unsigned || !is_signed("host") {
        return Err(Code::AccessDenied.because("There were headers present in the request which were not signed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! The token service of AWS, at the same address: temporary credentials for who has a key, and who a key belongs to.
//!
//! A request is a form in the body of a POST to `/`, signed for the service `sts`. `AssumeRole` gives a session of whoever has signed; a role
//! that it names counts for nothing, as with MinIO: what narrows a session is its policy.
//!
//! Deliberately absent: `AssumeRoleWithWebIdentity` and its kind.

use super::authenticate::authenticate_sts;
use super::date::iso8601;
use super::encoding::Query;
use super::error::{Code, S3Error};
use super::head::{Method, RequestHead};
use super::policy::Policy;
use super::response::Response;
use super::route::Operation;
use super::service::{From, S3Service};
use super::session::{POLICY_BYTES_MAX, SECONDS_DEFAULT, SECONDS_MAX, SECONDS_MIN, Session};
use super::subject::Subject;
use super::xml::XmlWriter;
use crate::api::Content;

const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
const FORM: &str = "application/x-www-form-urlencoded";
/// Longest form, bytes: a policy of which each character takes three.
const FORM_BYTES_MAX: usize = 16 << 10;
/// Longest name of a session.
const NAME_BYTES_MAX: usize = 64;

/// Whether a request is one to this service.
pub(super) fn is_asked(head: &RequestHead) -> bool {
    let is_form = head.header("content-type").is_some_and(|kind| kind.starts_with(FORM));
    head.method == Method::Post && head.path == "/" && is_form
}

/// Answers one request. Errors are replies. Nothing is changed by any.
pub(super) async fn handle(
    s3: &S3Service,
    head: &RequestHead,
    from: From,
    (body, id): (&mut dyn Content, &str),
    subject: &mut Subject,
) -> Response {
    match answer(s3, head, from, body, subject).await {
        Ok((name, result)) => {
            let mut xml = XmlWriter::within(name.0, NAMESPACE);
            xml.element(name.1, result);
            xml.element("ResponseMetadata", |xml| xml.text("RequestId", id));
            Response::xml(xml)
        }
        Err(error) => {
            subject.error = Some(name_of(error.code));
            let mut xml = XmlWriter::within("ErrorResponse", NAMESPACE);
            xml.element("Error", |xml| {
                xml.text("Type", if error.code.status() < 500 { "Sender" } else { "Receiver" });
                xml.text("Code", name_of(error.code));
                xml.text("Message", error.message);
            });
            xml.text("RequestId", id);
            let status = if error.code == Code::MethodNotAllowed { 400 } else { error.code.status() };
            Response { status, ..Response::xml(xml) }
        }
    }
}

/// What a form may say. Anything else could be meant to narrow the session, and is refused rather than passed over.
const FIELDS: [&str; 7] =
    ["Action", "Version", "RoleArn", "RoleSessionName", "DurationSeconds", "Policy", "ExternalId"];
const VERSION: &str = "2011-06-15";

/// Refuses what is not known of a form.
fn check_fields(form: &Query) -> Result<(), S3Error> {
    if form.get("Version").is_some_and(|version| version != VERSION) {
        return Err(Code::InvalidArgument.because("The version of this service is 2011-06-15"));
    }
    if form.iter().any(|(name, _)| !FIELDS.contains(&name)) {
        return Err(Code::InvalidArgument.because(
            "A session is asked for by RoleArn, RoleSessionName, DurationSeconds, Policy and ExternalId: nothing else is supported here",
        ));
    }
    Ok(())
}

/// What this service calls an error.
const fn name_of(code: Code) -> &'static str {
    match code {
        Code::InvalidAccessKeyId => "InvalidClientTokenId",
        Code::InvalidArgument => "ValidationError",
        Code::MalformedPolicy => "MalformedPolicyDocument",
        Code::MethodNotAllowed => "InvalidAction",
        code => code.name(),
    }
}

/// The names of the document and of what it says, and what writes that.
type Answer = ((&'static str, &'static str), Box<dyn FnOnce(&mut XmlWriter) + Send>);

async fn answer(
    s3: &S3Service,
    head: &RequestHead,
    from: From,
    body: &mut dyn Content,
    subject: &mut Subject,
) -> Result<Answer, S3Error> {
    let mut form = Vec::new();
    while let Some(bytes) = body.next().await? {
        form.extend_from_slice(&bytes);
        if form.len() > FORM_BYTES_MAX {
            return Err(Code::MaxMessageLengthExceeded.into());
        }
    }
    let (who, access_key) = authenticate_sts(head, &form, from.now_ms, &*s3.credentials)?;
    let user = who.user().ok_or(Code::AccessDenied)?;
    subject.user = Some(user.id.clone());
    let malformed = Code::InvalidArgument.because("The form cannot be read");
    // Blanks are written as plus signs in forms.
    let text = String::from_utf8(form).map_err(|_| malformed)?.replace('+', "%20");
    let form = Query::decode(&text).map_err(|_| malformed)?;
    match form.get("Action") {
        Some("AssumeRole") => {
            subject.operation = Some(Operation::AssumeRole);
            check_fields(&form)?;
            if !from.is_private() {
                return Err(
                    Code::InvalidRequest.because("A session's secret is told over TLS only, or on this machine")
                );
            }
            if who.is_session() {
                return Err(Code::AccessDenied.because("A session cannot make another one"));
            }
            assume_role(s3, &access_key, &form, from.now_ms)
        }
        Some("GetCallerIdentity") => {
            subject.operation = Some(Operation::GetCallerIdentity);
            let id = user.id.clone();
            let result = move |xml: &mut XmlWriter| {
                xml.text("Arn", &format!("arn:aws:iam:::user/{id}"));
                xml.text("UserId", &id);
                xml.text("Account", &id);
            };
            Ok((("GetCallerIdentityResponse", "GetCallerIdentityResult"), Box::new(result)))
        }
        _ => Err(Code::MethodNotAllowed.because("There are AssumeRole and GetCallerIdentity here")),
    }
}

/// Makes a session of who has signed with the key `maker`.
fn assume_role(s3: &S3Service, maker: &str, form: &Query, now_ms: u64) -> Result<Answer, S3Error> {
    let seconds = form.get("DurationSeconds").map_or(Ok(SECONDS_DEFAULT), str::parse);
    let seconds = seconds.ok().filter(|seconds| (SECONDS_MIN..=SECONDS_MAX).contains(seconds));
    let seconds = seconds.ok_or(Code::InvalidArgument.because("DurationSeconds is a number from 900 to 604800"))?;
    let policy = form.get("Policy");
    if let Some(policy) = policy {
        if policy.is_empty() {
            return Err(
                Code::InvalidArgument.because("The policy of a session is empty: leave it out, or say what it may do")
            );
        }
        if policy.len() > POLICY_BYTES_MAX {
            return Err(Code::MalformedPolicy.because("The policy of a session has 2,048 bytes at most"));
        }
        Policy::decode_of_user(policy.as_bytes())?.check_of_user()?;
    }
    let name = form.get("RoleSessionName").unwrap_or("session");
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_=,.@+-".contains(&byte);
    if !(2..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_allowed) {
        return Err(Code::InvalidArgument.because("RoleSessionName is 2 to 64 characters of A-Z, a-z, 0-9 and _=,.@+-"));
    }
    let secret = s3.credentials.session_secret().ok_or(Code::ServiceUnavailable)?;
    let until_ms = now_ms + seconds * 1_000;
    let session = Session::new(&s3.keys.draw(), maker, until_ms, policy.map(str::to_owned));
    let (of_maker, _) = s3.credentials.lookup(maker).ok_or(Code::InvalidAccessKeyId)?;
    let (token, key) = (session.token(&secret, &of_maker), session.secret_key(&secret));
    let name = name.to_owned();
    let result = move |xml: &mut XmlWriter| {
        xml.element("Credentials", |xml| {
            xml.text("AccessKeyId", &session.access_key);
            xml.text("SecretAccessKey", key.text());
            xml.text("SessionToken", &token);
            xml.text("Expiration", &iso8601(until_ms));
        });
        xml.element("AssumedRoleUser", |xml| {
            xml.text("Arn", &format!("arn:aws:sts:::assumed-role/session/{name}"));
            xml.text("AssumedRoleId", &format!("{}:{name}", session.access_key));
        });
    };
    Ok((("AssumeRoleResponse", "AssumeRoleResult"), Box::new(result)))
}

//! Requests signed with AWS Signature Version 2: an HMAC-SHA-1 under the secret key over some lines of the head.
//!
//! AWS has replaced it by Version 4, which signs all of the query and the body. It is taken since common SDKs still presign URLs with
//! it unless they are told otherwise. What it does not sign cannot be trusted: of the query it signs the parameters of [`SIGNED`], and a
//! request with others is refused unless they choose no more than the page of a list ([`UNSIGNED`]). Nor does it escape what it signs:
//! a value in which a further header or parameter could be hidden is refused, so that no other request has the same signature.
//!
//! Follows AWS's published description. Its examples are golden vectors in the tests.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use subtle::ConstantTimeEq as _;

use super::{
    Authenticated, Credentials, Mechanism, OF_VERSION_4, Place, SecretKey, Version, check_clock, holder, signed_at,
    unsigned_payload,
};
use crate::s3::encoding::{encode_path, from_base64};
use crate::s3::error::{Code, S3Error};
use crate::s3::head::{RequestHead, is_header};
use crate::s3::route::bucket_of_host;

/// What the value of an `Authorization` header begins with.
pub(super) const SCHEME: &str = "AWS ";

/// Parameters of the query that are signed, in the order in which they are.
const SIGNED: [&str; 33] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Parameters that need no signature: they choose a page of a list, are of the signature itself, or say nothing.
const UNSIGNED: [&str; 21] = [
    "AWSAccessKeyId",
    "Expires",
    "Signature",
    "content-md5",
    "content-type",
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "prefix",
    "start-after",
    "upload-id-marker",
    "version-id-marker",
    "x-id",
];

/// What a request says about its signature.
struct Claim<'a> {
    access_key: &'a str,
    signature: &'a str,
    /// What stands where the date is signed.
    date: &'a str,
    place: Place,
}

/// Checks the signature in the value of an `Authorization` header.
///
/// # Errors
/// As [`super::authenticate`].
pub(super) fn authenticate_header(
    head: &RequestHead,
    value: &str,
    now_ms: u64,
    credentials: &dyn Credentials,
    domains: &[String],
) -> Result<Authenticated, S3Error> {
    let parts = value.strip_prefix(SCHEME).and_then(|parts| parts.trim().rsplit_once(':'));
    let (access_key, signature) = parts.ok_or(
        Code::InvalidArgument.because("AWS authorization header is invalid. Expected AwsAccessKeyId:signature"),
    )?;
    check_clock(signed_at(head)?, now_ms)?;
    let date = if head.header("x-amz-date").is_some() { "" } else { head.header("date").unwrap_or_default() };
    let claim = Claim { access_key, signature, date, place: Place::Header };
    check(head, &claim, now_ms, credentials, domains)
}

/// Checks the signature in the query of a presigned request.
///
/// # Errors
/// As [`super::authenticate`].
pub(super) fn authenticate_query(
    head: &RequestHead,
    now_ms: u64,
    credentials: &dyn Credentials,
    domains: &[String],
) -> Result<Authenticated, S3Error> {
    let field = |name: &str| head.query.get(name).filter(|value| !value.is_empty());
    let missing = Code::AccessDenied
        .because("Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters");
    let access_key = field("AWSAccessKeyId").ok_or(missing)?;
    let signature = field("Signature").ok_or(missing)?;
    let date = field("Expires").ok_or(missing)?;
    let until: u64 = date.parse().map_err(|_| {
        Code::AccessDenied.because("Invalid date (should be seconds since epoch) in the Expires parameter")
    })?;
    if now_ms / 1_000 > until {
        return Err(Code::AccessDenied.because("Request has expired"));
    }
    let claim = Claim { access_key, signature, date, place: Place::Query };
    check(head, &claim, now_ms, credentials, domains)
}

fn check(
    head: &RequestHead,
    claim: &Claim<'_>,
    now_ms: u64,
    credentials: &dyn Credentials,
    domains: &[String],
) -> Result<Authenticated, S3Error> {
    let is_covered = |name: &str| {
        let is_header = claim.place == Place::Query && name.to_ascii_lowercase().starts_with("x-amz-");
        is_header || SIGNED.contains(&name) || UNSIGNED.contains(&name)
    };
    if head.query.iter().any(|(name, _)| !is_covered(name)) {
        return Err(Code::InvalidRequest
            .because("Signature Version 2 does not sign a parameter of this query. Please use AWS4-HMAC-SHA256."));
    }
    if head.query.iter().any(|(name, value)| could_be_another(name, value)) {
        return Err(Code::InvalidRequest.because(
            "A parameter of this query could be several under Signature Version 2. Please use AWS4-HMAC-SHA256.",
        ));
    }
    let (secret, user, session) = holder(head, claim.access_key, now_ms, credentials)?;
    // The path is signed as it is sent. Some sign it with all that can be escaped, and a bucket with a slash behind its name.
    let path = encode_path(&head.path);
    let is_bucket = path.len() > 1 && !path[1..].contains('/');
    let with_slash = is_bucket.then(|| format!("{path}/"));
    let mut paths = [Some(&path), head.sent_path.as_ref(), with_slash.as_ref()].into_iter().flatten();
    if !paths.any(|path| is_signature(&secret, &string_to_sign(head, claim, domains, path), claim.signature)) {
        return Err(Code::SignatureDoesNotMatch.into());
    }
    let mechanism = Some(Mechanism { place: claim.place, version: Version::Two });
    Ok(Authenticated { user: Some(user), payload: unsigned_payload(head)?, session, mechanism })
}

/// Whether what is signed of a parameter is also signed of a request that asks for something else.
fn could_be_another(name: &str, value: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("x-amz-") {
        // It stands for a header: one that can be, and that is not passed over.
        return !is_header(&lower, value) || OF_VERSION_4.contains(&lower.as_str());
    }
    let mut hidden = value.split('&').skip(1).filter_map(|piece| piece.split('=').next());
    SIGNED.contains(&name) && hidden.any(|name| SIGNED.contains(&name))
}

/// Whether a text in Base64 is the HMAC-SHA-1 of a message.
pub(super) fn is_signature(secret: &SecretKey, message: &str, text: &str) -> bool {
    let mut mac = Hmac::<Sha1>::new_from_slice(secret.0.as_bytes()).expect("HMAC takes keys of every length");
    mac.update(message.as_bytes());
    let expected = mac.finalize().into_bytes();
    from_base64(text).is_some_and(|signature| signature.ct_eq(&expected[..]).into())
}

/// What is signed of a request with this encoded path.
fn string_to_sign(head: &RequestHead, claim: &Claim<'_>, domains: &[String], path: &str) -> String {
    let header = |name: &str| head.header(name).unwrap_or_default().trim();
    let mut text = String::new();
    for line in [head.method.name(), header("content-md5"), header("content-type"), claim.date] {
        text.push_str(line);
        text.push('\n');
    }
    for (name, values) in amz_headers(head, claim.place) {
        text.push_str(&name);
        text.push(':');
        text.push_str(&values.join(","));
        text.push('\n');
    }
    if let Some(bucket) = bucket_of_host(header("host"), domains) {
        text.push('/');
        text.push_str(bucket);
    }
    text.push_str(path);
    let mut parameters: Vec<_> = head.query.iter().filter(|(name, _)| SIGNED.contains(name)).collect();
    parameters.sort_unstable();
    for (index, (name, value)) in parameters.into_iter().enumerate() {
        text.push(if index == 0 { '?' } else { '&' });
        text.push_str(name);
        if !value.is_empty() {
            text.push('=');
            text.push_str(value);
        }
    }
    text
}

/// Names and values of `x-amz-` headers, sorted. A presigned query may hold some, where no header of that name is there, and then as
/// they will be headers.
fn amz_headers(head: &RequestHead, place: Place) -> BTreeMap<Cow<'_, str>, Vec<&str>> {
    let mut headers: BTreeMap<Cow<'_, str>, Vec<&str>> = BTreeMap::new();
    for (name, value) in head.headers.iter().filter(|(name, _)| name.starts_with("x-amz-")) {
        headers.entry(name.into()).or_default().push(value.trim());
    }
    if place == Place::Query {
        let in_query = head.query.iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
        for (name, value) in in_query.filter(|(name, _)| name.starts_with("x-amz-") && head.header(name).is_none()) {
            headers.entry(name.into()).or_default().push(value.trim());
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::authenticate::{CLOCK_SKEW_SECONDS_MAX, Payload, RootCredentials, authenticate};
    use crate::s3::encoding::{encode_component, to_base64};
    use crate::s3::head::Method;

    const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
    /// 2007-03-27T19:36:42Z.
    const NOW: u64 = 1_175_024_202_000;
    const HOST: (&str, &str) = ("host", "johnsmith.s3.amazonaws.com");
    const DATE: (&str, &str) = ("date", "Tue, 27 Mar 2007 19:36:42 +0000");

    fn asked(method: &str, target: &str, headers: &[(&str, &str)], now_ms: u64) -> Result<Authenticated, S3Error> {
        let secret = SecretKey::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned());
        let credentials = RootCredentials::new(KEY.to_owned(), secret);
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let head = RequestHead::new(Method::named(method), target, headers).expect("a head");
        authenticate(&head, now_ms, &credentials, &["s3.amazonaws.com".to_owned()])
    }

    fn code(method: &str, target: &str, headers: &[(&str, &str)], now_ms: u64) -> Result<(), Code> {
        asked(method, target, headers, now_ms).map(|_| ()).map_err(|error| error.code)
    }

    fn authorization(signature: &str) -> String {
        format!("AWS {KEY}:{signature}")
    }

    #[test]
    fn the_examples_of_the_description() {
        type Example = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);
        let table: [Example; 5] = [
            ("GET", "/photos/puppy.jpg", &[HOST, DATE], "bWq2s1WEIj+Ydj0vQ697zp+IXMU="),
            (
                "PUT",
                "/photos/puppy.jpg",
                &[HOST, ("content-type", "image/jpeg"), ("date", "Tue, 27 Mar 2007 21:15:45 +0000")],
                "MyyxeRY7whkBe+bq8fHCL/2kKUg=",
            ),
            (
                "GET",
                "/?prefix=photos&max-keys=50&marker=puppy",
                &[HOST, ("date", "Tue, 27 Mar 2007 19:42:41 +0000")],
                "htDYFYduRNen8P9ZfE/s9SuKy0U=",
            ),
            ("GET", "/?acl", &[HOST, ("date", "Tue, 27 Mar 2007 19:44:46 +0000")], "c2WLPFtWHVgbEmeEG93a4cG37dM="),
            (
                "PUT",
                "/static.johnsmith.net/db-backup.dat.gz",
                &[
                    ("host", "s3.amazonaws.com"),
                    ("date", "Tue, 27 Mar 2007 21:06:08 +0000"),
                    ("x-amz-acl", "public-read"),
                    ("content-type", "application/x-download"),
                    ("content-md5", "4gJE4saaMU4BqNR0kLY+lw=="),
                    ("x-amz-meta-reviewedby", "joe@johnsmith.net"),
                    ("x-amz-meta-reviewedby", "jane@johnsmith.net"),
                    ("x-amz-meta-filechecksum", "0x02661779"),
                    ("x-amz-meta-checksumalgorithm", "crc32"),
                ],
                "ilyl83RwaSoYIEdixDQcA4OnAnc=",
            ),
        ];
        for (method, target, headers, signature) in table {
            let now = if target.contains('.') { NOW + 6_000_000 } else { NOW };
            let now = if headers.contains(&DATE) { NOW } else { now };
            let authorization = authorization(signature);
            let signed = [headers, &[("authorization", &*authorization)]].concat();
            let who = asked(method, target, &signed, now).expect("a right signature");
            assert!(who.user().is_some() && matches!(who.payload(), Payload::Unsigned), "{target}");
            assert_eq!(who.mechanism, Some(Mechanism { place: Place::Header, version: Version::Two }));
            // Another method, header, or path is another request.
            assert_eq!(code("DELETE", target, &signed, now), Err(Code::SignatureDoesNotMatch), "{target}");
            assert_eq!(code(method, &format!("/x{target}"), &signed, now), Err(Code::SignatureDoesNotMatch));
            let granted = [&*signed, &[("x-amz-grant-read", "id=x")]].concat();
            assert_eq!(code(method, target, &granted, now), Err(Code::SignatureDoesNotMatch), "{target}");
        }
    }

    /// What a presigned request for a target answers whose signature is over these lines behind the date.
    fn presigned(target: &str, lines: &str) -> Result<(), Code> {
        let mut mac = Hmac::<Sha1>::new_from_slice(b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY").expect("a key");
        mac.update(format!("GET\n\n\n1175139620\n{lines}").as_bytes());
        let signature = encode_component(&to_base64(&mac.finalize().into_bytes()));
        let join = if target.contains('?') { '&' } else { '?' };
        let target = format!("{target}{join}AWSAccessKeyId={KEY}&Expires=1175139620&Signature={signature}");
        code("GET", &target, &[("host", "h")], NOW)
    }

    #[test]
    fn a_path_is_signed_as_it_is_sent_or_escaped_and_a_bucket_with_a_slash() {
        for (asked, path, expected) in [
            ("/bucket", "/bucket", Ok(())),
            ("/bucket", "/bucket/", Ok(())),
            ("/bucket/", "/bucket/", Ok(())),
            ("/bucket/", "/bucket", Err(Code::SignatureDoesNotMatch)),
            ("/bucket/key", "/bucket/key/", Err(Code::SignatureDoesNotMatch)),
            ("/", "//", Err(Code::SignatureDoesNotMatch)),
            ("/b/a+(1)%7e:%c3%bc", "/b/a+(1)%7e:%c3%bc", Ok(())),
            ("/b/a+(1)%7e:%c3%bc", "/b/a%2B%281%29~%3A%C3%BC", Ok(())),
            ("/b/a+(1)", "/b/a%2b(1)", Err(Code::SignatureDoesNotMatch)),
        ] {
            assert_eq!(presigned(asked, path), expected, "{asked} {path}");
        }
    }

    #[test]
    fn nothing_that_is_signed_can_be_hidden_in_something_else() {
        let lock = "x-amz-meta-a:1\nx-amz-object-lock-mode:COMPLIANCE\n/b/k";
        assert_eq!(presigned("/b/k?x-amz-object-lock-mode=COMPLIANCE&x-amz-meta-a=1", lock), Ok(()));
        let reply = "/b/k?response-content-type=a&versionId=null";
        assert_eq!(presigned("/b/k?versionId=null&response-content-type=a", reply), Ok(()));
        for (target, lines) in [
            ("/b/k?x-amz-meta-a=1%0Ax-amz-object-lock-mode:COMPLIANCE", lock),
            ("/b/k?x-amz-meta-a%3A1%0Ax-amz-object-lock-mode=COMPLIANCE", lock),
            ("/b/k?response-content-type=a%26versionId%3Dnull", reply),
            ("/b/k?x-amz-content-sha256=00", "x-amz-content-sha256:00\n/b/k"),
        ] {
            assert_eq!(presigned(target, lines), Err(Code::InvalidRequest), "{target}");
        }
        let name = "/b/k?response-content-disposition=a&b=c";
        assert_eq!(presigned("/b/k?response-content-disposition=a%26b%3Dc", name), Ok(()));
    }

    #[test]
    fn a_header_with_faults() {
        let right = authorization("bWq2s1WEIj+Ydj0vQ697zp+IXMU=");
        let get = |target: &str, authorization: &str, date: (&str, &str), now: u64| {
            code("GET", target, &[HOST, date, ("authorization", authorization)], now)
        };
        let target = "/photos/puppy.jpg";
        assert_eq!(get(target, &right, DATE, NOW), Ok(()));
        let skew = CLOCK_SKEW_SECONDS_MAX * 1_000;
        assert_eq!(get(target, &right, DATE, NOW + skew), Ok(()));
        assert_eq!(get(target, &right, DATE, NOW + skew + 1_000), Err(Code::RequestTimeTooSkewed));
        assert_eq!(get(target, &right, ("accept", "*"), NOW), Err(Code::AccessDenied));
        assert_eq!(get(target, "AWS", DATE, NOW), Err(Code::InvalidRequest));
        assert_eq!(get(target, "AWS x", DATE, NOW), Err(Code::InvalidArgument));
        assert_eq!(get(target, &right.replace(KEY, "x"), DATE, NOW), Err(Code::InvalidAccessKeyId));
        for signature in ["", "bWq2", "aWq2s1WEIj+Ydj0vQ697zp+IXMU="] {
            assert_eq!(get(target, &authorization(signature), DATE, NOW), Err(Code::SignatureDoesNotMatch));
        }
        // A parameter that is not signed may choose a page, and nothing else.
        assert_eq!(get("/photos/puppy.jpg?prefix=a&x-id=GetObject", &right, DATE, NOW), Ok(()));
        assert_eq!(get("/photos/puppy.jpg?versionId=null", &right, DATE, NOW), Err(Code::SignatureDoesNotMatch));
        for unsigned in ["retention", "publicAccessBlock", "attributes", "x-amz-acl=public-read", "any=thing"] {
            assert_eq!(
                get(&format!("{target}?{unsigned}"), &right, DATE, NOW),
                Err(Code::InvalidRequest),
                "{unsigned}"
            );
        }
        let both = format!("{target}?AWSAccessKeyId={KEY}&Expires=1175139620&Signature=x");
        assert_eq!(get(&both, &right, DATE, NOW), Err(Code::InvalidArgument));
    }

    #[test]
    fn a_presigned_query() {
        let query = |signature: &str, rest: &str| {
            format!("/photos/puppy.jpg?AWSAccessKeyId={KEY}&Expires=1175139620&Signature={signature}{rest}")
        };
        let (right, until) = ("NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D", 1_175_139_620_000);
        let get = |target: &str, now: u64| code("GET", target, &[HOST], now);
        assert_eq!(get(&query(right, ""), NOW), Ok(()));
        assert_eq!(get(&query(right, ""), until), Ok(()));
        assert_eq!(get(&query(right, ""), until + 1_000), Err(Code::AccessDenied));
        let who = asked("GET", &query(right, ""), &[HOST], NOW).expect("a right signature");
        assert_eq!(who.mechanism, Some(Mechanism { place: Place::Query, version: Version::Two }));
        let later = query(right, "").replace("1175139620", "1175139621");
        assert_eq!(get(&later, NOW), Err(Code::SignatureDoesNotMatch));
        assert_eq!(code("PUT", &query(right, ""), &[HOST], NOW), Err(Code::SignatureDoesNotMatch));
        // What stands for a header in the query is signed as one.
        assert_eq!(get(&query(right, "&x-amz-acl=public-read"), NOW), Err(Code::SignatureDoesNotMatch));
        assert_eq!(get(&query(right, "&X-Amz-Acl=public-read"), NOW), Err(Code::SignatureDoesNotMatch));
        assert_eq!(get(&query(right, "&response-content-type=a/b"), NOW), Err(Code::SignatureDoesNotMatch));
        assert_eq!(get(&query(right, "&legal-hold"), NOW), Err(Code::InvalidRequest));
        for missing in ["AWSAccessKeyId", "Expires", "Signature"] {
            let without = query(right, "").replace(missing, "prefix");
            assert_eq!(get(&without, NOW), Err(Code::AccessDenied), "{missing}");
        }
        assert_eq!(get(&query(right, "").replace("1175139620", "soon"), NOW), Err(Code::AccessDenied));
    }

    #[test]
    fn parameters_are_signed_by_name_with_their_decoded_values() {
        let head =
            RequestHead::new(Method::Get, "/b/a%20b?versionId=1&acl&response-expires=a%2Fb&prefix=x", Vec::new());
        let claim = Claim { access_key: "", signature: "", date: "7", place: Place::Query };
        let text = string_to_sign(&head.expect("a head"), &claim, &[], "/b/a%20b");
        assert_eq!(text, "GET\n\n\n7\n/b/a%20b?acl&response-expires=a/b&versionId=1");
        let head = RequestHead::new(
            Method::Put,
            "/b/k?x-amz-meta-a=q&X-Amz-Meta-B=r",
            vec![("x-amz-meta-a".to_owned(), " h ".to_owned())],
        );
        let text = string_to_sign(&head.expect("a head"), &claim, &[], "/b/k");
        assert_eq!(text, "PUT\n\n\n7\nx-amz-meta-a:h\nx-amz-meta-b:r\n/b/k");
        assert!(SIGNED.is_sorted());
    }
}

//! The gate: what passes, and with which error everything else is refused.

use super::*;
use crate::s3::encoding::encode_component;
use crate::s3::head::Method;
use crate::s3::tests::NotKnownYet;

const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// 2013-05-24T00:00:00Z.
const NOW: u64 = 1_369_353_600_000;
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn credentials() -> RootCredentials {
    RootCredentials::new(KEY.to_owned(), SecretKey::new(SECRET.to_owned()))
}

fn head(target: &str, headers: &[(&str, &str)]) -> RequestHead {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    RequestHead::new(Method::Get, target, headers).expect("a head")
}

/// The example of AWS's documentation, with one header replaced or added.
fn example(name: &str, value: &str) -> RequestHead {
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={KEY}/20130524/us-east-1/s3/aws4_request, \
         SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
         Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    );
    let mut headers = vec![
        ("host", "examplebucket.s3.amazonaws.com"),
        ("range", "bytes=0-9"),
        ("x-amz-content-sha256", EMPTY),
        ("x-amz-date", "20130524T000000Z"),
        ("authorization", authorization.as_str()),
    ];
    headers.retain(|(known, _)| *known != name);
    headers.push((name, value));
    head("/test.txt", &headers)
}

const PRESIGNED: &str = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256\
    &X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z\
    &X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
    &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";

fn code(head: &RequestHead, now_ms: u64) -> Result<(), Code> {
    authenticate(head, now_ms, &credentials(), &[]).map(|_| ()).map_err(|error| error.code)
}

#[test]
fn a_signed_header() {
    let passed = authenticate(&example("user-agent", "any"), NOW, &credentials(), &[]).expect("a right signature");
    assert_eq!(passed.user(), Some(&User::root()));
    assert!(matches!(passed.payload(), Payload::Exact(digest) if Some(*digest) == from_hex(EMPTY)));
    let table = [
        ("range", "bytes=0-8", Code::SignatureDoesNotMatch),
        ("host", "other.s3.amazonaws.com", Code::SignatureDoesNotMatch),
        ("x-amz-content-sha256", "UNSIGNED-PAYLOAD", Code::SignatureDoesNotMatch),
        ("x-amz-date", "20130524T000001Z", Code::SignatureDoesNotMatch),
        ("x-amz-date", "20130524T001501Z", Code::RequestTimeTooSkewed),
        ("x-amz-date", "yesterday", Code::AccessDenied),
        ("x-amz-acl", "private", Code::AccessDenied),
        ("x-amz-security-token", "t", Code::AccessDenied),
        ("authorization", "AWS AKIA:signature", Code::InvalidAccessKeyId),
        ("authorization", "Basic dTpw", Code::InvalidRequest),
        ("authorization", "AWS4-HMAC-SHA256 Credential=a", Code::AuthorizationHeaderMalformed),
    ];
    for (name, value, expected) in table {
        assert_eq!(code(&example(name, value), NOW), Err(expected), "{name}: {value}");
    }
    let field = |credential: &str, signed: &str| {
        let signature = "0".repeat(64);
        format!("AWS4-HMAC-SHA256 Credential={credential},SignedHeaders={signed},Signature={signature}")
    };
    let of = |day: &str, rest: &str| format!("{KEY}/{day}/{rest}");
    let table = [
        (field("other/20130524/us-east-1/s3/aws4_request", "host;x-amz-date"), Code::InvalidAccessKeyId),
        (field(&of("20130523", "us-east-1/s3/aws4_request"), "host;x-amz-date"), Code::AuthorizationHeaderMalformed),
        (field(&of("2013", "us-east-1/s3/aws4_request"), "host;x-amz-date"), Code::AuthorizationHeaderMalformed),
        (field(&of("20130524", "us-east-1/ec2/aws4_request"), "host;x-amz-date"), Code::AuthorizationHeaderMalformed),
        (field(&of("20130524", "/s3/aws4_request"), "host;x-amz-date"), Code::AuthorizationHeaderMalformed),
        (field(&of("20130524", "us-east-1/s3/aws4_request"), "x-amz-date"), Code::AccessDenied),
        (field(&of("20130524", "us-east-1/s3/aws4_request"), "host"), Code::AccessDenied),
        (field(&of("20130524", "us-east-1/s3/aws4_request"), "host;x-amz-date"), Code::SignatureDoesNotMatch),
    ];
    for (value, expected) in table {
        assert_eq!(code(&example("authorization", &value), NOW), Err(expected), "{value}");
    }
    let nobody = |headers: &[(&str, &str)]| authenticate(&head("/", headers), NOW, &credentials(), &[]);
    let passed = nobody(&[("host", "h")]).expect("a request without a signature");
    assert!(passed.user().is_none() && matches!(passed.payload(), Payload::Unsigned));
    let bound = nobody(&[("x-amz-content-sha256", EMPTY)]).expect("a digest");
    assert!(matches!(bound.payload(), Payload::Exact(_)));
    let chained = nobody(&[("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")]);
    assert_eq!(chained.map(|_| ()).map_err(|error| error.code), Err(Code::AccessDenied));
    assert!(User::is_id("a-b_c.9") && !User::is_id("") && !User::is_id("a b") && !User::is_id(&"a".repeat(65)));
}

#[test]
fn clocks_may_differ_by_a_quarter_of_an_hour() {
    let skew = 900_000;
    for now in [NOW - skew, NOW, NOW + skew] {
        assert_eq!(code(&example("user-agent", "any"), now), Ok(()));
    }
    for now in [NOW - skew - 1_000, NOW + skew + 1_000, 0, u64::MAX] {
        assert_eq!(code(&example("user-agent", "any"), now), Err(Code::RequestTimeTooSkewed));
    }
}

#[test]
fn a_presigned_query() {
    let host = [("host", "examplebucket.s3.amazonaws.com")];
    let presigned = |target: &str, now: u64| code(&head(target, &host), now);
    assert_eq!(presigned(PRESIGNED, NOW), Ok(()));
    assert_eq!(presigned(PRESIGNED, NOW + 86_400_000), Ok(()));
    assert_eq!(presigned(PRESIGNED, NOW + 86_401_000), Err(Code::AccessDenied));
    assert_eq!(presigned(PRESIGNED, NOW - 900_000), Ok(()));
    assert_eq!(presigned(PRESIGNED, NOW - 901_000), Err(Code::AccessDenied));
    let table = [
        ("Expires=86400", "Expires=86401", Code::SignatureDoesNotMatch),
        ("Expires=86400", "Expires=604800", Code::SignatureDoesNotMatch),
        ("Expires=86400", "Expires=604801", Code::AuthorizationQueryParametersError),
        ("Expires=86400", "Expires=0", Code::AccessDenied),
        ("Expires=86400", "Expires=x", Code::AuthorizationQueryParametersError),
        ("SignedHeaders=host", "SignedHeaders=", Code::AuthorizationQueryParametersError),
        ("SignedHeaders=host", "SignedHeaders=date", Code::AccessDenied),
        ("=AWS4-HMAC-SHA256", "=AWS4-ECDSA", Code::AuthorizationQueryParametersError),
        ("/test.txt", "/test.tx", Code::SignatureDoesNotMatch),
        ("=aeee", "=beee", Code::SignatureDoesNotMatch),
        ("&X-Amz-Expires=86400", "", Code::AuthorizationQueryParametersError),
        ("&X-Amz-Expires", "&versionId=null&X-Amz-Expires", Code::SignatureDoesNotMatch),
    ];
    for (from, to, expected) in table {
        assert_eq!(presigned(&PRESIGNED.replacen(from, to, 1), NOW), Err(expected), "{from} -> {to}");
    }
    let both = [host[0], ("authorization", "AWS4-HMAC-SHA256 x")];
    assert_eq!(code(&head(PRESIGNED, &both), NOW), Err(Code::InvalidArgument));
}

#[test]
fn whatever_is_claimed_without_the_secret_is_refused() {
    arbtest::arbtest(|u| {
        let text: String = u.arbitrary()?;
        let authorization = format!("AWS4-HMAC-SHA256 {text}");
        assert!(code(&example("authorization", &authorization), NOW).is_err());
        assert!(code(&head(&format!("/?X-Amz-Signature={}", encode_component(&text)), &[("host", "h")]), NOW).is_err());
        Ok(())
    });
}

#[test]
fn the_access_key_that_a_request_names() {
    let long = "K".repeat(200);
    let (of_version_2, of_version_4) =
        (format!("AWS {long}:s"), format!("AWS4-HMAC-SHA256 Credential={long}/20130524"));
    for (authorization, expected) in [
        ("AWS AKIA:signature", Some("AKIA")),
        ("AWS4-HMAC-SHA256 Credential=AKIA/20130524/r/s3/aws4_request, Signature=0", Some("AKIA")),
        ("AWS4-HMAC-SHA256 Credential=AKIA,Signature=0", Some("AKIA")),
        (&of_version_2, Some(&long[..128])),
        (&of_version_4, Some(&long[..128])),
        ("AWS :signature", None),
        ("Basic dTpw", None),
    ] {
        let named = named_access_key(&example("authorization", authorization));
        assert_eq!(named.as_deref(), expected, "{authorization}");
    }
    for (target, expected) in [(PRESIGNED, Some(KEY)), ("/?AWSAccessKeyId=old", Some("old")), ("/?prefix=a", None)] {
        assert_eq!(named_access_key(&head(target, &[])).as_deref(), expected, "{target}");
    }
}

#[test]
fn one_pair_of_keys_has_no_policy_and_makes_no_sessions() {
    let credentials = credentials();
    assert_eq!((credentials.user_policy("ashlar"), credentials.session_secret().is_some()), (None, false));
    assert_eq!((credentials.user("ashlar"), credentials.user("ann")), (Some(User::root()), None));
    let printed = format!("{credentials:?}");
    assert!(printed.contains("***") && !printed.contains(SECRET), "{printed}");
}

#[test]
fn nobody_is_told_that_a_key_does_not_exist_before_keys_are_known() {
    let refused = |credentials: &dyn Credentials| {
        authenticate(&example("user-agent", "any"), NOW, credentials, &[]).map(|_| ()).map_err(|error| error.code)
    };
    assert_eq!(refused(&NotKnownYet), Err(Code::ServiceUnavailable));
    let others = RootCredentials::new("OTHER".to_owned(), SecretKey::new(SECRET.to_owned()));
    assert_eq!(refused(&others), Err(Code::InvalidAccessKeyId));
}

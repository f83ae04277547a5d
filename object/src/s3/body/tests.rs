//! What a body is compared with, and what becomes of one that is not as promised.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use super::*;
use crate::api::Body as _;
use crate::s3::authenticate::{RootCredentials, SecretKey, authenticate};
use crate::s3::head::Method;
use crate::s3::signature::{SERVICE, Scope, SigningKey, canonical_request, string_to_sign};

/// Runs a future that never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

struct Source(Vec<Bytes>);

impl Content for Source {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, api::Error>> {
        Box::pin(async { if self.0.is_empty() { Ok(None) } else { Ok(Some(self.0.remove(0))) } })
    }
}

/// What a request under a right signature with these headers promises.
fn promise(headers: &[(&str, &str)]) -> Result<Promises, Code> {
    let scope = Scope { day: "20130524".to_owned(), region: "r".to_owned(), service: SERVICE };
    let mut headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    headers.push(("host".into(), "h".into()));
    headers.push(("x-amz-date".into(), "20130524T000000Z".into()));
    let mut head = RequestHead::new(Method::Put, "/bucket/key", headers).expect("a head");
    let mut names: Vec<String> = head.headers.iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let payload = head.header("x-amz-content-sha256").expect("a payload");
    let text = string_to_sign("20130524T000000Z", &scope, &canonical_request(&head, &names, payload));
    let signature = SigningKey::derive("secret", &scope).sign(&text).to_hex();
    let names = names.join(";");
    let authorization =
        format!("AWS4-HMAC-SHA256 Credential=key/{}, SignedHeaders={names}, Signature={signature}", scope.text());
    head.headers.push(("authorization".into(), authorization));
    let credentials = RootCredentials::new("key".into(), SecretKey::new("secret".into()));
    let who = authenticate(&head, 1_369_353_600_000, &credentials, &[]).expect("a right signature");
    Promises::of(&head, &who, ChecksumAbout::Body).map_err(|error| error.code)
}

/// Sends a body under a right signature with these headers.
fn send(headers: &[(&str, &str)], body: &[u8]) -> Result<BodyDigest, Code> {
    let promises = promise(headers)?;
    let mut source = Source(body.chunks(3).map(Bytes::copy_from_slice).collect());
    let mut verified = VerifiedBody::new(&mut source, promises, Unasked::Crc64Nvme);
    loop {
        match now(verified.next()) {
            Ok(Some(bytes)) => assert!(!bytes.is_empty()),
            Ok(None) => return Ok(verified.digest()),
            Err(error) => {
                assert_eq!(error, api::Error::BadBody);
                assert_eq!(now(verified.next()), Err(api::Error::BadBody), "a refused body stays refused");
                return Err(verified.failure().expect("a reason").code);
            }
        }
    }
}

const NINE: &[u8] = b"123456789";
const PLAIN: (&str, &str) = ("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
const CHUNKED: (&str, &str) = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
const LENGTH: (&str, &str) = ("content-length", "9");
const DECODED: (&str, &str) = ("x-amz-decoded-content-length", "9");

#[test]
fn whole_bodies() {
    let digest = send(&[PLAIN, LENGTH], NINE).expect("a body");
    assert_eq!(digest.etag, "25f9e794323b453885f5181f1b624d0b");
    assert_eq!(digest.attributes.get("x-amz-checksum-crc64nvme"), Some("rosUhgp5mIg="));
    let right = [
        ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ];
    for (name, value) in &right {
        assert!(send(&[PLAIN, LENGTH, (name, value)], NINE).is_ok(), "{name}");
        assert_eq!(send(&[PLAIN, LENGTH, (name, value)], b"123456780"), Err(Code::BadDigest), "{name}");
    }
    let sha256 = "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225";
    assert!(send(&[("x-amz-content-sha256", sha256), LENGTH], NINE).is_ok());
    let changed = send(&[("x-amz-content-sha256", sha256), LENGTH], b"123456780");
    assert_eq!(changed, Err(Code::XAmzContentSHA256Mismatch));
}

#[test]
fn lengths() {
    assert_eq!(send(&[PLAIN, ("content-length", "8")], NINE), Err(Code::IncompleteBody));
    assert_eq!(send(&[PLAIN, ("content-length", "10")], NINE), Err(Code::IncompleteBody));
    assert_eq!(send(&[PLAIN], NINE), Err(Code::MissingContentLength));
    assert_eq!(send(&[PLAIN, ("content-length", "x")], NINE), Err(Code::InvalidArgument));
    let longest = PART_BYTES_MAX.to_string();
    assert_eq!(send(&[PLAIN, ("content-length", &longest)], NINE), Err(Code::IncompleteBody));
    let longer = (PART_BYTES_MAX + 1).to_string();
    assert_eq!(send(&[PLAIN, ("content-length", &longer)], NINE), Err(Code::EntityTooLarge));
    assert!(send(&[PLAIN, ("content-length", "0")], b"").is_ok());
}

#[test]
fn what_is_known_of_a_body_before_it_comes() {
    let told = |promises: &Promises| (promises.bytes_max(), promises.exact_bytes(), promises.has_digest());
    let md5 = ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==");
    let crc = ("x-amz-checksum-crc32", "y/Q5Jg==");
    for (more, has_digest) in [(&[][..], false), (&[md5], true), (&[crc], true), (&[md5, crc], true)] {
        let whole = promise(&[&[PLAIN, LENGTH], more].concat()).expect("promises");
        assert_eq!(told(&whole), (9, Some(9), has_digest), "{more:?}");
        let headers = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let fields = RequestHead::new(Method::Post, "/bucket", headers).expect("a head");
        let file = Promises::of_file(&fields, (3, 7)).expect("promises");
        assert_eq!(told(&file), (7, None, has_digest), "{more:?}");
    }
    let chunked = promise(&[CHUNKED, DECODED, ("content-length", "99")]).expect("promises");
    assert_eq!(told(&chunked), (9, Some(9), false), "the framing of chunks does not count");
}

#[test]
fn malformed_promises() {
    assert_eq!(send(&[PLAIN, LENGTH, ("content-md5", "x")], NINE), Err(Code::InvalidDigest));
    assert_eq!(send(&[PLAIN, LENGTH, ("x-amz-checksum-crc32", "AA==")], NINE), Err(Code::BadDigest));
    assert_eq!(send(&[PLAIN, LENGTH, ("x-amz-trailer", "x-amz-checksum-crc32")], NINE), Err(Code::InvalidRequest));
}

#[test]
fn trailers() {
    let body = |trailer: &str| format!("9\r\n123456789\r\n0\r\n{trailer}\r\n").into_bytes();
    let trailer = ("x-amz-trailer", "x-amz-checksum-crc32");
    let digest = send(&[CHUNKED, DECODED, trailer], &body("x-amz-checksum-crc32:y/Q5Jg==\r\n")).expect("a body");
    assert_eq!(digest.attributes.get("x-amz-checksum-crc32"), Some("y/Q5Jg=="));
    let table = [
        ("x-amz-checksum-crc32:y/Q5Jw==\r\n", Code::BadDigest),
        ("x-amz-checksum-crc32:y/Q5\r\n", Code::BadDigest),
        ("x-amz-checksum-sha1:y/Q5Jg==\r\n", Code::MalformedTrailerError),
        ("", Code::MalformedTrailerError),
    ];
    for (text, expected) in table {
        assert_eq!(send(&[CHUNKED, DECODED, trailer], &body(text)), Err(expected), "{text}");
    }
    assert!(send(&[CHUNKED, DECODED], &body("")).is_ok());
    let unannounced = send(&[CHUNKED, DECODED], &body("x-amz-checksum-crc32:y/Q5Jg==\r\n"));
    assert_eq!(unannounced, Err(Code::MalformedTrailerError));
    assert_eq!(send(&[CHUNKED, LENGTH], &body("")), Err(Code::MissingContentLength));
    let longer = ("x-amz-decoded-content-length", "10");
    assert_eq!(send(&[CHUNKED, longer], &body("")), Err(Code::IncompleteBody));
    assert_eq!(send(&[CHUNKED, DECODED], b"9\r\n123456789\r\n"), Err(Code::IncompleteBody));
}

//! Signatures of S3 requests: what a holder of the secret signs passes whatever its spelling, and no change of it passes but
//! those that canonicalisation takes back.
#![no_main]

use ashlar_object::s3::authenticate::authenticate;
use ashlar_object::s3::head::{Method, RequestHead};
use ashlar_object::s3::signature::{SERVICE, Scope, SigningKey, canonical_request, string_to_sign};
use ashlar_object::s3::{RootCredentials, SecretKey};
use libfuzzer_sys::fuzz_target;

/// 2013-05-24T00:00:00Z.
const NOW_MS: u64 = 1_369_353_600_000;
const DATE: &str = "20130524T000000Z";
const PAYLOAD: &str = "UNSIGNED-PAYLOAD";

fuzz_target!(|input: (&str, &str, &str, &str, &str)| {
    let (target, value, other_target, other_value, claim) = input;
    let credentials = RootCredentials::new("key".into(), SecretKey::new("secret".into()));
    let headers = |value: &str, authorization: &str| {
        [
            ("host", "h"),
            ("x-amz-content-sha256", PAYLOAD),
            ("x-amz-date", DATE),
            ("x-amz-meta-a", value),
            ("authorization", authorization),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    };
    let signed = ["host", "x-amz-content-sha256", "x-amz-date", "x-amz-meta-a"];
    // A query with a signature is another mechanism, and one with a token names temporary credentials, which nobody has here.
    let is_another_claim = |head: &RequestHead| {
        let is_part_of_one = |name: &str| {
            name.starts_with("X-Amz-")
                || matches!(name, "AWSAccessKeyId" | "Signature")
                || name.eq_ignore_ascii_case("x-amz-security-token")
        };
        head.query.iter().any(|(name, _)| is_part_of_one(name))
    };
    let Ok(head) = RequestHead::new(Method::Put, target, headers(value, "")) else { return };
    let scope = Scope { day: DATE[..8].to_owned(), region: "r".to_owned(), service: SERVICE };
    let canonical = canonical_request(&head, &signed, PAYLOAD);
    let signature = SigningKey::derive("secret", &scope).sign(&string_to_sign(DATE, &scope, &canonical)).to_hex();
    let right = format!(
        "AWS4-HMAC-SHA256 Credential=key/{}, SignedHeaders={}, Signature={signature}",
        scope.text(),
        signed.join(";")
    );
    if !is_another_claim(&head) {
        let head = RequestHead::new(Method::Put, target, headers(value, &right)).expect("it decoded before");
        assert!(authenticate(&head, NOW_MS, &credentials, &[]).is_ok());
    }
    if let Ok(other) = RequestHead::new(Method::Put, other_target, headers(other_value, &right))
        && !is_another_claim(&other)
    {
        let is_same = canonical_request(&other, &signed, PAYLOAD) == canonical;
        assert_eq!(authenticate(&other, NOW_MS, &credentials, &[]).is_ok(), is_same);
    }
    // Whatever else is claimed, nobody without the secret can say it, and what was signed for a put is not for a delete.
    for claim in [&format!("AWS4-HMAC-SHA256 {claim}"), &format!("AWS key:{claim}"), &right] {
        let head = RequestHead::new(Method::Delete, target, headers(value, claim)).expect("it decoded before");
        assert!(authenticate(&head, NOW_MS, &credentials, &[]).is_err());
    }
});

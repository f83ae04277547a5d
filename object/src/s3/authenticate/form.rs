//! Signatures of forms: over the policy, with Signature Version 4 or, as older makers of forms have it, Version 2.

use super::{
    Authenticated, CLOCK_SKEW_SECONDS_MAX, Credentials, Mechanism, PRESIGNED_SECONDS_MAX, Payload, Place, SecretKey,
    User, Version, access_key, scope, version_2,
};
use crate::s3::date::parse_amz_date;
use crate::s3::error::{Code, S3Error};
use crate::s3::signature::{ALGORITHM, SERVICE, Signature, SigningKey};

/// Checks the signature of a form over its policy. `field` gives the value of a field by its name in lower case. A form
/// without a policy and a signature is nobody's.
///
/// # Errors
/// [`Code::InvalidArgument`]: a field is missing; what [`super::authenticate`] answers.
pub fn authenticate_form<'a>(
    field: impl Fn(&str) -> Option<&'a str>,
    now_ms: u64,
    credentials: &dyn Credentials,
) -> Result<Authenticated, S3Error> {
    let missing = |why| Code::InvalidArgument.because(why);
    let is_new = field("x-amz-algorithm").is_some() || field("x-amz-signature").is_some();
    let is_old = field("awsaccesskeyid").is_some() || field("signature").is_some();
    let policy = match (field("policy"), is_new || is_old) {
        (None, false) => return Ok(filled_in(None)),
        (None, true) => return Err(missing("Bucket POST must contain a field named 'policy'.")),
        (Some(policy), _) => policy,
    };
    if field("x-amz-security-token").is_some() {
        return Err(Code::InvalidToken.into());
    }
    let name = if is_new { "x-amz-credential" } else { "awsaccesskeyid" };
    let credential = field(name).ok_or(missing("Bucket POST must contain a field that names an access key."))?;
    let signature = field(if is_new { "x-amz-signature" } else { "signature" });
    let signature = signature.ok_or(missing("Bucket POST must contain a field named 'signature'."))?;
    let key = if is_new { access_key(credential) } else { credential };
    let (secret, user) = credentials.lookup(key).ok_or(Code::InvalidAccessKeyId)?;
    let is_right = if is_new {
        let algorithm = field("x-amz-algorithm").filter(|algorithm| *algorithm == ALGORITHM);
        algorithm.ok_or(missing("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""))?;
        let date = field("x-amz-date").ok_or(missing("Bucket POST must contain a field named 'X-Amz-Date'."))?;
        is_version_4(&secret, credential, date, policy, signature, now_ms)?
    } else {
        version_2::is_signature(&secret, policy, signature)
    };
    let version = if is_new { Version::Four } else { Version::Two };
    if is_right { Ok(filled_in(Some((user, version)))) } else { Err(Code::SignatureDoesNotMatch.into()) }
}

/// A form of this user, or of nobody. Its file is not bound.
fn filled_in(by: Option<(User, Version)>) -> Authenticated {
    let (user, version) = by.unzip();
    let mechanism = version.map(|version| Mechanism { place: Place::Form, version });
    Authenticated { user, payload: Payload::Unsigned, session: None, mechanism }
}

fn is_version_4(
    secret: &SecretKey,
    credential: &str,
    date: &str,
    policy: &str,
    signature: &str,
    now_ms: u64,
) -> Result<bool, S3Error> {
    let seconds =
        parse_amz_date(date).ok_or(Code::InvalidArgument.because("X-Amz-Date must be in the ISO8601 Long Format"))?;
    let now = now_ms / 1_000;
    if seconds > now + CLOCK_SKEW_SECONDS_MAX || now > seconds + PRESIGNED_SECONDS_MAX {
        return Err(Code::RequestTimeTooSkewed.into());
    }
    let scope = scope(credential, date, SERVICE).map_err(|why| Code::InvalidArgument.because(why))?;
    let expected = SigningKey::derive(&secret.0, &scope).sign(policy);
    Ok(Signature::from_hex(signature).is_some_and(|signature| expected.is_same(&signature)))
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    use sha1::Sha1;

    use super::*;
    use crate::s3::authenticate::RootCredentials;

    /// 2015-12-29T00:00:00Z.
    const NOW: u64 = 1_451_347_200_000;

    fn outcome(fields: &[(&str, &str)]) -> Result<bool, Code> {
        let secret = SecretKey::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned());
        let credentials = RootCredentials::new("AKIAIOSFODNN7EXAMPLE".to_owned(), secret);
        let field = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        authenticate_form(field, NOW, &credentials).map(|who| who.user().is_some()).map_err(|error| error.code)
    }

    /// The policy of the example in AWS's description of forms with Version 4, and its signature.
    const POLICY: &str = "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiLA0KICAiY29uZGl0aW9ucyI6IFsNCiAgICB7ImJ1Y2tldCI6ICJzaWd2NGV4YW1wbGVidWNrZXQifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRrZXkiLCAidXNlci91c2VyMS8iXSwNCiAgICB7ImFjbCI6ICJwdWJsaWMtcmVhZCJ9LA0KICAgIHsic3VjY2Vzc19hY3Rpb25fcmVkaXJlY3QiOiAiaHR0cDovL3NpZ3Y0ZXhhbXBsZWJ1Y2tldC5zMy5hbWF6b25hd3MuY29tL3N1Y2Nlc3NmdWxfdXBsb2FkLmh0bWwifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRDb250ZW50LVR5cGUiLCAiaW1hZ2UvIl0sDQogICAgeyJ4LWFtei1tZXRhLXV1aWQiOiAiMTQzNjUxMjM2NTEyNzQifSwNCiAgICB7IngtYW16LXNlcnZlci1zaWRlLWVuY3J5cHRpb24iOiAiQUVTMjU2In0sDQogICAgWyJzdGFydHMtd2l0aCIsICIkeC1hbXotbWV0YS10YWciLCAiIl0sDQoNCiAgICB7IngtYW16LWNyZWRlbnRpYWwiOiAiQUtJQUlPU0ZPRE5ON0VYQU1QTEUvMjAxNTEyMjkvdXMtZWFzdC0xL3MzL2F3czRfcmVxdWVzdCJ9LA0KICAgIHsieC1hbXotYWxnb3JpdGhtIjogIkFXUzQtSE1BQy1TSEEyNTYifSwNCiAgICB7IngtYW16LWRhdGUiOiAiMjAxNTEyMjlUMDAwMDAwWiIgfQ0KICBdDQp9";
    const SIGNATURE: &str = "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e";

    #[test]
    fn version_4() {
        let right = [
            ("policy", POLICY),
            ("x-amz-algorithm", ALGORITHM),
            ("x-amz-credential", "AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request"),
            ("x-amz-date", "20151229T000000Z"),
            ("x-amz-signature", SIGNATURE),
        ];
        assert_eq!(outcome(&right), Ok(true));
        let changed = |name: &str, value: Option<&'static str>| {
            let kept = right.iter().filter(|(known, _)| *known != name).copied();
            outcome(&kept.chain(value.map(|value| (name, value))).collect::<Vec<_>>())
        };
        for name in ["policy", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"] {
            assert_eq!(changed(name, None), Err(Code::InvalidArgument), "{name}");
        }
        assert_eq!(changed("policy", Some("e30=")), Err(Code::SignatureDoesNotMatch));
        assert_eq!(changed("x-amz-signature", Some("00")), Err(Code::SignatureDoesNotMatch));
        assert_eq!(changed("x-amz-credential", Some("x/20151229/r/s3/aws4_request")), Err(Code::InvalidAccessKeyId));
        let other_day = Some("AKIAIOSFODNN7EXAMPLE/20151228/us-east-1/s3/aws4_request");
        assert_eq!(changed("x-amz-credential", other_day), Err(Code::InvalidArgument));
        for date in ["20151230T000000Z", "20151220T000000Z"] {
            assert_eq!(changed("x-amz-date", Some(date)), Err(Code::RequestTimeTooSkewed));
        }
        assert_eq!(changed("x-amz-security-token", Some("t")), Err(Code::InvalidToken));
    }

    #[test]
    fn a_form_of_version_4_is_good_for_a_week() {
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        for (date, expected) in [
            ("20151229T001500Z", Ok(true)),
            ("20151229T001501Z", Err(Code::RequestTimeTooSkewed)),
            ("20151222T000000Z", Ok(true)),
            ("20151221T235959Z", Err(Code::RequestTimeTooSkewed)),
        ] {
            let credential = format!("AKIAIOSFODNN7EXAMPLE/{}/us-east-1/s3/aws4_request", &date[..8]);
            let scope = scope(&credential, date, SERVICE).expect("a scope");
            let signature = SigningKey::derive(secret, &scope).sign(POLICY).to_hex();
            let fields = [
                ("policy", POLICY),
                ("x-amz-algorithm", ALGORITHM),
                ("x-amz-credential", &credential),
                ("x-amz-date", date),
                ("x-amz-signature", &signature),
            ];
            assert_eq!(outcome(&fields), expected, "{date}");
        }
    }

    #[test]
    fn version_2_and_none() {
        let (policy, key) = (("policy", "e30="), ("awsaccesskeyid", "AKIAIOSFODNN7EXAMPLE"));
        let secret = SecretKey::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned());
        let mut mac = Hmac::<Sha1>::new_from_slice(secret.0.as_bytes()).expect("a key");
        mac.update(b"e30=");
        let signature = crate::s3::encoding::to_base64(&mac.finalize().into_bytes());
        assert_eq!(outcome(&[policy, key, ("signature", &signature)]), Ok(true));
        for wrong in ["", "AAAA", &signature[1..]] {
            assert_eq!(outcome(&[policy, key, ("signature", wrong)]), Err(Code::SignatureDoesNotMatch), "{wrong}");
        }
        assert_eq!(
            outcome(&[policy, ("awsaccesskeyid", "x"), ("signature", &signature)]),
            Err(Code::InvalidAccessKeyId)
        );
        assert_eq!(outcome(&[policy, key]), Err(Code::InvalidArgument));
        assert_eq!(outcome(&[policy]), Err(Code::InvalidArgument));
        for name in ["awsaccesskeyid", "signature", "x-amz-algorithm", "x-amz-signature"] {
            assert_eq!(
                outcome(&[(name, "x")]),
                Err(Code::InvalidArgument),
                "nobody's form has no part of a signature: {name}"
            );
        }
        assert_eq!(outcome(&[]), Ok(false));
    }
}

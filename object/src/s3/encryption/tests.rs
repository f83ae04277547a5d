use super::*;
use crate::s3::head::Method;

const KEY: &str = "pO3upElrwuEXSoFwCfnZPdSsmt/xWeFa0N9KgDijwVs=";
const MD5: &str = "DWygnHRtgiJ77HCm+1rvHw==";

fn key(values: [Option<&str>; 3], is_private: bool) -> Result<Option<String>, Code> {
    let named = KeyOf::Target.headers().into_iter().zip(values);
    let headers = named.filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    let head = RequestHead::new(Method::Put, "/bucket/key", headers).expect("a head");
    let key = CustomerKey::of(&head, KeyOf::Target, is_private);
    key.map(|key| key.map(|key| key.md5)).map_err(|error| error.code)
}

#[test]
fn keys_of_clients() {
    let whole = [Some("AES256"), Some(KEY), Some(MD5)];
    assert_eq!(key([None; 3], false), Ok(None));
    assert_eq!(key(whole, true), Ok(Some(MD5.to_owned())));
    assert_eq!(key(whole, false), Err(Code::InvalidRequest));
    let other = "AAAAAAAAAAAAAAAAAAAAAA==";
    let refused = [
        [None, Some(KEY), Some(MD5)],
        [Some("AES256"), None, Some(MD5)],
        [Some("AES256"), Some(KEY), None],
        [Some("AES256"), Some(KEY), Some(other)],
        [Some("AES256"), Some(KEY), Some("")],
        [Some("AES256"), Some("c2hvcnQ="), Some(MD5)],
        [Some("AES256"), Some("not base64"), Some(MD5)],
        [Some("AES256"), None, None],
    ];
    for values in refused {
        assert_eq!(key(values, true), Err(Code::InvalidArgument), "{values:?}");
    }
    assert_eq!(key([Some("AES128"), Some(KEY), Some(MD5)], true), Err(Code::InvalidEncryptionAlgorithmError));
}

#[test]
fn golden_bytes() {
    let envelope = Envelope { master: Some(0x0102), salt: [3; 32], wrapped: [4; WRAPPED_BYTES] };
    let form = [&[1, 1, 0, 0, 0, 0, 0, 0, 1, 2][..], &[3; 32], &[4; 48]].concat();
    assert_eq!(envelope.encode().0, form);
    let by_customer = Envelope { master: None, ..envelope };
    assert_eq!(by_customer.encode().0, [&[1, 2][..], &[3; 32], &[4; 48]].concat());
    for envelope in [envelope, by_customer] {
        assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
        assert!(envelope.encode().0.len() <= crate::api::ENVELOPE_BYTES_MAX);
    }
    for len in 0..form.len() {
        assert!(Envelope::decode(&KeyEnvelope(Bytes::copy_from_slice(&form[..len]))).is_err(), "{len}");
    }
    for wrong in [[&form[..], &[0]].concat(), [&[2], &form[1..]].concat(), [&[1, 3], &form[2..]].concat()] {
        assert!(Envelope::decode(&KeyEnvelope(Bytes::from(wrong))).is_err());
    }
}

#[test]
fn defaults_of_buckets() {
    let document = |inside: &str| {
        let text = format!("<ServerSideEncryptionConfiguration>{inside}</ServerSideEncryptionConfiguration>");
        DefaultEncryption::decode(text.as_bytes()).map_err(|error| error.code)
    };
    let rule = |inside: &str| document(&format!("<Rule>{inside}</Rule>"));
    let by = |inside: &str| {
        rule(&format!("<ApplyServerSideEncryptionByDefault>{inside}</ApplyServerSideEncryptionByDefault>"))
    };
    let plain = DefaultEncryption { has_bucket_key: false };
    assert_eq!(by("<SSEAlgorithm>AES256</SSEAlgorithm>"), Ok(plain));
    for has_bucket_key in [false, true] {
        let default = DefaultEncryption { has_bucket_key };
        assert_eq!(DefaultEncryption::decode(default.write().finish().as_bytes()), Ok(default));
        let kept = Attributes(vec![(ENCRYPTION.to_owned(), default.text())]);
        assert_eq!(DefaultEncryption::of(&kept), Some(default));
    }
    assert_eq!(DefaultEncryption::of(&Attributes::default()), None);
    assert_eq!(by("<SSEAlgorithm>aws:kms</SSEAlgorithm>"), Err(Code::NotImplemented));
    assert_eq!(by("<SSEAlgorithm>AES</SSEAlgorithm>"), Err(Code::MalformedXML));
    let with_key = "<SSEAlgorithm>AES256</SSEAlgorithm><KMSMasterKeyID>k</KMSMasterKeyID>";
    assert_eq!(by(with_key), Err(Code::InvalidArgument));
    assert_eq!(rule("<BucketKeyEnabled>true</BucketKeyEnabled>"), Err(Code::MalformedXML));
    assert_eq!(rule("<BlockedEncryptionTypes/>"), Err(Code::NotImplemented));
    assert_eq!(document(""), Err(Code::MalformedXML));
    assert_eq!(document("<Rule/><Rule/>"), Err(Code::MalformedXML));
}

use super::*;
use crate::api::Attributes;
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
    let key = CustomerKey { secret: Secret::from_bytes([1; 32]), md5: MD5.to_owned() };
    assert_eq!(format!("{key:?}"), "CustomerKey(***)", "logs tell nothing of keys");
}

#[test]
fn golden_bytes() {
    let master = Holder::Cluster(KeyName::Master, 0x0102);
    let envelope = Envelope { holder: master, salt: [3; 32], wrapped: [4; WRAPPED_BYTES] };
    let form = [&[1, 1, 0, 0, 0, 0, 0, 0, 1, 2][..], &[3; 32], &[4; 48]].concat();
    assert_eq!(envelope.encode().0, form);
    let by_customer = Envelope { holder: Holder::Customer, ..envelope.clone() };
    assert_eq!(by_customer.encode().0, [&[1, 2][..], &[3; 32], &[4; 48]].concat());
    let named = Holder::Cluster(KeyName::Kms("ab".to_owned()), 0x0102);
    let by_kms = Envelope { holder: named, ..envelope.clone() };
    let named_form = [&[1, 3, 2, b'a', b'b', 0, 0, 0, 0, 0, 0, 1, 2][..], &[3; 32], &[4; 48]].concat();
    assert_eq!(by_kms.encode().0, named_form);
    let longest = Holder::Cluster(KeyName::Kms("k".repeat(KeyName::BYTES_MAX)), u64::MAX);
    for envelope in [envelope.clone(), by_customer, by_kms, Envelope { holder: longest, ..envelope }] {
        assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope.clone()));
        assert!(envelope.encode().0.len() <= crate::api::ENVELOPE_BYTES_MAX);
    }
    for len in 0..named_form.len() {
        assert!(Envelope::decode(&KeyEnvelope(Bytes::copy_from_slice(&named_form[..len]))).is_err(), "{len}");
    }
    let unnamed = [&named_form[..3], b"a/", &named_form[5..]].concat();
    assert!(Envelope::decode(&KeyEnvelope(Bytes::from(unnamed))).is_err(), "no key is called so");
    for len in 0..form.len() {
        assert!(Envelope::decode(&KeyEnvelope(Bytes::copy_from_slice(&form[..len]))).is_err(), "{len}");
    }
    for wrong in [[&form[..], &[0]].concat(), [&[2], &form[1..]].concat(), [&[1, 4], &form[2..]].concat()] {
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
    let plain = DefaultEncryption { key: KeyName::Master, has_bucket_key: false };
    assert_eq!(by("<SSEAlgorithm>AES256</SSEAlgorithm>"), Ok(plain));
    let named = |name: &str| KeyName::Kms(name.to_owned());
    // The texts are kept with buckets.
    for (key, has_bucket_key, text) in [
        (KeyName::Master, false, "AES256"),
        (KeyName::Master, true, "AES256 bucket-key"),
        (named("a.b"), false, "aws:kms key=a.b"),
        (named("bucket-key"), true, "aws:kms key=bucket-key bucket-key"),
        (named("bucket-key"), false, "aws:kms key=bucket-key"),
    ] {
        let default = DefaultEncryption { key, has_bucket_key };
        assert_eq!(DefaultEncryption::decode(default.write().finish().as_bytes()), Ok(default.clone()));
        assert_eq!(default.text(), text);
        let kept = Attributes(vec![(ENCRYPTION.to_owned(), default.text())]);
        assert_eq!(DefaultEncryption::of(&kept), Some(default));
    }
    for wrong in ["", "a b", "a/b", "kö", &"k".repeat(65)] {
        assert_eq!(KeyName::named(wrong.to_owned()), None, "{wrong}");
    }
    assert_eq!(DefaultEncryption::of(&Attributes::default()), None);
    assert_eq!(by("<SSEAlgorithm>aws:kms</SSEAlgorithm>"), Err(Code::InvalidArgument));
    assert_eq!(by("<SSEAlgorithm>aws:kms:dsse</SSEAlgorithm>"), Err(Code::NotImplemented));
    assert_eq!(by("<SSEAlgorithm>aws:kms</SSEAlgorithm><KMSMasterKeyID>a b</KMSMasterKeyID>"), Err(Code::KmsNotFound));
    assert_eq!(by("<SSEAlgorithm>AES</SSEAlgorithm>"), Err(Code::MalformedXML));
    let with_key = "<SSEAlgorithm>AES256</SSEAlgorithm><KMSMasterKeyID>k</KMSMasterKeyID>";
    assert_eq!(by(with_key), Err(Code::InvalidArgument));
    assert_eq!(rule("<BucketKeyEnabled>true</BucketKeyEnabled>"), Err(Code::MalformedXML));
    assert_eq!(rule("<BlockedEncryptionTypes/>"), Err(Code::NotImplemented));
    assert_eq!(document(""), Err(Code::MalformedXML));
    assert_eq!(document("<Rule/><Rule/>"), Err(Code::MalformedXML));
}

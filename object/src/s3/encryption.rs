//! Server-side encryption: what requests ask for, how the key of an object is kept, and the default of a bucket.
//!
//! Every encrypted object has a data key of its own, drawn by chance. It is kept with the object in an envelope: wrapped under a key
//! that follows from the client's own key (SSE-C), from the master key of the cluster (SSE-S3) or from one of its named keys (SSE-KMS),
//! from a salt and from the object's name. So of a client's key nothing is kept: that it is the right one shows when the envelope opens.
//!
//! Written form of an envelope, version 1: version, kind (1 the master key, 2 the client's, 3 a named key), with kind 3 the length of
//! its name (1 byte) and the name, with kinds 1 and 3 the id of the key (8 bytes), salt (32 bytes), wrapped data key (48 bytes).
//!
//! Deliberately absent: encryption contexts and two layers of encryption (`aws:kms:dsse`), which are refused.

mod default;
mod key;

use core::fmt;

use ashlar_wire::secret::Secret;
use bytes::Bytes;
use md5::{Digest as _, Md5};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

pub use self::default::DefaultEncryption;
pub(super) use self::key::short_name;
use self::key::{AES256, DSSE, KMS, UNNAMED};
pub use self::key::{KeyName, KeyService, NoKey};
use super::encoding::{from_base64, to_base64};
use super::error::{Code, S3Error};
use super::head::RequestHead;
use super::metadata::{CHECKSUM_ALGORITHM, Header};
use super::service::Call;
use crate::api::{Bucket, Encryption, Error, KeyEnvelope, Object, Upload};
use crate::cipher::{DataKey, WRAPPED_BYTES, WrappingKey};
use crate::cursor::{Cursor, Malformed};

/// The attribute of a bucket with its default: the algorithm, and whether bucket keys were asked for.
pub(super) const ENCRYPTION: &str = "encryption";

const ALGORITHM: &str = "x-amz-server-side-encryption";
pub(super) const KMS_KEY: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const CONTEXT: &str = "x-amz-server-side-encryption-context";
const BUCKET_KEY: &str = "x-amz-server-side-encryption-bucket-key-enabled";

/// Whose key a request gives: that of the object it is about, or that of the one it copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyOf {
    Target,
    CopySource,
}

impl KeyOf {
    /// The headers with the algorithm, the key and the MD5 of the key.
    const fn headers(self) -> [&'static str; 3] {
        match self {
            Self::Target => [
                "x-amz-server-side-encryption-customer-algorithm",
                "x-amz-server-side-encryption-customer-key",
                "x-amz-server-side-encryption-customer-key-md5",
            ],
            Self::CopySource => [
                "x-amz-copy-source-server-side-encryption-customer-algorithm",
                "x-amz-copy-source-server-side-encryption-customer-key",
                "x-amz-copy-source-server-side-encryption-customer-key-md5",
            ],
        }
    }
}

/// A key that a client has sent.
pub(super) struct CustomerKey {
    secret: Secret,
    md5: String,
}

impl fmt::Debug for CustomerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomerKey(***)")
    }
}

const fn invalid(why: &'static str) -> S3Error {
    Code::InvalidArgument.because(why)
}

impl CustomerKey {
    /// The key in the headers of a request, if there is one.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`], [`Code::InvalidEncryptionAlgorithmError`]: headers that do not make a key;
    /// [`Code::InvalidRequest`]: it did not come by a way that nobody can read.
    pub(super) fn of(head: &RequestHead, of: KeyOf, is_private: bool) -> Result<Option<Self>, S3Error> {
        let [algorithm, key, md5] = of.headers().map(|name| head.header(name));
        if algorithm.is_none() && key.is_none() && md5.is_none() {
            return Ok(None);
        }
        let algorithm = algorithm.ok_or(invalid(
            "Requests specifying Server Side Encryption with Customer provided keys must provide a valid encryption algorithm.",
        ))?;
        if algorithm != AES256 {
            return Err(Code::InvalidEncryptionAlgorithmError.into());
        }
        let key = key.ok_or(invalid(
            "Requests specifying Server Side Encryption with Customer provided keys must provide an appropriate secret key.",
        ))?;
        let md5 = md5.ok_or(invalid(
            "Requests specifying Server Side Encryption with Customer provided keys must provide the client calculated MD5 of the secret key.",
        ))?;
        let bytes = Zeroizing::new(from_base64(key.trim()).unwrap_or_default());
        let wrong = invalid("The secret key was invalid for the specified algorithm.");
        let secret = Zeroizing::new(<[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| wrong)?);
        let digest = from_base64(md5.trim()).unwrap_or_default();
        if !bool::from(<[u8; 16]>::from(Md5::digest(*secret)).ct_eq(&digest[..])) {
            return Err(invalid("The calculated MD5 hash of the key did not match the hash that was provided."));
        }
        if !is_private {
            return Err(Code::InvalidRequest.because(
                "Requests specifying Server Side Encryption with Customer provided keys must be made over a secure connection.",
            ));
        }
        Ok(Some(Self { secret: Secret::from_bytes(*secret), md5: to_base64(&digest) }))
    }
}

/// How a request wants what it writes to be encrypted.
#[derive(Debug)]
enum Wanted {
    Not,
    ByCluster(KeyName),
    ByCustomer(CustomerKey),
}

/// Who has the key that opens an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    /// The cluster: which key, and its id.
    Cluster(KeyName, u64),
    Customer,
}

/// The data key of an object, wrapped.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Envelope {
    holder: Holder,
    salt: [u8; 32],
    wrapped: [u8; WRAPPED_BYTES],
}

const VERSION: u8 = 1;
const BY_MASTER: u8 = 1;
const BY_CUSTOMER: u8 = 2;
const BY_KMS: u8 = 3;

impl Envelope {
    fn encode(&self) -> KeyEnvelope {
        let mut out = vec![VERSION, self.kind()];
        if let Holder::Cluster(key, id) = &self.holder {
            if let KeyName::Kms(name) = key {
                out.push(u8::try_from(name.len()).expect("names of keys are short"));
                out.extend_from_slice(name.as_bytes());
            }
            out.extend_from_slice(&id.to_be_bytes());
        }
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.wrapped);
        KeyEnvelope(Bytes::from(out))
    }

    fn decode(envelope: &KeyEnvelope) -> Result<Self, Malformed> {
        let mut from = Cursor(envelope.0.clone());
        let holder = match (from.u8()?, from.u8()?) {
            (VERSION, BY_MASTER) => Holder::Cluster(KeyName::Master, from.u64()?),
            (VERSION, BY_CUSTOMER) => Holder::Customer,
            (VERSION, BY_KMS) => {
                let len = from.u8()?;
                let name = String::from_utf8(from.bytes(len.into())?.to_vec()).map_err(|_| Malformed)?;
                Holder::Cluster(KeyName::named(name).ok_or(Malformed)?, from.u64()?)
            }
            _ => return Err(Malformed),
        };
        let envelope = Self { holder, salt: from.array()?, wrapped: from.array()? };
        from.end()?;
        Ok(envelope)
    }

    const fn kind(&self) -> u8 {
        match self.holder {
            Holder::Cluster(KeyName::Master, _) => BY_MASTER,
            Holder::Cluster(KeyName::Kms(_), _) => BY_KMS,
            Holder::Customer => BY_CUSTOMER,
        }
    }

    fn wrapping_key(&self, secret: &Secret, (bucket, key): (&str, &str)) -> WrappingKey {
        WrappingKey::derive(secret, &[&[self.kind()], &self.salt, bucket.as_bytes(), key.as_bytes()])
    }
}

impl Call<'_> {
    /// The key of its own that the client has sent.
    pub(super) fn customer_key(&self, of: KeyOf) -> Result<Option<CustomerKey>, S3Error> {
        CustomerKey::of(self.head, of, self.from.is_private())
    }

    /// How the request wants its object to be encrypted, in this bucket.
    fn wanted(&self, bucket: &Bucket) -> Result<Wanted, S3Error> {
        let algorithm = self.head.header(ALGORITHM);
        let has_bucket_key = self.head.header(BUCKET_KEY).is_some_and(|value| value != "false");
        let has_kms_key = [KMS_KEY, CONTEXT].into_iter().any(|name| self.head.header(name).is_some());
        if algorithm.is_some() && KeyOf::Target.headers().into_iter().any(|name| self.head.header(name).is_some()) {
            return Err(invalid(
                "Server Side Encryption with Customer provided key is incompatible with the encryption method specified",
            ));
        }
        match algorithm {
            Some(AES256) if has_kms_key => Err(invalid(
                "Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms",
            )),
            Some(AES256) if has_bucket_key => Err(Code::NotImplemented.into()),
            Some(AES256) => Ok(Wanted::ByCluster(KeyName::Master)),
            Some(KMS) if self.head.header(CONTEXT).is_some() => {
                Err(Code::NotImplemented.because("This server keeps no encryption contexts"))
            }
            Some(KMS) => {
                let named = self.head.header(KMS_KEY).map(KeyName::of_client).transpose()?;
                let of_bucket = || DefaultEncryption::of(&bucket.attributes).map(|default| default.key);
                let key = named.or_else(|| of_bucket().filter(|key| *key != KeyName::Master));
                Ok(Wanted::ByCluster(key.ok_or(UNNAMED)?))
            }
            Some(DSSE) => Err(Code::NotImplemented.because("This server encrypts in one layer")),
            Some(_) => Err(invalid("The encryption method specified is not supported")),
            None if has_kms_key || self.head.header(BUCKET_KEY).is_some() => Err(invalid(
                "Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms",
            )),
            None => Ok(match self.customer_key(KeyOf::Target)? {
                Some(key) => Wanted::ByCustomer(key),
                None => DefaultEncryption::of(&bucket.attributes)
                    .map_or(Wanted::Not, |default| Wanted::ByCluster(default.key)),
            }),
        }
    }

    /// Whether the request says how its object is to be encrypted.
    pub(super) fn names_encryption(&self) -> bool {
        self.head.headers.iter().any(|(name, _)| name.starts_with(ALGORITHM))
    }

    /// How the object that the request puts into this bucket is encrypted: with a new key, or not.
    pub(super) fn encryption_of_new(&self, bucket: &Bucket) -> Result<Option<Encryption>, S3Error> {
        let (secret, holder) = match self.wanted(bucket)? {
            Wanted::Not => return Ok(None),
            Wanted::ByCustomer(key) => (key.secret, Holder::Customer),
            Wanted::ByCluster(name) => {
                let secret = self.s3.keys.key(&name)?;
                let id = secret.key_id().0;
                (secret, Holder::Cluster(name, id))
            }
        };
        let data_key = DataKey::from_bytes(self.s3.keys.draw());
        let mut envelope = Envelope { holder, salt: self.s3.keys.draw(), wrapped: [0; WRAPPED_BYTES] };
        envelope.wrapped = envelope.wrapping_key(&secret, (&bucket.name, &self.route.key)).wrap(&data_key);
        Ok(Some(Encryption { data_key, envelope: envelope.encode() }))
    }

    /// The data key of an object of this name that has this envelope. Takes what the client has sent where it is needed, and nothing else.
    pub(super) fn unwrap(
        &self,
        envelope: Option<&KeyEnvelope>,
        name: (&str, &str),
        customer: Option<&CustomerKey>,
    ) -> Result<Option<DataKey>, Error> {
        let Some(envelope) = envelope else {
            return if customer.is_some() { Err(Error::KeyNotNeeded) } else { Ok(None) };
        };
        let envelope = Envelope::decode(envelope).map_err(|_| Error::Damaged)?;
        let opened = match (&envelope.holder, customer) {
            (Holder::Cluster(..), Some(_)) => return Err(Error::KeyNotNeeded),
            (Holder::Customer, None) => return Err(Error::KeyMissing),
            (Holder::Customer, Some(key)) => {
                envelope.wrapping_key(&key.secret, name).unwrap(&envelope.wrapped).map_err(|_| Error::WrongKey)
            }
            (Holder::Cluster(key, id), None) => {
                // Keys are not deleted, so one that is not there has not come to this server yet.
                let secret = self.s3.keys.key(key).map_err(|_| Error::Unavailable)?;
                if secret.key_id().0 != *id {
                    return Err(Error::Damaged);
                }
                envelope.wrapping_key(&secret, name).unwrap(&envelope.wrapped).map_err(|_| Error::Damaged)
            }
        };
        opened.map(Some)
    }

    /// The data key of the object that the request reads, if it is encrypted.
    pub(super) fn key_of_read(&self, object: &Object) -> Result<Option<DataKey>, S3Error> {
        if self.head.header(ALGORITHM).is_some() {
            return Err(invalid("x-amz-server-side-encryption header is not supported for this operation."));
        }
        let customer = self.customer_key(KeyOf::Target)?;
        Ok(self.unwrap(object.envelope.as_ref(), (&self.route.bucket, &self.route.key), customer.as_ref())?)
    }

    /// What a part of an upload is encrypted with: tells its key by the envelope of the upload.
    pub(super) fn key_of_part(
        &self,
    ) -> Result<impl Fn(Option<&KeyEnvelope>) -> Result<Option<DataKey>, Error> + Send + Sync, S3Error> {
        let algorithm = self.head.header(ALGORITHM);
        if algorithm.is_some_and(|algorithm| ![AES256, KMS].contains(&algorithm)) {
            return Err(invalid("x-amz-server-side-encryption header is not supported for this operation."));
        }
        let customer = self.customer_key(KeyOf::Target)?;
        Ok(move |envelope: Option<&KeyEnvelope>| {
            // The key that is named beside it counts for nothing: the upload has one.
            let is_other = algorithm.is_some() && envelope.and_then(key_of).map(|key| key.algorithm()) != algorithm;
            if is_other {
                return Err(Error::KeyNotNeeded);
            }
            self.unwrap(envelope, (&self.route.bucket, &self.route.key), customer.as_ref())
        })
    }

    /// Whether an upload may be completed by the request. A client's key may be left out, unless the upload has a checksum.
    pub(super) fn check_key_of_completion(&self, upload: &Upload) -> Result<(), S3Error> {
        let customer = self.customer_key(KeyOf::Target)?;
        let has_checksum = upload.attributes.get(CHECKSUM_ALGORITHM).is_some();
        match self.unwrap(upload.envelope.as_ref(), (&self.route.bucket, &self.route.key), customer.as_ref()) {
            Err(Error::KeyMissing) if !has_checksum => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }

    /// The headers of a reply about an object with this envelope.
    pub(super) fn encryption_headers(&self, envelope: Option<&KeyEnvelope>) -> Vec<Header> {
        match envelope {
            None => Vec::new(),
            Some(envelope) => match key_of(envelope) {
                Some(key) => {
                    let algorithm = (ALGORITHM.into(), key.algorithm().to_owned());
                    let name = key.kms().map(|name| (KMS_KEY.into(), name.to_owned()));
                    [algorithm].into_iter().chain(name).collect()
                }
                None => {
                    let [algorithm, _, md5] = KeyOf::Target.headers();
                    let sent = self.customer_key(KeyOf::Target).ok().flatten();
                    let md5 = sent.map(|key| (md5.into(), key.md5));
                    [(algorithm.into(), AES256.to_owned())].into_iter().chain(md5).collect()
                }
            },
        }
    }
}

/// The key of the cluster that opens an envelope, if it is one of the cluster's.
fn key_of(envelope: &KeyEnvelope) -> Option<KeyName> {
    match Envelope::decode(envelope).ok()?.holder {
        Holder::Cluster(key, _) => Some(key),
        Holder::Customer => None,
    }
}

#[cfg(test)]
mod tests;

//! Server-side encryption: what requests ask for, how the key of an object is kept, and the default of a bucket.
//!
//! Every encrypted object has a data key of its own, drawn by chance. It is kept with the object in an envelope: wrapped under a key
//! that follows from the client's own key (SSE-C) or from the master key of the cluster (SSE-S3), from a salt and from the object's
//! name. So of a client's key nothing is kept: that it is the right one shows when the envelope opens.
//!
//! Written form of an envelope, version 1: version, kind (1 the cluster's key, 2 the client's), with kind 1 the id of the
//! master key (8 bytes), salt (32 bytes), wrapped data key (48 bytes).
//!
//! Deliberately absent: keys of a KMS (`aws:kms`), which are refused.

use core::fmt;

use ashlar_wire::secret::Secret;
use bytes::Bytes;
use md5::{Digest as _, Md5};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::document::{check_flag, decode};
use super::encoding::{from_base64, to_base64};
use super::error::{Code, S3Error};
use super::head::RequestHead;
use super::metadata::{CHECKSUM_ALGORITHM, Header};
use super::service::Call;
use super::xml::{Element, XmlWriter};
use crate::api::{Attributes, Bucket, Encryption, Error, KeyEnvelope, Object, Upload};
use crate::cipher::{DataKey, WRAPPED_BYTES, WrappingKey};
use crate::cursor::{Cursor, Malformed};

/// The attribute of a bucket with its default: the algorithm, and whether bucket keys were asked for.
pub(super) const ENCRYPTION: &str = "encryption";

const ALGORITHM: &str = "x-amz-server-side-encryption";
const KMS_KEY: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const CONTEXT: &str = "x-amz-server-side-encryption-context";
const BUCKET_KEY: &str = "x-amz-server-side-encryption-bucket-key-enabled";
const AES256: &str = "AES256";

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

/// The keys of the cluster. Two methods.
pub trait KeyService: Send + Sync + 'static {
    /// The key under which data keys are wrapped of objects that are not encrypted with a client's own; nothing while it is not known.
    fn master_key(&self) -> Option<Secret>;

    /// Bytes that nobody can guess.
    fn draw(&self) -> [u8; 32];
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
    ByCluster,
    ByCustomer(CustomerKey),
}

/// The data key of an object, wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Envelope {
    /// The id of the master key; nothing if a client has the key.
    master: Option<u64>,
    salt: [u8; 32],
    wrapped: [u8; WRAPPED_BYTES],
}

const VERSION: u8 = 1;
const BY_CLUSTER: u8 = 1;
const BY_CUSTOMER: u8 = 2;

impl Envelope {
    fn encode(&self) -> KeyEnvelope {
        let mut out = vec![VERSION, self.kind()];
        out.extend(self.master.iter().flat_map(|id| id.to_be_bytes()));
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.wrapped);
        KeyEnvelope(Bytes::from(out))
    }

    fn decode(envelope: &KeyEnvelope) -> Result<Self, Malformed> {
        let mut from = Cursor(envelope.0.clone());
        let master = match (from.u8()?, from.u8()?) {
            (VERSION, BY_CLUSTER) => Some(from.u64()?),
            (VERSION, BY_CUSTOMER) => None,
            _ => return Err(Malformed),
        };
        let envelope = Self { master, salt: from.array()?, wrapped: from.array()? };
        from.end()?;
        Ok(envelope)
    }

    const fn kind(&self) -> u8 {
        if self.master.is_some() { BY_CLUSTER } else { BY_CUSTOMER }
    }

    fn wrapping_key(&self, secret: &Secret, (bucket, key): (&str, &str)) -> WrappingKey {
        WrappingKey::derive(secret, &[&[self.kind()], &self.salt, bucket.as_bytes(), key.as_bytes()])
    }
}

impl Call<'_> {
    /// Whether nobody on the way can read what the client sends: TLS, or a way that does not leave the machine.
    fn is_private(&self) -> bool {
        self.is_encrypted || self.peer.is_some_and(|peer| peer.is_loopback())
    }

    /// The key of its own that the client has sent.
    pub(super) fn customer_key(&self, of: KeyOf) -> Result<Option<CustomerKey>, S3Error> {
        CustomerKey::of(self.head, of, self.is_private())
    }

    /// How the request wants its object to be encrypted, in this bucket.
    fn wanted(&self, bucket: &Bucket) -> Result<Wanted, S3Error> {
        let algorithm = self.head.header(ALGORITHM);
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
            Some(AES256) if self.head.header(BUCKET_KEY).is_some_and(|value| value != "false") => {
                Err(Code::NotImplemented.into())
            }
            Some(AES256) => Ok(Wanted::ByCluster),
            Some("aws:kms" | "aws:kms:dsse") => Err(Code::NotImplemented
                .because("Server-side encryption with keys of a KMS is not implemented: this server has none")),
            Some(_) => Err(invalid("The encryption method specified is not supported")),
            None if has_kms_key || self.head.header(BUCKET_KEY).is_some() => Err(invalid(
                "Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms",
            )),
            None => Ok(match self.customer_key(KeyOf::Target)? {
                Some(key) => Wanted::ByCustomer(key),
                None if bucket.attributes.get(ENCRYPTION).is_some() => Wanted::ByCluster,
                None => Wanted::Not,
            }),
        }
    }

    /// Whether the request says how its object is to be encrypted.
    pub(super) fn names_encryption(&self) -> bool {
        self.head.headers.iter().any(|(name, _)| name.starts_with(ALGORITHM))
    }

    /// How the object that the request puts into this bucket is encrypted: with a new key, or not.
    pub(super) fn encryption_of_new(&self, bucket: &Bucket) -> Result<Option<Encryption>, S3Error> {
        let (secret, master) = match self.wanted(bucket)? {
            Wanted::Not => return Ok(None),
            Wanted::ByCustomer(key) => (key.secret, None),
            Wanted::ByCluster => {
                let secret = self.s3.keys.master_key().ok_or(Code::ServiceUnavailable)?;
                let id = secret.key_id().0;
                (secret, Some(id))
            }
        };
        let data_key = DataKey::from_bytes(self.s3.keys.draw());
        let mut envelope = Envelope { master, salt: self.s3.keys.draw(), wrapped: [0; WRAPPED_BYTES] };
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
        let opened = match (envelope.master, customer) {
            (Some(_), Some(_)) => return Err(Error::KeyNotNeeded),
            (None, None) => return Err(Error::KeyMissing),
            (None, Some(key)) => {
                envelope.wrapping_key(&key.secret, name).unwrap(&envelope.wrapped).map_err(|_| Error::WrongKey)
            }
            (Some(id), None) => {
                let secret = self.s3.keys.master_key().ok_or(Error::Unavailable)?;
                if secret.key_id().0 != id {
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
        if algorithm.is_some_and(|algorithm| algorithm != AES256) {
            return Err(invalid("x-amz-server-side-encryption header is not supported for this operation."));
        }
        let customer = self.customer_key(KeyOf::Target)?;
        let is_by_cluster = algorithm.is_some();
        Ok(move |envelope: Option<&KeyEnvelope>| {
            let is_other = is_by_cluster && !envelope.is_some_and(is_by_cluster_key);
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
            Some(envelope) if is_by_cluster_key(envelope) => vec![(ALGORITHM.into(), AES256.to_owned())],
            Some(_) => {
                let [algorithm, _, md5] = KeyOf::Target.headers();
                let sent = self.customer_key(KeyOf::Target).ok().flatten();
                let md5 = sent.map(|key| (md5.into(), key.md5));
                [(algorithm.into(), AES256.to_owned())].into_iter().chain(md5).collect()
            }
        }
    }
}

fn is_by_cluster_key(envelope: &KeyEnvelope) -> bool {
    Envelope::decode(envelope).is_ok_and(|envelope| envelope.master.is_some())
}

/// The default of a bucket, as a `PutBucketEncryption` sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultEncryption {
    /// Whether requests to a KMS should be spared. There is none, so it is only told again.
    pub has_bucket_key: bool,
}

impl DefaultEncryption {
    /// Reads the document.
    ///
    /// # Errors
    /// [`Code::MalformedXML`]; [`Code::NotImplemented`] for keys of a KMS and what else is not known here.
    pub fn decode(bytes: &[u8]) -> Result<Self, S3Error> {
        let root = decode(bytes, "ServerSideEncryptionConfiguration")?;
        let [rule] = root.children.as_slice() else { return Err(Code::MalformedXML.into()) };
        let is_known =
            |child: &Element| ["ApplyServerSideEncryptionByDefault", "BucketKeyEnabled"].contains(&child.name.as_str());
        if rule.name != "Rule" {
            return Err(Code::MalformedXML.into());
        }
        if !rule.children.iter().all(is_known) {
            return Err(Code::NotImplemented.into());
        }
        let default = rule.child("ApplyServerSideEncryptionByDefault").ok_or(Code::MalformedXML)?;
        match default.text_of("SSEAlgorithm").map(str::trim) {
            Some(AES256) if default.child("KMSMasterKeyID").is_some() => {
                return Err(invalid("a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms"));
            }
            Some(AES256) => {}
            Some("aws:kms" | "aws:kms:dsse") => return Err(Code::NotImplemented.into()),
            _ => return Err(Code::MalformedXML.into()),
        }
        let has_bucket_key = rule.text_of("BucketKeyEnabled").map(check_flag).transpose()?.unwrap_or(false);
        Ok(Self { has_bucket_key })
    }

    /// The default that a bucket's attributes keep, if there is one.
    #[must_use]
    pub fn of(attributes: &Attributes) -> Option<Self> {
        attributes.get(ENCRYPTION).map(|text| Self { has_bucket_key: text == "AES256 bucket-key" })
    }

    /// The attribute that keeps it.
    #[must_use]
    pub fn text(self) -> String {
        (if self.has_bucket_key { "AES256 bucket-key" } else { AES256 }).to_owned()
    }

    /// The document that tells it.
    #[must_use]
    pub fn write(self) -> XmlWriter {
        let mut xml = XmlWriter::new("ServerSideEncryptionConfiguration");
        xml.element("Rule", |xml| {
            xml.element("ApplyServerSideEncryptionByDefault", |xml| xml.text("SSEAlgorithm", AES256));
            xml.flag("BucketKeyEnabled", self.has_bucket_key);
        });
        xml
    }
}

#[cfg(test)]
mod tests;

//! How a bucket encrypts what is put without a word about it.

use super::ENCRYPTION;
use super::key::{AES256, DSSE, KMS, KeyName, UNNAMED};
use crate::api::Attributes;
use crate::s3::document::{check_flag, decode};
use crate::s3::error::{Code, S3Error};
use crate::s3::xml::{Element, XmlWriter};

/// The default of a bucket, as a `PutBucketEncryption` sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultEncryption {
    /// Under which key of the cluster data keys are wrapped.
    pub key: KeyName,
    /// Whether requests to a KMS should be spared. None are made, so it is only told again.
    pub has_bucket_key: bool,
}

impl DefaultEncryption {
    /// Reads the document.
    ///
    /// # Errors
    /// [`Code::MalformedXML`]; [`Code::InvalidArgument`] where a key is named that is not needed, or is not and must be;
    /// [`Code::KmsNotFound`] for what no key can be called; [`Code::NotImplemented`] for what else is not known here.
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
        let name = default.text_of("KMSMasterKeyID").map(str::trim);
        let key = match (default.text_of("SSEAlgorithm").map(str::trim), name) {
            (Some(AES256), Some(_)) => {
                let why = "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms";
                return Err(Code::InvalidArgument.because(why));
            }
            (Some(AES256), None) => KeyName::Master,
            (Some(KMS), name) => KeyName::of_client(name.ok_or(UNNAMED)?)?,
            (Some(DSSE), _) => return Err(Code::NotImplemented.into()),
            _ => return Err(Code::MalformedXML.into()),
        };
        let has_bucket_key = rule.text_of("BucketKeyEnabled").map(check_flag).transpose()?.unwrap_or(false);
        Ok(Self { key, has_bucket_key })
    }

    /// The default that a bucket's attributes keep, if there is one.
    #[must_use]
    pub fn of(attributes: &Attributes) -> Option<Self> {
        attributes.get(ENCRYPTION).map(|text| {
            let mut words = text.split(' ').skip(1);
            let has_bucket_key = words.clone().any(|word| word == "bucket-key");
            let name = words.find_map(|word| word.strip_prefix("key="));
            Self { key: name.map_or(KeyName::Master, |name| KeyName::Kms(name.to_owned())), has_bucket_key }
        })
    }

    /// The attribute that keeps it.
    #[must_use]
    pub fn text(&self) -> String {
        let name = self.key.kms().map(|name| format!(" key={name}")).unwrap_or_default();
        let bucket_key = if self.has_bucket_key { " bucket-key" } else { "" };
        format!("{}{name}{bucket_key}", self.key.algorithm())
    }

    /// The document that tells it.
    #[must_use]
    pub fn write(&self) -> XmlWriter {
        let mut xml = XmlWriter::new("ServerSideEncryptionConfiguration");
        xml.element("Rule", |xml| {
            xml.element("ApplyServerSideEncryptionByDefault", |xml| {
                xml.text("SSEAlgorithm", self.key.algorithm());
                if let Some(name) = self.key.kms() {
                    xml.text("KMSMasterKeyID", name);
                }
            });
            xml.flag("BucketKeyEnabled", self.has_bucket_key);
        });
        xml
    }
}

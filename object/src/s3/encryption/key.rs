//! The keys of the cluster, under which data keys are wrapped: the master key, and keys with names (SSE-KMS).

use ashlar_wire::secret::Secret;

use crate::s3::error::{Code, S3Error};

pub(super) const AES256: &str = "AES256";
pub(super) const KMS: &str = "aws:kms";
pub(super) const DSSE: &str = "aws:kms:dsse";
/// With what AWS's long form of a key's name begins.
const ARN: &str = "arn:aws:kms:";

/// The short form of a key's name. By it keys are found, and compared where a policy is about one, so that no other way to write a name
/// leads past the policy.
pub(in crate::s3) fn short_name(name: &str) -> &str {
    match name.strip_prefix(ARN) {
        Some(rest) => rest.rsplit_once("key/").map_or(rest, |(_, name)| name),
        None => name,
    }
}

/// `aws:kms` without a key. AWS has one for each account.
pub(super) const UNNAMED: S3Error = Code::InvalidArgument
    .because("Server Side Encryption with AWS KMS managed key requires the id of a key: there is none by default");

/// Which key of the cluster a data key is wrapped under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyName {
    /// The one that every cluster has.
    Master,
    /// One that an administrator has made, with its name.
    Kms(String),
}

impl KeyName {
    /// Bytes of a name.
    pub const BYTES_MAX: usize = 64;

    /// The key that an administrator calls so: by 1 to 64 letters, digits, `-`, `_` and `.`. Nothing for other names.
    #[must_use]
    pub fn named(name: String) -> Option<Self> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = (1..=Self::BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter);
        is_name.then_some(Self::Kms(name))
    }

    /// The key that a client names, in AWS's long form too.
    ///
    /// # Errors
    /// [`Code::KmsNotFound`]: no key can be called so.
    pub(super) fn of_client(text: &str) -> Result<Self, S3Error> {
        Self::named(short_name(text).to_owned()).ok_or(Code::KmsNotFound.into())
    }

    /// What S3 calls encryption with this key.
    pub(super) const fn algorithm(&self) -> &'static str {
        match self {
            Self::Master => AES256,
            Self::Kms(_) => KMS,
        }
    }

    /// The name, of a key that has one.
    pub(super) fn kms(&self) -> Option<&str> {
        match self {
            Self::Master => None,
            Self::Kms(name) => Some(name),
        }
    }
}

/// Why a key of the cluster is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoKey {
    /// It is not known yet. A retry is safe.
    Unavailable,
    /// The caller's fault: nobody has made it.
    Unknown,
}

impl From<NoKey> for S3Error {
    fn from(error: NoKey) -> Self {
        match error {
            NoKey::Unavailable => Code::ServiceUnavailable,
            NoKey::Unknown => Code::KmsNotFound,
        }
        .into()
    }
}

/// The keys of the cluster. Two methods.
pub trait KeyService: Send + Sync + 'static {
    /// A key under which data keys are wrapped.
    ///
    /// # Errors
    /// See [`NoKey`].
    fn key(&self, name: &KeyName) -> Result<Secret, NoKey>;

    /// Bytes that nobody can guess.
    fn draw(&self) -> [u8; 32];
}

//! AWS Signature Version 4: canonical requests, strings to sign, keys and chains of chunk signatures. Values only.
//!
//! Follows AWS's published description. Its examples are golden vectors in the tests.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::encoding::{encode_path, from_hex, to_hex};
use super::head::RequestHead;

/// The only algorithm.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The service that keys are derived for.
pub const SERVICE: &str = "s3";
/// The service of temporary credentials.
pub const STS: &str = "sts";
/// The end of every scope.
pub const TERMINATOR: &str = "aws4_request";

/// The SHA-256 of bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A signature. Compared in constant time only.
#[derive(Debug, Clone, Copy)]
pub struct Signature([u8; 32]);

impl Signature {
    /// The signature that 64 hexadecimal digits write.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        from_hex(text).map(Self)
    }

    /// As hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        to_hex(&self.0)
    }

    /// Whether it is the same, in a time that does not depend on where they differ.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// For which day, region and service a key is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Eight digits.
    pub day: String,
    /// The region's name.
    pub region: String,
    /// [`SERVICE`] or [`STS`].
    pub service: &'static str,
}

impl Scope {
    /// As it stands in credentials and strings to sign.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}/{}/{}/{TERMINATOR}", self.day, self.region, self.service)
    }
}

/// A key that signs within one scope. Wiped when dropped.
#[derive(Clone)]
pub struct SigningKey(Zeroizing<[u8; 32]>);

impl SigningKey {
    /// The key of a secret in a scope.
    #[must_use]
    pub fn derive(secret: &str, scope: &Scope) -> Self {
        let first = Zeroizing::new(format!("AWS4{secret}"));
        let steps = [scope.day.as_str(), &scope.region, scope.service, TERMINATOR];
        let mut key = Zeroizing::new(hmac(first.as_bytes(), scope.day.as_bytes()));
        for step in &steps[1..] {
            key = Zeroizing::new(hmac(&*key, step.as_bytes()));
        }
        Self(key)
    }

    /// Signs a text.
    #[must_use]
    pub fn sign(&self, text: &str) -> Signature {
        Signature(hmac(&*self.0, text.as_bytes()))
    }
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// The request in the one spelling that is signed. `signed` are the lower-case names of the signed headers in the order of
/// the request; `payload` is what stands for the body.
#[must_use]
pub fn canonical_request(head: &RequestHead, signed: &[&str], payload: &str) -> String {
    let mut text = String::new();
    for line in [head.method.name(), &encode_path(&head.path), &head.query.canonical()] {
        text.push_str(line);
        text.push('\n');
    }
    for name in signed {
        text.push_str(name);
        text.push(':');
        let values = head.headers.iter().filter(|(known, _)| known == name);
        for (index, (_, value)) in values.enumerate() {
            if index > 0 {
                text.push(',');
            }
            push_collapsed(&mut text, value);
        }
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&signed.join(";"));
    text.push('\n');
    text.push_str(payload);
    text
}

/// A value without space around it and with one space for each run of them.
fn push_collapsed(text: &mut String, value: &str) {
    for (index, word) in value.split([' ', '\t']).filter(|word| !word.is_empty()).enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(word);
    }
}

/// What is signed of a request.
#[must_use]
pub fn string_to_sign(date: &str, scope: &Scope, canonical_request: &str) -> String {
    format!("{ALGORITHM}\n{date}\n{}\n{}", scope.text(), to_hex(&sha256(canonical_request.as_bytes())))
}

/// Signatures of the chunks of one body: each is made over the one before it.
#[derive(Clone)]
pub struct ChunkChain {
    key: SigningKey,
    date: String,
    scope: Scope,
    previous: Signature,
}

impl ChunkChain {
    /// The chain that begins with the signature of the request.
    #[must_use]
    pub const fn new(key: SigningKey, date: String, scope: Scope, seed: Signature) -> Self {
        Self { key, date, scope, previous: seed }
    }

    /// Whether the next chunk, whose bytes have this SHA-256, has this signature.
    #[must_use]
    pub fn is_next(&mut self, digest: &[u8; 32], signature: &Signature) -> bool {
        let empty = to_hex(&sha256(&[]));
        self.step("AWS4-HMAC-SHA256-PAYLOAD", &format!("{empty}\n{}", to_hex(digest)), signature)
    }

    /// Whether the trailers, whose lines have this SHA-256, have this signature.
    #[must_use]
    pub fn is_trailer(&mut self, digest: &[u8; 32], signature: &Signature) -> bool {
        self.step("AWS4-HMAC-SHA256-TRAILER", &to_hex(digest), signature)
    }

    fn step(&mut self, kind: &str, end: &str, signature: &Signature) -> bool {
        let Self { date, scope, previous, .. } = self;
        let expected = self.key.sign(&format!("{kind}\n{date}\n{}\n{}\n{end}", scope.text(), previous.to_hex()));
        self.previous = expected;
        expected.is_same(signature)
    }
}

impl core::fmt::Debug for ChunkChain {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ChunkChain").field("date", &self.date).field("scope", &self.scope).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

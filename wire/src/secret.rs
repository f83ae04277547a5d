//! How the cluster's secret is held, named and proved.
//!
//! Servers of a cluster share 32 bytes of chance. They never travel: a server proves that it holds them by a MAC over
//! what both sides just said, and names them by a [`KeyId`]. The bytes are wiped when the value ends, show as `***`
//! everywhere, and compare in constant time. There is no way to get them out again.
//!
//! The secret must be chance, not a password: whoever sees a key id or a MAC can test guesses against it. A password
//! does not parse here, because only 64 hexadecimal digits do.
//!
//! MAC: keyed BLAKE3 over the context and the parts, each after its length in 8 bytes little-endian, so that no two
//! lists of parts give the same input. Key id: BLAKE3's key derivation, which shares no input with its keyed mode.

use core::fmt;
use core::str::FromStr;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroize as _;

use crate::hex;

/// Why a text is not a secret. Says nothing about the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseSecretError;

impl fmt::Display for ParseSecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret is 64 hexadecimal digits (32 bytes of chance)")
    }
}

impl core::error::Error for ParseSecretError {}

/// The name of a secret: tells two secrets apart, tells nothing about either. Safe to send and to log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u64);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// 32 bytes that all servers of a cluster hold and nobody else.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Bytes of a secret, and of a MAC.
    pub const LEN: usize = 32;

    /// The secret with these bytes. The caller wipes its own copy.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The name of this secret.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        let mut hasher = blake3::Hasher::new_derive_key("ashlar key id v1");
        hasher.update(&self.0);
        let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
        hasher.zeroize();
        KeyId(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    /// The proof that the holder of this secret means `parts`, in the sense of `context`. Compare a received one with
    /// [`Secret::verify`], never with `==`.
    #[must_use]
    pub fn mac(&self, context: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in core::iter::once(context.as_bytes()).chain(parts.iter().copied()) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mac = *hasher.finalize().as_bytes();
        hasher.zeroize();
        mac
    }

    /// Whether `mac` is what [`Secret::mac`] gives for this context and these parts. Takes as long for a wrong MAC as
    /// for the right one.
    #[must_use]
    pub fn verify(&self, context: &str, parts: &[&[u8]], mac: &[u8; 32]) -> bool {
        let mut expected = self.mac(context, parts);
        let same = bool::from(expected.ct_eq(mac));
        expected.zeroize();
        same
    }
}

impl FromStr for Secret {
    type Err = ParseSecretError;

    /// Reads 64 hexadecimal digits of either case.
    fn from_str(text: &str) -> Result<Self, ParseSecretError> {
        let digits = text.as_bytes();
        if digits.len() != 2 * Self::LEN {
            return Err(ParseSecretError);
        }
        let mut secret = Self([0; Self::LEN]);
        for (byte, pair) in secret.0.iter_mut().zip(digits.chunks_exact(2)) {
            let (high, low) = hex::digit(pair[0]).zip(hex::digit(pair[1])).ok_or(ParseSecretError)?;
            *byte = high << 4 | low;
        }
        Ok(secret)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString as _;

    const TEXT: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    fn secret() -> Secret {
        TEXT.parse().unwrap()
    }

    #[test]
    fn text_parses_in_either_case_only_if_whole() {
        assert_eq!(secret(), Secret::from_bytes(core::array::from_fn(|i| u8::try_from(i).unwrap())));
        assert_eq!(TEXT.to_uppercase().parse(), Ok(secret()));
        let wrong =
            ["", "password", &TEXT[1..], &format!("{TEXT}0"), &TEXT.replace('f', "g"), &TEXT.replace("00", "é")];
        for wrong in wrong {
            assert_eq!(wrong.parse::<Secret>(), Err(ParseSecretError), "{wrong}");
        }
    }

    #[test]
    fn it_never_shows() {
        assert_eq!(format!("{0} {0:?} {0:#?}", secret()), "*** *** ***");
        assert!(!ParseSecretError.to_string().contains("00"));
    }

    #[test]
    fn golden_values() {
        assert_eq!(secret().key_id().to_string(), "951c4ef2a0028549");
        let mac = secret().mac("context", &[b"one", b"two"]);
        assert_eq!(
            blake3::Hash::from_bytes(mac).to_string(),
            "022a0e1de1a7a2ca694def91257a550493cc6df7ee839e0717068c4de5bca6c3"
        );
    }

    #[test]
    fn a_mac_is_bound_to_key_context_and_each_part() {
        let mac = secret().mac("context", &[b"one", b"two"]);
        assert!(secret().verify("context", &[b"one", b"two"], &mac));
        let other = Secret::from_bytes([7; 32]);
        assert_ne!(other, secret());
        assert_ne!(other.key_id(), secret().key_id());
        assert!(!other.verify("context", &[b"one", b"two"], &mac));
        let cases: [(&str, &[&[u8]]); 7] = [
            ("contexT", &[b"one", b"two"]),
            ("context", &[b"two", b"one"]),
            ("context", &[b"onet", b"wo"]),
            ("context", &[b"onetwo"]),
            ("context", &[b"one", b"two", b""]),
            ("context", &[b"", b"one", b"two"]),
            ("contextone", &[b"two"]),
        ];
        for (context, parts) in cases {
            assert!(!secret().verify(context, parts, &mac), "{context} {parts:?}");
        }
        for bit in 0..256 {
            let mut wrong = mac;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!secret().verify("context", &[b"one", b"two"], &wrong), "bit {bit}");
        }
    }
}

//! What must not be seen: compared in constant time, wiped when dropped, printed as `***`.

use core::fmt;

use alloc::string::String;

use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, ZeroizeOnDrop, Zeroizing};

/// 32 bytes that only the cluster's servers know.
#[derive(Clone, ZeroizeOnDrop)]
pub struct Secret([u8; 32]);

/// Tells two secrets apart without telling anything about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub u64);

/// A text is not a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseSecretError;

impl fmt::Display for ParseSecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret is 64 hexadecimal digits")
    }
}

impl core::error::Error for ParseSecretError {}

impl Secret {
    /// The secret with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret that 64 hexadecimal digits write; space around them is passed over.
    ///
    /// # Errors
    /// Other text. The error says nothing about it.
    pub fn from_hex(text: &str) -> Result<Self, ParseSecretError> {
        let digits = text.trim().as_bytes();
        let mut bytes = [0; 32];
        let parsed = digits.len() == 64
            && bytes.iter_mut().zip(digits.chunks_exact(2)).all(|(byte, pair)| {
                let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
                digit(pair[0]).zip(digit(pair[1])).map(|(high, low)| *byte = high << 4 | low).is_some()
            });
        let secret = Self(bytes);
        bytes.zeroize();
        if parsed { Ok(secret) } else { Err(ParseSecretError) }
    }

    /// The secret as 64 hexadecimal digits, for the file that keeps it and for servers that have proved that they may
    /// hold it; wiped when dropped.
    #[must_use]
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(64));
        for nibble in self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
            text.push(char::from_digit(u32::from(nibble), 16).expect("four bits are a digit"));
        }
        text
    }

    /// Which secret this is; may be sent and logged.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        let [a, b, c, d, e, f, g, h, ..] = self.mac("ashlar key id v1", &[]);
        KeyId(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    /// A message authentication code (keyed BLAKE3) over `context` and `parts`. Each part is bound with its length, so no
    /// two lists of parts give the same input.
    #[must_use]
    pub fn mac(&self, context: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in [context.as_bytes()].iter().chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let code = *hasher.finalize().as_bytes();
        // The state holds the secret.
        hasher.zeroize();
        code
    }

    /// Whether `code` is [`Secret::mac`] of the same; in constant time.
    #[must_use]
    pub fn verify(&self, context: &str, parts: &[&[u8]], code: &[u8; 32]) -> bool {
        self.mac(context, parts).ct_eq(code).into()
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

    #[test]
    fn prints_as_stars() {
        let secret = Secret::from_bytes([7; 32]);
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
    }

    #[test]
    fn hex_and_its_errors() {
        let text = "0707070707070707070707070707070707070707070707070707070707070707";
        assert_eq!(Secret::from_hex(&format!(" {text}\n")), Ok(Secret::from_bytes([7; 32])));
        assert_eq!(*Secret::from_bytes([7; 32]).to_hex(), text);
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace('7', "g"), &text.replace("07", "+7")] {
            assert_eq!(Secret::from_hex(wrong), Err(ParseSecretError), "{wrong}");
        }
    }

    #[test]
    fn each_digit_counts_in_either_place() {
        let text = "0123456789abcdeffedcba98765432100f1e2d3c4b5a69788796a5b4c3d2e1f0";
        let bytes = [
            0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10, //
            0x0f, 0x1e, 0x2d, 0x3c, 0x4b, 0x5a, 0x69, 0x78, 0x87, 0x96, 0xa5, 0xb4, 0xc3, 0xd2, 0xe1, 0xf0,
        ];
        assert_eq!(Secret::from_hex(text), Ok(Secret::from_bytes(bytes)));
        assert_eq!(Secret::from_hex(&text.to_uppercase()), Ok(Secret::from_bytes(bytes)));
        assert_eq!(*Secret::from_bytes(bytes).to_hex(), text);
        assert_ne!(Secret::from_bytes(bytes), Secret::from_bytes([7; 32]));
    }

    #[test]
    fn golden_values() {
        let secret = Secret::from_bytes(core::array::from_fn(|index| u8::try_from(index).unwrap()));
        assert_eq!(secret.key_id(), KeyId(0xd781_0bef_32be_621f));
        let code = secret.mac("context", &[b"one", b"two"]);
        assert_eq!(
            format!("{}", blake3::Hash::from_bytes(code)),
            "022a0e1de1a7a2ca694def91257a550493cc6df7ee839e0717068c4de5bca6c3"
        );
        for bit in 0..256 {
            let mut wrong = code;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!secret.verify("context", &[b"one", b"two"], &wrong), "bit {bit}");
        }
    }

    #[test]
    fn parts_have_boundaries() {
        let secret = Secret::from_bytes([7; 32]);
        let code = secret.mac("context", &[b"ab", b"c"]);
        assert!(secret.verify("context", &[b"ab", b"c"], &code));
        for (context, parts) in [("context", [b"a".as_slice(), b"bc"]), ("contex", [b"tab", b"c"])] {
            assert!(!secret.verify(context, &parts, &code));
        }
        assert!(!Secret::from_bytes([8; 32]).verify("context", &[b"ab", b"c"], &code));
        assert_ne!(secret.key_id(), Secret::from_bytes([8; 32]).key_id());
    }
}

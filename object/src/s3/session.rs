//! Temporary credentials: an access key, a secret and a token that says whose they are, until when, and what narrows them.
//!
//! Nothing is kept of a session. Its token is sealed with a code under the cluster's master key, over the secret of its maker too, and its
//! secret follows from the token's body under the same key, so every server can check it. It ends when its time is over, or with the
//! key that it was made with, also if that gets another secret.
//!
//! Written form of a token, version 2, in Base64: version, end in milliseconds since 1970 (8 bytes), access key of the session,
//! access key that made it (2 bytes of length and text each), policy (4 bytes of length and text, empty for none), code (32 bytes).

use ashlar_wire::secret::Secret;
use bytes::Bytes;

use super::authenticate::SecretKey;
use super::encoding::{from_base64, to_base64};
use super::error::Code;
use crate::cursor::{Cursor, Malformed, Put as _};

/// How long a session may last, in seconds.
pub(super) const SECONDS_MIN: u64 = 900;
/// A week, as MinIO has it.
pub(super) const SECONDS_MAX: u64 = 7 * 24 * 3_600;
pub(super) const SECONDS_DEFAULT: u64 = 3_600;
/// Longest policy of a session, bytes.
pub(super) const POLICY_BYTES_MAX: usize = 2_048;

/// In version 1 the code was not over the secret of the maker.
const VERSION: u8 = 2;
const CODE_BYTES: usize = 32;
/// With this begin the access keys of sessions at AWS, and clients show it.
const PREFIX: &str = "ASIA";
/// Bytes by chance of an access key, of which each gives a letter.
const LETTERS: usize = 16;
const KEY_BYTES_MAX: usize = 128;
/// Bytes of a secret key before Base64.
const SECRET_BYTES: usize = 30;

const TOKEN: &str = "ashlar session token v2";
const SECRET: &str = "ashlar session secret v1";

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) access_key: String,
    /// The access key that made it.
    pub(super) maker: String,
    /// When it ends, in milliseconds since 1970 (UTC).
    pub(super) until_ms: u64,
    /// What narrows it; nothing if it may do all that its maker may.
    pub(super) policy: Option<String>,
}

impl Session {
    /// A session whose access key nobody has had, of bytes that were drawn by chance.
    pub(super) fn new(drawn: &[u8; 32], maker: &str, until_ms: u64, policy: Option<String>) -> Self {
        let letter = |byte: &u8| char::from(b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789"[usize::from(byte % 32)]);
        let access_key = PREFIX.chars().chain(drawn[..LETTERS].iter().map(letter)).collect();
        Self { access_key, maker: maker.to_owned(), until_ms, policy }
    }

    fn body(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.put_u64(self.until_ms);
        out.put_short(self.access_key.as_bytes());
        out.put_short(self.maker.as_bytes());
        out.put_long(self.policy.as_deref().unwrap_or_default().as_bytes());
        out
    }

    /// The token, sealed.
    pub(super) fn token(&self, secret: &Secret, maker: &SecretKey) -> String {
        let body = self.body();
        let code = secret.mac(TOKEN, &[&body, maker.text().as_bytes()]);
        to_base64(&[&body[..], &code].concat())
    }

    /// What a token says that was sealed with this secret, and what `maker` finds about its maker. What it says counts only with that.
    ///
    /// # Errors
    /// [`Code::InvalidToken`]: it was not sealed so. [`Code::InvalidAccessKeyId`]: its maker is not there any more.
    pub(super) fn open<T>(
        secret: &Secret,
        token: &str,
        maker: impl FnOnce(&str) -> Option<(SecretKey, T)>,
    ) -> Result<(Self, T), Code> {
        let bytes = from_base64(token).ok_or(Code::InvalidToken)?;
        let (body, code) = bytes.split_last_chunk::<CODE_BYTES>().ok_or(Code::InvalidToken)?;
        let session = Self::decode(body).map_err(|_| Code::InvalidToken)?;
        let (key, found) = maker(&session.maker).ok_or(Code::InvalidAccessKeyId)?;
        let is_sealed = secret.verify(TOKEN, &[body, key.text().as_bytes()], code);
        if is_sealed { Ok((session, found)) } else { Err(Code::InvalidToken) }
    }

    fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor(Bytes::copy_from_slice(body));
        if from.u8()? != VERSION {
            return Err(Malformed);
        }
        let until_ms = from.u64()?;
        let (access_key, maker) = (from.text(KEY_BYTES_MAX)?, from.text(KEY_BYTES_MAX)?);
        let policy = String::from_utf8(from.long(POLICY_BYTES_MAX)?.to_vec()).map_err(|_| Malformed)?;
        from.end()?;
        Ok(Self { access_key, maker, until_ms, policy: Some(policy).filter(|policy| !policy.is_empty()) })
    }

    /// With what the session signs.
    pub(super) fn secret_key(&self, secret: &Secret) -> SecretKey {
        let code = secret.mac(SECRET, &[&self.body()]);
        SecretKey::new(to_base64(&code[..SECRET_BYTES]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_sealed() {
        let secret = Secret::from_bytes([7; 32]);
        for policy in [None, Some("{}".to_owned())] {
            let session = Session::new(&[3; 32], "ann-key", 0x0102, policy);
            assert_eq!(session.access_key, "ASIADDDDDDDDDDDDDDDD");
            let key = |text: &str| SecretKey::new(text.to_owned());
            let token = session.token(&secret, &key("of ann"));
            let open_by = |secret: &Secret, token: &str, of_maker: Option<&str>| {
                Session::open(secret, token, |maker| {
                    assert!(maker == "ann-key" || token != session.token(secret, &key("of ann")));
                    Some((key(of_maker?), ()))
                })
            };
            let open = |token: &str| open_by(&secret, token, Some("of ann"));
            assert_eq!(open(&token), Ok((session.clone(), ())));
            assert_eq!(open_by(&Secret::from_bytes([8; 32]), &token, Some("of ann")), Err(Code::InvalidToken));
            assert_eq!(
                open_by(&secret, &token, Some("another")),
                Err(Code::InvalidToken),
                "the maker's key was replaced"
            );
            assert_eq!(open_by(&secret, &token, None), Err(Code::InvalidAccessKeyId), "it was deleted");
            let bytes = from_base64(&token).expect("Base64");
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert_eq!(open(&to_base64(&changed)), Err(Code::InvalidToken), "{at}");
                assert_eq!(open(&to_base64(&bytes[..at])), Err(Code::InvalidToken), "{at}");
            }
            assert_ne!(session.secret_key(&secret).text(), session.secret_key(&Secret::from_bytes([8; 32])).text());
            assert_eq!(session.secret_key(&secret).text().len(), 40);
        }
        for text in ["no Base64", ""] {
            let opened = Session::open(&secret, text, |_| Some((SecretKey::new(String::new()), ())));
            assert_eq!(opened, Err(Code::InvalidToken));
        }
    }

    #[test]
    fn golden_bytes() {
        let session = Session { access_key: "A".into(), maker: "m".into(), until_ms: 0x0102, policy: Some("p".into()) };
        let form = [2, 0, 0, 0, 0, 0, 0, 1, 2, 0, 1, b'A', 0, 1, b'm', 0, 0, 0, 1, b'p'];
        assert_eq!(session.body(), form);
        assert_eq!(Session::decode(&form), Ok(session));
        assert!(Session::decode(&[&[1], &form[1..]].concat()).is_err());
        assert!(Session::decode(&[&form[..], &[0]].concat()).is_err());
    }
}

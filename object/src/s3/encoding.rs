//! Text forms of S3 requests: percent-encoding, query strings, hexadecimal and Base64.
//!
//! S3 signs the RFC 3986 form: every byte but `A-Z a-z 0-9 - . _ ~` is escaped with upper-case digits. Decoding and
//! encoding again brings a client's spelling to that one form.

use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A text is not what it should be: a broken escape, bytes that are not UTF-8, or too many parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodingError;

impl fmt::Display for EncodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text has a broken escape or is not UTF-8")
    }
}

impl core::error::Error for EncodingError {}

/// Parameters of a query string.
pub const QUERY_PARAMETERS_MAX: usize = 128;

const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const LOWER: &[u8; 16] = b"0123456789abcdef";

fn encode(text: &str, is_kept: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len() + text.len() / 4);
    for byte in text.bytes() {
        // A byte of a longer character is no character.
        if byte.is_ascii() && is_kept(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(UPPER[usize::from(byte >> 4)]));
            encoded.push(char::from(UPPER[usize::from(byte & 15)]));
        }
    }
    encoded
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// A name or value as it stands in a canonical query: slashes are escaped.
#[must_use]
pub fn encode_component(text: &str) -> String {
    encode(text, is_unreserved)
}

/// A name or value of a tag among others in one text: only what would be taken for something else is escaped.
#[must_use]
pub fn encode_tag(text: &str) -> String {
    encode(text, |byte| !matches!(byte, b'%' | b'&' | b'=' | b'+' | b'#') && byte >= b' ')
}

/// A path as it stands in a canonical request: slashes are kept.
#[must_use]
pub fn encode_path(text: &str) -> String {
    encode(text, |byte| is_unreserved(byte) || byte == b'/')
}

/// Whether a path, as it is sent, is what [`encode_path`] makes of it.
#[must_use]
pub fn is_plain_path(text: &str) -> bool {
    text.bytes().all(|byte| is_unreserved(byte) || byte == b'/')
}

/// The text of a path.
///
/// # Errors
/// A broken escape, or bytes that are not UTF-8.
pub fn decode_path(text: &str) -> Result<String, EncodingError> {
    decode(text, b'+')
}

/// The text of a name or value in a query, where `+` is a space.
///
/// # Errors
/// A broken escape, or bytes that are not UTF-8.
pub fn decode_component(text: &str) -> Result<String, EncodingError> {
    decode(text, b' ')
}

fn decode(text: &str, plus: u8) -> Result<String, EncodingError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'%' => {
                let &[high, low, ..] = after else { return Err(EncodingError) };
                rest = &after[2..];
                hex_digit(high).zip(hex_digit(low)).map(|(high, low)| high << 4 | low).ok_or(EncodingError)?
            }
            b'+' => plus,
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| EncodingError)
}

const fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Lower-case hexadecimal digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [LOWER[usize::from(byte >> 4)], LOWER[usize::from(byte & 15)]]);
    digits.map(char::from).collect()
}

/// The bytes that hexadecimal digits write, if there are exactly so many.
#[must_use]
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(bytes)
}

/// Base64 with padding.
#[must_use]
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes that Base64 with padding writes.
#[must_use]
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// The parameters of a query string, decoded, in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Takes a query string apart, without its question mark. A name without `=` has an empty value.
    ///
    /// # Errors
    /// A broken escape, bytes that are not UTF-8, or more than [`QUERY_PARAMETERS_MAX`] parameters.
    pub fn decode(text: &str) -> Result<Self, EncodingError> {
        let mut parameters = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            if parameters.len() == QUERY_PARAMETERS_MAX {
                return Err(EncodingError);
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.push((decode_component(name)?, decode_component(value)?));
        }
        Ok(Self(parameters))
    }

    /// The value of a parameter; the first one if it came more than once.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Whether a parameter is there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// All parameters.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The form that is signed: encoded, sorted by name and value, without the signature itself.
    #[must_use]
    pub fn canonical(&self) -> String {
        let signed = self.iter().filter(|(name, _)| *name != "X-Amz-Signature");
        let mut pairs: Vec<_> = signed.map(|(name, value)| (encode_component(name), encode_component(value))).collect();
        pairs.sort_unstable();
        let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent() {
        assert_eq!(encode_path("/a b/ü+~"), "/a%20b/%C3%BC%2B~");
        assert_eq!(encode_component("a/b=c"), "a%2Fb%3Dc");
        assert_eq!(decode_path("/a%20b+%c3%BC").as_deref(), Ok("/a b+ü"));
        assert_eq!(decode_component("a+b%2B").as_deref(), Ok("a b+"));
        for broken in ["%", "%2", "%2x", "%ff", "%c3"] {
            assert_eq!(decode_path(broken), Err(EncodingError), "{broken}");
        }
    }

    #[test]
    fn of_a_tag_only_what_has_a_meaning_between_tags_is_escaped() {
        assert_eq!(encode_tag("a b/c:d@1._-"), "a b/c:d@1._-");
        assert_eq!(encode_tag("%&=+#\n"), "%25%26%3D%2B%23%0A");
        let text = format!("{}={}&{}=", encode_tag("a=b&c"), encode_tag("1 + 1 = 2"), encode_tag("100 %"));
        let tags = Query::decode(&text).expect("tags");
        assert_eq!(tags.iter().collect::<Vec<_>>(), [("a=b&c", "1 + 1 = 2"), ("100 %", "")]);
        assert_eq!(EncodingError.to_string(), "the text has a broken escape or is not UTF-8");
    }

    #[test]
    fn whatever_is_encoded_is_decoded() {
        arbtest::arbtest(|u| {
            let text: String = u.arbitrary()?;
            assert_eq!(decode_component(&encode_component(&text)), Ok(text.clone()));
            assert_eq!(decode_path(&encode_path(&text)), Ok(text.clone()));
            let bytes: [u8; 4] = u.arbitrary()?;
            assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
            // Any text is decoded or refused, and what is decoded once stays the same.
            if let Ok(query) = Query::decode(&text) {
                let again = Query::decode(&query.canonical()).expect("a canonical query decodes");
                assert_eq!(again.canonical(), query.canonical());
            }
            Ok(())
        });
    }

    #[test]
    fn queries() {
        let query = Query::decode("b=2&a&&c=x%2Fy&a=1").expect("a query");
        assert_eq!((query.get("a"), query.get("c"), query.get("d")), (Some(""), Some("x/y"), None));
        assert_eq!(query.canonical(), "a=&a=1&b=2&c=x%2Fy");
        assert!(Query::decode(&"a&".repeat(QUERY_PARAMETERS_MAX)).is_ok());
        assert!(Query::decode(&"a&".repeat(QUERY_PARAMETERS_MAX + 1)).is_err());
    }
}
